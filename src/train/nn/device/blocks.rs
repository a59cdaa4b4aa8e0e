//! [`WorkBlocks`]: memory of a model's work space, which batches of several shapes use one after the other.

use std::sync::Arc;

use crate::cuda::device::{Device, DeviceAddress, DeviceError, DeviceMemory, StreamId};
use crate::cuda::kernels::ElementType;
use crate::train::nn::device::rows::DeviceRows;

/// Blocks of memory in the order in which a model asks for them, which is the same for every shape.
///
/// A shape gets the blocks of an earlier one that are large enough, so memory is allocated only if more of it is needed
/// than before: a batch of an evaluation that is smaller than those of the training allocates none.
pub(super) struct WorkBlocks {
    device: Arc<dyn Device>,
    blocks: Vec<Box<dyn DeviceMemory>>,
}

/// Memory for batches of one shape; its content is not defined.
pub(super) struct ShapeBlocks<'b> {
    of: &'b mut WorkBlocks,
    stream: StreamId,
    rows: u32,
    element: ElementType,
    /// Number of blocks that were taken.
    taken: usize,
}

impl WorkBlocks {
    /// Blocks of which none was allocated.
    pub(super) fn new(device: Arc<dyn Device>) -> Self {
        Self { device, blocks: Vec::new() }
    }

    /// Begins with another shape, of this many rows. All operations on the blocks are submitted to the same stream, so
    /// those on the shape before precede them.
    pub(super) fn shape(
        &mut self,
        stream: StreamId,
        rows: u32,
        element: ElementType,
    ) -> ShapeBlocks<'_> {
        ShapeBlocks { of: self, stream, rows, element, taken: 0 }
    }
}

impl ShapeBlocks<'_> {
    /// Provides a block of at least this many bytes.
    fn take(&mut self, bytes: usize) -> Result<DeviceAddress, DeviceError> {
        let (at, WorkBlocks { device, blocks }) = (self.taken, &mut *self.of);
        if blocks.get(at).is_some_and(|block| block.bytes() < bytes) {
            // Before the larger one is allocated, so that there are never two.
            blocks.remove(at);
            blocks.insert(at, device.alloc(bytes)?);
        } else if blocks.len() == at {
            blocks.push(device.alloc(bytes)?);
        }
        self.taken += 1;
        Ok(blocks[at].address())
    }

    /// Provides numbers of 32 bits.
    pub(super) fn numbers(&mut self, count: usize) -> Result<DeviceAddress, DeviceError> {
        self.take(count * size_of::<f32>())
    }

    /// Provides a row of features for each row of the batch.
    pub(super) fn rows(&mut self, width: usize) -> Result<DeviceRows, DeviceError> {
        self.some_rows(self.rows, width)
    }

    /// Provides another number of rows. Their padding is zeros.
    pub(super) fn some_rows(&mut self, rows: u32, width: usize) -> Result<DeviceRows, DeviceError> {
        let stride = DeviceRows::stride_of(width as u32, self.element);
        let bytes = rows as usize * stride as usize * self.element.bytes();
        let address = self.take(bytes)?;
        if stride != width as u32 {
            self.of.device.clear(self.stream, address, bytes)?;
        }
        Ok(DeviceRows { address, rows, width: width as u32, stride, element: self.element })
    }
}
