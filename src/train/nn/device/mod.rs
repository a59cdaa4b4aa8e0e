//! The bundled models on a device, and the operations that they consist of.
//!
//! | file | contents |
//! |---|---|
//! | `mlp` | the multi-layer perceptron |
//! | `gpt`, `gpt_memory` | the GPT, and its memory |
//! | `blocks` | memory of the work space, for one shape of batches after the other |
//! | `rows`, `tokens` | activations and batches in the memory of a device |
//! | `work_space` | how much memory a model needs, before it is allocated |
//! | `attention` | how a model computes attention |
//! | `flash_attention`, `product_attention` | by kernels, or by matrix products |
//! | `operations`, `norm` | launches of the kernels, with their arguments |

pub(crate) mod attention;
mod blocks;
mod flash_attention;
pub(crate) mod gpt;
mod gpt_memory;
pub(crate) mod mlp;
mod norm;
mod operations;
mod product_attention;
mod rows;
mod tokens;
pub(crate) mod work_space;
