//! Token shards: files of tokens in the format of llm.c.
//!
//! A shard is a header of 256 little-endian `i32` (magic number, version, number of tokens, zeros) and then
//! the tokens: `u16` for GPT-2's vocabulary, `u32` for larger ones, as llm.c writes them for Llama 3.
//!
//! | file | contents |
//! |---|---|
//! | `header` | the header, as bytes and as data |
//! | `reader` | one shard, memory-mapped |
//! | `token_data` | several shards as one text, with random access |
//! | `writer`, `draft` | writing: division into shards; a file that appears when it is complete |
//! | `error` | why a shard cannot be read or written |

mod draft;
mod error;
mod header;
mod reader;
mod token_data;
mod writer;

pub use error::ShardError;
pub use header::TokenType;
pub use reader::TokenShard;
pub use token_data::TokenData;
pub use writer::{ExistingFiles, ShardOptions, ShardWriter, WrittenShard};
