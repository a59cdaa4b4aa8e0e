//! Compressed lists of host names, in the syntax of Slurm, pdsh and ClusterShell: `n[01-03,7]-ib`.
//!
//! Pure. A list is parsed strictly, with the position of every error; it is expanded lazily and up
//! to a limit; and names fold back into a list that expands to them again, in their order.

mod algebra;
mod error;
mod fold;
mod pattern;
mod read;

pub use algebra::{Expression, Operator, SetOperand};
pub use error::NAMES_MAX;
pub use error::{RangeError, RangeProblem};
pub use fold::{fold, fold_set, fold_without_suffix, siblings};
pub use pattern::Pattern;
pub use read::{is_pattern, read_list, read_pattern};
