//! The options of `accelerate launch` 1.15, as a table.

use super::value::SettingValue;

/// What an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagKind {
    /// Nothing: it is given or not.
    Switch,
    Text,
    Whole,
    Float,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// `true` or `false` in one of Python's spellings.
    Bool,
    /// Any text: empty is false. accelerate reads these options so.
    NotEmpty,
    /// Three of `true` and `false`.
    ThreeBools,
    /// Words of several options of this name.
    Words,
}

/// The value of an option that the line and the file do not give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DefaultValue {
    None,
    False,
    True,
    Whole(i64),
    Float(f64),
    Text(&'static str),
    ThreeFalse,
}

impl DefaultValue {
    pub(crate) fn value(self) -> SettingValue {
        match self {
            Self::None => SettingValue::None,
            Self::False => SettingValue::Bool(false),
            Self::True => SettingValue::Bool(true),
            Self::Whole(number) => SettingValue::Whole(number),
            Self::Float(number) => SettingValue::Float(number),
            Self::Text(text) => SettingValue::Text(text.to_owned()),
            Self::ThreeFalse => SettingValue::Bools(vec![false; 3]),
        }
    }
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlagSpec {
    /// Its name, and the name of its setting.
    pub(crate) name: &'static str,
    pub(crate) kind: FlagKind,
    pub(crate) default: DefaultValue,
    /// Line of the help; empty: the option is not shown.
    pub(crate) help: &'static str,
}

/// Options under one heading of the help.
pub(crate) struct FlagGroup {
    pub(crate) heading: &'static str,
    pub(crate) flags: &'static [FlagSpec],
}

const fn flag(
    name: &'static str,
    kind: FlagKind,
    default: DefaultValue,
    help: &'static str,
) -> FlagSpec {
    FlagSpec { name, kind, default, help }
}

const fn switch(name: &'static str, help: &'static str) -> FlagSpec {
    flag(name, FlagKind::Switch, DefaultValue::False, help)
}

const fn text(name: &'static str, help: &'static str) -> FlagSpec {
    flag(name, FlagKind::Text, DefaultValue::None, help)
}

const fn text_or(name: &'static str, default: &'static str, help: &'static str) -> FlagSpec {
    flag(name, FlagKind::Text, DefaultValue::Text(default), help)
}

const fn whole(name: &'static str, help: &'static str) -> FlagSpec {
    flag(name, FlagKind::Whole, DefaultValue::None, help)
}

const fn whole_or(name: &'static str, default: i64, help: &'static str) -> FlagSpec {
    flag(name, FlagKind::Whole, DefaultValue::Whole(default), help)
}

const fn one_of(
    name: &'static str,
    words: &'static [&'static str],
    default: DefaultValue,
    help: &'static str,
) -> FlagSpec {
    flag(name, FlagKind::OneOf(words), default, help)
}

/// Backends of TorchDynamo, as accelerate's launcher names them.
const DYNAMO_BACKENDS: &[&str] = &[
    "no",
    "eager",
    "aot_eager",
    "inductor",
    "aot_ts_nvfuser",
    "nvprims_nvfuser",
    "cudagraphs",
    "ofi",
    "fx2trt",
    "onnxrt",
    "tensorrt",
    "aot_torchxla_trace_once",
    "torchxla_trace_once",
    MISSPELT_BACKEND,
    "tvm",
];

/// `torchxla_trace_once` as accelerate's launcher spells it; its library has the right spelling, and refuses this one.
pub(crate) const MISSPELT_BACKEND: &str = "torhchxla_trace_once";

/// Every option, by group.
pub(crate) const GROUPS: &[FlagGroup] = &[
    FlagGroup { heading: "Machines and workers", flags: MACHINES },
    FlagGroup { heading: "Training", flags: TRAINING },
    FlagGroup { heading: "Supervision and logs", flags: SUPERVISION },
    FlagGroup { heading: "DeepSpeed", flags: DEEPSPEED },
    FlagGroup { heading: "FSDP", flags: FSDP },
    FlagGroup { heading: "Parallelism", flags: PARALLELISM },
    FlagGroup { heading: "FP8", flags: FP8 },
    FlagGroup { heading: "Megatron-LM", flags: MEGATRON },
    FlagGroup { heading: "Not supported", flags: NOT_SUPPORTED },
];

const MACHINES: &[FlagSpec] = &[
    text("config_file", "Configuration file [default: that of `accelerate config`, if it exists]"),
    whole("num_processes", "Number of all workers [default: the GPUs of this machine]"),
    whole("num_machines", "Number of machines [default: 1]"),
    whole("machine_rank", "Number of this machine, from 0"),
    text("main_process_ip", "Address of machine 0"),
    whole("main_process_port", "Port of machine 0 [default: 29500; 0: a free port]"),
    switch(
        "same_network",
        "The machines are in one network: they meet at the address of machine 0",
    ),
    text_or(
        "rdzv_backend",
        "static",
        "How the machines meet: `static` or `c10d` [default: static]",
    ),
    text_or("rdzv_conf", "", "Settings of the rendezvous: `join_timeout=600`"),
    text("gpu_ids", "GPUs to use: `0,1`, or `all`"),
    text("mpirun_hostfile", "Hostfile of a job on the CPUs of several machines"),
];

const TRAINING: &[FlagSpec] = &[
    switch("cpu", "Use the CPU"),
    switch("multi_gpu", "One worker for each GPU"),
    switch("use_deepspeed", "The script uses DeepSpeed"),
    switch("use_fsdp", "The script uses FSDP"),
    switch("use_parallelism_config", "The script uses several kinds of parallelism, with FSDP 2"),
    switch("use_megatron_lm", "The script uses Megatron-LM"),
    one_of(
        "mixed_precision",
        &["no", "fp16", "bf16", "fp8"],
        DefaultValue::None,
        "Precision: `no`, `fp16`, `bf16`, `fp8` [default: no]",
    ),
    whole("num_cpu_threads_per_process", "OMP_NUM_THREADS of each worker"),
    switch("enable_cpu_affinity", "accelerate binds each worker to the CPUs beside its GPU"),
    one_of(
        "dynamo_backend",
        DYNAMO_BACKENDS,
        DefaultValue::None,
        "Backend of torch.compile [default: no]",
    ),
    one_of(
        "dynamo_mode",
        &["default", "reduce-overhead", "max-autotune"],
        DefaultValue::Text("default"),
        "Mode of torch.compile",
    ),
    switch("dynamo_use_fullgraph", "torch.compile makes one graph of the model"),
    switch("dynamo_use_dynamic", "torch.compile traces dynamic shapes"),
    switch("dynamo_use_regional_compilation", "torch.compile compiles repeated blocks once"),
    switch("module", "Run SCRIPT as a module: `python -m SCRIPT`"),
    switch("no_python", "Execute SCRIPT directly, without Python"),
    switch("debug", "accelerate checks the shapes of collectives"),
];

const SUPERVISION: &[FlagSpec] = &[
    whole_or("max_restarts", 0, "Restarts of all workers after a failure [default: 0]"),
    flag(
        "monitor_interval",
        FlagKind::Float,
        DefaultValue::Float(0.1),
        "Accepted; remuda needs no interval",
    ),
    text_or("role", "default", "Role of the workers: ROLE_NAME"),
    text_or("tee", "0", "Streams that go to files and to the screen: `3`, `0:1,1:2`"),
    text("log_dir", "Directory of the files"),
    switch("quiet", "Accepted; remuda prints no traceback of its own"),
];

const DEEPSPEED: &[FlagSpec] = &[
    text("deepspeed_config_file", "Configuration file of DeepSpeed"),
    whole("zero_stage", "Stage of ZeRO"),
    text("offload_optimizer_device", "Where the state of the optimizer is: `none`, `cpu`, `nvme`"),
    text("offload_param_device", "Where parameters are: `none`, `cpu`, `nvme`"),
    text("offload_optimizer_nvme_path", "Directory of the state of the optimizer"),
    text("offload_param_nvme_path", "Directory of parameters"),
    whole("gradient_accumulation_steps", "Steps between two updates"),
    flag(
        "gradient_clipping",
        FlagKind::Float,
        DefaultValue::None,
        "Limit of the norm of gradients",
    ),
    text("zero3_init_flag", "Whether the model is made in shards: `true`, `false`"),
    text("zero3_save_16bit_model", "Whether 16-bit weights are saved: `true`, `false`"),
    text("deepspeed_hostfile", "Hostfile of a job on several machines"),
    text("deepspeed_exclusion_filter", "As `--exclude` of `remuda run`"),
    text("deepspeed_inclusion_filter", "As `--include` of `remuda run`"),
    text(
        "deepspeed_multinode_launcher",
        "How agents start: `pdsh`, `openmpi`, `mpich`, `mvapich`, `slurm`; `standard` and `nossh`: one command line \
         for each machine",
    ),
    text("deepspeed_moe_layer_cls_names", "Classes of mixture-of-experts layers"),
];

const FSDP: &[FlagSpec] = &[
    one_of("fsdp_version", &["1", "2"], DefaultValue::Text("1"), "Version of FSDP [default: 1]"),
    text_or("fsdp_offload_params", "false", "Whether parameters are in host memory"),
    whole_or("fsdp_min_num_params", 100_000_000, "Size of a unit, with the policy by size"),
    text_or("fsdp_sharding_strategy", "FULL_SHARD", "FSDP 1: what is sharded"),
    text_or("fsdp_reshard_after_forward", "true", "Whether gathered parameters are freed"),
    text("fsdp_auto_wrap_policy", "How the model is cut into units"),
    text("fsdp_transformer_layer_cls_to_wrap", "Classes that are units: `Block,Layer`"),
    text("fsdp_backward_prefetch", "FSDP 1: when the next unit is gathered"),
    text("fsdp_state_dict_type", "Form of checkpoints"),
    text_or("fsdp_forward_prefetch", "false", "FSDP 1: whether the next unit is gathered early"),
    text_or("fsdp_use_orig_params", "true", "FSDP 1: whether parameters keep their names"),
    text_or("fsdp_cpu_ram_efficient_loading", "true", "Whether only rank 0 loads weights"),
    text_or("fsdp_sync_module_states", "true", "FSDP 1: whether rank 0 sends its weights"),
    text_or("fsdp_activation_checkpointing", "false", "Whether activations are computed again"),
    text_or(
        "fsdp_activation_checkpointing_offload",
        "false",
        "Whether activations that are kept are in host memory",
    ),
];

const PARALLELISM: &[FlagSpec] = &[
    whole_or("parallelism_config_dp_replicate_size", 1, "Copies of the model"),
    whole_or("parallelism_config_dp_shard_size", 1, "Shards of each copy"),
    whole_or("parallelism_config_tp_size", 1, "Ranks of tensor parallelism"),
    whole_or("parallelism_config_cp_size", 1, "Ranks of context parallelism"),
    one_of(
        "parallelism_config_cp_backend",
        &["torch"],
        DefaultValue::Text("torch"),
        "Implementation of context parallelism",
    ),
    text_or(
        "parallelism_config_cp_comm_strategy",
        "allgather",
        "Communication of context parallelism",
    ),
    whole_or("parallelism_config_sp_size", 1, "Ranks of sequence parallelism"),
    one_of(
        "parallelism_config_sp_backend",
        &["deepspeed"],
        DefaultValue::Text("deepspeed"),
        "Implementation of sequence parallelism",
    ),
    text("parallelism_config_sp_seq_length", "Length of sequences"),
    flag(
        "parallelism_config_sp_seq_length_is_variable",
        FlagKind::NotEmpty,
        DefaultValue::True,
        "Whether the length of sequences varies",
    ),
    text_or(
        "parallelism_config_sp_attn_implementation",
        "sdpa",
        "Attention of sequence parallelism",
    ),
];

const FP8: &[FlagSpec] = &[
    one_of(
        "fp8_backend",
        &["ao", "te", "msamp"],
        DefaultValue::None,
        "Library: `ao`, `te`, `msamp`",
    ),
    switch("fp8_use_autocast_during_eval", "Use FP8 in evaluation too"),
    whole_or("fp8_margin", 0, "Margin of the scale"),
    whole_or("fp8_interval", 1, "Steps between two scales"),
    one_of(
        "fp8_format",
        &["HYBRID", "E4M3", "E5M2"],
        DefaultValue::Text("HYBRID"),
        "FP8 format: `HYBRID`, `E4M3` or `E5M2`",
    ),
    whole_or("fp8_amax_history_len", 1024, "Length of the history of maxima"),
    one_of(
        "fp8_amax_compute_algo",
        &["max", "most_recent"],
        DefaultValue::Text("most_recent"),
        "Maximum that sets the scale: `max` or `most_recent`",
    ),
    flag(
        "fp8_override_linear_precision",
        FlagKind::ThreeBools,
        DefaultValue::ThreeFalse,
        "Products in high precision: forward, data gradient, weight gradient",
    ),
    one_of("fp8_opt_level", &["O1", "O2"], DefaultValue::Text("O2"), "Level of MS-AMP"),
    flag(
        "fp8_enable_fsdp_float8_all_gather",
        FlagKind::Bool,
        DefaultValue::True,
        "Gather FP8 weights",
    ),
    flag("fp8_pad_inner_dim", FlagKind::Bool, DefaultValue::True, "Pad the inner dimension"),
];

const fn megatron(name: &'static str, kind: FlagKind, default: DefaultValue) -> FlagSpec {
    flag(name, kind, default, "Setting of Megatron-LM")
}

const MEGATRON: &[FlagSpec] = &[
    megatron("megatron_lm_tp_degree", FlagKind::Whole, DefaultValue::Whole(1)),
    megatron("megatron_lm_use_custom_fsdp", FlagKind::NotEmpty, DefaultValue::False),
    megatron("megatron_lm_no_load_optim", FlagKind::NotEmpty, DefaultValue::False),
    megatron("megatron_lm_eod_mask_loss", FlagKind::NotEmpty, DefaultValue::False),
    megatron("megatron_lm_overlap_cpu_optimizer_d2h_h2d", FlagKind::NotEmpty, DefaultValue::False),
    megatron("megatron_lm_no_save_optim", FlagKind::NotEmpty, DefaultValue::False),
    megatron("megatron_lm_optimizer_cpu_offload", FlagKind::NotEmpty, DefaultValue::False),
    megatron("megatron_lm_use_precision_aware_optimizer", FlagKind::NotEmpty, DefaultValue::False),
    megatron("megatron_lm_decoder_last_pipeline_num_layers", FlagKind::Whole, DefaultValue::None),
    megatron("megatron_lm_pp_degree", FlagKind::Whole, DefaultValue::Whole(1)),
    megatron("megatron_lm_num_micro_batches", FlagKind::Whole, DefaultValue::None),
    megatron("megatron_lm_sequence_parallelism", FlagKind::Text, DefaultValue::None),
    megatron("megatron_lm_recompute_activations", FlagKind::Text, DefaultValue::None),
    megatron("megatron_lm_use_distributed_optimizer", FlagKind::Text, DefaultValue::None),
    megatron("megatron_lm_gradient_clipping", FlagKind::Float, DefaultValue::Float(1.0)),
    megatron("megatron_lm_recompute_granularity", FlagKind::Text, DefaultValue::None),
    megatron("megatron_lm_recompute_method", FlagKind::Text, DefaultValue::None),
    megatron("megatron_lm_recompute_num_layers", FlagKind::Whole, DefaultValue::None),
    megatron("megatron_lm_attention_backend", FlagKind::Text, DefaultValue::None),
    megatron("megatron_lm_expert_model_parallel_size", FlagKind::Whole, DefaultValue::None),
    megatron("megatron_lm_context_parallel_size", FlagKind::Whole, DefaultValue::None),
    megatron("megatron_lm_attention_dropout", FlagKind::Float, DefaultValue::None),
    megatron("megatron_lm_hidden_dropout", FlagKind::Float, DefaultValue::None),
    megatron("megatron_lm_attention_softmax_in_fp32", FlagKind::Text, DefaultValue::None),
    megatron("megatron_lm_expert_tensor_parallel_size", FlagKind::Whole, DefaultValue::None),
    megatron("megatron_lm_calculate_per_token_loss", FlagKind::Text, DefaultValue::None),
    megatron("megatron_lm_use_rotary_position_embeddings", FlagKind::Text, DefaultValue::None),
];

/// Options for TPUs and for SageMaker.
pub(crate) const NOT_SUPPORTED: &[FlagSpec] = &[
    switch("tpu", ""),
    switch("tpu_cluster", ""),
    switch("no_tpu_cluster", ""),
    switch("tpu_use_sudo", ""),
    flag("vm", FlagKind::Words, DefaultValue::None, ""),
    flag("env", FlagKind::Words, DefaultValue::None, ""),
    text("main_training_function", ""),
    switch("downcast_bf16", ""),
    text("aws_access_key_id", ""),
    text("aws_secret_access_key", ""),
];

/// Returns every option.
pub(crate) fn all_flags() -> impl Iterator<Item = &'static FlagSpec> {
    GROUPS.iter().flat_map(|group| group.flags)
}
