//! Checks of what a GPU computes: every CUDA kernel against the same in f64, or against the bits of a processor, and
//! products of matrices.
//!
//! `remuda doctor --gpu` runs them on a GPU, the tests on an emulated device under adversarial schedules.
//!
//! | file | contents |
//! |---|---|
//! | `case` | a launch with its arguments and memory |
//! | `list` | all checks, by name |
//! | `runner` | what runs kernels; comparisons |
//! | `activation`, `attention`, `embedding`, `fold`, `norm`, `optimizer`, `softmax` | the checks, by kernel |
//! | `product` | products of matrices |
//! | `recording` | what a step submits, operation by operation, and its time |
//! | `traffic`, `bandwidth` | launches with the bytes that they should move, and their time |

mod activation;
mod attention;
mod bandwidth;
mod case;
mod embedding;
mod fold;
mod list;
mod norm;
mod optimizer;
mod product;
mod recording;
mod runner;
mod softmax;
mod traffic;

pub use activation::value_and_slope;
pub use attention::AttentionCase;
pub use bandwidth::{KernelBandwidth, measure_bandwidths};
pub use case::{CaseArgument, CaseMemory, KernelCase, decode, draw, encode};
pub use list::{KERNEL_CHECKS, KernelCheck};
pub use product::{check_epilogues, check_products};
pub use recording::{DeviceOperation, RecordingDevice, TimedOperation, time_operations};
pub use runner::{CheckError, DeviceRunner, KernelRunner, error_of, tolerance};
pub use softmax::SoftmaxCase;
pub use traffic::{TrafficCase, TrafficShape};
