//! What a configuration does not say: the number of ranks, and the arguments that fill `auto`.

/// The command that reads a configuration: messages name its options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConfigCommand {
    /// `remuda config check`.
    #[default]
    Check,
    /// `remuda train`.
    Train,
}

/// The type in which a model computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeType {
    /// 32-bit.
    Fp32,
    /// 16-bit with the exponent of fp32.
    Bf16,
    /// 16-bit of IEEE 754.
    Fp16,
}

/// The arguments of a line that starts a training, as far as a configuration refers to them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigInputs {
    /// The command that names its own options in errors.
    pub command: ConfigCommand,
    /// Number of ranks; `None`: not known.
    pub world_size: Option<u64>,
    /// Samples in a micro-batch of a rank (`--batch_size`).
    pub micro_batch: Option<u64>,
    /// Micro-batches of a rank in a step (`--accumulate`).
    pub accumulation: Option<u64>,
    /// Hidden size of the model (`--hidden_size`).
    pub hidden_size: Option<u64>,
    /// Learning rate (`--lr`).
    pub learning_rate: Option<f64>,
    /// Averaging factors of Adam and Lion (`--beta1`, `--beta2`).
    pub betas: Option<[f64; 2]>,
    /// Weight decay (`--weight_decay`).
    pub weight_decay: Option<f64>,
    /// Largest norm of the gradient (`--clip`).
    pub clip: Option<f64>,
    /// Steps of the warm-up (`--warmup`).
    pub warmup: Option<u64>,
    /// ZeRO stage (`--stage`).
    pub stage: Option<u8>,
    /// Type in which the model computes (`--precision`).
    pub precision: Option<ComputeType>,
    /// Steps of the whole run (`--steps`).
    pub steps: Option<u64>,
}
