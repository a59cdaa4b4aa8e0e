//! The pages of all codes of this module.

use super::{accelerate, settings, training};
use crate::base::Explanation;

/// The `remuda explain` pages of every code of this module.
pub const EXPLANATIONS: [&[Explanation]; 3] = [accelerate::PAGES, settings::PAGES, training::PAGES];
