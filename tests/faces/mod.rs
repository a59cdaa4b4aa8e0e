//! Command lines of other launchers.

mod accelerate;
mod elastic;
mod error_files;
mod nodes;
pub(crate) mod torchrun;
mod upstream;
