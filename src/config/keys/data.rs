//! `data_efficiency`: curriculum learning, dynamic batches, dropped tokens.

use super::spec::{
    COUNT, KeyDefault, KeyKind, KeySpec, OFF, POSITIVE, SectionReader, SectionSpec, WHOLE, idle,
    refused,
};

const IS_OFF: &str = "the library for data efficiency is off";
const OWN_SAMPLER: &str =
    "remuda draws samples with DistributedSampler; prepare the data beforehand";

const fn off(name: &'static str) -> KeySpec {
    idle(name, KeyKind::Any, KeyDefault::Null, IS_OFF)
}

pub(super) static DATA_EFFICIENCY: SectionSpec = SectionSpec {
    path: "data_efficiency",
    reader: SectionReader::Lookup,
    keys: &[
        refused("enabled", KeyKind::Bool, OFF, OWN_SAMPLER),
        idle("seed", WHOLE, KeyDefault::Whole(1234), IS_OFF),
        idle("data_sampling", KeyKind::Section(&DATA_SAMPLING), KeyDefault::Words("{}"), IS_OFF),
        idle("data_routing", KeyKind::Section(&DATA_ROUTING), KeyDefault::Words("{}"), IS_OFF),
    ],
};

static DATA_SAMPLING: SectionSpec = SectionSpec {
    path: "data_efficiency.data_sampling",
    reader: SectionReader::Lookup,
    keys: &[
        refused("enabled", KeyKind::Bool, OFF, OWN_SAMPLER),
        idle("num_epochs", COUNT, KeyDefault::Whole(1000), IS_OFF),
        idle("num_workers", COUNT, KeyDefault::Whole(0), IS_OFF),
        idle("pin_memory", KeyKind::Bool, OFF, IS_OFF),
        idle("curriculum_learning", KeyKind::Section(&CURRICULUM), KeyDefault::Words("{}"), IS_OFF),
        idle(
            "dynamic_batching",
            KeyKind::Section(&DYNAMIC_BATCHING),
            KeyDefault::Words("{}"),
            IS_OFF,
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
        idle("lr_scaling_method", KeyKind::Text, KeyDefault::Text("linear"), IS_OFF),
        idle("min_batch_size", POSITIVE, KeyDefault::Whole(1), IS_OFF),
        idle("max_batch_size", POSITIVE, KeyDefault::Null, IS_OFF),
        idle("sequence_picking_order", KeyKind::Text, KeyDefault::Text("dataloader"), IS_OFF),
        off("max_tokens"),
        idle("verbose", KeyKind::Bool, OFF, IS_OFF),
    ],
};

static DATA_ROUTING: SectionSpec = SectionSpec {
    path: "data_efficiency.data_routing",
    reader: SectionReader::Lookup,
    keys: &[
        refused("enabled", KeyKind::Bool, OFF, "remuda drops no tokens; remove the key"),
        idle("random_ltd", KeyKind::Section(&RANDOM_LTD), KeyDefault::Words("{}"), IS_OFF),
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
