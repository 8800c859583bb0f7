//! A tensor is a shape over device memory. It has no strides. Cloning shares the memory.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::shape::{DType, Shape, Thw};

/// Memory of a device. Only that device knows what it holds.
pub trait Storage: Any + Send + Sync {
    /// Bytes of the memory; tensors and views must fit.
    fn bytes(&self) -> usize;
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
    /// A tensor from the start of `storage`; called by devices. Panics if the storage is too small.
    pub fn new(shape: impl Into<Shape>, dtype: DType, storage: Arc<dyn Storage>) -> Tensor {
        Tensor { shape: shape.into(), dtype, offset: 0, storage }.within_storage()
    }

    fn within_storage(self) -> Tensor {
        let (count, room) = (self.shape.count(), self.storage.bytes() / self.dtype.bytes());
        let end = self.offset.checked_add(count);
        assert!(end.is_some_and(|end| end <= room), "{self:?} at {} leaves a storage of {room} elements", self.offset);
        self
    }

    /// Dimensions.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Elements of the storage before the first element.
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

    /// Frames `start .. start + frames` of a clip, sharing its memory. Panics if the clip has fewer.
    pub fn frames(&self, start: usize, frames: usize) -> Tensor {
        let thw = self.thw();
        let end = start.checked_add(frames);
        assert!(end.is_some_and(|end| end <= thw.t), "{frames} frames from {start} of a clip of {}", thw.t);
        let c = self.channels();
        self.view(Shape::clip(Thw { t: frames, ..thw }, c), self.offset + start * thw.h * thw.w * c)
    }

    /// The same elements with another shape. Panics if the number of elements differs.
    pub fn reshape(mut self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        assert_eq!(self.count(), shape.count(), "reshape {} to {shape}", self.shape);
        self.shape = shape;
        self
    }

    /// Other elements of the same storage, `offset` elements from its start. Panics if they leave the storage.
    pub fn view(&self, shape: Shape, offset: usize) -> Tensor {
        Tensor { shape, offset, ..self.clone() }.within_storage()
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(usize);

    impl Storage for Bytes {
        fn bytes(&self) -> usize {
            self.0
        }
        fn as_any(&self) -> &dyn Any {
            self
        }
        fn as_any_mut(&mut self) -> &mut dyn Any {
            self
        }
    }

    fn tensor(bytes: usize) -> Tensor {
        Tensor::new([2, 3, 5, 7], DType::F16, Arc::new(Bytes(bytes)))
    }

    #[test]
    fn a_tensor_that_fits_and_its_views_are_accepted() {
        let x = tensor(420);
        assert_eq!((x.frames(1, 1).offset(), x.frames(1, 1).count()), (105, 105));
        assert_eq!(x.view(Shape::from([10]), 200).reshape([2, 5]).count(), 10);
    }

    #[test]
    #[should_panic(expected = "leaves a storage of 209 elements")]
    fn a_tensor_that_does_not_fit_panics() {
        tensor(419);
    }

    #[test]
    #[should_panic(expected = "leaves a storage of 210 elements")]
    fn a_view_beyond_the_storage_panics() {
        tensor(420).view(Shape::from([10]), 201);
    }

    #[test]
    #[should_panic(expected = "2 frames from 1 of a clip of 2")]
    fn frames_beyond_the_clip_panic() {
        tensor(420).frames(1, 2);
    }

    #[test]
    #[should_panic(expected = "reshape")]
    fn another_number_of_elements_panics() {
        tensor(420).reshape([211]);
    }
}
