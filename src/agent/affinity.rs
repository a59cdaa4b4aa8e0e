//! Assigns the processors and the memory of this node to its workers.

use std::collections::BTreeMap;
use std::path::Path;

use crate::base::{Status, env_vars};
use crate::inventory;
use crate::os::cpu::affinity::{self, MemoryPolicy};
use crate::plan::{CoreShare, NumaBinding, NumaError, NumaMemory, share_cores, share_near_gpus};
use crate::report::text::show_io_error;
use crate::wire::{CoreRequest, Problem};

/// Directory in which the kernel describes the hardware of the machine.
const SYSTEM: &str = "/sys/devices/system";

/// Returns the shares in the order of local ranks, and notes for the user.
pub(super) fn assign_cores(
    request: &CoreRequest,
    env: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Result<(Vec<CoreShare>, Vec<String>), Problem> {
    let usable = affinity::processors(None).map_err(|error| {
        let message =
            format!("cannot read the list of usable processors: {}", show_io_error(&error));
        Problem::new(Status::OsLimit, message)
    })?;
    if let Some(binding) = request.near_gpus {
        return near_gpus(binding, &usable, request.workers as usize, env);
    }
    if env.contains_key(env_vars::KMP_AFFINITY.as_bytes()) {
        let message = "KMP_AFFINITY is set, which binds threads in its own way";
        return Err(Problem::new(Status::Config, message)
            .help("`unset KMP_AFFINITY`, or leave --bind_cores_to_rank out"));
    }
    let topology = inventory::topology(Path::new(SYSTEM));
    let list = request.list.as_deref();
    let mut shares = share_cores(&topology, &usable, list, request.workers as usize)
        .map_err(|error| Problem::new(Status::Config, error.to_string()).help(error.help()))?;
    let notes = drop_denied_memory(&mut shares);
    Ok((shares, notes))
}

/// Returns shares near the GPUs that the workers can see.
fn near_gpus(
    binding: NumaBinding,
    usable: &[u32],
    workers: usize,
    env: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Result<(Vec<CoreShare>, Vec<String>), Problem> {
    let visible = env.get(env_vars::CUDA_VISIBLE_DEVICES.as_bytes());
    let visible = visible.map(|value| String::from_utf8_lossy(value).into_owned());
    let topology = inventory::numa_topology(Path::new("/"), visible.as_deref());
    let shares = share_near_gpus(&topology, usable, binding, workers).map_err(|error| {
        let message = format!("--numa-binding: {error}");
        Problem::new(Status::Config, message).help(match error {
            NumaError::NoGpu { .. } => "give each worker a GPU, or leave --numa-binding out",
            NumaError::NoProcessor { .. } => {
                "let this process use processors of that memory node (see `taskset -p PID` and the cpuset \
                 of the container), or leave --numa-binding out"
            }
            NumaError::TooFewCores { .. } => "use `--numa-binding node`",
        })
    })?;
    Ok((shares, Vec::new()))
}

/// Removes memory bindings that the kernel denies. Containers without privileges may not choose
/// memory; their workers are bound to processors only.
fn drop_denied_memory(shares: &mut [CoreShare]) -> Vec<String> {
    let mut notes = Vec::new();
    for share in shares {
        let Some(memory) = &share.memory else { continue };
        if let Err(error) = memory_policy(memory).check_allowed() {
            notes = vec![format!(
                "memory cannot be bound: {}; workers are bound to processors only",
                show_io_error(&error)
            )];
            share.memory = None;
        }
    }
    notes
}

/// Converts the memory share to the kernel's policy.
pub(super) fn memory_policy(memory: &NumaMemory) -> MemoryPolicy {
    match memory {
        NumaMemory::Bind(nodes) => MemoryPolicy::bind(nodes),
        NumaMemory::Prefer(node) => MemoryPolicy::prefer(*node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No kernel has this many memory nodes: it refuses the binding, as in a container.
    #[test]
    fn denied_memory_binding_is_a_note() {
        let bound = |memory| CoreShare { cpus: vec![0], memory };
        let mut shares = [bound(Some(NumaMemory::Bind(vec![8000]))), bound(None)];
        let notes = drop_denied_memory(&mut shares);
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.starts_with("memory cannot be bound: "), "{note}");
        assert!(note.ends_with("; workers are bound to processors only"), "{note}");
        assert_eq!(shares, [bound(None), bound(None)]);
    }
}
