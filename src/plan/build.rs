//! Builder of a `LaunchPlan` from a `JobSpec`.

use std::ffi::OsStr;
use std::sync::Arc;

use crate::base::{HostName, LocalRank, NodeRank, Rank, Slot, Status};

use super::check;
use super::env;
use super::launch_plan::{LaunchPlan, NodePlan, WorkerPlan};
use super::spec::JobSpec;
use super::template::{NodeShare, Template};

/// Limit of the workers of a job.
pub const WORKERS_MAX: u32 = 1 << 20;

/// Why a spec has no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A job without hosts.
    #[error("the job has no hosts")]
    NoNodes,
    /// A host without a slot.
    #[error("host `{host}` has no slots")]
    NoSlots {
        /// Name of the host without slots.
        host: HostName,
    },
    /// Two nodes with the same name, which could not be told apart.
    #[error("host `{host}` is listed twice")]
    DuplicateHost {
        /// Name that two nodes have.
        host: HostName,
    },
    /// More than [`WORKERS_MAX`].
    #[error("{workers} workers are more than the limit {WORKERS_MAX}")]
    TooManyWorkers {
        /// The number of workers.
        workers: usize,
    },
    /// The user set a variable that identifies a worker, which only remuda sets.
    #[error("`{name}` is set by remuda itself; it cannot be exported")]
    Reserved {
        /// Name of the variable.
        name: String,
    },
    /// A variable name that is empty, has `=`, or is not text.
    #[error("`{name}` is not a variable name")]
    BadName {
        /// The invalid name.
        name: String,
    },
    /// A value with a NUL byte, which cannot be passed to a process.
    #[error("the value of `{name}` has a NUL byte")]
    NulInValue {
        /// Name of the variable.
        name: String,
    },
    /// A variable too long for the kernel.
    #[error("variable `{name}` is {bytes} bytes with its value; the limit of Linux is 131071")]
    ValueTooLong {
        /// Name of the variable.
        name: String,
        /// Length of name, `=` and value.
        bytes: usize,
    },
    /// An empty program name.
    #[error("the name of the program is empty")]
    EmptyProgram,
    /// An argument with a NUL byte, which cannot be passed to a process.
    #[error("argument {index} has a NUL byte")]
    NulInArgument {
        /// Position in the command; 0 is the program.
        index: usize,
    },
    /// An argument too long for the kernel.
    #[error("argument {index} is {bytes} bytes; the limit of Linux is 131071")]
    ArgumentTooLong {
        /// Position in the command; 0 is the program.
        index: usize,
        /// Length in bytes.
        bytes: usize,
    },
}

impl PlanError {
    /// The exit status of remuda after this error.
    pub fn status(&self) -> Status {
        match self {
            Self::TooManyWorkers { .. }
            | Self::ValueTooLong { .. }
            | Self::ArgumentTooLong { .. } => Status::OsLimit,
            Self::NoNodes
            | Self::NoSlots { .. }
            | Self::DuplicateHost { .. }
            | Self::Reserved { .. }
            | Self::BadName { .. }
            | Self::NulInValue { .. }
            | Self::EmptyProgram
            | Self::NulInArgument { .. } => Status::Usage,
        }
    }
}

/// Plans the ranks, command and environment of every worker. Ranks are dense and follow the order
/// of the hosts, then that of their slots; so do local ranks, where DeepSpeed's modulo would rotate
/// them on uneven nodes.
pub fn plan(spec: &JobSpec) -> Result<LaunchPlan, PlanError> {
    let world_size = check::world_size(spec)?;
    check::exports(&spec.exports)?;
    let template = Template::new(&spec.program, &spec.args, env::job_env(spec, world_size));
    // The arguments of the workers differ in a number only, so one check is enough.
    check::argv(template.argv(LocalRank(0)))?;
    let template = Arc::new(template);
    let mut ranks = (0..).map(Rank);
    let mut nodes: Vec<NodePlan> = Vec::with_capacity(spec.nodes.len());
    let mut previous_devices: Option<Arc<OsStr>> = None;
    for (node_rank, (host, slots)) in (0..).map(NodeRank).zip(&spec.nodes) {
        let has_same_slots = nodes.last().is_some_and(|node| node.slots == *slots);
        let devices = previous_devices.filter(|_| has_same_slots);
        let devices = devices.unwrap_or_else(|| device_list(slots, &spec.device_names));
        previous_devices = Some(Arc::clone(&devices));
        let (template, local_size) = (Arc::clone(&template), slots.len());
        let share = Arc::new(NodeShare { template, node_rank, local_size, devices });
        let mut workers = Vec::with_capacity(slots.len());
        for ((local_rank, &slot), rank) in (0..).map(LocalRank).zip(slots).zip(&mut ranks) {
            workers.push(WorkerPlan { rank, local_rank, slot, share: Arc::clone(&share) });
        }
        nodes.push(NodePlan { node_rank, host: host.clone(), slots: slots.clone(), workers });
    }
    Ok(LaunchPlan {
        master_addr: spec.master_addr.clone(),
        master_port: spec.master_port,
        world_size,
        nodes,
        origins: spec
            .exports
            .iter()
            .map(|export| (export.name.clone(), export.origin.clone()))
            .collect(),
    })
}

/// The list of devices, `0,1,2`: every worker of a node sees all devices of the job there, as in
/// DeepSpeed.
fn device_list(slots: &[Slot], names: &[String]) -> Arc<OsStr> {
    let name =
        |slot: &Slot| names.get(slot.0 as usize).cloned().unwrap_or_else(|| slot.to_string());
    let names = slots.iter().map(name).collect::<Vec<_>>().join(",");
    OsStr::new(&names).into()
}
