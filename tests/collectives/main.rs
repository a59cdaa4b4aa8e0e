//! Goal: every operation gives what its plain definition gives, bit for bit, wherever ranks run, and
//! fails on every rank where it cannot.
//! Method: ranks as threads, sharing memory or pretending to be nodes that talk over TCP; numbers
//! whose sums depend on the order in every bit; sizes from nothing to several rounds.

mod failures;
mod operations;
mod sample;
mod split;
