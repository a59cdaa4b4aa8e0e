//! [`UnitState`]: master weights and moments of the optimizer in host memory, or in files (offload).

use std::ops::{Deref, DerefMut};
use std::path::Path;

use bytemuck::Pod;

use crate::os::files::scratch_memory::ScratchMemory;
use crate::runtime::engine::config::{EngineConfig, Precision};
use crate::runtime::engine::error::EngineError;

/// Optimizer state of a unit.
pub(crate) struct UnitState {
    /// Weights in full precision; `None` if the stored weights are.
    pub(crate) master: Option<StateValues<f32>>,
    /// Moments, in the order of [`Optimizer::state_names`](crate::runtime::optim::Optimizer::state_names).
    pub(crate) moments: Vec<StateValues<f32>>,
}

impl UnitState {
    /// Allocates zeros for `len` elements that this rank updates, beside weights in host memory.
    pub(crate) fn zeros(len: usize, config: &EngineConfig) -> Result<Self, EngineError> {
        let has_master = config.precision != Precision::F32;
        let master = has_master.then(|| values_of(len, config)).transpose()?;
        Ok(Self { master, moments: moments_of(len, config)? })
    }

    /// Allocates zeros for `len` elements, and for their weights in full precision.
    #[cfg(feature = "nccl")]
    pub(crate) fn with_master(len: usize, config: &EngineConfig) -> Result<Self, EngineError> {
        Ok(Self { master: Some(values_of(len, config)?), moments: moments_of(len, config)? })
    }

    /// The state is not used for a while.
    pub(crate) fn release(&self) {
        self.master.iter().chain(&self.moments).for_each(StateValues::release);
    }
}

fn values_of(len: usize, config: &EngineConfig) -> Result<StateValues<f32>, EngineError> {
    StateValues::zeros(len, config.offload.optimizer.directory())
}

fn moments_of(len: usize, config: &EngineConfig) -> Result<Vec<StateValues<f32>>, EngineError> {
    config.optimizer.state_names().iter().map(|_| values_of(len, config)).collect()
}

/// Master weights of a unit, or one of its moments.
pub(crate) enum StateValues<T> {
    /// In the memory of the process.
    Memory(Vec<T>),
    /// In a file, whose pages are in memory only while they are used.
    File(ScratchMemory<T>),
}

impl<T: Pod> StateValues<T> {
    /// Allocates zeros: in a file of this directory, if there is one.
    pub(crate) fn zeros(len: usize, dir: Option<&Path>) -> Result<Self, EngineError> {
        Ok(match dir {
            Some(dir) => {
                Self::File(ScratchMemory::zeros(dir, len).map_err(EngineError::offload(dir))?)
            }
            None => Self::Memory(vec![T::zeroed(); len]),
        })
    }

    /// The values are not used for a while.
    pub(crate) fn release(&self) {
        if let Self::File(values) = self {
            values.release();
        }
    }
}

impl<T: Pod> Deref for StateValues<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Memory(values) => values,
            Self::File(values) => values,
        }
    }
}

impl<T: Pod> DerefMut for StateValues<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Memory(values) => values,
            Self::File(values) => values,
        }
    }
}

impl<T: Pod> AsMut<[T]> for StateValues<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}
