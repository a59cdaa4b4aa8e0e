//! [`DeviceExchange`]: what ranks exchange between their devices, in a stream beside the computations.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::cuda::device::{
    Device, DeviceAddress, DeviceError, DeviceMemory, EventId, PeerMemory, StreamId,
};
use crate::runtime::comm::collectives::{Plan, StepCheck};
use crate::runtime::comm::device::{Reduced, StreamExchange, find_connection};
use crate::runtime::comm::group::Group;
use crate::runtime::dtype::element::ReduceOrder;
use crate::runtime::engine::config::{EngineConfig, Exchange};
use crate::runtime::engine::device::flight_recorder::{Exchanged, FlightRecorder, RecordedRank};
use crate::runtime::engine::device::path::GradientPath;
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::shards::groups::UnitGroups;
use crate::runtime::parallel::zero::shard_ranges::{NORM_BLOCK, ShardLayout, UnitShards};
use crate::runtime::schedule::Placement;

const FLOAT: usize = size_of::<f32>();

/// Exchange among all ranks, and within the groups of units that are divided over a part of them.
pub(super) struct DeviceExchange {
    device: Arc<dyn Device>,
    stream: StreamId,
    all: StreamExchange,
    hybrid: Option<HybridExchange>,
    /// Whether ranks update different parts of a unit.
    is_divided: bool,
    /// Recorded behind the last operation of a stream for which the host waits.
    awaited: EventId,
    recorder: FlightRecorder,
    /// File with the records, once they were written; `None` if they could not be.
    kept: OnceLock<Option<PathBuf>>,
    /// Why what was in progress was ended.
    failure: OnceLock<DeviceError>,
}

/// The groups of a rank where units are divided over a part of the ranks.
struct HybridExchange {
    shard_group: StreamExchange,
    copies: StreamExchange,
}

/// Reductions of a unit, one after the other: which ranks, where, and what.
fn reductions_of(unit: &UnitShards, is_divided: bool) -> Vec<(Members, Reduced)> {
    let parts = |len| Reduced::Parts { len };
    match (unit.is_hybrid(), is_divided) {
        (true, _) => vec![
            (Members::ShardGroup, parts(unit.part_len())),
            (Members::Copies, parts(unit.shard_len)),
        ],
        (false, true) => vec![(Members::All, parts(unit.shard_len))],
        (false, false) => vec![(Members::All, Reduced::All { len: unit.len })],
    }
}

/// Ranks that take part in a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Members {
    All,
    ShardGroup,
    Copies,
}

/// Nodes of the ranks that take part in reductions.
pub(in crate::runtime::engine) struct ExchangePlacements {
    all: Placement,
    /// Those of the groups of a rank where units are divided over a part of the ranks.
    hybrid: Option<[Placement; 2]>,
}

impl ExchangePlacements {
    /// Placement of all ranks on one node.
    pub(in crate::runtime::engine) fn one_node(config: &EngineConfig, world: usize) -> Self {
        let ranks = |count: usize| Placement::one_node("", count);
        let hybrid = config.shard_group.map(|group| [ranks(group), ranks(world / group)]);
        Self { all: ranks(world), hybrid }
    }

    fn of(groups: &UnitGroups) -> Self {
        let placement = |group: &Group| group.inner.roster.placement.clone();
        let hybrid = groups.hybrid();
        let hybrid = hybrid.map(|hybrid| [&hybrid.shard_group, &hybrid.copies].map(placement));
        Self { all: placement(&groups.all), hybrid }
    }

    fn of_members(&self, members: Members) -> &Placement {
        let [shard_group, copies] =
            self.hybrid.as_ref().map_or([&self.all; 2], <[Placement; 2]>::each_ref);
        match members {
            Members::All => &self.all,
            Members::ShardGroup => shard_group,
            Members::Copies => copies,
        }
    }
}

/// Bytes of the memory in which a device folds the slices of the ranks, 0 if it does not.
pub(in crate::runtime::engine) fn fold_bytes(
    layout: &ShardLayout,
    config: &EngineConfig,
    placements: &ExchangePlacements,
) -> usize {
    if config.exchange != Exchange::Devices || placements.all.world_size() == 1 {
        return 0;
    }
    let of_unit = |unit: &UnitShards| {
        let reductions = reductions_of(unit, config.sharding.divides_optimizer()).into_iter();
        let numbers =
            reductions.map(|(members, what)| what.scratch_len(placements.of_members(members)));
        numbers.max().unwrap_or(0)
    };
    FLOAT * layout.units().iter().map(of_unit).max().unwrap_or(0)
}

impl DeviceExchange {
    /// Decides how ranks exchange gradients: by NCCL, if there are several ranks and all of their devices can be
    /// connected. Communicates.
    pub(super) fn choose(
        device: &dyn Device,
        group: &Group,
        config: &EngineConfig,
    ) -> Result<GradientPath, EngineError> {
        let order = match config.exchange {
            _ if group.world_size() == 1 => return Ok(GradientPath::Alone),
            Exchange::Host => {
                return Ok(GradientPath::Host { why: "the settings say so".to_owned() });
            }
            Exchange::AnyOrder => ReduceOrder::Any,
            Exchange::Devices => ReduceOrder::Canonical,
        };
        Ok(match find_connection(group, device)? {
            Ok(version) => GradientPath::Nccl { version, order },
            Err(why) => GradientPath::Host { why },
        })
    }

    /// Connects the devices of all ranks for sums in an order. Communicates.
    pub(super) fn connect(
        device: &Arc<dyn Device>,
        order: ReduceOrder,
        groups: &UnitGroups,
        layout: &ShardLayout,
        config: &EngineConfig,
    ) -> Result<Arc<Self>, EngineError> {
        let stream = device.create_stream()?;
        let bytes = fold_bytes(layout, config, &ExchangePlacements::of(groups));
        let fold: Option<Arc<dyn DeviceMemory>> =
            (0 < bytes).then(|| device.alloc_exchanged(bytes)).transpose()?.map(Arc::from);
        let connect =
            |group: &Group| StreamExchange::connect(group, (device, stream), order, fold.clone());
        let all = connect(&groups.all)?;
        let hybrid = groups.hybrid().map(|hybrid| {
            let (shard_group, copies) = (connect(&hybrid.shard_group)?, connect(&hybrid.copies)?);
            Ok::<_, EngineError>(HybridExchange { shard_group, copies })
        });
        let exchange = Self {
            device: device.clone(),
            stream,
            all,
            hybrid: hybrid.transpose()?,
            is_divided: config.sharding.divides_optimizer(),
            awaited: device.create_event()?,
            recorder: FlightRecorder::new(device, stream),
            kept: OnceLock::new(),
            failure: OnceLock::new(),
        };
        fold.iter().try_for_each(|fold| exchange.register(&**fold))?;
        Ok(Arc::new(exchange))
    }

    /// Allocates memory that ranks exchange, whose values are not defined.
    pub(super) fn alloc(self: &Arc<Self>, bytes: usize) -> Result<ExchangedMemory, DeviceError> {
        let memory = self.device.alloc_exchanged(bytes)?;
        self.register(&*memory)?;
        Ok(ExchangedMemory { memory, exchange: self.clone(), is_registered: true })
    }

    fn register(&self, memory: &dyn DeviceMemory) -> Result<(), DeviceError> {
        self.parts().try_for_each(|part| part.register(memory))
    }

    /// The stream of the operations. Events order it and the computations.
    pub(super) fn stream(&self) -> StreamId {
        self.stream
    }

    fn rank(&self) -> usize {
        self.all.group().rank()
    }

    fn hybrid(&self) -> &HybridExchange {
        self.hybrid.as_ref().expect("a hybrid unit has its groups")
    }

    fn among(&self, members: Members) -> &StreamExchange {
        match members {
            Members::All => &self.all,
            Members::ShardGroup => &self.hybrid().shard_group,
            Members::Copies => &self.hybrid().copies,
        }
    }

    /// Submits the reduction of the gradient of a unit, in place.
    pub(super) fn reduce(
        &self,
        (number, unit): (usize, &UnitShards),
        at: DeviceAddress,
    ) -> Result<(), DeviceError> {
        let recorded = (Exchanged::Gradient { unit: number }, unit.len * FLOAT);
        self.recorder.record(recorded, || {
            for (members, what) in reductions_of(unit, self.is_divided) {
                // Ranks that hold the same part add their sums of it.
                let first =
                    if members == Members::Copies { unit.part(self.rank()).start } else { 0 };
                self.among(members).reduce(at.offset(first * FLOAT), what)?;
            }
            Ok(())
        })
    }

    /// Submits the collection of a unit, of which every rank has a part, with elements of `bytes` bytes.
    pub(super) fn gather(
        &self,
        (number, unit): (usize, &UnitShards),
        [part, to]: [DeviceAddress; 2],
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let members = if unit.is_hybrid() { Members::ShardGroup } else { Members::All };
        let recorded = (Exchanged::Weights { unit: number }, unit.len * bytes);
        self.recorder
            .record(recorded, || self.among(members).all_gather(part, to, unit.part_len() * bytes))
    }

    /// Submits the collection of what each rank has updated in memory that begins at `at`: a whole unit, or the part of
    /// a unit that several ranks hold.
    pub(super) fn publish(
        &self,
        (number, unit): (usize, &UnitShards),
        at: DeviceAddress,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let (members, begin) = if unit.is_hybrid() {
            (Members::Copies, unit.part(self.rank()).start)
        } else {
            (Members::All, 0)
        };
        let own = at.offset((unit.shard(self.rank()).start - begin) * bytes);
        let recorded = (Exchanged::Update { unit: number }, unit.len * bytes);
        self.recorder
            .record(recorded, || self.among(members).all_gather(own, at, unit.shard_len * bytes))
    }

    /// Submits the collection of the sums of all blocks of the norm, f64, in the order of the units. Each rank has those
    /// of its own parts.
    pub(super) fn gather_sums(
        &self,
        layout: &ShardLayout,
        sums: DeviceAddress,
    ) -> Result<(), DeviceError> {
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        let mut first = 0;
        for unit in layout.units() {
            let memory_of = |peer: usize, owner: usize| {
                let Range { start, end } = blocks_of(&unit.owned(owner));
                let at = sums.offset((first + start) * size_of::<f64>());
                (start < end).then_some(PeerMemory {
                    peer,
                    at,
                    bytes: (end - start) * size_of::<f64>(),
                })
            };
            let peers = || (0..layout.ranks()).filter(|peer| *peer != self.rank());
            sends.extend(peers().filter_map(|peer| memory_of(peer, self.rank())));
            recvs.extend(peers().filter_map(|peer| memory_of(peer, peer)));
            first += unit.blocks();
        }
        let recorded = (Exchanged::Squares, first * size_of::<f64>());
        self.recorder.record(recorded, || self.all.exchange(&sends, &recvs))
    }

    /// Waits on the host until a stream has executed its operations, until a rank is lost, or until the timeout of the
    /// group has passed. A device itself would wait for lost ranks forever.
    pub(super) fn wait_for(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.device.record(stream, self.awaited)?;
        self.all.wait_until(&mut || {
            let is_done = self.device.is_complete(self.awaited)?;
            if !is_done {
                self.all.check()?;
            }
            Ok(is_done)
        })
    }

    /// What explains a failure: why a rank is lost, if one is, and which exchanges have not ended.
    pub(super) fn explain(&self, error: DeviceError) -> DeviceError {
        if let Some(first) = self.failure.get() {
            return first.clone();
        }
        match self.all.loss().unwrap_or(error) {
            DeviceError::Exchange { problem } => {
                let (records, status) = (self.recorder.report(), self.all.status());
                let file = self.keep_records().map_or_else(String::new, |path| {
                    format!("\nrecords of this rank: {}", path.display())
                });
                DeviceError::Exchange { problem: problem + &records + &status + &file }
            }
            other => other,
        }
    }

    /// Writes which exchanges have ended to the directory of the run, once; returns the file.
    pub(super) fn keep_records(&self) -> Option<&PathBuf> {
        let write = || {
            let group = self.all.group();
            let of = RecordedRank { rank: group.rank(), restarts: group.restart_count() };
            self.recorder.keep(&group.run_dir()?, of)
        };
        self.kept.get_or_init(write).as_ref()
    }

    /// Waits until what was submitted has been exchanged, or ends it if a rank is lost.
    fn finish(&self) {
        if let Err(error) = self.wait_for(self.stream) {
            // The operations that follow fail because of this.
            let _ = self.failure.set(self.explain(error));
            self.abort();
        }
    }

    /// Ends what is in progress: it would wait for ranks that are lost.
    pub(super) fn abort(&self) {
        self.parts().for_each(StreamExchange::abort);
    }

    /// Completes what is in progress, which other ranks need.
    pub(super) fn close(&self) {
        self.parts().for_each(StreamExchange::close);
    }

    /// The exchanges of all groups.
    fn parts(&self) -> impl Iterator<Item = &StreamExchange> {
        let hybrid = self.hybrid.iter().flat_map(|hybrid| [&hybrid.shard_group, &hybrid.copies]);
        hybrid.chain([&self.all])
    }
}

/// Memory of a device whose exchange may be in progress. A driver releases memory when the device is idle, which it never
/// is if it waits for a lost rank.
pub(super) struct ExchangedMemory {
    pub(super) memory: Box<dyn DeviceMemory>,
    pub(super) exchange: Arc<DeviceExchange>,
    /// Whether ranks exchange the memory itself.
    pub(super) is_registered: bool,
}

impl DeviceMemory for ExchangedMemory {
    fn address(&self) -> DeviceAddress {
        self.memory.address()
    }

    fn bytes(&self) -> usize {
        self.memory.bytes()
    }
}

impl Drop for ExchangedMemory {
    fn drop(&mut self) {
        self.exchange.finish();
        if self.is_registered {
            self.exchange.parts().for_each(|part| part.release(self.memory.address()));
        }
    }
}

/// Blocks of the norm in a range of a unit that begins with a block.
pub(super) fn blocks_of(range: &Range<usize>) -> Range<usize> {
    let start = range.start.div_ceil(NORM_BLOCK);
    start..start + range.len().div_ceil(NORM_BLOCK)
}

/// Comparison of the steps of all ranks, once a step: the devices do not compare what they exchange.
pub(super) struct StepAgreement {
    group: Group,
    plan: Plan,
    /// Whether the comparison of the step that is being submitted has begun.
    has_begun: bool,
    /// Those that nothing has waited for, in the order of the steps.
    checks: VecDeque<StepCheck>,
}

impl StepAgreement {
    /// Begins before the first step. Communicates.
    pub(super) fn new(group: &Group) -> Result<Self, EngineError> {
        let plan = Plan::agree(group, [0; 32], "the engines")?;
        Ok(Self { group: group.clone(), plan, has_begun: false, checks: VecDeque::new() })
    }

    /// Begins to compare the step that is being submitted, before the host waits for anything of it: the limit of the
    /// comparison, which names the ranks that are missing, passes before that of any exchange.
    pub(super) fn begin(&mut self) {
        if !self.has_begun {
            self.has_begun = true;
            self.plan.begin_step();
            self.checks.push_back(StepCheck::start(&self.group, &self.plan));
        }
    }

    /// The step was submitted.
    pub(super) fn end(&mut self) {
        self.begin();
        self.has_begun = false;
    }

    /// Waits for the comparison of the first step that nothing has waited for.
    pub(super) fn wait(&mut self) -> Result<(), EngineError> {
        Ok(self.checks.pop_front().map_or(Ok(()), StepCheck::wait)?)
    }
}
