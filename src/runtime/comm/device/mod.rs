//! Collectives on GPU memory.
//!
//! A [`DeviceGroup`] is based on a [`Group`](crate::runtime::Group). The group connects the ranks, compares
//! their calls before an operation starts on the device, and reports late and lost ranks. NCCL moves the
//! data, or the host if NCCL cannot be used. Memory is allocated by `cudarc`, so it can be shared with other
//! crates.
//!
//! ```no_run
//! use remuda::runtime::device::{DeviceBackend, DeviceGroup, open_device};
//! use remuda::runtime::{Error, Group, ReduceOp};
//!
//! fn main() -> Result<(), Error> {
//!     let group = Group::from_env()?;
//!     let context = open_device(group.local_rank())?;
//!     let devices = DeviceGroup::new(&group, &context, DeviceBackend::Auto)?;
//!     let zeros = context.default_stream().alloc_zeros::<f32>(1 << 20);
//!     let mut gradients = zeros.map_err(|error| Error::Device(format!("{error:?}")))?;
//!     devices.all_reduce(&mut gradients, ReduceOp::Avg)?;
//!     Ok(())
//! }
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `group` | the group, and how it runs an operation |
//! | `operations`, `collective` | its blocking operations: methods, execution by the backends |
//! | `operand` | memory of an operation |
//! | `in_flight`, `pending` | operations in flight: submission, completion |
//! | `ffi_work` | operations of the group that are started: handle, watch |
//! | `ffi_messages` | messages on memory of another library |
//! | `ffi_caller` | memory of another library, with the stream in which that uses it |
//! | `memory` | memory of which ranges are lent to operations in flight |
//! | `select` | selection of NCCL or the host |
//! | `connect`, `connection` | connection of the devices of a group |
//! | `nccl` | operations through NCCL, in its order or in the canonical one |
//! | `fold_kernel`, `ffi_fold` | reductions in the canonical order: CUDA source, execution |
//! | `gradients`, `gradient_kernel` | sums of micro-batches, for data-parallel training: operations, CUDA source |
//! | `ffi_kernels` | compiled kernels |
//! | `registered` | memory that is registered with NCCL |
//! | `pieces` | reduction of lanes of which ranks have several, through host memory |
//! | `pipeline`, `chunk`, `staged` | operations through host memory, in chunks that overlap |
//! | `stream_exchange` | operations of training, in a stream of the device |
//! | `wait` | waits with a deadline |
//! | `ffi_pinned` | CUDA driver, pinned memory |

mod active;
mod chunk;
mod collective;
mod connect;
mod connection;
mod element;
mod ffi_caller;
mod ffi_fold;
mod ffi_kernels;
mod ffi_messages;
mod ffi_pinned;
mod ffi_work;
mod fold_kernel;
mod gradient_kernel;
mod gradients;
mod group;
mod in_flight;
mod memory;
mod nccl;
mod nccl_id;
mod operand;
mod operations;
mod pending;
mod pieces;
mod pipeline;
mod registered;
mod select;
mod staged;
mod stream_exchange;
mod wait;

pub use cudarc;

pub use collective::DeviceCollective;
pub use element::DeviceElement;
pub use ffi_caller::{CallerMemory, CallerStream};
pub use ffi_messages::DeviceMessage;
pub use ffi_pinned::{device_count, open_device};
pub use ffi_work::DeviceWork;
pub use fold_kernel::FoldKernel;
pub use gradient_kernel::{GradientKernel, GradientOp};
pub use group::DeviceGroup;
pub use memory::{DeviceBuffer, DeviceRange, LentDevice};
pub use nccl_id::share_id;
pub use registered::RegisteredSlice;
pub use select::DeviceBackend;
pub(crate) use stream_exchange::{Reduced, StreamExchange, find_connection};
