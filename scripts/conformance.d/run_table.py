"""The lines of run_lines.py, and the variables of workers that differ on purpose."""

W = "worker.py"
TWO = ["--nproc-per-node", "2"]
STATIC = ["--nnodes=2", "--master-addr=127.0.0.1", "--master-port=@port@", "--nproc-per-node=2"]
C10D = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:@port@", "--rdzv-id=job"]

# Lines whose result depends on the CPUs of the machine: they are not replayed elsewhere.
OF_MACHINE = ["torchrun: all cpus", "torchrun: auto"]

# Name: options of torchrun and the program; environment.
TORCHRUN = [
    ("defaults", [W], {}),
    ("arguments", [W, "--lr", "0.1", "a b", "", "--", "x"], {}),
    ("two workers", [*TWO, W], {}),
    ("four workers", ["--nproc_per_node=4", W, "x"], {}),
    ("all cpus", ["--nproc-per-node=cpu", W], {}),
    ("auto", ["--nproc-per-node", "auto", W], {}),
    ("standalone", ["--standalone", *TWO, W], {}),
    ("standalone with nnodes", ["--standalone", "--nnodes=1", *TWO, W], {}),
    ("stacked", ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--nnodes=1", *TWO, W], {}),
    ("static with a port", ["--master-port", "@port@", *TWO, W], {}),
    ("static with an address", ["--master_addr=127.0.0.1", "--master_port=@port@", *TWO, W], {}),
    ("static endpoint", ["--rdzv-endpoint=127.0.0.1:@port@", *TWO, W], {}),
    ("name of the job", ["--rdzv-id", "job7", "--master-port=@port@", *TWO, W], {}),
    ("role", ["--role", "trainer", *TWO, W], {}),
    ("role with blanks", ["--role=a b", W], {}),
    ("restarts", ["--max-restarts=3", *TWO, W], {}),
    ("a failure and a restart", ["--max-restarts=1", *TWO, W, "--fail"], {}),
    ("a failure", [*TWO, W, "--fail"], {}),
    ("module", ["-m", "worker", "x"], {}),
    ("module, long", ["--module", *TWO, "worker"], {}),
    ("no python", ["--no-python", "./worker.sh", "x", "y"], {}),
    ("no python, two", ["--no_python", *TWO, "./worker.sh"], {}),
    ("run path", ["--run-path", *TWO, "worker.py", "x"], {}),
    ("local rank in arguments", [*TWO, W, "--out=${local_rank}.log", "$$", "$HOME"], {}),
    ("threads of the environment", [*TWO, W], {"OMP_NUM_THREADS": "7"}),
    ("threads of one worker", [W], {"OMP_NUM_THREADS": "3"}),
    ("nccl errors of the environment", [*TWO, W], {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}),
    ("devices of the environment", [*TWO, W], {"CUDA_VISIBLE_DEVICES": "4,5"}),
    ("virtual local rank", ["--virtual-local-rank", *TWO, W], {"CUDA_VISIBLE_DEVICES": "4,5"}),
    ("old ranks of the environment", [*TWO, W], {"RANK": "9", "WORLD_SIZE": "20", "LOCAL_RANK": "3", "MASTER_ADDR": "n9"}),
    ("python path", [*TWO, W], {"PYTHONPATH": "/x:/y"}),
    ("variables for options", [W], {"PET_NPROC_PER_NODE": "2", "PET_ROLE": "x", "PET_MAX_RESTARTS": "2"}),
    ("a variable and the line", ["--role=line", W], {"PET_ROLE": "variable"}),
    ("signals", ["--signals-to-handle=SIGTERM,SIGUSR1", *TWO, W], {}),
    ("shutdown timeout", ["--shutdown-timeout", "5", *TWO, W], {}),
    ("tee", ["-t", "3", "--log-dir", "logs", "--rdzv-id=j", "--master-port=@port@", *TWO, W], {}),
    ("tee of one", ["--tee=0:1", "--log-dir=logs", *TWO, W], {}),
    ("redirects", ["-r", "3", "--log-dir", "logs", *TWO, W], {}),
    ("redirects by rank", ["-r", "0:1,1:2", "--log_dir", "logs", *TWO, W], {}),
    ("tee and redirects", ["-r", "1", "-t", "2", "--log-dir", "logs", *TWO, W], {}),
    ("local ranks filter", ["--local-ranks-filter=1", "-t", "3", "--log-dir=logs", *TWO, W], {}),
    ("prefix", ["-t", "3", "--log-dir=logs", "--log-line-prefix-template", "<${role_name}.${local_rank}.${rank}> ", *TWO, W], {}),
    ("prefix of the environment", ["-t", "3", "--log-dir=logs", *TWO, W], {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<$rank>"}),
    ("duplicate filters", ["-t", "3", "--log-dir=logs", "--duplicate-stdout-filters=out,x", "--duplicate-stderr-filters=y", *TWO, W], {}),
    ("logs of a restart", ["-t", "3", "--log-dir=logs", "--max-restarts=1", *TWO, W, "--fail"], {}),
    ("distributed launch", ["DISTRIBUTED", *TWO, W, "x"], {}),
    ("distributed launch with variables", ["DISTRIBUTED", "--use-env", *TWO, W], {}),
    ("distributed launch of a program", ["DISTRIBUTED", "--no-python", "--use-env", "./worker.sh"], {}),
    ("distributed launch with run path", ["DISTRIBUTED", "--run-path", W], {}),
]
NODES = [
    ("two nodes, static", "torchrun", [[*STATIC, f"--node-rank={node}", W] for node in (0, 1)]),
    ("two nodes, c10d", "torchrun", [[*C10D, "--nproc-per-node=1", W] for _ in (0, 1)]),
    ("two machines", "accelerate", [
        ["--multi_gpu", "--num_processes=4", "--num_machines=2", f"--machine_rank={node}", "--same_network",
         "--main_process_ip=127.0.0.1", "--main_process_port=@port@", W] for node in (0, 1)
    ]),
]

GPUS = ["--multi_gpu", "--num_processes", "2"]
FSDP = ["--use_fsdp", "--num_processes=2"]
DS = ["--use_deepspeed", "--num_processes=2"]
FILE = ["--config_file", "config.yaml"]
CLUSTER = "compute_environment: LOCAL_MACHINE\nnum_machines: 1\nmachine_rank: 0\n"

# Name: options of accelerate and the program; environment; configuration file.
ACCELERATE = [
    ("one process", [W, "x"], {}, None),
    ("cpu", ["--cpu", W], {}, None),
    ("cpu and precision", ["--cpu", "--mixed_precision=bf16", W], {}, None),
    ("several gpus", [*GPUS, W, "x", "a b"], {}, None),
    ("several gpus, dashes", ["--multi-gpu", "--num-processes=2", W], {}, None),
    ("four processes", ["--multi_gpu", "--num_processes=4", W], {}, None),
    ("precision", [*GPUS, "--mixed_precision", "fp16", W], {}, None),
    ("debug", [*GPUS, "--debug", W], {}, None),
    ("gpu ids", [*GPUS, "--gpu_ids=0,1", W], {}, None),
    ("all gpu ids", [*GPUS, "--gpu_ids=all", W], {}, None),
    ("affinity", [*GPUS, "--enable_cpu_affinity", W], {}, None),
    ("threads", [*GPUS, "--num_cpu_threads_per_process=3", W], {}, None),
    ("threads of the environment", [*GPUS, W], {"OMP_NUM_THREADS": "5"}, None),
    ("dynamo", [*GPUS, "--dynamo_backend=inductor", "--dynamo_mode=max-autotune", "--dynamo_use_fullgraph", W], {}, None),
    ("dynamo of one process", ["--dynamo_backend=eager", "--dynamo_use_dynamic", W], {}, None),
    ("module", [*GPUS, "-m", "worker", "x"], {}, None),
    ("module of one process", ["--module", "worker", "x"], {}, None),
    ("no python", [*GPUS, "--no_python", "./worker.sh", "x"], {}, None),
    ("no python, one process", ["--no_python", "./worker.sh"], {}, None),
    ("restarts", [*GPUS, "--max_restarts=1", W, "--fail"], {}, None),
    ("role", [*GPUS, "--role=trainer", W], {}, None),
    ("tee", [*GPUS, "--tee", "3", "--log_dir=logs", W], {}, None),
    ("port", [*GPUS, "--main_process_port=@port@", W], {}, None),
    ("free port", [*GPUS, "--main_process_port", "0", W], {}, None),
    ("local rank in arguments", [*GPUS, W, "--out=${local_rank}"], {}, None),
    ("python path", [*GPUS, W], {"PYTHONPATH": "/x"}, None),
    ("options of torchrun in the environment", [*GPUS, W], {"PET_REDIRECTS": "0", "PET_ROLE": "x"}, None),
    ("fsdp", [*FSDP, W], {}, None),
    ("fsdp 2", [*FSDP, "--fsdp_version=2", "--fsdp_reshard_after_forward", "false", W], {}, None),
    ("fsdp options", [*FSDP, "--fsdp_offload_params=true", "--fsdp_auto_wrap_policy=TRANSFORMER_BASED_WRAP",
                      "--fsdp_transformer_layer_cls_to_wrap=A,B", "--fsdp_state_dict_type=FULL_STATE_DICT", W], {}, None),
    ("fsdp checkpointing", [*FSDP, "--fsdp_activation_checkpointing=true",
                            "--fsdp-activation-checkpointing-offload=true", W], {}, None),
    ("parallelism", [*FSDP, "--fsdp_version=2", "--use_parallelism_config", "--parallelism_config_tp_size=2", W], {}, None),
    ("context parallelism", [*FSDP, "--fsdp_version=2", "--use_parallelism_config", "--parallelism_config_cp_size=2", W], {}, None),
    ("megatron", ["--use_megatron_lm", "--num_processes=2", "--megatron_lm_tp_degree=2", W], {}, None),
    ("megatron and gpus", [*GPUS, "--use_megatron_lm", W], {}, None),
    ("deepspeed", [*DS, W], {}, None),
    ("deepspeed options", [*DS, "--zero_stage=3", "--offload_optimizer_device=cpu", "--zero3_init_flag=True",
                           "--gradient_accumulation_steps=4", "--gradient_clipping=1", W], {}, None),
    ("deepspeed file", [*DS, "--deepspeed_config_file=ds.json", W], {"PYTHONPATH": "/x"}, None),
    ("deepspeed moe", [*DS, "--deepspeed_moe_layer_cls_names=A,B", W], {}, None),
    ("file: gpus", [*FILE, W], {}, CLUSTER + "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: fp16\n"),
    ("file and line", [*FILE, "--mixed_precision=no", "--num_processes=4", W], {},
     CLUSTER + "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: fp16\n"),
    ("file: fsdp", [*FILE, W], {},
     CLUSTER + "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n"
     "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"),
    ("file: deepspeed", [*FILE, W], {},
     CLUSTER + "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config:\n"
     "  gradient_accumulation_steps: auto\n  offload_optimizer_device: none\n  zero3_init_flag: false\n  zero_stage: 2\n"),
    ("file: megatron", [*FILE, W], {},
     CLUSTER + "distributed_type: MEGATRON_LM\nnum_processes: 2\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n"
     "  megatron_lm_gradient_clipping: 1.0\n"),
    ("file: one process", [*FILE, W], {}, CLUSTER + "distributed_type: 'NO'\nmixed_precision: 'no'\nuse_cpu: false\n"),
    ("file: dynamo", [*FILE, W], {},
     CLUSTER + "distributed_type: MULTI_GPU\nnum_processes: 2\ndynamo_config:\n  dynamo_backend: INDUCTOR\n"
     "  dynamo_use_dynamic: true\n"),
    ("file: gpu ids", [*FILE, W], {}, CLUSTER + "distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: 0,1\n"),
    ("file: parallelism", [*FILE, W], {},
     CLUSTER + "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\nparallelism_config:\n"
     "  parallelism_config_tp_size: 2\n"),
    ("file: debug", [*FILE, W], {}, CLUSTER + "distributed_type: MULTI_GPU\nnum_processes: 2\ndebug: true\n"),
]

# Variables that differ on purpose, each with the reason; COMPAT.md says the same.
EXPECTED = {
    "MASTER_ADDR": "127.0.0.1 on one node, where torchrun has the name of the machine",
    "MASTER_PORT": "a free port",
    "TORCHELASTIC_RUN_ID": "the id that was typed, `none`, or the name of the job; on one node torchrun has a random one",
    "TORCHELASTIC_USE_AGENT_STORE": "False: rank 0 serves the store, as under torchrun with TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    "TORCHELASTIC_ERROR_FILE": "a private file",
    "REMUDA_JOB": "remuda's own",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "set by the import of deepspeed, which every worker repeats",
}


def is_expected(line, variable, ours, theirs):
    """Whether a variable of a worker may have these two values."""
    if variable in EXPECTED or variable.startswith("REMUDA_"):
        return True
    # Both divide the CPUs of the machine; accelerate counts cores.
    return variable == "OMP_NUM_THREADS" and "--cpu" in line.get("argv", [])


def lines():
    """Every line, with its kind."""
    for name, argv, env in TORCHRUN:
        is_old = argv[0] == "DISTRIBUTED"
        kind = "distributed_launch" if is_old else "torchrun"
        # torchrun runs the script in a process that it forks.
        skip = ["options"] if "--run-path" in argv else []
        argv = argv[1:] if is_old else argv
        yield {"name": f"torchrun: {name}", "kind": kind, "argv": argv, "env": env, "skip": skip}
    for name, argv, env, config in ACCELERATE:
        # remuda starts one process with `python -u`, as torchrun does.
        is_one = not any(word.startswith(("--multi", "--use_", "--num_p")) for word in argv)
        skip = ["options"] if is_one and "num_processes" not in (config or "") else []
        yield {"name": f"accelerate: {name}", "kind": "accelerate", "argv": argv, "env": env, "config": config, "skip": skip}
    for name, kind, nodes in NODES:
        yield {"name": f"{kind}: {name}", "kind": kind, "nodes": nodes}
