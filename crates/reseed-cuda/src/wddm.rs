//! The memory budget of a GPU on Windows. Beyond it Windows moves GPU memory to the host, silently and slowly, instead
//! of failing an allocation.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys;
use libloading::Library;

/// What Windows allows this process on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Budget {
    /// Bytes that stay on the GPU.
    pub bytes: u64,
    /// Bytes that the process uses.
    pub used: u64,
    available_for_reservation: u64,
    reserved: u64,
}

/// The budget on a GPU. `None` where the GPU has no display driver, as with the driver model of data centres.
pub fn budget(device: sys::CUdevice) -> Option<Budget> {
    let (mut luid, mut nodes) = ([0u8; 8], 0 as c_uint);
    // SAFETY: the driver returned `device`, and the call writes eight bytes and an integer.
    let status = unsafe { sys::cuDeviceGetLuid(luid.as_mut_ptr().cast(), &mut nodes, device) };
    status.result().ok()?;
    let adapters = Factory::open()?;
    adapters.iter().find(|adapter| adapter.luid() == Some(luid))?.budget(nodes.trailing_zeros() % 32)
}

type Status = c_int;
type Interface = *mut *const usize;

#[repr(C)]
struct Guid(u32, u16, u16, [u8; 8]);

const FACTORY_1: Guid = Guid(0x770a_ae78, 0xf26f, 0x4dba, [0xa8, 0x29, 0x25, 0x3c, 0x83, 0xd1, 0xb3, 0x87]);
const ADAPTER_3: Guid = Guid(0x6459_67a4, 0x1392, 0x4310, [0xa7, 0x98, 0x80, 0x53, 0xce, 0x3e, 0x93, 0xfd]);

/// Places of functions in the tables of interfaces, by the order of their declarations.
const QUERY_INTERFACE: usize = 0;
const RELEASE: usize = 2;
const ENUM_ADAPTERS_1: usize = 12;
const GET_DESC_1: usize = 10;
const QUERY_VIDEO_MEMORY_INFO: usize = 14;

/// `DXGI_ADAPTER_DESC1`.
#[repr(C)]
struct Description {
    name: [u16; 128],
    ids: [u32; 4],
    memory: [usize; 3],
    luid: [u8; 8],
    flags: u32,
}

/// An interface of DXGI, which is released on drop.
struct Owned(Interface);

impl Owned {
    /// The function at a place of the table.
    ///
    /// # Safety
    /// `F` is the type of that function.
    unsafe fn function<F: Copy>(&self, place: usize) -> F {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // SAFETY: the interface is alive, its first word points to its table, and the caller knows the function.
        unsafe { std::mem::transmute_copy(&*(*self.0).add(place)) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        type Release = unsafe extern "system" fn(Interface) -> c_uint;
        // SAFETY: every interface has this function, and this value has one reference.
        unsafe { self.function::<Release>(RELEASE)(self.0) };
    }
}

/// Lists the adapters of the machine.
struct Factory {
    factory: Owned,
    /// Unloaded last.
    _library: Library,
}

impl Factory {
    fn open() -> Option<Factory> {
        type Create = unsafe extern "system" fn(*const Guid, *mut *mut c_void) -> Status;
        // SAFETY: a library of the system, whose initialisation has no requirements.
        let library = unsafe { Library::new("dxgi.dll") }.ok()?;
        // SAFETY: the type is that of the function.
        let create = unsafe { library.get::<Create>(b"CreateDXGIFactory1\0") }.ok()?;
        let mut factory = ptr::null_mut();
        // SAFETY: the call reads an identifier and writes an interface of that kind.
        let status = unsafe { create(&FACTORY_1, &mut factory) };
        let made = status >= 0 && !factory.is_null();
        made.then(|| Factory { factory: Owned(factory.cast()), _library: library })
    }

    fn iter(&self) -> impl Iterator<Item = Adapter> {
        type EnumAdapters = unsafe extern "system" fn(Interface, c_uint, *mut Interface) -> Status;
        (0..).map_while(|index| {
            let mut adapter = ptr::null_mut();
            // SAFETY: the factory has this function at this place; it writes an interface with one reference.
            let status =
                unsafe { self.factory.function::<EnumAdapters>(ENUM_ADAPTERS_1)(self.factory.0, index, &mut adapter) };
            (status >= 0 && !adapter.is_null()).then(|| Adapter(Owned(adapter)))
        })
    }
}

/// `IDXGIAdapter1`.
struct Adapter(Owned);

impl Adapter {
    /// The number that Windows gives an adapter until it restarts.
    fn luid(&self) -> Option<[u8; 8]> {
        type GetDesc = unsafe extern "system" fn(Interface, *mut Description) -> Status;
        let mut found = Description { name: [0; 128], ids: [0; 4], memory: [0; 3], luid: [0; 8], flags: 0 };
        // SAFETY: the adapter has this function at this place, and it fills a structure of this layout.
        let status = unsafe { self.0.function::<GetDesc>(GET_DESC_1)(self.0.0, &mut found) };
        (status >= 0).then_some(found.luid)
    }

    /// The budget of its own memory. `None` before Windows 10.
    fn budget(&self, node: c_uint) -> Option<Budget> {
        type QueryInterface = unsafe extern "system" fn(Interface, *const Guid, *mut Interface) -> Status;
        type QueryMemory = unsafe extern "system" fn(Interface, c_uint, c_int, *mut Budget) -> Status;
        const LOCAL: c_int = 0;
        let (mut newer, mut budget) = (ptr::null_mut(), Budget::default());
        // SAFETY: every interface has this function; it writes an interface with one reference.
        let status = unsafe { self.0.function::<QueryInterface>(QUERY_INTERFACE)(self.0.0, &ADAPTER_3, &mut newer) };
        if status < 0 || newer.is_null() {
            return None;
        }
        let newer = Owned(newer);
        // SAFETY: this interface has this function at this place, and it fills a structure of this layout.
        let status =
            unsafe { newer.function::<QueryMemory>(QUERY_VIDEO_MEMORY_INFO)(newer.0, node, LOCAL, &mut budget) };
        (status >= 0 && budget.bytes > 0).then_some(budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_adapter_has_a_number_and_a_budget_within_reason() {
        // A machine without a display may list none.
        for adapter in Factory::open().iter().flat_map(Factory::iter) {
            let (luid, budget) = (adapter.luid(), adapter.budget(0));
            assert!(luid.is_some() && budget.is_none_or(|budget| budget.bytes < 1 << 40), "{luid:x?}: {budget:?}");
        }
    }
}
