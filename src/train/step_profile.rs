//! [`StepProfile`]: where the time of a training step goes on a device. Not yet run on a GPU.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::base::clock;
use crate::cuda::device::{Device, DeviceError, MatmulShape};
use crate::cuda::kernels::{ElementType, HalfType};
use crate::runtime::Group;
use crate::runtime::engine::{Engine, EngineConfig, EngineError, Precision};
use crate::runtime::kernel_checks::{RecordingDevice, TimedOperation, time_operations};
use crate::train::nn::device::gpt::DeviceGpt;
use crate::train::nn::gpt::{GptArchitecture, GptConfig, Sequences};

/// Steps before the timed ones: they compile kernels and choose algorithms.
const FIRST_STEPS: u32 = 3;
/// Steps whose mean time is reported.
const TIMED_STEPS: u32 = 8;
/// Parts of a step that are named; the others are added up.
const NAMED_PARTS: usize = 10;

/// A training step in bf16 on a device.
#[derive(Clone, Debug)]
pub struct StepProfile {
    /// Sizes of the model.
    pub config: GptConfig,
    /// Sequences of a step.
    pub samples: usize,
    /// Seconds of a step, as the host measures them.
    pub seconds: f64,
    /// What a step submits, and the time of each operation alone.
    pub operations: Vec<TimedOperation>,
}

/// GPT-2 with 124 M parameters.
pub const GPT2_124M: GptConfig = GptConfig {
    architecture: GptArchitecture::Gpt2,
    vocabulary: 50_304,
    block: 1024,
    layers: 12,
    heads: 12,
    width: 768,
};

/// Tokens of a step.
fn batch(config: &GptConfig, samples: usize) -> Sequences {
    let tokens = |first: usize| {
        let token = |at: usize| (((at + first) * 25_173 + 13_849) % config.vocabulary) as u32;
        (0..samples * config.block).map(token).collect()
    };
    Sequences { length: config.block, inputs: tokens(0), targets: tokens(1) }
}

/// Trains for some steps on a device, and then times what the last one has submitted.
///
/// # Errors
/// If the device fails, or has too little memory.
pub fn profile_step(
    group: &Group,
    device: &Arc<dyn Device>,
    config: GptConfig,
    samples: usize,
) -> Result<StepProfile, EngineError> {
    let recording = Arc::new(RecordingDevice::new(device.clone()));
    let element = ElementType::Half(HalfType::Bf16);
    let model = DeviceGpt::new(recording.clone(), config, element)?;
    let engine_config = EngineConfig { precision: Precision::Bf16, ..EngineConfig::default() };
    let mut engine = Engine::on_device(group, recording.clone(), model, engine_config)?;
    let batch = batch(&config, samples);
    for _ in 0..FIRST_STEPS {
        engine.train_batch(|_| batch.clone())?;
    }
    let start = clock::now();
    for _ in 0..TIMED_STEPS {
        engine.submit_batch(|_| batch.clone())?;
    }
    engine.outcome()?;
    let seconds = (clock::now() - start).as_secs_f64() / f64::from(TIMED_STEPS);
    recording.start();
    engine.train_batch(|_| batch.clone())?;
    let operations = time_operations(&**device, &recording.stop())?;
    Ok(StepProfile { config, samples, seconds, operations })
}

/// Whether a device lacks the memory for a step.
pub fn lacks_memory(error: &EngineError) -> bool {
    matches!(error, EngineError::Device(DeviceError::OutOfMemory { .. }))
}

impl StepProfile {
    /// Returns milliseconds of the step and of its parts, and the speed of each product in TFLOP/s, by name.
    pub fn figures(&self) -> BTreeMap<String, f64> {
        let parts = self.parts().into_iter();
        let parts = parts.map(|(name, seconds)| (format!("{name}_ms"), 1e3 * seconds));
        let mut products = BTreeMap::<String, [f64; 2]>::new();
        for operation in &self.operations {
            let Some(MatmulShape { rows, columns, inner }) = operation.shape else { continue };
            let name = format!("product_{rows}_{columns}_{inner}_tflop_per_s");
            let [flops, seconds] = products.entry(name).or_default();
            *flops += f64::from(operation.count) * operation.flops;
            *seconds += operation.total();
        }
        let products =
            products.into_iter().map(|(name, [flops, seconds])| (name, flops / seconds / 1e12));
        let step = ("step_ms".to_owned(), 1e3 * self.seconds);
        parts.chain(products).chain([step]).collect()
    }

    /// Seconds of all operations with a name, the longest first.
    fn parts(&self) -> Vec<(&'static str, f64)> {
        let mut parts = BTreeMap::new();
        for operation in &self.operations {
            *parts.entry(operation.name).or_insert(0.0) += operation.total();
        }
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        parts
    }
}

/// One line: the step, and its parts in milliseconds.
impl fmt::Display for StepProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config, samples, seconds, operations } = self;
        let flops: f64 = operations.iter().map(|of| f64::from(of.count) * of.flops).sum();
        write!(
            f,
            "{} of {} layers, width {}, {samples} x {} tokens in bf16: {:.1} ms a step",
            config.architecture,
            config.layers,
            config.width,
            config.block,
            1e3 * seconds
        )?;
        let parts = self.parts();
        let (named, others) = parts.split_at(parts.len().min(NAMED_PARTS));
        for (name, seconds) in named {
            write!(f, ", {name} {:.1}", 1e3 * seconds)?;
            if *name == "product" {
                write!(f, " ({:.0} TFLOP/s)", flops / seconds / 1e12)?;
            }
        }
        let others: f64 = others.iter().map(|(_, seconds)| seconds).sum();
        if others > 0.0 { write!(f, ", others {:.1}", 1e3 * others) } else { Ok(()) }
    }
}
