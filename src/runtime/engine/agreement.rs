//! [`agree`]: all ranks of an engine have the same model and the same settings.

use sha2::Digest as _;

use crate::runtime::comm::collectives::Plan;
use crate::runtime::comm::group::Group;
use crate::runtime::engine::config::EngineConfig;
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::model::ModelPass;
use crate::runtime::engine::parameters::ParameterTable;
use crate::runtime::parallel::zero::lanes::LaneAssignment;

/// Checks the settings, and that all ranks have the same ones and the same model. Returns the assignment of lanes, and
/// the elements of the units.
pub(super) fn agree(
    group: &Group,
    table: &ParameterTable,
    passes: &[ModelPass],
    config: &EngineConfig,
) -> Result<(LaneAssignment, Vec<usize>), EngineError> {
    config.check(group.world_size())?;
    // The plan is not kept: gradients are reduced through the group in host memory, which compares every round.
    Plan::agree(group, digest(table, passes, config), "model or settings")?;
    let unit_lens = table.units().iter().map(|unit| unit.range.len()).collect();
    Ok((config.lanes(group.world_size()), unit_lens))
}

/// Digest of what must be equal on all ranks; otherwise they would add unrelated data, or hang.
fn digest(table: &ParameterTable, passes: &[ModelPass], config: &EngineConfig) -> [u8; 32] {
    let mut digest = table.layout().digest();
    for pass in passes {
        digest.update(format!("{pass:?}"));
    }
    digest.update(format!("{config:?}"));
    digest.finalize().into()
}
