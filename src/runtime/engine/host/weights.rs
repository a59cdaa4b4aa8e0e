//! Parameters of a rank in host memory: whole or in shards, in the type in which the model computes.

use std::convert::Infallible;
use std::ops::Range;

use crate::runtime::comm::collectives::Collectives as _;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::shm::buffer::{Lent, SharedBuffer};
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::Element;
use crate::runtime::engine::buffers::UnitBuffers;
use crate::runtime::engine::config::EngineConfig;
use crate::runtime::error::Result;
use crate::runtime::parallel::zero::shards::ShardLayout;

/// Weights of all units, of any element type.
pub(super) trait Weights: Send {
    /// Begins to collect a unit from all ranks.
    fn start_gather(&mut self, unit: usize) -> Result<()>;

    /// Waits until a unit is there.
    fn finish_gather(&mut self, unit: usize) -> Result<(), CollectiveError>;

    /// Releases what a unit needs only while passes read it.
    fn free(&mut self, unit: usize);

    /// Elements of a unit that was gathered.
    fn unit(&self, unit: usize) -> &[f32];

    /// Replaces elements of this rank's part of a unit; `range` counts from the begin of the unit.
    fn store(&mut self, unit: usize, range: &Range<usize>, values: &[f32]);

    /// This rank's part of a unit, if it is stored in full precision.
    fn master(&self, unit: usize) -> Option<&[f32]>;

    /// The same, to update in place.
    fn master_mut(&mut self, unit: usize) -> Option<&mut [f32]>;

    /// Collects the updated parts of all ranks, for units that every rank keeps whole.
    fn start_publish(&mut self) -> Result<()>;

    /// Waits for [`Self::start_publish`].
    fn finish_publish(&mut self) -> Result<(), CollectiveError>;
}

/// Element type of stored weights, with conversions from and to the type of the arithmetic.
pub(super) trait WeightElement: Element<Sum = f32> {
    /// Whether stored elements can be read as `f32` without a conversion.
    const IS_F32: bool;

    /// Elements as `f32`, if they are stored so.
    fn as_f32(values: &[Self]) -> Option<&[f32]>;

    /// Elements as `f32`, if they are stored so.
    fn as_f32_mut(values: &mut [Self]) -> Option<&mut [f32]>;
}

impl WeightElement for f32 {
    const IS_F32: bool = true;

    fn as_f32(values: &[Self]) -> Option<&[f32]> {
        Some(values)
    }

    fn as_f32_mut(values: &mut [Self]) -> Option<&mut [f32]> {
        Some(values)
    }
}

/// A 16-bit type, which is converted.
macro_rules! converted {
    ($($type:ty),*) => {$(
        impl WeightElement for $type {
            const IS_F32: bool = false;

            fn as_f32(_values: &[Self]) -> Option<&[f32]> {
                None
            }

            fn as_f32_mut(_values: &mut [Self]) -> Option<&mut [f32]> {
                None
            }
        }
    )*};
}
converted!(crate::runtime::dtype::half::Bf16, crate::runtime::dtype::half::F16);

/// What a rank keeps between the passes that read a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runtime::engine) enum Residence {
    /// The whole unit, which this rank updates alone.
    Whole,
    /// The whole unit; every rank updates its part.
    WholeUpdatedInParts,
    /// This rank's part.
    Part,
}

impl Residence {
    /// Returns what a rank keeps of a unit of `len` elements.
    pub(in crate::runtime::engine) fn of(len: usize, config: &EngineConfig) -> Self {
        if config.sharding.divides_parameters() && config.persistent_len_max < len {
            Self::Part
        } else if config.sharding.divides_optimizer() {
            Self::WholeUpdatedInParts
        } else {
            Self::Whole
        }
    }
}

/// Weights stored as elements of type `E`.
pub(super) struct StoredWeights<E: Element> {
    group: Group,
    layout: ShardLayout,
    units: Vec<StoredUnit<E>>,
    /// Buffers for gathered units.
    buffers: UnitBuffers<SharedBuffer<E>>,
    /// Buffers for converted units.
    wide_buffers: UnitBuffers<Vec<f32>>,
    publishing: Vec<(usize, Work<Lent<E>>)>,
}

/// Weights of a unit.
struct StoredUnit<E: Element> {
    residence: Residence,
    /// The whole unit with padding, or this rank's part.
    stored: SharedBuffer<E>,
    gathered: Gathered<E>,
    /// The elements that passes read, if they are converted.
    wide: Option<Vec<f32>>,
}

/// A unit of which a rank stores a part.
enum Gathered<E: Element> {
    No,
    Started { buffer: SharedBuffer<E>, work: Work<(Lent<E>, Lent<E>)> },
    Yes(SharedBuffer<E>),
}

impl<E: WeightElement> StoredWeights<E> {
    /// Allocates zeros.
    pub(super) fn new(
        group: &Group,
        layout: &ShardLayout,
        residences: impl IntoIterator<Item = Residence>,
    ) -> Result<Self> {
        let mut units = Vec::new();
        for (unit, residence) in residences.into_iter().enumerate() {
            let len = match residence {
                Residence::Whole | Residence::WholeUpdatedInParts => layout.padded_len(unit),
                Residence::Part => layout.units()[unit].shard_len,
            };
            let stored = group.alloc_shared(len)?;
            units.push(StoredUnit { residence, stored, gathered: Gathered::No, wide: None });
        }
        Ok(Self {
            group: group.clone(),
            layout: layout.clone(),
            units,
            buffers: UnitBuffers::new(),
            wide_buffers: UnitBuffers::new(),
            publishing: Vec::new(),
        })
    }

    /// Position in `stored` of a range of this rank's part.
    fn position(&self, unit: usize, range: &Range<usize>) -> Range<usize> {
        match self.units[unit].residence {
            Residence::Whole | Residence::WholeUpdatedInParts => range.clone(),
            // The part of a rank behind the end of a short unit is empty.
            Residence::Part if range.is_empty() => 0..0,
            Residence::Part => {
                let begin = self.group.rank() * self.layout.units()[unit].shard_len;
                range.start - begin..range.end - begin
            }
        }
    }

    /// This rank's part of a unit.
    fn own_range(&self, unit: usize) -> Range<usize> {
        match self.units[unit].residence {
            Residence::Whole => 0..self.layout.units()[unit].len,
            Residence::WholeUpdatedInParts | Residence::Part => {
                self.layout.units()[unit].owned(self.group.rank())
            }
        }
    }

    /// Converts a unit for the passes that read it.
    fn widen(&mut self, unit: usize) {
        if E::IS_F32 {
            return;
        }
        let len = self.layout.units()[unit].len;
        let allocate = |len| Ok::<_, Infallible>(Vec::with_capacity(len));
        let Ok(mut wide) = self.wide_buffers.take(len, allocate);
        wide.resize(len, 0.0);
        let of_unit = &self.units[unit];
        let elements = match &of_unit.gathered {
            Gathered::Yes(buffer) => buffer.slice(&(0..len)),
            Gathered::No | Gathered::Started { .. } => of_unit.stored.slice(&(0..len)),
        };
        E::widen(elements, &mut wide);
        self.units[unit].wide = Some(wide);
    }
}

impl<E: WeightElement> Weights for StoredWeights<E> {
    fn start_gather(&mut self, unit: usize) -> Result<()> {
        if self.units[unit].residence != Residence::Part
            || !matches!(self.units[unit].gathered, Gathered::No)
        {
            return Ok(());
        }
        let padded = self.layout.padded_len(unit);
        let mut buffer = self.buffers.take(padded, |len| self.group.alloc_shared(len))?;
        let of_unit = &mut self.units[unit];
        let input = of_unit.stored.lend(&(0..self.layout.units()[unit].shard_len));
        let output = buffer.lend(&(0..padded));
        let work = self.group.submit_all_gather(input, output);
        of_unit.gathered = Gathered::Started { buffer, work };
        Ok(())
    }

    fn finish_gather(&mut self, unit: usize) -> Result<(), CollectiveError> {
        let of_unit = &mut self.units[unit];
        if let Gathered::Started { .. } = of_unit.gathered {
            let Gathered::Started { mut buffer, work } =
                std::mem::replace(&mut of_unit.gathered, Gathered::No)
            else {
                unreachable!("the state was looked at")
            };
            let (input, output) = work.wait()?;
            of_unit.stored.restore(input);
            buffer.restore(output);
            of_unit.gathered = Gathered::Yes(buffer);
        }
        self.widen(unit);
        Ok(())
    }

    fn free(&mut self, unit: usize) {
        let of_unit = &mut self.units[unit];
        if let Some(wide) = of_unit.wide.take() {
            self.wide_buffers.keep(wide);
        }
        match std::mem::replace(&mut of_unit.gathered, Gathered::No) {
            Gathered::Yes(buffer) => self.buffers.keep(buffer),
            started @ Gathered::Started { .. } => of_unit.gathered = started,
            Gathered::No => {}
        }
    }

    fn unit(&self, unit: usize) -> &[f32] {
        let len = self.layout.units()[unit].len;
        let of_unit = &self.units[unit];
        if let Some(wide) = &of_unit.wide {
            return wide;
        }
        let elements = match &of_unit.gathered {
            Gathered::Yes(buffer) => buffer.slice(&(0..len)),
            Gathered::No | Gathered::Started { .. } => of_unit.stored.slice(&(0..len)),
        };
        E::as_f32(elements).expect("other types are converted when they are gathered")
    }

    fn store(&mut self, unit: usize, range: &Range<usize>, values: &[f32]) {
        let position = self.position(unit, range);
        let mut narrowed = Vec::new();
        let narrow = E::narrow(values, &mut narrowed);
        self.units[unit].stored.slice_mut(&position).copy_from_slice(narrow);
    }

    fn master(&self, unit: usize) -> Option<&[f32]> {
        let position = self.position(unit, &self.own_range(unit));
        E::as_f32(self.units[unit].stored.slice(&position))
    }

    fn master_mut(&mut self, unit: usize) -> Option<&mut [f32]> {
        let position = self.position(unit, &self.own_range(unit));
        E::as_f32_mut(self.units[unit].stored.slice_mut(&position))
    }

    fn start_publish(&mut self) -> Result<()> {
        for (unit, of_unit) in self.units.iter_mut().enumerate() {
            if of_unit.residence == Residence::WholeUpdatedInParts && 1 < self.group.world_size() {
                let data = of_unit.stored.lend(&(0..self.layout.padded_len(unit)));
                self.publishing.push((unit, self.group.submit_all_gather_in_place(data)));
            }
        }
        Ok(())
    }

    fn finish_publish(&mut self) -> Result<(), CollectiveError> {
        for (unit, work) in self.publishing.drain(..) {
            let data = work.wait()?;
            self.units[unit].stored.restore(data);
        }
        Ok(())
    }
}
