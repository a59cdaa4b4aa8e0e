//! Compressed lists of host names, as Slurm, pdsh and ClusterShell write them: `n[01-03,7]-ib`.
//!
//! Pure. A list is read strictly, with the place of every mistake; it is expanded lazily and within a
//! bound; and names fold back into a list that expands to them again, in their order.

mod algebra;
mod error;
mod fold;
mod pattern;
mod read;

pub use algebra::{Expression, Operator, SetOperand};
pub use error::{RangeError, RangeProblem};
pub use fold::{fold, fold_before_suffix, fold_set, kin};
pub use pattern::Pattern;
pub use read::{is_pattern, read_list, read_pattern};

/// Names that one list may stand for.
pub const NAMES_MAX: u64 = 65_536;
