//! What the trainer needs to know of what it trains.

use super::corpus::Place;
use super::identity::Identity;
use super::model::Model;

/// A model together with its data.
pub(super) trait Task {
    /// The model.
    type Model: Model<f32>;

    /// The model and its work space.
    fn model(&mut self) -> &mut Self::Model;

    /// One line for people: sizes of the model and of the data.
    fn title(&self) -> String;

    /// Everything that a checkpoint of this model must agree with.
    fn identity(&self) -> Identity;

    /// What is counted in a micro-batch: tokens or samples.
    fn unit(&self) -> Unit;

    /// The micro-batch of a lane at a step: a function of the place alone.
    fn batch(&self, place: Place) -> Batch<Self>;

    /// Batches that training never sees, each with the number of its items.
    fn validation(&self, extent: Extent) -> Vec<(Batch<Self>, usize)>;

    /// Something the model made up, if it can.
    fn sample(&mut self, params: &[f32], seed: u64) -> Option<String>;
}

/// The batches of a task's model.
pub(super) type Batch<T> = <<T as Task>::Model as Model<f32>>::Batch;

/// What is counted in a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Plural name of the items.
    pub(super) name: &'static str,
    /// How many a micro-batch has.
    pub(super) count: usize,
}

/// How much of the held-out data an evaluation looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Enough to see where the run is going.
    Some,
    /// All of it, up to a generous bound.
    Whole,
}
