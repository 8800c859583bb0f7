//! Linear layers by the faster of two kernels: ours, and cuBLASLt's where a record or a measurement says so.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use reseed_ops::{DType, Linear, Result, Shape, Tensor};

use super::convolve::Convolution;
use super::{CudaOps, Timestamp};
use crate::cublaslt::{ALIGNMENT, Algorithm, CublasLt, Operands, WORKSPACE};
use crate::driver::Ptr;
use crate::event::Lane;
use crate::tune::{self, Choice, Product, Record};

/// What the library's own kernels take of the card's memory when they are loaded, at the most.
const LOADED: usize = 64 << 20;
/// Runs that are timed, of which the fastest counts.
const TIMED: usize = 5;
/// Share of our time below which the library is worth the change.
const WORTH: f64 = 0.98;

/// The library, and what is known about it.
pub struct Tuner {
    library: CublasLt,
    machine: String,
    /// Whether products that are not in the record are measured.
    measures: bool,
    record: Mutex<Record>,
}

impl Tuner {
    fn choice(&self, product: &Product) -> Option<Choice> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).get(&self.machine, product)
    }

    /// Remembers a choice, on disk where that works.
    fn keep(&self, product: &Product, choice: Choice) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.add(&self.machine, product, choice);
        // A record that cannot be written has been reported when the run began, and serves this run.
        let _ = record.write();
    }
}

impl CudaOps {
    /// Uses what the record at `path` says about linear layers and, when `measure`, completes it as products are met.
    /// Returns what people should know, a line each.
    pub fn tune(&mut self, path: &Path, measure: bool) -> Result<Vec<String>> {
        let (mut record, trouble) = Record::read(path);
        let mut lines: Vec<String> = trouble.into_iter().collect();
        let info = &self.driver.info;
        if !measure && !record.wants_library(&info.name, info.driver) {
            return Ok(lines);
        }
        if let Err(error) = if measure { record.write() } else { Ok(()) } {
            lines.push(format!("{}: {error}; what --tune on measures is for this run alone", path.display()));
        }
        self.driver.enter()?;
        match CublasLt::open() {
            Ok(library) => {
                let machine = tune::machine(&info.name, info.driver, library.version);
                let record = Mutex::new(record);
                self.tuner = Some(Arc::new(Tuner { library, machine, measures: measure, record }));
            }
            Err(reason) if measure => lines.push(format!("{reason}; --tune on has nothing to measure")),
            // A record that was made with the library, which has gone: our kernels need none.
            Err(_) => {}
        }
        Ok(lines)
    }

    /// Bytes of the card's memory that the library may take for itself.
    pub(super) fn library_bytes(&self) -> usize {
        if self.tuner.is_some() { LOADED } else { 0 }
    }

    /// A linear layer by the library's first algorithm, whatever is faster; `None` where it does not take it.
    pub fn linear_by_library(&self, x: &Tensor, linear: &Linear) -> Result<Option<Tensor>> {
        let Some(tuner) = &self.tuner else { return Ok(None) };
        let mut taken = false;
        let y = super::linear::run_by(self, x, linear, None, |product, rounded| {
            let Some((case, at)) = by_library(product, rounded) else { return Ok(()) };
            let Some(algorithm) = tuner.library.algorithms(&case).first().copied() else { return Ok(()) };
            // SAFETY: what the product is made of was checked where it was made.
            taken = unsafe { self.multiply(tuner, &case, at, &algorithm) }?;
            Ok(())
        })?;
        Ok(taken.then_some(y))
    }

    /// # Safety
    /// The pointers hold what `case` says.
    unsafe fn multiply(&self, tuner: &Tuner, case: &Product, at: Operands, algorithm: &Algorithm) -> Result<bool> {
        let workspace = self.lend(Lane::Compute, "linear", Shape::from([WORKSPACE]), WORKSPACE)?;
        self.driver.enter()?;
        let at = Operands { workspace: workspace.ptr(), ..at };
        // SAFETY: the caller's promise, and a workspace of the size that the library may use.
        Ok(unsafe { tuner.library.multiply(case, at, algorithm, self.driver.stream(Lane::Compute)) })
    }
}

/// A product as the library takes it. `rounded` is its bias in the type of its operands, if it has one.
fn by_library(product: &Convolution, rounded: Option<Ptr>) -> Option<(Product, Operands)> {
    let Convolution { dtype, x, w, y, residual, args: a, .. } = *product;
    let (bias, biased) = (rounded.unwrap_or(Ptr::NULL), rounded.is_some());
    let whole = [a.c_in, a.c_out].iter().all(|n| n % 8 == 0) && a.out_w > 0;
    let aligned = [x, w, y, bias].iter().all(|at| at.0.is_multiple_of(ALIGNMENT));
    let fits = dtype != DType::F32 && residual == Ptr::NULL && whole && aligned;
    let case = Product { dtype, rows: a.out_w as usize, d_in: a.c_in as usize, d_out: a.c_out as usize, biased };
    fits.then_some((case, Operands { x, w, bias, y, workspace: Ptr::NULL }))
}

/// Queues a product by the kernel that is known to be faster, or finds out which one that is.
///
/// # Safety
/// The pointers hold what the product says.
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
        None => Choice::Own,
    };
    match choice {
        Choice::Library(algorithm) if library(&algorithm)? => Ok(()),
        _ => own(),
    }
}

/// The fastest, on the operands that are there.
fn measure(
    cuda: &CudaOps,
    algorithms: &[Algorithm],
    own: &dyn Fn() -> Result<()>,
    library: &dyn Fn(&Algorithm) -> Result<bool>,
) -> Result<Choice> {
    let mut best = (Choice::Own, WORTH * fastest(cuda, own)?);
    for algorithm in algorithms {
        if library(algorithm)? {
            let seconds = fastest(cuda, &|| library(algorithm).map(|_| ()))?;
            if seconds < best.1 {
                best = (Choice::Library(*algorithm), seconds);
            }
        }
    }
    Ok(best.0)
}

/// Seconds of the fastest of several runs, after one that is not counted.
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
