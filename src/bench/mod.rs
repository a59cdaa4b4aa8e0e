//! Benchmark of collectives, in the terms of nccl-tests: time, algorithm bandwidth and bus bandwidth for
//! each size, with results checked by default (layer L5).
//!
//! It is a worker program that uses only the public API of [`runtime`](crate::runtime). It creates tables
//! and charts as text; `cli` prints them.

mod backend;
mod chart;
mod collective;
#[cfg(feature = "nccl")]
mod device;
mod document;
mod hosts;
mod import;
mod open_backend;
mod operands;
mod pairs;
mod row;
mod sizes;
mod sweep;
mod table;
mod test_data;
mod threshold;
mod timing;

pub use backend::Backend;
pub use chart::{show_heat_map, show_results};
pub use collective::{Collective, OperationShape};
pub use document::{Compared, Document, EarlierResults, parse_results};
pub use hosts::{BenchNode, gather_hosts};
pub use open_backend::OpenBackend;
pub use pairs::{Pairs, measure_pairs};
pub use row::{DocumentError, PairRow, Row, VERSION};
pub use sizes::{BytesError, Sizes, SizesError, Stride, parse_bytes};
pub use sweep::{Options, measure};
pub use table::{Head, show_bytes_short, show_foot, show_pairs, show_ranks, show_row};
pub use threshold::{Shortfall, check_threshold, check_wrong};
pub use timing::{Average, Iterations};
