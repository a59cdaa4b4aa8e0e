//! The environment of a worker: the variables of DeepSpeed and of torchrun, so that scripts written
//! for either run unchanged.

use std::ffi::OsStr;

use crate::base::env_vars;
use crate::plan::accelerator::Accelerator;
use crate::plan::spec::{Conventions, JobSpec, MasterAddr, RendezvousPort, TorchrunConventions};
use crate::plan::workers::env_value::EnvValue;
use crate::plan::workers::export::Export;
use crate::plan::workers::template::{TemplateEnv, TemplateValue};

/// The variables of every worker; the user's override remuda's.
pub(crate) fn job_env(spec: &JobSpec) -> TemplateEnv {
    let mut env = own_env();
    match &spec.conventions {
        Conventions::DeepSpeed => {
            add_group_variables(&mut env, spec);
            add_deepspeed_variables(&mut env, spec);
        }
        Conventions::Torchrun(torchrun) => {
            add_group_variables(&mut env, spec);
            add_torchrun_variables(&mut env, spec, torchrun);
        }
        // A script that sees a rank would form a group.
        Conventions::OneProcess => {}
    }
    for Export { name, value, .. } in &spec.exports {
        env.insert(name.clone(), TemplateValue::Same(EnvValue::Known(value.clone())));
    }
    env
}

/// The variables of every program.
fn own_env() -> TemplateEnv {
    let own = [
        (env_vars::REMUDA_JOB, EnvValue::JobId),
        (env_vars::TORCHELASTIC_ERROR_FILE, EnvValue::ErrorFile),
    ];
    own.map(|(name, value)| (name.into(), TemplateValue::Same(value))).into()
}

/// Adds the variables of a group that torchrun and remuda set in the same way.
fn add_group_variables(env: &mut TemplateEnv, spec: &JobSpec) {
    set_all(env, &[env_vars::WORLD_SIZE, env_vars::ROLE_WORLD_SIZE], &TemplateValue::WorldSize);
    set_all(env, &[env_vars::GROUP_WORLD_SIZE], &TemplateValue::NodeCount);
    // `WorkerPlan::bind` replaces the count in a later epoch.
    set(env, env_vars::TORCHELASTIC_RESTART_COUNT, &0);
    set(env, env_vars::TORCHELASTIC_MAX_RESTARTS, &spec.restarts_max);
    // Rank 0 serves torch's store itself; with `True` torch would wait for torchrun's.
    set(env, env_vars::TORCHELASTIC_USE_AGENT_STORE, &"False");
    let mut symbolic = |name: &str, value| env.insert(name.into(), TemplateValue::Same(value));
    symbolic(env_vars::MASTER_ADDR, master_addr(&spec.master_addr));
    symbolic(env_vars::MASTER_PORT, master_port(spec.master_port));
    // As in torchrun: NCCL's watchdog aborts collectives that hang.
    symbolic(env_vars::TORCH_NCCL_ASYNC_ERROR_HANDLING, EnvValue::IfUnset("1".into()));
    set_all(env, &[env_vars::RANK, env_vars::ROLE_RANK], &TemplateValue::Rank);
    set_all(env, &[env_vars::LOCAL_RANK], &TemplateValue::LocalRank);
    set_all(env, &[env_vars::GROUP_RANK], &TemplateValue::NodeRank);
    set_all(env, &[env_vars::LOCAL_WORLD_SIZE], &TemplateValue::LocalSize);
}

/// Adds the variables that only DeepSpeed's launcher sets, and what remuda sets beside them.
fn add_deepspeed_variables(env: &mut TemplateEnv, spec: &JobSpec) {
    set_all(env, &[env_vars::CROSS_SIZE], &TemplateValue::NodeCount);
    set(env, env_vars::ROLE_NAME, &"default");
    let mut symbolic = |name: &str, value| env.insert(name.into(), TemplateValue::Same(value));
    symbolic(env_vars::TORCHELASTIC_RUN_ID, EnvValue::JobId);
    symbolic(env_vars::OMP_NUM_THREADS, EnvValue::ThreadShare);
    // Without it a script that uses accelerate forms no process group on a machine without devices: every
    // worker would train a separate copy.
    let uses_cpu = match spec.accelerator {
        Accelerator::Cpu => Some(EnvValue::IfUnset("true".into())),
        Accelerator::GpuIfAny => Some(EnvValue::IfNoGpu("true".into())),
        _ => None,
    };
    if let Some(uses_cpu) = uses_cpu {
        symbolic(env_vars::ACCELERATE_USE_CPU, uses_cpu);
    }
    set_all(env, &[env_vars::NODE_RANK, env_vars::CROSS_RANK], &TemplateValue::NodeRank);
    set_all(env, &[env_vars::LOCAL_SIZE], &TemplateValue::LocalSize);
    // All slots of the node, for every accelerator: DeepSpeed sets the variable for CPU slots as
    // well, and a script picks its device by LOCAL_RANK.
    set_all(env, spec.accelerator.visible_devices(), &TemplateValue::Devices);
}

/// Adds the variables that torchrun sets otherwise than DeepSpeed's launcher. Devices are those of
/// the environment.
fn add_torchrun_variables(env: &mut TemplateEnv, spec: &JobSpec, torchrun: &TorchrunConventions) {
    set(env, env_vars::ROLE_NAME, &torchrun.role);
    let run_id = match &torchrun.run_id {
        Some(run_id) => EnvValue::Known(run_id.into()),
        None => EnvValue::JobId,
    };
    env.insert(env_vars::TORCHELASTIC_RUN_ID.into(), TemplateValue::Same(run_id));
    set(env, env_vars::TORCHELASTIC_SIGNALS_TO_HANDLE, &torchrun.signals);
    if spec.nodes.iter().any(|(_, slots)| 1 < slots.len()) {
        let one = TemplateValue::Same(EnvValue::IfUnset("1".into()));
        env.insert(env_vars::OMP_NUM_THREADS.into(), one);
    }
    if let Some(devices) = &torchrun.virtual_devices {
        set(env, env_vars::LOCAL_RANK, &0);
        let own = TemplateValue::OneOf(devices.iter().map(Into::into).collect());
        env.insert(env_vars::CUDA_VISIBLE_DEVICES.into(), own);
    }
}

fn set_all(env: &mut TemplateEnv, names: &[&str], variable: &TemplateValue) {
    for name in names {
        env.insert(name.into(), variable.clone());
    }
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

fn master_port(given: RendezvousPort) -> EnvValue {
    match given.given() {
        Some(port) => EnvValue::Known(port.to_string().into()),
        None => EnvValue::MasterPort,
    }
}
