//! `checkpoint`, `activation_checkpointing`, `aio`.

use super::monitors::NO_PROFILER;
use super::spec::{
    COUNT, KeyDefault, KeyKind, OFF, ON, POSITIVE, SectionReader, SectionSpec, idle, refused,
    works_as,
};
use super::zero::MAPPED_FILES;

const SAME_STEP: &str = "ranks agree on the step before they save";
const PARALLEL: &str = "every rank writes its own shard at the same time";

pub(super) static CHECKPOINT: SectionSpec = SectionSpec {
    path: "checkpoint",
    reader: SectionReader::Lookup,
    keys: &[
        idle(
            "tag_validation",
            KeyKind::OneOfAnyCase(&["Warn", "Ignore", "Fail"]),
            KeyDefault::Text("Warn"),
            SAME_STEP,
        ),
        idle(
            "load_universal",
            KeyKind::Bool,
            OFF,
            "every checkpoint of remuda loads at any world size and stage",
        ),
        refused(
            "use_node_local_storage",
            KeyKind::Bool,
            OFF,
            "save to a directory that all nodes share",
        ),
        idle("parallel_write", KeyKind::Section(&PARALLEL_WRITE), KeyDefault::Null, PARALLEL),
        idle("checkpoint_serialization", KeyKind::Bool, ON, "the format is safetensors"),
        idle("writer", KeyKind::Section(&WRITER), KeyDefault::Null, PARALLEL).or_null(),
    ],
};

static PARALLEL_WRITE: SectionSpec = SectionSpec {
    path: "checkpoint.parallel_write",
    reader: SectionReader::Lookup,
    keys: &[idle("pipeline_stage", KeyKind::Bool, OFF, PARALLEL)],
};

static WRITER: SectionSpec = SectionSpec {
    path: "checkpoint.writer",
    reader: SectionReader::Lookup,
    keys: &[
        idle(
            "type",
            KeyKind::OneOfAnyCase(&["mock", "python", "fast"]),
            KeyDefault::Text("fast"),
            PARALLEL,
        )
        .or_null(),
        idle("io_buffer_size", COUNT, KeyDefault::Whole(64 << 20), PARALLEL),
        idle("io_buffer_double", KeyKind::Bool, ON, PARALLEL),
        idle("show_statistics", KeyKind::Bool, OFF, PARALLEL),
        idle(
            "data_parallel",
            KeyKind::OneOfAnyCase(&["replica", "socket", "machine"]),
            KeyDefault::Null,
            PARALLEL,
        ),
        idle("decoupled", KeyKind::Bool, OFF, PARALLEL),
        idle("io_multiplier", COUNT, KeyDefault::Whole(1), PARALLEL),
    ],
};

pub(super) static ACTIVATION_CHECKPOINTING: SectionSpec = SectionSpec {
    path: "activation_checkpointing",
    reader: SectionReader::Lookup,
    keys: &[
        idle("partition_activations", KeyKind::Bool, OFF, "there is no tensor parallelism"),
        works_as(
            "number_checkpoints",
            POSITIVE,
            KeyDefault::Null,
            "with the value N, the blocks are cut into N segments, whose activations are computed again; DeepSpeed \
             leaves it to the model",
        ),
        idle(
            "contiguous_memory_optimization",
            KeyKind::Bool,
            OFF,
            "buffers of activations are allocated once",
        ),
        refused(
            "cpu_checkpointing",
            KeyKind::Bool,
            OFF,
            "use `number_checkpoints`, which keeps fewer activations",
        ),
        idle(
            "synchronize_checkpoint_boundary",
            KeyKind::Bool,
            OFF,
            "for debugging DeepSpeed; remuda has no such boundary",
        ),
        idle("profile", KeyKind::Bool, OFF, NO_PROFILER),
    ],
};

pub(super) static AIO: SectionSpec = SectionSpec {
    path: "aio",
    reader: SectionReader::Lookup,
    keys: &[
        idle("block_size", POSITIVE, KeyDefault::Whole(1 << 20), MAPPED_FILES),
        idle("queue_depth", POSITIVE, KeyDefault::Whole(8), MAPPED_FILES),
        idle("intra_op_parallelism", POSITIVE, KeyDefault::Whole(1), MAPPED_FILES),
        idle("single_submit", KeyKind::Bool, OFF, MAPPED_FILES),
        idle("overlap_events", KeyKind::Bool, ON, MAPPED_FILES),
        refused("use_gds", KeyKind::Bool, OFF, "remove the key; data goes through host memory"),
    ],
};
