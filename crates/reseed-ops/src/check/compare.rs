//! Compares two results, element by element and as a whole.

use super::CheckOps;
use super::bound::{EPS, Rounding, independent};
use super::disagreement::{Disagreement, Element, relative_error};
use super::pair::Pair;
use crate::error::Result;
use crate::operands::{ConvOutput, Stats};
use crate::precision::Precision;
use crate::shape::Shape;
use crate::tensor::Tensor;

impl CheckOps<'_> {
    /// Roundings of results of the type of `y`.
    pub(super) fn rounding(&self, y: &Tensor) -> Rounding {
        Rounding::new(y.dtype(), self.device.precision())
    }

    /// The bound of ‖a - b‖ / ‖a‖: two roundings, and the error of sums of n terms in f32. The latter grows like √n,
    /// and four standard deviations are never reached by chance.
    fn norm_bound(&self, y: &Tensor, terms: usize) -> f64 {
        let rounding = f64::from(y.dtype().rounding().max(self.device.precision().rounding()));
        2.0 * rounding + 4.0 * (terms as f64).sqrt() * f64::from(f32::EPSILON)
    }

    /// Whether the device adds products in f16.
    pub(super) fn sums_in_f16(&self) -> bool {
        self.device.math_mode().is_fast() && self.device.precision() == Precision::F16
    }

    /// What sums of f16 add to the bound of ‖a - b‖ / ‖a‖. With independent terms, the partial sums of n = 12 roundings
    /// have the squares 1/n, 2/n, ..., so that their errors are √((n + 1) / 2) roundings in the mean, and the products
    /// of Winograd F(2x2,3x3) have 25/9 of the squares of the direct ones: 4.3 together.
    fn half_norm(&self, y: &Tensor) -> f64 {
        if self.sums_in_f16() { 4.3 * f64::from(y.dtype().rounding()) } else { 0.0 }
    }

    /// Compares results and continues with the reference's. `bound` is the largest error of a correct device at an
    /// element and its value. `terms` is the number of products per value.
    pub(super) fn compare(
        &self,
        op: &'static str,
        results: [Tensor; 2],
        terms: usize,
        bound: impl Fn(usize, f64) -> f64,
    ) -> Result<Tensor> {
        let norm = self.norm_bound(&results[0], terms);
        Ok(self.compare_within(op, results, norm, bound)?.0)
    }

    /// Compares results that must be equal.
    pub(super) fn exact(&self, op: &'static str, results: [Tensor; 2]) -> Result<Tensor> {
        Ok(self.compare_within(op, results, 0.0, |_, _| 0.0)?.0)
    }

    /// Compares copies of tensors. Statistics on a device with 16-bit activations are not replaced by the reference's,
    /// so that their copies differ as much as they do.
    pub(super) fn compare_copies(&self, op: &'static str, from: &[&Tensor], results: [Tensor; 2]) -> Result<Tensor> {
        if results[0].dtype() == self.device.dtype() {
            return self.exact(op, results);
        }
        let mut most = 0f64;
        for x in from {
            let [a, b] = self.both(|side| side.device.download(&side.tensor(x)))?;
            most = a.iter().zip(&b).map(|(a, b)| f64::from((a - b).abs())).fold(most, f64::max);
        }
        Ok(self.compare_within(op, results, f64::INFINITY, |_, _| most / 2.0)?.0)
    }

    fn compare_within(
        &self,
        op: &'static str,
        [reference, device]: [Tensor; 2],
        whole: f64,
        bound: impl Fn(usize, f64) -> f64,
    ) -> Result<(Tensor, bool)> {
        assert_eq!(reference.shape(), device.shape(), "{op}: shapes on {}", self.device.name());
        let (a, b) = (self.reference.download(&reference)?, self.device.download(&device)?);
        let agrees = self.judge(op, reference.shape(), [&a, &b], whole, bound);
        Ok((self.paired([reference, device], &a)?, agrees))
    }

    /// Both results, that of the device replaced by the reference's values.
    fn paired(&self, [reference, device]: [Tensor; 2], values: &[f32]) -> Result<Tensor> {
        let device = match reference.dtype() == self.device.dtype() {
            true => self.device.upload(device.shape(), values)?,
            // Statistics of a device with 16-bit activations cannot be uploaded.
            false => device,
        };
        Ok(Pair::tensor([reference, device], false))
    }

    /// Judges every element, and the norm of all differences: errors that are many and small do not leave the bound of
    /// any element.
    pub(super) fn judge(
        &self,
        op: &'static str,
        shape: Shape,
        [a, b]: [&[f32]; 2],
        whole: f64,
        bound: impl Fn(usize, f64) -> f64,
    ) -> bool {
        let mut worst: Option<(Element, f64, f64)> = None;
        for (index, (&reference, &device)) in a.iter().zip(b).enumerate() {
            if reference == device {
                continue;
            }
            let (x, y) = (f64::from(reference), f64::from(device));
            // Both devices may be off by the bound.
            let (error, allowed) = ((x - y).abs(), 2.0 * bound(index, x.abs().max(y.abs())));
            // What is not a number on one device alone is not within any bound.
            let outside = if error.is_nan() { f64::INFINITY } else { error / allowed };
            if outside > worst.map_or(1.0, |(_, error, allowed)| error / allowed) {
                worst =
                    Some((Element { index, reference, device }, if error.is_nan() { outside } else { error }, allowed));
            }
        }
        let norm = relative_error(a, b);
        match worst {
            Some((element, error, allowed)) => self.record(op, shape, Some((Some(element), error, allowed))),
            None if norm > whole => self.record(op, shape, Some((None, norm, whole))),
            None => self.record(op, shape, None),
        }
    }

    /// Counts a result and returns whether it agrees.
    fn record(&self, op: &'static str, shape: Shape, found: Option<(Option<Element>, f64, f64)>) -> bool {
        let mut log = self.log();
        let (call, stage) = (log.calls, log.stage.clone());
        log.calls += 1;
        let agrees = found.is_none();
        if let Some((element, error, allowed)) = found {
            let found = Disagreement { stage, op, call, shape, element, error, allowed };
            (self.report)(&found);
            log.found.push(found);
        }
        agrees
    }

    /// Compares the results of a convolution.
    pub(super) fn compare_output(
        &self,
        op: &'static str,
        [a, b]: [ConvOutput; 2],
        terms: usize,
        bound: impl Fn(usize, f64) -> f64,
    ) -> Result<ConvOutput> {
        let own = b.tensor.clone();
        let norm = self.norm_bound(&a.tensor, terms) + self.half_norm(&a.tensor);
        let (tensor, agrees) = self.compare_within(op, [a.tensor, b.tensor], norm, bound)?;
        let stats = match (a.stats, b.stats) {
            (Some(reference), Some(device)) => Some(self.compare_stats(&own, [reference, device], agrees)?),
            (None, None) => None,
            _ => panic!("{op}: only one device returned statistics"),
        };
        Ok(ConvOutput { tensor, stats })
    }

    /// Judges the statistics of a device by its own values: those of the reference are statistics of other values.
    ///
    /// A device may take them before it rounds its values: n independent roundings of u |x| move a mean by 8 u √(Σx²) /
    /// n at most, as [`independent`] has it, and the variance by twice as much for each unit of deviation. The squares
    /// of these roundings add u² mean(x²). A device may sum in f32, and may subtract the square of the mean from the
    /// mean of squares.
    fn compare_stats(&self, y: &Tensor, [reference, device]: [Stats; 2], agrees: bool) -> Result<Stats> {
        let (values, found) = (self.device.download(y)?, self.device.download(&device)?);
        let groups = reference.shape().dims()[1];
        let u = f64::from(y.dtype().rounding());
        let (mut want, mut bounds) = (Vec::new(), Vec::new());
        for group in grouped(&values, y.thw().t, y.channels(), groups) {
            let n = group.len() as f64;
            let mean_of = |f: &dyn Fn(f64) -> f64| group.iter().map(|&v| f(v)).sum::<f64>() / n;
            let (mean, squares) = (mean_of(&|v| v), mean_of(&|v| v * v));
            let variance = mean_of(&|v| (v - mean).powi(2));
            let moved = mean_of(&|v| ((v - mean) * v).powi(2)).sqrt();
            let (rounded, summed) = (u * 1f64.min(8.0 / n.sqrt()), independent(group.len()) * EPS);
            want.extend([mean as f32, variance as f32]);
            bounds.push(rounded * squares.sqrt() + summed * squares.sqrt());
            bounds.push(2.0 * rounded * moved + u * u * squares + summed * (squares + variance));
        }
        // Statistics of wrong values say nothing more.
        if agrees {
            self.judge("statistics", reference.shape(), [&want, &found], f64::INFINITY, |i, _| bounds[i]);
        }
        let values = self.reference.download(&reference)?;
        self.paired([reference, device], &values)
    }
}

/// The values of every frame and group of a clip.
pub(super) fn grouped(
    values: &[f32],
    frames: usize,
    channels: usize,
    groups: usize,
) -> impl Iterator<Item = Vec<f64>> + '_ {
    let (frame, width) = (values.len() / frames, channels / groups);
    values.chunks_exact(frame).flat_map(move |frame| {
        (0..groups).map(move |group| {
            let pixel = |pixel: &'_ [f32]| pixel[group * width..][..width].to_vec();
            frame.chunks_exact(channels).flat_map(pixel).map(f64::from).collect()
        })
    })
}
