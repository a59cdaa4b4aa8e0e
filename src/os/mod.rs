//! L1: thin safe wrappers of the kernel. Decides nothing.

pub mod memory;
