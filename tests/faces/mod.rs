//! Command lines of other launchers.

mod accelerate;
mod elastic;
mod error_files;
mod nodes;
mod torchrun;
mod upstream;
