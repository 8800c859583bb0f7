//! Arrays of the caller, read in place.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::dlpack::{CPU, CUDA_HOST, tensor_of};
use crate::dtype::{Dtype, KNOWN};
use crate::errors::{Failure, Result};

/// Keeps an object of Python alive, and releases it under the GIL from any thread.
pub struct Owner(Option<Py<PyAny>>);

impl Owner {
    pub fn new(object: Bound<'_, PyAny>) -> Owner {
        Owner(Some(object.unbind()))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut object = self.0.take();
        // An interpreter that is ending takes its memory with it.
        if Python::try_attach(|_| drop(object.take())).is_none() {
            std::mem::forget(object);
        }
    }
}

/// An array in the memory of Python.
pub struct Array {
    _owner: Owner,
    start: *const u8,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// In bytes.
    pub strides: Vec<isize>,
}

// SAFETY: the memory lives as long as the owner and is only read.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

impl Array {
    /// The array behind `__array_interface__` or `__dlpack__`.
    pub fn new(object: &Bound<'_, PyAny>) -> Result<Array> {
        if object.hasattr("__array_interface__")? {
            return Array::of_interface(object);
        }
        if object.hasattr("__dlpack__")? {
            return Array::of_dlpack(object);
        }
        let name = object.get_type().name()?.to_string();
        Err(PyTypeError::new_err(format!(
            "{name} is not an array: give a numpy array, a torch tensor, a PIL image, a path, or a list of them"
        ))
        .into())
    }

    fn of_interface(object: &Bound<'_, PyAny>) -> Result<Array> {
        let interface = object.getattr("__array_interface__")?;
        let interface = interface.cast::<PyDict>().map_err(PyErr::from)?;
        let get = |key: &str| -> PyResult<Bound<'_, PyAny>> {
            let missing = || PyTypeError::new_err(format!("__array_interface__ has no `{key}`"));
            interface.get_item(key)?.ok_or_else(missing)
        };
        let typestr: String = get("typestr")?.extract()?;
        let dtype = Dtype::of_typestr(&typestr).ok_or_else(|| wrong_type(&numpy_name(&typestr)))?;
        let shape: Vec<usize> = get("shape")?.extract()?;
        let strides: Option<Vec<isize>> = match interface.get_item("strides")? {
            Some(strides) => strides.extract()?,
            None => None,
        };
        let data = get("data")?;
        let (owner, start) = if let Ok(pair) = data.cast::<PyTuple>() {
            // The array is kept too: the interface of some libraries is a copy.
            let both = PyTuple::new(object.py(), [object.clone(), interface.clone().into_any()])?;
            (both.into_any(), pair.get_item(0)?.extract::<usize>()? as *const u8)
        } else {
            let bytes = data.cast::<PyBytes>().map_err(PyErr::from)?;
            let needed = shape.iter().product::<usize>() * dtype.bytes();
            if bytes.as_bytes().len() < needed {
                let found = bytes.as_bytes().len();
                return Err(Failure::Input(format!("{found} bytes of data, {needed} needed for the shape {shape:?}")));
            }
            (data.clone(), bytes.as_bytes().as_ptr())
        };
        let strides = strides.unwrap_or_else(|| compact(&shape, dtype.bytes()));
        Ok(Array { _owner: Owner::new(owner), start, dtype, shape, strides })
    }

    fn of_dlpack(object: &Bound<'_, PyAny>) -> Result<Array> {
        let py = object.py();
        let (device, _): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
        let options = PyDict::new(py);
        options.set_item("max_version", (1, 0))?;
        if device != CPU && device != CUDA_HOST {
            options.set_item("dl_device", (CPU, 0))?;
        }
        let capsule = match object.call_method("__dlpack__", (), Some(&options)) {
            // Libraries from before version 1 have no such arguments.
            Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method0("__dlpack__")?,
            capsule => capsule?,
        };
        // SAFETY: the tensor lives as long as its capsule, which the array owns.
        let tensor = unsafe { &*tensor_of(&capsule)? };
        if tensor.device.kind != CPU && tensor.device.kind != CUDA_HOST {
            return Err(Failure::Input("the array is in device memory; copy it to host memory first".into()));
        }
        let dtype = Dtype::of_dlpack(tensor.dtype).ok_or_else(|| wrong_type(&Dtype::describe(tensor.dtype)))?;
        let rank = tensor.ndim as usize;
        let list = |start: *mut i64| -> Vec<i64> {
            // SAFETY: DLPack stores one number per dimension.
            if rank == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(start, rank) }.to_vec() }
        };
        let shape: Vec<usize> = list(tensor.shape).into_iter().map(|side| side as usize).collect();
        let strides = match tensor.strides.is_null() {
            true => compact(&shape, dtype.bytes()),
            false => list(tensor.strides).into_iter().map(|stride| stride as isize * dtype.bytes() as isize).collect(),
        };
        let start = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize).cast_const();
        Ok(Array { _owner: Owner::new(capsule), start, dtype, shape, strides })
    }

    /// Where its first element is.
    pub fn address(&self) -> usize {
        self.start as usize
    }

    /// Appends the elements of a row to `out`: `index` has all dimensions but the last.
    pub fn read<T: Copy>(&self, index: &[usize], out: &mut Vec<T>) {
        let last = index.len();
        assert!(last + 1 == self.shape.len() && size_of::<T>() == self.dtype.bytes(), "a row of an array");
        assert!(index.iter().zip(&self.shape).all(|(i, side)| i < side), "a row inside of the array");
        let offset: isize = index.iter().zip(&self.strides).map(|(i, stride)| *i as isize * stride).sum();
        let (start, stride) = (self.start.wrapping_offset(offset), self.strides[last]);
        let element = |i: usize| start.wrapping_offset(i as isize * stride).cast::<T>();
        // SAFETY: the index is inside of the shape, whose elements all exist; they may be unaligned.
        out.extend((0..self.shape[last]).map(|i| unsafe { element(i).read_unaligned() }));
    }

    /// Appends a block of the last `dimensions` dimensions to `out`: `index` has the others.
    pub fn read_block<T: Copy>(&self, index: &[usize], out: &mut Vec<T>) {
        let inner = &self.shape[index.len()..];
        let count: usize = inner.iter().product();
        assert!(index.iter().zip(&self.shape).all(|(i, side)| i < side), "a block inside of the array");
        if self.strides[index.len()..] == compact(inner, self.dtype.bytes())[..] {
            let offset: isize = index.iter().zip(&self.strides).map(|(i, stride)| *i as isize * stride).sum();
            let from = out.len();
            out.reserve(count);
            // SAFETY: the elements are contiguous and inside of the array, and `out` has room for them.
            unsafe {
                let start = self.start.wrapping_offset(offset);
                std::ptr::copy_nonoverlapping(start, out.as_mut_ptr().add(from).cast::<u8>(), count * size_of::<T>());
                out.set_len(from + count);
            }
            return;
        }
        if inner.len() == 1 {
            return self.read(index, out);
        }
        for i in 0..inner[0] {
            self.read_block(&[index, &[i]].concat(), out);
        }
    }
}

/// The strides of an array without gaps, in bytes.
fn compact(shape: &[usize], bytes: usize) -> Vec<isize> {
    let mut strides = vec![bytes as isize; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i] as isize;
    }
    strides
}

fn wrong_type(name: &str) -> Failure {
    Failure::Input(format!("elements of type {name}; convert the frames to {KNOWN}"))
}

/// The name of numpy for a type string such as `<f8`.
fn numpy_name(typestr: &str) -> String {
    let (order, rest) = typestr.split_at(1.min(typestr.len()));
    let (kind, bytes) = rest.split_at(1.min(rest.len()));
    let bits = bytes.parse::<usize>().map_or(bytes.to_owned(), |bytes| (8 * bytes).to_string());
    let name = match kind {
        "f" => format!("float{bits}"),
        "i" => format!("int{bits}"),
        "u" => format!("uint{bits}"),
        "c" => format!("complex{bits}"),
        "b" => "bool".into(),
        _ => return typestr.into(),
    };
    if order == ">" { format!("{name} in big-endian order") } else { name }
}
