//! Goal: whatever dies, hangs or misbehaves, the exit status is the truth and nothing is left.
//! Method: the real program, real processes, real signals. Every job carries a marker; after every
//! job the process table is searched for it.

#![cfg(all(feature = "cli", feature = "train"))]

#[path = "../support/mod.rs"]
mod support;

mod options;
mod ours;
mod output;
mod random;
mod screens;
mod signals;
mod workers;
