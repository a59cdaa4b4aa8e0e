//! [`StateValues`]: master weights or a moment of the optimizer, in memory or in a file (offload).

use std::ops::{Deref, DerefMut};
use std::path::Path;

use bytemuck::Pod;

use crate::os::files::scratch_memory::ScratchMemory;
use crate::runtime::engine::error::EngineError;

/// Master weights of a unit, or one of its moments.
pub(super) enum StateValues<T> {
    /// In the memory of the process.
    Memory(Vec<T>),
    /// In a file, whose pages are in memory only while they are used.
    File(ScratchMemory<T>),
}

impl<T: Pod> StateValues<T> {
    /// Allocates zeros: in a file of this directory, if there is one.
    pub(super) fn zeros(len: usize, dir: Option<&Path>) -> Result<Self, EngineError> {
        Ok(match dir {
            Some(dir) => {
                Self::File(ScratchMemory::zeros(dir, len).map_err(EngineError::offload(dir))?)
            }
            None => Self::Memory(vec![T::zeroed(); len]),
        })
    }

    /// The values are not used for a while.
    pub(super) fn release(&self) {
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
