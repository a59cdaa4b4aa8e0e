//! Command lines of other launchers.

mod accelerate;
mod elastic;
mod torchrun;
