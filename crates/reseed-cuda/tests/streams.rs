//! Streams that share memory: the fake driver reports copies of the same bytes that nothing orders.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

use std::fs;
use std::process::Command;
use std::sync::Arc;

use reseed_cpu::matmul;
use reseed_cuda::{ArrayFrame, ArrayLayout, ArrayType, BufferFrame, CudaOps};
use reseed_ops::{
    ColorTransfer, DType, FrameLoader, FrameOps, FrameResult, FrameResults, FrameSamples, FrameSlice, FrameSpec,
    FrameValues, Hw, Ops, RangeLimit, Resize, ResizeAxis, SampleType, Shape, Tensor, Transfer, offload,
};
use reseed_testing::{decode_offloaded, fake_driver};

/// Names the scenario that a child process runs.
const SCENARIO: &str = "RESEED_TEST_SCENARIO";

/// Runs a scenario in a child process on the fake driver; returns races and copies.
fn races_in(scenario: &str) -> (usize, usize) {
    let folder = temp_dir::TempDir::new().unwrap();
    fake_driver::build_driver(folder.path());
    let report = folder.path().join("races");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_scenario_of_a_child_process"])
        .env(SCENARIO, scenario)
        .env("LD_LIBRARY_PATH", folder.path())
        .env("RESEED_STUB_RACES", &report)
        .output()
        .unwrap();
    assert!(output.status.success(), "{scenario}: {}", String::from_utf8_lossy(&output.stdout));
    let text = fs::read_to_string(report).unwrap();
    let (races, copies) = text.split_once(' ').unwrap();
    (races.parse().unwrap(), copies.parse().unwrap())
}

fn ordered(scenario: &str) {
    let (races, copies) = races_in(scenario);
    assert!(races == 0 && copies > 4, "{scenario}: {races} races among {copies} copies");
}

fn clip(cuda: &CudaOps, frames: usize) -> Tensor {
    let shape = Shape::from([frames, 8, 8, 4]);
    cuda.upload(shape, &vec![0.0; shape.count()]).unwrap()
}

fn fake_gpu() -> CudaOps {
    CudaOps::new(0, DType::F32, matmul).unwrap()
}

#[test]
fn memory_is_reused_after_every_copy_that_reads_it() {
    ordered("offload_then_download");
    ordered("download_then_offload");
}

#[test]
fn a_tensor_is_overwritten_after_every_copy_that_reads_it() {
    ordered("offload_then_overwrite");
}

#[test]
fn chunks_in_host_memory_are_copied_in_order() {
    ordered("decode_offloaded");
}

#[test]
fn frames_are_finished_in_order() {
    ordered("finish_slices");
}

/// The driver is loaded once per process, so each scenario has a process of its own.
#[test]
fn the_scenario_of_a_child_process() {
    match std::env::var(SCENARIO).as_deref() {
        Ok("offload_then_download") => offload_then_download(),
        Ok("download_then_offload") => download_then_offload(),
        Ok("offload_then_overwrite") => offload_then_overwrite(),
        Ok("decode_offloaded") => decode_offloaded(&fake_gpu()),
        Ok("finish_slices") => finish_slices(),
        Ok(other) => panic!("{SCENARIO}: {other} is unknown"),
        Err(_) => {}
    }
}

fn offload_then_download() {
    let cuda = fake_gpu();
    let x = clip(&cuda, 2);
    let _offloaded = offload(&cuda, &x).unwrap();
    let _pending = cuda.start_download(&x).unwrap();
    drop(x);
    clip(&cuda, 2);
}

fn download_then_offload() {
    let cuda = fake_gpu();
    let x = clip(&cuda, 2);
    let _pending = cuda.start_download(&x).unwrap();
    let _offloaded = offload(&cuda, &x).unwrap();
    drop(x);
    clip(&cuda, 2);
}

fn offload_then_overwrite() {
    let cuda = fake_gpu();
    let (cache, x) = (clip(&cuda, 2), clip(&cuda, 1));
    let _offloaded = offload(&cuda, &cache).unwrap();
    // The two frames are unique, so that the new ones move into their memory.
    cuda.tail(Some(cache), x, 2).unwrap();
}

/// Slices of frames that are finished together and alone, beside a tensor that the networks use.
fn finish_slices() {
    let cuda = Arc::new(fake_gpu());
    let x = clip(&cuda, 2);
    for color in [ColorTransfer::Lab, ColorTransfer::Wavelet, ColorTransfer::Hsv] {
        let (input, output) = (Hw::new(32, 48), Hw::new(32, 48));
        let (samples, steps, low_band) = (SampleType::U8, Vec::new(), None);
        let axis = |side| ResizeAxis { starts: vec![[0, 0]; side + 1], weights: vec![0.0; side] };
        let alpha = Resize { from: input, to: output, rows: axis(output.h), columns: axis(output.w) };
        let alpha = (color != ColorTransfer::Hsv).then_some(alpha);
        let with_alpha = alpha.is_some();
        let limit = (color == ColorTransfer::Wavelet).then_some(RangeLimit { resized: output, margin: 0.1 });
        let spec = FrameSpec { frames: 6, kept: 8, input, steps, output, samples, low_band, limit, color, alpha };
        let (loader, frames) = (cuda.loader(&spec).unwrap(), cuda.frames(spec).unwrap());
        let codes = vec![0; 3 * input.count()];
        for count in [6, 4] {
            let (array, place) = (array_frame(&cuda, input), place(&cuda, output));
            // The last slice comes from GPU memory and goes there.
            let in_place = color == ColorTransfer::Hsv && count == 4;
            let samples = if in_place { FrameSamples::Device(&array) } else { FrameSamples::Host(&codes) };
            let inputs = vec![samples; count];
            let decoded = loader.load(&inputs, 0..output.h, 0..output.w).unwrap();
            let mut kept = Vec::new();
            frames.keep(&decoded).unwrap().unwrap().wait(&mut kept).unwrap();
            drop(decoded);
            kept[0] = FrameValues::Host(kept[0].copy().unwrap());
            if let [FrameValues::Device(first), FrameValues::Device(second), ..] = &mut kept[1..] {
                first.blend(&**second, 0.5).unwrap();
            }
            let alphas = vec![&codes[..input.count()]; if with_alpha { count } else { 0 }];
            let mut colors = vec![vec![0; 3 * output.count()]; count];
            let mut planes = vec![vec![0; output.count()]; alphas.len()];
            let result = |bytes| if in_place { FrameResult::Device(&place) } else { FrameResult::Host(bytes) };
            let mut results = FrameResults {
                frames: colors.iter_mut().map(|bytes| result(&mut bytes[..])).collect(),
                alphas: planes.iter_mut().map(|result| &mut result[..]).collect(),
            };
            let (shares, mask) = (&vec![0.0; count][..], count == 6);
            let slice = FrameSlice { frames: &kept, inputs: &inputs, shares, alphas: &alphas, mask };
            frames.finish(&slice, &mut results).unwrap();
            let _pending = cuda.start_download(&x).unwrap();
        }
    }
}

/// A frame of another library.
fn array_frame(cuda: &CudaOps, size: Hw) -> ArrayFrame {
    let (Hw { h, w }, dtype) = (size, ArrayType::U8);
    let buffer = cuda.device_buffer(3 * size.count()).unwrap();
    let strides = [3 * h * w, 3 * w, 3, 1].map(|stride| stride as isize);
    let layout = ArrayLayout { address: buffer.address(), dtype, shape: [1, h, w, 3], strides };
    // SAFETY: the buffer holds the elements and lives as long as the array.
    let array = unsafe { cuda.foreign_array(layout, Box::new(buffer)) }.unwrap();
    ArrayFrame::all(&[Arc::new(array)]).next().unwrap()
}

/// Memory for a frame that another library receives.
fn place(cuda: &CudaOps, size: Hw) -> BufferFrame {
    let buffer = cuda.device_buffer(3 * size.count()).unwrap();
    BufferFrame::new(Arc::new(buffer), 0, size, ArrayType::U8)
}
