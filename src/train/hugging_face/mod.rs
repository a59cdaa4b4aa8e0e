//! GPT-2 as Hugging Face stores it.
//!
//! | file | contents |
//! |---|---|
//! | `layout` | `config.json`, and the layout of the weights |
//! | `import` | a checkpoint from a model of Hugging Face |

mod import;
mod layout;

pub use import::{ImportError, ImportedModel, import_gpt2};
pub use layout::{KeptSettings, config_json, is_transposed, read_config};
