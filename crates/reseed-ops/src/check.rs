//! Two devices side by side. Both compute every op from the same inputs, so that the first op that disagrees is the
//! wrong one and not a later one.

mod bound;
mod compare;
mod disagreement;
mod magnitude;
mod ops;
mod pair;
mod winograd;
mod winograd_phases;

use std::sync::{Mutex, MutexGuard};

use crate::device::Device;
use crate::error::Result;
use crate::math_mode::MathMode;
use crate::pixels::{Depth, Pixels};
use crate::precision::Precision;
use crate::residency::{Movable, Payload, Residency};
use crate::shape::{DType, Shape};
use crate::tensor::Tensor;
use crate::timing::{CopyTime, DeviceTimer, Timing};
use crate::transfer::{PendingDownload, Transfer};
use crate::weights::{Conv, Linear, Packed, Upsample};

pub use bound::allowed;
pub use disagreement::{Disagreement, Element, relative_error};
use pair::{Pair, Side, on_both, repack};

#[derive(Default)]
struct Log {
    stage: String,
    calls: usize,
    found: Vec<Disagreement>,
}

/// Runs `reference` and `device` and compares. Later ops read the reference's results.
pub struct CheckOps<'a> {
    reference: &'a dyn Device,
    device: &'a dyn Device,
    log: Mutex<Log>,
    report: Box<Report<'a>>,
}

/// Called with every disagreement when it is found.
pub type Report<'a> = dyn Fn(&Disagreement) + Send + Sync + 'a;

impl<'a> CheckOps<'a> {
    /// Compares `device` with `reference`.
    pub fn new(reference: &'a dyn Device, device: &'a dyn Device) -> Self {
        CheckOps::reporting(reference, device, |_| {})
    }

    /// Compares `device` with `reference` and calls `report` at every op that disagrees.
    pub fn reporting(
        reference: &'a dyn Device,
        device: &'a dyn Device,
        report: impl Fn(&Disagreement) + Send + Sync + 'a,
    ) -> Self {
        assert_eq!(reference.dtype(), device.dtype(), "devices under comparison");
        CheckOps { reference, device, log: Mutex::default(), report: Box::new(report) }
    }

    /// Every op that disagreed, the first one first.
    pub fn disagreements(&self) -> Vec<Disagreement> {
        self.log().found.clone()
    }

    /// Number of results compared.
    pub fn calls(&self) -> usize {
        self.log().calls
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn both<T>(&self, run: impl Fn(Side<'a>) -> Result<T>) -> Result<[T; 2]> {
        on_both([self.reference, self.device], run)
    }
}

impl Device for CheckOps<'_> {
    fn name(&self) -> String {
        format!("{} against {}", self.device.name(), self.reference.name())
    }

    fn dtype(&self) -> DType {
        self.reference.dtype()
    }

    fn precision(&self) -> Precision {
        self.device.precision()
    }

    fn math_mode(&self) -> MathMode {
        self.device.math_mode()
    }
}

impl Timing for CheckOps<'_> {
    fn stage(&self, name: &str) {
        self.log().stage = name.to_string();
    }

    fn timer(&self) -> Result<Box<dyn DeviceTimer>> {
        self.device.timer()
    }

    fn finish(&self) -> Result<()> {
        self.both(|side| side.device.finish()).map(drop)
    }

    fn copy_time(&self) -> Result<CopyTime> {
        self.device.copy_time()
    }
}

/// Moves a payload of one device.
type Move = fn(&dyn Device, Payload) -> Result<Payload>;

impl CheckOps<'_> {
    fn move_packed<T: Movable + Send + Sync + 'static>(&self, packed: &Packed, run: Move) -> Result<Packed> {
        let sides = self.both(|side| {
            let weights: &T = side.weights(packed);
            Ok(T::from_payload(run(side.device, weights.clone().into_payload())?))
        })?;
        Ok(repack(packed, sides))
    }

    /// Moves a payload on both devices. Offloaded tensors are compared when they are prefetched.
    fn move_both(&self, mut payload: Payload, run: Move) -> Result<Payload> {
        match &mut payload {
            Payload::Tensor(x) => {
                let sides =
                    self.both(|side| Ok(Tensor::from_payload(run(side.device, side.tensor(x).into_payload())?)))?;
                *x = Pair::tensor(sides, true);
            }
            Payload::Conv(Conv { packed, .. }) => *packed = self.move_packed::<Conv>(packed, run)?,
            Payload::Linear(Linear { packed, .. }) => *packed = self.move_packed::<Linear>(packed, run)?,
            Payload::Upsample(Upsample { packed, .. }) => *packed = self.move_packed::<Upsample>(packed, run)?,
        }
        Ok(payload)
    }
}

impl Residency for CheckOps<'_> {
    fn offload(&self, payload: Payload) -> Result<Payload> {
        self.move_both(payload, |device, payload| device.offload(payload))
    }

    fn prefetch(&self, payload: Payload) -> Result<Payload> {
        match self.move_both(payload, |device, payload| device.prefetch(payload))? {
            Payload::Tensor(x) => {
                let Pair { sides, .. } = x.storage();
                Ok(Payload::Tensor(self.exact("prefetch", sides.clone())?))
            }
            weights => Ok(weights),
        }
    }

    fn reserve(&self, bytes: usize) -> Result<()> {
        self.both(|side| side.device.reserve(bytes)).map(drop)
    }
}

impl Transfer for CheckOps<'_> {
    fn upload(&self, shape: Shape, values: &[f32]) -> Result<Tensor> {
        self.exact("upload", self.both(|side| side.device.upload(shape, values))?)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        let [values, _] = self.both(|side| side.device.download(&side.tensor(x)))?;
        Ok(values)
    }

    fn start_download(&self, x: &Tensor) -> Result<Box<dyn PendingDownload>> {
        let [pending, _] = self.both(|side| side.device.start_download(&side.tensor(x)))?;
        Ok(pending)
    }

    fn upload_pixels(&self, shape: Shape, pixels: &Pixels) -> Result<Tensor> {
        self.exact("upload_pixels", self.both(|side| side.device.upload_pixels(shape, pixels))?)
    }

    fn start_download_pixels(&self, x: &Tensor, depth: Depth) -> Result<Box<dyn PendingDownload<Pixels>>> {
        let [codes, theirs] = self.both(|side| {
            let mut codes = Pixels::default();
            side.device.start_download_pixels(&side.tensor(x), depth)?.wait(&mut codes)?;
            Ok(codes)
        })?;
        self.judge("start_download_pixels", x.shape(), [&codes.values(), &theirs.values()], 0.0, |_, _| 0.0);
        Ok(Box::new(codes))
    }
}
