//! The nodes that a scheduler allocated to the job of which this process is a part.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::base::env_vars;
use crate::cli::resolve::hostfile::{self, LoadError};
use crate::cli::resolve::trust::Trust;
use crate::pool::{Dialect, ReadOptions, Reading, SlotCount, read_any};
use crate::transport::manager::GpuCounts;

/// The nodes of an allocation, and the scheduler.
pub(super) struct SchedulerAllocation {
    pub(in crate::cli) reading: Reading,
    /// Name of the allocation: `Slurm job 17`.
    pub(in crate::cli) origin: String,
}

/// Result of the search for an allocation in the environment.
pub(super) enum AllocationSource {
    /// No scheduler was found.
    NotFound,
    /// The nodes of the allocation.
    Nodes(Box<SchedulerAllocation>),
    /// The scheduler has started several processes of remuda, of which this is one.
    OneTaskOfMany(StepTask),
}

/// One of several processes that a process manager started with the same line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepTask {
    /// Number of the task, from 0.
    pub(in crate::cli) number: u32,
    /// Number of the task among those on its host, from 0.
    pub(in crate::cli) local: u32,
    /// Number of tasks.
    pub(in crate::cli) count: usize,
    /// What the tasks belong to: `Slurm step 17.0`.
    pub(in crate::cli) group: String,
    /// Public name of the job that the tasks form: `slurm-17.0`.
    pub(in crate::cli) run_id: String,
    /// The node of task 0, if it is known.
    pub(in crate::cli) first_host: Option<String>,
}

/// Beginning of the name of a job whose nodes are tasks of Slurm.
const SLURM_RUN: &str = "slurm-";

/// Variables of Slurm about nodes and the number of workers on each.
const SLURM: [&str; 6] = [
    env_vars::SLURM_STEP_NODELIST,
    env_vars::SLURM_JOB_NODELIST,
    env_vars::SLURM_GPUS_PER_NODE,
    env_vars::SLURM_GPUS_ON_NODE,
    env_vars::SLURM_STEP_TASKS_PER_NODE,
    env_vars::SLURM_TASKS_PER_NODE,
];

/// Those about tasks of each node.
const TASKS: [&str; 2] = [env_vars::SLURM_STEP_TASKS_PER_NODE, env_vars::SLURM_TASKS_PER_NODE];

/// Whether Slurm gave the nodes GPUs.
fn has_gpus() -> bool {
    [env_vars::SLURM_GPUS_PER_NODE, env_vars::SLURM_GPUS_ON_NODE]
        .into_iter()
        .any(|name| env_vars::get_of_slurm(name).is_some())
}

/// Finds the allocation in the variables of each scheduler in turn. Nodes without a number of slots
/// get `slots`.
pub(super) fn find(trust: Trust, slots: Option<SlotCount>) -> Result<AllocationSource, LoadError> {
    let options = |dialect| ReadOptions { dialect: Some(dialect), slots, ..ReadOptions::default() };
    if is_in_slurm() {
        return slurm(options(Dialect::Slurm));
    }
    if let Some(file) = file(env_vars::PBS_NODEFILE) {
        return from_file(&file, trust, options(Dialect::Pbs));
    }
    // This variable is preferred to the file: it has no line for each slot, and LSF sets it for
    // jobs of any size.
    if let Some(hosts) = text(env_vars::LSB_MCPU_HOSTS) {
        let text = format!("{}={hosts}\n", env_vars::LSB_MCPU_HOSTS);
        return from_text(&text, options(Dialect::Lsf));
    }
    if let Some(file) = file(env_vars::LSB_DJOB_HOSTFILE) {
        return from_file(&file, trust, options(Dialect::Lsf));
    }
    if let Some(file) = file(env_vars::PE_HOSTFILE) {
        return from_file(&file, trust, options(Dialect::Sge));
    }
    Ok(AllocationSource::NotFound)
}

/// Whether this process is in an allocation of Slurm that names its nodes.
pub(super) fn is_in_slurm() -> bool {
    env_vars::get_of_slurm(env_vars::SLURM_JOB_NODELIST).is_some()
}

fn text(name: &str) -> Option<String> {
    env_vars::get_text(name)
}

fn file(name: &str) -> Option<PathBuf> {
    env_vars::get(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn slurm(options: ReadOptions) -> Result<AllocationSource, LoadError> {
    let mut assignments = String::new();
    // Tasks of an allocation are a default of Slurm, which the number that the user types replaces.
    let is_counted = options.slots.is_some() && !has_gpus();
    let names = SLURM.into_iter().filter(|name| !(is_counted && TASKS.contains(name)));
    for name in names {
        if let Some(value) = env_vars::get_of_slurm(name) {
            writeln!(assignments, "{name}={value}").expect("writing to a String cannot fail");
        }
    }
    let found = from_text(&assignments, options)?;
    match (found, tasks()) {
        (AllocationSource::Nodes(found), Some((number, count))) => {
            let number_of = |name| text(name).unwrap_or_default();
            let (job, step) =
                (number_of(env_vars::SLURM_JOB_ID), number_of(env_vars::SLURM_STEP_ID));
            let nodes = found.reading.hostfile.pool();
            Ok(AllocationSource::OneTaskOfMany(StepTask {
                number,
                local: number_of(env_vars::SLURM_LOCALID).parse().unwrap_or(0),
                count,
                group: format!("Slurm step {job}.{step}"),
                run_id: format!("{SLURM_RUN}{job}.{step}"),
                first_host: nodes.nodes().first().map(|(host, _)| host.to_string()),
            }))
        }
        (found, _) => Ok(found),
    }
}

/// Whether this name of a job is that of a step of Slurm.
pub(super) fn is_slurm_run(run_id: &str) -> bool {
    run_id.starts_with(SLURM_RUN)
}

/// Number of this task and of all tasks of the step, if there are several.
fn tasks() -> Option<(u32, usize)> {
    let count = text(env_vars::SLURM_STEP_NUM_TASKS)?.parse::<usize>().ok()?;
    let number = text(env_vars::SLURM_PROCID)?.parse::<u32>().ok()?;
    (1 < count && (number as usize) < count).then_some((number, count))
}

/// Returns why the numbers of GPUs of the nodes are not known, although Slurm gave the job GPUs: the nodes
/// have different numbers, and Slurm tells only that of this node.
pub(super) fn unlike_nodes() -> Option<String> {
    let counts = GpuCounts::of_environment();
    let (here, all, nodes) = (counts.here?, counts.all?, counts.nodes?);
    counts.of_each_node().is_none().then(|| {
        format!("the {nodes} nodes have {all} GPUs, this one has {here}: the numbers differ")
    })
}

/// Returns a note about a heterogeneous job, of which remuda uses the nodes of one component, or of the step in which it
/// runs.
pub(super) fn component_note() -> Option<String> {
    let components = text(env_vars::SLURM_HET_SIZE)?.parse::<u32>().ok()?;
    let used = if text(env_vars::SLURM_STEP_NODELIST).is_some() {
        "the nodes of this step"
    } else {
        "the nodes of the first one"
    };
    (1 < components)
        .then(|| format!("note: the Slurm job has {components} components; {used} are used\n"))
}

fn from_text(text: &str, options: ReadOptions) -> Result<AllocationSource, LoadError> {
    let reading = read_any("environment", text.as_bytes(), options);
    if reading.findings.has_errors() {
        return Err(LoadError::Malformed(reading.findings));
    }
    Ok(nodes(reading))
}

fn from_file(
    path: &Path,
    trust: Trust,
    options: ReadOptions,
) -> Result<AllocationSource, LoadError> {
    hostfile::load(path, trust, options).map(nodes)
}

fn nodes(reading: Reading) -> AllocationSource {
    let origin = origin(reading.dialect);
    AllocationSource::Nodes(Box::new(SchedulerAllocation { reading, origin }))
}

fn origin(dialect: Dialect) -> String {
    match text(env_vars::SLURM_JOB_ID).filter(|_| dialect == Dialect::Slurm) {
        Some(job) => format!("allocation of Slurm job {job}"),
        None => format!("allocation of {dialect}"),
    }
}
