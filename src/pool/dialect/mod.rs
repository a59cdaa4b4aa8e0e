//! Hostfile formats (dialects) of all launchers and schedulers: parsed into one typed pool, and
//! written from it.
//!
//! One file for each dialect has the meaning of its lines. A new dialect is such a file, a variant of [`Dialect`]
//! (`kind`), and the arms that the compiler then asks for: `reading` reads a text in it, `write` writes hosts in it,
//! `shape` says what its lines look like, by which `detect` finds the dialect of a text. A text that DeepSpeed reads
//! without an error is never taken for another dialect.

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
