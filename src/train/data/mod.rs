//! Training data: the corpus, texts, shards of tokens, mapped files.

pub(crate) mod corpus;
pub(crate) mod mmap;
pub(crate) mod shards;
pub(crate) mod text_file;
pub(crate) mod windows;
