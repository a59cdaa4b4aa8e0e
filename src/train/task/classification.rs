//! Classification task on synthetic data, for measurements: a classifier learns a random linear map.

#[cfg(feature = "nccl")]
use std::sync::Arc;

#[cfg(feature = "nccl")]
use crate::cuda::device::Device;
use crate::runtime::RandomStream;
#[cfg(feature = "nccl")]
use crate::runtime::engine::Precision;
use crate::runtime::engine::{Engine, EngineError, ReplicaState};
use crate::train::data::windows::SamplePosition;
use crate::train::nn::cpu::threads::Threads;
#[cfg(feature = "nccl")]
use crate::train::nn::device::mlp::DeviceMlp;
use crate::train::nn::mlp::{Mlp, Samples};
use crate::train::nn::model_id::ModelId;
use crate::train::options::{MlpOptions, TrainOptions};
use crate::train::report::progress::Count;
use crate::train::task::definition::{Extent, ItemUnit, Learner, Task};

/// Random stream of the map, different from that of the samples.
const TEACHER_STREAM: u64 = 0x7eac;
/// Random stream of the samples, different from that of the initial values.
const SAMPLE_STREAM: u64 = 0x5a3e;
/// Lane of the samples that training never uses.
const HELD_OUT_LANE: u64 = u64::MAX;
/// Number of batches of an evaluation.
const VALIDATION_BATCHES: u64 = 8;

/// The map that a model learns.
#[derive(Debug)]
pub(crate) struct Classification {
    sizes: MlpOptions,
    threads: Threads,
    /// The map, with one row per class.
    teacher: Vec<f32>,
    batch_size: usize,
    seed: u64,
}

impl Classification {
    /// Draws the map.
    pub(crate) fn new(sizes: &MlpOptions, options: &TrainOptions) -> Self {
        let mut stream = RandomStream::new(&[options.seed, TEACHER_STREAM]);
        Self {
            sizes: sizes.clone(),
            threads: options.threads,
            teacher: (0..sizes.inputs * sizes.classes).map(|_| stream.normal() as f32).collect(),
            batch_size: options.batch_size.get(),
            seed: options.seed,
        }
    }

    /// The class of the row of the map that has the largest product with the input.
    fn class(&self, input: &[f32]) -> u8 {
        let score = |row: &[f32]| row.iter().zip(input).map(|(a, b)| a * b).sum::<f32>();
        let scores = self.teacher.chunks_exact(self.sizes.inputs).map(score);
        let best = scores.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(0, |(class, _)| class as u8)
    }
}

impl Task for Classification {
    type Batch = Samples<f32>;

    fn title(&self) -> String {
        let MlpOptions { inputs, layers, width, classes } = self.sizes;
        let layers = Count(layers, "layer");
        let (inputs, classes) = (Count(inputs, "input"), Count(classes, "class"));
        format!("mlp of {layers} of width {width}, {inputs}, {classes}")
    }

    fn identity(&self) -> ModelId {
        let MlpOptions { inputs, layers, width, classes } = self.sizes;
        ModelId::Mlp { inputs, layers, width, classes, teacher: self.seed }
    }

    fn data_fingerprint(&self) -> Option<u64> {
        None
    }

    fn unit(&self) -> ItemUnit {
        ItemUnit { name: "samples", count: self.batch_size }
    }

    fn batch(&self, position: SamplePosition) -> Samples<f32> {
        let mut stream =
            RandomStream::new(&[position.seed, SAMPLE_STREAM, position.step, position.lane]);
        let inputs: Vec<f32> =
            (0..self.batch_size * self.sizes.inputs).map(|_| stream.normal() as f32).collect();
        let classes = inputs.chunks_exact(self.sizes.inputs).map(|input| self.class(input));
        Samples { classes: classes.collect(), inputs }
    }

    fn validation(&self, _extent: Extent) -> Vec<(Samples<f32>, usize)> {
        let position = |step| SamplePosition { seed: self.seed, step, lane: HELD_OUT_LANE };
        (0..VALIDATION_BATCHES).map(|step| (self.batch(position(step)), self.batch_size)).collect()
    }
}

impl Classification {
    /// Creates the model with its work space on the processor.
    pub(crate) fn new_model(&self) -> Mlp<f32> {
        Mlp::new(&self.sizes.features(), self.threads)
    }

    /// Creates the model on a device.
    #[cfg(feature = "nccl")]
    pub(crate) fn new_device_model(
        &self,
        device: Arc<dyn Device>,
        precision: Precision,
    ) -> DeviceMlp {
        DeviceMlp::new(device, &self.sizes.features(), precision.into())
    }
}

/// A classifier generates nothing.
impl<R: ReplicaState<Batch = Samples<f32>>> Learner<Classification> for R {
    fn sample(
        _engine: &mut Engine<Self>,
        _task: &Classification,
        _seed: u64,
    ) -> Result<Option<String>, EngineError> {
        Ok(None)
    }
}
