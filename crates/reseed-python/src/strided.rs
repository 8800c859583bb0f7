//! Elements in memory with strides.

use std::ops::Range;

/// A block of elements.
#[derive(Clone, Copy)]
pub struct Strided<'a> {
    pub start: *const u8,
    /// Bytes of an element.
    pub bytes: usize,
    pub shape: &'a [usize],
    /// In bytes.
    pub strides: &'a [isize],
}

impl Strided<'_> {
    /// The bytes that the elements are in, from the first element on. The block is not empty.
    pub fn span(&self) -> Range<isize> {
        let last = |(side, stride): (&usize, &isize)| (*side as isize - 1) * stride;
        let ends = self.shape.iter().zip(self.strides).map(last);
        let (low, high) = ends.fold((0, 0), |(low, high), end| (low + end.min(0), high + end.max(0)));
        low..high + self.bytes as isize
    }

    /// Appends all elements to `out`.
    ///
    /// # Safety
    /// The elements exist; they may be unaligned.
    pub unsafe fn read<T: Copy>(self, out: &mut Vec<T>) {
        assert!(size_of::<T>() == self.bytes, "elements of {} bytes", self.bytes);
        let count: usize = self.shape.iter().product();
        out.reserve(count);
        if *self.strides == compact(self.shape, self.bytes)[..] {
            let from = out.len();
            // SAFETY: the elements are contiguous, and `out` has room for them.
            unsafe {
                let to = out.as_mut_ptr().add(from).cast::<u8>();
                std::ptr::copy_nonoverlapping(self.start, to, count * self.bytes);
                out.set_len(from + count);
            }
            return;
        }
        let (side, stride) = (self.shape[0], self.strides[0]);
        let at = |i: usize| self.start.wrapping_offset(i as isize * stride);
        match self.shape.len() {
            // SAFETY: the caller's promise.
            1 => out.extend((0..side).map(|i| unsafe { at(i).cast::<T>().read_unaligned() })),
            _ => {
                let inner = |i| Strided { start: at(i), shape: &self.shape[1..], strides: &self.strides[1..], ..self };
                // SAFETY: the caller's promise.
                (0..side).for_each(|i| unsafe { inner(i).read(out) });
            }
        }
    }
}

/// The strides of an array without gaps, in bytes.
pub fn compact(shape: &[usize], bytes: usize) -> Vec<isize> {
    let mut strides = vec![bytes as isize; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i] as isize;
    }
    strides
}
