//! The grid has the batches that the batcher of a whole job makes.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::batch::{Batch, Batcher};
use crate::join::Overlap;

fn settings(size: usize, overlap: usize, lead_in: usize) -> Settings {
    let batching = Batching { size, overlap, uniform: false };
    Settings { batching, lead_in, overlap: Overlap::Smooth, ..Settings::default() }
}

/// The batches of a job of so many frames, lead-in included, with cuts.
fn batches(batching: Batching, cuts: &[usize], frames: usize) -> Vec<Batch<usize>> {
    let mut batcher = Batcher::new(batching);
    let mut made = Vec::new();
    for frame in 0..frames {
        if cuts.contains(&frame) {
            made.extend(batcher.end_shot());
        }
        made.extend(batcher.push(frame));
    }
    made.extend(batcher.end_shot());
    made
}

proptest! {
    #[test]
    fn a_grid_has_the_batches_of_the_job(
        size in 1usize..8,
        overlap in 0usize..8,
        lead_in in 0usize..5,
        frames in 1usize..40,
        cuts in prop::collection::btree_set(1usize..44, 0..5),
    ) {
        let settings = settings(size, overlap, lead_in);
        let cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < frames + lead_in).collect();
        let grid = BatchGrid::new(&settings, None).with_cuts(&cuts, frames);
        prop_assert_eq!(grid.cuts(), cuts.clone());
        prop_assert_eq!(grid.frames(), Some(frames));
        let made = batches(settings.batching, &cuts, frames + lead_in);
        for batch in &made {
            prop_assert_eq!(grid.batch(batch.number).collect::<Vec<_>>(), batch.frames.clone());
            prop_assert_eq!(grid.shared(batch.number), batch.shared);
            prop_assert_eq!(grid.shot(batch.number), batch.shot);
        }
        for frame in 0..frames {
            let adds = |batch: &&Batch<usize>| batch.frames[batch.shared..].contains(&(frame + lead_in));
            let adding = made.iter().find(adds).unwrap();
            let found = grid.batches(frame..frame + 1);
            prop_assert_eq!(found.clone(), Some(adding.number..adding.number + 1));
            // The last batch of the shot that has the frame is computed too.
            let last = made.iter().rfind(|batch| {
                batch.shot == adding.shot && batch.frames.iter().any(|f| adding.frames[adding.shared..].contains(f))
            });
            let computed = grid.computed(found.unwrap());
            prop_assert!(computed.end > last.unwrap().number, "{computed:?} without {}", last.unwrap().number);
            prop_assert!(computed.end <= made.len() && computed.end - 1 <= last.unwrap().number);
            prop_assert!(grid.covering(frame..frame + 1).unwrap().contains(&frame));
        }
        prop_assert_eq!(grid.batches(frames..frames + 1), None);
    }
}

#[test]
fn a_lead_in_mirrors_the_first_frames() {
    for (frames, lead_in, mirrored) in [(9, 2, vec![2, 1, 0]), (2, 3, vec![1, 1, 1, 0]), (1, 2, vec![0, 0, 0])] {
        let grid = BatchGrid::new(&settings(5, 0, lead_in), None).with_cuts(&[], frames);
        let first: Vec<usize> = (0..=lead_in).map(|frame| grid.clip_frame(frame)).collect();
        let expected = extend(&(0..frames.min(lead_in + 1)).collect::<Vec<_>>(), lead_in, End::Front);
        assert_eq!(first, expected[..=lead_in], "{frames} frames");
        assert_eq!(first, mirrored, "{frames} frames");
        assert_eq!(grid.input_of(0..1).unwrap().start, 0);
    }
}

/// One shared frame is that of the earlier batch by default, so that no later batch is computed for it.
#[test]
fn only_batches_with_a_weight_are_computed() {
    let grid = |overlap: usize, mode: Overlap| {
        let settings = Settings { overlap: mode, ..settings(5, overlap, 0) };
        BatchGrid::new(&settings, None).with_cuts(&[], 30)
    };
    assert_eq!(grid(0, Overlap::Auto).computed(2..3), 2..3);
    assert_eq!(grid(1, Overlap::Auto).computed(2..3), 2..3);
    assert_eq!(grid(1, Overlap::Smooth).computed(2..3), 2..4);
    assert_eq!(grid(2, Overlap::Auto).computed(2..3), 2..4);
    assert_eq!(grid(2, Overlap::Reference).computed(2..3), 2..4);
    assert_eq!(grid(4, Overlap::Smooth).computed(2..3), 2..7);
}
