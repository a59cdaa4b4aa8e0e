//! Hostfile formats (dialects) of all launchers and schedulers: parsed into one typed pool, and
//! written from it.
//!
//! One file for each dialect: the meaning of its lines; `write` writes hosts in it. `detect`
//! finds the dialect of a text by its lines; a text that DeepSpeed reads without an error is never
//! taken for another dialect.

mod detect;
mod foreign;
mod horovod;
mod hydra;
mod kind;
mod lines;
mod lsf;
mod openmpi;
mod pbs;
mod ranges;
mod reading;
mod sge;
mod shape;
mod slurm;
mod variables;
mod write;

pub use self::write::{HostfileFormat, Written, lost_limits, write};
pub use kind::Dialect;
pub(super) use kind::with_article;
pub(super) use openmpi::comment_at as slashes_at;
pub use reading::{ReadOptions, Reading, read_any};

#[cfg(test)]
mod tests;
