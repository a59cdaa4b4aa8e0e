//! Training data: the corpus, mapped files, random numbers.

pub(crate) mod corpus;
pub(crate) mod mmap;
