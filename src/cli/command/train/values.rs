//! Values of the options of `remuda train` that are words.

use std::ffi::OsString;
use std::fmt;

use clap::ValueEnum;

use crate::runtime::engine::{Exchange, Precision};
use crate::train::{AttentionChoice, GptArchitecture};

/// Model to train (`--model`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ModelArg {
    /// A character-level GPT.
    Gpt,
    /// A GPT with the layers of GPT-2: with biases.
    Gpt2,
    /// A multi-layer perceptron, ten classes.
    Mlp,
}

impl ModelArg {
    /// The model with a GPT of a variant.
    pub(super) fn of(architecture: GptArchitecture) -> Self {
        match architecture {
            GptArchitecture::Plain => Self::Gpt,
            GptArchitecture::Gpt2 => Self::Gpt2,
        }
    }
}

/// Type in which the model computes (`--precision`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PrecisionArg {
    /// 32-bit.
    #[value(name = "fp32")]
    F32,
    /// 16-bit with the exponent of fp32.
    #[value(name = "bf16")]
    Bf16,
    /// 16-bit of IEEE 754, with a dynamic loss scale.
    #[value(name = "fp16")]
    F16,
}

/// Value of `--device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DeviceArg {
    /// GPUs, if this machine has some and their libraries; else processors
    Auto,
    /// Processors
    Cpu,
    /// GPUs, one for each worker
    Cuda,
}

/// Value of `--attention`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum AttentionArg {
    /// One kernel if there is one for the type and the heads, else matrix products
    Auto,
    /// One kernel that keeps no scores: in 16 bits, for heads of 64 or 128 features
    Flash,
    /// Matrix products, and a softmax between them
    Products,
}

impl From<AttentionArg> for AttentionChoice {
    fn from(attention: AttentionArg) -> Self {
        match attention {
            AttentionArg::Auto => Self::Auto,
            AttentionArg::Flash => Self::Flash,
            AttentionArg::Products => Self::Products,
        }
    }
}

/// Value of `--reduce_order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ReduceOrderArg {
    /// The same bits for every placement of the workers
    Canonical,
    /// That of NCCL: less memory and traffic of a GPU, but other bits with another placement or library
    Any,
}

impl From<ReduceOrderArg> for Exchange {
    fn from(order: ReduceOrderArg) -> Self {
        match order {
            ReduceOrderArg::Canonical => Self::Devices,
            ReduceOrderArg::Any => Self::AnyOrder,
        }
    }
}

impl fmt::Display for PrecisionArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "fp32",
            Self::Bf16 => "bf16",
            Self::F16 => "fp16",
        })
    }
}

impl From<PrecisionArg> for Precision {
    fn from(precision: PrecisionArg) -> Self {
        match precision {
            PrecisionArg::F32 => Self::F32,
            PrecisionArg::Bf16 => Self::Bf16,
            PrecisionArg::F16 => Self::F16,
        }
    }
}

impl fmt::Display for ModelArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpt => "gpt",
            Self::Gpt2 => "gpt2",
            Self::Mlp => "mlp",
        })
    }
}

/// Name of a value of an option.
pub(super) fn name_of(value: &impl ValueEnum) -> Option<OsString> {
    value.to_possible_value().map(|value| value.get_name().into())
}
