//! Conversion between pixel codes and values.

use rayon::prelude::*;

use crate::CpuOps;
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::{elements, elements_mut};
use reseed_ops::Result;
use reseed_ops::Shape;
use reseed_ops::Tensor;
use reseed_ops::{Code, Depth, Pixels};
use reseed_ops::{Device, Transfer};

/// Pixel codes that a thread converts at a time.
const CHUNK: usize = 1 << 16;

/// Uploads pixel codes as values.
pub fn upload_pixels(cpu: &CpuOps, shape: Shape, pixels: &Pixels) -> Result<Tensor> {
    assert_eq!(shape.count(), pixels.len(), "upload of {shape}");
    if cpu.level() == Level::Reference {
        return cpu.upload(shape, &pixels.values());
    }
    let mut x = cpu.allocate("upload_pixels", shape, cpu.dtype())?;
    match pixels {
        Pixels::U8(codes) => fill(cpu, &mut x, codes),
        Pixels::U16(codes) => fill(cpu, &mut x, codes),
    }
    Ok(x)
}

fn fill<C: Code>(cpu: &CpuOps, x: &mut Tensor, codes: &[C]) {
    with_element!(x.dtype(), E => {
        let chunks = elements_mut::<E>(x).par_chunks_mut(CHUNK).zip(codes.par_chunks(CHUNK));
        let convert = |(x, code): (&mut E, &C)| *x = E::from_f32(code.value());
        cpu.install(|| chunks.for_each(|(x, codes)| x.iter_mut().zip(codes).for_each(convert)));
    });
}

/// Downloads values as the nearest pixel codes.
pub fn download_pixels(cpu: &CpuOps, x: &Tensor, depth: Depth) -> Result<Pixels> {
    if cpu.level() == Level::Reference {
        return Ok(Pixels::nearest(&cpu.download(x)?, depth));
    }
    Ok(match depth {
        Depth::Eight => Pixels::U8(nearest(cpu, x)),
        Depth::Sixteen => Pixels::U16(nearest(cpu, x)),
    })
}

fn nearest<C: Code>(cpu: &CpuOps, x: &Tensor) -> Vec<C> {
    with_element!(x.dtype(), E => {
        let values = elements::<E>(x).par_iter().with_min_len(CHUNK);
        cpu.install(|| values.map(|value| C::nearest(value.to_f32())).collect())
    })
}
