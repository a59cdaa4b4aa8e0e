//! Passes of a model over parameters that are all in one place, without an engine: for evaluations on one
//! rank, for sampling, and for tests.

use crate::runtime::dtype::element::GradientElement;
use crate::runtime::engine::model::{BackwardPass, ForwardPass, Model, PassError};

/// Computes the mean loss of a batch. `params` contains all parameters in the order of the table.
///
/// # Errors
/// If a pass reads a unit that it does not name.
pub fn loss_of<F: GradientElement, M: Model<F> + ?Sized>(
    model: &mut M,
    params: &[F],
    batch: &M::Batch,
) -> Result<F, PassError> {
    for (index, pass) in model.passes().iter().enumerate() {
        let units = units_of(model, params, &pass.units);
        model.forward(&ForwardPass::new(index, &units, unit_scale(), F::DTYPE), batch)?;
    }
    Ok(model.loss())
}

/// Computes the gradient of the mean loss of a batch, and returns the loss. `gradient` is overwritten.
///
/// # Errors
/// If a pass uses a unit that it does not name.
///
/// # Panics
/// If `gradient` is not as long as the parameters.
pub fn gradient_of<F: GradientElement, M: Model<F> + ?Sized>(
    model: &mut M,
    params: &[F],
    batch: &M::Batch,
    gradient: &mut [F],
) -> Result<F, PassError> {
    let loss = loss_of(model, params, batch)?;
    gradient.fill(F::ZERO);
    for (index, pass) in model.passes().iter().enumerate().rev() {
        let units = units_of(model, params, &pass.units);
        let forward = ForwardPass::new(index, &units, unit_scale(), F::DTYPE);
        let mut parts = split_units(model, gradient, &pass.units);
        model.backward(&mut BackwardPass::new(forward, &mut parts), batch)?;
    }
    Ok(loss)
}

/// The scale of a loss that is not scaled.
fn unit_scale<F: GradientElement>() -> F {
    F::from_f64(1.0)
}

fn units_of<'a, F: GradientElement, M: Model<F> + ?Sized>(
    model: &M,
    params: &'a [F],
    units: &[usize],
) -> Vec<(usize, &'a [F])> {
    let table = model.parameters();
    units.iter().map(|unit| (*unit, &params[table.units()[*unit].range.clone()])).collect()
}

/// Divides a flat buffer into the parts of some units.
fn split_units<'a, F: GradientElement, M: Model<F> + ?Sized>(
    model: &M,
    flat: &'a mut [F],
    units: &[usize],
) -> Vec<(usize, &'a mut [F])> {
    let mut rest = flat;
    let mut parts = Vec::new();
    for (index, unit) in model.parameters().units().iter().enumerate() {
        let (part, after) = rest.split_at_mut(unit.range.len());
        rest = after;
        if units.contains(&index) {
            parts.push((index, part));
        }
    }
    parts
}
