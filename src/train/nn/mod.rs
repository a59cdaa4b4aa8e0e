//! The bundled models.
//!
//! | file or folder | contents |
//! |---|---|
//! | `model_id` | identity of a model in checkpoints |
//! | `mlp`, `gpt` | the models |
//! | `cpu` | the operations that they consist of, on the CPU |
//! | `device` | the models on a device (feature `nccl`) |

pub(crate) mod cpu;
#[cfg(feature = "nccl")]
pub(crate) mod device;
pub(crate) mod gpt;
pub(crate) mod mlp;
pub(crate) mod model_id;
