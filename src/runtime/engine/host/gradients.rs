//! [`HostGradients`]: gradients in host memory, which operations of the group read and replace in place.

use std::ops::Range;

use crate::runtime::comm::collectives::Collectives as _;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::shm::buffer::SharedBuffer;
use crate::runtime::dtype::element::{Dtype, Element as _, ReduceOp};
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::host::rounding::round_to;
use crate::runtime::engine::shards::gradients::{GradientExecutor, OpenGradient, OwnGradient};

/// Arithmetic on gradients in host memory.
pub(super) struct HostGradients(pub(super) Group);

impl GradientExecutor for HostGradients {
    type Unit = SharedBuffer<f32>;
    type Sum = Vec<f32>;

    fn alloc(&mut self, len: usize) -> Result<SharedBuffer<f32>, EngineError> {
        Ok(self.0.alloc_shared(len)?)
    }

    fn clear(&mut self, unit: &mut SharedBuffer<f32>, len: usize) -> Result<(), EngineError> {
        unit.slice_mut(&(0..len)).fill(0.0);
        Ok(())
    }

    fn numbers(&mut self, spare: Option<Vec<f32>>, len: usize) -> Result<Vec<f32>, EngineError> {
        let mut numbers = spare.unwrap_or_default();
        numbers.resize(len, 0.0);
        Ok(numbers)
    }

    fn clear_sum(&mut self, sum: &mut Vec<f32>) -> Result<(), EngineError> {
        sum.fill(0.0);
        Ok(())
    }

    fn add(&self, older: &Vec<f32>, newer: &mut Vec<f32>) -> Result<(), EngineError> {
        f32::combine_right(ReduceOp::Sum, older, newer);
        Ok(())
    }

    fn add_to_unit(
        &self,
        older: &Vec<f32>,
        newer: &mut SharedBuffer<f32>,
    ) -> Result<(), EngineError> {
        f32::combine_right(ReduceOp::Sum, older, newer.slice_mut(&(0..older.len())));
        Ok(())
    }

    fn copy_part(
        &self,
        unit: &mut SharedBuffer<f32>,
        range: &Range<usize>,
        to: &mut Vec<f32>,
    ) -> Result<(), EngineError> {
        to.copy_from_slice(unit.slice(range));
        Ok(())
    }

    fn copy_sum(&self, sum: &Vec<f32>, unit: &mut SharedBuffer<f32>) -> Result<(), EngineError> {
        unit.slice_mut(&(0..sum.len())).copy_from_slice(sum);
        Ok(())
    }

    fn divide_unit(
        &self,
        unit: &mut SharedBuffer<f32>,
        len: usize,
        divisor: u64,
    ) -> Result<(), EngineError> {
        f32::divide(unit.slice_mut(&(0..len)), divisor);
        Ok(())
    }

    fn divide(&self, sum: &mut Vec<f32>, divisor: u64) -> Result<(), EngineError> {
        f32::divide(sum, divisor);
        Ok(())
    }

    fn round(
        &mut self,
        open: OpenGradient<'_, Self>,
        len: usize,
        dtype: Dtype,
    ) -> Result<(), EngineError> {
        round_to(open.elements(len), dtype);
        Ok(())
    }

    fn close(&mut self, _unit: &mut SharedBuffer<f32>) -> Result<(), EngineError> {
        Ok(())
    }

    fn to_host(&mut self, _unit: &mut SharedBuffer<f32>, _len: usize) -> Result<(), EngineError> {
        Ok(())
    }

    fn for_host(&mut self, _unit: &mut SharedBuffer<f32>, _len: usize) -> Result<(), EngineError> {
        Ok(())
    }

    fn host<'u>(&self, unit: &'u mut SharedBuffer<f32>) -> &'u mut SharedBuffer<f32> {
        unit
    }

    fn take_back(
        &mut self,
        _unit: &mut SharedBuffer<f32>,
        _range: &Range<usize>,
    ) -> Result<(), EngineError> {
        Ok(())
    }
}

impl<'a> OpenGradient<'a, HostGradients> {
    /// The first `len` elements.
    pub(super) fn elements(self, len: usize) -> &'a mut [f32] {
        match self {
            Self::Unit(unit) => unit.slice_mut(&(0..len)),
            Self::Sum(sum) => &mut sum[..len],
        }
    }
}

impl<'a> OwnGradient<'a, HostGradients> {
    /// The part that this rank updates.
    pub(super) fn elements(self) -> &'a mut [f32] {
        match self {
            Self::Unit(unit, range) => unit.slice_mut(&range),
            Self::Sum(sum) => sum,
        }
    }
}
