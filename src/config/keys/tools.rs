//! `autotuning`.

use super::spec::{
    KeyDefault, KeyKind, KeySpec, NOT_ENABLED, OFF, ON, SectionReader, SectionSpec, idle, refused,
};

const fn tuner(name: &'static str, default: KeyDefault) -> KeySpec {
    idle(name, KeyKind::Any, default, NOT_ENABLED)
}

pub(super) static AUTOTUNING: SectionSpec = SectionSpec {
    path: "autotuning",
    reader: SectionReader::Lookup,
    keys: &[
        refused(
            "enabled",
            KeyKind::Bool,
            OFF,
            "remuda starts no experiments; write the values, and compare runs with `remuda train`",
        ),
        tuner("fast", ON),
        tuner("results_dir", KeyDefault::Text("autotuning_results")),
        tuner("exps_dir", KeyDefault::Text("autotuning_exps")),
        tuner("overwrite", ON),
        tuner("start_profile_step", KeyDefault::Whole(3)),
        tuner("end_profile_step", KeyDefault::Whole(5)),
        tuner("metric", KeyDefault::Text("throughput")),
        tuner("metric_path", KeyDefault::Null),
        tuner("tuner_type", KeyDefault::Text("gridsearch")),
        tuner("tuner_early_stopping", KeyDefault::Whole(5)),
        tuner("tuner_num_trials", KeyDefault::Whole(50)),
        tuner("arg_mappings", KeyDefault::Null),
        tuner("model_info", KeyDefault::Null),
        tuner("model_info_path", KeyDefault::Null),
        tuner("mp_size", KeyDefault::Whole(1)),
        tuner("max_train_batch_size", KeyDefault::Null),
        tuner("min_train_batch_size", KeyDefault::Whole(1)),
        tuner("max_train_micro_batch_size_per_gpu", KeyDefault::Whole(1024)),
        tuner("min_train_micro_batch_size_per_gpu", KeyDefault::Whole(1)),
        tuner("num_tuning_micro_batch_sizes", KeyDefault::Whole(3)),
    ],
};
