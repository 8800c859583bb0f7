//! Sizes and resampling against stored results.
#![allow(clippy::unwrap_used)]

use reseed::{Geometry, Target, View};
use reseed_media::{Frame, Samples, Size};
use reseed_testing::pipeline::{Golden, distance, json, number, size};

fn limit(value: &serde_json::Value) -> Option<usize> {
    Some(number(value)).filter(|&longest| longest > 0)
}

#[test]
fn sizes_are_the_public_ones() {
    let cases = json("sizes.json");
    let cases = cases.as_array().unwrap();
    assert!(cases.len() > 40);
    for case in cases {
        let input = Size { h: number(&case["h"]), w: number(&case["w"]) };
        let target = Target::ShortSide(number(&case["resolution"]));
        let plan = Geometry::new(input, target, limit(&case["max_resolution"])).unwrap();
        let steps: Vec<Size> = case["steps"].as_array().unwrap().iter().map(size).collect();
        assert_eq!(plan, Geometry { input, steps, output: size(&case["true"]), padded: size(&case["padded"]) });
    }
}

/// Two sums of at most `taps` products with weights whose absolute values add up to less than 1.4, in single precision,
/// here and in the stored result; weights are rounded too.
fn allowed(from: usize, to: usize) -> f64 {
    let taps = 4.0 * (from as f64 / to as f64).max(1.0) + 2.0;
    2.0 * 2.0 * (taps + 1.0) * 1.4 * f64::from(f32::EPSILON) / 2.0
}

#[test]
fn resampling_is_the_stored_one() {
    for name in ["up_2x", "up_odd", "down", "down_odd", "one_axis", "wide_and_low"] {
        let golden = Golden::open(&format!("resize_{name}"));
        let to = size(&golden.case["size"]);
        let frames = golden.frames("input");
        let from = frames[0].size;
        let resizer = reseed::resize::Resizer::<3>::new(from, to);
        let resize = |frame: &Frame| {
            let unit = frame.to_unit();
            let mut canvas = vec![0.0; 3 * to.pixels()];
            let row = |y: usize, row: &mut [f32]| row.copy_from_slice(&unit[3 * from.w * y..][..3 * from.w]);
            resizer.run(row, &mut canvas, to.w, |value| value);
            canvas
        };
        let got: Vec<Vec<f32>> = frames.iter().map(resize).collect();
        let off = distance(&got, &golden.pictures("output")).max;
        assert!(off <= allowed(from.h.max(from.w), to.h.min(to.w)), "{name}: {off:.2e}");
    }
}

fn padded(view: &View, frame: &Frame) -> Vec<f32> {
    let mut canvas = vec![0.0; 3 * view.geometry().padded.pixels()];
    view.padded_into(frame, &mut canvas);
    canvas
}

#[test]
fn the_networks_see_what_they_saw() {
    for name in ["up", "max", "same", "tall_down"] {
        let golden = Golden::open(&format!("transform_{name}"));
        let frames = golden.frames("input");
        let target = Target::ShortSide(number(&golden.case["resolution"]));
        let plan = Geometry::new(frames[0].size, target, limit(&golden.case["max_resolution"])).unwrap();
        assert_eq!((plan.output, plan.padded), (size(&golden.case["true"]), size(&golden.case["padded"])));
        let view = View::new(plan.clone());
        let want = golden.pictures("output");
        let got: Vec<Vec<f32>> = frames.iter().map(|frame| padded(&view, frame)).collect();
        let off = distance(&got, &want).max;
        // Two resamplings at most; [-1, 1] is twice as wide as [0, 1].
        assert!(off <= 4.0 * allowed(plan.input.h, plan.output.h), "{name}: {off:.2e}");

        for (frame, padded) in frames.iter().zip(&got) {
            let lines = padded.chunks_exact(3 * plan.padded.w).take(plan.output.h);
            let corner: Vec<f32> = lines.flat_map(|line| &line[..3 * plan.output.w]).copied().collect();
            assert_eq!(view.cropped(frame), corner, "{name}");
        }
    }
}

#[test]
fn sixteen_bits_of_the_same_picture_make_the_same_view() {
    let golden = Golden::open("transform_up");
    let frame = &golden.frames("input")[0];
    let Samples::U8(codes) = &frame.samples else { panic!("eight bits") };
    let deep = Samples::U16(codes.iter().map(|&code| u16::from(code) * 257).collect());
    let deep = Frame { size: frame.size, samples: deep, alpha: None };
    let view = View::new(Geometry::new(frame.size, Target::Scale(1.7), None).unwrap());
    assert_eq!(padded(&view, frame), padded(&view, &deep));
}

#[test]
fn pictures_of_many_bands_have_no_seams() {
    let size = Size { h: 200, w: 3 };
    let unit: Vec<f32> = (0..200).flat_map(|y| [y as f32 / 200.0; 9]).collect();
    let frame = Frame::from_unit(size, &unit, reseed_media::Depth::Sixteen);
    let view = View::new(Geometry::new(size, Target::Scale(2.0), None).unwrap());
    let picture = view.cropped(&frame);
    let column: Vec<f32> = picture.chunks_exact(3 * 6).map(|line| line[0]).collect();
    // A ramp stays a ramp away from its ends; sixteen bits and single precision make its steps uneven by this.
    let step = 2.0 / 400.0;
    let uneven = 2.0 * 2.0 / 65535.0;
    assert!(column[8..392].windows(2).all(|pair| (pair[1] - pair[0] - step).abs() < uneven));
}
