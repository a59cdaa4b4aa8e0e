//! [`Model`]: a table of parameters in one flat buffer, and a function from parameters and a micro-batch
//! to a loss and gradients.

use std::ops::Range;

use crate::runtime;
use crate::train::ModelFloat;
use crate::train::data::rng::RandomStream;

/// Named tensor in the flat parameter buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name, as in checkpoints.
    pub name: String,
    /// Sizes of its dimensions; a matrix of a linear layer is (outputs, inputs), as in torch.
    pub shape: Vec<usize>,
    /// Range in the flat buffer.
    pub range: Range<usize>,
    init: Init,
}

impl Parameter {
    /// Whether weight decay applies: to matrices and embeddings, not to gains and biases.
    pub fn decays(&self) -> bool {
        2 <= self.shape.len()
    }
}

/// Initial values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Init {
    /// The same value for all elements.
    Constant(f64),
    /// Normally distributed around 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Evenly distributed in `-bound..bound`.
    Uniform {
        /// Largest absolute value.
        bound: f64,
    },
}

/// Parameters of a model in the order of the flat buffer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParameterTable {
    parameters: Vec<Parameter>,
    len: usize,
}

impl ParameterTable {
    /// Appends a parameter and returns its range.
    pub(crate) fn push(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        init: Init,
    ) -> Range<usize> {
        let begin = self.len;
        self.len += shape.iter().product::<usize>();
        let range = begin..self.len;
        let parameter =
            Parameter { name: name.into(), shape: shape.to_vec(), range: range.clone(), init };
        self.parameters.push(parameter);
        range
    }

    /// Returns the number of elements of the flat buffer.
    #[expect(clippy::len_without_is_empty, reason = "a model without parameters does not exist")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Iterates over the parameters in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Parameter> {
        self.parameters.iter()
    }

    /// Returns the parameter with this name.
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.iter().find(|parameter| parameter.name == name)
    }

    /// Returns the names and lengths as a layout of the runtime.
    pub fn layout(&self) -> runtime::Layout {
        runtime::Layout::new(
            self.iter().map(|parameter| (parameter.name.as_str(), parameter.range.len())),
        )
    }

    /// Returns the initial values, which depend only on the seed and on the position of each parameter.
    pub fn init<F: ModelFloat>(&self, seed: u64) -> Vec<F> {
        let mut values = Vec::with_capacity(self.len);
        for (i, parameter) in self.parameters.iter().enumerate() {
            let mut stream = RandomStream::new(&[seed, INIT_STREAM, i as u64]);
            values.extend(
                parameter.range.clone().map(|_| F::from_f64(parameter.init.draw(&mut stream))),
            );
        }
        values
    }
}

impl<'a> IntoIterator for &'a ParameterTable {
    type Item = &'a Parameter;
    type IntoIter = std::slice::Iter<'a, Parameter>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Random stream of the initial values, different from those of the batches.
const INIT_STREAM: u64 = 0x1417;

impl Init {
    fn draw(self, stream: &mut RandomStream) -> f64 {
        match self {
            Self::Constant(value) => value,
            Self::Normal { std: deviation } => deviation * stream.normal(),
            Self::Uniform { bound } => bound * (2.0 * stream.unit() - 1.0),
        }
    }
}

/// Destination of the gradients of the backward pass.
pub trait GradientSink<F> {
    /// Returns a range of the flat gradient, which the backward pass overwrites.
    fn range(&mut self, range: Range<usize>) -> &mut [F];

    /// Marks a range as final: the backward pass does not access it again in this micro-batch.
    fn ready(&mut self, range: Range<usize>);
}

/// Sink that only stores the gradients.
impl<F> GradientSink<F> for Vec<F> {
    fn range(&mut self, range: Range<usize>) -> &mut [F] {
        &mut self[range]
    }

    fn ready(&mut self, _range: Range<usize>) {}
}

/// Sink that starts the reduction of gradients as soon as they are ready.
impl<F: runtime::GradientElement> GradientSink<F> for runtime::Gradients<'_, F> {
    fn range(&mut self, range: Range<usize>) -> &mut [F] {
        self.range(range)
    }

    fn ready(&mut self, range: Range<usize>) {
        self.ready(range);
    }
}

/// Trainable model with its work space.
pub trait Model<F> {
    /// Type of a micro-batch.
    type Batch;

    /// Returns the table of parameters.
    fn parameters(&self) -> &ParameterTable;

    /// Returns the mean loss over the batch.
    fn loss(&mut self, params: &[F], batch: &Self::Batch) -> F;

    /// Computes the gradient and returns the mean loss over the batch. Each range is reported as ready
    /// once, the last layer first; together the ranges cover the buffer.
    fn backward(
        &mut self,
        params: &[F],
        batch: &Self::Batch,
        gradients: &mut dyn GradientSink<F>,
    ) -> F;
}
