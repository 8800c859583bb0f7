//! Uploads and downloads of pixels, with every code of both depths.

use super::Values;
use crate::check::Disagreement;
use crate::device::Device;
use crate::error::Result;
use crate::pixels::{Code, Depth, Pixels};
use crate::shape::{Shape, Thw};

pub const CASES: &[(Thw, usize)] = &[
    //   t  h  w  channels
    (Thw::new(1, 1, 1), 3),      // less than one vector load
    (Thw::new(2, 3, 7), 3),      // unaligned frames
    (Thw::new(1, 1, 16), 3),     // only whole vector loads
    (Thw::new(3, 5, 37), 3),     // vector loads and a remainder
    (Thw::new(1, 256, 256), 1),  // every code
    (Thw::new(1, 270, 1023), 3), // many blocks, odd width
];

/// Consecutive codes from a random start.
fn codes<C: Code>(count: usize, values: &mut Values) -> Vec<C> {
    let first = 0.5 + 0.5 * values.take(1)[0];
    let next = |i: usize| C::truncate((i as f32 + (first * C::MAX).floor()) % (C::MAX + 1.0));
    (0..count).map(next).collect()
}

/// A round trip; values out of range; a frame in the middle of a clip.
pub fn run(ops: &dyn Device, &(thw, channels): &(Thw, usize), seed: u64) -> Result<()> {
    let (values, shape) = (&mut Values::new(1000 + seed), Shape::clip(thw, channels));
    let count = shape.count();
    for pixels in [Pixels::U8(codes(count, values)), Pixels::U16(codes(count, values))] {
        let x = ops.upload_pixels(shape, &pixels)?;
        ops.start_download_pixels(&x, pixels.depth())?.wait(&mut Pixels::default())?;
        let beyond: Vec<f32> = values.take(count).iter().map(|v| 1.25 * v).collect();
        let x = ops.upload(shape, &beyond)?;
        ops.start_download_pixels(&x, pixels.depth())?.wait(&mut Pixels::default())?;
        ops.start_download_pixels(&x.frames(thw.t / 2, 1), pixels.depth())?.wait(&mut Pixels::default())?;
    }
    Ok(())
}

/// Values that have no distance: infinities and NaN.
pub fn exact(device: &dyn Device) -> Result<Vec<Disagreement>> {
    const PATTERN: [(f32, u8, u16); 7] = [
        (f32::NAN, 0, 0),
        (f32::INFINITY, 255, 65535),
        (f32::NEG_INFINITY, 0, 0),
        (-2.0, 0, 0),
        (2.0, 255, 65535),
        (0.0, 128, 32768),
        (-0.5, 64, 16384),
    ];
    let shape = Shape::from([1, 1, 35, 1]);
    let (values, eight, sixteen): (Vec<f32>, Vec<u8>, Vec<u16>) =
        PATTERN.iter().cycle().take(shape.count()).copied().collect();
    let x = device.upload(shape, &values)?;
    let mut found = Vec::new();
    for want in [Pixels::U8(eight), Pixels::U16(sixteen)] {
        let mut got = Pixels::default();
        device.start_download_pixels(&x, want.depth())?.wait(&mut got)?;
        if got != want {
            let bits = if want.depth() == Depth::Eight { 8 } else { 16 };
            let stage = format!("pixels of {bits} bits out of range");
            found.push(Disagreement {
                stage,
                op: "start_download_pixels",
                call: 0,
                shape,
                element: None,
                error: f64::INFINITY,
                allowed: 0.0,
            });
        }
    }
    Ok(found)
}
