//! Golden tests of sizes, resampling and the input of the networks.
#![allow(clippy::unwrap_used)]

use reseed::internals::View;
use reseed::{Geometry, Target};
use reseed_media::{Frame, Samples, Size};
use reseed_testing::pipeline::{PipelineGolden, distance, json, number, size};

fn limit(value: &serde_json::Value) -> Option<usize> {
    Some(number(value)).filter(|&longest| longest > 0)
}

#[test]
fn sizes_match_the_golden_file() {
    let cases = json("sizes.json");
    let cases = cases.as_array().unwrap();
    assert!(cases.len() > 40);
    for case in cases {
        let input = Size { h: number(&case["h"]), w: number(&case["w"]) };
        let target = Target::ShortSide(number(&case["resolution"]));
        let plan = Geometry::new(input, target, limit(&case["max_resolution"])).unwrap().even().unwrap();
        let steps: Vec<Size> = case["steps"].as_array().unwrap().iter().map(size).collect();
        assert_eq!(plan, Geometry { input, steps, output: size(&case["true"]), padded: size(&case["padded"]) });
    }
}

/// Error bound of a resampling: both implementations compute two sums of at most `taps` products in single precision,
/// with rounded weights whose absolute values sum to less than 1.4.
fn allowed(from: usize, to: usize) -> f64 {
    let taps = 4.0 * (from as f64 / to as f64).max(1.0) + 2.0;
    2.0 * 2.0 * (taps + 1.0) * 1.4 * f64::from(f32::EPSILON) / 2.0
}

#[test]
fn resampling_matches_the_golden_files() {
    for name in ["up_2x", "up_odd", "down", "down_odd", "one_axis", "wide_and_low"] {
        let golden = PipelineGolden::open(&format!("resize_{name}"));
        let to = size(&golden.case["size"]);
        let frames = golden.frames("input");
        let from = frames[0].size;
        let resizer = reseed::internals::resize::Resizer::<3>::new(from, to);
        let resize = |frame: &Frame| {
            let unit = frame.to_unit();
            let mut canvas = vec![0.0; 3 * to.pixels()];
            let row = |y: usize, row: &mut [f32]| row.copy_from_slice(&unit[3 * from.w * y..][..3 * from.w]);
            resizer.run(row, &mut canvas, to.w, |value| value);
            canvas
        };
        let got: Vec<Vec<f32>> = frames.iter().map(resize).collect();
        let error = distance(&got, &golden.frame_values("output")).max;
        assert!(error <= allowed(from.h.max(from.w), to.h.min(to.w)), "{name}: {error:.2e}");
    }
}

fn padded(view: &View, frame: &Frame) -> Vec<f32> {
    let mut canvas = vec![0.0; 3 * view.geometry().padded.pixels()];
    view.padded_into(frame, &mut canvas);
    canvas
}

#[test]
fn padded_and_cropped_views_match_the_golden_files() {
    for name in ["up", "max", "same", "tall_down"] {
        let golden = PipelineGolden::open(&format!("transform_{name}"));
        let frames = golden.frames("input");
        let target = Target::ShortSide(number(&golden.case["resolution"]));
        let plan = Geometry::new(frames[0].size, target, limit(&golden.case["max_resolution"])).unwrap();
        let plan = plan.even().unwrap();
        assert_eq!((plan.output, plan.padded), (size(&golden.case["true"]), size(&golden.case["padded"])));
        let view = View::new(plan.clone());
        let want = golden.frame_values("output");
        let got: Vec<Vec<f32>> = frames.iter().map(|frame| padded(&view, frame)).collect();
        let error = distance(&got, &want).max;
        // At most two resamplings; [-1, 1] is twice as wide as [0, 1].
        assert!(error <= 4.0 * allowed(plan.input.h, plan.output.h), "{name}: {error:.2e}");

        for (frame, padded) in frames.iter().zip(&got) {
            let lines = padded.chunks_exact(3 * plan.padded.w).take(plan.output.h);
            let corner: Vec<f32> = lines.flat_map(|line| &line[..3 * plan.output.w]).copied().collect();
            assert_eq!(view.cropped(frame), corner, "{name}");
        }
    }
}

#[test]
fn frames_of_8_and_16_bits_give_the_same_view() {
    let golden = PipelineGolden::open("transform_up");
    let frame = &golden.frames("input")[0];
    let Samples::U8(codes) = &frame.samples else { panic!("the golden frame has 8 bits") };
    let deep = Samples::U16(codes.iter().map(|&code| u16::from(code) * 257).collect());
    let deep = Frame { size: frame.size, samples: deep, alpha: None };
    let view = View::new(Geometry::new(frame.size, Target::Scale(1.7), None).unwrap());
    assert_eq!(padded(&view, frame), padded(&view, &deep));
}

#[test]
fn resampling_in_bands_has_no_seams() {
    let size = Size { h: 200, w: 3 };
    let unit: Vec<f32> = (0..200).flat_map(|y| [y as f32 / 200.0; 9]).collect();
    let frame = Frame::from_unit(size, &unit, reseed_media::Depth::Sixteen);
    let view = View::new(Geometry::new(size, Target::Scale(2.0), None).unwrap());
    let resized = view.cropped(&frame);
    let column: Vec<f32> = resized.chunks_exact(3 * 6).map(|line| line[0]).collect();
    // Away from its ends, a resampled ramp is a ramp up to the rounding of 16 bits and single precision.
    let step = 2.0 / 400.0;
    let rounding = 2.0 * 2.0 / 65535.0;
    assert!(column[8..392].windows(2).all(|pair| (pair[1] - pair[0] - step).abs() < rounding));
}
