//! One card as its driver shows it: a context, streams, a module of kernels, raw memory.
//!
//! Kernels are queued on one stream, in the order of the calls, whatever thread they come from; copies that run beside
//! them have streams of their own.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use cudarc::driver::{result, sys};
use reseed_ops::{Error, Result};

use crate::event::Lane;
use crate::kernels::Kernels;
use crate::launch::Function;

/// What is written to a user without a driver.
const NO_DRIVER: &str = "no NVIDIA driver found (libcuda.so.1 / nvcuda.dll); use --device cpu";

/// The oldest CUDA version of a driver that loads our kernels, and the driver that brought it.
const OLDEST: (usize, &str) = (12_080, "R570");

/// What a context takes at the most. Whatever more is taken when it is made belongs to someone else.
const MOST_OVERHEAD: usize = 640 << 20;

/// Device memory; only kernels look at what is there.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ptr(pub sys::CUdeviceptr);

impl Ptr {
    /// No memory.
    pub const NULL: Ptr = Ptr(0);

    /// The memory `bytes` further on.
    pub fn plus(self, bytes: usize) -> Ptr {
        Ptr(self.0 + bytes as u64)
    }
}

/// A card that the driver knows, whether or not there are kernels for it.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its number, as in `cuda:0`.
    pub ordinal: usize,
    /// Its name, such as `NVIDIA H200`.
    pub name: String,
    /// Its compute capability, major and minor.
    pub capability: (usize, usize),
    /// Bytes of its memory.
    pub memory: usize,
    /// The CUDA version of the driver, major and minor.
    pub driver: (usize, usize),
}

/// Every card of this machine.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let version = init()?;
    let count = result::device::get_count().map_err(refused("cuda", "cuDeviceGetCount"))?;
    (0..count as usize).map(|ordinal| Ok(DeviceInfo::of(ordinal, version)?.0)).collect()
}

/// Starts the driver and returns its CUDA version as it writes it, 12080 for 12.8.
fn init() -> Result<usize> {
    // SAFETY: only looks for the library. Without it every other call would panic.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::NoDevice { reason: NO_DRIVER.into() });
    }
    if let Err(error) = result::init() {
        let reason = format!("the NVIDIA driver offers no device ({}); use --device cpu", words(error));
        return Err(Error::NoDevice { reason });
    }
    let mut version: c_int = 0;
    // SAFETY: writes one integer.
    let answer = unsafe { sys::cuDriverGetVersion(&mut version) };
    answer.result().map_err(refused("cuda", "cuDriverGetVersion"))?;
    Ok(version as usize)
}

impl DeviceInfo {
    fn of(ordinal: usize, version: usize) -> Result<(DeviceInfo, sys::CUdevice)> {
        let label = format!("cuda:{ordinal}");
        let device = result::device::get(ordinal as c_int).map_err(refused(&label, "cuDeviceGet"))?;
        let name = result::device::get_name(device).map_err(refused(&label, "cuDeviceGetName"))?;
        use sys::CUdevice_attribute_enum as Attribute;
        let capability = (
            attribute(&label, device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(&label, device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        // SAFETY: `device` is one that the driver gave out.
        let memory = unsafe { result::device::total_mem(device) }.map_err(refused(&label, "cuDeviceTotalMem"))?;
        let driver = (version / 1000, version % 1000 / 10);
        Ok((DeviceInfo { ordinal, name, capability, memory, driver }, device))
    }
}

fn attribute(label: &str, device: sys::CUdevice, which: sys::CUdevice_attribute) -> Result<usize> {
    // SAFETY: `device` is one that the driver gave out.
    let value = unsafe { result::device::get_attribute(device, which) };
    Ok(value.map_err(refused(label, "cuDeviceGetAttribute"))? as usize)
}

/// The driver's name for an error and its sentence.
fn words(error: result::DriverError) -> String {
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned());
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    match (name, text) {
        (Ok(name), Ok(text)) => format!("{name}, {text}"),
        _ => format!("{:?}", error.0),
    }
}

fn refused<'a>(device: &'a str, what: &'a str) -> impl FnOnce(result::DriverError) -> Error + 'a {
    move |error| Error::Device { device: device.into(), what: what.into(), code: words(error) }
}

/// A card in use.
pub struct Driver {
    pub info: DeviceInfo,
    /// `cuda:0 NVIDIA H200`.
    pub label: String,
    pub multiprocessors: usize,
    /// Whether memory of the host's can be pinned that the driver has not allocated itself.
    pub pins: AtomicBool,
    pub kernels: Kernels,
    device: sys::CUdevice,
    context: sys::CUcontext,
    streams: [sys::CUstream; Lane::COUNT],
    /// Events recorded so far on each stream.
    pub(crate) recorded: [Mutex<u64>; Lane::COUNT],
    /// Bytes that the context and its kernels take.
    pub overhead: usize,
    pub(crate) module: sys::CUmodule,
    pub(crate) functions: Mutex<HashMap<String, Function>>,
}

// SAFETY: the driver's handles belong to the process, not to a thread, and its calls may come from any thread once the
// context is current there; every method sees to that.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

impl Driver {
    /// Opens card `ordinal` and loads its kernels.
    pub fn new(ordinal: usize) -> Result<Arc<Driver>> {
        let version = init()?;
        let count = result::device::get_count().map_err(refused("cuda", "cuDeviceGetCount"))? as usize;
        if ordinal >= count {
            return Err(Error::NoDevice { reason: format!("there is no cuda:{ordinal}; the driver has {count}") });
        }
        let (info, device) = DeviceInfo::of(ordinal, version)?;
        let label = format!("cuda:{ordinal} {}", info.name);
        if version < OLDEST.0 {
            let ((major, minor), newer) = (info.driver, OLDEST.1);
            let reason = format!("{label}: the driver knows CUDA {major}.{minor}; install {newer} or newer");
            return Err(Error::NoDevice { reason });
        }
        let kernels = Kernels::of(&info.name, info.capability)?;
        use sys::CUdevice_attribute_enum as Attribute;
        let multiprocessors = attribute(&label, device, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let pins = attribute(&label, device, Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)? != 0;
        // SAFETY: `device` is one that the driver gave out; the context is released when the value below is dropped.
        let context = unsafe { result::primary_ctx::retain(device) };
        let context = context.map_err(refused(&label, "cuDevicePrimaryCtxRetain"))?;
        let mut driver = Driver {
            info,
            label,
            multiprocessors,
            pins: AtomicBool::new(pins),
            kernels,
            device,
            context,
            streams: [ptr::null_mut(); Lane::COUNT],
            recorded: Default::default(),
            overhead: 0,
            module: ptr::null_mut(),
            functions: Mutex::default(),
        };
        driver.load()?;
        Ok(Arc::new(driver))
    }

    fn load(&mut self) -> Result<()> {
        self.enter()?;
        // SAFETY: the image is a whole cubin, aligned, and lives as long as the program.
        let loaded = unsafe { result::module::load_data(self.kernels.image.as_ptr().cast()) };
        self.module = loaded.map_err(|error| self.refused("cuModuleLoadData", error))?;
        for i in 0..self.streams.len() {
            let made = result::stream::create(result::stream::StreamKind::NonBlocking);
            self.streams[i] = made.map_err(|error| self.refused("cuStreamCreate", error))?;
        }
        let (free, all) = self.memory()?;
        self.overhead = (all - free).min(MOST_OVERHEAD);
        Ok(())
    }

    /// The stream of a lane.
    pub(crate) fn stream(&self, lane: Lane) -> sys::CUstream {
        self.streams[lane as usize]
    }

    pub(crate) fn refused(&self, what: &str, error: result::DriverError) -> Error {
        refused(&self.label, what)(error)
    }

    pub(crate) fn check(&self, what: &str, answer: sys::CUresult) -> Result<()> {
        answer.result().map_err(|error| self.refused(what, error))
    }

    /// Makes the card's context the calling thread's; the driver's calls mean that one.
    pub(crate) fn enter(&self) -> Result<()> {
        // SAFETY: the context is held until this value is dropped.
        let entered = unsafe { result::ctx::set_current(self.context) };
        entered.map_err(|error| self.refused("cuCtxSetCurrent", error))
    }

    /// Waits for everything queued so far, and reports what went wrong in it.
    pub fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream is held until this value is dropped.
        self.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.stream(Lane::Compute)) })
    }

    /// Waits for copies as well.
    pub fn synchronize_all(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: waits for work of our own context.
        self.check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// Bytes free and bytes in all.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.enter()?;
        result::mem_get_info().map_err(|error| self.refused("cuMemGetInfo", error))
    }

    /// Copies from the host and waits, so that `from` may go.
    ///
    /// # Safety
    /// `to` holds that many bytes.
    pub unsafe fn copy_in(&self, to: Ptr, from: &[u8]) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        self.enter()?;
        let source: *const c_void = from.as_ptr().cast();
        // SAFETY: the caller's promise; `from` outlives the copy because we wait for it.
        let answer = unsafe { sys::cuMemcpyHtoDAsync_v2(to.0, source, from.len(), self.stream(Lane::Compute)) };
        self.check("cuMemcpyHtoDAsync", answer)?;
        self.synchronize()
    }

    /// Queues a copy from pinned memory, beside kernels.
    ///
    /// # Safety
    /// Both hold `bytes` bytes, and `from` stays as it is until the copy is done.
    pub unsafe fn bring(&self, to: Ptr, from: *const c_void, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's promise.
        let answer = unsafe { sys::cuMemcpyHtoDAsync_v2(to.0, from, bytes, self.stream(Lane::In)) };
        self.check("cuMemcpyHtoDAsync", answer)
    }

    /// Queues a copy to pinned memory on `lane`, beside kernels.
    ///
    /// # Safety
    /// Both hold `bytes` bytes, and nothing touches `to` until the copy is done.
    pub unsafe fn prefetch(&self, lane: Lane, to: *mut c_void, from: Ptr, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's promise.
        let answer = unsafe { sys::cuMemcpyDtoHAsync_v2(to, from.0, bytes, self.stream(lane)) };
        self.check("cuMemcpyDtoHAsync", answer)
    }

    /// Queues a copy from device memory to device memory on `lane`.
    ///
    /// # Safety
    /// Both hold `bytes` bytes and do not overlap.
    pub unsafe fn copy(&self, lane: Lane, to: Ptr, from: Ptr, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: the caller's promise.
        let answer = unsafe { sys::cuMemcpyDtoDAsync_v2(to.0, from.0, bytes, self.stream(lane)) };
        self.check("cuMemcpyDtoDAsync", answer)
    }

    /// A variable of the kernels.
    pub fn global(&self, name: &str) -> Result<Ptr> {
        self.enter()?;
        let symbol = CString::new(name).expect("no variable's name holds a zero");
        // SAFETY: the module is held until this value is dropped.
        let found = unsafe { result::module::get_global(self.module, symbol) };
        found.map(|(at, _)| Ptr(at)).map_err(|error| self.refused(&format!("lookup of {name}"), error))
    }

    /// Queues zeros.
    ///
    /// # Safety
    /// `to` holds `bytes` bytes.
    pub unsafe fn clear(&self, to: Ptr, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's promise.
        self.check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(to.0, 0, bytes, self.stream(Lane::Compute)) })
    }
}

impl Driver {
    /// Memory with anything in it, or `None` when there is not that much.
    pub fn alloc(&self, bytes: usize) -> Result<Option<Ptr>> {
        self.enter()?;
        let mut at = 0;
        // SAFETY: writes one address; `enter` made the context current. The memory is there for whatever is queued next.
        match unsafe { sys::cuMemAlloc_v2(&mut at, bytes.max(1)) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            answer => self.check("cuMemAlloc", answer).map(|()| Some(Ptr(at))),
        }
    }

    /// Takes back what `alloc` gave, once nothing queued uses it.
    pub fn free(&self, at: Ptr) {
        // An error now is one of the context, which the next call that can return it will meet again.
        let _ = self.enter();
        // SAFETY: `alloc` made this address and its owner is gone; the driver waits for what is queued.
        let _ = unsafe { sys::cuMemFree_v2(at.0) };
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A card that fails now has nothing left that could be lost.
        let _ = self.enter();
        for stream in self.streams.into_iter().filter(|stream| !stream.is_null()) {
            // SAFETY: ours, and whoever could queue work on it held this value.
            let _ = unsafe { result::stream::destroy(stream) };
        }
        if !self.module.is_null() {
            // SAFETY: as above; `functions` is not read again.
            let _ = unsafe { result::module::unload(self.module) };
        }
        // SAFETY: retained once in `new`.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}
