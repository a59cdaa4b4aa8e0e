//! Command lines: parsing, help pages, completions, and screens of errors.

#![cfg(all(feature = "cli", feature = "train"))]

mod codes;
mod compat;
mod completion;
mod help;
mod host_lists;
mod lines;
mod man;
mod screens;

#[path = "../support/expected.rs"]
mod expected;
#[expect(dead_code, reason = "no test here is repeated")]
#[path = "../support/proof.rs"]
mod proof;
