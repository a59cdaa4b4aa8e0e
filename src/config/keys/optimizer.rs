//! `optimizer`, and the parameters of each type.

use super::spec::{
    AMOUNT, KeyDefault, KeyKind, KeySpec, NUMBER, OFF, ON, SectionReader, SectionSpec, idle,
    refused, works, works_as,
};

/// `optimizer`.
pub(super) static OPTIMIZER: SectionSpec = SectionSpec {
    path: "optimizer",
    reader: SectionReader::Lookup,
    keys: &[
        works_as("type", KeyKind::Text, KeyDefault::Null, "Adam, AdamW, SGD, Lion"),
        works("params", KeyKind::Params, SECTION).or_null(),
        idle("legacy_fusion", KeyKind::Bool, OFF, "a switch of DeepSpeed's fp16 optimizer"),
    ],
};

const SECTION: KeyDefault = KeyDefault::Words("{}");

/// An optimizer of remuda.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizerKind {
    /// Adam and AdamW, as DeepSpeed computes them.
    Adam,
    /// Adam and AdamW with `torch_adam: true`.
    TorchAdam,
    /// Stochastic gradient descent.
    Sgd,
    /// The rule of Lion.
    Lion,
}

/// A name of an optimizer.
#[derive(Clone, Copy, Debug)]
pub struct OptimizerSpec {
    /// Its usual spelling.
    pub name: &'static str,
    /// Whether DeepSpeed knows the name, so that its case does not matter; others are those of torch.
    pub is_known_to_deepspeed: bool,
    /// The optimizer of remuda; `None`: remuda has none.
    pub kind: Option<OptimizerKind>,
}

const fn deepspeed(name: &'static str) -> OptimizerSpec {
    OptimizerSpec { name, is_known_to_deepspeed: true, kind: None }
}

const fn torch(name: &'static str) -> OptimizerSpec {
    OptimizerSpec { name, is_known_to_deepspeed: false, kind: None }
}

/// Every optimizer that DeepSpeed accepts; names of DeepSpeed first.
pub const OPTIMIZERS: &[OptimizerSpec] = &[
    OptimizerSpec { kind: Some(OptimizerKind::Adam), ..deepspeed("Adam") },
    OptimizerSpec { kind: Some(OptimizerKind::Adam), ..deepspeed("AdamW") },
    OptimizerSpec { kind: Some(OptimizerKind::Lion), ..deepspeed("Lion") },
    deepspeed("Adagrad"),
    deepspeed("Lamb"),
    deepspeed("MuAdam"),
    deepspeed("MuAdamW"),
    deepspeed("MuSGD"),
    deepspeed("Muon"),
    OptimizerSpec { kind: Some(OptimizerKind::Sgd), ..torch("SGD") },
    torch("ASGD"),
    torch("Adadelta"),
    torch("Adafactor"),
    torch("Adamax"),
    torch("LBFGS"),
    torch("NAdam"),
    torch("RAdam"),
    torch("RMSprop"),
    torch("Rprop"),
    torch("SparseAdam"),
];

impl OptimizerKind {
    /// Every optimizer.
    pub const ALL: [Self; 4] = [Self::Adam, Self::TorchAdam, Self::Sgd, Self::Lion];

    /// The parameters of the optimizer.
    pub fn params(self) -> &'static SectionSpec {
        match self {
            Self::Adam => &ADAM,
            Self::TorchAdam => &TORCH_ADAM,
            Self::Sgd => &SGD,
            Self::Lion => &LION,
        }
    }
}

const RATE: KeyDefault = KeyDefault::Number(0.001);
const BETAS: KeyDefault = KeyDefault::Pair(0.9, 0.999);
const EPSILON: KeyDefault = KeyDefault::Number(1e-8);
const NO_AMSGRAD: &str = "remove the key; DeepSpeed's own Adam refuses it as well";
const KERNEL: &str = "a choice of torch's kernel";
const NO_GRADIENTS: &str = "gradients are always in one flat buffer";
const F32_STATES: &str = "moments are always f32";

const LR: KeySpec = works("lr", AMOUNT, RATE);
const WEIGHT_DECAY: KeySpec = works("weight_decay", AMOUNT, KeyDefault::Number(0.0));
const TORCH_SWITCH: KeySpec = works_as(
    "torch_adam",
    KeyKind::Bool,
    OFF,
    "the keys of torch's optimizer, and its default `weight_decay`; the arithmetic is that of torch in either case",
);
const ADAM_W_MODE: KeySpec = works_as(
    "adam_w_mode",
    KeyKind::Bool,
    ON,
    "`false` with `Adam`: weight decay is added to the gradient",
);
const AMSGRAD: KeySpec = refused("amsgrad", KeyKind::Bool, OFF, NO_AMSGRAD);
const MAXIMIZE: KeySpec = refused("maximize", KeyKind::Bool, OFF, "negate the loss");
const FOREACH: KeySpec = idle("foreach", KeyKind::Bool, KeyDefault::Null, KERNEL);
const FUSED: KeySpec = idle("fused", KeyKind::Bool, KeyDefault::Null, KERNEL);
const CAPTURABLE: KeySpec = idle("capturable", KeyKind::Bool, OFF, KERNEL);
const DIFFERENTIABLE: KeySpec =
    refused("differentiable", KeyKind::Bool, OFF, "a step of remuda cannot be differentiated");
const FP32_STATES: KeySpec = idle("fp32_optimizer_states", KeyKind::Bool, ON, F32_STATES);
const SET_GRAD_NONE: KeySpec = idle("set_grad_none", KeyKind::Bool, ON, NO_GRADIENTS);

static ADAM: SectionSpec = SectionSpec {
    path: "optimizer.params (Adam, AdamW)",
    reader: SectionReader::Arguments,
    keys: &[
        LR,
        works("bias_correction", KeyKind::Bool, ON),
        works("betas", KeyKind::Betas, BETAS),
        works("eps", AMOUNT, EPSILON),
        WEIGHT_DECAY,
        AMSGRAD,
        SET_GRAD_NONE,
        TORCH_SWITCH,
        ADAM_W_MODE,
        FP32_STATES,
    ],
};

static TORCH_ADAM: SectionSpec = SectionSpec {
    path: "optimizer.params (Adam, AdamW, with torch_adam)",
    reader: SectionReader::Arguments,
    keys: &[
        LR,
        works("betas", KeyKind::Betas, BETAS),
        works("eps", AMOUNT, EPSILON),
        works("weight_decay", AMOUNT, KeyDefault::Words("0.01; 0 without adam_w_mode")),
        AMSGRAD,
        MAXIMIZE,
        FOREACH,
        CAPTURABLE,
        DIFFERENTIABLE,
        FUSED,
        TORCH_SWITCH,
        ADAM_W_MODE,
        FP32_STATES,
    ],
};

static SGD: SectionSpec = SectionSpec {
    path: "optimizer.params (SGD)",
    reader: SectionReader::Arguments,
    keys: &[
        LR,
        works("momentum", AMOUNT, KeyDefault::Number(0.0)),
        works("dampening", NUMBER, KeyDefault::Number(0.0)),
        WEIGHT_DECAY,
        works("nesterov", KeyKind::Bool, OFF),
        MAXIMIZE,
        FOREACH,
        DIFFERENTIABLE,
        FUSED,
    ],
};

static LION: SectionSpec = SectionSpec {
    path: "optimizer.params (Lion)",
    reader: SectionReader::Arguments,
    keys: &[LR, works("betas", KeyKind::Betas, BETAS), WEIGHT_DECAY, SET_GRAD_NONE],
};
