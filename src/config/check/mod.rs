//! Checks of the tree of a configuration against the tables of keys: types, limits, unknown keys, and keys
//! that remuda refuses. The result is a flat map of settings.

mod checker;
mod params;
mod settings;
mod unknown;
mod value;

pub(super) use checker::{CheckedTree, check_tree};
pub(super) use params::find_optimizer;
pub use settings::Ineffective;
pub(super) use settings::{GivenSettings, GivenValue, join};
