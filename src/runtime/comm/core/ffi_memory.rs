//! [`RawSlice`]: memory of the caller, for operations in flight that cannot own it.
//!
//! A tensor of another library, or a buffer behind a C interface, is a pointer, a number of elements and an
//! element type that is known at run time.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use crate::base::lock;
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

    /// The bytes of the elements.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        let bytes = self.count * self.dtype.bytes();
        // SAFETY: as in `as_slice`; elements are plain old data.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), bytes) }
    }

    /// The bytes of the elements, to be replaced.
    pub(crate) fn as_bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.count * self.dtype.bytes();
        // SAFETY: as in `as_slice_mut`; all bits are valid for every element type.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), bytes) }
    }

    /// The same memory, for a transfer; the original is not used while the transfer runs.
    pub(crate) fn alias(&self) -> Self {
        Self { ..*self }
    }

    /// Memory that an operation in flight borrows from its owner, see [`OwnedMemory`].
    fn of<T: Element>(values: &[T]) -> Self {
        let pointer = NonNull::from(values).cast();
        Self { pointer, count: values.len(), dtype: T::DTYPE }
    }

    fn assert_type<T: Element>(&self) {
        assert_eq!(T::DTYPE, self.dtype, "the element type of an operation is that of its memory");
    }
}

/// Memory that a [`Work`](crate::runtime::Work) owns and messages in flight use: the handle returns it
/// only after the last message has ended, and waits for that if it is dropped.
pub(crate) struct OwnedMemory<M> {
    pub(crate) shared: Arc<Mutex<Option<M>>>,
    pub(crate) sends: Vec<RawSlice>,
    pub(crate) recvs: Vec<RawSlice>,
}

/// Borrowed parts of the memory of an operation.
pub(crate) struct MemoryParts<'a, T> {
    pub(crate) sends: Vec<&'a [T]>,
    pub(crate) recvs: Vec<&'a mut [T]>,
}

impl<M> OwnedMemory<M> {
    /// Memory of the caller, with the slices that are sent and received.
    pub(crate) fn of_caller(memory: M, sends: Vec<RawSlice>, recvs: Vec<RawSlice>) -> Self {
        Self { shared: Arc::new(Mutex::new(Some(memory))), sends, recvs }
    }

    /// Moves memory to its final place, from where `parts` borrows what is sent and received.
    pub(crate) fn new<T: Element>(
        memory: M,
        parts: impl for<'a> FnOnce(&'a mut M) -> MemoryParts<'a, T>,
    ) -> Self {
        let shared = Arc::new(Mutex::new(Some(memory)));
        let (sends, recvs) = {
            let mut memory = lock(&shared);
            let MemoryParts { sends, recvs } = parts(memory.as_mut().expect("put there above"));
            let sends: Vec<_> = sends.into_iter().map(RawSlice::of).collect();
            (sends, recvs.into_iter().map(|values| RawSlice::of(values)).collect())
        };
        Self { shared, sends, recvs }
    }
}
