//! Builder of a `LaunchPlan` from a `JobSpec`.

use std::ffi::OsStr;
use std::sync::Arc;

use crate::base::{LocalRank, NodeRank, Rank, Slot};
use crate::plan::error::PlanError;
use crate::plan::spec::JobSpec;
use crate::plan::workers::launch_plan::{LaunchPlan, NodePlan, WorkerPlan};
use crate::plan::workers::template::{JobSize, NodeShare, Template};
use crate::plan::workers::{check, env};

/// Plans the ranks, command and environment of every worker. Ranks are dense and follow the order
/// of the hosts, then that of their slots; so do local ranks, where DeepSpeed's modulo would rotate
/// them on uneven nodes.
pub fn plan(spec: &JobSpec) -> Result<LaunchPlan, PlanError> {
    let world_size = check::world_size(spec)?;
    check::exports(&spec.exports)?;
    let template = Template::new(spec, env::job_env(spec));
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
        let job_size = JobSize { workers: world_size, nodes: spec.nodes.len() };
        let share = NodeShare { template, node_rank, local_size, job_size, devices };
        let share = Arc::new(share);
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
