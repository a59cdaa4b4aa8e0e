//! How fast the ranks of a job move and combine numbers, in the terms of nccl-tests: time, algorithm
//! and bus bandwidth for each size, results checked by default.
//!
//! A worker program on top of [`runtime`](crate::runtime): nothing here that its user could not
//! write. The texts and pictures are made here and printed by `cli`.

mod backend;
mod collective;
#[cfg(feature = "nccl")]
mod device;
mod document;
mod foreign;
mod gate;
mod operands;
mod pairs;
mod picture;
mod sample;
mod sizes;
mod sweep;
mod table;
mod timing;

pub use backend::{Backend, Opened};
pub use collective::{Collective, Shape};
pub use document::{Document, DocumentError, PairRow, Row, read_results};
pub use gate::{Shortfall, check_rows, check_wrong};
pub use pairs::{Pairs, measure_pairs};
pub use picture::{Series, show_curves, show_heat};
pub use sizes::{BytesError, Sizes, SizesError, Stride, parse_bytes};
pub use sweep::{Options, measure};
pub use table::{show_bytes_short, show_foot, show_head, show_pairs, show_ranks, show_row};
pub use timing::{Average, Iterations};
