//! `scheduler`, and the parameters of each type.

use super::spec::{
    AMOUNT, COUNT, FRACTION, KeyDefault, KeyKind, KeySpec, NUMBER, OFF, ON, POSITIVE,
    SectionReader, SectionSpec, WHOLE, refused, works, works_as,
};

/// `scheduler`.
pub(super) static SCHEDULER: SectionSpec = SectionSpec {
    path: "scheduler",
    reader: SectionReader::Lookup,
    keys: &[
        works_as(
            "type",
            KeyKind::Text,
            KeyDefault::Null,
            "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest; of torch CosineAnnealingLR, \
             LinearLR, ConstantLR, PolynomialLR, StepLR, ExponentialLR",
        ),
        works("params", KeyKind::Params, KeyDefault::Words("{}")),
    ],
};

/// A schedule of remuda.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleKind {
    /// DeepSpeed's warm-up, then a constant rate.
    WarmupLr,
    /// DeepSpeed's warm-up, then a linear decay.
    WarmupDecayLr,
    /// DeepSpeed's warm-up, then a cosine.
    WarmupCosineLr,
    /// DeepSpeed's cycle.
    OneCycle,
    /// DeepSpeed's range test.
    LrRangeTest,
    /// torch's cosine.
    CosineAnnealingLr,
    /// torch's line between two factors.
    LinearLr,
    /// torch's factor for some steps.
    ConstantLr,
    /// torch's power of a line.
    PolynomialLr,
    /// torch's factor every some steps.
    StepLr,
    /// torch's factor every step.
    ExponentialLr,
}

/// A name of a schedule.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleSpec {
    /// Its name, which DeepSpeed wants in exactly this spelling.
    pub name: &'static str,
    /// The schedule of remuda; `None`: remuda has none.
    pub kind: Option<ScheduleKind>,
}

const fn schedule(name: &'static str, kind: ScheduleKind) -> ScheduleSpec {
    ScheduleSpec { name, kind: Some(kind) }
}

const fn other(name: &'static str) -> ScheduleSpec {
    ScheduleSpec { name, kind: None }
}

/// Every schedule that DeepSpeed accepts; its own ones first, then those of torch.
pub const SCHEDULES: &[ScheduleSpec] = &[
    schedule("WarmupLR", ScheduleKind::WarmupLr),
    schedule("WarmupDecayLR", ScheduleKind::WarmupDecayLr),
    schedule("WarmupCosineLR", ScheduleKind::WarmupCosineLr),
    schedule("OneCycle", ScheduleKind::OneCycle),
    schedule("LRRangeTest", ScheduleKind::LrRangeTest),
    schedule("CosineAnnealingLR", ScheduleKind::CosineAnnealingLr),
    schedule("LinearLR", ScheduleKind::LinearLr),
    schedule("ConstantLR", ScheduleKind::ConstantLr),
    schedule("PolynomialLR", ScheduleKind::PolynomialLr),
    schedule("StepLR", ScheduleKind::StepLr),
    schedule("ExponentialLR", ScheduleKind::ExponentialLr),
    other("ChainedScheduler"),
    other("CosineAnnealingWarmRestarts"),
    other("CyclicLR"),
    other("LambdaLR"),
    other("MultiStepLR"),
    other("MultiplicativeLR"),
    other("OneCycleLR"),
    other("ReduceLROnPlateau"),
    other("SequentialLR"),
];

impl ScheduleKind {
    /// The parameters of the schedule.
    pub fn params(self) -> &'static SectionSpec {
        match self {
            Self::WarmupLr => &WARMUP,
            Self::WarmupDecayLr => &WARMUP_DECAY,
            Self::WarmupCosineLr => &WARMUP_COSINE,
            Self::OneCycle => &ONE_CYCLE,
            Self::LrRangeTest => &RANGE_TEST,
            Self::CosineAnnealingLr => &COSINE_ANNEALING,
            Self::LinearLr => &LINEAR,
            Self::ConstantLr => &CONSTANT,
            Self::PolynomialLr => &POLYNOMIAL,
            Self::StepLr => &STEP,
            Self::ExponentialLr => &EXPONENTIAL,
        }
    }
}

const RESUMED: &str = "remove the key; a checkpoint restores the position";
const THIRD: KeyDefault = KeyDefault::Number(1.0 / 3.0);
const STEPS: &str = "`log` or `linear`; DeepSpeed takes any other text for `log`";

const LAST_ITERATION: KeySpec =
    refused("last_batch_iteration", WHOLE, KeyDefault::Whole(-1), RESUMED);
const LAST_EPOCH: KeySpec = refused("last_epoch", WHOLE, KeyDefault::Whole(-1), RESUMED);
const WARMUP_STEPS: KeySpec = works("warmup_num_steps", POSITIVE, KeyDefault::Whole(1000));
const WARMUP_TYPE: KeySpec = works_as("warmup_type", KeyKind::Text, KeyDefault::Text("log"), STEPS);
const TOTAL_STEPS: KeySpec = works("total_num_steps", POSITIVE, KeyDefault::Required);

static WARMUP: SectionSpec = SectionSpec {
    path: "scheduler.params (WarmupLR)",
    reader: SectionReader::Arguments,
    keys: &[
        works("warmup_min_lr", NUMBER, KeyDefault::Number(0.0)),
        works("warmup_max_lr", NUMBER, KeyDefault::Words("rate of the optimizer")).or_null(),
        WARMUP_STEPS,
        WARMUP_TYPE,
        LAST_ITERATION,
    ],
};

static WARMUP_DECAY: SectionSpec = SectionSpec {
    path: "scheduler.params (WarmupDecayLR)",
    reader: SectionReader::Arguments,
    keys: &[
        TOTAL_STEPS,
        works("warmup_min_lr", NUMBER, KeyDefault::Number(0.0)),
        works("warmup_max_lr", NUMBER, KeyDefault::Number(0.001)).or_null(),
        WARMUP_STEPS,
        WARMUP_TYPE,
        LAST_ITERATION,
    ],
};

static WARMUP_COSINE: SectionSpec = SectionSpec {
    path: "scheduler.params (WarmupCosineLR)",
    reader: SectionReader::Arguments,
    keys: &[
        TOTAL_STEPS,
        works("warmup_min_ratio", NUMBER, KeyDefault::Number(0.0)),
        WARMUP_STEPS,
        works("cos_min_ratio", NUMBER, KeyDefault::Number(0.0001)),
        WARMUP_TYPE,
        LAST_ITERATION,
    ],
};

static ONE_CYCLE: SectionSpec = SectionSpec {
    path: "scheduler.params (OneCycle)",
    reader: SectionReader::Arguments,
    keys: &[
        works("cycle_min_lr", NUMBER, KeyDefault::Required),
        works("cycle_max_lr", NUMBER, KeyDefault::Required),
        works("decay_lr_rate", NUMBER, KeyDefault::Number(0.0)),
        works("cycle_first_step_size", POSITIVE, KeyDefault::Whole(2000)),
        works("cycle_second_step_size", COUNT, KeyDefault::Null),
        works("cycle_first_stair_count", COUNT, KeyDefault::Whole(0)),
        works("cycle_second_stair_count", COUNT, KeyDefault::Null),
        works("decay_step_size", COUNT, KeyDefault::Whole(0)),
        works("cycle_momentum", KeyKind::Bool, ON),
        works("cycle_min_mom", NUMBER, KeyDefault::Number(0.8)),
        works("cycle_max_mom", NUMBER, KeyDefault::Number(0.9)),
        works("decay_mom_rate", NUMBER, KeyDefault::Number(0.0)),
        LAST_ITERATION,
    ],
};

static RANGE_TEST: SectionSpec = SectionSpec {
    path: "scheduler.params (LRRangeTest)",
    reader: SectionReader::Arguments,
    keys: &[
        works("lr_range_test_min_lr", NUMBER, KeyDefault::Number(0.001)),
        works("lr_range_test_step_size", POSITIVE, KeyDefault::Whole(2000)),
        works("lr_range_test_step_rate", NUMBER, KeyDefault::Number(1.0)),
        works("lr_range_test_staircase", KeyKind::Bool, OFF),
        LAST_ITERATION,
    ],
};

static COSINE_ANNEALING: SectionSpec = SectionSpec {
    path: "scheduler.params (CosineAnnealingLR)",
    reader: SectionReader::Arguments,
    keys: &[
        works("T_max", POSITIVE, KeyDefault::Required),
        works("eta_min", NUMBER, KeyDefault::Number(0.0)),
        LAST_EPOCH,
    ],
};

static LINEAR: SectionSpec = SectionSpec {
    path: "scheduler.params (LinearLR)",
    reader: SectionReader::Arguments,
    keys: &[
        works("start_factor", FRACTION, THIRD),
        works("end_factor", FRACTION, KeyDefault::Number(1.0)),
        works("total_iters", POSITIVE, KeyDefault::Whole(5)),
        LAST_EPOCH,
    ],
};

static CONSTANT: SectionSpec = SectionSpec {
    path: "scheduler.params (ConstantLR)",
    reader: SectionReader::Arguments,
    keys: &[
        works("factor", FRACTION, THIRD),
        works("total_iters", COUNT, KeyDefault::Whole(5)),
        LAST_EPOCH,
    ],
};

static POLYNOMIAL: SectionSpec = SectionSpec {
    path: "scheduler.params (PolynomialLR)",
    reader: SectionReader::Arguments,
    keys: &[
        works("total_iters", POSITIVE, KeyDefault::Whole(5)),
        works("power", AMOUNT, KeyDefault::Number(1.0)),
        LAST_EPOCH,
    ],
};

static STEP: SectionSpec = SectionSpec {
    path: "scheduler.params (StepLR)",
    reader: SectionReader::Arguments,
    keys: &[
        works("step_size", POSITIVE, KeyDefault::Required),
        works("gamma", AMOUNT, KeyDefault::Number(0.1)),
        LAST_EPOCH,
    ],
};

static EXPONENTIAL: SectionSpec = SectionSpec {
    path: "scheduler.params (ExponentialLR)",
    reader: SectionReader::Arguments,
    keys: &[works("gamma", AMOUNT, KeyDefault::Required), LAST_EPOCH],
};
