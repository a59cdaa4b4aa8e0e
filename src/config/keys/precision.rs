//! `fp16`, `bf16`, `torch_autocast`, `data_types`.

use super::spec::{
    AMOUNT, KeyDefault, KeyKind, NOT_ENABLED, OFF, ON, SectionReader, SectionSpec, WHOLE, idle,
    refused, works, works_as,
};

/// Names of element types.
pub(super) const DTYPES: &[&str] = &["fp32", "fp16", "bf16"];

/// Types of `torch_autocast`: DeepSpeed's names, and those of torch.
const AUTOCAST_DTYPES: &[&str] = &[
    "bf16",
    "bfloat16",
    "torch.bfloat16",
    "fp16",
    "float16",
    "half",
    "torch.float16",
    "fp32",
    "float32",
    "float",
    "torch.float32",
    "int8",
    "torch.int8",
];

const MASTERS: &str = "remuda keeps master weights and moments in f32; use `offload_optimizer` if they do not \
                       fit";

pub(super) static FP16: SectionSpec = SectionSpec {
    path: "fp16",
    reader: SectionReader::Model,
    keys: &[
        works("enabled", KeyKind::Bool, OFF),
        idle("auto_cast", KeyKind::Bool, OFF, "inputs have the type of the model"),
        works_as("loss_scale", AMOUNT, KeyDefault::Number(0.0), "0: dynamic").without_bool(),
        works("initial_scale_power", WHOLE, KeyDefault::Whole(16)),
        works("loss_scale_window", WHOLE, KeyDefault::Whole(1000)).without_bool(),
        works("hysteresis", WHOLE, KeyDefault::Whole(2)),
        works("consecutive_hysteresis", KeyKind::Bool, OFF),
        works("min_loss_scale", WHOLE, KeyDefault::Whole(1)).without_bool(),
        refused("fp16_master_weights_and_grads", KeyKind::Bool, OFF, MASTERS),
    ],
};

pub(super) static BF16: SectionSpec = SectionSpec {
    path: "bf16",
    reader: SectionReader::Model,
    keys: &[
        works("enabled", KeyKind::Bool, OFF),
        idle(
            "immediate_grad_update",
            KeyKind::Bool,
            OFF,
            "gradients are added in f32 in the order of the micro-batches",
        ),
        works("check_grad_overflow", KeyKind::Bool, ON),
        refused("bf16_master_weights_and_grads", KeyKind::Bool, OFF, MASTERS),
        refused("bf16_optimizer_states", KeyKind::Bool, OFF, MASTERS),
    ],
};

pub(super) static TORCH_AUTOCAST: SectionSpec = SectionSpec {
    path: "torch_autocast",
    reader: SectionReader::Lookup,
    keys: &[
        refused("enabled", KeyKind::Bool, OFF, "use `bf16` or `fp16`"),
        idle("dtype", KeyKind::OneOf(AUTOCAST_DTYPES), KeyDefault::Null, NOT_ENABLED),
        idle("lower_precision_safe_modules", KeyKind::Words, KeyDefault::Null, NOT_ENABLED),
    ],
};

pub(super) static DATA_TYPES: SectionSpec = SectionSpec {
    path: "data_types",
    reader: SectionReader::Lookup,
    keys: &[
        works_as(
            "grad_accum_dtype",
            KeyKind::OneOf(DTYPES),
            KeyDefault::Null,
            "gradients are always accumulated in f32; another type has no effect",
        ),
        refused(
            "param_dtype",
            KeyKind::OneOf(DTYPES),
            KeyDefault::Null,
            "`fp16` and `bf16` set the type of parameters",
        ),
        refused(
            "buffer_dtype",
            KeyKind::OneOf(DTYPES),
            KeyDefault::Null,
            "the models of remuda have no buffers",
        ),
        idle(
            "keep_in_fp32_modules",
            KeyKind::Any,
            KeyDefault::Text("auto"),
            "the models of remuda have no buffers",
        ),
    ],
};
