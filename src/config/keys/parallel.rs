//! Other kinds of parallelism and engines: `pipeline`, `tensor_parallel`, `expert_parallel`, `hybrid_engine`,
//! `compile`, `weight_quantization`.

use super::spec::{
    COUNT, KeyDefault, KeyKind, KeySpec, NOT_ENABLED, OFF, ON, POSITIVE, SectionReader,
    SectionSpec, WHOLE, idle, refused,
};

const NO_PIPELINE: &str = "there is no pipeline parallelism";

pub(super) static PIPELINE: SectionSpec = SectionSpec {
    path: "pipeline",
    reader: SectionReader::Lookup,
    keys: &[
        idle("stages", KeyKind::Any, KeyDefault::Text("auto"), NO_PIPELINE),
        idle("partition", KeyKind::Text, KeyDefault::Text("best"), NO_PIPELINE),
        idle("seed_layers", KeyKind::Bool, OFF, NO_PIPELINE),
        idle("activation_checkpoint_interval", COUNT, KeyDefault::Whole(0), NO_PIPELINE),
        idle("pipe_partitioned", KeyKind::Bool, ON, NO_PIPELINE),
        idle("grad_partitioned", KeyKind::Bool, ON, NO_PIPELINE),
        idle("use_reentrant", KeyKind::Bool, KeyDefault::Null, NO_PIPELINE),
    ],
};

const NO_TENSOR: &str = "there is no tensor parallelism";
const INSTEAD_OF_TENSOR: &str =
    "use `zero_optimization.stage` 3, which shards the parameters as well";

pub(super) static TENSOR_PARALLEL: SectionSpec = SectionSpec {
    path: "tensor_parallel",
    reader: SectionReader::Model,
    keys: &[
        idle("dtype", KeyKind::Any, KeyDefault::Words("torch.float16"), NO_TENSOR),
        refused("autotp_size", WHOLE, KeyDefault::Whole(0), INSTEAD_OF_TENSOR),
        idle("tp_overlap_comm", KeyKind::Bool, OFF, NO_TENSOR),
        idle("vocab_parallel_lm_head", KeyKind::Bool, KeyDefault::Null, NO_TENSOR),
        idle(
            "vocab_parallel_ce_backend",
            KeyKind::OneOf(&["torch", "liger"]),
            KeyDefault::Text("torch"),
            NO_TENSOR,
        ),
        idle("tp", KeyKind::Section(&TP), KeyDefault::Words("{}"), NO_TENSOR)
            .also("tensor_parallel"),
        idle("injection_policy_tuple", KeyKind::Any, KeyDefault::Null, NO_TENSOR),
        idle("partition_config", KeyKind::Any, KeyDefault::Null, NO_TENSOR),
        idle("preset_model", KeyKind::Text, KeyDefault::Null, NO_TENSOR),
        idle("keep_module_on_host", KeyKind::Bool, OFF, NO_TENSOR),
        idle("kernel_inject", KeyKind::Bool, OFF, NO_TENSOR).also("replace_with_kernel_inject"),
    ],
};

static TP: SectionSpec = SectionSpec {
    path: "tensor_parallel.tp",
    reader: SectionReader::Model,
    keys: &[
        refused("tp_size", WHOLE, KeyDefault::Whole(1), INSTEAD_OF_TENSOR),
        idle("tp_grain_size", WHOLE, KeyDefault::Whole(1), NO_TENSOR),
        idle("mpu", KeyKind::Any, KeyDefault::Null, NO_TENSOR),
        idle("tp_group", KeyKind::Any, KeyDefault::Null, NO_TENSOR),
    ],
};

const NO_EXPERTS: &str = "the models of remuda have no experts";

const fn expert(name: &'static str, default: KeyDefault) -> KeySpec {
    idle(name, KeyKind::Any, default, NO_EXPERTS)
}

pub(super) static EXPERT_PARALLEL: SectionSpec = SectionSpec {
    path: "expert_parallel",
    reader: SectionReader::Lookup,
    keys: &[
        refused("enabled", KeyKind::Bool, OFF, "the models of remuda have no experts"),
        expert("autoep_size", KeyDefault::Whole(1)),
        expert("expert_tensor_parallel_size", KeyDefault::Whole(1)),
        expert("validate_folding_routing", OFF),
        expert("async_split_plan", OFF),
        expert("preset_model", KeyDefault::Null),
        expert("moe_layer_pattern", KeyDefault::Null),
        expert("expert_pattern", KeyDefault::Null),
        expert("router_pattern", KeyDefault::Null),
        expert("use_grouped_mm", ON),
        expert("disable_triton_grouped_mm", OFF),
        expert("route_norm", KeyDefault::Null),
        expert("route_scale", KeyDefault::Number(1.0)),
        expert("score_apply", KeyDefault::Text("auto")),
        expert("combine_impl", KeyDefault::Text("auto")),
        expert("row_weighting_impl", KeyDefault::Text("auto")),
        expert("gate_up_impl", KeyDefault::Text("separate")),
        expert("comm_backend", KeyDefault::Text("comm")),
        expert("comm_num_sm", KeyDefault::Whole(12)),
        expert("comm_qp_margin", KeyDefault::Whole(4)),
        expert("comm_max_tokens_per_rank", KeyDefault::Whole(0)),
        expert("num_expert_groups", KeyDefault::Null),
        expert("num_limited_groups", KeyDefault::Null),
        expert("score_func", KeyDefault::Text("auto")),
        expert("top_k", KeyDefault::Text("auto")),
        refused(
            "load_balance_coeff",
            KeyKind::Any,
            KeyDefault::Null,
            "DeepSpeed refuses it as well; remove the key",
        ),
        expert("routed_scaling_factor", KeyDefault::Text("auto")),
        expert("expert_w1", KeyDefault::Null),
        expert("expert_w2", KeyDefault::Null),
        expert("expert_w3", KeyDefault::Null),
        expert("num_experts_attr", KeyDefault::Null),
        expert("top_k_attr", KeyDefault::Null),
        expert("has_shared_experts", KeyDefault::Null),
        expert("shared_experts_pattern", KeyDefault::Null),
        expert("shared_experts_gate_pattern", KeyDefault::Null),
        expert("expert_activation", KeyDefault::Null),
    ],
};

pub(super) static HYBRID_ENGINE: SectionSpec = SectionSpec {
    path: "hybrid_engine",
    reader: SectionReader::Model,
    keys: &[
        refused("enabled", KeyKind::Bool, OFF, "remuda trains only; remove the key"),
        idle("max_out_tokens", POSITIVE, KeyDefault::Whole(512), NOT_ENABLED),
        idle("inference_tp_size", WHOLE, KeyDefault::Whole(1), NOT_ENABLED),
        idle("release_inference_cache", KeyKind::Bool, OFF, NOT_ENABLED),
        idle("pin_parameters", KeyKind::Bool, ON, NOT_ENABLED),
        idle("tp_gather_partition_size", WHOLE, KeyDefault::Whole(8), NOT_ENABLED),
        idle("enable_cuda_graph", KeyKind::Bool, OFF, NOT_ENABLED),
    ],
};

const NO_COMPILER: &str = "remuda has no graph compiler, and its kernels are compiled already";

const fn compiler(name: &'static str, default: KeyDefault) -> KeySpec {
    idle(name, KeyKind::Bool, default, NO_COMPILER)
}

pub(super) static COMPILE: SectionSpec = SectionSpec {
    path: "compile",
    reader: SectionReader::Model,
    keys: &[
        compiler("deepcompile", OFF),
        compiler("autoep_non_moe", OFF),
        compiler("free_activation", OFF),
        idle("free_activation_threshold", WHOLE, KeyDefault::Whole(10 << 20), NO_COMPILER),
        compiler("offload_activation", OFF),
        compiler("offload_activation_pin_memory", ON),
        compiler("offload_opt_states", OFF),
        compiler("double_buffer", ON),
        compiler("symmetric_memory", OFF),
        compiler("debug_log", OFF),
        compiler("offload_parameters", OFF),
        compiler("sync_before_reduce", OFF),
        compiler("sync_after_reduce", OFF),
        compiler("sync_before_allgather", OFF),
        compiler("sync_after_allgather", OFF),
        compiler("keep_int_input_tensors", ON),
        compiler("keep_all_input_tensors", OFF),
        idle("passes", KeyKind::List, KeyDefault::Null, NO_COMPILER),
    ],
};

const NO_QUANTIZATION: &str = "quantized weights are refused";

pub(super) static WEIGHT_QUANTIZATION: SectionSpec = SectionSpec {
    path: "weight_quantization",
    reader: SectionReader::Model,
    keys: &[
        idle("enabled", KeyKind::Bool, ON, NO_QUANTIZATION),
        idle("num_bits", WHOLE, KeyDefault::Whole(8), NO_QUANTIZATION),
        idle(
            "q_type",
            KeyKind::OneOf(&["asymmetric", "symmetric"]),
            KeyDefault::Text("symmetric"),
            NO_QUANTIZATION,
        ),
        idle("q_groups", WHOLE, KeyDefault::Whole(1), NO_QUANTIZATION),
        idle("quantized_initialization", KeyKind::Any, KeyDefault::Words("{}"), NO_QUANTIZATION),
        idle("post_init_quant", KeyKind::Any, KeyDefault::Words("{}"), NO_QUANTIZATION),
    ],
};
