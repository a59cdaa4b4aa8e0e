//! Host memory of one chunk of an operation on device data.

use crate::runtime::comm::host::region::SharedMemory;
use crate::runtime::comm::shm::buffer::Buffer;
use crate::runtime::dtype::element::Element;

/// A slot of pinned memory, as one operation uses it.
pub(crate) struct ChunkBuffer {
    /// Data from the device.
    pub(super) input: Buffer<u8>,
    /// Data for the device, for operations that are not in place.
    pub(super) output: Buffer<u8>,
    /// Size of an element.
    pub(super) element_bytes: usize,
}

impl ChunkBuffer {
    /// The first `len` elements of the input, for an operation that knows their type.
    pub(super) fn input<T: Element>(&self, len: usize) -> SharedMemory<T> {
        elements(&self.input, len)
    }

    /// The first `len` elements of the output.
    pub(super) fn output<T: Element>(&self, len: usize) -> SharedMemory<T> {
        elements(&self.output, len)
    }

    /// The bytes of the first elements of input and output, for an operation that moves them only.
    pub(super) fn bytes(&mut self, input: usize, output: usize) -> (&[u8], &mut [u8]) {
        let (input, output) = (input * self.element_bytes, output * self.element_bytes);
        (&self.input[..input], &mut self.output[..output])
    }
}

fn elements<T: Element>(bytes: &Buffer<u8>, len: usize) -> SharedMemory<T> {
    SharedMemory(bytes.window().cast().part(&(0..len)))
}
