//! Lines of `accelerate launch`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::faces::torchrun::torchrun;
use crate::support::launch::{Launch, Outcome, REMUDA, face};

/// A line of accelerate whose workers run a line of `sh`.
fn accelerate(options: &[&str], script: &str) -> Launch {
    let launch = face("accelerate").option("launch").options(options).option("--no_python");
    launch.env("HF_HOME", "/nonexistent").under("unset OMP_NUM_THREADS").sh(script)
}

/// Prints the variables that accelerate reads or that make a group, `NAME=VALUE`, sorted.
const PRINT: &str =
    "env | grep -E '^(ACCELERATE|FSDP|PARALLELISM|RANK=|WORLD_SIZE=|OMP|KMP|CUDA_V)' | sort";

/// Writes a configuration file into the directory of a launch.
fn config(launch: &Launch, text: &str) -> PathBuf {
    let path = launch.dir().join("config.yaml");
    fs::write(&path, text).expect("the configuration file");
    path
}

/// Starts a line with a configuration file.
fn with_config(text: &str, options: &[&str], script: &str) -> Outcome {
    let launch = face("accelerate").option("launch");
    let path = config(&launch, text);
    let launch = launch.option("--config_file").options([path]).options(options);
    launch.option("--no_python").under("unset OMP_NUM_THREADS").sh(script).end()
}

#[track_caller]
fn assert_lines(outcome: &Outcome, expected: &str) {
    let text = outcome.stdout_text();
    let found: Vec<&str> = text.lines().collect();
    assert_eq!(found, expected.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn single_process_has_no_rank() {
    let outcome = accelerate(&[], PRINT).end().code(0);
    assert_lines(
        &outcome,
        "ACCELERATE_DYNAMO_BACKEND=NO ACCELERATE_DYNAMO_MODE=default
         ACCELERATE_DYNAMO_USE_DYNAMIC=False ACCELERATE_DYNAMO_USE_FULLGRAPH=False
         ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION=False ACCELERATE_MIXED_PRECISION=no
         ACCELERATE_USE_CPU=False OMP_NUM_THREADS=1",
    );
}

#[test]
fn backend_of_dynamo_that_accelerate_misspells_is_corrected() {
    for name in ["torhchxla_trace_once", "torchxla_trace_once"] {
        let options = ["--dynamo_backend", name];
        let outcome = accelerate(&options, "echo $ACCELERATE_DYNAMO_BACKEND").end().code(0);
        assert_eq!(outcome.stdout_text(), "TORCHXLA_TRACE_ONCE\n");
    }
    let outcome = accelerate(&["--dynamo_backend", "neuron"], "true").end().code(2);
    outcome.says("aot_torchxla_trace_once, torchxla_trace_once, torhchxla_trace_once, tvm\n");
}

#[test]
fn fsdp_settings_are_variables() {
    let options =
        ["--num_processes=1", "--use_fsdp", "--fsdp-version", "2", "--mixed_precision=bf16"];
    let outcome = accelerate(&options, PRINT).end().code(0);
    assert_lines(
        &outcome,
        "ACCELERATE_DYNAMO_BACKEND=NO ACCELERATE_DYNAMO_MODE=default
         ACCELERATE_DYNAMO_USE_DYNAMIC=False ACCELERATE_DYNAMO_USE_FULLGRAPH=False
         ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION=False ACCELERATE_MIXED_PRECISION=bf16
         ACCELERATE_USE_FSDP=true FSDP_ACTIVATION_CHECKPOINTING=false
         FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD=false
         FSDP_CPU_RAM_EFFICIENT_LOADING=true FSDP_FORWARD_PREFETCH=false
         FSDP_MIN_NUM_PARAMS=100000000 FSDP_OFFLOAD_PARAMS=false FSDP_RESHARD_AFTER_FORWARD=true
         FSDP_SHARDING_STRATEGY=FULL_SHARD FSDP_SYNC_MODULE_STATES=true FSDP_USE_ORIG_PARAMS=true
         FSDP_VERSION=2 OMP_NUM_THREADS=1 RANK=0 WORLD_SIZE=1",
    );
}

/// A file that `accelerate config` wrote for DeepSpeed.
const DEEPSPEED: &str = "\
compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  gradient_accumulation_steps: 1
  gradient_clipping: 1.0
  offload_optimizer_device: cpu
  offload_param_device: cpu
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_training_function: main
mixed_precision: 'no'
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
";

#[test]
fn file_gives_settings_and_the_line_outranks_it() {
    let script = "test $RANK = 0 || exit 0; env | grep -E '^(ACCELERATE|WORLD_SIZE)' | sort";
    let outcome = with_config(DEEPSPEED, &["--zero_stage", "2"], script).code(0);
    assert_lines(
        &outcome,
        "ACCELERATE_CONFIG_DS_FIELDS=gradient_accumulation_steps,gradient_clipping,\
         offload_optimizer_device,offload_param_device,zero3_init_flag,zero3_save_16bit_model,\
         zero_stage,mixed_precision
         ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE=cpu
         ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE=cpu ACCELERATE_DEEPSPEED_ZERO3_INIT=true
         ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL=true
         ACCELERATE_DEEPSPEED_ZERO_STAGE=2 ACCELERATE_GRADIENT_ACCUMULATION_STEPS=1
         ACCELERATE_GRADIENT_CLIPPING=1.0 ACCELERATE_MIXED_PRECISION=no
         ACCELERATE_USE_DEEPSPEED=true WORLD_SIZE=2",
    );
}

/// accelerate writes YAML, and reads a JSON file only if the line names it.
#[test]
fn default_file_is_yaml() {
    let started = |name: &str| {
        let launch = face("accelerate").option("launch").option("--no_python");
        let home = launch.dir().join("hub");
        let text = "{\"distributed_type\": \"MULTI_GPU\", \"num_processes\": 2}";
        fs::create_dir_all(home.join("accelerate")).expect("a directory");
        fs::write(home.join("accelerate").join(name), text).expect("the file");
        let outcome = launch.env("HF_HOME", &home).sh("echo $WORLD_SIZE").end().code(0);
        outcome.stdout_text().lines().count()
    };
    assert_eq!(started("default_config.yaml"), 2);
    assert_eq!(started("default_config.json"), 1);
}

#[test]
fn devices_of_the_file_have_the_variable_of_their_kind() {
    let text = "distributed_type: MULTI_NPU\nnum_processes: 2\ngpu_ids: '0,1'\n";
    let script = "test $RANK = 0 && echo $ASCEND_RT_VISIBLE_DEVICES ${CUDA_VISIBLE_DEVICES-none}";
    let outcome = with_config(text, &[], &format!("{script} || true")).code(0);
    assert_eq!(outcome.stdout_text(), "0,1 none\n");
}

#[test]
fn workers_on_cpus_are_a_group() {
    let script = "echo $RANK $WORLD_SIZE $ACCELERATE_USE_CPU $KMP_BLOCKTIME";
    // Without a GPU, they are on CPUs anyway.
    for options in [&["--cpu", "--num_processes", "2"][..], &["--num_processes", "2"]] {
        let launch = accelerate(options, script).env("CUDA_VISIBLE_DEVICES", "");
        let outcome = launch.env("ZE_AFFINITY_MASK", "").end().code(0);
        let mut lines: Vec<String> = outcome.stdout_text().lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["0 2 True 1", "1 2 True 1"], "{options:?}");
    }
}

#[test]
fn every_problem_of_a_file_is_shown() {
    let text = "distributed_type: MULTI_GPU\nnum_proceses: 2\nfsdp_config:\n  colour: red\n\
                num_machines: '1'\nmain_process_port: many\n";
    let outcome = with_config(text, &[], "true").code(65);
    let outcome = outcome.says("error[A002]: unknown key `num_proceses`\n");
    drop(outcome.says(":2:1\n").says("help: did you mean `num_processes`?\n"));
    let text = "distributed_type: NO\nmain_process_port: many\n";
    let outcome = with_config(text, &[], "true").code(65);
    drop(
        outcome.says("error[A003]: the value of `main_process_port` is invalid\n").says("2 | main"),
    );
    let outcome = with_config("num_processes: 2\n", &[], "true").code(65);
    drop(outcome.says("the key `distributed_type` is missing"));
    let outcome = with_config("a: [1\n", &[], "true").code(65).says("error[A001]: ");
    assert_eq!(outcome.stdout_text(), "");
}

#[test]
fn port_that_cannot_be_used_is_shown_where_it_is() {
    let outcome = accelerate(&["--cpu", "--main_process_port", "99999"], "true").end().code(2);
    drop(
        outcome
            .says("error[C006]: `main_process_port` is 99999\n")
            .says("--main_process_port 99999 ")
            .says("^^^^^ expected a number from 0 to 65535\n"),
    );
    let text = "distributed_type: MULTI_CPU\nnum_machines: 2\nnum_processes: 2\n\
                main_process_ip: n1\nmain_process_port: 65536\n";
    let outcome = with_config(text, &[], "true").code(65);
    drop(outcome.says("5 | main_process_port: 65536\n").says("from 0 to 65535\n"));
}

#[test]
fn unknown_key_of_a_mapping_is_a_warning() {
    let text = "distributed_type: NO\nfsdp_config:\n  colour: red\n";
    let outcome = with_config(text, &[], "echo ran").code(0);
    let outcome = outcome.says("warning[A002]: the key `colour` of `fsdp_config` is unknown");
    assert_eq!(outcome.stdout_text(), "ran\n");
}

#[test]
fn values_and_contradictions_are_refused_with_their_place() {
    let refused = |options: &[&str], screen: &str| {
        let outcome = accelerate(options, "echo started").end().code(2).says(screen);
        assert_eq!(outcome.stdout_text(), "");
    };
    refused(&["--num_processes", "x"], "error[C006]: `--num_processes` cannot be `x`\n");
    refused(&["--mixed_precision", "fp9"], "expected one of no, fp16, bf16, fp8");
    refused(&["--cpu", "--multi_gpu"], "`--multi_gpu` and `--cpu` cannot be combined");
    refused(&["--tpu"], "error[C009]: `--tpu` is not supported\n");
    refused(
        &["--num_machines", "2", "--num_processes", "2", "--machine_rank", "0"],
        "help: give `--main_process_ip HOST --machine_rank N` on every machine, or `-H n1,n2` on one\n",
    );
    refused(&["--num_proc", "2"], "error[C001]: ");
}

#[test]
fn deepspeed_on_several_machines_is_a_line_of_run() {
    let options =
        ["--use_deepspeed", "--num_machines=2", "--num_processes=4", "--dry-run", "--json"];
    let launch = face("accelerate").option("launch").options(options).option("--no_python");
    let hosts = launch.dir().join("hosts");
    fs::write(&hosts, "n1 slots=2\nn2 slots=2\n").expect("the hostfile");
    let launch = launch.option("--deepspeed_hostfile").options([hosts]);
    let outcome = launch.env("HF_HOME", "/nonexistent").sh("true").end().code(0);
    let plan: serde_json::Value = serde_json::from_str(outcome.stdout_text()).expect("a plan");
    assert_eq!(plan["world_size"], 4);
    let shown = outcome.stdout_text().to_owned();
    assert!(shown.contains("ACCELERATE_USE_DEEPSPEED"), "{shown}");
}

#[test]
fn machines_are_the_hosts_of_the_line() {
    #[track_caller]
    fn check(hosts: &str, further: &[&str], expect: usize) {
        let options = ["launch", "-H", hosts, "--num_processes", "4", "--dry-run", "--json"];
        let launch = face("accelerate").options(options).options(further).option("--no_python");
        let outcome = launch.env("HF_HOME", "/nonexistent").sh("true").end().code(0);
        let plan: serde_json::Value = serde_json::from_str(outcome.stdout_text()).expect("a plan");
        assert_eq!(plan["world_size"], expect, "for `-H {hosts}` with {further:?}");
    }
    check("n1,n2", &[], 4);
    check("n1:2,n2:2", &[], 4);
    check("n1,n2", &["--num_machines", "2"], 4);
    check("n1:8,n2:8", &["--num_machines", "1"], 4);
    check("n1,n2", &["--use_deepspeed"], 4);
}

#[test]
fn workers_that_the_hosts_cannot_share_are_refused() {
    #[track_caller]
    fn check(hosts: &str, screen: &str) {
        let launch = face("accelerate").options(["launch", "-H", hosts, "--num_processes", "4"]);
        let outcome = launch.env("HF_HOME", "/nonexistent").program(["x.py"]).end().code(2);
        drop(outcome.says(screen));
    }
    check(
        "n1:2,n2:1",
        "error[C006]: `--num_processes` cannot be 4: 2 workers on each of 2 hosts, but `n2` has 1 slot\n",
    );
    check(
        "n1,n2,n3",
        "help: `--num_processes` is the number of all workers: write a multiple of 3\n",
    );
}

#[test]
fn hostfile_of_deepspeed_is_refused_in_words_of_accelerate() {
    #[track_caller]
    fn check(hostfile: Option<&str>, status: i32, screen: &str) {
        let launch = face("accelerate").options(["launch", "--config_file", "ds.yaml"]);
        let launch = launch.env("HF_HOME", "/nonexistent");
        let config = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n\
            num_machines: 2\nnum_processes: 4\ndeepspeed_config:\n  deepspeed_hostfile: hosts\n";
        fs::write(launch.dir().join("ds.yaml"), config).expect("the configuration");
        if let Some(hosts) = hostfile {
            fs::write(launch.dir().join("hosts"), hosts).expect("the hostfile");
        }
        let dir = launch.dir().to_owned();
        assert_eq!(launch.cwd(dir).program(["x.py"]).end().code(status).stderr, screen);
    }
    check(
        None,
        65,
        "error[A003]: hostfile `hosts` does not exist\n --> ds.yaml:6:23\n  |\n\
         6 |   deepspeed_hostfile: hosts\n  |                       ^^^^^ no such file\n  |\n\
         help: correct the path, or write the hosts in the line: `-H n1,n2`\n",
    );
    check(
        Some("n1\nn2 slots=1\n"),
        65,
        "error[A003]: `num_processes` cannot be 4: 2 workers on each of 2 hosts, but `n2` has 1 slot\n \
         --> ds.yaml:4:16\n  |\n4 | num_processes: 4\n  |                ^ out of range\n  |\n\
         help: `num_processes` is the number of all workers: write 2 or less\n",
    );
    check(
        Some("n1 slots=x\n"),
        65,
        "error[H004]: slots must be a whole number of at least 1, not `x`\n --> hosts:1:10\n  |\n\
         1 | n1 slots=x\n  |          ^ expected a number\n  |\n\
         help: write the number of workers: `slots=4`\nhosts: 1 error\n",
    );
}

/// DeepSpeed's launcher would start this machine alone, and say nothing.
#[test]
fn hosts_of_deepspeed_that_nothing_names_are_a_warning() {
    const ALONE: &str = "warning: `num_machines` is 2, and nothing names their hosts: the job is this machine \
                         alone, with 2 workers\nhelp: write `deepspeed_hostfile: FILE` under `deepspeed_config` of the \
                         configuration file, or type `-H n1,n2`\n";
    let screen = |keys: &str, options: &[&str]| {
        let launch = face("accelerate")
            .options(["launch", "--config_file", "ds.yaml", "--dry-run"])
            .options(options);
        let launch = launch.option("--no_python").env("HF_HOME", "/nonexistent");
        let config = format!(
            "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 4\ndeepspeed_config:\n{keys}  zero_stage: 2\n"
        );
        fs::write(launch.dir().join("ds.yaml"), config).expect("the configuration");
        let dir = launch.dir().to_owned();
        launch.cwd(dir).sh("true").end().code(0).stderr
    };
    assert_eq!(screen("", &[]), ALONE);
    let on_each = ALONE.replace(
        "help: write",
        "help: if you start the line on each machine, write `deepspeed_multinode_launcher: standard` under \
         `deepspeed_config`; else write",
    );
    assert_eq!(screen("", &["--machine_rank=0"]), on_each);
    for (key, carets) in [("deepspeed_hostfil", "^^^^^^^^^^^^^^^^^"), ("hostfile", "^^^^^^^^")] {
        let unknown = format!(
            "warning[A002]: the key `{key}` of `deepspeed_config` is unknown\n --> ds.yaml:5:3\n  |\n5 |   {key}: \
             hosts\n  |   {carets} has no effect\n  |\nhelp: did you mean `deepspeed_hostfile`?\n{ALONE}"
        );
        assert_eq!(screen(&format!("  {key}: hosts\n"), &[]), unknown);
    }
}

/// The screen of a line that is refused.
#[track_caller]
fn check_refused(options: &[&str], status: i32, screen: &str) {
    let launch =
        face("accelerate").option("launch").options(options).env("HF_HOME", "/nonexistent");
    assert_eq!(launch.program(["x.py"]).end().code(status).stderr, screen);
}

#[test]
fn one_worker_for_several_gpus_is_refused() {
    check_refused(
        &["--multi_gpu", "--num_processes", "1"],
        2,
        "error[C007]: `--multi_gpu` needs two workers\n --> command line:1:26\n  |\n\
         1 | remuda accelerate launch --multi_gpu --num_processes 1 -- x.py\n  |                          ^^^^^^^^^^^ several GPUs    - fewer than two workers\n  |\n\
         help: leave `--multi_gpu` out, or give `--num_processes 2` or more\n",
    );
}

#[test]
fn weights_that_rank_0_loads_and_does_not_send_are_refused() {
    let text = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  \
                fsdp_cpu_ram_efficient_loading: true\n  fsdp_sync_module_states: false\n";
    let launch = face("accelerate").option("launch");
    let path = config(&launch, text);
    let outcome = launch.option("--config_file").option(&path).program(["x.py"]).end().code(65);
    let expected = format!(
        "error[C010]: `fsdp_cpu_ram_efficient_loading` needs `fsdp_sync_module_states`\n \
         --> {}:5:28\n  |\n5 |   fsdp_sync_module_states: false\n  |                            ^^^^^ rank 0 does not send the weights\n  |\n\
         help: set `fsdp_sync_module_states` to true, or `fsdp_cpu_ram_efficient_loading` to false\n",
        path.display()
    );
    assert_eq!(outcome.stderr, expected);
    check_refused(
        &["--use_fsdp", "--num_processes=2", "--fsdp_sync_module_states="],
        2,
        "error[C010]: `fsdp_cpu_ram_efficient_loading` needs `fsdp_sync_module_states`\n \
         --> command line:1:55\n  |\n\
         1 | remuda accelerate launch --use_fsdp --num_processes=2 --fsdp_sync_module_states= -- x.py\n  |                                                       \
         ^^^^^^^^^^^^^^^^^^^^^^^^^^ rank 0 does not send the weights\n  |\n\
         help: set `fsdp_sync_module_states` to true, or `fsdp_cpu_ram_efficient_loading` to false\n",
    );
}

#[test]
fn one_gpu_for_a_configuration_of_several_is_refused() {
    let launch = face("accelerate").option("launch");
    let path = config(&launch, "distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: '0'\n");
    let outcome = launch.option("--config_file").option(&path).program(["x.py"]).end().code(65);
    let expected = format!(
        "error[A003]: `gpu_ids` is `0`, and the job uses several GPUs\n --> {}:3:10\n  |\n\
         3 | gpu_ids: '0'\n  |          ^^^ one GPU\n  |\n\
         help: name two GPUs or more, such as `0,1`, or write `all`\n",
        path.display()
    );
    assert_eq!(outcome.stderr, expected);
}

#[test]
fn combinations_that_accelerate_refuses_are_refused() {
    check_refused(
        &["--use_parallelism_config"],
        2,
        "error[C010]: `--use_parallelism_config` needs `--use_fsdp`\n --> command line:1:26\n  |\n\
         1 | remuda accelerate launch --use_parallelism_config -- x.py\n  |                          \
         ^^^^^^^^^^^^^^^^^^^^^^^^ has no effect alone\n  |\n\
         help: add `--use_fsdp`, or leave `--use_parallelism_config` out\n",
    );
    let check = |options: &[&str], says: &str| {
        let launch = face("accelerate").option("launch").options(options);
        launch.env("HF_HOME", "/nonexistent").program(["x.py"]).end().code(2).says(says);
    };
    check(&["--module", "--no_python"], "`--module` and `--no_python` cannot be combined");
    check(&["--use_fsdp", "--num_processes=-1"], "the number of workers is not positive");
    check(&["--use_fsdp", "--num_processes=0"], "the number of workers is not positive");
}

#[test]
fn other_subcommands_are_handed_to_accelerate() {
    let launch =
        || face("accelerate").options(["config", "--config_file", "a b"]).program([] as [&str; 0]);
    let directory = launch().dir().parent().expect("a parent").join("accelerate-itself");
    fs::create_dir_all(&directory).expect("a directory");
    let own = directory.join("own");
    let other = directory.join("other");
    for directory in [&own, &other] {
        let _ = fs::remove_dir_all(directory);
        fs::create_dir(directory).expect("a directory");
    }
    std::os::unix::fs::symlink(REMUDA, own.join("accelerate")).expect("a link");
    let path = std::env::join_paths([own.clone(), "/bin".into()]).expect("a path");
    let outcome = launch().env("PATH", path).end().code(2);
    assert_eq!(
        outcome.stderr,
        "error[C012]: `config` is a command of accelerate itself, which is neither in PATH nor beside the Python of \
         the workers\n\
         \x20--> command line:1:19\n  |\n1 | remuda accelerate config --config_file 'a b' --\n  |                   \
         ^^^^^^ handed to accelerate\n  |\n\
         help: type `pip install accelerate`; remuda itself reads `accelerate launch`\n"
    );
    let program = other.join("accelerate");
    fs::write(&program, "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n").expect("a program");
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("permissions");
    let path = std::env::join_paths([own.clone(), other.clone(), "/bin".into()]).expect("a path");
    let outcome = launch().env("PATH", path).end().code(7);
    assert_eq!(outcome.stdout_text(), "<config><--config_file><a b><-->");
    // An environment that is not active.
    let path = std::env::join_paths([own, "/bin".into()]).expect("a path");
    let launch = launch().env("PATH", path).env("PYTHON_EXEC", other.join("python"));
    assert_eq!(launch.end().code(7).stdout_text(), "<config><--config_file><a b><-->");
}

#[test]
fn option_typed_after_the_script_is_named() {
    let refuse = "echo 'error: unrecognized arguments: --nproc-per-node 2' >&2; exit 2";
    let words = ["-", "--lr", "1", "--nproc-per-node", "2", "--seed", "7"];
    let outcome = torchrun(&["--max-restarts=0"], refuse).program(words).end().code(2);
    let options = "remuda torchrun --max-restarts=0 --no-python --nproc-per-node 2 -- sh -c";
    outcome
        .says(&format!(
            "`--nproc-per-node` is an option of remuda and must precede the script: `{options} "
        ))
        .says(" - --lr 1 --seed 7`");
    let launch =
        face("accelerate").options(["launch", "--cpu", "--num_processes=1", "--no_python"]);
    let refuse = "echo 'error: unrecognized arguments: --mixed_precision no' >&2; exit 2";
    let launch = launch.env("HF_HOME", "/nonexistent").sh(refuse);
    let outcome = launch.program(["-", "--mixed_precision", "no", "x"]).end().code(2);
    outcome.says("--no_python --mixed_precision no -- sh -c").says(" - x`");
}

#[test]
fn unknown_launcher_of_deepspeed_is_refused_in_the_file() {
    let launch = face("accelerate").option("launch");
    let text = "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 4\ndeepspeed_config:\n  \
                deepspeed_multinode_launcher: standrd\n";
    let path = config(&launch, text);
    let outcome = launch.option("--config_file").option(&path).program(["x.py"]).end().code(65);
    let expected = format!(
        "error[A003]: `deepspeed_multinode_launcher` cannot be `standrd`\n --> {}:5:33\n  |\n\
         5 |   deepspeed_multinode_launcher: standrd\n  |                                 ^^^^^^^ expected one of \
         standard, nossh, auto, local, ssh, pdsh, slurm, openmpi, mpich, impi, mvapich, pbs, lsf, flux\n  |\n\
         help: did you mean `standard`?\n",
        path.display()
    );
    assert_eq!(outcome.stderr, expected);
}

/// Launches the line with a hostfile of two hosts with two slots each.
fn with_mpi_hosts(options: &[&str]) -> Launch {
    let launch = face("accelerate").options(["launch", "--cpu", "--dry-run", "--no_python"]);
    let path = launch.dir().join("hosts");
    fs::write(&path, "n1 slots=2\nn2 slots=2\n").expect("a hostfile");
    launch.option("--mpirun_hostfile").option(&path).options(options).program(["./worker"])
}

#[test]
fn workers_are_divided_among_the_hosts_of_mpirun() {
    for (processes, world) in [("2", 2), ("4", 4)] {
        let outcome = with_mpi_hosts(&["--num_processes", processes]).end().code(0);
        let found = outcome.stdout_text();
        assert!(found.contains(&format!("world size {world},")), "{found}");
        assert!(found.contains("n2"), "{found}");
    }
    with_mpi_hosts(&["--num_processes=3"]).end().code(2).says(
        "`--num_processes` cannot be 3: 3 workers cannot be divided equally among the 2 hosts of \
         `--mpirun_hostfile`",
    );
    with_mpi_hosts(&["--num_processes=6"])
        .end()
        .code(2)
        .says("3 workers on each of 2 hosts, but `n1` has 2 slots");
}

#[test]
fn value_of_a_switch_is_not_read_as_the_script() {
    let check = |value: &str, help: &str| {
        let launch = face("accelerate").options(["launch", "--cpu", "--same_network", value]);
        let outcome = launch.program(["x.py"]).end().code(2);
        outcome.says("error[C006]: `--same_network` takes no value\n").says(help);
    };
    check("false", "help: leave `--same_network false` out: without the option it is off\n");
    check("True", "help: leave `True` out: `--same_network` alone turns it on\n");
}

#[test]
fn deepspeed_and_fsdp_without_gpus_are_a_warning() {
    for (option, what) in [("--use_deepspeed", "DeepSpeed"), ("--use_fsdp", "FSDP")] {
        accelerate(&[option, "--num_processes=2", "--dry-run"], "true").end().code(0).says(&format!(
            "warning: no GPU was found on this machine, and accelerate uses {what} on GPUs: each of the 2 workers may \
             fail, or train a copy of its own\n"
        ));
    }
}

#[test]
fn number_that_no_machine_has_is_refused_in_the_typed_line() {
    let group = ["--num_processes=2", "--num_machines=2", "--main_process_ip=127.0.0.1"];
    let options = [&group[..], &["--machine_rank", "2"]].concat();
    let outcome = accelerate(&options, "true").end().code(2);
    outcome.says("error[C006]: `machine_rank` is 2\n").says(" --machine_rank 2 ").says(
        " ^ expected a number from 0 to 1\n  |\nhelp: there are 2 machines (`num_machines`); they count from 0\n",
    );
}

#[test]
fn values_for_torchrun_are_refused_where_they_were_written() {
    let check = |options: &[&str], says: &[&str]| {
        let launch = face("accelerate").option("launch").options(options);
        let outcome = launch.env("HF_HOME", "/nonexistent").program(["x.py"]).end().code(2);
        let outcome = says.iter().fold(outcome, |outcome, text| outcome.says(text));
        drop(outcome.does_not_say("remuda torchrun").does_not_say("remuda run"));
    };
    check_refused(
        &["--tee", "9", "--num_processes", "2", "--cpu"],
        2,
        "error[C006]: `--tee` cannot be `9`\n --> command line:1:32\n  |\n\
         1 | remuda accelerate launch --tee 9 --num_processes 2 --cpu -- x.py\n  |                                ^ expected 0, \
         1, 2, 3, or RANK:NUMBER pairs\n  |\nhelp: 0 is no stream, 1 stdout, 2 stderr, 3 both; `0:3,1:1` sets those \
         of local ranks 0 and 1\n",
    );
    check_refused(
        &["--num_processes=2", "--rdzv_backend=etcd", "--cpu"],
        2,
        "error[C006]: `--rdzv_backend` cannot be `etcd`\n --> command line:1:59\n  |\n\
         1 | remuda accelerate launch --num_processes=2 --rdzv_backend=etcd --cpu -- x.py\n  \
         |                                                           ^^^^ remuda does not use etcd\n  |\n\
         help: write `c10d`, and the first node as the address: it needs no server\n",
    );
    let two = ["--num_processes=2", "--rdzv_conf", "foo"];
    check(
        &two,
        &["`--rdzv_conf` cannot be `foo`\n", "--rdzv_conf foo --", "write `join_timeout=60`"],
    );
    check(&["--num_processes=2", "--max_restarts=-1"], &["`--max_restarts` cannot be `-1`\n"]);
    let machines = ["--num_processes=2", "--num_machines=2", "--machine_rank=0"];
    let address = [&machines[..], &["--main_process_ip", "a b"]].concat();
    check(&address, &["`--main_process_ip` cannot be `a b`\n", "--main_process_ip 'a b' --"]);
    let address = [&address[..], &["--rdzv_backend=c10d"]].concat();
    check(&address, &["`--main_process_ip` cannot be `a b`\n", "^^^ this is no address\n"]);
    check(&["--num_processes=2", "--launcher=ssh"], &["`--launcher` needs `--hostfile`\n"]);
    let hosts = ["-H", "n1,n2", "--num_processes=2", "--use_deepspeed"];
    let launcher = [&hosts[..], &["--deepspeed_multinode_launcher", "foo"]].concat();
    check(&launcher, &["`--deepspeed_multinode_launcher` cannot be `foo`\n"]);
    check(
        &["--num_processes=2000"],
        &["error[C006]: `num_processes` is 2000\n", "from 1 to 1024\n"],
    );
}

#[test]
fn values_of_a_file_for_torchrun_are_refused_in_the_file() {
    let launch = face("accelerate").option("launch");
    let path =
        config(&launch, "distributed_type: MULTI_CPU\nnum_processes: 2\nrdzv_backend: 'etcd'\n");
    let outcome = launch.option("--config_file").option(&path).program(["x.py"]).end().code(65);
    let expected = format!(
        "error[A003]: `rdzv_backend` cannot be `etcd`\n --> {}:3:15\n  |\n3 | rdzv_backend: 'etcd'\n  \
         |               ^^^^^^ remuda does not use etcd\n  |\n\
         help: write `c10d`, and the first node as the address: it needs no server\n",
        path.display()
    );
    assert_eq!(outcome.stderr, expected);
}

#[test]
fn line_of_one_machine_without_their_number_is_noted() {
    let options = ["--cpu", "--num_processes=2", "--machine_rank=1", "--main_process_ip=10.9.8.7"];
    accelerate(&options, "true").end().code(0).says(
        "warning: the job is this machine alone, and `--machine_rank` has no effect; for a job of several machines, \
         type `--num_machines N` on each\n",
    );
}

#[test]
fn dry_run_names_the_option_or_the_line_of_each_variable() {
    let launch = face("accelerate").option("launch");
    let path = launch.dir().join("config.yaml");
    fs::write(&path, "distributed_type: MULTI_CPU\nmixed_precision: bf16\nuse_cpu: true\n")
        .expect("a file");
    let options = ["--num_processes=2", "--dynamo_backend=eager", "--dry-run", "--no_python"];
    let launch = launch.option("--config_file").options([&path]).options(options);
    let outcome = launch.env("HF_HOME", "/nonexistent").sh("true").end().code(0);
    let sources: Vec<(&str, &str)> = outcome
        .stdout_text()
        .lines()
        .filter_map(|line| line.trim().split_once("  "))
        .filter_map(|(source, variable)| Some((source, variable.trim().split_once('=')?.0)))
        .collect();
    let line = format!("{}:2:18", path.display());
    for expect in [
        (&*line, "ACCELERATE_MIXED_PRECISION"),
        ("--dynamo_backend", "ACCELERATE_DYNAMO_BACKEND"),
        ("accelerate", "ACCELERATE_DYNAMO_MODE"),
        ("remuda", "RANK"),
    ] {
        assert!(sources.contains(&expect), "{expect:?}: {sources:?}");
    }
}

#[test]
fn workers_that_machines_do_not_share_equally_are_noted() {
    let options = ["--cpu", "--num_processes=3", "--num_machines=2", "-H", "localhost:2,n2:2"];
    let launch = accelerate(&options, "true").options(["--dry-run"]);
    launch.end().code(0).says(
        "note: `num_processes` is 3, which 2 machines cannot share equally: each starts 1 worker, the job has 2\n",
    );
    let options = ["--cpu", "--num_processes=2", "-H", "localhost:2", "--machine_rank=0"];
    let options = [&options[..], &["--main_process_ip=n1", "--dry-run"]].concat();
    accelerate(&options, "true").end().code(0).says(
        "note: `--machine_rank` and `--main_process_ip` have no effect with `-H`: one command starts all nodes\n",
    );
}

/// A line of accelerate on a machine of which nothing shows a GPU.
fn without_gpus(options: &[&str]) -> Launch {
    let launch = face("accelerate").option("launch").options(options).option("--no_python");
    let launch = launch.env("HF_HOME", "/nonexistent").env("CUDA_VISIBLE_DEVICES", "");
    launch.env("ZE_AFFINITY_MASK", "")
}

#[test]
fn workers_without_gpus_are_told_what_they_do() {
    let note = "note: no GPU was found on this machine: the 2 workers train together on CPUs, as with `--cpu`\n";
    let outcome = without_gpus(&["--num_processes=2"]).sh("echo $WORLD_SIZE").end().code(0);
    assert_eq!(outcome.stdout_text(), "2\n2\n");
    drop(outcome.says(note));
    let silent = without_gpus(&["--num_processes=2", "--cpu"]).sh("true").end().code(0);
    assert!(!silent.stderr.contains("note: "), "{}", silent.stderr);
    without_gpus(&["--num_processes=2", "--multi_gpu"]).sh("true").end().code(0).says(
        "warning: no GPU was found on this machine: each of the 2 workers may train a copy of its own\n\
         help: to train together on CPUs, type `remuda accelerate launch --num_processes=2 --cpu --no_python -- sh -c true`\n",
    );
}

#[test]
fn gpus_that_are_not_there_are_no_number_of_workers() {
    let outcome = without_gpus(&["--multi_gpu"]).program(["train.py"]).end().code(2);
    assert_eq!(
        outcome.stderr,
        "error[C010]: no GPU was found on this machine\n --> command line:1:26\n  |\n\
         1 | remuda accelerate launch --multi_gpu --no_python -- train.py\n  |                          ^^^^^^^^^^^ one worker for each \
         GPU\n  |\nhelp: for two workers on CPUs, type `remuda accelerate launch --cpu --num_processes 2 --no_python -- train.py`; \
         for GPUs that remuda does not count, add `--num_processes N`\n"
    );
}
