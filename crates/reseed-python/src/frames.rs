//! Results in memory: frames and latents.

use std::sync::Arc;

use pyo3::exceptions::{PyAttributeError, PyBufferError, PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::buffer::Buffer;
use crate::dlpack::{CPU, DeviceId, Export};
use crate::dtype::{Dtype, KNOWN};
use crate::errors::Failure;
use crate::store::Store;

/// Frames in memory: an array `[B, H, W, C]`, or `[H, W, C]` for one image. Their memory is shared with the numpy
/// arrays and torch tensors that are made of them. Frames of CUDA tensors are in GPU memory.
#[pyclass(module = "reseed", frozen)]
#[derive(Clone)]
pub struct Frames {
    store: Arc<Store>,
    offset: usize,
    shape: Vec<usize>,
    dtype: Dtype,
}

impl Frames {
    pub fn new(buffer: Buffer, shape: Vec<usize>, dtype: Dtype) -> Frames {
        Frames::of(Store::Host(buffer), shape, dtype)
    }

    /// In host or in GPU memory.
    pub fn of(store: Store, shape: Vec<usize>, dtype: Dtype) -> Frames {
        Frames { store: Arc::new(store), offset: 0, shape, dtype }
    }

    /// Bytes of one element of the first dimension.
    fn step(&self) -> usize {
        self.shape[1..].iter().product::<usize>() * self.dtype.bytes()
    }

    fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes()
    }

    fn copy(&self) -> PyResult<Frames> {
        Ok(Frames::of(self.store.copy(self.offset, self.bytes())?, self.shape.clone(), self.dtype))
    }

    fn is_on_gpu(&self) -> bool {
        matches!(*self.store, Store::Gpu(_))
    }
}

#[pymethods]
impl Frames {
    /// Frames of zeros.
    #[staticmethod]
    #[pyo3(signature = (shape, dtype="uint8"))]
    fn zeros(shape: Vec<usize>, dtype: &str) -> PyResult<Frames> {
        let unknown = || Failure::Usage(format!("dtype: {dtype} is not {KNOWN}"));
        let dtype = Dtype::named(dtype).ok_or_else(unknown)?;
        if shape.is_empty() {
            return Err(Failure::Usage("shape: an array has a dimension".into()).into());
        }
        let bytes = shape.iter().try_fold(dtype.bytes(), |bytes, side| bytes.checked_mul(*side));
        let what = "the frames";
        let failed = || Failure::from(reseed::Error::OutOfHostMemory { what, bytes: bytes.unwrap_or(usize::MAX) });
        Ok(Frames::new(bytes.and_then(Buffer::zeros).ok_or_else(failed)?, shape, dtype))
    }

    /// The sides of the array.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The type of the elements, by its name in numpy.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// Where the frames are: `cpu`, or `cuda:0` and so on.
    #[getter]
    fn device(&self) -> String {
        self.store.device_name()
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes()
    }

    fn __len__(&self) -> usize {
        self.shape[0]
    }

    /// One frame, in the same memory.
    fn __getitem__(&self, index: isize) -> PyResult<Frames> {
        let count = self.shape[0] as isize;
        let at = if index < 0 { index + count } else { index };
        if at < 0 || at >= count || self.shape.len() == 1 {
            return Err(PyIndexError::new_err(format!("frame {index} of {count}")));
        }
        let offset = self.offset + at as usize * self.step();
        Ok(Frames { store: self.store.clone(), offset, shape: self.shape[1..].to_vec(), dtype: self.dtype })
    }

    fn __repr__(&self) -> String {
        let sides: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        let device = if self.is_on_gpu() { format!(", device='{}'", self.device()) } else { String::new() };
        format!("Frames(shape=({}), dtype='{}'{device})", sides.join(", "), self.dtype.name())
    }

    /// A copy of the bytes, rows first.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, self.bytes(), |to| {
            self.store.read(self.offset, to)?;
            Ok(())
        })
    }

    /// The frames in host memory: themselves, or a copy of frames in GPU memory.
    fn cpu(&self) -> PyResult<Frames> {
        match self.is_on_gpu() {
            true => Ok(Frames::new(self.store.to_host(self.offset, self.bytes())?, self.shape.clone(), self.dtype)),
            false => Ok(self.clone()),
        }
    }

    /// The frames as a numpy array, without a copy unless they are in GPU memory.
    fn numpy<'py>(slf: &Bound<'py, Frames>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("numpy")?.call_method1("asarray", (slf.get().cpu()?,))
    }

    /// The frames as a torch tensor on their device, without a copy.
    fn torch<'py>(slf: &Bound<'py, Frames>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("torch")?.call_method1("from_dlpack", (slf,))
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.is_on_gpu() {
            return Err(PyAttributeError::new_err("frames in GPU memory have no array interface; use .cpu()"));
        }
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", self.dtype.typestr())?;
        interface.set_item("data", (self.store.address() + self.offset, false))?;
        Ok(interface)
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Frames>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = Frames::numpy(slf)?;
        let array = match dtype {
            Some(dtype) => array.call_method("astype", (dtype,), Some(&keywords(slf.py(), "copy", false)?))?,
            None => array,
        };
        if copy == Some(true) { array.call_method0("copy") } else { Ok(array) }
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        let DeviceId { kind, number } = self.store.device();
        (kind, number)
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // A result is complete: no stream has to wait for it.
        let _ = stream;
        let shared = match dl_device {
            Some(device) if device != self.__dlpack_device__() => match (device, copy) {
                ((CPU, _), None | Some(true)) => self.cpu()?,
                _ => return Err(PyBufferError::new_err(format!("frames on {} do not move there", self.device()))),
            },
            _ if copy == Some(true) => self.copy()?,
            _ => self.clone(),
        };
        let Frames { store, offset, shape, dtype } = &shared;
        let export = Export { store, offset: *offset, shape, dtype: *dtype };
        export.capsule(py, max_version.is_some_and(|(major, _)| major >= 1))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("cannot pickle Frames: make a numpy array of them with .numpy()"))
    }
}

/// One keyword argument.
pub fn keywords<'py>(py: Python<'py>, name: &str, value: impl IntoPyObject<'py>) -> PyResult<Bound<'py, PyDict>> {
    let keywords = PyDict::new(py);
    keywords.set_item(name, value)?;
    Ok(keywords)
}
