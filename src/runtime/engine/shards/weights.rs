//! Parameters of a rank in host memory: whole or in shards, in the type in which the model computes.

use std::convert::Infallible;
use std::ops::Range;

use crate::runtime::comm::collectives::Collectives as _;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::shm::buffer::{Lent, SharedBuffer};
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::Element;
use crate::runtime::dtype::half::{Bf16, F16};
use crate::runtime::engine::buffers::UnitBuffers;
use crate::runtime::engine::config::{EngineConfig, Precision};
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::shards::groups::UnitGroups;
use crate::runtime::engine::shards::stored_part::{GatherWork, StoredPart};
use crate::runtime::error::Result;
use crate::runtime::parallel::zero::shard_ranges::{ShardLayout, UnitShards};

/// Weights of all units, of any element type.
pub(crate) trait Weights: Send {
    /// Begins to collect a unit from all ranks.
    fn start_gather(&mut self, unit: usize) -> Result<()>;

    /// Waits until a unit is there, in the type in which it is stored.
    fn finish_gather(&mut self, unit: usize) -> Result<(), CollectiveError>;

    /// Converts a unit that is there to `f32`, if it is stored in another type.
    fn widen(&mut self, unit: usize);

    /// Releases what a unit needs only while passes read it.
    fn free(&mut self, unit: usize);

    /// Elements of a unit that was gathered and converted.
    fn unit(&self, unit: usize) -> &[f32];

    /// The bytes of a unit that was gathered.
    #[cfg(feature = "nccl")]
    fn bytes(&self, unit: usize) -> &[u8];

    /// The bytes of this rank's part of a unit, to replace them.
    #[cfg(feature = "nccl")]
    fn own_bytes_mut(&mut self, unit: usize) -> &mut [u8];

    /// Replaces elements of this rank's part of a unit; `range` counts from the begin of the unit.
    fn store(&mut self, unit: usize, range: &Range<usize>, values: &[f32]);

    /// This rank's part of a unit, if it is stored in full precision.
    fn master(&self, unit: usize) -> Option<&[f32]>;

    /// The same, to update in place.
    fn master_mut(&mut self, unit: usize) -> Option<&mut [f32]>;

    /// Collects the updated shards of other ranks, for units of which this rank keeps more than its own.
    fn start_publish(&mut self) -> Result<()>;

    /// Waits for [`Self::start_publish`].
    fn finish_publish(&mut self) -> Result<(), CollectiveError>;
}

/// Element type of stored weights, with conversions from and to the type of the arithmetic.
pub(crate) trait WeightElement: Element<Sum = f32> {
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
converted!(Bf16, F16);

/// What a rank keeps between the passes that read a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Residence {
    /// The whole unit, which this rank updates alone.
    Whole,
    /// The whole unit; every rank updates its shard.
    WholeUpdatedInParts,
    /// The part of this rank.
    Part,
}

impl Residence {
    /// Returns what a rank keeps of a unit of `len` elements.
    pub(crate) fn of(len: usize, config: &EngineConfig) -> Self {
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
pub(crate) struct StoredWeights<E: Element> {
    groups: UnitGroups,
    layout: ShardLayout,
    units: Vec<StoredUnit<E>>,
    /// Buffers for gathered units.
    buffers: UnitBuffers<SharedBuffer<E>>,
    /// Buffers for converted units.
    wide_buffers: UnitBuffers<Vec<f32>>,
    publishing: Vec<Publication<E>>,
}

/// Collection of the updated shards of a unit.
struct Publication<E: Element> {
    unit: usize,
    work: Work<Lent<E>>,
    /// Memory of the operation if the stored part is in a file.
    staging: Option<SharedBuffer<E>>,
}

/// Divides the units of a model over `world` ranks: those of which a rank keeps a part over the ranks of its
/// shard group, all others over all ranks.
pub(crate) fn shard_layout(
    unit_lens: impl IntoIterator<Item = usize>,
    config: &EngineConfig,
    world: usize,
) -> ShardLayout {
    let units = unit_lens.into_iter().map(|len| {
        let group = match Residence::of(len, config) {
            Residence::Part => config.shard_group.unwrap_or(world),
            Residence::Whole | Residence::WholeUpdatedInParts => world,
        };
        UnitShards::new(len, world, group)
    });
    ShardLayout::new(units, world)
}

/// Weights of a unit.
struct StoredUnit<E: Element> {
    residence: Residence,
    /// The whole unit with padding, or this rank's part.
    stored: StoredPart<E>,
    gathered: Gathered<E>,
    /// The elements that passes read, if they are converted.
    wide: Option<Vec<f32>>,
}

/// A unit of which a rank stores a part.
enum Gathered<E: Element> {
    No,
    Started { buffer: SharedBuffer<E>, work: GatherWork<E> },
    Yes(SharedBuffer<E>),
}

impl<E: WeightElement> StoredWeights<E> {
    /// Allocates zeros.
    pub(crate) fn new(
        groups: &UnitGroups,
        layout: &ShardLayout,
        config: &EngineConfig,
    ) -> Result<Self, EngineError> {
        let mut units = Vec::new();
        for shards in layout.units() {
            let residence = Residence::of(shards.len, config);
            let shared = |len| Ok(StoredPart::Shared(groups.all.alloc_shared(len)?));
            let stored = match (residence, &config.offload.parameters) {
                (Residence::Part, Some(dir)) => StoredPart::in_file(dir, shards.part_len()),
                (Residence::Part, None) => shared(shards.part_len()),
                (Residence::Whole | Residence::WholeUpdatedInParts, _) => {
                    shared(shards.padded_len())
                }
            }?;
            units.push(StoredUnit { residence, stored, gathered: Gathered::No, wide: None });
        }
        Ok(Self {
            groups: groups.clone(),
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
                let begin = self.layout.units()[unit].part(self.groups.all.rank()).start;
                range.start - begin..range.end - begin
            }
        }
    }

    /// This rank's part of a unit.
    fn own_range(&self, unit: usize) -> Range<usize> {
        match self.units[unit].residence {
            Residence::Whole => 0..self.layout.units()[unit].len,
            Residence::WholeUpdatedInParts | Residence::Part => {
                self.layout.units()[unit].owned(self.groups.all.rank())
            }
        }
    }

    /// Elements of a unit that was gathered.
    fn elements(&self, unit: usize) -> &[E] {
        let len = self.layout.units()[unit].len;
        let of_unit = &self.units[unit];
        match &of_unit.gathered {
            Gathered::Yes(buffer) => buffer.slice(&(0..len)),
            Gathered::No | Gathered::Started { .. } => of_unit.stored.slice(&(0..len)),
        }
    }
}

impl<E: WeightElement> Weights for StoredWeights<E> {
    fn start_gather(&mut self, unit: usize) -> Result<()> {
        if self.units[unit].residence != Residence::Part
            || !matches!(self.units[unit].gathered, Gathered::No)
        {
            return Ok(());
        }
        let shards = &self.layout.units()[unit];
        let padded = shards.padded_len();
        let mut buffer = self.buffers.take(padded, |len| self.groups.all.alloc_shared(len))?;
        let of_unit = &mut self.units[unit];
        let group = self.groups.of_parts(shards);
        let part = shards.part(self.groups.all.rank());
        let work = of_unit.stored.start_gather(group, &mut buffer, &(0..padded), &part);
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
            of_unit.stored.finish_gather(work, &mut buffer)?;
            of_unit.gathered = Gathered::Yes(buffer);
        }
        Ok(())
    }

    fn widen(&mut self, unit: usize) {
        if E::IS_F32 {
            return;
        }
        let len = self.layout.units()[unit].len;
        let allocate = |len| Ok::<_, Infallible>(Vec::with_capacity(len));
        let Ok(mut wide) = self.wide_buffers.take(len, allocate);
        wide.resize(len, 0.0);
        E::widen(self.elements(unit), &mut wide);
        self.units[unit].wide = Some(wide);
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
        if let Some(wide) = &self.units[unit].wide {
            return wide;
        }
        E::as_f32(self.elements(unit)).expect("other types are converted")
    }

    #[cfg(feature = "nccl")]
    fn bytes(&self, unit: usize) -> &[u8] {
        bytemuck::cast_slice(self.elements(unit))
    }

    #[cfg(feature = "nccl")]
    fn own_bytes_mut(&mut self, unit: usize) -> &mut [u8] {
        let position = self.position(unit, &self.own_range(unit));
        bytemuck::cast_slice_mut(self.units[unit].stored.slice_mut(&position))
    }

    fn store(&mut self, unit: usize, range: &Range<usize>, values: &[f32]) {
        let position = self.position(unit, range);
        let mut narrowed = Vec::new();
        let narrow = E::narrow(values, &mut narrowed);
        self.units[unit].stored.slice_mut(&position).copy_from_slice(narrow);
        self.units[unit].stored.release();
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
            let shards = &self.layout.units()[unit];
            let group = match of_unit.residence {
                Residence::WholeUpdatedInParts => Some(&self.groups.all),
                Residence::Part => self.groups.hybrid_of(shards).map(|hybrid| &hybrid.copies),
                Residence::Whole => None,
            };
            let Some(group) = group.filter(|group| 1 < group.world_size()) else { continue };
            let range = 0..of_unit.stored.len();
            let (data, staging) = match &mut of_unit.stored {
                StoredPart::Shared(stored) => (stored.lend(&range), None),
                StoredPart::File(values) => {
                    let allocate = |len| self.groups.all.alloc_shared(len);
                    let mut staging = self.buffers.take(range.end, allocate)?;
                    staging.slice_mut(&range).copy_from_slice(values);
                    (staging.lend(&range), Some(staging))
                }
            };
            let work = group.submit_all_gather_in_place(data);
            self.publishing.push(Publication { unit, work, staging });
        }
        Ok(())
    }

    fn finish_publish(&mut self) -> Result<(), CollectiveError> {
        for Publication { unit, work, staging } in self.publishing.drain(..) {
            let data = work.wait()?;
            match (&mut self.units[unit].stored, staging) {
                (StoredPart::File(values), Some(mut staging)) => {
                    staging.restore(data);
                    let range = 0..values.len();
                    values.copy_from_slice(staging.slice(&range));
                    values.release();
                    self.buffers.keep(staging);
                }
                (StoredPart::Shared(stored), _) => stored.restore(data),
                (StoredPart::File(_), None) => unreachable!("files are staged"),
            }
        }
        Ok(())
    }
}

/// Allocates the weights in the type of the arithmetic. A rank that cannot use its directory tells the others, which
/// would wait for it.
pub(crate) fn allocate_weights(
    groups: &UnitGroups,
    layout: &ShardLayout,
    config: &EngineConfig,
) -> Result<Box<dyn Weights>, EngineError> {
    fn boxed<W: Weights + 'static>(weights: W) -> Box<dyn Weights> {
        Box::new(weights)
    }
    let weights: Result<Box<dyn Weights>, EngineError> = match config.precision {
        Precision::F32 => StoredWeights::<f32>::new(groups, layout, config).map(boxed),
        Precision::Bf16 => StoredWeights::<Bf16>::new(groups, layout, config).map(boxed),
        Precision::F16 => StoredWeights::<F16>::new(groups, layout, config).map(boxed),
    };
    weights.inspect_err(|error| abort_if_offload(&groups.all, error))
}

/// Tells the other ranks, which would wait for this one, that it cannot use its directory.
pub(crate) fn abort_if_offload(group: &Group, error: &EngineError) {
    if matches!(error, EngineError::Offload { .. }) {
        group.abort(&error.to_string());
    }
}
