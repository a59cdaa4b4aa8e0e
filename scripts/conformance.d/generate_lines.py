"""Random command lines of torchrun and of `accelerate launch`: most of them are right, some have one error."""

import random

# Option: values, the first of them usual. A value may be wrong.
TORCHRUN = {
    "nnodes": ["1", "2", "1:1", "2:2", "1:4", "0", "2:1", "x", "", "1:2:3", " 2", "+2", "-1", "1_0", "3:x"],
    "nproc-per-node": ["2", "1", "4", "cpu", "auto", "gpu", "xpu", "0", "-1", "x", "", " 3", "1_0", "AUTO"],
    "rdzv-backend": ["static", "c10d", "C10D", "etcd", "etcd-v2", "zeus", ""],
    "rdzv-endpoint": [
        "localhost:29400", "n1", "n1.example:1234", "localhost:0", "[::1]:29400", "10.0.0.1:", ":29400", "",
        "n1:x", "n1:65536", "n1:123456", "n 1:2", " n1:29401 ", "::1", "n1:29400:5", "n_1:1", "[::1]",
    ],
    "rdzv-id": ["job", "7", "", "a b", "none", "a/b"],
    "rdzv-conf": [
        "join_timeout=60", "timeout=5", "is_host=1", "is_host=x", "a", "a=", "=b", "a=b,", " a = b ", "",
        "read_timeout=9,last_call_timeout=2", "timeout=x", "join_timeout=0", "join_timeout=-1", "a=b=c", ",",
    ],
    "max-restarts": ["3", "0", "-1", "x", "", " 2", "1_0", "2.0", "+1"],
    "monitor-interval": ["0.5", "5", "0", "-1", "x", "", "1e-3", "inf"],
    "start-method": ["spawn", "fork", "forkserver", "thread", ""],
    "event-log-handler": ["null", "console", "x"],
    "role": ["trainer", "", "a b", "${rank}"],
    "log-dir": ["logs", "/tmp/x", "", "a b"],
    "redirects": ["3", "0", "1", "2", "0:3", "0:3,1:1", "4", "x", "", "10:1", "0:4", "0:1,", "0=1", " 1", "01"],
    "tee": ["3", "0", "0:1,1:2", "1:3", "5", "0:", ",", "0:1,0:2"],
    "log-line-prefix-template": ["[${rank}] ", "${role_name}${local_rank}", "plain", "", "${hostname}: ", "$rank"],
    "local-ranks-filter": ["0", "0,1", "0,", "x", "", " 0 , 1 ", "-1", "7"],
    "duplicate-stdout-filters": ["apple,orange", "a", "", "a,,b", ",", "a b,"],
    "duplicate-stderr-filters": ["error", "x,,y,z", ""],
    "node-rank": ["0", "1", "-1", "x", "5", "", " 1"],
    "master-addr": ["n1", "127.0.0.1", "10.0.0.7", "", "[::1]", "a b", "::1", "h_1"],
    "master-port": ["29501", "29500", "0", "-1", "x", "", "65535", "65536", " 29502", "1_2"],
    "local-addr": ["127.0.0.1", "n2", ""],
    "logs-specs": ["x"],
    "numa-binding": ["node", "socket", "exclusive", "core-complex", "x", ""],
    "signals-to-handle": ["SIGTERM", "SIGTERM,SIGUSR1", "SIGUSR1,SIGUSR2,SIGINT", "SIGFOO", "", "TERM", "SIGTERM, SIGINT"],
    "shutdown-timeout": ["5", "0", "-1", "x", "", "1.5", " 7"],
}
TORCHRUN_SWITCHES = ["standalone", "module", "no-python", "run-path", "virtual-local-rank"]
TORCHRUN_USUAL = ["nproc-per-node", "nnodes", "max-restarts", "rdzv-backend", "rdzv-endpoint", "tee", "master-port"]
TORCHRUN_SHORT = {"redirects": "r", "tee": "t", "module": "m"}
# Options that have no variable.
NO_VARIABLE = ["logs-specs", "numa-binding"]

UNKNOWN = ["--nproc", "--x", "-x", "--num_processes=2", "--gpus", "-n", "--n", "--rdzv", "--max", "--st", "--", "-1",
           "-", "--master-", "--log", "--log-", "--role=", "-mt3", "-tr", "-hx", "--module=1", "--rdzv-e=n1:1", "-t=3",
           "-r3", "--no-p", "--use", "--l", "--sta", "--print", "--=", "", "-m=1", "-V", "--version", "-h", "--help"]
SCRIPTS = ["train.py", "train.py", "train.py", "train.py", "pkg.mod", "/bin/true", "a b.py", "-1", "a=b"]
ARGUMENTS = ["--lr", "0.1", "--", "-t", "--nproc-per-node", "", "a b", "${local_rank}", "$HOME", "--nnodes=2", "-h",
             "x=${local_rank}.log", "$$", "é", "--local_rank"]
VARIABLES = {
    "OMP_NUM_THREADS": ["4", "1", ""],
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": ["7", "x", ""],
    "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": ["<${rank}>", ""],
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": ["0"],
    "PYTHON_EXEC": ["/usr/bin/python3"],
    "CUDA_VISIBLE_DEVICES": ["3,4,5,6", "7"],
    "MASTER_ADDR": ["n9"],
    "MASTER_PORT": ["999"],
    "RANK": ["5"],
    "WORLD_SIZE": ["9"],
    "PYTHONPATH": ["/x"],
}


def spelled(rng, name):
    return name.replace("-", "_") if rng.random() < 0.4 else name.replace("_", "-")


def words_of(rng, name, value, short):
    """An option and its value, in one of the ways to write them."""
    letter = short.get(name)
    if letter and rng.random() < 0.6:
        return rng.choice([[f"-{letter}", value], [f"-{letter}{value}"] if value else [f"-{letter}", value]])
    name = spelled(rng, name)
    if rng.random() < 0.08 and len(name) > 4:
        name = name[: rng.randint(3, len(name))]
    return [f"--{name}={value}"] if rng.random() < 0.5 else [f"--{name}", value]


def pick(rng, values):
    """A value, more often one of the first."""
    return values[min(int(rng.expovariate(0.6)), len(values) - 1)] if rng.random() < 0.8 else rng.choice(values)


def options(rng, table, switches, usual, short, several):
    words = []
    for _ in range(rng.choice(several)):
        choice = rng.random()
        if choice < 0.15:
            name = rng.choice(switches)
            letter = short.get(name)
            words.append([f"-{letter}" if letter and rng.random() < 0.5 else f"--{spelled(rng, name)}"])
        else:
            name = rng.choice(usual) if choice < 0.6 else rng.choice(list(table))
            words.append(words_of(rng, name, pick(rng, table[name]), short))
    return words


def program(rng):
    if rng.random() < 0.02:
        return []
    words = [rng.choice(SCRIPTS)] if rng.random() < 0.5 else ["train.py"]
    return words + [rng.choice(ARGUMENTS) for _ in range(rng.choice([0, 0, 0, 1, 2, 3]))]


def torchrun(rng):
    words = options(rng, TORCHRUN, TORCHRUN_SWITCHES, TORCHRUN_USUAL, TORCHRUN_SHORT, [0, 1, 1, 2, 2, 3, 4, 5])
    kind = "distributed_launch" if rng.random() < 0.1 else "torchrun"
    if kind == "distributed_launch" and rng.random() < 0.5:
        words.append([rng.choice(["--use-env", "--use_env"])])
    if rng.random() < 0.08:
        words.insert(rng.randint(0, len(words)), [rng.choice(UNKNOWN)])
    env = {}
    for _ in range(rng.choice([0, 0, 0, 0, 1, 1, 2])):
        if rng.random() < 0.7:
            name = rng.choice([*TORCHRUN, *TORCHRUN_SWITCHES])
            values = TORCHRUN.get(name, ["1", "0", "true", "", "2", " 1", "-1"])
            env[f"PET_{name.replace('-', '_').upper()}"] = pick(rng, values)
        else:
            name = rng.choice(list(VARIABLES))
            env[name] = rng.choice(VARIABLES[name])
    argv = [word for group in words for word in group] + program(rng)
    return {"kind": kind, "argv": argv, "env": env}


ACCELERATE_SWITCHES = [
    "cpu", "multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "use_parallelism_config", "module",
    "no_python", "debug", "quiet", "same_network", "enable_cpu_affinity", "dynamo_use_fullgraph",
    "dynamo_use_dynamic", "dynamo_use_regional_compilation", "fp8_use_autocast_during_eval", "tpu",
    "downcast_bf16", "tpu_use_sudo",
]
BOOLS = ["true", "false", "True", "no", "1", "x", ""]
WHOLES = ["2", "1", "0", "4", "-1", "x", "", " 3", "1_0"]
TEXTS = ["a", "B,C", "", "none", "a b"]
ACCELERATE = {
    "num_processes": ["2", "4", "1", "8", "0", "-1", "x", "", " 2"],
    "num_machines": ["1", "2", "4", "0", "x", "-1"],
    "machine_rank": ["0", "1", "5", "-1", "x"],
    "main_process_ip": ["n1", "10.0.0.1", ""],
    "main_process_port": ["29501", "0", "29500", "x", "70000", "-1"],
    "rdzv_backend": ["static", "c10d", "etcd"],
    "rdzv_conf": ["join_timeout=9", "", "x"],
    "gpu_ids": ["all", "0,1", "0", "", "1,2,3"],
    "mixed_precision": ["no", "fp16", "bf16", "fp8", "BF16", "x"],
    "num_cpu_threads_per_process": ["2", "0", "-1", "x"],
    "dynamo_backend": ["no", "inductor", "eager", "aot_torchxla_trace_once", "torhchxla_trace_once",
                       "torchxla_trace_once", "INDUCTOR", "neuron", "hpu_backend", "tvm"],
    "dynamo_mode": ["default", "max-autotune", "reduce-overhead", "x"],
    "max_restarts": ["1", "0", "-1", "x"],
    "monitor_interval": ["0.1", "2", "x"],
    "role": ["default", "trainer", ""],
    "tee": ["0", "3", "0:1", "x"],
    "log_dir": ["logs", ""],
    "deepspeed_config_file": ["ds.json", ""],
    "zero_stage": ["2", "3", "0", "x"],
    "offload_optimizer_device": ["cpu", "none", "nvme", "GPU"],
    "offload_param_device": ["cpu", "none"],
    "offload_optimizer_nvme_path": ["/nvme"],
    "offload_param_nvme_path": ["/nvme"],
    "gradient_accumulation_steps": ["4", "1", "x"],
    "gradient_clipping": ["1.0", "1", "0.5", "1e-5", "inf", "x", "1e16"],
    "zero3_init_flag": BOOLS,
    "zero3_save_16bit_model": BOOLS,
    "deepspeed_hostfile": ["hosts"],
    "deepspeed_exclusion_filter": ["n1:0"],
    "deepspeed_inclusion_filter": ["n1"],
    "deepspeed_multinode_launcher": ["pdsh", "standard", "openmpi", "mvapich", "mpich", "slurm", "nossh", "x"],
    "deepspeed_moe_layer_cls_names": TEXTS,
    "fsdp_version": ["1", "2", "3"],
    "fsdp_offload_params": BOOLS,
    "fsdp_min_num_params": ["1000", "x", "1e8"],
    "fsdp_sharding_strategy": ["FULL_SHARD", "SHARD_GRAD_OP", "1", "x"],
    "fsdp_reshard_after_forward": BOOLS,
    "fsdp_auto_wrap_policy": ["TRANSFORMER_BASED_WRAP", "NO_WRAP", ""],
    "fsdp_transformer_layer_cls_to_wrap": TEXTS,
    "fsdp_backward_prefetch": ["BACKWARD_PRE", "NO_PREFETCH"],
    "fsdp_state_dict_type": ["FULL_STATE_DICT", "x"],
    "fsdp_forward_prefetch": BOOLS,
    "fsdp_use_orig_params": BOOLS,
    "fsdp_cpu_ram_efficient_loading": BOOLS,
    "fsdp_sync_module_states": BOOLS,
    "fsdp_activation_checkpointing": BOOLS,
    "fsdp_activation_checkpointing_offload": BOOLS,
    "parallelism_config_dp_replicate_size": WHOLES,
    "parallelism_config_dp_shard_size": WHOLES,
    "parallelism_config_tp_size": WHOLES,
    "parallelism_config_cp_size": WHOLES,
    "parallelism_config_cp_backend": ["torch", "x"],
    "parallelism_config_cp_comm_strategy": ["allgather", "alltoall"],
    "parallelism_config_sp_size": WHOLES,
    "parallelism_config_sp_backend": ["deepspeed", "x"],
    "parallelism_config_sp_seq_length": ["1024", ""],
    "parallelism_config_sp_seq_length_is_variable": BOOLS,
    "parallelism_config_sp_attn_implementation": ["sdpa", "x"],
    "fp8_backend": ["te", "ao", "msamp", "TE"],
    "fp8_margin": WHOLES,
    "fp8_interval": WHOLES,
    "fp8_format": ["HYBRID", "E4M3", "E5M2", "hybrid"],
    "fp8_amax_history_len": WHOLES,
    "fp8_amax_compute_algo": ["max", "most_recent", "x"],
    "fp8_override_linear_precision": ["true,false,true", "no,no,no", "true", "x,y,z", ""],
    "fp8_opt_level": ["O1", "O2", "O3"],
    "fp8_enable_fsdp_float8_all_gather": BOOLS,
    "fp8_pad_inner_dim": BOOLS,
    "megatron_lm_tp_degree": WHOLES,
    "megatron_lm_pp_degree": WHOLES,
    "megatron_lm_use_custom_fsdp": BOOLS,
    "megatron_lm_no_load_optim": BOOLS,
    "megatron_lm_num_micro_batches": WHOLES,
    "megatron_lm_sequence_parallelism": BOOLS,
    "megatron_lm_recompute_activations": BOOLS,
    "megatron_lm_use_distributed_optimizer": BOOLS,
    "megatron_lm_gradient_clipping": ["1.0", "2", "x"],
    "megatron_lm_recompute_method": TEXTS,
    "megatron_lm_attention_dropout": ["0.1", "x"],
    "megatron_lm_context_parallel_size": WHOLES,
    "main_training_function": ["main"],
    "mpirun_hostfile": ["hosts"],
    "aws_access_key_id": ["x"],
}
ACCELERATE_USUAL = ["num_processes", "num_machines", "main_process_ip", "mixed_precision", "machine_rank"]
ACCELERATE_SHORT = {"tee": "t", "module": "m", "quiet": "q"}
TYPES = ["MULTI_GPU", "FSDP", "DEEPSPEED", "NO", "MULTI_CPU", "MEGATRON_LM", "MULTI_XPU", "XLA", "x", "multi_gpu"]
SECTIONS = {
    "deepspeed_config": {
        "zero_stage": ["2", "3", "'2'"],
        "deepspeed_config_file": ["ds.json"],
        "gradient_accumulation_steps": ["1", "auto"],
        "gradient_clipping": ["1.0", "1", "auto"],
        "offload_optimizer_device": ["none", "cpu"],
        "offload_param_device": ["cpu"],
        "zero3_init_flag": ["true", "false"],
        "zero3_save_16bit_model": ["true", "'false'"],
        "deepspeed_multinode_launcher": ["standard", "pdsh"],
        "deepspeed_hostfile": ["hosts"],
        "x": ["1"],
    },
    "fsdp_config": {
        "fsdp_version": ["2", "1"],
        "fsdp_offload_params": ["false", "true"],
        "offload_params": ["true"],
        "fsdp_auto_wrap_policy": ["TRANSFORMER_BASED_WRAP"],
        "fsdp_transformer_layer_cls_to_wrap": ["BertLayer", "A,B"],
        "fsdp_cpu_ram_efficient_loading": ["true", "false"],
        "fsdp_sync_module_states": ["true", "false"],
        "fsdp_sharding_strategy": ["FULL_SHARD", "1"],
        "fsdp_state_dict_type": ["SHARDED_STATE_DICT"],
        "fsdp_activation_checkpointing": ["true"],
        "fsdp_activation_checkpointing_offload": ["true"],
        "fsdp_ignored_modules": ["null", "head"],
        "fsdp_min_num_params": ["1000", "1e8"],
        "fsdp_colour": ["red"],
    },
    "dynamo_config": {"dynamo_backend": ["INDUCTOR", "NO"], "dynamo_mode": ["default"], "dynamo_use_dynamic": ["true"],
                      "use_fullgraph": ["true"]},
    "fp8_config": {"backend": ["TE", "AO"], "fp8_format": ["E4M3"], "margin": ["2"], "override_linear_precision": ["[true, false, true]"]},
    "megatron_lm_config": {"megatron_lm_tp_degree": ["2"], "megatron_lm_gradient_clipping": ["1.0"],
                           "megatron_lm_sequence_parallelism": ["true"], "megatron_lm_pp_degree": ["2"]},
    "parallelism_config": {"parallelism_config_tp_size": ["2"], "parallelism_config_cp_size": ["2"],
                           "parallelism_config_dp_shard_size": ["2"]},
    "mpirun_config": {"mpirun_hostfile": ["hosts"], "mpirun_ccl": ["'1'"]},
}
TOP = {
    "compute_environment": ["LOCAL_MACHINE"] * 12 + ["AMAZON_SAGEMAKER"],
    "num_processes": ["2", "8", "4", "'2'", "-1", "x"],
    "num_machines": ["1", "2"],
    "machine_rank": ["0", "1"],
    "main_process_ip": ["10.0.0.1", "n1", "null"],
    "main_process_port": ["29501", "0", "null"],
    "mixed_precision": ["'no'", "bf16", "fp16", "no", "fp8", "BF16"],
    "use_cpu": ["false", "true"],
    "debug": ["false", "true"],
    "gpu_ids": ["all", "0,1", "'0'", "0"],
    "same_network": ["true", "false"],
    "rdzv_backend": ["static", "c10d"],
    "enable_cpu_affinity": ["false", "true"],
    "downcast_bf16": ["'no'"],
    "main_training_function": ["main"],
    "tpu_env": ["[]"],
    "tpu_use_cluster": ["false"],
    "fp16": ["true", "false"],
    "dynamo_backend": ["'NO'", "INDUCTOR"],
    "num_proceses": ["2"],
    "command_file": ["null"],
}


def config(rng):
    """A configuration file: keys of the usual file, a mapping for the kind of training, sometimes an error."""
    kind = pick(rng, TYPES)
    lines = [f"distributed_type: {kind}"] if rng.random() < 0.97 else []
    usual = ["compute_environment", "num_processes", "num_machines", "machine_rank", "mixed_precision", "use_cpu"]
    names = [name for name in usual if rng.random() < 0.8]
    names += [name for name in TOP if name not in usual and rng.random() < (0.01 if name == "num_proceses" else 0.12)]
    lines += [f"{name}: {pick(rng, TOP[name])}" for name in names]
    mapping = {"DEEPSPEED": "deepspeed_config", "FSDP": "fsdp_config", "MEGATRON_LM": "megatron_lm_config"}
    sections = [mapping[kind]] if kind in mapping else []
    sections += [name for name in SECTIONS if name not in sections and rng.random() < 0.05]
    for name in sections:
        entries = [entry for entry in SECTIONS[name] if rng.random() < (0.05 if entry in ("x", "fsdp_colour") else 0.5)]
        if not entries:
            lines.append(f"{name}: {{}}")
            continue
        lines.append(f"{name}:")
        lines += [f"  {entry}: {pick(rng, SECTIONS[name][entry])}" for entry in entries]
    rng.shuffle(lines) if not sections else None
    return "\n".join(lines) + "\n"


def accelerate(rng):
    groups = ["deepspeed", "fsdp", "fp8", "megatron_lm", "parallelism_config"]
    words = []
    usual = list(ACCELERATE_USUAL)
    if rng.random() < 0.6:
        kind = rng.choice(["multi_gpu", "cpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "use_parallelism_config"])
        words.append([f"--{spelled(rng, kind)}"])
        if kind == "use_parallelism_config":
            words.append([rng.choice(["--use_fsdp"])])
            words.append([rng.choice(["--fsdp_version=2"])])
        if rng.random() < 0.8:
            words.append(["--num_processes", rng.choice(["2", "4", "3"])])
        prefix = {"use_deepspeed": "", "use_fsdp": "fsdp", "use_megatron_lm": "megatron", "use_parallelism_config": "parallelism"}.get(kind)
        if prefix is not None:
            usual += [name for name in ACCELERATE if name.startswith(prefix or ("deepspeed", "zero", "offload", "gradient"))]
    switches = ACCELERATE_SWITCHES if rng.random() < 0.3 else ["debug", "module", "no_python", "enable_cpu_affinity", "quiet", "same_network"]
    words += options(rng, ACCELERATE, switches, usual, ACCELERATE_SHORT, [0, 1, 1, 2, 3, 4])
    text = None
    if rng.random() < 0.4:
        text = config(rng)
        words.insert(0, ["--config_file", "config.yaml"])
    if rng.random() < 0.05:
        words.insert(rng.randint(0, len(words)), [rng.choice(UNKNOWN)])
    env = {}
    for _ in range(rng.choice([0, 0, 0, 1])):
        name = rng.choice(["OMP_NUM_THREADS", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "ACCELERATE_MIXED_PRECISION", "MASTER_ADDR",
                           "PET_NPROC_PER_NODE", "PET_ROLE", "PET_STANDALONE", "PET_REDIRECTS"])
        env[name] = rng.choice({"OMP_NUM_THREADS": ["4", "0", "x"], "PYTHONPATH": ["/x", ""], "CUDA_VISIBLE_DEVICES": ["3,4"]}.get(name, ["1"]))
    return {"kind": "accelerate", "argv": [word for group in words for word in group] + program(rng), "env": env, "config": text}


PEERS = {"torchrun": torchrun, "accelerate": accelerate}


def cases(peer, count, seed):
    rng = random.Random(seed)
    return (PEERS[peer](rng) for _ in range(count))
