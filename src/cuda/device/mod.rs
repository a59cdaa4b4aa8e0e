//! A GPU as the runtime sees it: memory, streams, events, launches, products of matrices.
//!
//! Tests have an emulated [`Device`], which runs the same kernels on a CPU, and executes streams as early or as late
//! as their events allow.
//!
//! | file | contents |
//! |---|---|
//! | `interface` | the trait |
//! | `uploads` | copies of batches through pinned memory |
//! | `types` | addresses, matrices, streams, events, arguments of kernels |
//! | `communicator` | ranks whose devices exchange data |
//! | `matmul` | a product of matrices, and what becomes of it before it is written |
//! | `kernel_call` | a launch of a kernel with its arguments |
//! | `error` | the error |

mod communicator;
mod error;
mod interface;
mod kernel_call;
mod matmul;
mod types;
mod uploads;

pub use crate::cuda::device::communicator::{CommunicatorOffer, DeviceCommunicator, PeerMemory};
pub use crate::cuda::device::error::DeviceError;
pub use crate::cuda::device::interface::{Device, DeviceMemory};
pub use crate::cuda::device::kernel_call::KernelCall;
pub use crate::cuda::device::matmul::{Epilogue, Matmul, MatmulBatch, MatmulShape};
pub use crate::cuda::device::types::{
    DeviceAddress, DeviceMatrix, EventId, KernelArgument, PinnedId, SourceKernel, StreamId,
};
pub use crate::cuda::device::uploads::UploadRing;
