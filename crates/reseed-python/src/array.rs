//! Arrays of the caller, read in place.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use reseed::{ArrayLayout, ForeignArray, Gpu};

use crate::dlpack::{CPU, CUDA, CUDA_HOST, DeviceId, Tensor, tensor_of};
use crate::dtype::{Dtype, KNOWN};
use crate::errors::{Failure, Result};
use crate::strided::{Strided, compact};

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

/// An array in the memory of Python, or of the session's GPU.
pub struct Array {
    memory: Memory,
    start: usize,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// In bytes.
    strides: Vec<isize>,
}

enum Memory {
    Host { _owner: Owner },
    Gpu(Gpu, Arc<ForeignArray>),
}

impl Array {
    /// The array behind `__array_interface__` or `__dlpack__`, in host memory or on this GPU.
    pub fn new(object: &Bound<'_, PyAny>, gpu: Option<&Gpu>) -> Result<Array> {
        if object.hasattr("__array_interface__")? {
            return Array::of_interface(object);
        }
        if object.hasattr("__dlpack__")? {
            return match (dlpack_device(object)?, gpu) {
                (Some(ordinal), Some(gpu)) if ordinal == gpu.ordinal() => Array::of_gpu(object, gpu),
                _ => Array::of_dlpack(object),
            };
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
            (both.into_any(), pair.get_item(0)?.extract::<usize>()?)
        } else {
            let bytes = data.cast::<PyBytes>().map_err(PyErr::from)?;
            let needed = shape.iter().product::<usize>() * dtype.bytes();
            if bytes.as_bytes().len() < needed {
                let found = bytes.as_bytes().len();
                return Err(Failure::Input(format!("{found} bytes of data, {needed} needed for the shape {shape:?}")));
            }
            (data.clone(), bytes.as_bytes().as_ptr() as usize)
        };
        let strides = strides.unwrap_or_else(|| compact(&shape, dtype.bytes()));
        Ok(Array { memory: Memory::Host { _owner: Owner::new(owner) }, start, dtype, shape, strides })
    }

    fn of_dlpack(object: &Bound<'_, PyAny>) -> Result<Array> {
        let py = object.py();
        let (device, _): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
        let options = PyDict::new(py);
        if device != CPU && device != CUDA_HOST {
            options.set_item("dl_device", (CPU, 0))?;
        }
        let capsule = request(object, &options, None)?;
        // SAFETY: the tensor lives as long as its capsule, which the array owns.
        let tensor = unsafe { &*tensor_of(&capsule)? };
        if tensor.device.kind != CPU && tensor.device.kind != CUDA_HOST {
            return Err(Failure::Input("the array is in device memory; copy it to host memory first".into()));
        }
        let Elements { start, dtype, shape, strides } = elements(tensor)?;
        Ok(Array { memory: Memory::Host { _owner: Owner::new(capsule) }, start, dtype, shape, strides })
    }

    /// A tensor on the GPU of the session. Its library makes our stream wait for the work that it has queued.
    fn of_gpu(object: &Bound<'_, PyAny>, gpu: &Gpu) -> Result<Array> {
        let capsule = request(object, &PyDict::new(object.py()), Some(gpu.stream_handle()))?;
        // SAFETY: the tensor lives as long as its capsule, which the array owns.
        let tensor = unsafe { &*tensor_of(&capsule)? };
        let DeviceId { kind, number } = tensor.device;
        if (kind, number) != (CUDA, gpu.ordinal() as i32) {
            return Err(Failure::Input(format!("a tensor of another device: type {kind}, number {number}")));
        }
        let elements = elements(tensor)?;
        let layout = elements.layout()?;
        let Elements { start, dtype, shape, strides } = elements;
        // SAFETY: the producer promises the elements for as long as its capsule lives, and has ordered its work before
        // our stream. A caller who writes to a tensor that a job reads spoils the result alone.
        let array = unsafe { gpu.array(layout, Box::new(Owner::new(capsule))) }?;
        Ok(Array { memory: Memory::Gpu(gpu.clone(), Arc::new(array)), start, dtype, shape, strides })
    }

    /// Where its first element is.
    pub fn address(&self) -> usize {
        self.start
    }

    /// The GPU that it is on.
    pub fn gpu(&self) -> Option<&Gpu> {
        match &self.memory {
            Memory::Host { .. } => None,
            Memory::Gpu(gpu, _) => Some(gpu),
        }
    }

    /// The array on its GPU; none where it is in host memory.
    pub fn gpu_array(&self) -> Option<&Arc<ForeignArray>> {
        match &self.memory {
            Memory::Gpu(_, array) => Some(array),
            Memory::Host { .. } => None,
        }
    }

    /// Appends a block to `out`: `index` has the first dimensions, the block all others.
    pub fn read_block<T: Copy>(&self, index: &[usize], out: &mut Vec<T>) -> Result<()> {
        let bytes = self.dtype.bytes();
        assert!(size_of::<T>() == bytes, "elements of {bytes} bytes");
        assert!(index.iter().zip(&self.shape).all(|(i, side)| i < side), "a block inside of the array");
        let offset: isize = index.iter().zip(&self.strides).map(|(i, stride)| *i as isize * stride).sum();
        let (shape, strides) = (&self.shape[index.len()..], &self.strides[index.len()..]);
        let block = |start| Strided { start, bytes, shape, strides };
        match &self.memory {
            // SAFETY: the owner keeps the elements, which all exist.
            Memory::Host { .. } => unsafe { block((self.start as *const u8).wrapping_offset(offset)).read(out) },
            Memory::Gpu(_, array) => {
                let span = block(std::ptr::null()).span();
                let mut copy = vec![0u8; (span.end - span.start) as usize];
                array.read(offset + span.start, &mut copy).map_err(reseed::Error::from)?;
                // SAFETY: the copy holds the span.
                unsafe { block(copy.as_ptr().wrapping_offset(-span.start)).read(out) };
            }
        }
        Ok(())
    }
}

/// The number of the CUDA device that an object with `__dlpack__` is on.
pub fn dlpack_device(object: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let (kind, number): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    Ok((kind == CUDA).then_some(number as usize))
}

/// Calls `__dlpack__`. Libraries from before version 1 know the stream alone.
fn request<'py>(
    object: &Bound<'py, PyAny>,
    options: &Bound<'py, PyDict>,
    stream: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let old = PyDict::new(object.py());
    if let Some(stream) = stream {
        old.set_item("stream", stream)?;
        options.set_item("stream", stream)?;
    }
    options.set_item("max_version", (1, 0))?;
    match object.call_method("__dlpack__", (), Some(options)) {
        Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
            object.call_method("__dlpack__", (), Some(&old))
        }
        capsule => capsule,
    }
}

/// Where the elements of a tensor are. Strides are in bytes.
struct Elements {
    start: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    strides: Vec<isize>,
}

impl Elements {
    /// As frames, rows, columns and channels.
    fn layout(&self) -> Result<ArrayLayout> {
        let Elements { start, dtype, shape, strides } = self;
        let bytes = dtype.bytes() as isize;
        let (frames, rest) = if shape.len() == 4 { (shape[0], 1) } else { (1, 0) };
        let frame = if shape.len() == 4 { strides[0] / bytes } else { 0 };
        let (h, w, c, row, column, channel) = match (&shape[rest..], &strides[rest..]) {
            ([h, w], [row, column]) => (*h, *w, 1, *row, *column, 0),
            ([h, w, c], [row, column, channel]) => (*h, *w, *c, *row, *column, *channel),
            _ => return Err(wrong_shape(shape)),
        };
        let strides = [frame, row / bytes, column / bytes, channel / bytes];
        Ok(ArrayLayout { address: *start as u64, dtype: dtype.array_type(), shape: [frames, h, w, c], strides })
    }
}

fn elements(tensor: &Tensor) -> Result<Elements> {
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
    Ok(Elements { start: tensor.data as usize + tensor.byte_offset as usize, dtype, shape, strides })
}

/// The failure for an array that is no frames.
pub fn wrong_shape(shape: &[usize]) -> Failure {
    Failure::Input(format!("shape {shape:?}: frames are [B, H, W, C], one frame is [H, W, C]"))
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
