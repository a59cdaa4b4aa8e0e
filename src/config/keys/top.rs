//! The top level of a configuration.

use super::checkpoint::{ACTIVATION_CHECKPOINTING, AIO, CHECKPOINT};
use super::data::DATA_EFFICIENCY;
use super::monitors::{
    COMET, COMMS_LOGGER, CSV_MONITOR, FLOPS_PROFILER, NO_PROFILER, TENSORBOARD, TIMERS, WANDB,
};
use super::optimizer::{OPTIMIZER, OptimizerKind};
use super::parallel::{
    COMPILE, EXPERT_PARALLEL, HYBRID_ENGINE, PIPELINE, TENSOR_PARALLEL, WEIGHT_QUANTIZATION,
};
use super::precision::{BF16, DATA_TYPES, DTYPES, FP16, TORCH_AUTOCAST};
use super::schedule::{SCHEDULER, SCHEDULES};
use super::spec::{
    AMOUNT, COUNT, KeyDefault, KeyKind, KeySpec, NOT_ENABLED, NUMBER, OFF, ON, POSITIVE,
    SectionReader, SectionSpec, WHOLE, idle, refused, removed, works, works_as,
};
use super::tools::AUTOTUNING;
use super::zero::{MAPPED_FILES, ZERO};

const ONE_DIVISION: &str = "gradients are summed in f32 and divided once";
const NO_PIPELINE: &str = "there is no pipeline parallelism";
const NO_EXPERTS: &str = "the models of remuda have no experts";
const SECTION: KeyDefault = KeyDefault::Words("{}");

/// The keys of the file itself.
pub static TOP: SectionSpec = SectionSpec {
    path: "",
    reader: SectionReader::Lookup,
    keys: &[
        works("train_batch_size", WHOLE, KeyDefault::Null),
        works("train_micro_batch_size_per_gpu", WHOLE, KeyDefault::Null),
        works("gradient_accumulation_steps", WHOLE, KeyDefault::Null),
        refused(
            "managed_gradient_accumulation",
            KeyKind::Bool,
            ON,
            "set `gradient_accumulation_steps`; remuda always accumulates all micro-batches of a step",
        ),
        works_as("gradient_clipping", AMOUNT, KeyDefault::Number(1.0), "0: no clipping"),
        works("optimizer", KeyKind::Section(&OPTIMIZER), KeyDefault::Null),
        works("scheduler", KeyKind::Section(&SCHEDULER), KeyDefault::Null),
        works("fp16", KeyKind::Section(&FP16), SECTION),
        works("bf16", KeyKind::Section(&BF16), SECTION).or_null(),
        works_as("bfloat16", KeyKind::Section(&BF16), SECTION, "old spelling of `bf16`").or_null(),
        works("zero_optimization", KeyKind::BoolOrSection(&ZERO), SECTION),
        idle(
            "allgather_size",
            COUNT,
            KeyDefault::Whole(500_000_000),
            "parameters are gathered one block of the model at a time",
        ),
        works("activation_checkpointing", KeyKind::Section(&ACTIVATION_CHECKPOINTING), SECTION),
        works_as(
            "communication_data_type",
            KeyKind::OneOfAnyCase(DTYPES),
            KeyDefault::Null,
            "type in which gradients are sent; without it f32, in DeepSpeed that of the model",
        ),
        idle(
            "seq_parallel_communication_data_type",
            KeyKind::OneOfAnyCase(DTYPES),
            KeyDefault::Text("fp32"),
            "there is no sequence parallelism",
        ),
        works("data_types", KeyKind::Section(&DATA_TYPES), SECTION),
        idle("prescale_gradients", KeyKind::Bool, OFF, ONE_DIVISION),
        idle("gradient_predivide_factor", NUMBER, KeyDefault::Number(1.0), ONE_DIVISION),
        refused(
            "gradient_allreduce_op",
            KeyKind::OneOfAnyCase(&["mean", "sum"]),
            KeyDefault::Text("mean"),
            "remove the key: gradients are averaged; with SGD, multiply `lr` by the number of ranks",
        ),
        idle(
            "steps_per_print",
            POSITIVE,
            KeyDefault::Null,
            "`remuda train` selects the steps that it prints; `--metrics FILE` has every step",
        ),
        idle(
            "wall_clock_breakdown",
            KeyKind::Bool,
            OFF,
            "`--metrics FILE` and `--tensorboard DIR` have the time of every phase",
        ),
        idle(
            "memory_breakdown",
            KeyKind::Bool,
            OFF,
            "`remuda train --dry-run` and the last screen show the memory of a worker",
        ),
        works("tensorboard", KeyKind::Section(&TENSORBOARD), SECTION),
        works("csv_monitor", KeyKind::Section(&CSV_MONITOR), SECTION),
        idle("wandb", KeyKind::Section(&WANDB), SECTION, NOT_ENABLED),
        idle("comet", KeyKind::Section(&COMET), SECTION, NOT_ENABLED),
        idle(
            "comms_logger",
            KeyKind::Section(&COMMS_LOGGER),
            SECTION,
            "remuda has no log of single collectives; `remuda bench` measures them",
        ),
        idle("flops_profiler", KeyKind::Section(&FLOPS_PROFILER), SECTION, NO_PROFILER),
        idle(
            "timers",
            KeyKind::Section(&TIMERS),
            SECTION,
            "the rate of samples is always measured",
        ),
        idle("dump_state", KeyKind::Bool, OFF, "`remuda config check` prints the values"),
        idle("disable_python_gc", KeyKind::Bool, OFF, "there is no Python"),
        idle("disable_allgather", KeyKind::Bool, OFF, "DeepSpeed does not use it either"),
        idle("log_level", KeyKind::Text, KeyDefault::Null, "`--log_level` of `remuda run` sets it"),
        idle("vocabulary_size", WHOLE, KeyDefault::Null, "the model has its own"),
        idle("dataloader_drop_last", KeyKind::Bool, OFF, "every batch is whole"),
        idle(
            "zero_allow_untested_optimizer",
            KeyKind::Bool,
            OFF,
            "every optimizer of remuda is sharded",
        ),
        idle("zero_force_ds_cpu_optimizer", KeyKind::Bool, ON, "each optimizer exists once"),
        refused(
            "sequence_parallel_size",
            POSITIVE,
            KeyDefault::Whole(1),
            "use `zero_optimization.stage` 3 and `activation_checkpointing` for long sequences",
        ),
        idle("data_parallel_size", POSITIVE, KeyDefault::Null, "it is the number of ranks"),
        idle("pipeline", KeyKind::Section(&PIPELINE), SECTION, NO_PIPELINE),
        idle(
            "tensor_parallel",
            KeyKind::Section(&TENSOR_PARALLEL),
            SECTION,
            "there is no tensor parallelism",
        ),
        idle("expert_parallel", KeyKind::Section(&EXPERT_PARALLEL), SECTION, NO_EXPERTS).or_null(),
        idle("use_data_before_expert_parallelism", KeyKind::Bool, OFF, NO_EXPERTS),
        idle("hybrid_engine", KeyKind::Section(&HYBRID_ENGINE), SECTION, NOT_ENABLED),
        idle("torch_autocast", KeyKind::Section(&TORCH_AUTOCAST), SECTION, NOT_ENABLED),
        idle(
            "compile",
            KeyKind::Section(&COMPILE),
            SECTION,
            "remuda has no graph compiler, and its kernels are compiled already",
        ),
        refused(
            "weight_quantization",
            KeyKind::Section(&WEIGHT_QUANTIZATION),
            KeyDefault::Null,
            "remuda trains in f32, bf16 and fp16; remove the section",
        ),
        idle(
            "checkpoint",
            KeyKind::Section(&CHECKPOINT),
            SECTION,
            "checkpoints have the format of remuda",
        ),
        refused(
            "datastates_ckpt",
            KeyKind::Any,
            OFF,
            "remove the section; checkpoints are written while training continues",
        ),
        idle("aio", KeyKind::Section(&AIO), SECTION, MAPPED_FILES).or_null(),
        idle("data_efficiency", KeyKind::Section(&DATA_EFFICIENCY), SECTION, NOT_ENABLED),
        idle("autotuning", KeyKind::Section(&AUTOTUNING), SECTION, NOT_ENABLED),
        removed(
            "elasticity",
            "set `train_batch_size` to a multiple of every world size that you use; `remuda config check` \
             lists the world sizes that fit",
        ),
        removed("amp", "use `bf16` or `fp16`"),
        removed("nebula", "checkpoints are written while training continues; remove the section"),
        removed("compression_training", "remove the section; the model is trained as it is"),
        removed("quantize_training", "remove the section; use `bf16` or `fp16`"),
        removed("sparse_gradients", "remove the key; gradients are dense"),
        removed("eigenvalue", "remove the section; it served quantization"),
        removed("sparse_attention", "remove the section; attention is dense"),
        removed("graph_harvesting", "remove the key"),
        removed("curriculum_learning", "sort the data beforehand"),
        removed("progressive_layer_drop", "remove the section; every layer is trained"),
    ],
};

/// Every section, each before those inside of it; the parameters of optimizers and schedules last.
pub fn all_sections() -> Vec<&'static SectionSpec> {
    let mut all = vec![&TOP];
    let mut at = 0;
    while at < all.len() {
        for inner in all[at].keys.iter().filter_map(KeySpec::section) {
            if !all.iter().any(|known| std::ptr::eq(*known, inner)) {
                all.push(inner);
            }
        }
        at += 1;
    }
    all.extend(OptimizerKind::ALL.map(OptimizerKind::params));
    all.extend(SCHEDULES.iter().filter_map(|one| Some(one.kind?.params())));
    all
}

/// The section of a path.
pub(in crate::config) fn section_of(path: &str) -> &'static SectionSpec {
    let found = all_sections().into_iter().find(|section| section.path == path);
    found.expect("the path of a section of the tables")
}
