//! Pool of buffers for data in transit between nodes, which are reused in every round.
//!
//! Memory that is allocated and freed in every round is returned to the kernel and faulted in again
//! page by page: with 256 KiB per round, this took twice as long as sending the data.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::runtime::dtype::element::Element;

/// Largest number of unused buffers; an operation has a few for each node at once.
const FREE_BUFFERS_MAX: usize = 256;

/// Pool of buffers that are not in use.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    free: Vec<Vec<u64>>,
}

/// Buffer of elements. [`BufferPool::put`] returns it to the pool; a dropped one is freed instead.
#[derive(Debug)]
pub(crate) struct PooledBuffer<T> {
    words: Vec<u64>,
    len: usize,
    element: PhantomData<T>,
}

impl BufferPool {
    /// Returns a buffer for `len` elements, with the content of an earlier use.
    pub(crate) fn take<T: Element>(&mut self, len: usize) -> PooledBuffer<T> {
        let mut words = self.free.pop().unwrap_or_default();
        let needed = (len * size_of::<T>()).div_ceil(size_of::<u64>());
        if words.len() < needed {
            words.resize(needed, 0);
        }
        PooledBuffer { words, len, element: PhantomData }
    }

    /// Returns a buffer to the pool.
    pub(crate) fn put<T>(&mut self, buffer: PooledBuffer<T>) {
        if self.free.len() < FREE_BUFFERS_MAX {
            self.free.push(buffer.words);
        }
    }
}

impl<T: Element> PooledBuffer<T> {
    /// Converts the buffer to elements of another type, as many as fit.
    pub(crate) fn cast<U: Element>(self) -> PooledBuffer<U> {
        let Self { words, len, .. } = self;
        PooledBuffer { words, len: len * size_of::<T>() / size_of::<U>(), element: PhantomData }
    }
}

impl<T: Element> Deref for PooledBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }
}

impl<T: Element> DerefMut for PooledBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Bf16;

    #[test]
    fn buffer_is_reused_for_any_element_type() {
        let mut pool = BufferPool::default();
        let mut floats = pool.take::<f32>(5);
        floats.fill(1.0);
        let address = floats.as_ptr().cast::<u8>();
        pool.put(floats);
        let halves = pool.take::<Bf16>(3);
        assert_eq!((halves.len(), halves.as_ptr().cast::<u8>()), (3, address));
        let bytes = halves.cast::<u8>();
        assert_eq!((bytes.len(), bytes.as_ptr()), (6, address));
        assert_eq!(bytes.cast::<Bf16>().len(), 3);
        let empty = pool.take::<u8>(0);
        assert!(empty.is_empty() && pool.free.is_empty());
    }
}
