//! [`Measured`]: a result that is a line for people and numbers for programs. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What was measured: in words, and as numbers by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// One line; empty if nothing was measured.
    pub message: String,
    /// Numbers; a name ends with the unit, if there is one.
    pub figures: BTreeMap<String, f64>,
}

impl Measured {
    /// Returns a line with numbers.
    pub fn of(message: String, figures: impl IntoIterator<Item = (String, f64)>) -> Self {
        Self { message, figures: figures.into_iter().collect() }
    }
}

impl From<String> for Measured {
    fn from(message: String) -> Self {
        Self { message, ..Self::default() }
    }
}
