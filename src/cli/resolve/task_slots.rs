//! Slots of a task of a process manager. The tasks of a host share its devices, unless something has bound each task to
//! devices of its own.

use crate::base::Slot;
use crate::cli::args::DeviceArgs;
use crate::cli::error::CliError;
use crate::cli::resolve::devices::{JobDevices, accelerator, too_few_devices, visible};
use crate::doctor::SlotDevice;
use crate::launch::GpuSharing;
use crate::plan::Accelerator;

/// Slots of the workers of a task, and their devices.
pub(super) struct TaskSlots {
    pub(in crate::cli) slots: Vec<Slot>,
    pub(in crate::cli) devices: JobDevices,
}

/// Returns the slots of `workers` workers of the task with number `local` on its host.
pub(super) fn task_slots(
    local: u32,
    workers: usize,
    args: &DeviceArgs,
) -> Result<TaskSlots, CliError> {
    let accelerator = accelerator(args)?;
    let first = local as usize * workers;
    let found = match accelerator {
        Accelerator::Cpu | Accelerator::GpuIfAny => None,
        _ => visible(accelerator),
    };
    let (slots, names) = match found {
        None => ((first as u32..).take(workers).map(Slot).collect(), Vec::new()),
        Some(found) => {
            let may_be_own = found.variable.is_some() || args.oversubscribe;
            let own = own_devices(&found.slots, first, workers, may_be_own);
            let too_few = || too_few_devices(args, first + workers, &found.available());
            (own.ok_or_else(too_few)?, found.names)
        }
    };
    // Numbers of devices differ between tasks that see only their own: nothing claims or compares them.
    let (sharing, slots_are) = (GpuSharing::None, SlotDevice::Other);
    Ok(TaskSlots { slots, devices: JobDevices { accelerator, names, sharing, slots_are } })
}

/// Returns the devices of the workers of a task, of which the first is worker `first` of its host. If there are too few
/// for those before it, they may be of this task alone.
fn own_devices(
    visible: &[Slot],
    first: usize,
    workers: usize,
    may_be_own: bool,
) -> Option<Vec<Slot>> {
    match visible.get(first..first + workers) {
        Some(own) => Some(own.to_vec()),
        None if may_be_own && !visible.is_empty() => {
            Some(visible.iter().copied().cycle().take(workers).collect())
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_a_host_have_different_devices() {
        let devices = |count: u32| (0..count).map(Slot).collect::<Vec<_>>();
        let own = |visible, local, workers, may_be_own| {
            let own = own_devices(&devices(visible), local * workers, workers, may_be_own);
            own.map(|slots| slots.iter().map(|slot| slot.0).collect::<Vec<_>>())
        };
        assert_eq!(own(4, 0, 1, false), Some(vec![0]));
        assert_eq!(own(4, 3, 1, false), Some(vec![3]));
        assert_eq!(own(4, 1, 2, false), Some(vec![2, 3]));
        // Slurm shows every task one device.
        assert_eq!(own(1, 3, 1, true), Some(vec![0]));
        assert_eq!(own(2, 1, 2, true), Some(vec![0, 1]));
        // More tasks than devices.
        assert_eq!(own(2, 2, 1, false), None);
        assert_eq!(own(0, 0, 1, true), None);
    }
}
