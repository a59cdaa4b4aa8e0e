//! [`StoredPart`]: what a rank keeps of the weights of a unit between the passes that read it.

use std::ops::Range;
use std::path::Path;

use crate::os::files::scratch_memory::ScratchMemory;
use crate::runtime::comm::collectives::Collectives as _;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::shm::buffer::{Lent, SharedBuffer};
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::Element;
use crate::runtime::engine::error::EngineError;

/// Weights of a unit, or of this rank's part of it.
pub(crate) enum StoredPart<E: Element> {
    /// In memory that operations read in place.
    Shared(SharedBuffer<E>),
    /// In a file.
    File(ScratchMemory<E>),
}

/// Collection of a unit that is in flight.
pub(crate) enum GatherWork<E: Element> {
    /// From the stored part.
    OfPart(Work<(Lent<E>, Lent<E>)>),
    /// From a copy of the stored part in the buffer of the unit.
    InPlace(Work<Lent<E>>),
}

impl<E: Element> StoredPart<E> {
    /// Allocates zeros in a file of a directory.
    pub(crate) fn in_file(dir: &Path, len: usize) -> Result<Self, EngineError> {
        Ok(Self::File(ScratchMemory::zeros(dir, len).map_err(EngineError::offload(dir))?))
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Shared(buffer) => buffer.len(),
            Self::File(values) => values.len(),
        }
    }

    /// Elements of a range.
    pub(crate) fn slice(&self, range: &Range<usize>) -> &[E] {
        match self {
            Self::Shared(buffer) => buffer.slice(range),
            Self::File(values) => &values[range.clone()],
        }
    }

    /// Elements of a range, to change.
    pub(crate) fn slice_mut(&mut self, range: &Range<usize>) -> &mut [E] {
        match self {
            Self::Shared(buffer) => buffer.slice_mut(range),
            Self::File(values) => &mut values[range.clone()],
        }
    }

    /// The weights are not used for a while.
    pub(crate) fn release(&self) {
        if let Self::File(values) = self {
            values.release();
        }
    }

    /// Begins to collect the parts of all ranks of a group in a buffer, whose range `part` is that of this
    /// rank.
    pub(crate) fn start_gather(
        &mut self,
        group: &Group,
        buffer: &mut SharedBuffer<E>,
        unit: &Range<usize>,
        part: &Range<usize>,
    ) -> GatherWork<E> {
        match self {
            Self::Shared(stored) => {
                let input = stored.lend(&(0..part.len()));
                GatherWork::OfPart(group.submit_all_gather(input, buffer.lend(unit)))
            }
            Self::File(values) => {
                buffer.slice_mut(part).copy_from_slice(values);
                values.release();
                GatherWork::InPlace(group.submit_all_gather_in_place(buffer.lend(unit)))
            }
        }
    }

    /// Waits until the parts are in the buffer.
    pub(crate) fn finish_gather(
        &mut self,
        work: GatherWork<E>,
        buffer: &mut SharedBuffer<E>,
    ) -> Result<(), CollectiveError> {
        match work {
            GatherWork::OfPart(work) => {
                let (input, output) = work.wait()?;
                if let Self::Shared(stored) = self {
                    stored.restore(input);
                }
                buffer.restore(output);
            }
            GatherWork::InPlace(work) => buffer.restore(work.wait()?),
        }
        Ok(())
    }
}
