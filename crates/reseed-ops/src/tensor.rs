//! A tensor is a shape over a piece of device memory. It never holds strides; cloning shares the memory.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::shape::{DType, Shape, Thw};

/// Memory that a device gave out. Only that device knows what is inside.
pub trait Storage: Any + Send + Sync {
    /// For the device's downcast.
    fn as_any(&self) -> &dyn Any;
    /// For the device's downcast when it is the only owner.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// A dense activation on some device: `[T, H, W, C]`, or tokens `[N, D]`.
#[derive(Clone)]
pub struct Tensor {
    shape: Shape,
    dtype: DType,
    offset: usize,
    storage: Arc<dyn Storage>,
}

impl Tensor {
    /// A tensor over the whole of `storage`; called by devices.
    pub fn new(shape: impl Into<Shape>, dtype: DType, storage: Arc<dyn Storage>) -> Tensor {
        Tensor { shape: shape.into(), dtype, offset: 0, storage }
    }

    /// Dimensions.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Elements before the first one in the storage.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.shape.count()
    }

    /// Bytes of the elements.
    pub fn bytes(&self) -> usize {
        self.count() * self.dtype.bytes()
    }

    /// Frames, rows and columns of a clip.
    pub fn thw(&self) -> Thw {
        match *self.shape.dims() {
            [t, h, w, _] => Thw::new(t, h, w),
            _ => panic!("a clip has four dimensions, this tensor is {}", self.shape),
        }
    }

    /// The last dimension.
    pub fn channels(&self) -> usize {
        *self.shape.dims().last().expect("a tensor has dimensions")
    }

    /// Product of all dimensions but the last: pixels of a clip, rows of a matrix.
    pub fn rows(&self) -> usize {
        self.count() / self.channels().max(1)
    }

    /// Frames `start .. start + frames` of a clip, sharing its memory.
    pub fn frames(&self, start: usize, frames: usize) -> Tensor {
        let thw = self.thw();
        assert!(start + frames <= thw.t, "frames {start}..{} of a clip of {}", start + frames, thw.t);
        let c = self.channels();
        Tensor {
            shape: Shape::clip(Thw { t: frames, ..thw }, c),
            offset: self.offset + start * thw.h * thw.w * c,
            ..self.clone()
        }
    }

    /// The same elements under another shape.
    pub fn reshape(mut self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        assert_eq!(self.count(), shape.count(), "reshape {} to {shape}", self.shape);
        self.shape = shape;
        self
    }

    /// Another piece of the same storage; called by devices that are made of other devices.
    pub fn view(&self, shape: Shape, offset: usize) -> Tensor {
        Tensor { shape, offset, ..self.clone() }
    }

    /// The storage as device type `S`; a tensor of another device is a bug.
    pub fn storage<S: Storage>(&self) -> &S {
        self.storage.as_any().downcast_ref().expect("a tensor must stay on the device that made it")
    }

    /// Whether the storage is a device's type `S`.
    pub fn is_on<S: Storage>(&self) -> bool {
        self.storage.as_any().is::<S>()
    }

    /// The storage for writing, when nothing else refers to it.
    pub fn storage_mut<S: Storage>(&mut self) -> Option<&mut S> {
        let storage = Arc::get_mut(&mut self.storage)?;
        Some(storage.as_any_mut().downcast_mut().expect("a tensor must stay on the device that made it"))
    }

    /// Whether this is the only reference to its storage.
    pub fn is_unique(&mut self) -> bool {
        Arc::get_mut(&mut self.storage).is_some()
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape)
    }
}
