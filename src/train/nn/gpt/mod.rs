//! The GPT model.
//!
//! | file | contents |
//! |---|---|
//! | `config`, `ranges` | sizes, and the ranges of the parameters |
//! | `batch` | batches |
//! | `places` | where the activations of the blocks are |
//! | `transformer`, `tile` | the model; the work of one thread |

mod batch;
pub(crate) mod config;
pub(in crate::train::nn) mod places;
mod ranges;
mod tile;
mod transformer;

pub use batch::Sequences;
pub use config::{AttentionChoice, GptArchitecture, GptConfig};
#[cfg(feature = "nccl")]
pub(in crate::train::nn) use ranges::{BlockParts, LayerParts, Ranges};
pub use transformer::Gpt;
pub(crate) use transformer::tile_height;
