//! `data_efficiency`: curriculum learning, dynamic batches, dropped tokens.

use super::spec::{
    COUNT, KeyDefault, KeyKind, KeySpec, NOT_ENABLED, OFF, POSITIVE, SectionReader, SectionSpec,
    WHOLE, idle, refused,
};

const OWN_SAMPLER: &str =
    "remuda draws samples with DistributedSampler; prepare the data beforehand";

const fn off(name: &'static str) -> KeySpec {
    idle(name, KeyKind::Any, KeyDefault::Null, NOT_ENABLED)
}

pub(super) static DATA_EFFICIENCY: SectionSpec = SectionSpec {
    path: "data_efficiency",
    reader: SectionReader::Lookup,
    keys: &[
        refused("enabled", KeyKind::Bool, OFF, OWN_SAMPLER),
        idle("seed", WHOLE, KeyDefault::Whole(1234), NOT_ENABLED),
        idle(
            "data_sampling",
            KeyKind::Section(&DATA_SAMPLING),
            KeyDefault::Words("{}"),
            NOT_ENABLED,
        ),
        idle("data_routing", KeyKind::Section(&DATA_ROUTING), KeyDefault::Words("{}"), NOT_ENABLED),
    ],
};

static DATA_SAMPLING: SectionSpec = SectionSpec {
    path: "data_efficiency.data_sampling",
    reader: SectionReader::Lookup,
    keys: &[
        refused("enabled", KeyKind::Bool, OFF, OWN_SAMPLER),
        idle("num_epochs", COUNT, KeyDefault::Whole(1000), NOT_ENABLED),
        idle("num_workers", COUNT, KeyDefault::Whole(0), NOT_ENABLED),
        idle("pin_memory", KeyKind::Bool, OFF, NOT_ENABLED),
        idle(
            "curriculum_learning",
            KeyKind::Section(&CURRICULUM),
            KeyDefault::Words("{}"),
            NOT_ENABLED,
        ),
        idle(
            "dynamic_batching",
            KeyKind::Section(&DYNAMIC_BATCHING),
            KeyDefault::Words("{}"),
            NOT_ENABLED,
        ),
    ],
};

static CURRICULUM: SectionSpec = SectionSpec {
    path: "data_efficiency.data_sampling.curriculum_learning",
    reader: SectionReader::Lookup,
    keys: &[
        refused("enabled", KeyKind::Bool, OFF, OWN_SAMPLER),
        off("data_cluster_path"),
        off("curriculum_metrics"),
    ],
};

static DYNAMIC_BATCHING: SectionSpec = SectionSpec {
    path: "data_efficiency.data_sampling.dynamic_batching",
    reader: SectionReader::Lookup,
    keys: &[
        refused(
            "enabled",
            KeyKind::Bool,
            OFF,
            "every step of remuda has `train_batch_size` samples",
        ),
        off("metrics_path"),
        idle("lr_scaling_method", KeyKind::Text, KeyDefault::Text("linear"), NOT_ENABLED),
        idle("min_batch_size", POSITIVE, KeyDefault::Whole(1), NOT_ENABLED),
        idle("max_batch_size", POSITIVE, KeyDefault::Null, NOT_ENABLED),
        idle("sequence_picking_order", KeyKind::Text, KeyDefault::Text("dataloader"), NOT_ENABLED),
        off("max_tokens"),
        idle("verbose", KeyKind::Bool, OFF, NOT_ENABLED),
    ],
};

static DATA_ROUTING: SectionSpec = SectionSpec {
    path: "data_efficiency.data_routing",
    reader: SectionReader::Lookup,
    keys: &[
        refused("enabled", KeyKind::Bool, OFF, "remuda drops no tokens; remove the key"),
        idle("random_ltd", KeyKind::Section(&RANDOM_LTD), KeyDefault::Words("{}"), NOT_ENABLED),
    ],
};

static RANDOM_LTD: SectionSpec = SectionSpec {
    path: "data_efficiency.data_routing.random_ltd",
    reader: SectionReader::Lookup,
    keys: &[
        refused("enabled", KeyKind::Bool, OFF, "remuda drops no tokens; remove the key"),
        off("total_layer_num"),
        off("random_ltd_layer_num"),
        off("random_ltd_layer_id"),
        off("model_mask_name"),
        off("model_type"),
        off("hidden_state_order"),
        off("random_ltd_schedule"),
        off("layer_token_lr_schedule"),
        off("global_batch_size"),
        off("micro_batch_size"),
        off("sample_idx"),
        off("attention_mask"),
    ],
};
