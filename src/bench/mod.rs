//! Benchmark of collectives, in the terms of nccl-tests: time, algorithm bandwidth and bus bandwidth for
//! each size, with results checked by default (layer L5).
//!
//! It is a worker program that uses only the public API of [`runtime`](crate::runtime). It creates tables
//! and charts as text; `cli` prints them.

mod backend;
mod collective;
#[cfg(feature = "nccl")]
mod device;
mod document;
mod foreign;
mod gate;
mod hosts;
mod operands;
mod pairs;
mod picture;
mod sample;
mod sizes;
mod sweep;
mod table;
mod timing;

pub use backend::{Backend, OpenBackend};
pub use collective::{Collective, OperationShape};
pub use document::{
    Compared, Document, DocumentError, EarlierResults, PairRow, Row, VERSION, parse_results,
};
pub use gate::{Shortfall, check_threshold, check_wrong};
pub use hosts::{BenchNode, gather_hosts};
pub use pairs::{Pairs, measure_pairs};
pub use picture::{show_heat_map, show_results};
pub use sizes::{BytesError, Sizes, SizesError, Stride, parse_bytes};
pub use sweep::{Options, measure};
pub use table::{Head, show_bytes_short, show_foot, show_pairs, show_ranks, show_row};
pub use timing::{Average, Iterations};
