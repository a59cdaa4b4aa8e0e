//! The environment of a worker: DeepSpeed's variables and torchrun's, so that scripts written for
//! either run unchanged.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::base::{LocalRank, NodeRank, Rank, env_vars};

use super::export::Export;
use super::launch_plan::EnvValue;
use super::spec::{JobSpec, MasterAddr};

/// Place of a worker in the job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) rank: Rank,
    pub(super) local_rank: LocalRank,
    pub(super) node_rank: NodeRank,
    /// Workers of the node.
    pub(super) local_size: usize,
}

/// What the workers of a job, or of a node, have in common.
type Env = BTreeMap<OsString, EnvValue>;

/// The variables that are the same for every worker of the job.
pub(super) fn of_job(spec: &JobSpec, world_size: u32) -> Env {
    let mut env = Env::new();
    let nodes = spec.nodes.len();
    set(&mut env, env_vars::WORLD_SIZE, &world_size);
    set(&mut env, env_vars::CROSS_SIZE, &nodes);
    set(&mut env, env_vars::GROUP_WORLD_SIZE, &nodes);
    set(&mut env, env_vars::ROLE_NAME, &"default");
    set(&mut env, env_vars::ROLE_WORLD_SIZE, &world_size);
    env.insert(env_vars::TORCHELASTIC_RUN_ID.into(), EnvValue::JobId);
    env.insert(env_vars::REMUDA_JOB.into(), EnvValue::JobId);
    env.insert(env_vars::TORCHELASTIC_ERROR_FILE.into(), EnvValue::ErrorFile);
    // `WorkerPlan::bind` replaces the count in a later epoch.
    set(&mut env, env_vars::TORCHELASTIC_RESTART_COUNT, &0);
    set(&mut env, env_vars::TORCHELASTIC_MAX_RESTARTS, &spec.restarts_max);
    // Rank 0 serves torch's store itself; with `True` torch would wait for torchrun's.
    set(&mut env, env_vars::TORCHELASTIC_USE_AGENT_STORE, &"False");
    env.insert(env_vars::MASTER_ADDR.into(), master_addr(&spec.master_addr));
    env.insert(env_vars::MASTER_PORT.into(), master_port(spec.master_port));
    env.insert(env_vars::OMP_NUM_THREADS.into(), EnvValue::ThreadShare);
    // As torchrun: NCCL's watchdog aborts what hangs.
    let handling = EnvValue::Unless("1".into());
    env.insert(env_vars::TORCH_NCCL_ASYNC_ERROR_HANDLING.into(), handling);
    env
}

/// Adds what only this worker has, and lets the user's variables win.
pub(super) fn of_worker(
    job: &Env,
    devices: &str,
    place: Place,
    spec: &JobSpec,
) -> Vec<(OsString, EnvValue)> {
    let mut env = job.clone();
    set(&mut env, env_vars::RANK, &place.rank);
    set(&mut env, env_vars::ROLE_RANK, &place.rank);
    set(&mut env, env_vars::LOCAL_RANK, &place.local_rank);
    for name in [env_vars::NODE_RANK, env_vars::GROUP_RANK, env_vars::CROSS_RANK] {
        set(&mut env, name, &place.node_rank);
    }
    for name in [env_vars::LOCAL_SIZE, env_vars::LOCAL_WORLD_SIZE] {
        set(&mut env, name, &place.local_size);
    }
    // All slots of the node, whatever they are: DeepSpeed sets the variable for CPU slots as well,
    // and a script picks its device by LOCAL_RANK.
    for name in spec.accelerator.visible_devices() {
        set(&mut env, name, &devices);
    }
    for Export { name, value, .. } in &spec.exports {
        env.insert(name.clone(), EnvValue::Known(value.clone()));
    }
    env.into_iter().collect()
}

/// Whether a variable is not the user's to set.
pub(super) fn is_reserved(name: &OsStr) -> bool {
    env_vars::RESERVED.iter().any(|reserved| *reserved == name)
}

fn set(env: &mut Env, name: &str, value: &impl ToString) {
    env.insert(name.into(), EnvValue::Known(value.to_string().into()));
}

fn master_addr(given: &MasterAddr) -> EnvValue {
    match given {
        MasterAddr::Given(address) => EnvValue::Known(address.into()),
        MasterAddr::AskNode0 => EnvValue::MasterAddr,
    }
}

fn master_port(given: Option<u16>) -> EnvValue {
    match given {
        Some(port) => EnvValue::Known(port.to_string().into()),
        None => EnvValue::MasterPort,
    }
}
