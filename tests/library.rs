//! Tests of the library for workers: groups, collectives, training.

#[cfg(feature = "train")]
mod checkpoint;
mod collectives;
mod ddp;
#[cfg(feature = "train")]
mod engine;
#[cfg(feature = "train")]
mod gradients;
mod sampler;
mod store;
#[expect(dead_code, reason = "tests of the program use the rest")]
mod support;
#[cfg(feature = "train")]
mod torch;
#[cfg(feature = "train")]
mod train;
mod workers;
