//! Clips of any length and size, source_frame to what the VAE takes: 1 + 4n frames with sides that are multiples of 8.

use std::collections::VecDeque;

use reseed_model::plan::{padded_frames, padded_plane, source_frame};
use reseed_ops::{Hw, Pixels};

/// Frames on the host, `[T, H, W, C]`.
pub trait HostFrames: Clone + Default {
    /// One frame in the top left corner of a larger black one.
    fn padded(&self, plane: Hw, padded: Hw) -> Self;

    /// Adds frames after these.
    fn append(&mut self, more: Self);
}

/// Values from -1 to 1.
impl HostFrames for Vec<f32> {
    fn padded(&self, plane: Hw, padded: Hw) -> Vec<f32> {
        pad(self, plane, padded, -1.0)
    }

    fn append(&mut self, more: Vec<f32>) {
        self.extend(more);
    }
}

impl HostFrames for Pixels {
    fn padded(&self, plane: Hw, padded: Hw) -> Pixels {
        match self {
            Pixels::U8(codes) => Pixels::U8(pad(codes, plane, padded, 0)),
            Pixels::U16(codes) => Pixels::U16(pad(codes, plane, padded, 0)),
        }
    }

    fn append(&mut self, more: Pixels) {
        match (self, more) {
            (Pixels::U8(codes), Pixels::U8(more)) => codes.extend(more),
            (Pixels::U16(codes), Pixels::U16(more)) => codes.extend(more),
            (none, more) => {
                assert!(none.is_empty(), "frames of one depth");
                *none = more;
            }
        }
    }
}

/// Puts a frame `[H, W, C]` into the top left corner of a larger black one.
fn pad<T: Copy>(frame: &[T], plane: Hw, padded: Hw, black: T) -> Vec<T> {
    let channels = frame.len() / plane.count();
    let mut out = vec![black; padded.count() * channels];
    for (from, to) in frame.chunks_exact(plane.w * channels).zip(out.chunks_exact_mut(padded.w * channels)) {
        to[..from.len()].copy_from_slice(from);
    }
    out
}

/// The top left corner of a frame `[H, W, C]`.
pub fn crop<T: Copy>(frame: &[T], padded: Hw, plane: Hw) -> Vec<T> {
    let channels = frame.len() / padded.count();
    let lines = frame.chunks_exact(padded.w * channels).take(plane.h);
    lines.flat_map(|line| &line[..plane.w * channels]).copied().collect()
}

/// Reads frames from a source of unknown length and extends them to 1 + `factor` · n.
pub struct Extended<F, P> {
    next: F,
    plane: Hw,
    padded: Hw,
    factor: usize,
    /// The last frames read: no extension reaches further back.
    recent: VecDeque<P>,
    read: usize,
    given: usize,
    total: Option<usize>,
}

impl<E, P: HostFrames, F: FnMut() -> Result<Option<P>, E>> Extended<F, P> {
    /// `next` gives frames `[H, W, C]` until there are none. `spatial` and `temporal` are the VAE's factors.
    pub fn new(next: F, plane: Hw, spatial: usize, temporal: usize) -> Self {
        let padded = padded_plane(plane, spatial);
        let recent = VecDeque::with_capacity(temporal + 1);
        Extended { next, plane, padded, factor: temporal, recent, read: 0, given: 0, total: None }
    }

    /// Size of the padded frames.
    pub fn padded(&self) -> Hw {
        self.padded
    }

    /// The next `count` frames, padded; fewer at the end, then none.
    pub fn slice(&mut self, count: usize) -> Result<P, E> {
        let mut frames = P::default();
        for _ in 0..count {
            match self.one()? {
                Some(frame) => frames.append(frame),
                None => break,
            }
        }
        Ok(frames)
    }

    fn one(&mut self) -> Result<Option<P>, E> {
        if self.total.is_none() {
            if let Some(frame) = (self.next)()? {
                let frame = frame.padded(self.plane, self.padded);
                if self.recent.len() > self.factor {
                    self.recent.pop_front();
                }
                self.recent.push_back(frame.clone());
                self.read += 1;
                self.given += 1;
                return Ok(Some(frame));
            }
            self.total = Some(if self.read == 0 { 0 } else { padded_frames(self.read, self.factor) });
        }
        let total = self.total.unwrap_or(0);
        if self.given == total {
            return Ok(None);
        }
        let index = source_frame(self.given, self.read, total);
        self.given += 1;
        Ok(Some(self.recent[self.recent.len() - (self.read - index)].clone()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn run(frames: usize) -> Vec<f32> {
        let mut i = 0;
        let next = || -> Result<Option<Vec<f32>>, ()> {
            i += 1;
            Ok((i <= frames).then(|| vec![(i - 1) as f32; 64]))
        };
        let mut clip = Extended::new(next, Hw::new(8, 8), 8, 4);
        let mut all = Vec::new();
        loop {
            let slice = clip.slice(4).unwrap();
            if slice.is_empty() {
                return all;
            }
            all.extend(slice.chunks(64).map(|frame| frame[0]));
        }
    }

    #[test]
    fn a_clip_of_unknown_length_is_extended_like_one_of_known_length() {
        for frames in 0..30 {
            let total = if frames == 0 { 0 } else { padded_frames(frames, 4) };
            let want: Vec<f32> = (0..total).map(|i| source_frame(i, frames, total) as f32).collect();
            assert_eq!(run(frames), want, "{frames} frames");
        }
    }

    #[test]
    fn cropping_undoes_padding() {
        let (plane, padded) = (Hw::new(5, 3), Hw::new(16, 16));
        let frame: Vec<f32> = (0..45).map(|v| v as f32).collect();
        let large = frame.padded(plane, padded);
        assert_eq!(large[15 * 16 * 3], -1.0);
        assert_eq!(crop(&large, padded, plane), frame);
        let codes: Vec<u16> = (1..=45).collect();
        let Pixels::U16(large) = Pixels::U16(codes.clone()).padded(plane, padded) else { panic!("another depth") };
        assert_eq!(large[15 * 16 * 3], 0);
        assert_eq!(crop(&large, padded, plane), codes);
    }
}
