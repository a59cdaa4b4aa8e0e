//! Digest of a plan in 32 bytes, which nodes compare when each computed the plan itself.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use sha2::{Digest, Sha256};

use crate::plan::workers::env_value::EnvValue;
use crate::plan::workers::export::VariableOrigin;
use crate::plan::workers::launch_plan::{LaunchPlan, NodePlan, WorkerPlan};

/// SHA-256 over nodes, slots, ranks, argv and the variables of `--env`. The rest of the environment
/// is left out: it may differ between nodes (paths).
pub fn digest(plan: &LaunchPlan) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"remuda plan 2\n");
    add_number(&mut hash, plan.world_size);
    add_number(&mut hash, plan.nodes.len() as u32);
    for node in &plan.nodes {
        add_node(&mut hash, node);
    }
    add_variables(&mut hash, plan);
    hash.finalize().into()
}

/// SHA-256 over what the line of one of several nodes decides for itself, where each starts the workers of its own line:
/// the hosts, the number of workers of each, their argv and the variables of `--env`. Slots are left out: tasks of one
/// host have different ones.
pub fn line_digest(plan: &LaunchPlan) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"remuda line 1\n");
    add_number(&mut hash, plan.nodes.len() as u32);
    for node in &plan.nodes {
        add_number(&mut hash, node.node_rank.0);
        add_text(&mut hash, node.host.as_str().as_bytes());
        add_number(&mut hash, node.workers.len() as u32);
        for worker in &node.workers {
            add_argv(&mut hash, worker);
        }
    }
    add_variables(&mut hash, plan);
    hash.finalize().into()
}

/// The variables of `--env` and of other options, the same for every worker, sorted by name.
pub(super) fn flag_variables(plan: &LaunchPlan) -> impl Iterator<Item = (&OsStr, OsString)> {
    let worker = plan.nodes.iter().find_map(|node| node.workers.first());
    let env = worker.into_iter().flat_map(WorkerPlan::env);
    env.filter_map(|(name, value)| match (plan.origins.get(name), value.into_owned()) {
        (
            Some(VariableOrigin::Flag | VariableOrigin::Option(_) | VariableOrigin::Setting(_)),
            EnvValue::Known(value),
        ) => Some((name, value)),
        _ => None,
    })
}

/// Fingerprint of a value: it distinguishes two values without revealing them.
pub(super) fn fingerprint(value: &OsStr) -> u16 {
    let digest = Sha256::digest(value.as_bytes());
    u16::from_le_bytes([digest[0], digest[1]])
}

fn add_node(hash: &mut Sha256, node: &NodePlan) {
    add_number(hash, node.node_rank.0);
    add_text(hash, node.host.as_str().as_bytes());
    add_number(hash, node.slots.len() as u32);
    for slot in &node.slots {
        add_number(hash, slot.0);
    }
    add_number(hash, node.workers.len() as u32);
    for worker in &node.workers {
        add_worker(hash, worker);
    }
}

fn add_worker(hash: &mut Sha256, worker: &WorkerPlan) {
    add_number(hash, worker.rank.0);
    add_number(hash, worker.local_rank.0);
    add_number(hash, worker.slot.0);
    add_argv(hash, worker);
}

fn add_argv(hash: &mut Sha256, worker: &WorkerPlan) {
    add_number(hash, worker.argv().count() as u32);
    for argument in worker.argv() {
        add_text(hash, argument.as_bytes());
    }
}

fn add_variables(hash: &mut Sha256, plan: &LaunchPlan) {
    for (name, value) in flag_variables(plan) {
        add_text(hash, name.as_bytes());
        add_text(hash, value.as_bytes());
    }
}

fn add_number(hash: &mut Sha256, number: u32) {
    hash.update(number.to_le_bytes());
}

/// Adds bytes with their length, so that different plans never produce the same input.
fn add_text(hash: &mut Sha256, bytes: &[u8]) {
    add_number(hash, bytes.len() as u32);
    hash.update(bytes);
}
