//! Interface of a training task: a model with its data.

use crate::runtime::engine::{Engine, EngineError, HostReplica, Model};
use crate::train::data::windows::SamplePosition;
use crate::train::nn::model_id::ModelId;

/// A model together with its data.
pub(crate) trait Task: Sized {
    /// Type of the model.
    type Model: Model<f32>;

    /// Creates the model with its work space.
    fn new_model(&self) -> Self::Model;

    /// One line for the user, with the sizes of the model and of the data.
    fn title(&self) -> String;

    /// Identity of the model, which a checkpoint must match.
    fn identity(&self) -> ModelId;

    /// Fingerprint of data that can change without changing the identity of the model.
    fn data_fingerprint(&self) -> Option<u64>;

    /// Unit in which a micro-batch is counted: tokens or samples.
    fn unit(&self) -> ItemUnit;

    /// The micro-batch of a lane at a step, which depends on `position` alone.
    fn batch(&self, position: SamplePosition) -> Batch<Self>;

    /// Batches that training never uses, each with its number of items.
    fn validation(&self, extent: Extent) -> Vec<(Batch<Self>, usize)>;

    /// A sample that the model generates, if it can. Communicates if parameters are divided.
    fn sample(
        &self,
        engine: &mut TaskEngine<Self>,
        seed: u64,
    ) -> Result<Option<String>, EngineError>;
}

/// Engine of a task's model.
pub(crate) type TaskEngine<T> = Engine<HostReplica<<T as Task>::Model>>;

/// Type of the batches of a task's model.
pub(crate) type Batch<T> = <<T as Task>::Model as Model<f32>>::Batch;

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
