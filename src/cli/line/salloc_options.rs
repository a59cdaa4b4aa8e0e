//! Options of `srun` that `salloc` has too. Pure.

/// An option of `srun` that `salloc` has too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SallocOption {
    /// What the job needs: GPUs, memory, time.
    Resource {
        /// Whether the option has a value.
        takes_value: bool,
    },
    /// A number of nodes or tasks.
    TaskCount,
}

/// Options for resources that have a value.
const RESOURCES: &str = "-p -A -t -q -C -J -x -c -G --partition --account --time --qos --constraint \
    --job-name --exclude --cpus-per-task --cpus-per-gpu --gpus --gpus-per-node --gpus-per-socket \
    --gpus-per-task --gres --mem --mem-per-cpu --mem-per-gpu --reservation --licenses --time-min \
    --switches --tres-per-task --ntasks-per-gpu --ntasks-per-socket --comment";
const RESOURCE_SWITCHES: &str = "--exclusive --contiguous";
const TASK_COUNTS: &str = "-N --nodes -n --ntasks --ntasks-per-node";

/// Returns what an option of `srun` means for `salloc`, if that has it.
pub(super) fn salloc_option(name: &str) -> Option<SallocOption> {
    let is_in = |names: &str| names.split_whitespace().any(|known| known == name);
    if is_in(TASK_COUNTS) {
        return Some(SallocOption::TaskCount);
    }
    let takes_value = is_in(RESOURCES);
    (takes_value || is_in(RESOURCE_SWITCHES)).then_some(SallocOption::Resource { takes_value })
}
