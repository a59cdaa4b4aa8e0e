//! The bundled models on a device, and the operations that they consist of.
//!
//! | file | contents |
//! |---|---|
//! | `rows` | activations in the memory of a device |
//! | `operations` | launches of the kernels, with their arguments |
//! | `mlp` | the multi-layer perceptron |

pub(crate) mod mlp;
mod operations;
mod rows;
