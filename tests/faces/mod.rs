//! Command lines of other launchers.

mod torchrun;
