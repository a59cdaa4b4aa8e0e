//! Goal: every operation gives what its plain definition gives, bit for bit, wherever ranks run, and
//! fails on every rank where it cannot.
//! Method: ranks as threads, sharing memory or pretending to be nodes that talk over TCP; numbers
//! whose sums depend on the order in every bit; sizes from nothing to several rounds.

mod failures;
mod matrix;
mod operations;
#[expect(dead_code, reason = "these tests run everywhere")]
#[path = "../support/proof.rs"]
mod proof;
mod sample;
mod split;
