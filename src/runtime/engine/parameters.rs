//! [`ParameterTable`]: names, shapes and initial values of the parameters of a model, cut into units.

use std::ops::Range;

use crate::runtime::data::random::RandomStream;
use crate::runtime::dtype::element::GradientElement;
use crate::runtime::flat::layout::Layout;

/// Named tensor of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name, as in checkpoints.
    pub name: String,
    /// Sizes of its dimensions; a matrix of a linear layer is (outputs, inputs), as in torch.
    pub shape: Vec<usize>,
    /// Range among all parameters of the model, in elements.
    pub range: Range<usize>,
    /// Index of its unit.
    pub unit: usize,
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
pub enum Init {
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

/// Parameters that a pass of a model reads together, and that are gathered and reduced together, such as
/// those of one block.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Name, for messages.
    pub name: String,
    /// Range of its elements among all parameters of the model.
    pub range: Range<usize>,
    /// Range of its parameters in the table.
    pub parameters: Range<usize>,
}

/// Parameters of a model in order, and the units that they form.
///
/// ```
/// use remuda::runtime::engine::{Init, ParameterTable};
///
/// let mut table = ParameterTable::default();
/// table.unit("layer 0");
/// let weight = table.push("0.weight", &[8, 4], Init::Uniform { bound: 0.5 });
/// let bias = table.push("0.bias", &[8], Init::Constant(0.0));
/// assert_eq!((weight, bias, table.len()), (0..32, 32..40, 40));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParameterTable {
    parameters: Vec<Parameter>,
    units: Vec<Unit>,
    len: usize,
}

impl ParameterTable {
    /// Begins a unit, to which the following parameters belong; returns its index.
    pub fn unit(&mut self, name: impl Into<String>) -> usize {
        let (len, parameters) = (self.len, self.parameters.len());
        let unit = Unit { name: name.into(), range: len..len, parameters: parameters..parameters };
        self.units.push(unit);
        self.units.len() - 1
    }

    /// Appends a parameter to the last unit; returns its range within the unit.
    ///
    /// # Panics
    /// If there is no unit, or a parameter has this name.
    pub fn push(&mut self, name: impl Into<String>, shape: &[usize], init: Init) -> Range<usize> {
        let name = name.into();
        assert!(self.get(&name).is_none(), "parameter `{name}` is registered twice");
        let unit = self.units.len().checked_sub(1).expect("call `unit` before the first `push`");
        let begin = self.len;
        self.len += shape.iter().product::<usize>();
        let range = begin..self.len;
        let of_unit = &mut self.units[unit];
        of_unit.range.end = range.end;
        of_unit.parameters.end += 1;
        let within = range.start - of_unit.range.start..range.end - of_unit.range.start;
        self.parameters.push(Parameter { name, shape: shape.to_vec(), range, unit, init });
        within
    }

    /// Returns the number of elements of all parameters.
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

    /// Returns the units.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// Returns the parameters of a unit.
    pub fn of_unit(&self, unit: usize) -> &[Parameter] {
        &self.parameters[self.units[unit].parameters.clone()]
    }

    /// Returns the parameters that a range of a unit touches, each with the range of its own elements.
    pub(crate) fn in_range(
        &self,
        unit: usize,
        of_unit: &Range<usize>,
    ) -> Vec<(&Parameter, Range<usize>)> {
        let base = self.units()[unit].range.start;
        let part = |parameter: &Parameter| {
            let begin = parameter.range.start - base;
            let clamp = |at: usize| at.clamp(begin, begin + parameter.range.len()) - begin;
            clamp(of_unit.start)..clamp(of_unit.end)
        };
        let all = self.of_unit(unit).iter().map(|parameter| (parameter, part(parameter)));
        all.filter(|(_, range)| !range.is_empty()).collect()
    }

    /// Returns the names and lengths as a layout of the runtime.
    pub fn layout(&self) -> Layout {
        Layout::new(self.iter().map(|parameter| (parameter.name.as_str(), parameter.range.len())))
    }

    /// Returns the initial values of all parameters, which depend only on the seed and on the position of
    /// each parameter.
    pub fn init<F: GradientElement>(&self, seed: u64) -> Vec<F> {
        let mut values = vec![F::ZERO; self.len];
        for (unit, Unit { range, .. }) in self.units.iter().enumerate() {
            self.init_unit(unit, seed, &mut values[range.clone()]);
        }
        values
    }

    /// Writes the initial values of a unit.
    ///
    /// # Panics
    /// If `values` is not as long as the unit.
    pub fn init_unit<F: GradientElement>(&self, unit: usize, seed: u64, values: &mut [F]) {
        let Unit { range, parameters, .. } = &self.units[unit];
        assert_eq!(values.len(), range.len(), "elements of unit {unit}");
        let mut values = values.iter_mut();
        for index in parameters.clone() {
            let parameter = &self.parameters[index];
            let mut stream = RandomStream::new(&[seed, INIT_STREAM, index as u64]);
            for value in values.by_ref().take(parameter.range.len()) {
                *value = F::from_f64(parameter.init.draw(&mut stream));
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_values_of_a_unit_are_a_part_of_those_of_the_model() {
        let mut table = ParameterTable::default();
        for unit in 0..3 {
            table.unit(format!("layer {unit}"));
            table.push(format!("{unit}.weight"), &[4, 3], Init::Normal { std: 0.1 });
            table.push(format!("{unit}.bias"), &[4], Init::Constant(0.5));
        }
        let whole: Vec<f32> = table.init(7);
        for (unit, Unit { range, .. }) in table.units().iter().enumerate() {
            let mut values = vec![0.0; range.len()];
            table.init_unit(unit, 7, &mut values);
            assert_eq!(values, whole[range.clone()]);
            assert_eq!(table.of_unit(unit)[1].name, format!("{unit}.bias"));
            assert!(table.of_unit(unit).iter().all(|parameter| parameter.unit == unit));
        }
    }
}
