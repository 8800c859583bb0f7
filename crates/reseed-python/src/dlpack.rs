//! The structures of DLPack, and tensors that are handed out through it.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::dtype::Dtype;
use crate::store::Store;

pub const CPU: i32 = 1;
pub const CUDA: i32 = 2;
/// Pinned host memory.
pub const CUDA_HOST: i32 = 3;

pub const NAME: &CStr = c"dltensor";
pub const VERSIONED_NAME: &CStr = c"dltensor_versioned";
const VERSION: [u32; 2] = [1, 0];

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceId {
    pub kind: i32,
    pub number: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ElementType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

#[repr(C)]
pub struct Tensor {
    pub data: *mut c_void,
    pub device: DeviceId,
    pub ndim: i32,
    pub dtype: ElementType,
    pub shape: *mut i64,
    /// Null for a compact tensor. In elements.
    pub strides: *mut i64,
    pub byte_offset: u64,
}

#[repr(C)]
pub struct Managed {
    pub tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
pub struct VersionedManaged {
    pub version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut VersionedManaged)>,
    pub flags: u64,
    pub tensor: Tensor,
}

/// What a tensor that was handed out keeps alive.
struct Context {
    _store: Arc<Store>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// A part of a result as a tensor.
pub struct Export<'a> {
    pub store: &'a Arc<Store>,
    /// Bytes before the first element.
    pub offset: usize,
    pub shape: &'a [usize],
    pub dtype: Dtype,
}

impl Export<'_> {
    /// A capsule that shares the memory. Consumers of version 1 get the newer structure.
    pub fn capsule<'py>(&self, py: Python<'py>, versioned: bool) -> PyResult<Bound<'py, PyAny>> {
        let mut strides = vec![1i64; self.shape.len()];
        for i in (1..self.shape.len()).rev() {
            strides[i - 1] = strides[i] * self.shape[i] as i64;
        }
        let shape = self.shape.iter().map(|side| *side as i64).collect();
        let mut context = Box::new(Context { _store: self.store.clone(), shape, strides });
        let tensor = Tensor {
            data: (self.store.address() + self.offset) as *mut c_void,
            device: self.store.device(),
            ndim: self.shape.len() as i32,
            dtype: self.dtype.dlpack(),
            shape: context.shape.as_mut_ptr(),
            strides: context.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        let context = Box::into_raw(context).cast();
        let (pointer, name, destructor): (*mut c_void, _, ffi::PyCapsule_Destructor) = match versioned {
            true => {
                let deleter = Some(delete_versioned as unsafe extern "C" fn(_));
                let managed = VersionedManaged { version: VERSION, context, deleter, flags: 0, tensor };
                (Box::into_raw(Box::new(managed)).cast(), VERSIONED_NAME, drop_versioned)
            }
            false => {
                let deleter = Some(delete as unsafe extern "C" fn(_));
                (Box::into_raw(Box::new(Managed { tensor, context, deleter })).cast(), NAME, drop_unversioned)
            }
        };
        // SAFETY: the pointer is not null, and the name lives as long as the program.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor))) }
    }
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: a consumer calls this once, with the structure that `capsule` made.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Context>()));
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut VersionedManaged) {
    // SAFETY: as above.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Context>()));
    }
}

/// Frees the tensor of a capsule that nobody has consumed; a consumer renames its capsule.
unsafe extern "C" fn drop_unversioned(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with a capsule of `capsule`, holding the GIL.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}

unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED_NAME.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED_NAME.as_ptr()).cast());
        }
    }
}

/// The tensor of a capsule of any version. It lives as long as the capsule, which is not consumed.
pub fn tensor_of(capsule: &Bound<'_, PyAny>) -> PyResult<*const Tensor> {
    let pointer = capsule.as_ptr();
    // SAFETY: the capsule is alive, and its name determines its content.
    unsafe {
        if ffi::PyCapsule_IsValid(pointer, VERSIONED_NAME.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(pointer, VERSIONED_NAME.as_ptr()).cast::<VersionedManaged>();
            if (*managed).version[0] > VERSION[0] {
                return Err(PyBufferError::new_err("a DLPack tensor of a newer major version"));
            }
            return Ok(&raw const (*managed).tensor);
        }
        if ffi::PyCapsule_IsValid(pointer, NAME.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(pointer, NAME.as_ptr()).cast::<Managed>();
            return Ok(&raw const (*managed).tensor);
        }
    }
    Err(PyBufferError::new_err("__dlpack__ returned no DLPack tensor"))
}
