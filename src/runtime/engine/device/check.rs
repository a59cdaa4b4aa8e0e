//! What an engine on a device does not have yet.

use crate::runtime::engine::config::{EngineConfig, Offload};
use crate::runtime::engine::error::EngineError;
use crate::runtime::parallel::zero::lanes::LaneOrder;
use crate::runtime::parallel::zero::stage::Sharding;

/// Checks whether a device can train with these settings, in a group of `world` ranks.
///
/// # Errors
/// [`EngineError::Config`] for settings that need more than a replica in whole.
pub fn check_device_config(config: &EngineConfig, world: usize) -> Result<(), EngineError> {
    let refused = [
        (config.sharding != Sharding::None, "sharding"),
        (config.offload != Offload::default(), "offloaded state"),
        (config.gradient_rounding.is_some(), "gradients that are rounded for each lane"),
        (0 < config.plan.recompute, "activation checkpointing"),
        (
            config.lanes(world).order() == LaneOrder::Subtrees,
            "numbers of ranks and of micro-batches that are both no power of two",
        ),
    ];
    let Some((_, what)) = refused.into_iter().find(|(is_set, _)| *is_set) else { return Ok(()) };
    Err(EngineError::Config {
        problem: format!("training on a device does not have {what} yet"),
        instead: "train on CPUs, or leave it out".to_owned(),
    })
}
