//! Byte-level BPE tokenizers, as GPT-2 has one: text to tokens and back.
//!
//! A tokenizer is a vocabulary from a file of the user. It never downloads one, and the text
//! `<|endoftext|>` in an input is text, not the special token. `remuda tokenize` calls it.
//!
//! | file | contents |
//! |---|---|
//! | `text` | [`Tokenizer`]: what other modules use |
//! | `open` | which file of a path is read, and as what |
//! | `listed`, `hugging_face`, `tiktoken` | the formats: `vocab.json` with `merges.txt`, `tokenizer.json`, `.tiktoken` |
//! | `vocabulary`, `byte_letters` | the tokens of a file, checked; letters that stand for bytes |
//! | `split`, `letters` | division of a text into words, by classes of Unicode |
//! | `encoder`, `parallel` | text to tokens, in one thread or several |
//! | `cache`, `merge` | tokens of words: known words, and merging |
//! | `error` | why a vocabulary cannot be used |

mod byte_letters;
mod cache;
mod encoder;
mod error;
mod hugging_face;
mod letters;
mod listed;
mod merge;
mod open;
mod parallel;
mod split;
mod text;
mod tiktoken;
mod vocabulary;

pub use encoder::Encoder;
pub use error::VocabularyError;
pub use parallel::ParallelEncoder;
pub use text::{Tokenizer, UnknownToken};
