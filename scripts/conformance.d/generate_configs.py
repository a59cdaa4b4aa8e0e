"""Random configurations of DeepSpeed: mostly valid ones, with some mistakes, written as JSON or as Hjson."""

import copy
import json
import random

BOOLS = [True, False]
# Values that many keys cannot have.
ODD = ["auto", None, "x", "", -1, 0, 1.5, 2.0, "5", "5e8", "1_000", " 7 ", "yes", "No", [], {}, [1], {"a": 1}, 1e12, 1e300, True]
SIZES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 100, 128]
BUCKETS = [1, 1000, 5e7, 500000000, 1e9, "auto", 2e8]


def some(rng, table, chance):
    """A part of the keys of a table, each with a value of its list."""
    return {key: rng.choice(values) for key, values in table.items() if rng.random() < chance}


FP16 = {
    "enabled": [True, True, False, "auto"],
    "auto_cast": BOOLS,
    "loss_scale": [0, 0, 0, 128, 0.5, "auto", "64"],
    "initial_scale_power": [16, 12, 32, 0, 8],
    "loss_scale_window": [1000, 100, 500],
    "hysteresis": [2, 1, 4],
    "consecutive_hysteresis": BOOLS,
    "min_loss_scale": [1, 2, "1"],
    "fp16_master_weights_and_grads": [False],
}
BF16 = {
    "enabled": [True, False, "auto"],
    "immediate_grad_update": BOOLS,
    "check_grad_overflow": BOOLS,
    "bf16_master_weights_and_grads": [False],
    "bf16_optimizer_states": [False],
}
OFFLOAD_OPTIMIZER = {
    "device": ["none", "cpu", "cpu", "nvme"],
    "nvme_path": ["/local/nvme", None],
    "buffer_count": [4, 5],
    "pin_memory": BOOLS,
    "pipeline_read": BOOLS,
    "pipeline_write": BOOLS,
    "fast_init": BOOLS,
    "ratio": [1.0, 1],
    "super_offload": [False],
}
OFFLOAD_PARAM = {
    "device": ["none", "cpu", "nvme"],
    "nvme_path": ["/local/nvme"],
    "buffer_count": [5],
    "buffer_size": [1e8, 100000000],
    "max_in_cpu": [1e9],
    "pin_memory": BOOLS,
}
ZERO = {
    "stage": [0, 1, 2, 3, 3, 3, "2", 2.0, True],
    "contiguous_gradients": BOOLS,
    "reduce_scatter": BOOLS,
    "reduce_bucket_size": BUCKETS,
    "allgather_bucket_size": BUCKETS,
    "allgather_partitions": BOOLS,
    "overlap_comm": [True, False, None],
    "compute_grad_norm": [True],
    "load_from_fp32_weights": BOOLS,
    "elastic_checkpoint": BOOLS,
    "sub_group_size": BUCKETS,
    "stage3_prefetch_bucket_size": BUCKETS,
    "stage3_param_persistence_threshold": [1e5, 10000, "auto", 0],
    "stage3_max_live_parameters": [1e9],
    "stage3_max_reuse_distance": [1e9],
    "stage3_gather_16bit_weights_on_model_save": BOOLS,
    "round_robin_gradients": BOOLS,
    "ignore_unused_parameters": BOOLS,
    "zero_hpz_partition_size": [1],
    "zero_quantized_weights": [False],
    "prefetch_bucket_size": [1000],
    "cpu_offload": [True, False, None],
    "cpu_offload_param": [True, False],
    "stage3_gather_fp16_weights_on_model_save": BOOLS,
    "leaf_module": [None, {}, {"classes": ["a"]}, {"names": "b"}],
}
# Keys that most files do not have.
RARE = {"prefetch_bucket_size", "cpu_offload", "cpu_offload_param", "stage3_gather_fp16_weights_on_model_save", "leaf_module"}
ADAM = {
    "lr": [1e-3, 3e-4, 0.00015],
    "betas": [[0.9, 0.999], [0.8, 0.99], [0.9, 0.95]],
    "eps": [1e-8, 1e-6],
    "weight_decay": [0, 0.01, 3e-7],
    "adam_w_mode": BOOLS,
    "torch_adam": [False, True],
    "amsgrad": [False],
}
SGD = {
    "lr": [0.1, 0.01],
    "momentum": [0, 0.9],
    "dampening": [0, 0, 0.1],
    "weight_decay": [0, 5e-4],
    "nesterov": BOOLS,
}
LION = {"lr": [1e-4], "betas": [[0.9, 0.99]], "weight_decay": [0, 0.1]}
OPTIMIZERS = [
    ("Adam", ADAM), ("AdamW", ADAM), ("adamw", ADAM), ("SGD", SGD), ("Lion", LION), ("lion", LION),
]
WARMUP = {
    "warmup_min_lr": [0, 1e-5],
    "warmup_max_lr": [1e-3, 3e-4],
    "warmup_num_steps": [1, 10, 1000],
    "warmup_type": ["log", "linear", "other"],
}
SCHEDULERS = [
    ("WarmupLR", WARMUP, {}),
    ("WarmupDecayLR", WARMUP, {"total_num_steps": [100, 1000, 5]}),
    ("WarmupCosineLR", {"warmup_min_ratio": [0, 0.1], "warmup_num_steps": [10], "cos_min_ratio": [0.1], "warmup_type": ["linear"]},
     {"total_num_steps": [100]}),
    ("OneCycle", {"decay_lr_rate": [0.5], "cycle_first_step_size": [100], "cycle_second_step_size": [50, None],
                  "cycle_first_stair_count": [0, 5], "decay_step_size": [0, 10], "cycle_momentum": BOOLS},
     {"cycle_min_lr": [0.01], "cycle_max_lr": [0.1]}),
    ("LRRangeTest", {"lr_range_test_min_lr": [1e-4], "lr_range_test_step_size": [100], "lr_range_test_step_rate": [5],
                     "lr_range_test_staircase": BOOLS}, {}),
    ("CosineAnnealingLR", {"eta_min": [0, 1e-5]}, {"T_max": [100]}),
    ("LinearLR", {"start_factor": [0.1], "total_iters": [10]}, {}),
    ("StepLR", {"gamma": [0.5]}, {"step_size": [10]}),
    ("ExponentialLR", {}, {"gamma": [0.9]}),
]
TOP = {
    "gradient_clipping": [1.0, 0.5, 0, 1],
    "steps_per_print": [10, 2000, None],
    "wall_clock_breakdown": BOOLS,
    "memory_breakdown": BOOLS,
    "dump_state": BOOLS,
    "communication_data_type": ["fp32", "fp16", "BF16", None],
    "prescale_gradients": BOOLS,
    "gradient_predivide_factor": [1.0, 2],
    "gradient_allreduce_op": ["mean", "MEAN"],
    "zero_allow_untested_optimizer": BOOLS,
    "activation_checkpointing": [{}, {"number_checkpoints": 4}, {"partition_activations": True}],
    "tensorboard": [{}, {"enabled": True, "output_path": "runs", "job_name": "a"}, {"enabled": "true"}],
    "csv_monitor": [{"enabled": True}, {"enabled": False, "output_path": "x"}],
    "wandb": [{"enabled": False}, {"project": "p"}],
    "comms_logger": [{"enabled": True, "prof_ops": []}, {"verbose": 1}],
    "flops_profiler": [{"enabled": False}, {"enabled": True, "profile_step": 2}],
    "checkpoint": [{}, {"tag_validation": "Warn"}, {"load_universal": True}],
    "data_types": [{}, {"grad_accum_dtype": "fp32"}, {"grad_accum_dtype": "bf16"}, {"keep_in_fp32_modules": "auto"}],
    "aio": [{}, {"block_size": 1048576, "queue_depth": 8}, None],
    "compile": [{"deepcompile": False}, {"passes": ["z1"]}],
    "timers": [{}, {"throughput": {"enabled": False}}],
    "tensor_parallel": [{}, {"autotp_size": 0}],
    "pipeline": [{"stages": "auto"}],
    "data_efficiency": [{"enabled": False}, {"seed": 1}],
    "autotuning": [{"enabled": False}],
    "hybrid_engine": [{"enabled": False}],
    "torch_autocast": [{"enabled": False, "dtype": "bfloat16"}],
    "sequence_parallel_size": [1],
    "dataloader_drop_last": BOOLS,
    "log_level": ["info", None],
    "bfloat16": [{"enabled": True}, {}],
    "seq_parallel_communication_data_type": ["fp32"],
}
OLD = {"bfloat16"}
# Values that one of the two refuses, or that mean something else in one of them.
BAD = [
    ("fp16.loss_scale", [-1, True, "x"]), ("fp16.loss_scale_window", [0, True]), ("fp16.min_loss_scale", [0, 0.25]),
    ("fp16.initial_scale_power", [200, -200]), ("fp16.fp16_master_weights_and_grads", [True]),
    ("bf16.bf16_master_weights_and_grads", [True]), ("bf16.bf16_optimizer_states", [True]),
    ("zero_optimization.stage", [4, -1, "two", None]), ("zero_optimization.compute_grad_norm", [False]),
    ("zero_optimization.zero_hpz_partition_size", [8, -1]), ("zero_optimization.zero_quantized_weights", [True]),
    ("zero_optimization.mics_shard_size", [8]), ("zero_optimization.offload_optimizer.device", ["gpu", None]),
    ("zero_optimization.offload_optimizer.ratio", [0.5, 2]), ("zero_optimization.offload_optimizer.super_offload", [True]),
    ("zero_optimization.offload_param.buffer_count", [-1]), ("zero_optimization.legacy_stage1", [True]),
    ("zero_optimization.cpu_offload", [True, False, None]), ("zero_optimization.zenflow", [{}]),
    ("optimizer.params.amsgrad", [True]), ("optimizer.params.set_grad_none", [True]), ("optimizer.params.lr", ["auto", -1, "x"]),
    ("optimizer.params.bias_correction", [False]), ("optimizer.params.max_grad_norm", [1.0]), ("optimizer.params.betas", [[0.9], 0.9, [0.9, 1.0]]),
    ("optimizer.type", ["sgd", "Lamb", "Muon", "OneBitAdam", 5, None]), ("optimizer.params", [None, []]),
    ("scheduler.type", ["warmuplr", "ReduceLROnPlateau", 5, None]), ("scheduler.params", [None, {}]),
    ("scheduler.params.warmup_num_steps", [0, 1.5]), ("scheduler.params.warmup_type", ["other"]),
    ("scheduler.params.last_batch_iteration", [-1, 5]), ("scheduler.params.total_num_steps", ["auto", 0, -5]),
    ("gradient_clipping", ["auto", -1, None, True]), ("communication_data_type", ["int8", 5]), ("gradient_allreduce_op", ["sum", "max", None]),
    ("managed_gradient_accumulation", [False]), ("wandb", [{"enabled": True}, None]), ("checkpoint.tag_validation", ["no", 5]),
    ("checkpoint.use_node_local_storage", [True]), ("tensor_parallel.autotp_size", [4]), ("data_efficiency.enabled", [True]),
    ("autotuning.enabled", [True]), ("hybrid_engine.enabled", [True]), ("torch_autocast.enabled", [True]),
    ("activation_checkpointing.cpu_checkpointing", [True]), ("expert_parallel", [{"enabled": True}, None]),
    ("weight_quantization", [{}]), ("datastates_ckpt", [{}, False]), ("flops_profiler.enabled", [True]), ("aio.use_gds", [True]),
    ("elasticity", [{}]), ("amp", [{}, None]), ("steps_per_print", [0, "x", 1.5]), ("wall_clock_breakdown", [1, "x"]),
    ("vocabulary_size", [1000, "x"]), ("sequence_parallel_size", [2]), ("train_batch_size", [0, -8, "8", 8.5, "auto", True]),
    ("train_micro_batch_size_per_gpu", [0, "auto", None]), ("gradient_accumulation_steps", [0, "auto"]),
    ("bfloat16", [{"enabled": True}, None, True]), ("fp16", [None, True, "auto"]), ("zero_optimization", [None, 1, "auto", True, False]),
]
WRONG_KEYS = ["foo", "stagee", "enable", "lr_rate", "train_batch", "loss_scal", "device"]


def tree(rng, ranks):
    """A configuration for a number of ranks, as Python values."""
    config = batch(rng, ranks)
    for key, values in TOP.items():
        if rng.random() < (0.02 if key in OLD else 0.1):
            config[key] = rng.choice(values)
    if rng.random() < 0.6:
        name, params = rng.choice(OPTIMIZERS)
        config["optimizer"] = {"type": name, "params": some(rng, params, 0.5)}
        if rng.random() < 0.02:
            del config["optimizer"][rng.choice(["type", "params"])]
    if rng.random() < 0.4:
        name, params, required = rng.choice(SCHEDULERS)
        required = {key: rng.choice(values) for key, values in required.items() if rng.random() < 0.98}
        config["scheduler"] = {"type": name, "params": {**required, **some(rng, params, 0.5)}}
    if rng.random() < 0.4:
        config["fp16"] = some(rng, FP16, 0.4)
    if rng.random() < 0.3:
        config["bf16"] = some(rng, BF16, 0.4)
    if rng.random() < 0.7:
        config["zero_optimization"] = zero(rng)
    return config


def batch(rng, ranks):
    """Batch sizes, most of them consistent."""
    micro, steps = rng.choice(SIZES[:8]), rng.choice([1, 1, 2, 3, 4])
    sizes = [micro * steps * ranks, micro, steps]
    if rng.random() < 0.1:
        sizes[rng.randrange(3)] = rng.choice(SIZES)
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    shown = rng.choice([(0,), (1,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
    if rng.random() < 0.02:
        shown = rng.choice([(), (2,)])
    return {keys[at]: sizes[at] for at in shown}


def zero(rng):
    if rng.random() < 0.1:
        return rng.choice([True, False])
    rare = {key: values for key, values in ZERO.items() if key in RARE}
    config = some(rng, {key: values for key, values in ZERO.items() if key not in RARE}, 0.25)
    config.update(some(rng, rare, 0.02))
    if rng.random() < 0.4:
        config["offload_optimizer"] = some(rng, OFFLOAD_OPTIMIZER, 0.35)
    if rng.random() < 0.3:
        config["offload_param"] = some(rng, OFFLOAD_PARAM, 0.4)
    return config


def objects(value):
    """Every object of a tree."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from objects(inner)


def spoil(rng, config):
    """Makes a mistake: another value, or a key that does not exist."""
    if rng.random() < 0.6:
        path, values = rng.choice(BAD)
        put(config, path.split("."), rng.choice(values))
        return
    place = rng.choice(list(objects(config)))
    if place and rng.random() < 0.7:
        place[rng.choice(list(place))] = rng.choice(ODD)
    else:
        place[rng.choice(WRONG_KEYS)] = rng.choice(ODD)


def put(config, path, value):
    """Sets a value, and makes the objects on its way."""
    for key in path[:-1]:
        if not isinstance(config.get(key), dict):
            config[key] = {}
        config = config[key]
    config[path[-1]] = value


def key_text(rng, key):
    style = rng.random()
    if style < 0.6 or not key.isidentifier():
        return json.dumps(key)
    return key if style < 0.9 else f"'{key}'"


def blank(rng):
    return rng.choice(["", "", " ", "\n", "  # a comment\n", " /* c */ ", "\n// c\n", "\t"])


def hjson(rng, value, depth=0):
    """A value as Hjson, with a random layout."""
    if isinstance(value, dict):
        parts = []
        for key, inner in value.items():
            parts.append(f"{blank(rng)}{key_text(rng, key)}:{rng.choice(['', ' '])}{hjson(rng, inner, depth + 1)}")
        return "{" + separated(rng, parts) + "}"
    if isinstance(value, list):
        return "[" + separated(rng, [hjson(rng, inner, depth + 1) for inner in value]) + "]"
    if isinstance(value, str) and value.isalnum() and rng.random() < 0.2:
        # Text without quotes ends at its line.
        return f"{value}\n"
    return json.dumps(value)


def separated(rng, parts):
    out = ""
    for at, part in enumerate(parts):
        is_last = at == len(parts) - 1
        # Without a comma the next part begins on a line of its own.
        end = rng.choice(["", ",", "\n"]) if is_last else rng.choice([", ", ",\n", "\n"])
        out += part + end
    return out


def mutate(rng, text):
    """Removes, doubles or inserts a character."""
    at = rng.randrange(len(text) + 1)
    kind = rng.random()
    if kind < 0.4:
        return text[:at] + text[at + 1 :]
    return text[:at] + rng.choice(['"', ",", "}", "{", "]", ":", "'", "#", "/", "\\", "\n", " ", "x", "0", "NaN"]) + text[at:]


def render(rng, config):
    style = rng.random()
    if style < 0.35:
        text = json.dumps(config, indent=2)
    elif style < 0.5:
        text = json.dumps(config)
    else:
        text = hjson(rng, config)
        if style > 0.95 and text.endswith("}"):
            text = text[1:-1] + "\n"
    if rng.random() < 0.06:
        text = mutate(rng, text)
    if rng.random() < 0.02:
        text += rng.choice(["x", "{}", "}", " // end", "\n\n"])
    return text + rng.choice(["", "\n"])


def double(rng, text):
    """Gives a key twice."""
    return text.replace("{", '{"steps_per_print": 1, "steps_per_print": 2, ', 1)


def cases(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        ranks = rng.choice([1, 1, 2, 2, 3, 4, 8, 16])
        # The tables stay as they are.
        config = copy.deepcopy(tree(rng, ranks))
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            spoil(rng, config)
        text = render(rng, config)
        if rng.random() < 0.01:
            text = double(rng, text)
        if rng.random() < 0.005:
            text = rng.choice(["", "\n", "# nothing\n", "null", "[]", "true", "8"])
        yield {"text": text, "world_size": ranks}
