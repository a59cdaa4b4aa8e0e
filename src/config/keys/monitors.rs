//! What is written during training: `tensorboard`, `csv_monitor`, `wandb`, `comet`, `comms_logger`.

use super::spec::{
    AMOUNT, COUNT, KeyDefault, KeyKind, NOT_ENABLED, OFF, ON, SectionReader, SectionSpec, WHOLE,
    idle, refused, works,
};

const OTHER_MONITOR: &str = "use `tensorboard` or `csv_monitor`, whose files other tools import";

pub(super) static TENSORBOARD: SectionSpec = SectionSpec {
    path: "tensorboard",
    reader: SectionReader::Model,
    keys: &[
        works("enabled", KeyKind::Bool, OFF),
        works("output_path", KeyKind::Text, KeyDefault::Text("")),
        works("job_name", KeyKind::Text, KeyDefault::Text("DeepSpeedJobName")),
    ],
};

pub(super) static CSV_MONITOR: SectionSpec = SectionSpec {
    path: "csv_monitor",
    reader: SectionReader::Model,
    keys: &[
        works("enabled", KeyKind::Bool, OFF),
        works("output_path", KeyKind::Text, KeyDefault::Text("")),
        works("job_name", KeyKind::Text, KeyDefault::Text("DeepSpeedJobName")),
    ],
};

pub(super) static WANDB: SectionSpec = SectionSpec {
    path: "wandb",
    reader: SectionReader::Model,
    keys: &[
        refused("enabled", KeyKind::Bool, OFF, OTHER_MONITOR),
        idle("group", KeyKind::Text, KeyDefault::Null, NOT_ENABLED),
        idle("team", KeyKind::Text, KeyDefault::Null, NOT_ENABLED),
        idle("project", KeyKind::Text, KeyDefault::Text("deepspeed"), NOT_ENABLED),
    ],
};

pub(super) static COMET: SectionSpec = SectionSpec {
    path: "comet",
    reader: SectionReader::Model,
    keys: &[
        refused("enabled", KeyKind::Bool, OFF, OTHER_MONITOR),
        idle("samples_log_interval", WHOLE, KeyDefault::Whole(100), NOT_ENABLED),
        idle("project", KeyKind::Text, KeyDefault::Null, NOT_ENABLED),
        idle("workspace", KeyKind::Text, KeyDefault::Null, NOT_ENABLED),
        idle("api_key", KeyKind::Text, KeyDefault::Null, NOT_ENABLED),
        idle("experiment_name", KeyKind::Text, KeyDefault::Null, NOT_ENABLED),
        idle("experiment_key", KeyKind::Text, KeyDefault::Null, NOT_ENABLED),
        idle("online", KeyKind::Bool, KeyDefault::Null, NOT_ENABLED),
        idle("mode", KeyKind::Text, KeyDefault::Null, NOT_ENABLED),
    ],
};

const NO_LOG: &str = "remuda has no log of single collectives; `remuda bench` measures them";

pub(super) static COMMS_LOGGER: SectionSpec = SectionSpec {
    path: "comms_logger",
    reader: SectionReader::Model,
    keys: &[
        idle("enabled", KeyKind::Bool, OFF, NO_LOG),
        idle("prof_all", KeyKind::Bool, ON, NO_LOG),
        idle("prof_ops", KeyKind::List, KeyDefault::Empty, NO_LOG),
        idle("verbose", KeyKind::Bool, OFF, NO_LOG),
        idle("debug", KeyKind::Bool, OFF, NO_LOG),
    ],
};

const RATE: &str = "the rate of samples is always measured, without waiting for the device";

pub(super) static TIMERS: SectionSpec = SectionSpec {
    path: "timers",
    reader: SectionReader::Lookup,
    keys: &[idle("throughput", KeyKind::Section(&THROUGHPUT), KeyDefault::Null, RATE)],
};

static THROUGHPUT: SectionSpec = SectionSpec {
    path: "timers.throughput",
    reader: SectionReader::Model,
    keys: &[
        idle("enabled", KeyKind::Bool, ON, RATE),
        idle("synchronized", KeyKind::Bool, ON, RATE),
    ],
};

/// Why the settings of a profiler have no effect.
pub(super) const NO_PROFILER: &str =
    "remuda has no profiler of operations; `--metrics FILE` has the time of every phase";

pub(super) static FLOPS_PROFILER: SectionSpec = SectionSpec {
    path: "flops_profiler",
    reader: SectionReader::Lookup,
    keys: &[
        idle("enabled", KeyKind::Bool, OFF, NO_PROFILER),
        idle("recompute_fwd_factor", AMOUNT, KeyDefault::Number(0.0), NO_PROFILER),
        idle("profile_step", COUNT, KeyDefault::Whole(1), NO_PROFILER),
        idle("module_depth", WHOLE, KeyDefault::Whole(-1), NO_PROFILER),
        idle("top_modules", COUNT, KeyDefault::Whole(1), NO_PROFILER),
        idle("detailed", KeyKind::Bool, ON, NO_PROFILER),
        idle("output_file", KeyKind::Text, KeyDefault::Null, NO_PROFILER),
    ],
};
