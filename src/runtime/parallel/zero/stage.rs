//! [`Sharding`]: what is divided over ranks.

use std::fmt;

use serde::{Deserialize, Serialize};

/// State that every rank holds a part of; each stage includes the ones before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Sharding {
    /// Nothing: every rank holds parameters, gradients and optimizer state (ZeRO stage 0).
    #[default]
    None,
    /// Optimizer state and master weights (ZeRO stage 1).
    Optimizer,
    /// Also gradients (ZeRO stage 2).
    Gradients,
    /// Also parameters (ZeRO stage 3, the full shard of FSDP).
    Parameters,
}

impl Sharding {
    /// All stages, in order.
    pub const ALL: [Self; 4] = [Self::None, Self::Optimizer, Self::Gradients, Self::Parameters];

    /// Returns the stage with a number of ZeRO, 0 to 3.
    pub fn from_stage(stage: u8) -> Option<Self> {
        Self::ALL.get(usize::from(stage)).copied()
    }

    /// Returns the number of the stage in ZeRO.
    pub fn stage(self) -> u8 {
        self as u8
    }

    /// Whether a rank updates only its part of the parameters.
    pub fn divides_optimizer(self) -> bool {
        Self::Optimizer <= self
    }

    /// Whether a rank keeps only its part of the gradients.
    pub fn divides_gradients(self) -> bool {
        Self::Gradients <= self
    }

    /// Whether a rank keeps only its part of the parameters.
    pub fn divides_parameters(self) -> bool {
        Self::Parameters <= self
    }
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Optimizer => "optimizer",
            Self::Gradients => "gradients",
            Self::Parameters => "parameters",
        })
    }
}
