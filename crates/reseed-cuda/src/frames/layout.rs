//! Where the buffers of the work on frames are in their allocation.

use reseed_ops::{ColorTransfer, FrameSpec, Resize};

use super::rank::{DIGITS, tiles};

/// Alignment of buffers.
const ALIGNMENT: usize = 256;
/// Pixels that are summed one by one; kernels/adain.cu has the same number.
pub const RUN: usize = 8192;

const VALUE: usize = size_of::<f32>();

/// Offsets of buffers in bytes.
pub struct Layout {
    /// Resampling weights, `Table::bytes` each.
    pub tables: usize,
    /// Restored frames `[T, H, W, 3]`.
    pub content: usize,
    /// Resampled input frames `[T, H, W, 3]`.
    pub style: usize,
    pub scratch: Scratch,
    /// Bytes of all.
    pub bytes: usize,
}

/// Buffers that one step after the other uses; those of different steps overlap.
#[derive(Default)]
pub struct Scratch {
    /// Samples of an input frame, or of a result.
    pub samples: usize,
    /// A frame that is resampled along x only, and one between two resamplings.
    pub resized: [usize; 2],
    /// Two frames of the low-pass filter.
    pub low_pass: [usize; 2],
    /// Sums of runs of pixels, and moments.
    pub sums: usize,
    pub moments: usize,
    /// Keys and pixels, sorted back and forth.
    pub sorted: [[usize; 2]; 2],
    /// Digits of each tile; digits of all tiles, of content and of targets.
    pub counts: usize,
    pub totals: [usize; 2],
    /// Sorted keys of the targets, and saturations of the content.
    pub targets: usize,
    pub saturations: usize,
}

/// Hands out aligned parts.
pub struct Parts(pub usize);

impl Parts {
    pub fn take(&mut self, bytes: usize) -> usize {
        let at = self.0;
        self.0 = (at + bytes).next_multiple_of(ALIGNMENT);
        at
    }
}

/// Bytes of the weights of a resampling, in the order of `Table`.
pub fn table_bytes(resize: &Resize) -> [usize; 4] {
    let axis = |axis: &reseed_ops::ResizeAxis| {
        [size_of_val(&axis.starts[..]), size_of_val(&axis.weights[..])].map(|n| n.next_multiple_of(ALIGNMENT))
    };
    let ([a, b], [c, d]) = (axis(&resize.rows), axis(&resize.columns));
    [a, b, c, d]
}

impl Layout {
    pub fn new(spec: &FrameSpec) -> Layout {
        let (mut parts, frame) = (Parts(0), 3 * VALUE * spec.output.count());
        let frames = if spec.color.joins_frames() { spec.frames } else { 1 };
        let low_band = spec.low_band.iter().flat_map(|band| [&band.down, &band.up]);
        let tables = spec.steps.iter().chain(low_band).flat_map(table_bytes).sum();
        let tables = parts.take(tables);
        let content = parts.take(frames * frame);
        let style = parts.take(if spec.color == ColorTransfer::None { 0 } else { frames * frame });
        let (scratch, bytes) = Scratch::new(spec, frames, parts.0);
        Layout { tables, content, style, scratch, bytes }
    }
}

impl Scratch {
    /// The buffers from an offset on, and their end.
    fn new(spec: &FrameSpec, frames: usize, start: usize) -> (Scratch, usize) {
        let mut scratch = Scratch::default();
        let (frame, pixels) = (3 * VALUE * spec.output.count(), frames * spec.output.count());
        let mut parts = Parts(start);
        scratch.samples = parts.take(3 * spec.samples.bytes() * spec.input.count().max(spec.output.count()));
        let after_samples = parts.0;

        let [along_x, between] = resized_bytes(spec);
        scratch.resized = [parts.take(along_x), parts.take(between)];
        let mut end = parts.0;

        parts = Parts(after_samples);
        scratch.low_pass = [parts.take(frame), parts.take(frame)];
        scratch.sums = parts.take(2 * spec.output.count().div_ceil(RUN) * 3 * size_of::<f64>());
        scratch.moments = parts.take(18 * size_of::<f64>());
        end = end.max(parts.0);
        if !spec.color.joins_frames() {
            return (scratch, end);
        }

        // Keys may take the place of everything but what the low-pass filter of `WaveletAdaptive` needs beside
        // saturations.
        parts = Parts(start);
        let keys = pixels * size_of::<u32>();
        scratch.sorted = [[parts.take(keys), parts.take(keys)], [parts.take(keys), parts.take(keys)]];
        scratch.counts = parts.take(DIGITS * tiles(pixels) * size_of::<u32>());
        scratch.totals = [parts.take(DIGITS * size_of::<u32>()), parts.take(DIGITS * size_of::<u32>())];
        if spec.color != ColorTransfer::Lab {
            scratch.targets = parts.take(keys);
            parts = Parts(parts.0.max(end));
            scratch.saturations = parts.take(keys);
        }
        (scratch, end.max(parts.0))
    }
}

/// Bytes of the two frames between resamplings.
fn resized_bytes(spec: &FrameSpec) -> [usize; 2] {
    let (input, output) = (spec.input, spec.output);
    let mut pixels = match &spec.steps[..] {
        [] => [0, 0],
        [_] => [input.h * output.w, 0],
        [first, ..] => [(input.h * first.to.w).max(first.to.h * output.w), first.to.count()],
    };
    if spec.low_band.is_some() {
        pixels[0] = pixels[0].max(output.h * input.w).max(input.h * output.w);
    }
    if spec.low_band.is_some() || spec.limit.is_some() {
        pixels[1] = pixels[1].max(input.count());
    }
    pixels.map(|pixels| 3 * VALUE * pixels)
}

#[cfg(test)]
mod tests {
    use reseed_ops::{Hw, LowBand, RangeLimit, ResizeAxis, SampleType};

    use super::*;

    fn resize(from: Hw, to: Hw) -> Resize {
        let axis = |n: usize| ResizeAxis { starts: vec![[0, 0]; n + 1], weights: vec![0.0; 4 * n] };
        Resize { from, to, rows: axis(to.h), columns: axis(to.w) }
    }

    fn spec(color: ColorTransfer, frames: usize, steps: &[Hw], output: Hw) -> FrameSpec {
        let input = Hw::new(54, 97);
        let from = std::iter::once(&input).chain(steps);
        let steps: Vec<Resize> = from.zip(steps).map(|(from, to)| resize(*from, *to)).collect();
        let low_band = LowBand { down: resize(output, input), up: resize(input, output) };
        let (samples, low_band) = (SampleType::U16, Some(low_band));
        FrameSpec { frames, kept: 0, input, steps, output, samples, low_band, limit: None, color, alpha: None }
    }

    /// Buffers that are used at the same time, by offset and bytes.
    fn steps(spec: &FrameSpec, layout: &Layout) -> Vec<Vec<(usize, usize)>> {
        let frames = if spec.color.joins_frames() { spec.frames } else { 1 };
        let (pixels, frame) = (frames * spec.output.count(), 12 * spec.output.count());
        let tables = spec.steps.iter().chain(spec.low_band.iter().flat_map(|band| [&band.down, &band.up]));
        let kept = [
            (layout.tables, tables.flat_map(table_bytes).sum()),
            (layout.content, frames * frame),
            (layout.style, frames * frame),
        ];
        let (scratch, [along_x, between]) = (&layout.scratch, resized_bytes(spec));
        let samples = (scratch.samples, 6 * spec.input.count());
        let low_pass = scratch.low_pass.map(|at| (at, frame));
        let mut steps = vec![
            vec![samples, (scratch.resized[0], along_x), (scratch.resized[1], between)],
            [&[samples][..], &low_pass].concat(),
            vec![(scratch.sums, 48 * spec.output.count().div_ceil(RUN)), (scratch.moments, 144)],
            vec![(scratch.samples, 6 * spec.output.count())],
        ];
        if spec.color.joins_frames() {
            let keys = |at: usize| (at, 4 * pixels);
            let mut sort: Vec<_> = scratch.sorted.concat().into_iter().map(keys).collect();
            sort.extend([(scratch.counts, 4 * DIGITS * tiles(pixels))]);
            sort.extend(scratch.totals.map(|at| (at, 4 * DIGITS)));
            if spec.color != ColorTransfer::Lab {
                sort.extend([keys(scratch.targets), keys(scratch.saturations)]);
                steps.push([&low_pass[..], &[keys(scratch.saturations)]].concat());
            }
            steps.push(sort);
        }
        steps.iter().map(|step| [&kept[..], step].concat()).collect()
    }

    #[test]
    fn buffers_of_one_step_do_not_overlap() {
        let (small, large) = (Hw::new(31, 45), Hw::new(108, 194));
        let all = [
            ColorTransfer::Lab,
            ColorTransfer::Wavelet,
            ColorTransfer::WaveletAdaptive,
            ColorTransfer::Hsv,
            ColorTransfer::Adain,
        ];
        for color in all {
            for (frames, sizes) in [(1, vec![large]), (5, vec![large]), (3, vec![large, small]), (2, vec![])] {
                let spec = spec(color, frames, &sizes, *sizes.last().unwrap_or(&small));
                let layout = Layout::new(&spec);
                for mut step in steps(&spec, &layout) {
                    step.sort_unstable();
                    assert!(step.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{color:?} {step:?}");
                    assert!(step.iter().all(|(at, bytes)| at % ALIGNMENT == 0 && at + bytes <= layout.bytes));
                }
            }
        }
    }

    #[test]
    fn a_range_limit_needs_values_of_the_input() {
        let color = ColorTransfer::None;
        let (output, limit) = (Hw::new(108, 194), Some(RangeLimit { resized: Hw::new(108, 194), margin: 0.0 }));
        let blended = spec(color, 1, &[output], output);
        let bytes = |spec: &FrameSpec| Layout::new(spec).bytes;
        assert_eq!(bytes(&blended), bytes(&FrameSpec { limit, ..blended.clone() }), "in memory of the low band");
        let alone = FrameSpec { low_band: None, limit, ..blended };
        assert_eq!(resized_bytes(&alone)[1], 12 * alone.input.count());
    }

    /// Four bytes for each of three channels of content and style, and sixteen for keys and pixels.
    #[test]
    fn ranks_take_forty_bytes_per_pixel() {
        let output = Hw::new(1080, 1920);
        let bytes = |frames| Layout::new(&spec(ColorTransfer::Lab, frames, &[output], output)).bytes;
        let more = (bytes(17) - bytes(16)) as f64 / output.count() as f64;
        assert!((more - 40.25).abs() < 0.01, "{more}");
        let alone = |frames| Layout::new(&spec(ColorTransfer::Wavelet, frames, &[output], output)).bytes;
        assert_eq!(alone(1), alone(81), "frames that do not depend on each other take turns");
    }
}
