//! Kernels of the training on GPUs: their CUDA source, what is compiled for which types, and how they are
//! launched.
//!
//! The source needs no header of CUDA. `device.cuh` has what a device does in one instruction; the tests replace
//! it by an emulated device, which runs the same source on a CPU. A comment above each kernel states its shapes,
//! its types and the order of its sums. No kernel has atomics: bits depend on shapes alone.
//!
//! | file | contents |
//! |---|---|
//! | `file` | the source files, as text |
//! | `program` | what is compiled together: a file for element types and other constants |
//! | `kernel` | the kernels |
//! | `launch` | grid, block and shared memory of a launch, as functions of shapes |
//! | `traffic` | bytes that a launch reads and writes, as functions of shapes |
//! | `state` | what the kernels at the end of a step keep on the device |

mod file;
mod kernel;
mod launch;
mod program;
mod state;
mod traffic;

pub use crate::cuda::kernels::file::{DEVICE_SOURCE, ELEMENT_SOURCE, KernelFile};
pub use crate::cuda::kernels::kernel::Kernel;
pub use crate::cuda::kernels::launch::{AttentionShape, KernelLaunch, RowParts};
pub use crate::cuda::kernels::program::{
    Activation, ElementType, HalfType, HeadWidth, KernelProgram,
};
pub use crate::cuda::kernels::state::{DeviceAdam, DeviceLossScale, DeviceStep};
pub use crate::cuda::kernels::traffic::{KernelTraffic, RowShape, TokenShape};
