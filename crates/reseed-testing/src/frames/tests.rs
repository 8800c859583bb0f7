//! A device that computes nothing.

use std::ops::Range;

use reseed_cpu::CpuOps;
use reseed_ops::DType;

use super::*;

/// A device that finishes every frame in one grey and loads black frames, which no case has as its result.
struct Flat(CpuOps);

impl FrameOps for Flat {
    fn finish(&self, _: &FrameSlice, results: &mut FrameResults) -> Result<()> {
        results.frames.iter_mut().for_each(|result| result.on_host().fill(0x3d));
        Ok(())
    }
}

/// Samples in no memory.
struct Nowhere(usize);

impl DeviceSamples for Nowhere {
    fn fetch(&self) -> Result<Vec<u8>> {
        Ok(vec![0x3d; self.0])
    }
}

impl DeviceResult for Nowhere {
    fn store(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn fetch(&self) -> Result<Vec<u8>> {
        Ok(vec![0x3d; self.0])
    }
}

impl FrameLoader for Flat {
    fn load(&self, inputs: &[FrameSamples], rows: Range<usize>, columns: Range<usize>) -> Result<Tensor> {
        let shape = Shape::from([inputs.len(), rows.len(), columns.len(), 3]);
        reseed_ops::Transfer::upload(&self.0, shape, &vec![-2.0; shape.count()])
    }
}

#[test]
fn a_device_that_computes_nothing_disagrees_in_every_case() {
    let cpu = || CpuOps::new(DType::F32, Some(1)).unwrap();
    let frames = |_: FrameSpec| -> Result<Box<dyn FrameOps>> { Ok(Box::new(Flat(cpu()))) };
    let loader = |_: &FrameSpec| -> Result<Box<dyn FrameLoader>> { Ok(Box::new(Flat(cpu()))) };
    let samples = |frame: &Frame, _: Planes| -> Result<Box<dyn DeviceSamples>> {
        Ok(Box::new(Nowhere(frame.samples.as_bytes().len())))
    };
    let result = |size: Size, depth: Depth| -> Result<Box<dyn DeviceResult>> {
        Ok(Box::new(Nowhere(Samples::black(depth, 3 * size.pixels()).as_bytes().len())))
    };
    let (ops, frames, loader, samples, result) = (&cpu(), &frames, &loader, &samples, &result);
    let found = disagreements(&FrameDevice { ops, frames, loader, samples, result }).unwrap();
    assert_eq!(found.len(), 3 * CASES.len() * (COLORS.len() + 4));
}
