//! [`CudaDevice`]: a GPU by NVIDIA's driver, as the runtime sees it.
//!
//! Not yet run on a GPU.
//!
//! | file | contents |
//! |---|---|
//! | `cuda_device` | the device |
//! | `ffi_calls` | calls of the driver |
//! | `nccl_ranks` | devices of several ranks, connected by NCCL |
//! | `message` | messages of the driver |
//! | `programs` | kernels: compiled when they are first launched |
//! | `cubin_cache` | compiled programs on disk |

mod cubin_cache;
mod cuda_device;
mod ffi_calls;
mod message;
mod nccl_ranks;
mod programs;

pub use crate::cuda::driver::cubin_cache::CubinCache;
pub use crate::cuda::driver::cuda_device::CudaDevice;
#[cfg(feature = "train")]
pub(crate) use crate::cuda::driver::cuda_device::{OLDEST_ARCHITECTURE, WORKSPACE_BYTES};
pub(in crate::cuda) use crate::cuda::driver::ffi_calls::RawStream;
pub(crate) use crate::cuda::driver::message::driver_message;
