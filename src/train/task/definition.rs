//! Interface of a training task: what a model learns, and from which data.

use crate::runtime::engine::{Engine, EngineError, ReplicaState};
use crate::train::data::windows::SamplePosition;
use crate::train::nn::model_id::ModelId;

/// What a model learns, together with the data.
pub(crate) trait Task {
    /// Type of a micro-batch.
    type Batch;

    /// One line for the user, with the sizes of the model and of the data.
    fn title(&self) -> String;

    /// Identity of the model, which a checkpoint must match.
    fn identity(&self) -> ModelId;

    /// Fingerprint of data that can change without changing the identity of the model.
    fn data_fingerprint(&self) -> Option<u64>;

    /// Unit in which a micro-batch is counted: tokens or samples.
    fn unit(&self) -> ItemUnit;

    /// The micro-batch of a lane at a step, which depends on `position` alone.
    fn batch(&self, position: SamplePosition) -> Self::Batch;

    /// Batches that training never uses, each with its number of items.
    fn validation(&self, extent: Extent) -> Vec<(Self::Batch, usize)>;
}

/// Rank that trains the model of a task, on a processor or on a device.
pub(crate) trait Learner<T: Task>: ReplicaState<Batch = T::Batch> + Sized {
    /// A sample that the model generates, if it can. Communicates if parameters are divided.
    fn sample(
        engine: &mut Engine<Self>,
        task: &T,
        seed: u64,
    ) -> Result<Option<String>, EngineError>;
}

/// Unit in which a micro-batch is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemUnit {
    /// Plural name of the items.
    pub(crate) name: &'static str,
    /// Number of them in a micro-batch.
    pub(crate) count: usize,
}

/// Part of the held-out data that an evaluation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// A part that is large enough to show the trend.
    Sample,
    /// All of it, up to a high bound.
    Whole,
}
