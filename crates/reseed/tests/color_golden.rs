//! Golden tests of colour transfer and alpha.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "errors are worth seeing")]

use reseed::AlphaRange;
use reseed::internals::{View, alpha};
use reseed::{Color, Geometry, Target};
use reseed_media::Samples;
use reseed_testing::pipeline::{Distance, PipelineGolden, distance};

const METHODS: &[(&str, Color)] = &[
    ("lab", Color::Lab),
    ("wavelet", Color::Wavelet),
    ("wavelet_adaptive", Color::WaveletAdaptive),
    ("hsv", Color::Hsv),
    ("adain", Color::Adain),
];

fn corrected(golden: &PipelineGolden, color: Color) -> Vec<Vec<f32>> {
    let mut content = golden.frame_values("content");
    color.apply(&mut content, golden.frame_values("style"), golden.plane("content"));
    content
}

/// Distance of the golden result from the same computation in double precision.
fn float64_error(golden: &PipelineGolden, method: &str) -> Distance {
    let float64 = &golden.case["float64"][method];
    let number = |key: &str| float64[key].as_f64().unwrap();
    Distance { max: number("max"), mean: number("mean") }
}

#[test]
fn every_method_matches_the_golden_files() {
    for name in ["color_slice_3", "color_image", "color_wide"] {
        let golden = PipelineGolden::open(name);
        for (method, color) in METHODS.iter().filter(|(method, _)| golden.tensors.contains_key(*method)) {
            let error = distance(&corrected(&golden, *color), &golden.frame_values(method));
            let float64 = float64_error(&golden, method);
            println!("{name} {method}: {error:?}, double precision {float64:?}");
            // Another order of the same sums has rounding errors as large as those of the golden result.
            assert!(error.mean <= 4.0 * float64.mean, "{name} {method}: {error:?}");
            let allowed = match color {
                // Rounding swaps neighbours in rank; `lab_rank_bounds` checks the bound of each pixel.
                Color::Lab => continue,
                // Saturation is one correctly rounded division of one difference, so ranks are equal. About eight
                // roundings of values up to 1 remain.
                Color::Hsv | Color::WaveletAdaptive => 8.0 * f64::from(f32::EPSILON),
                _ => 4.0 * float64.max,
            };
            assert!(error.max <= allowed, "{name} {method}: {error:?}, allowed {allowed:.1e}");
        }
    }
}

#[test]
fn color_none_changes_nothing() {
    let golden = PipelineGolden::open("color_image");
    assert_eq!(corrected(&golden, Color::None), golden.frame_values("content"));
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let golden = PipelineGolden::open("color_slice_3");
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let three = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for (method, color) in METHODS {
        let (a, b) = (one.install(|| corrected(&golden, *color)), three.install(|| corrected(&golden, *color)));
        assert!(a == b, "{method}");
    }
}

#[test]
fn frames_smaller_than_the_filter_radius_are_supported() {
    for size in
        [reseed_media::Size { h: 1, w: 1 }, reseed_media::Size { h: 2, w: 5 }, reseed_media::Size { h: 40, w: 1 }]
    {
        for (method, color) in METHODS {
            let mut content = vec![vec![0.25; 3 * size.pixels()]];
            color.apply(&mut content, vec![vec![-0.5; 3 * size.pixels()]], size);
            // A constant frame gets the colour of the style; HSV keeps the value of the content.
            let want = if *color == Color::Hsv { 0.25 } else { -0.5 };
            let near = |v: &f32| (v - want).abs() < 2e-5;
            assert!(content[0].iter().all(near), "{method} {size}: {content:?}");
        }
    }
}

#[test]
fn alpha_matches_the_golden_files() {
    for (name, range) in [
        ("alpha_mask", AlphaRange::Fixed),
        ("alpha_ramp", AlphaRange::Fixed),
        ("alpha_mask_reference", AlphaRange::Inferred),
        ("alpha_ramp_reference", AlphaRange::Inferred),
    ] {
        let golden = PipelineGolden::open(name);
        let dims = &golden.tensor("alpha").dims;
        let input = reseed_media::Size { h: dims[1], w: dims[2] };
        let size = golden.plane("rgb");
        let view = View::new(Geometry::new(input, Target::Exact(size), None).unwrap());
        let codes = &golden.tensor("alpha").values;
        let original: Vec<Samples> = codes
            .chunks_exact(input.pixels())
            .map(|plane| Samples::U8(plane.iter().map(|v| *v as u8).collect()))
            .collect();
        let mut got: Vec<Vec<f32>> = original.iter().map(|alpha| view.alpha(alpha)).collect();
        let frames = golden.frame_values("rgb");
        alpha::refine(
            &mut got,
            &original.iter().collect::<Vec<_>>(),
            &frames.iter().map(Vec::as_slice).collect::<Vec<_>>(),
            size,
            range,
        );
        let error = distance(&got, &golden.frame_values("output"));
        let float64 = golden.case["float64"]["max"].as_f64().unwrap();
        println!("{name}: {error:?}, double precision {float64:.1e}");
        // Another order of the sums; the guided filter divides by a variance of at least its epsilon.
        assert!(error.max <= 4.0 * float64, "{name}: {error:?}");
    }
}
