//! Options of other launchers and trainers, and the equivalent options of remuda: torchrun,
//! accelerate, mpirun, srun, Lightning, Horovod, and the options that users of DeepSpeed give to
//! their scripts. Pure.

use std::path::Path;

use Equivalent::{
    Devices, Endpoint, OfAccelerate, Options, Same, Script, ScriptSwitch, Selection, Total,
    Unneeded, UnneededValue,
};

use super::flags::underscored;

/// Equivalent in remuda of an option of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Equivalent {
    /// An option with the same value: `--nproc_per_node 4` is `--num_gpus 4`.
    Same(&'static str),
    /// A number of all workers, where `--num_gpus` is the number on each host.
    Total,
    /// A number of devices, or a list of devices.
    Devices,
    /// Hosts and slots that DeepSpeed's launcher uses or leaves out.
    Selection,
    /// Other options; the value replaces `{}`.
    Options(&'static str),
    /// An option of the script, with a value.
    Script,
    /// An option of the script, without a value.
    ScriptSwitch,
    /// Address and port of the first node, `HOST:PORT`.
    Endpoint,
    /// An option with a value that only lines of `accelerate launch` have.
    OfAccelerate,
    /// No equivalent is needed, for this reason; the option has no value.
    Unneeded(&'static str),
    /// No equivalent is needed, for this reason; the option has a value.
    UnneededValue(&'static str),
}

const NO_RENDEZVOUS: &str = "remuda connects the nodes without a rendezvous backend";
const MPI: &str = "remuda does not use MPI";
const RANKS: &str = "ranks follow the order of the hosts and of their slots";
const DIRECTORY: &str = "workers start in the working directory of remuda, so `cd` to it first";
const ONE_MACHINE: &str = "without `-H` the job runs on this machine";
pub(super) const SCHEDULER: &str =
    "`salloc` and `sbatch` request nodes; remuda uses those of the allocation";
/// Option for workers that use no GPU.
pub(super) const ON_CPUS: &str = "--accelerator cpu";
/// Options of `remuda run`, and those of torchrun and accelerate with the same value.
const NAMES_IN_FACES: &[(&str, &[&str])] = &[
    ("num_nodes", &["nnodes", "num_machines"]),
    ("node_rank", &["node_rank", "machine_rank"]),
    ("master_addr", &["master_addr", "main_process_ip"]),
    ("master_port", &["master_port", "main_process_port"]),
    ("job_id", &["rdzv_id"]),
];

/// Names with `_` between words, and their meaning; the first of the names is the usual one.
const EQUIVALENTS: &[(&[&str], Equivalent)] = &[
    // torchrun, accelerate, Horovod, mpirun, srun: number and place of workers.
    (
        &[
            "nproc_per_node",
            "nproc",
            "ntasks_per_node",
            "tasks_per_node",
            "gpus_per_node",
            "num_gpus_per_node",
            "gpus_per_task",
            "npernode",
            "ppn",
            "perhost",
            "n_gpus",
            "n_gpu",
            "ngpus",
            "ngpu",
            "gpu_count",
            "num_devices",
            "n_devices",
            "num_gpus",
            "num_accelerators",
        ],
        Same("num_gpus"),
    ),
    (
        &[
            "np",
            "ntasks",
            "num_processes",
            "nprocs",
            "num_procs",
            "num_proc",
            "n_procs",
            "processes",
            "world_size",
        ],
        Total,
    ),
    (
        &[
            "gpus",
            "devices",
            "gpu",
            "device",
            "gpu_ids",
            "gpu_id",
            "device_ids",
            "cuda_visible_devices",
            "visible_devices",
        ],
        Devices,
    ),
    (
        &[
            "nnodes",
            "num_machines",
            "n_nodes",
            "nr_nodes",
            "node_count",
            "nodes",
            "num_hosts",
            "num_nodes",
        ],
        Same("num_nodes"),
    ),
    (&["machine_rank", "group_rank", "node_id", "node_rank"], Same("node_rank")),
    (
        &["main_process_ip", "master", "master_ip", "master_address", "master_addr"],
        Same("master_addr"),
    ),
    (&["main_process_port", "port", "master_port"], Same("master_port")),
    (&["include", "exclude"], Selection),
    (
        &[
            "hosts",
            "host",
            "machinefile",
            "machine_file",
            "nodelist",
            "nodefile",
            "hostlist",
            "host_list",
            "hosts_file",
            "host_file",
            "default_hostfile",
        ],
        Same("hostfile"),
    ),
    (&["rdzv_endpoint"], Endpoint),
    (&["rdzv_id", "job_id"], Same("job_id")),
    (&["rdzv_backend", "rdzv_conf", "rdzv_timeout"], UnneededValue(NO_RENDEZVOUS)),
    (&["standalone", "multi_gpu", "same_network"], Unneeded(ONE_MACHINE)),
    (&["monitor_interval", "role", "start_method"], UnneededValue("it has no effect in remuda")),
    (&["redirects", "tee", "output_filename", "output"], Options("--log_dir DIR")),
    (&["time", "wall_time", "walltime", "time_limit"], Same("timeout")),
    (&["verbose", "debug"], Options("--log_level debug")),
    (&["interpreter", "python_exec", "python_path"], Same("python")),
    // accelerate launch: variables that its library reads.
    (&["mixed_precision"], Options("--env ACCELERATE_MIXED_PRECISION={}")),
    (&["use_deepspeed"], Options("--env ACCELERATE_USE_DEEPSPEED=true")),
    (&["deepspeed_config_file"], Options("--env ACCELERATE_DEEPSPEED_CONFIG_FILE={}")),
    (&["cpu", "use_cpu", "multi_cpu", "cpu_only", "no_cuda"], Options(ON_CPUS)),
    (&["use_gpu", "use_cuda", "cuda"], Unneeded("GPUs are used where there are any")),
    (&["config_file"], OfAccelerate),
    // mpirun and srun: other options.
    (&["genv", "export", "env"], Same("env")),
    (
        &["cpus_per_task", "num_cpu_threads_per_process", "omp_num_threads"],
        Options("--env OMP_NUM_THREADS={}"),
    ),
    (&["bind_to", "cpu_bind", "bind_to_core"], Options("--bind_cores_to_rank")),
    (&["mca", "map_by", "rank_by"], UnneededValue(MPI)),
    (&["rankfile"], UnneededValue(RANKS)),
    (&["wdir", "wd", "chdir"], UnneededValue(DIRECTORY)),
    // DeepSpeed's launcher.
    (&["no_local_rank"], Unneeded("scripts read LOCAL_RANK")),
    (&["no_ssh"], Unneeded("without `-H` each node has a line of its own")),
    (&["allow_run_as_root", "tag_output", "report_bindings"], Unneeded(MPI)),
    (
        &["partition", "account", "qos", "constraint", "gres", "reservation", "mem", "job_name"],
        UnneededValue(SCHEDULER),
    ),
    // DeepSpeed: options that the script reads.
    (&["deepspeed_config", "ds_config", "config", "conf", "zero_stage", "stage"], Script),
    (&["deepspeed", "deepscale", "deepspeed_mpi", "zero", "fp16", "bf16"], ScriptSwitch),
    // Options of trainers.
    (
        &["checkpoint_every", "checkpoint_interval", "save_interval", "save_steps"],
        Same("save_every"),
    ),
    (&["save_total_limit"], Same("keep")),
];

/// Whether a word is a script of Python.
pub(super) fn is_script(word: &str) -> bool {
    Path::new(word).extension().is_some_and(|end| end == "py")
}

/// Returns the meaning of a name with `_` between its words.
pub(super) fn meaning(name: &str) -> Option<Equivalent> {
    EQUIVALENTS.iter().find(|(names, _)| names.contains(&name)).map(|(_, meant)| *meant)
}

/// Returns the option of remuda with the meaning and the value of an option of another program.
pub(in crate::cli) fn option_with_meaning(name: &str) -> Option<&'static str> {
    match meaning(name)? {
        Same(option) => Some(option),
        Total | Devices | Selection | Options(_) | Script | ScriptSwitch | Endpoint
        | OfAccelerate | Unneeded(_) | UnneededValue(_) => None,
    }
}

/// Returns the names that an option of `remuda run` has in lines of torchrun and accelerate.
pub(super) fn names_in_faces(own: &'static str) -> impl Iterator<Item = &'static str> {
    let others = NAMES_IN_FACES.iter().find(|(name, _)| *name == own);
    let others = others.map(|(_, names)| names.iter().copied());
    others.into_iter().flatten().chain([own])
}

/// Returns the option of another program that was probably mistyped, with one wrong letter, or two in
/// a long name.
pub(super) fn nearest_meaning(typed: &str) -> Option<(&'static str, Equivalent)> {
    let budget = match typed.chars().count() {
        0..=5 => return None,
        6..=11 => 1,
        _ => 2,
    };
    let names =
        EQUIVALENTS.iter().flat_map(|(names, meant)| names.iter().map(move |name| (*name, *meant)));
    let costs = names.map(|(name, meant)| (strsim::osa_distance(typed, name), name, meant));
    let (cost, name, meant) = costs.min_by_key(|(cost, ..)| *cost)?;
    (cost <= budget).then_some((name, meant))
}

/// Splits `--name=value`, and `-N2` of one letter and a number.
pub(super) fn option_and_value(word: &str) -> (&str, Option<&str>) {
    if let Some((name, value)) = word.split_once('=') {
        return (name, Some(value));
    }
    let is_letter = word.as_bytes().get(1).is_some_and(u8::is_ascii_alphabetic);
    match word.get(2..).filter(|value| is_letter && value.starts_with(|c: char| c.is_ascii_digit()))
    {
        Some(value) => (&word[..2], Some(value)),
        None => (word, None),
    }
}

/// Returns the option for `gpus=8` in the place of a script: the dashes are missing.
pub(in crate::cli) fn setting_as_option(word: &str) -> Option<String> {
    let (key, value) = word.split_once('=')?;
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let key = underscored(&key.to_lowercase());
    let counts =
        EQUIVALENTS.iter().filter(|(_, meant)| matches!(meant, Same("num_gpus") | Devices));
    let mut names =
        counts.flat_map(|(names, _)| *names).copied().chain(["num_gpus", "slots", "np"]);
    (is_number && names.any(|name| name == key)).then(|| format!("--num_gpus {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_options_with_dashes() {
        assert_eq!(setting_as_option("gpus=8").as_deref(), Some("--num_gpus 8"));
        assert_eq!(setting_as_option("nproc-per-node=2").as_deref(), Some("--num_gpus 2"));
        assert_eq!(setting_as_option("lr=8"), None);
        assert_eq!(setting_as_option("gpus=all"), None);
        assert_eq!(setting_as_option("train.py"), None);
    }
}
