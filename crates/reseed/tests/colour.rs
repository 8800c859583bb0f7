//! Colour correction and alpha against stored results.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "errors are worth seeing")]

use reseed::alpha::{self, Range};
use reseed::{Color, Geometry, Target, View};
use reseed_media::Samples;
use reseed_testing::pipeline::{Distance, Golden, distance};

const METHODS: &[(&str, Color)] = &[
    ("lab", Color::Lab),
    ("wavelet", Color::Wavelet),
    ("wavelet_adaptive", Color::WaveletAdaptive),
    ("hsv", Color::Hsv),
    ("adain", Color::Adain),
];

fn corrected(golden: &Golden, color: Color) -> Vec<Vec<f32>> {
    let mut content = golden.pictures("content");
    color.apply(&mut content, golden.pictures("style"), golden.plane("content"));
    content
}

/// What the same arithmetic in double precision is off by, from the case's own words.
fn stored_error(golden: &Golden, method: &str) -> Distance {
    let stored = &golden.case["float64"][method];
    let number = |key: &str| stored[key].as_f64().unwrap();
    Distance { max: number("max"), mean: number("mean") }
}

#[test]
fn every_method_is_the_stored_one() {
    for name in ["color_slice_3", "color_image", "color_wide"] {
        let golden = Golden::open(name);
        for (method, color) in METHODS.iter().filter(|(method, _)| golden.tensors.contains_key(*method)) {
            let off = distance(&corrected(&golden, *color), &golden.pictures(method));
            let stored = stored_error(&golden, method);
            println!("{name} {method}: {off:?}, double precision {stored:?}");
            // Rounding of another order of the same sums is as large as the stored result's own.
            assert!(off.mean <= 4.0 * stored.mean, "{name} {method}: {off:?}");
            let allowed = match color {
                // Rounding swaps neighbours in rank; `colour_ranks` bounds what that does to each pixel.
                Color::Lab => continue,
                // A saturation is one division of one difference, correctly rounded everywhere: ranks are the same, and
                // what is left are some eight roundings of values up to one.
                Color::Hsv | Color::WaveletAdaptive => 8.0 * f64::from(f32::EPSILON),
                _ => 4.0 * stored.max,
            };
            assert!(off.max <= allowed, "{name} {method}: {off:?}, allowed {allowed:.1e}");
        }
    }
}

#[test]
fn without_correction_nothing_changes() {
    let golden = Golden::open("color_image");
    assert_eq!(corrected(&golden, Color::None), golden.pictures("content"));
}

#[test]
fn corrections_are_the_same_for_any_number_of_threads() {
    let golden = Golden::open("color_slice_3");
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let three = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for (method, color) in METHODS {
        let (a, b) = (one.install(|| corrected(&golden, *color)), three.install(|| corrected(&golden, *color)));
        assert!(a == b, "{method}");
    }
}

#[test]
fn pictures_smaller_than_the_blurs_are_corrected() {
    for size in
        [reseed_media::Size { h: 1, w: 1 }, reseed_media::Size { h: 2, w: 5 }, reseed_media::Size { h: 40, w: 1 }]
    {
        for (method, color) in METHODS {
            let mut content = vec![vec![0.25; 3 * size.pixels()]];
            color.apply(&mut content, vec![vec![-0.5; 3 * size.pixels()]], size);
            // A flat picture takes its style's colour, but for hsv, which keeps the content's value.
            let want = if *color == Color::Hsv { 0.25 } else { -0.5 };
            let near = |v: &f32| (v - want).abs() < 2e-5;
            assert!(content[0].iter().all(near), "{method} {size}: {content:?}");
        }
    }
}

#[test]
fn alpha_is_the_stored_one() {
    for (name, range) in [
        ("alpha_mask", Range::Fixed),
        ("alpha_ramp", Range::Fixed),
        ("alpha_mask_reference", Range::Guessed),
        ("alpha_ramp_reference", Range::Guessed),
    ] {
        let golden = Golden::open(name);
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
        let pictures = golden.pictures("rgb");
        alpha::refine(
            &mut got,
            &original.iter().collect::<Vec<_>>(),
            &pictures.iter().map(Vec::as_slice).collect::<Vec<_>>(),
            size,
            range,
        );
        let off = distance(&got, &golden.pictures("output"));
        let stored = golden.case["float64"]["max"].as_f64().unwrap();
        println!("{name}: {off:?}, double precision {stored:.1e}");
        // Sums in another order, of which the largest is divided by a variance no smaller than the filter's epsilon.
        assert!(off.max <= 4.0 * stored, "{name}: {off:?}");
    }
}
