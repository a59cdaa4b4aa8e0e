//! Command lines of other launchers.

mod accelerate;
mod torchrun;
