//! `zero_optimization` and the offload of optimizer and parameters.

use super::spec::{
    COUNT, FRACTION, KeyDefault, KeyKind, OFF, ON, POSITIVE, SectionReader, SectionSpec, WHOLE,
    idle, refused, removed, works, works_as,
};

/// Elements of a bucket unless the file says otherwise.
const BUCKET: KeyDefault = KeyDefault::Whole(500_000_000);
const BILLION: KeyDefault = KeyDefault::Whole(1_000_000_000);

const OVERLAP: &str = "gradients are reduced while backward continues";
const OWN_PLAN: &str = "remuda plans its collectives itself; numbers do not depend on the plan";
const BLOCKS: &str =
    "parameters are gathered one block of the model at a time, and freed after use";
const LIBRARY: &str = "a switch of DeepSpeed's implementation on torch modules";
const ONE_FORMAT: &str =
    "a checkpoint of remuda has f32 weights, and loads at any world size and stage";
const FULL_PRECISION: &str =
    "remuda sends parameters and gradients in their own types; remove the key";

pub(super) static ZERO: SectionSpec = SectionSpec {
    path: "zero_optimization",
    reader: SectionReader::Model,
    keys: &[
        works("stage", KeyKind::Stage, KeyDefault::Whole(0)),
        idle("contiguous_gradients", KeyKind::Bool, ON, "gradients are always in one flat buffer"),
        idle("reduce_scatter", KeyKind::Bool, ON, OWN_PLAN),
        works("reduce_bucket_size", POSITIVE, BUCKET),
        idle("use_multi_rank_bucket_allreduce", KeyKind::Bool, ON, OWN_PLAN),
        idle("allgather_partitions", KeyKind::Bool, ON, OWN_PLAN),
        idle("allgather_bucket_size", COUNT, BUCKET, BLOCKS),
        idle("overlap_comm", KeyKind::Bool, KeyDefault::Words("true at stage 3"), OVERLAP)
            .or_null(),
        idle("compute_grad_norm", KeyKind::Bool, ON, "the norm is always computed"),
        idle("load_from_fp32_weights", KeyKind::Bool, ON, ONE_FORMAT),
        idle("elastic_checkpoint", KeyKind::Bool, OFF, ONE_FORMAT),
        works("offload_param", KeyKind::Section(&OFFLOAD_PARAM), KeyDefault::Null),
        works("offload_optimizer", KeyKind::Section(&OFFLOAD_OPTIMIZER), KeyDefault::Null),
        refused(
            "zenflow",
            KeyKind::Section(&ZENFLOW),
            KeyDefault::Null,
            "remuda applies every gradient in its own step; use `offload_optimizer` alone",
        ),
        works("sub_group_size", COUNT, BILLION),
        works_as(
            "cpu_offload_param",
            KeyKind::Bool,
            KeyDefault::Null,
            "old spelling of `offload_param.device: cpu`",
        ),
        idle(
            "cpu_offload_use_pin_memory",
            KeyKind::Bool,
            KeyDefault::Null,
            "old spelling of `pin_memory`",
        ),
        works_as(
            "cpu_offload",
            KeyKind::Bool,
            KeyDefault::Null,
            "old spelling of `offload_optimizer.device: cpu`",
        ),
        works("stage3_prefetch_bucket_size", COUNT, KeyDefault::Whole(50_000_000))
            .also("prefetch_bucket_size"),
        works("stage3_param_persistence_threshold", COUNT, KeyDefault::Whole(100_000))
            .also("param_persistence_threshold"),
        idle("stage3_model_persistence_threshold", COUNT, KeyDefault::Words("maxint"), BLOCKS)
            .also("model_persistence_threshold"),
        idle("stage3_max_live_parameters", COUNT, BILLION, BLOCKS).also("max_live_parameters"),
        idle("stage3_max_reuse_distance", COUNT, BILLION, BLOCKS).also("max_reuse_distance"),
        works("stage3_gather_16bit_weights_on_model_save", KeyKind::Bool, OFF)
            .also("gather_16bit_weights_on_model_save"),
        idle("stage3_module_granularity_threshold", WHOLE, KeyDefault::Whole(0), BLOCKS)
            .also("module_granularity_threshold"),
        idle("stage3_use_all_reduce_for_fetch_params", KeyKind::Bool, OFF, OWN_PLAN)
            .also("use_all_reduce_for_fetch_params"),
        idle("stage3_allgather_sequential", KeyKind::Bool, OFF, OWN_PLAN)
            .also("allgather_sequential"),
        works_as(
            "stage3_gather_fp16_weights_on_model_save",
            KeyKind::Bool,
            OFF,
            "old spelling of `stage3_gather_16bit_weights_on_model_save`",
        ),
        idle(
            "ignore_unused_parameters",
            KeyKind::Bool,
            ON,
            "a parameter without a gradient has the gradient 0",
        ),
        refused("legacy_stage1", KeyKind::Bool, OFF, "remove the key; stage 1 is `stage: 1`"),
        idle("round_robin_gradients", KeyKind::Bool, OFF, OWN_PLAN),
        idle("parameter_alignment", KeyKind::Bool, OFF, "shards begin at whole blocks of elements"),
        works_as(
            "zero_hpz_partition_size",
            COUNT,
            KeyDefault::Whole(1),
            "with the value N, parameters are divided over every N ranks; gradients and optimizer state over all ranks",
        ),
        refused("zero_quantized_weights", KeyKind::Bool, OFF, FULL_PRECISION),
        refused("zero_quantized_nontrainable_weights", KeyKind::Bool, OFF, FULL_PRECISION),
        refused("zero_quantized_gradients", KeyKind::Bool, OFF, FULL_PRECISION),
        idle("memory_efficient_linear", KeyKind::Bool, ON, LIBRARY),
        idle("pipeline_loading_checkpoint", KeyKind::Bool, OFF, LIBRARY),
        idle("override_module_apply", KeyKind::Bool, ON, LIBRARY),
        idle("log_trace_cache_warnings", KeyKind::Bool, OFF, LIBRARY),
        idle(
            "enable_sanity_checks",
            KeyKind::Bool,
            OFF,
            "ranks always compare the fingerprints of their calls",
        ),
        idle("save_muon_momentum_buffer_in_memory", KeyKind::Bool, OFF, "remuda has no Muon"),
        idle(
            "leaf_module",
            KeyKind::Section(&LEAF_MODULE),
            KeyDefault::Words("three classes"),
            LEAF,
        )
        .or_null(),
        removed("mics_shard_size", "DeepSpeed removed MiCS; stage 3 shards over all ranks"),
        removed(
            "mics_hierarchical_params_gather",
            "DeepSpeed removed MiCS; stage 3 shards over all ranks",
        ),
        removed("zeropp_loco_param", "DeepSpeed removed LoCo; remove the key"),
    ],
};

/// Devices of an offload.
pub(super) const DEVICES: &[&str] = &["none", "cpu", "nvme"];

const DEVICE: &str =
    "`cpu`: memory of the host, where a CPU slot has everything anyway; `nvme` needs `nvme_path`";
const NVME_PATH: &str = "the directory must exist on every node; remuda does not create it";
const OWN_BUFFERS: &str = "remuda chooses its buffers itself";
const PINNED: &str = "memory that a GPU copies from is always pinned";
/// Why settings of reads and writes have no effect.
pub(super) const MAPPED_FILES: &str =
    "remuda maps the files of `nvme_path`; the kernel reads and writes them";

static OFFLOAD_PARAM: SectionSpec = SectionSpec {
    path: "zero_optimization.offload_param",
    reader: SectionReader::Model,
    keys: &[
        works_as("device", KeyKind::OneOf(DEVICES), KeyDefault::Text("none"), DEVICE),
        works_as("nvme_path", KeyKind::Text, KeyDefault::Null, NVME_PATH),
        idle("buffer_count", COUNT, KeyDefault::Whole(5), OWN_BUFFERS),
        idle("buffer_size", COUNT, KeyDefault::Whole(100_000_000), OWN_BUFFERS),
        idle("max_in_cpu", COUNT, BILLION, OWN_BUFFERS),
        idle("pin_memory", KeyKind::Bool, ON, PINNED),
    ],
};

static OFFLOAD_OPTIMIZER: SectionSpec = SectionSpec {
    path: "zero_optimization.offload_optimizer",
    reader: SectionReader::Model,
    keys: &[
        works_as("device", KeyKind::OneOf(DEVICES), KeyDefault::Text("none"), DEVICE),
        works_as("nvme_path", KeyKind::Text, KeyDefault::Null, NVME_PATH),
        idle("buffer_count", COUNT, KeyDefault::Whole(4), OWN_BUFFERS),
        idle("pin_memory", KeyKind::Bool, ON, PINNED),
        idle("pipeline_read", KeyKind::Bool, OFF, MAPPED_FILES),
        idle("pipeline_write", KeyKind::Bool, OFF, MAPPED_FILES),
        idle("fast_init", KeyKind::Bool, OFF, MAPPED_FILES),
        refused(
            "ratio",
            FRACTION,
            KeyDefault::Number(1.0),
            "remuda moves the whole state of the optimizer or nothing; remove the key",
        ),
        refused(
            "super_offload",
            KeyKind::Bool,
            OFF,
            "remove the key; the optimizer runs where its state is",
        ),
        idle(
            "cpuadam_cores_perc",
            FRACTION,
            KeyDefault::Number(0.8),
            "`--threads` sets the threads of a worker",
        ),
    ],
};

const NO_ZENFLOW: &str = "ZenFlow is refused";

static ZENFLOW: SectionSpec = SectionSpec {
    path: "zero_optimization.zenflow",
    reader: SectionReader::Model,
    keys: &[
        idle("topk_ratio", FRACTION, KeyDefault::Number(0.1), NO_ZENFLOW),
        idle("select_strategy", KeyKind::Text, KeyDefault::Text("auto"), NO_ZENFLOW),
        idle("select_interval", KeyKind::Any, KeyDefault::Text("auto"), NO_ZENFLOW),
        idle("update_interval", KeyKind::Any, KeyDefault::Text("auto"), NO_ZENFLOW),
        idle("overlap_step", KeyKind::Bool, OFF, NO_ZENFLOW),
        idle("offload", KeyKind::Bool, OFF, NO_ZENFLOW),
        idle("auto_ratio", FRACTION, KeyDefault::Number(0.99), NO_ZENFLOW),
        idle("full_warm_up_rounds", WHOLE, KeyDefault::Whole(0), NO_ZENFLOW),
        idle("pt_reserved_cores_perc", FRACTION, KeyDefault::Number(0.5), NO_ZENFLOW),
        idle("steps_per_epoch", WHOLE, KeyDefault::Null, NO_ZENFLOW),
    ],
};

const LEAF: &str = "a block of the model is always gathered whole";

static LEAF_MODULE: SectionSpec = SectionSpec {
    path: "zero_optimization.leaf_module",
    reader: SectionReader::Model,
    keys: &[
        idle("classes", KeyKind::Words, KeyDefault::Words("three classes"), LEAF),
        idle("names", KeyKind::Words, KeyDefault::Empty, LEAF),
        idle("name_suffixes", KeyKind::Words, KeyDefault::Empty, LEAF),
    ],
};
