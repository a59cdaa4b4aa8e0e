//! The pages of all codes of this module.

use super::{accelerate, training};
use crate::base::Explanation;

/// The `remuda explain` pages of every code of this module.
pub const EXPLANATIONS: [&[Explanation]; 2] = [accelerate::PAGES, training::PAGES];
