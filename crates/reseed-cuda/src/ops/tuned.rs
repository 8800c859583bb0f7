//! Linear layers by the faster of two kernels, Reseed's or one of cuBLASLt, as a record or a measurement says.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use reseed_ops::{DType, Linear, Result, Shape, Tensor};

use super::convolution::Convolution;
use super::{CudaOps, Timestamp};
use crate::cublaslt::{ALIGNMENT, Algorithm, CublasLt, Operands, WORKSPACE};
use crate::driver::Ptr;
use crate::stream::Stream;
use crate::tune::{self, KernelChoice, Product, Record};

/// Most device memory that the library's kernels need when they are loaded.
const LOADED: usize = 64 << 20;
/// Timed runs, of which the fastest counts.
const TIMED: usize = 5;
/// Fraction of the time of Reseed's kernel that the library must not exceed.
const WORTH: f64 = 0.98;

/// The library and its record.
pub struct Tuner {
    library: CublasLt,
    machine: String,
    /// Whether products without a record are measured.
    measures: bool,
    record: Mutex<Record>,
}

impl Tuner {
    fn choice(&self, product: &Product) -> Option<KernelChoice> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).get(&self.machine, product)
    }

    /// Adds a choice to the record and writes it.
    fn keep(&self, product: &Product, choice: KernelChoice) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.add(&self.machine, product, choice);
        // `tune` has reported a record that cannot be written; it serves this run.
        let _ = record.write();
    }
}

impl CudaOps {
    /// Uses the record at `path` for linear layers; with `measure`, measures products that it lacks. Returns warnings
    /// for the user, one line each.
    pub fn tune(&mut self, path: &Path, measure: bool) -> Result<Vec<String>> {
        let (mut record, warning) = Record::read(path);
        let mut warnings: Vec<String> = warning.into_iter().collect();
        let info = &self.driver.info;
        if !measure && !record.wants_library(&info.name, info.driver) {
            return Ok(warnings);
        }
        if let Err(error) = if measure { record.write() } else { Ok(()) } {
            warnings.push(format!("cannot write {}: {error}; measurements are for this run only", path.display()));
        }
        self.driver.enter()?;
        match CublasLt::open() {
            Ok(library) => {
                let machine = tune::machine(&info.name, info.driver, library.version);
                let record = Mutex::new(record);
                self.tuner = Some(Arc::new(Tuner { library, machine, measures: measure, record }));
            }
            Err(reason) if measure => warnings.push(format!("cannot measure linear layers: {reason}")),
            // The record was measured with a library that is missing now; Reseed's kernels need none.
            Err(_) => {}
        }
        Ok(warnings)
    }

    /// Bytes of device memory that the library may allocate.
    pub(super) fn library_bytes(&self) -> usize {
        if self.tuner.is_some() { LOADED } else { 0 }
    }

    /// A linear layer by the library's first algorithm; `None` where the library does not support it. For reports only.
    pub fn linear_by_library(&self, x: &Tensor, linear: &Linear) -> Result<Option<Tensor>> {
        let Some(tuner) = &self.tuner else { return Ok(None) };
        let mut supported = false;
        let y = super::linear::run_by(self, x, linear, None, |product, rounded| {
            let Some((case, at)) = by_library(product, rounded) else { return Ok(()) };
            let Some(algorithm) = tuner.library.algorithms(&case).first().copied() else { return Ok(()) };
            // SAFETY: `run_by` has checked the operands.
            supported = unsafe { self.multiply(tuner, &case, at, &algorithm) }?;
            Ok(())
        })?;
        Ok(supported.then_some(y))
    }

    /// Queues a product by the library; `false` where it does not support it.
    ///
    /// # Safety
    /// The pointers hold the operands of `case`.
    unsafe fn multiply(&self, tuner: &Tuner, case: &Product, at: Operands, algorithm: &Algorithm) -> Result<bool> {
        let workspace = self.buffer(Stream::Compute, "linear", Shape::from([WORKSPACE]), WORKSPACE)?;
        self.driver.enter()?;
        let at = Operands { workspace: workspace.ptr(), ..at };
        // SAFETY: the caller's promise; the workspace has the size that the library may use.
        Ok(unsafe { tuner.library.multiply(case, at, algorithm, self.driver.handle(Stream::Compute)) })
    }
}

/// A product for the library, where it may support it. `rounded` is the bias in the type of the operands.
fn by_library(product: &Convolution, rounded: Option<Ptr>) -> Option<(Product, Operands)> {
    let Convolution { dtype, x, w, y, residual, args: a, .. } = *product;
    let (bias, biased) = (rounded.unwrap_or(Ptr::NULL), rounded.is_some());
    let whole = [a.c_in, a.c_out].iter().all(|n| n % 8 == 0) && a.out_w > 0;
    let aligned = [x, w, y, bias].iter().all(|at| at.0.is_multiple_of(ALIGNMENT));
    let fits = dtype != DType::F32 && residual == Ptr::NULL && whole && aligned;
    let case = Product { dtype, rows: a.out_w as usize, d_in: a.c_in as usize, d_out: a.c_out as usize, biased };
    fits.then_some((case, Operands { x, w, bias, y, workspace: Ptr::NULL }))
}

/// Queues a product by the faster kernel, which is measured where the record lacks it.
///
/// # Safety
/// The pointers hold the operands of the product.
pub unsafe fn launch(cuda: &CudaOps, product: &Convolution, rounded: Option<Ptr>) -> Result<()> {
    // SAFETY: the caller's promise, here and below.
    let own = || unsafe { product.launch(cuda) };
    let Some(tuner) = &cuda.tuner else { return own() };
    let Some((case, at)) = by_library(product, rounded) else { return own() };
    // SAFETY: as above.
    let library = |algorithm: &Algorithm| unsafe { cuda.multiply(tuner, &case, at, algorithm) };
    let choice = match tuner.choice(&case) {
        Some(choice) => choice,
        None if tuner.measures => {
            let choice = measure(cuda, &tuner.library.algorithms(&case), &own, &library)?;
            tuner.keep(&case, choice);
            choice
        }
        None => KernelChoice::Own,
    };
    match choice {
        KernelChoice::Library(algorithm) if library(&algorithm)? => Ok(()),
        _ => own(),
    }
}

/// Measures which kernel is faster, on the given operands.
fn measure(
    cuda: &CudaOps,
    algorithms: &[Algorithm],
    own: &dyn Fn() -> Result<()>,
    library: &dyn Fn(&Algorithm) -> Result<bool>,
) -> Result<KernelChoice> {
    let mut best = (KernelChoice::Own, WORTH * fastest(cuda, own)?);
    for algorithm in algorithms {
        if library(algorithm)? {
            let seconds = fastest(cuda, &|| library(algorithm).map(|_| ()))?;
            if seconds < best.1 {
                best = (KernelChoice::Library(*algorithm), seconds);
            }
        }
    }
    Ok(best.0)
}

/// Seconds of the fastest of several runs, after one warm-up run.
fn fastest(cuda: &CudaOps, run: &dyn Fn() -> Result<()>) -> Result<f64> {
    run()?;
    let mut least = f64::INFINITY;
    for _ in 0..TIMED {
        let start: Timestamp = cuda.timestamp()?;
        run()?;
        least = least.min(start.seconds_to(&cuda.timestamp()?)?);
    }
    Ok(least)
}
