//! Command lines: how they are read, and what is said about those that make no sense.

#![cfg(all(feature = "cli", feature = "train"))]

mod codes;
mod compat;
mod lines;
mod screens;
