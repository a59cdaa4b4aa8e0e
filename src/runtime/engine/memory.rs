//! [`EngineMemory`]: memory that an engine will need, by use.

use std::ops::Range;

use crate::runtime::engine::buffers::PlannedPool;
use crate::runtime::engine::config::{EngineConfig, Precision};
#[cfg(feature = "nccl")]
use crate::runtime::engine::config::{Exchange, StatePlace};
#[cfg(feature = "nccl")]
use crate::runtime::engine::device::DeviceModel;
#[cfg(feature = "nccl")]
use crate::runtime::engine::device::exchange::{ExchangePlacements, fold_bytes};
#[cfg(feature = "nccl")]
use crate::runtime::engine::model::ModelPass;
use crate::runtime::engine::model::{Model, plan_passes};
use crate::runtime::engine::parameters::ParameterTable;
use crate::runtime::engine::shards::weights::{Residence, shard_layout};
use crate::runtime::parallel::zero::lanes::{LaneAssignment, LaneOrder};
use crate::runtime::parallel::zero::shard_ranges::ShardLayout;
use crate::runtime::parallel::zero::step_plan::{PlanPass, PlanStep, StepPlan};

/// Size of an `f32` in bytes.
const F32: usize = size_of::<f32>();

/// Memory of the rank that needs most, in bytes, by use. The activations of the model are not part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineMemory {
    /// Weights that a rank keeps between two steps, in the type of the arithmetic.
    pub parameters: usize,
    /// Mean gradient, of all parameters or of a part of them.
    pub gradients: usize,
    /// Moments, and the master weights if the arithmetic has 16 bits.
    pub optimizer: usize,
    /// Units that passes read or whose gradients are being reduced: gathered weights, weights converted to
    /// `f32`, gradients of one micro-batch; and the memory in which devices add what ranks exchange.
    pub live_units: usize,
    /// Sums of earlier micro-batches of a step.
    pub micro_batch_sums: usize,
    /// Files of offloaded state, whose pages the kernel keeps in memory only as long as it has room.
    pub files: usize,
    /// What the rank copies to save a checkpoint: its own part of weights and moments, in `f32`. Not part of the
    /// total, because not every run saves.
    pub saved: usize,
}

impl EngineMemory {
    /// Returns the memory of an engine for `model` in a group of `world` ranks; nothing is allocated.
    ///
    /// # Panics
    /// If `world` or [`EngineConfig::accumulate`] is 0.
    pub fn forecast<M: Model>(model: &M, config: &EngineConfig, world: usize) -> Self {
        let forecast = Forecast::new(model.parameters(), config, world);
        Self {
            parameters: forecast.parameters(false),
            gradients: forecast.gradients(),
            optimizer: forecast.optimizer(false),
            live_units: forecast.live_units(&plan_passes(model)),
            micro_batch_sums: forecast.micro_batch_sums(),
            files: forecast.files(),
            saved: forecast.saved(),
        }
    }

    /// Returns the memory of a device for an engine; nothing is allocated. Not part of it is what depends on the batch,
    /// and some hundred bytes for each unit.
    ///
    /// # Panics
    /// If `world` or [`EngineConfig::accumulate`] is 0.
    #[cfg(feature = "nccl")]
    pub fn forecast_on_device<M: DeviceModel>(
        model: &M,
        config: &EngineConfig,
        world: usize,
    ) -> Self {
        Self::of_passes_on_device((model.parameters(), model.passes()), config, world)
    }

    /// The same for the parameters and passes of a model.
    #[cfg(feature = "nccl")]
    pub(crate) fn of_passes_on_device(
        (table, passes): (&ParameterTable, Vec<ModelPass>),
        config: &EngineConfig,
        world: usize,
    ) -> Self {
        let forecast = Forecast::new(table, config, world);
        let is_updated_there = config.offload.optimizer == StatePlace::Computing;
        let passes: Vec<PlanPass> = passes.into_iter().map(PlanPass::from).collect();
        Self {
            parameters: forecast.parameters_on_device(is_updated_there),
            gradients: forecast.gradients(),
            optimizer: if is_updated_there { forecast.optimizer(false) } else { 0 },
            live_units: forecast.live_units_on_device(&passes)
                + fold_bytes(
                    &forecast.layout,
                    config,
                    &ExchangePlacements::one_node(config, world),
                ),
            micro_batch_sums: forecast.micro_batch_sums(),
            files: forecast.files(),
            saved: 0,
        }
    }

    /// Returns the sum of all uses of memory in bytes, without files and copies for a checkpoint.
    pub fn total(&self) -> usize {
        let Self { parameters, gradients, optimizer, live_units, micro_batch_sums, .. } = self;
        parameters + gradients + optimizer + live_units + micro_batch_sums
    }
}

/// What the memory of rank 0 follows from. Its parts are the longest.
struct Forecast<'a> {
    config: &'a EngineConfig,
    lanes: LaneAssignment,
    layout: ShardLayout,
    residences: Vec<Residence>,
}

impl<'a> Forecast<'a> {
    fn new(table: &ParameterTable, config: &'a EngineConfig, world: usize) -> Self {
        let lens = table.units().iter().map(|unit| unit.range.len());
        let layout = shard_layout(lens, config, world);
        let units = layout.units().iter();
        let residences = units.map(|unit| Residence::of(unit.len, config)).collect();
        let lanes = config.lanes(world);
        Self { config, lanes, layout, residences }
    }

    fn units(&self) -> Range<usize> {
        0..self.layout.units().len()
    }

    fn len(&self, unit: usize) -> usize {
        self.layout.units()[unit].len
    }

    /// Elements of a unit that the rank updates.
    fn own_len(&self, unit: usize) -> usize {
        match self.residences[unit] {
            Residence::Whole => self.len(unit),
            Residence::WholeUpdatedInParts | Residence::Part => {
                self.layout.units()[unit].owned(0).len()
            }
        }
    }

    /// Size of a stored weight in bytes.
    fn weight_bytes(&self) -> usize {
        match self.config.precision {
            Precision::F32 => F32,
            Precision::Bf16 | Precision::F16 => F32 / 2,
        }
    }

    /// Stored weights: those in files, or those in memory.
    fn parameters(&self, in_files: bool) -> usize {
        let stored = self.units().map(|unit| {
            let (is_in_file, len) = match self.residences[unit] {
                Residence::Whole | Residence::WholeUpdatedInParts => {
                    (false, self.layout.padded_len(unit))
                }
                Residence::Part => {
                    let is_in_file = self.config.offload.parameters.is_some();
                    (is_in_file, self.layout.units()[unit].part_len())
                }
            };
            if is_in_file == in_files { len } else { 0 }
        });
        self.weight_bytes() * stored.sum::<usize>()
    }

    fn files(&self) -> usize {
        self.parameters(true) + self.optimizer(true)
    }

    fn saved(&self) -> usize {
        let sections = 1 + self.config.optimizer.state_names().len();
        let owned = self.layout.units().iter().map(|unit| unit.owned(0).len());
        F32 * sections * owned.sum::<usize>()
    }

    fn gradients(&self) -> usize {
        let own = self.units().map(|unit| {
            if self.lanes.reduces_every_micro_batch() {
                self.own_len(unit)
            } else {
                self.layout.padded_len(unit)
            }
        });
        F32 * own.sum::<usize>()
    }

    /// Moments and master weights: those in files, or those in memory.
    fn optimizer(&self, in_files: bool) -> usize {
        if self.config.offload.optimizer.directory().is_some() != in_files {
            return 0;
        }
        let masters = usize::from(self.config.precision != Precision::F32);
        let copies = masters + self.config.optimizer.state_names().len();
        F32 * copies * self.units().map(|unit| self.own_len(unit)).sum::<usize>()
    }

    fn micro_batch_sums(&self) -> usize {
        let lanes = &self.lanes;
        let in_counter = lanes.accumulate().next_power_of_two().ilog2() as usize;
        let of_unit = |unit| match lanes.order() {
            LaneOrder::RankMajor => in_counter * self.len(unit),
            LaneOrder::MicroBatchMajor => in_counter * self.own_len(unit),
            LaneOrder::Subtrees => self.sums_of_subtrees() * self.len(unit),
        };
        F32 * self.units().map(of_unit).sum::<usize>()
    }

    /// Largest number of sums that a rank keeps of its subtrees.
    fn sums_of_subtrees(&self) -> usize {
        let of_rank = |rank| {
            let additions = self.lanes.tree().additions_of(rank);
            let (mut sums, mut most) = (0, 0);
            for after in additions {
                sums += 1;
                most = most.max(sums);
                sums -= after;
            }
            most
        };
        (0..self.layout.ranks()).map(of_rank).max().unwrap_or(0)
    }

    /// Largest number of subtrees whose sums a rank reduces.
    fn reduced_subtrees(&self) -> usize {
        let accumulate = self.lanes.accumulate();
        let of_rank =
            |rank| accumulate - self.lanes.tree().additions_of(rank).iter().sum::<usize>();
        (0..self.layout.ranks()).map(of_rank).max().unwrap_or(0)
    }

    /// Follows the plan of a micro-batch until its buffers do not grow any more.
    fn live_units(&self, passes: &[PlanPass]) -> usize {
        let lens: Vec<usize> = self.units().map(|unit| self.len(unit)).collect();
        let plan = StepPlan::training(passes, &lens, self.config.plan);
        let mut live = LiveBuffers::new();
        let mut bytes = None;
        loop {
            plan.forward
                .iter()
                .chain(&plan.backward)
                .for_each(|step| self.follow(*step, &mut live));
            let before = bytes.replace(self.live_bytes(&live));
            if before == bytes {
                return bytes.unwrap_or(0);
            }
        }
    }

    fn follow(&self, step: PlanStep, live: &mut LiveBuffers) {
        match step {
            PlanStep::StartGather { unit } if self.residences[unit] == Residence::Part => {
                live.gathered.take(unit, self.layout.padded_len(unit));
            }
            PlanStep::FinishGather { unit } if self.config.precision != Precision::F32 => {
                live.wide.take(unit, self.len(unit));
            }
            PlanStep::Free { unit } => {
                live.gathered.keep(unit);
                live.wide.keep(unit);
            }
            PlanStep::OpenGradient { unit } => {
                live.gradients.take(unit, self.layout.padded_len(unit));
            }
            PlanStep::StartReduce { unit } => {
                live.reducing += self.layout.padded_len(unit);
                live.reducing_most = live.reducing_most.max(live.reducing);
            }
            PlanStep::FinishReduce { unit } => {
                live.gradients.keep(unit);
                live.reducing -= self.layout.padded_len(unit);
            }
            PlanStep::StartGather { .. }
            | PlanStep::FinishGather { .. }
            | PlanStep::Compute { .. } => {}
        }
    }

    fn live_bytes(&self, live: &LiveBuffers) -> usize {
        let wide_and_reduced = live.wide.elements() + self.reduced_elements(live);
        self.weight_bytes() * live.gathered.elements() + F32 * wide_and_reduced
    }

    /// Elements of the gradients that are reduced.
    fn reduced_elements(&self, live: &LiveBuffers) -> usize {
        match self.lanes.order() {
            LaneOrder::RankMajor => 0,
            LaneOrder::MicroBatchMajor => live.gradients.elements(),
            LaneOrder::Subtrees => self.reduced_subtrees() * live.reducing_most,
        }
    }
}

#[cfg(feature = "nccl")]
impl Forecast<'_> {
    /// Whether a unit is on a device only while passes read it.
    fn is_gathered(&self, unit: usize) -> bool {
        let is_elsewhere = 1 < self.layout.ranks() || self.config.offload.parameters.is_some();
        self.residences[unit] == Residence::Part && is_elsewhere
    }

    /// Whether ranks exchange weights between their devices, each a part of equal length.
    fn has_equal_parts(&self) -> bool {
        let is_divided = self.config.sharding.divides_optimizer() && 1 < self.layout.ranks();
        let is_in_files = self.config.offload.parameters.is_some();
        is_divided && !is_in_files && self.config.exchange != Exchange::Host
    }

    /// Weights on a device: units that stay there, and the parts of the others, if it updates or exchanges them.
    fn parameters_on_device(&self, is_updated_there: bool) -> usize {
        let stored = self.units().map(|unit| match self.is_gathered(unit) {
            false if self.has_equal_parts() => self.layout.padded_len(unit),
            true if self.has_equal_parts() => self.layout.units()[unit].part_len(),
            false => self.len(unit),
            true if is_updated_there => self.own_len(unit),
            true => 0,
        });
        self.weight_bytes() * stored.sum::<usize>()
    }

    /// Follows the plan of a micro-batch until its buffers do not grow any more.
    fn live_units_on_device(&self, passes: &[PlanPass]) -> usize {
        let lens: Vec<usize> = self.units().map(|unit| self.len(unit)).collect();
        let plan = StepPlan::training(passes, &lens, self.config.plan);
        let (mut live, mut gathered) = (LiveBuffers::new(), GatheredOnDevice::new());
        let mut bytes = None;
        loop {
            for step in plan.forward.iter().chain(&plan.backward) {
                self.follow(*step, &mut live);
                match *step {
                    PlanStep::StartGather { unit }
                        if self.has_equal_parts() && self.is_gathered(unit) =>
                    {
                        gathered.take(unit, self.layout.padded_len(unit));
                    }
                    PlanStep::FinishGather { unit }
                        if !self.has_equal_parts() && self.is_gathered(unit) =>
                    {
                        gathered.take(unit, self.len(unit));
                    }
                    PlanStep::Free { unit } if self.is_gathered(unit) => gathered.free(unit),
                    PlanStep::StartGather { .. }
                    | PlanStep::FinishGather { .. }
                    | PlanStep::Free { .. }
                    | PlanStep::Compute { .. }
                    | PlanStep::OpenGradient { .. }
                    | PlanStep::StartReduce { .. }
                    | PlanStep::FinishReduce { .. } => {}
                }
            }
            let reduced = F32 * self.reduced_elements(&live);
            let now = self.weight_bytes() * gathered.pool.elements() + reduced;
            if bytes.replace(now) == Some(now) {
                return now;
            }
        }
    }
}

/// Gathered units on a device. The memory of the unit that was freed last is not used again at once.
#[cfg(feature = "nccl")]
struct GatheredOnDevice {
    pool: PlannedPool,
    /// Number of the use of the pool by every gathered unit.
    uses: Vec<(usize, usize)>,
    next: usize,
    freed: Option<usize>,
}

#[cfg(feature = "nccl")]
impl GatheredOnDevice {
    fn new() -> Self {
        Self { pool: PlannedPool::new(), uses: Vec::new(), next: 0, freed: None }
    }

    fn take(&mut self, unit: usize, len: usize) {
        self.pool.take(self.next, len);
        self.uses.push((unit, self.next));
        self.next += 1;
    }

    fn free(&mut self, unit: usize) {
        let at = self.uses.iter().position(|(gathered, _)| *gathered == unit);
        let (_, number) = self.uses.swap_remove(at.expect("the unit was gathered"));
        if let Some(before) = self.freed.replace(number) {
            self.pool.keep(before);
        }
    }
}

/// Buffers of units while a plan runs.
struct LiveBuffers {
    gathered: PlannedPool,
    /// Units that were converted to `f32`.
    wide: PlannedPool,
    gradients: PlannedPool,
    /// Elements of the gradients that are being reduced.
    reducing: usize,
    reducing_most: usize,
}

impl LiveBuffers {
    fn new() -> Self {
        let (gathered, wide, gradients) =
            (PlannedPool::new(), PlannedPool::new(), PlannedPool::new());
        Self { gathered, wide, gradients, reducing: 0, reducing_most: 0 }
    }
}
