//! The bundled models.
//!
//! | file or room | contents |
//! |---|---|
//! | `model`, `model_id` | interface of a model, its table of parameters; its identity in checkpoints |
//! | `mlp`, `gpt` | the models |
//! | `cpu` | the operations that they consist of, on the CPU |

pub(crate) mod cpu;
pub(crate) mod gpt;
pub(crate) mod mlp;
pub(crate) mod model;
pub(crate) mod model_id;
