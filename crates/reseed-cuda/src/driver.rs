//! One GPU through the CUDA driver API: a context, streams, a module of kernels, raw memory.
//!
//! Kernels of networks run on one stream in the order of the calls, from any thread. Copies that overlap with them, and
//! the work on finished frames, have streams of their own.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use cudarc::driver::{result, sys};
use reseed_ops::{Error, Result};

use crate::kernels::Kernels;
use crate::launch::Function;
use crate::stream::Stream;

const NO_DRIVER: &str = "no NVIDIA driver found (libcuda.so.1 or nvcuda.dll); install one, or use the CPU";

/// The oldest CUDA version whose drivers load the kernels, and the first driver of that version.
const OLDEST: (usize, &str) = (12_080, "R570");

/// Most bytes that a context needs. Memory in use beyond that belongs to other processes.
const MOST_OVERHEAD: usize = 640 << 20;

/// An address in device memory.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ptr(pub sys::CUdeviceptr);

impl Ptr {
    /// No address.
    pub const NULL: Ptr = Ptr(0);

    /// The address `bytes` bytes further on.
    pub fn plus(self, bytes: usize) -> Ptr {
        Ptr(self.0 + bytes as u64)
    }
}

/// A GPU of this machine, whether or not this build has kernels for it.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its index, as in `cuda:0`.
    pub ordinal: usize,
    /// Its name, such as `NVIDIA H200`.
    pub name: String,
    /// Its compute capability, major and minor.
    pub capability: (usize, usize),
    /// Bytes of its memory.
    pub memory: usize,
    /// The CUDA version of the driver, major and minor.
    pub driver: (usize, usize),
    /// Bytes that Windows keeps on the GPU for this process; `None` where no system limits them.
    pub budget: Option<usize>,
}

/// Every GPU of this machine.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let version = init()?;
    let count = result::device::get_count().map_err(failed("cuda", "cuDeviceGetCount"))?;
    (0..count as usize).map(|ordinal| Ok(DeviceInfo::of(ordinal, version)?.0)).collect()
}

/// Free bytes of a GPU that this process uses; `None` for another one, because asking would allocate memory there.
pub fn free_bytes(ordinal: usize) -> Result<Option<usize>> {
    init()?;
    let label = format!("cuda:{ordinal}");
    let device = result::device::get(ordinal as c_int).map_err(failed(&label, "cuDeviceGet"))?;
    let (mut flags, mut active) = (0, 0);
    // SAFETY: the driver returned `device`; writes two integers.
    let status = unsafe { sys::cuDevicePrimaryCtxGetState(device, &mut flags, &mut active) };
    status.result().map_err(failed(&label, "cuDevicePrimaryCtxGetState"))?;
    if active == 0 {
        return Ok(None);
    }
    // SAFETY: the driver returned `device`; the context is released below, after its last use on this thread.
    let context = unsafe { result::primary_ctx::retain(device) }.map_err(failed(&label, "cuDevicePrimaryCtxRetain"))?;
    // SAFETY: the context is held.
    let entered = unsafe { result::ctx::set_current(context) };
    let memory = entered.and_then(|()| result::mem_get_info());
    // SAFETY: no context is current on this thread from here on, and the context was retained above.
    let left = unsafe { result::ctx::set_current(ptr::null_mut()).and(result::primary_ctx::release(device)) };
    left.map_err(failed(&label, "cuDevicePrimaryCtxRelease"))?;
    let (free, _) = memory.map_err(failed(&label, "cuMemGetInfo"))?;
    Ok(Some(free_within_budget(free, device)))
}

/// Initialises the driver and returns its CUDA version, 12080 for 12.8.
fn init() -> Result<usize> {
    // SAFETY: only looks for the library; without it every other call would panic.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::NoDevice { reason: NO_DRIVER.into() });
    }
    if let Err(error) = result::init() {
        let reason = format!("the NVIDIA driver found no GPU ({}); run nvidia-smi, or use the CPU", text(error));
        return Err(Error::NoDevice { reason });
    }
    let mut version: c_int = 0;
    // SAFETY: writes one integer.
    let status = unsafe { sys::cuDriverGetVersion(&mut version) };
    status.result().map_err(failed("cuda", "cuDriverGetVersion"))?;
    Ok(version as usize)
}

impl DeviceInfo {
    fn of(ordinal: usize, version: usize) -> Result<(DeviceInfo, sys::CUdevice)> {
        let label = format!("cuda:{ordinal}");
        let device = result::device::get(ordinal as c_int).map_err(failed(&label, "cuDeviceGet"))?;
        let name = result::device::get_name(device).map_err(failed(&label, "cuDeviceGetName"))?;
        use sys::CUdevice_attribute_enum as Attribute;
        let capability = (
            attribute(&label, device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(&label, device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        // SAFETY: the driver returned `device`.
        let memory = unsafe { result::device::total_mem(device) }.map_err(failed(&label, "cuDeviceTotalMem"))?;
        let driver = (version / 1000, version % 1000 / 10);
        let budget = budget(device).map(|(bytes, _)| bytes);
        Ok((DeviceInfo { ordinal, name, capability, memory, driver, budget }, device))
    }
}

/// Bytes that the system keeps on a GPU for this process, and those that the process uses; `None` where it has no
/// limit.
#[cfg(windows)]
fn budget(device: sys::CUdevice) -> Option<(usize, usize)> {
    crate::wddm::budget(device).map(|budget| (budget.bytes as usize, budget.used as usize))
}

#[cfg(not(windows))]
fn budget(_: sys::CUdevice) -> Option<(usize, usize)> {
    None
}

/// Free bytes within the budget.
fn free_within_budget(free: usize, device: sys::CUdevice) -> usize {
    budget(device).map_or(free, |(bytes, used)| free.min(bytes.saturating_sub(used)))
}

fn attribute(label: &str, device: sys::CUdevice, which: sys::CUdevice_attribute) -> Result<usize> {
    // SAFETY: the driver returned `device`.
    let value = unsafe { result::device::get_attribute(device, which) };
    Ok(value.map_err(failed(label, "cuDeviceGetAttribute"))? as usize)
}

/// Name and description of a driver error.
fn text(error: result::DriverError) -> String {
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned());
    let description = error.error_string().map(|text| text.to_string_lossy().into_owned());
    match (name, description) {
        (Ok(name), Ok(description)) => format!("{name}, {description}"),
        _ => format!("{:?}", error.0),
    }
}

fn failed<'a>(device: &'a str, what: &'a str) -> impl FnOnce(result::DriverError) -> Error + 'a {
    move |error| Error::Device { device: device.into(), what: what.into(), code: text(error) }
}

/// An open GPU.
pub struct Driver {
    pub info: DeviceInfo,
    /// `cuda:0 NVIDIA H200`.
    pub label: String,
    pub multiprocessors: usize,
    /// Whether the driver can pin host memory that it has not allocated.
    pub registers_host_memory: AtomicBool,
    pub kernels: Kernels,
    device: sys::CUdevice,
    context: sys::CUcontext,
    streams: [sys::CUstream; Stream::COUNT],
    /// Events recorded so far on each stream.
    pub(crate) recorded: [Mutex<u64>; Stream::COUNT],
    /// Bytes that the context and its kernels need.
    pub overhead: usize,
    pub(crate) module: sys::CUmodule,
    pub(crate) functions: Mutex<HashMap<String, Function>>,
}

// SAFETY: driver handles belong to the process, not to a thread. Calls may come from any thread after the context is
// current there; every method makes it current.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

impl Driver {
    /// Opens GPU `ordinal` and loads its kernels.
    pub fn new(ordinal: usize) -> Result<Arc<Driver>> {
        let version = init()?;
        let count = result::device::get_count().map_err(failed("cuda", "cuDeviceGetCount"))? as usize;
        if ordinal >= count {
            let reason = format!("no GPU cuda:{ordinal}: the driver lists {count}; use an index below that");
            return Err(Error::NoDevice { reason });
        }
        let (info, device) = DeviceInfo::of(ordinal, version)?;
        let label = format!("cuda:{ordinal} {}", info.name);
        if version < OLDEST.0 {
            let ((major, minor), newer) = (info.driver, OLDEST.1);
            let reason =
                format!("{label}: its driver supports CUDA {major}.{minor}, too old; install driver {newer} or newer");
            return Err(Error::NoDevice { reason });
        }
        let kernels = Kernels::of(&info.name, info.capability)?;
        use sys::CUdevice_attribute_enum as Attribute;
        let multiprocessors = attribute(&label, device, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let registers = attribute(&label, device, Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)? != 0;
        // SAFETY: the driver returned `device`; the context is released when the value below is dropped.
        let context = unsafe { result::primary_ctx::retain(device) };
        let context = context.map_err(failed(&label, "cuDevicePrimaryCtxRetain"))?;
        let mut driver = Driver {
            info,
            label,
            multiprocessors,
            registers_host_memory: AtomicBool::new(registers),
            kernels,
            device,
            context,
            streams: [ptr::null_mut(); Stream::COUNT],
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
        let image = self.kernels.image();
        // SAFETY: the image is a whole cubin or PTX text, aligned. The driver copies what it keeps.
        let loaded = unsafe { result::module::load_data(image.as_ptr().cast()) };
        self.module = loaded.map_err(|error| self.failed("cuModuleLoadData", error))?;
        for i in 0..self.streams.len() {
            // Lower numbers go first; the driver takes the nearest one that it has.
            let priority = if i == Stream::Frames as usize { -5 } else { 0 };
            let created = result::stream::create_with_priority(result::stream::StreamKind::NonBlocking, priority);
            self.streams[i] = created.map_err(|error| self.failed("cuStreamCreate", error))?;
        }
        let (free, all) = result::mem_get_info().map_err(|error| self.failed("cuMemGetInfo", error))?;
        self.overhead = (all - free).min(MOST_OVERHEAD);
        Ok(())
    }

    /// The driver's handle of a stream.
    pub(crate) fn handle(&self, stream: Stream) -> sys::CUstream {
        self.streams[stream as usize]
    }

    pub(crate) fn failed(&self, what: &str, error: result::DriverError) -> Error {
        failed(&self.label, what)(error)
    }

    pub(crate) fn check(&self, what: &str, status: sys::CUresult) -> Result<()> {
        status.result().map_err(|error| self.failed(what, error))
    }

    /// Makes the GPU's context the current one of the calling thread.
    pub(crate) fn enter(&self) -> Result<()> {
        // SAFETY: the context is held until this value is dropped.
        let entered = unsafe { result::ctx::set_current(self.context) };
        entered.map_err(|error| self.failed("cuCtxSetCurrent", error))
    }

    /// Waits for all kernels queued so far, and returns their errors.
    pub fn synchronize(&self) -> Result<()> {
        self.wait_for(Stream::Compute)
    }

    /// Waits for everything on all streams.
    pub fn synchronize_all(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: the context is current.
        self.check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// Free bytes within the budget of the system, and total bytes.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.enter()?;
        let memory = result::mem_get_info().map_err(|error| self.failed("cuMemGetInfo", error));
        memory.map(|(free, all)| (free_within_budget(free, self.device), all))
    }

    /// Copies from the host and waits, so that `from` may be dropped.
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
        let status = unsafe { sys::cuMemcpyHtoDAsync_v2(to.0, source, from.len(), self.handle(Stream::Compute)) };
        self.check("cuMemcpyHtoDAsync", status)?;
        self.synchronize()
    }

    /// Queues a copy from the host on `stream`. From memory that is not pinned, the driver copies in steps.
    ///
    /// # Safety
    /// Both hold `bytes` bytes, and `from` stays unchanged until the copy has ended.
    pub unsafe fn upload(&self, stream: Stream, to: Ptr, from: *const c_void, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's promise.
        let status = unsafe { sys::cuMemcpyHtoDAsync_v2(to.0, from, bytes, self.handle(stream)) };
        self.check("cuMemcpyHtoDAsync", status)
    }

    /// Queues a copy to pinned memory on `stream`.
    ///
    /// # Safety
    /// Both hold `bytes` bytes, and nothing accesses `to` until the copy has ended.
    pub unsafe fn download(&self, stream: Stream, to: *mut c_void, from: Ptr, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's promise.
        let status = unsafe { sys::cuMemcpyDtoHAsync_v2(to, from.0, bytes, self.handle(stream)) };
        self.check("cuMemcpyDtoHAsync", status)
    }

    /// Queues a copy from device memory to device memory on `stream`.
    ///
    /// # Safety
    /// Both hold `bytes` bytes and do not overlap.
    pub unsafe fn copy(&self, stream: Stream, to: Ptr, from: Ptr, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: the caller's promise.
        let status = unsafe { sys::cuMemcpyDtoDAsync_v2(to.0, from.0, bytes, self.handle(stream)) };
        self.check("cuMemcpyDtoDAsync", status)
    }

    /// Address of a global variable of the kernels.
    pub fn global(&self, name: &str) -> Result<Ptr> {
        self.enter()?;
        let symbol = CString::new(name).expect("names of variables have no zero byte");
        // SAFETY: the module is held until this value is dropped.
        let found = unsafe { result::module::get_global(self.module, symbol) };
        found.map(|(at, _)| Ptr(at)).map_err(|error| self.failed(&format!("lookup of {name}"), error))
    }

    /// Queues a fill with zeros.
    ///
    /// # Safety
    /// `to` holds `bytes` bytes.
    pub unsafe fn clear(&self, stream: Stream, to: Ptr, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's promise.
        self.check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(to.0, 0, bytes, self.handle(stream)) })
    }
}

impl Driver {
    /// Allocates memory with undefined contents; `None` when there is not enough.
    pub fn alloc(&self, bytes: usize) -> Result<Option<Ptr>> {
        self.enter()?;
        let mut at = 0;
        // SAFETY: writes one address; `enter` made the context current.
        match unsafe { sys::cuMemAlloc_v2(&mut at, bytes.max(1)) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            status => self.check("cuMemAlloc", status).map(|()| Some(Ptr(at))),
        }
    }

    /// Frees memory, after work that is queued has ended.
    ///
    /// # Safety
    /// `alloc` returned `at`, it is not freed yet, and nothing uses it from now on.
    pub unsafe fn free(&self, at: Ptr) {
        // An error here is one of the context, which the next call that returns errors reports.
        let _ = self.enter();
        // SAFETY: the caller's promise; the driver waits for queued work.
        let _ = unsafe { sys::cuMemFree_v2(at.0) };
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A GPU that fails now has no results left to lose.
        let _ = self.enter();
        for stream in self.streams.into_iter().filter(|stream| !stream.is_null()) {
            // SAFETY: `load` created it, and nothing can queue work on it without this value.
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
