//! The CPU.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use reseed_cpu::{CpuOps, Level};
use reseed_ops::{Ceiling, Device, Precision, SpeedModel};

use super::{ComputeOptions, DeviceHandle, checked, unknown};
use crate::error::{Error, Result};

pub fn open(options: &ComputeOptions) -> Result<DeviceHandle> {
    if options.device != super::CPU {
        return Err(unknown(options));
    }
    if options.budget.is_some() {
        return Err(Error::BudgetOnCpu);
    }
    let (dtype, threads) = (precision(options.dtype)?.dtype(), options.threads);
    let cpu = Arc::new(CpuOps::new(dtype, threads)?);
    let (lanes, tracer, class) = (cpu.threads(), cpu.clone(), format!("cpu {}", cpu.level()));
    let ceiling = options.profile.then(|| Ceiling::measure(&*cpu)).transpose()?;
    let ops: Arc<dyn Device> = match &options.check {
        Some(report) => checked(CpuOps::at(Level::Reference, dtype, threads)?, cpu, report.clone()),
        None => cpu,
    };
    Ok(DeviceHandle {
        trace: Box::new(move || tracer.trace()),
        room: Box::new(|| Ok(None)),
        slice: Some(1),
        lanes,
        gpu: None,
        ceiling,
        ops,
        class,
        warnings: Vec::new(),
    })
}

/// The chosen type, or the one that suits this CPU.
pub fn precision(chosen: Option<Precision>) -> Result<Precision> {
    match chosen {
        Some(Precision::Tf32) => Err(Error::Tf32OnCpu),
        Some(precision) => Ok(precision),
        None => Ok(Level::detect()?.dtype().into()),
    }
}

/// The peak rates of a CPU device, measured once per process and kind of device.
fn measured(ops: &dyn Device) -> Result<Ceiling> {
    static MEASURED: Mutex<BTreeMap<String, Ceiling>> = Mutex::new(BTreeMap::new());
    let mut known = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let kind = format!("{} {}", ops.name(), ops.precision());
    if let Some(ceiling) = known.get(&kind) {
        return Ok(*ceiling);
    }
    let ceiling = Ceiling::measure(ops)?;
    known.insert(kind, ceiling);
    Ok(ceiling)
}

impl DeviceHandle {
    /// The same device, whose plans keep the time that it was measured to need.
    pub(super) fn with_measured_speed(self) -> Result<DeviceHandle> {
        if self.gpu.is_some() {
            return Ok(self);
        }
        let Ceiling { flops, bytes } = measured(&*self.ops)?;
        let per_nanosecond = |per_second: f64| (per_second / 1e9).max(1.0) as u64;
        let speed = SpeedModel { flops: per_nanosecond(flops), bytes: per_nanosecond(bytes), ..SpeedModel::default() };
        let trace = self.trace;
        Ok(DeviceHandle { trace: Box::new(move || trace().with_speed(speed)), ..self })
    }

    /// The rates that estimated times are based on, in words.
    pub fn speed(&self) -> String {
        let SpeedModel { flops, bytes, bus } = (self.trace)().speed();
        let (name, flops) = (self.ops.name(), flops as f64 / 1e3);
        match self.gpu {
            Some(_) => format!("{name} at {flops:.0} TFLOP/s, {bytes} GB/s device memory and {bus} GB/s to the host"),
            None => format!("{name} at {flops:.2} TFLOP/s and {bytes} GB/s, as measured now"),
        }
    }
}
