//! The frames of a pan are evenly sharp: batches do not pulse.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "figures are worth seeing")]

use reseed::internals::quality::{self, pan};
use reseed::{Batching, Session, Settings, Target};
use reseed_media::{Depth, Size, demo};

#[test]
fn the_default_overlap_keeps_the_sharpness_of_a_pan_even() {
    let session = Session::builder().device("cpu").open().unwrap();
    let photograph = demo::photo().next().unwrap().unwrap();
    let (size, small) = (Size { h: 96, w: 160 }, Size { h: 48, w: 80 });
    let originals = pan::pan(&photograph, size, 6, 18);
    let inputs = quality::resized(&originals, small, Depth::Eight).unwrap();
    let pulse = |batching| {
        let settings = Settings { target: Target::Exact(size), detect_shots: false, batching, ..Settings::default() };
        let (results, _) = quality::upscale(&session, &inputs, Depth::Sixteen, &settings, &mut ()).unwrap();
        quality::Figures::of(&results, &originals).pulse
    };
    let default = Settings::default().batching;
    let (even, pulsing) = (pulse(default), pulse(Batching { overlap: 0, ..default }));
    println!("pulse {:.1}%, without overlap {:.1}%", 100.0 * even, 100.0 * pulsing);
    assert!(even <= 0.02, "{even}");
    assert!(pulsing > 0.08, "the measurement finds no pulse where there is one: {pulsing}");
}
