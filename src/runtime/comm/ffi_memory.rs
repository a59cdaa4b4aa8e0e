//! [`RawSlice`]: memory of the caller, for operations in flight that cannot own it.
//!
//! A tensor of another library, or a buffer behind a C interface, is a pointer, a number of elements and an
//! element type that is known at run time.

use std::ptr::NonNull;

use crate::runtime::dtype::element::{Dtype, Element};

/// Memory of the caller: `count` elements of type `dtype` from a pointer.
#[derive(Debug)]
pub struct RawSlice {
    pointer: NonNull<u8>,
    count: usize,
    dtype: Dtype,
}

// SAFETY: the caller of `new` promises that the holder of the slice is the only one to use the memory, on
// any thread.
unsafe impl Send for RawSlice {}

impl RawSlice {
    /// Describes memory of the caller. A null pointer, or one that is not aligned for `dtype`, is accepted
    /// only if `count` is 0; else `None` is returned.
    ///
    /// # Safety
    /// `count` elements from `pointer` are initialized. Until the slice is dropped — for an operation in
    /// flight, until its [`Work`](crate::runtime::Work) has returned it or was dropped — the memory stays
    /// allocated, and nothing else reads or writes it. If it is the input of an operation only, others may
    /// read it.
    pub unsafe fn new(pointer: *mut u8, count: usize, dtype: Dtype) -> Option<Self> {
        let is_aligned = (pointer.addr()).is_multiple_of(dtype.bytes());
        let is_small =
            count.checked_mul(dtype.bytes()).is_some_and(|all| isize::try_from(all).is_ok());
        match NonNull::new(pointer) {
            Some(pointer) if is_aligned && is_small => Some(Self { pointer, count, dtype }),
            _ if count == 0 => {
                Some(Self { pointer: NonNull::<u64>::dangling().cast(), count, dtype })
            }
            _ => None,
        }
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The elements.
    ///
    /// # Panics
    /// If `T` is not the element type.
    pub(crate) fn as_slice<T: Element>(&self) -> &[T] {
        self.assert_type::<T>();
        // SAFETY: `new` requires initialized memory that nothing else writes, and has checked its alignment.
        unsafe { std::slice::from_raw_parts(self.pointer.cast::<T>().as_ptr(), self.count) }
    }

    /// The elements, to be replaced.
    ///
    /// # Panics
    /// If `T` is not the element type.
    pub(crate) fn as_slice_mut<T: Element>(&mut self) -> &mut [T] {
        self.assert_type::<T>();
        // SAFETY: `new` requires initialized memory that nothing else uses, and has checked its alignment.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.cast::<T>().as_ptr(), self.count) }
    }

    fn assert_type<T: Element>(&self) {
        assert_eq!(T::DTYPE, self.dtype, "the element type of an operation is that of its memory");
    }
}
