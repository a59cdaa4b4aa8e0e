//! Command lines: how they are read, and what is said about those that make no sense.

#![cfg(all(feature = "cli", feature = "train"))]

mod codes;
mod compat;
mod completion;
mod help;
mod host_lists;
mod lines;
mod man;
mod screens;

#[expect(dead_code, reason = "nothing here is tried more often than once")]
#[path = "../support/proof.rs"]
mod proof;
