//! Alpha of finished frames: resampled, then refined by a guided filter.

use std::sync::Arc;

use reseed_ops::{FrameSpec, Hw, Result, SampleType};

use super::layout::{Parts, table_bytes};
use super::resize::{Table, sample_name};
use crate::device_memory::Allocation;
use crate::driver::Ptr;
use crate::launch::{Argument, Grid, args};
use crate::ops::{CudaOps, row_grid, stride_grid};
use crate::params::{int, long};
use crate::stream::Stream;

/// Regularisation of the guided filter.
const EPSILON: f32 = 0.002;
/// Reach of the filter's boxes: for masks, and for soft alpha.
const RADII: [i32; 2] = [2, 3];

/// Memory for the alpha of a frame, and what resamples it.
pub struct AlphaFilter {
    cuda: Arc<CudaOps>,
    block: Allocation,
    places: Places,
    table: Table,
    input: Hw,
    output: Hw,
    samples: SampleType,
}

/// Offsets of buffers in bytes.
struct Places {
    table: usize,
    samples: usize,
    along_x: usize,
    alpha: usize,
    guide: usize,
    /// Means of the guide, of alpha, of their product and of the squared guide; then a, b and their means.
    means: [usize; 4],
    /// Sums along x, then the filtered alpha.
    sums: usize,
    edges: usize,
    largest: usize,
    bytes: usize,
}

impl Places {
    fn new(spec: &FrameSpec) -> Option<Places> {
        let (resize, value) = (spec.alpha.as_ref()?, size_of::<f32>());
        let (mut parts, plane) = (Parts(0), value * spec.output.count());
        Some(Places {
            table: parts.take(table_bytes(resize).iter().sum()),
            samples: parts.take(spec.samples.bytes() * spec.input.count().max(spec.output.count())),
            along_x: parts.take(value * spec.input.h * spec.output.w),
            alpha: parts.take(plane),
            guide: parts.take(plane),
            means: std::array::from_fn(|_| parts.take(plane)),
            sums: parts.take(plane),
            edges: parts.take(plane),
            largest: parts.take(size_of::<u32>()),
            bytes: parts.0,
        })
    }
}

impl AlphaFilter {
    /// Bytes of its memory.
    pub fn bytes(spec: &FrameSpec) -> usize {
        Places::new(spec).map_or(0, |places| places.bytes)
    }

    /// None where frames have no alpha.
    pub fn new(cuda: &Arc<CudaOps>, spec: &FrameSpec) -> Result<Option<AlphaFilter>> {
        let (Some(places), Some(resize)) = (Places::new(spec), &spec.alpha) else { return Ok(None) };
        let block = cuda.allocate_weights(places.bytes)?;
        let table = Table::upload(cuda.driver(), resize, &mut block.ptr().plus(places.table))?;
        let (cuda, FrameSpec { input, output, samples, .. }) = (cuda.clone(), spec);
        Ok(Some(AlphaFilter { cuda, block, places, table, input: *input, output: *output, samples: *samples }))
    }

    fn at(&self, offset: usize) -> Ptr {
        self.block.ptr().plus(offset)
    }

    /// Where the samples of the input's alpha belong, and where those of the result are.
    pub fn samples(&self) -> Ptr {
        self.at(self.places.samples)
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// As for [`crate::driver::Driver::launch`].
    unsafe fn launch(&self, name: &str, grid: Grid, args: &mut [Argument]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.cuda.driver().launch_on(Stream::Frames, name, grid, args) }
    }

    /// The alpha of the input, whose samples are in place, at the size of `frame`, which is its guide.
    pub fn run(&self, frame: Ptr, mask: bool) -> Result<()> {
        self.resample()?;
        let (pixels, [alpha, guide, sums]) = (self.output.count(), self.planes());
        // SAFETY: arguments follow kernels/alpha.cu in order and type; each plane holds the pixels of a frame.
        unsafe { self.launch("alpha_grey", stride_grid(pixels), args![guide, frame, long(pixels)]) }?;
        self.filter(RADII[usize::from(!mask)])?;
        let result = if mask { alpha } else { sums };
        if mask {
            self.sharpen(frame)?;
        }
        let (name, samples) = (format!("alpha_finish_{}", sample_name(self.samples)), self.samples());
        // SAFETY: as above; there is room for the samples of a frame.
        unsafe { self.launch(&name, stride_grid(pixels), args![samples, result, long(pixels)]) }
    }

    fn planes(&self) -> [Ptr; 3] {
        [self.places.alpha, self.places.guide, self.places.sums].map(|offset| self.at(offset))
    }

    fn resample(&self) -> Result<()> {
        let (Hw { h, w }, output, x) = (self.input, self.output, self.at(self.places.along_x));
        let ([starts, weights], name) = (self.table.columns, format!("resize_alpha_x_{}", sample_name(self.samples)));
        let (grid, samples) = (row_grid(h, output.w), self.samples());
        // SAFETY: arguments follow kernels/resize.cu in order and type; the buffer holds these rows.
        unsafe { self.launch(&name, grid, args![x, samples, starts, weights, int(w), int(output.w)]) }?;
        let ([starts, weights], y) = (self.table.rows, self.at(self.places.alpha));
        let grid = row_grid(output.h, output.w);
        // SAFETY: as above.
        unsafe { self.launch("resize_y_unit", grid, args![y, x, starts, weights, int(h), int(output.w)]) }
    }

    /// `to` ← the box means of p, or of p · q.
    fn box_mean(&self, to: Ptr, [p, q]: [Ptr; 2], radius: i32) -> Result<()> {
        let (Hw { h, w }, sums) = (self.output, self.at(self.places.sums));
        // SAFETY: arguments follow kernels/alpha.cu in order and type; each plane holds the pixels of a frame.
        unsafe { self.launch("alpha_box_x", row_grid(h, w), args![sums, p, q, int(w), radius]) }?;
        // SAFETY: as above.
        unsafe { self.launch("alpha_box_y", row_grid(h, w), args![to, sums, int(h), int(w), radius]) }
    }

    /// The guided filter of the resampled alpha, into the sums.
    fn filter(&self, radius: i32) -> Result<()> {
        let (pixels, [alpha, guide, sums]) = (self.output.count(), self.planes());
        let [g, x, gx, gg] = self.places.means.map(|offset| self.at(offset));
        let pairs = [[guide, Ptr::NULL], [alpha, Ptr::NULL], [guide, alpha], [guide, guide]];
        for (to, pair) in [g, x, gx, gg].into_iter().zip(pairs) {
            self.box_mean(to, pair, radius)?;
        }
        let grid = stride_grid(pixels);
        // SAFETY: as above.
        unsafe { self.launch("alpha_fit", grid, args![g, x, gx, gg, EPSILON, long(pixels)]) }?;
        self.box_mean(gx, [g, Ptr::NULL], radius)?;
        self.box_mean(gg, [x, Ptr::NULL], radius)?;
        // SAFETY: as above.
        unsafe { self.launch("alpha_apply", grid, args![sums, gx, gg, guide, long(pixels)]) }
    }

    /// A filtered mask with sharp edges, into the resampled alpha.
    fn sharpen(&self, frame: Ptr) -> Result<()> {
        let (Hw { h, w }, [alpha, _, sums]) = (self.output, self.planes());
        let ([edges, largest], grid) =
            ([self.places.edges, self.places.largest].map(|at| self.at(at)), stride_grid(h * w));
        // SAFETY: one integer.
        unsafe { self.cuda.driver().clear(Stream::Frames, largest, size_of::<u32>()) }?;
        // SAFETY: arguments follow kernels/alpha.cu in order and type; each plane holds the pixels of a frame.
        unsafe { self.launch("alpha_gradient", grid, args![edges, largest, frame, int(h), int(w)]) }?;
        // SAFETY: as above.
        unsafe { self.launch("alpha_edges", grid, args![edges, largest, long(h * w)]) }?;
        // SAFETY: as above.
        unsafe { self.launch("alpha_sharpen", grid, args![alpha, sums, edges, int(h), int(w)]) }
    }
}
