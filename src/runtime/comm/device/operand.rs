//! Memory of operations whose element type is known at run time only. There is one copy of the code of an operation, not
//! one for each type.

use std::marker::PhantomData;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};

use crate::cuda::nccl::BufferLease;
use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::dtype::element::Dtype;

/// Elements on a device that an operation reads or replaces.
pub(crate) trait DeviceOperand {
    /// Number of elements.
    fn count(&self) -> usize;

    /// Element type.
    fn dtype(&self) -> Dtype;

    /// Lets work of a stream use the memory; see [`BufferLease`].
    fn lease<'a>(&'a mut self, stream: &'a CudaStream) -> BufferLease<'a>;
}

/// Memory that an operation only reads.
pub(super) struct ReadOperand<'a, T, D> {
    memory: &'a D,
    element: PhantomData<T>,
}

/// Memory that an operation replaces.
pub(super) struct WrittenOperand<'a, T, D> {
    memory: &'a mut D,
    element: PhantomData<T>,
}

/// The other memory of an operation in place.
pub(crate) struct NoOperand(pub(crate) Dtype);

pub(super) fn read<T: DeviceElement, D: DevicePtr<T>>(memory: &D) -> ReadOperand<'_, T, D> {
    ReadOperand { memory, element: PhantomData }
}

pub(super) fn written<T: DeviceElement, D: DevicePtrMut<T>>(
    memory: &mut D,
) -> WrittenOperand<'_, T, D> {
    WrittenOperand { memory, element: PhantomData }
}

impl<T: DeviceElement, D: DevicePtr<T>> DeviceOperand for ReadOperand<'_, T, D> {
    fn count(&self) -> usize {
        self.memory.len()
    }

    fn dtype(&self) -> Dtype {
        T::DTYPE
    }

    fn lease<'a>(&'a mut self, stream: &'a CudaStream) -> BufferLease<'a> {
        BufferLease::new(self.memory.device_ptr(stream), self.memory.len(), T::DTYPE.into())
    }
}

impl<T: DeviceElement, D: DevicePtrMut<T>> DeviceOperand for WrittenOperand<'_, T, D> {
    fn count(&self) -> usize {
        self.memory.len()
    }

    fn dtype(&self) -> Dtype {
        T::DTYPE
    }

    fn lease<'a>(&'a mut self, stream: &'a CudaStream) -> BufferLease<'a> {
        let len = self.memory.len();
        BufferLease::new(self.memory.device_ptr_mut(stream), len, T::DTYPE.into())
    }
}

impl DeviceOperand for NoOperand {
    fn count(&self) -> usize {
        0
    }

    fn dtype(&self) -> Dtype {
        self.0
    }

    fn lease<'a>(&'a mut self, _stream: &'a CudaStream) -> BufferLease<'a> {
        BufferLease::new((0, SyncOnDrop::Record(None)), 0, self.0.into())
    }
}
