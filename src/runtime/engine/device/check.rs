//! What an engine on a device does not have yet.

use crate::runtime::engine::config::{EngineConfig, Offload};
use crate::runtime::engine::error::EngineError;

/// Checks whether a device can train with these settings.
///
/// # Errors
/// [`EngineError::Config`] for settings that a device does not have.
pub fn check_device_config(config: &EngineConfig) -> Result<(), EngineError> {
    let refused = [
        (config.offload != Offload::default(), "offloaded state"),
        (0 < config.plan.recompute, "activation checkpointing"),
    ];
    let Some((_, what)) = refused.into_iter().find(|(is_set, _)| *is_set) else { return Ok(()) };
    Err(EngineError::Config {
        problem: format!("training on a device does not have {what} yet"),
        instead: "train on CPUs, or leave it out".to_owned(),
    })
}
