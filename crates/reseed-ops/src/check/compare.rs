//! How far results may be apart.

use super::CheckOps;
use super::disagreement::{Disagreement, relative_error, summation};
use super::pair::Pair;
use crate::error::Result;
use crate::operands::ConvOutput;
use crate::shape::Shape;
use crate::tensor::Tensor;

impl CheckOps<'_> {
    /// Compares the results of an op that sums `terms` products per value, and goes on with the reference's.
    pub(super) fn compare(&self, op: &'static str, results: [Tensor; 2], terms: usize) -> Result<Tensor> {
        let allowed = 2.0 * self.rounding(&results[0]) + summation(terms);
        self.compare_within(op, results, allowed)
    }

    /// Compares results that must be equal.
    pub(super) fn exact(&self, op: &'static str, results: [Tensor; 2]) -> Result<Tensor> {
        self.compare_within(op, results, 0.0)
    }

    /// The largest relative error of rounding a value, or an operand of it.
    fn rounding(&self, result: &Tensor) -> f64 {
        f64::from(result.dtype().rounding().max(self.device.precision().rounding()))
    }

    pub(super) fn compare_within(
        &self,
        op: &'static str,
        [reference, device]: [Tensor; 2],
        allowed: f64,
    ) -> Result<Tensor> {
        assert_eq!(reference.shape(), device.shape(), "{op}: shapes on {}", self.device.name());
        let (a, b) = (self.reference.download(&reference)?, self.device.download(&device)?);
        self.judge(op, reference.shape(), relative_error(&a, &b), allowed);
        let device = match reference.dtype() == self.device.dtype() {
            true => self.device.upload(device.shape(), &a)?,
            false => device,
        };
        Ok(Pair::tensor([reference, device], false))
    }

    pub(super) fn judge(&self, op: &'static str, shape: Shape, error: f64, allowed: f64) {
        let mut log = self.log();
        let (call, stage) = (log.calls, log.stage.clone());
        log.calls += 1;
        let agreed = error <= allowed;
        if !agreed {
            let found = Disagreement { stage, op, call, shape, error, allowed };
            (self.report)(&found);
            log.found.push(found);
        }
    }

    /// Compares a convolution's results; its kernels were rounded `apart` times on one device and not on the other.
    pub(super) fn compare_summed(
        &self,
        op: &'static str,
        [a, b]: [ConvOutput; 2],
        terms: usize,
        apart: f64,
    ) -> Result<ConvOutput> {
        let pixels = a.tensor.count() / a.stats.as_ref().map_or(1, |s| s.count() / 2);
        // Sums that differ in their last bits may round to neighbours; a mean of n values shows 1/√n of that.
        let values = 4.0 * self.rounding(&a.tensor) / (pixels as f64).sqrt();
        // With each of those roundings a weight moves by up to one, 1/√3 of that on average, and so at most does the
        // channel's kernel; they are independent of each other. Its variance moves twice as far. All pixels of a channel
        // move alike; only the channels of a group are independent of each other.
        let groups = a.stats.as_ref().map_or(1, |s| s.shape().dims()[1]);
        let channels = (a.tensor.channels() / groups) as f64;
        let kernel = 2.0 * self.rounding(&a.tensor) * (apart / 3.0 / channels).sqrt();
        let rounding = values + kernel;
        let tensor = self.compare(op, [a.tensor, b.tensor], terms)?;
        let stats = match (a.stats, b.stats) {
            (Some(a), Some(b)) => {
                Some(self.compare_within("statistics", [a, b], rounding + summation(terms.max(pixels)))?)
            }
            (None, None) => None,
            _ => panic!("{op}: only one device returned statistics"),
        };
        Ok(ConvOutput { tensor, stats })
    }
}

/// How often a kernel is rounded on one device and not on the other, at a clip's start or later.
///
/// A kernel that is summed over time is rounded once more. Rows in pairs: the device rounds U where the reference rounds g.
/// Sums of two inputs are √2 as large as one, and U1 and U2 are √3/2 of g, so that a rounding of U counts as
/// 2 (1 + 3/4 + 3/4) / 3 = 5/3 of g's. Inputs are rounded again as well, but differently for every pixel. In all that makes
/// 1 + 2 · 5/3 roundings of operands at most, and 5/3 more at a clip's start, beside those of two outputs: √(8/3) < 2 of the
/// largest, so that results agree as they do otherwise.
pub(super) fn apart(pairs: bool, starts: bool) -> f64 {
    match (pairs, starts) {
        (false, false) => 0.0,
        (false, true) => 1.0,
        (true, false) => 1.0 + 5.0 / 3.0,
        (true, true) => 1.0 + 2.0 * 5.0 / 3.0,
    }
}
