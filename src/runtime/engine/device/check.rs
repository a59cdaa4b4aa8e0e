//! What an engine on a device does not have yet.

use crate::runtime::engine::config::EngineConfig;
use crate::runtime::engine::error::EngineError;

/// Checks whether a device can train with these settings.
///
/// # Errors
/// [`EngineError::Config`] for settings that a device does not have.
pub fn check_device_config(config: &EngineConfig) -> Result<(), EngineError> {
    if config.offload.parameters.is_none() {
        return Ok(());
    }
    Err(EngineError::Config {
        problem: "training on a device does not have parameters in files yet".to_owned(),
        instead: "train on CPUs, or leave it out".to_owned(),
    })
}
