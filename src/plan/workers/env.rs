//! The environment of a worker: the variables of DeepSpeed and of torchrun, so that scripts written
//! for either run unchanged.

use std::ffi::OsStr;

use crate::base::env_vars;
use crate::plan::accelerator::Accelerator;
use crate::plan::spec::{JobSpec, MasterAddr};
use crate::plan::workers::env_value::EnvValue;
use crate::plan::workers::export::Export;
use crate::plan::workers::template::{TemplateEnv, TemplateValue};

/// The variables of every worker; the user's override remuda's.
pub(crate) fn job_env(spec: &JobSpec, world_size: u32) -> TemplateEnv {
    let mut env = TemplateEnv::new();
    let nodes = spec.nodes.len();
    set(&mut env, env_vars::WORLD_SIZE, &world_size);
    set(&mut env, env_vars::CROSS_SIZE, &nodes);
    set(&mut env, env_vars::GROUP_WORLD_SIZE, &nodes);
    set(&mut env, env_vars::ROLE_NAME, &"default");
    set(&mut env, env_vars::ROLE_WORLD_SIZE, &world_size);
    // `WorkerPlan::bind` replaces the count in a later epoch.
    set(&mut env, env_vars::TORCHELASTIC_RESTART_COUNT, &0);
    set(&mut env, env_vars::TORCHELASTIC_MAX_RESTARTS, &spec.restarts_max);
    // Rank 0 serves torch's store itself; with `True` torch would wait for torchrun's.
    set(&mut env, env_vars::TORCHELASTIC_USE_AGENT_STORE, &"False");
    let mut symbolic = |name: &str, value| env.insert(name.into(), TemplateValue::Same(value));
    symbolic(env_vars::TORCHELASTIC_RUN_ID, EnvValue::JobId);
    symbolic(env_vars::REMUDA_JOB, EnvValue::JobId);
    symbolic(env_vars::TORCHELASTIC_ERROR_FILE, EnvValue::ErrorFile);
    symbolic(env_vars::MASTER_ADDR, master_addr(&spec.master_addr));
    symbolic(env_vars::MASTER_PORT, master_port(spec.master_port));
    symbolic(env_vars::OMP_NUM_THREADS, EnvValue::ThreadShare);
    // As in torchrun: NCCL's watchdog aborts collectives that hang.
    symbolic(env_vars::TORCH_NCCL_ASYNC_ERROR_HANDLING, EnvValue::IfUnset("1".into()));
    if spec.accelerator == Accelerator::Cpu {
        // Without it a script that uses accelerate forms no process group on a machine without
        // devices: every worker would train a separate copy.
        symbolic(env_vars::ACCELERATE_USE_CPU, EnvValue::IfUnset("true".into()));
    }
    add_worker_variables(&mut env, spec.accelerator);
    for Export { name, value, .. } in &spec.exports {
        env.insert(name.clone(), TemplateValue::Same(EnvValue::Known(value.clone())));
    }
    env
}

/// Adds the variables that differ between workers or nodes.
fn add_worker_variables(env: &mut TemplateEnv, accelerator: Accelerator) {
    let mut blank = |names: &[&str], variable: &TemplateValue| {
        for name in names {
            env.insert(name.into(), variable.clone());
        }
    };
    blank(&[env_vars::RANK, env_vars::ROLE_RANK], &TemplateValue::Rank);
    blank(&[env_vars::LOCAL_RANK], &TemplateValue::LocalRank);
    let of_node = [env_vars::NODE_RANK, env_vars::GROUP_RANK, env_vars::CROSS_RANK];
    blank(&of_node, &TemplateValue::NodeRank);
    blank(&[env_vars::LOCAL_SIZE, env_vars::LOCAL_WORLD_SIZE], &TemplateValue::LocalSize);
    // All slots of the node, for every accelerator: DeepSpeed sets the variable for CPU slots as
    // well, and a script picks its device by LOCAL_RANK.
    blank(accelerator.visible_devices(), &TemplateValue::Devices);
}

/// Whether only remuda may set a variable.
pub(crate) fn is_reserved(name: &OsStr) -> bool {
    env_vars::RESERVED.iter().any(|reserved| *reserved == name)
}

fn set(env: &mut TemplateEnv, name: &str, value: &impl ToString) {
    env.insert(name.into(), TemplateValue::Same(EnvValue::Known(value.to_string().into())));
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
