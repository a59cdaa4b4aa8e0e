//! Goal: every operation returns the result of its plain definition, bit for bit, for every placement
//! of the ranks; if it fails, it fails on every rank.
//! Method: ranks are threads that share memory, or simulated nodes that use TCP; every bit of a sum
//! depends on the order; sizes are from zero elements to several rounds.

mod caller_memory;
mod failures;
mod matrix;
mod members;
mod messages;
mod operations;
mod sample;
mod sharded;
mod split;
