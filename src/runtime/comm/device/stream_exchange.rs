//! [`StreamExchange`]: operations of a group on memory of its devices, in a stream of each [`Device`].
//!
//! The host submits an operation and waits for nothing but NCCL's own submission. Sums have the bits of the canonical
//! [tree](crate::runtime::schedule::tree): ranks exchange slices, fold them by a kernel, and exchange the results. Nodes
//! with equally many ranks exchange their sums.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::{clock, lock};
use crate::cuda::device::{
    Device, DeviceAddress, DeviceCommunicator, DeviceError, DeviceMemory, KernelArgument,
    PeerMemory, SourceKernel, StreamId,
};
use crate::cuda::kernels::KernelLaunch;
use crate::cuda::nccl::{PeerSlice, UniqueId, Version};
use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::device::fold_kernel::FoldKernel;
use crate::runtime::comm::device::nccl_id::{AbsentId, share_created_id};
use crate::runtime::comm::device::select::{
    Choice, DeviceBackend, OFFER_WORDS, Offer, choose_backend,
};
use crate::runtime::comm::device::wait::pause;
use crate::runtime::comm::group::Group;
use crate::runtime::dtype::element::{Dtype, ReduceOp, ReduceOrder};
use crate::runtime::error::{Error, Result};
use crate::runtime::schedule::Placement;
use crate::runtime::schedule::device_slices::{Goal, ReductionRound, plan_rounds};
use crate::runtime::schedule::node_sums::{EvenNodes, NodeSumStep};

const FLOAT: usize = size_of::<f32>();
/// Most numbers of the memory in which slices are folded.
const SCRATCH_NUMBERS_MAX: usize = (128 << 20) / FLOAT;
/// Time by which the limit of an operation of the host, which names the ranks that are missing, passes before that of a
/// device.
const HOST_FIRST: Duration = Duration::from_secs(5);
/// Threads of a block of a fold, and most blocks; a thread has several packs if there are more.
const FOLD_THREADS: u32 = 256;
const FOLD_BLOCKS_MAX: u64 = 4096;

/// What is done with the memory of all ranks of a group, in the order of submission.
pub(crate) struct StreamExchange {
    group: Group,
    device: Arc<dyn Device>,
    stream: StreamId,
    /// `None` once it was closed.
    communicator: Mutex<Option<Box<dyn DeviceCommunicator>>>,
    order: Order,
    /// Kernels of the canonical order, by the number of ranks whose data they fold.
    folds: Vec<(usize, SourceKernel)>,
    /// Memory in which slices are folded; operations of the stream use it one after the other.
    scratch: Option<Arc<dyn DeviceMemory>>,
}

/// Order of the additions, and how ranks meet for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// That of NCCL.
    Any,
    /// The canonical one; every rank exchanges slices with every other one.
    Canonical,
    /// The canonical one; nodes exchange their sums.
    OverNodes(EvenNodes),
}

impl Order {
    fn of(order: ReduceOrder, group: &Group) -> Self {
        match (order, EvenNodes::of(&group.inner.roster.placement)) {
            (ReduceOrder::Any, _) => Self::Any,
            (ReduceOrder::Canonical, None) => Self::Canonical,
            (ReduceOrder::Canonical, Some(nodes)) => Self::OverNodes(nodes),
        }
    }

    /// The kernels that fold.
    fn folds(self, world: usize) -> Vec<(usize, SourceKernel)> {
        let parts = match self {
            Self::Any => vec![],
            Self::Canonical => vec![world],
            Self::OverNodes(EvenNodes { nodes, each }) => vec![nodes, each],
        };
        let kernels = parts.into_iter().map(|parts| {
            let fold = fold_of(parts);
            (parts, SourceKernel { name: fold.name(), source: fold.source() })
        });
        kernels.collect()
    }
}

/// A reduction of numbers that begin at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduced {
    /// Every rank gets all sums.
    All {
        /// Numbers.
        len: usize,
    },
    /// Every rank gets the part with its number, in place.
    Parts {
        /// Numbers of a part.
        len: usize,
    },
}

impl Reduced {
    fn goal_and_len(self) -> (Goal, usize) {
        match self {
            Self::All { len } => (Goal::All, len),
            Self::Parts { len } => (Goal::Parts, len),
        }
    }

    /// Rounds in the canonical order, on a rank.
    fn rounds(self, ranks: (usize, usize)) -> impl Iterator<Item = ReductionRound> {
        let (goal, len) = self.goal_and_len();
        plan_rounds(goal, ranks, len, SCRATCH_NUMBERS_MAX)
    }

    /// Steps over nodes, on a rank.
    fn steps(self, rank: usize, nodes: EvenNodes) -> Box<dyn Iterator<Item = NodeSumStep>> {
        match self {
            Self::All { len } => Box::new(nodes.plan_all(rank, len, SCRATCH_NUMBERS_MAX)),
            Self::Parts { len } => Box::new(nodes.plan_parts(rank, len, SCRATCH_NUMBERS_MAX)),
        }
    }

    /// Numbers of the memory in which any rank folds slices, on one node or on nodes with equally many ranks.
    pub(crate) fn scratch_len(self, placement: &Placement) -> usize {
        let (world, nodes) = (placement.world_size(), EvenNodes::of(placement));
        let of_rank = |rank: usize| -> usize {
            match nodes {
                None => self.rounds((rank, world)).map(|round| round.scratch()).max().unwrap_or(0),
                Some(nodes) => {
                    self.steps(rank, nodes).map(|step| step.scratch()).max().unwrap_or(0)
                }
            }
        };
        (0..world).map(of_rank).max().unwrap_or(0)
    }
}

/// Returns the version of NCCL with which the devices of all ranks can be connected, or why they cannot; all ranks call
/// it.
///
/// # Errors
/// If the group fails.
pub(crate) fn find_connection(
    group: &Group,
    device: &dyn Device,
) -> Result<std::result::Result<Version, String>> {
    let offer = device.communicator_offer();
    let offer = Offer {
        requested: DeviceBackend::Auto,
        uuid: offer.map_or(0, |offer| offer.uuid),
        nccl: offer.map_or(0, |offer| offer.version.code()),
        may_share: offer.is_some_and(|offer| offer.may_share),
    };
    let mut all = vec![0i64; OFFER_WORDS * group.world_size()];
    group.all_gather(&offer.encode(), &mut all)?;
    let all = all.as_chunks::<OFFER_WORDS>().0.iter();
    let offers: Vec<Offer> = all.map(|words| Offer::decode(*words)).collect();
    let choice = choose_backend(&offers, |rank| group.inner.roster.job_rank(rank));
    Ok(match choice {
        Ok(Choice::Nccl) => Ok(Version::from_code(offer.nccl)),
        Ok(Choice::Staged(obstacle)) => {
            Err(obstacle.map_or_else(String::new, |obstacle| obstacle.to_string()))
        }
        Err(refusal) => Err(refusal.to_string()),
    })
}

impl StreamExchange {
    /// Connects the devices of the ranks of a group, for operations in `stream`; all of them call it.
    ///
    /// # Errors
    /// If the device of a rank cannot be connected.
    pub(crate) fn connect(
        group: &Group,
        (device, stream): (&Arc<dyn Device>, StreamId),
        order: ReduceOrder,
        scratch: Option<Arc<dyn DeviceMemory>>,
    ) -> Result<Self> {
        let ranks = (group.rank(), group.world_size());
        let order = Order::of(order, group);
        let folds = order.folds(ranks.1);
        let connected = share_id_of(group, &**device)?.and_then(|id| {
            folds.iter().try_for_each(|(_, fold)| device.load_source(fold))?;
            device.connect(stream, id, ranks)
        });
        let connected = connected.map_err(|error| Error::Device(error.to_string()));
        // A rank that cannot be connected tells the others, which would wait for it.
        let connected = connected.inspect_err(|error| group.abort(&error.to_string()))?;
        let communicator = Mutex::new(Some(connected));
        let (own_group, device) = (group.clone(), device.clone());
        let exchange =
            Self { group: own_group, device, stream, communicator, order, folds, scratch };
        let connected = exchange.submit(|_| Ok(())).map_err(|error| error.to_string());
        connected.inspect_err(|error| group.abort(error)).map_err(Error::Device)?;
        Ok(exchange)
    }

    /// The ranks.
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    fn ranks(&self) -> (usize, usize) {
        (self.group.rank(), self.group.world_size())
    }

    /// Submits a sum over all ranks, of numbers that begin at `at`.
    ///
    /// # Errors
    /// If the device or the library fails, or a rank is lost, as in the other methods.
    pub(crate) fn reduce(&self, at: DeviceAddress, what: Reduced) -> Result<(), DeviceError> {
        let (rank, _) = self.ranks();
        match (self.order, what) {
            (Order::Any, Reduced::All { len }) => {
                self.submit(|communicator| communicator.all_reduce(at, len))
            }
            (Order::Any, Reduced::Parts { len }) => {
                self.submit(|communicator| communicator.reduce_scatter(at, len))
            }
            (Order::Canonical, _) => {
                let own = match what {
                    Reduced::All { .. } => at,
                    Reduced::Parts { len } => at.offset(rank * len * FLOAT),
                };
                what.rounds(self.ranks()).try_for_each(|round| self.run_round(&round, [at, own]))
            }
            (Order::OverNodes(nodes), _) => {
                what.steps(rank, nodes).try_for_each(|step| self.run_step(&step, at))
            }
        }
    }

    /// Submits the collection of `bytes` bytes of every rank, in rank order. `from` may be the part of this rank in `to`.
    pub(crate) fn all_gather(
        &self,
        from: DeviceAddress,
        to: DeviceAddress,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.submit(|communicator| communicator.all_gather(from, to, bytes))
    }

    /// Submits pieces to peers and from peers, all at once.
    pub(crate) fn exchange(
        &self,
        sends: &[PeerMemory],
        recvs: &[PeerMemory],
    ) -> Result<(), DeviceError> {
        if sends.is_empty() && recvs.is_empty() {
            return Ok(());
        }
        self.submit(|communicator| communicator.exchange(sends, recvs))
    }

    /// Lets the library prepare memory of [`Device::alloc_exchanged`] for operations.
    pub(crate) fn register(&self, memory: &dyn DeviceMemory) -> Result<(), DeviceError> {
        self.submit(|communicator| communicator.register(memory.address(), memory.bytes()))
    }

    /// Ends the preparation of memory that begins at an address.
    pub(crate) fn release(&self, at: DeviceAddress) {
        if let Some(communicator) = lock(&self.communicator).as_mut() {
            communicator.release(at);
        }
    }

    /// Waits on the host until `is_done`, a rank is lost, or the timeout of the group has passed.
    pub(crate) fn wait_until(
        &self,
        is_done: &mut dyn FnMut() -> Result<bool, DeviceError>,
    ) -> Result<(), DeviceError> {
        let until = clock::after(clock::now(), self.group.timeout() + HOST_FIRST);
        let mut polls = 0u32;
        while !is_done()? {
            if let Some(loss) = self.loss() {
                return Err(loss);
            }
            if until <= clock::now() {
                return Err(failed("it did not end within the timeout of the group".to_owned()));
            }
            polls += 1;
            pause(polls);
        }
        Ok(())
    }

    /// Why a rank is lost, if one is.
    pub(crate) fn loss(&self) -> Option<DeviceError> {
        self.group.abort_cause().map(|cause| failed(cause.to_string()))
    }

    /// What the library says about operations that do not end, to follow a message; nothing if a rank is lost, which
    /// explains them.
    pub(crate) fn status(&self) -> String {
        if let Some(Cause::PeerLost { .. }) = self.group.abort_cause() {
            return String::new();
        }
        let communicator = lock(&self.communicator);
        communicator.as_ref().map_or_else(String::new, |communicator| communicator.status())
    }

    /// Fails if an operation has failed on any rank.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        self.submit(|_| Ok(()))
    }

    /// Ends the operations in progress, which would wait for ranks that are lost.
    pub(crate) fn abort(&self) {
        if let Some(mut communicator) = lock(&self.communicator).take() {
            communicator.abort();
        }
    }

    /// Completes the operations in progress, unless a rank is lost, and releases what connects the ranks.
    pub(crate) fn close(&self) {
        if self.group.abort_cause().is_some() {
            return self.abort();
        }
        let communicator = lock(&self.communicator).take();
        drop(communicator);
    }

    /// Submits an operation, and waits until it is in the stream: the library may have to connect ranks first.
    fn submit(
        &self,
        operation: impl FnOnce(&mut dyn DeviceCommunicator) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let mut communicator = lock(&self.communicator);
        let Some(communicator) = communicator.as_mut() else {
            return Err(failed("an earlier one has failed".to_owned()));
        };
        operation(&mut **communicator)?;
        self.wait_until(&mut || communicator.is_submitted())
    }

    /// Submits a step of a reduction in place over nodes.
    fn run_step(&self, step: &NodeSumStep, at: DeviceAddress) -> Result<(), DeviceError> {
        match step {
            NodeSumStep::Fold(round) => self.run_round(round, [at, at]),
            NodeSumStep::Share { sends, recvs } => self.move_slices((at, sends), (at, recvs)),
        }
    }

    /// Submits a round: slices of `input` are collected and folded, and the results go to the output of the ranks that
    /// need them.
    fn run_round(
        &self,
        round: &ReductionRound,
        [input, output]: [DeviceAddress; 2],
    ) -> Result<(), DeviceError> {
        let scratch = self.scratch.as_ref().expect("memory for folds was provided").address();
        self.move_slices((input, &round.sends), (scratch, &round.recvs))?;
        if 0 < round.len {
            self.fold(round, scratch)?;
        }
        let (results, places) =
            ((scratch, &round.result_sends[..]), (output, &round.result_recvs[..]));
        if round.keeps_result {
            return self.copy_own_slices(results, places);
        }
        self.move_slices(results, places)
    }

    /// Submits the fold of the slices in the memory for them.
    fn fold(&self, round: &ReductionRound, scratch: DeviceAddress) -> Result<(), DeviceError> {
        let packs = round.len.div_ceil(fold_of(round.parts).pack()) as u64;
        let blocks = packs.div_ceil(u64::from(FOLD_THREADS)).min(FOLD_BLOCKS_MAX) as u32;
        let size = KernelLaunch { grid: [blocks, 1, 1], threads: FOLD_THREADS, shared_bytes: 0 };
        let numbers = [round.stride as u64, packs].map(KernelArgument::U64);
        let arguments = [&[KernelArgument::Address(scratch)], &numbers[..]].concat();
        let kernel = self.folds.iter().find(|(parts, _)| *parts == round.parts);
        let (_, kernel) = kernel.expect("the kernels of the order were loaded");
        self.device.launch_source(self.stream, kernel, size, &arguments)
    }

    /// Submits ranges of numbers to ranks and from ranks. This rank copies what it sends itself. All ranks submit it, also
    /// those with nothing to send or receive.
    fn move_slices(
        &self,
        (from, sends): (DeviceAddress, &[PeerSlice]),
        (to, recvs): (DeviceAddress, &[PeerSlice]),
    ) -> Result<(), DeviceError> {
        self.copy_own_slices((from, sends), (to, recvs))?;
        let (rank, _) = self.ranks();
        let others = |at: DeviceAddress, slices: &[PeerSlice]| -> Vec<PeerMemory> {
            let others = slices.iter().filter(|(peer, _)| *peer != rank);
            let memory = others.map(|(peer, range)| PeerMemory {
                peer: *peer,
                at: at.offset(range.start * FLOAT),
                bytes: range.len() * FLOAT,
            });
            memory.collect()
        };
        let (sends, recvs) = (others(from, sends), others(to, recvs));
        self.submit(|communicator| communicator.exchange(&sends, &recvs))
    }

    /// Submits the copies of what this rank sends itself.
    fn copy_own_slices(
        &self,
        (from, sends): (DeviceAddress, &[PeerSlice]),
        (to, recvs): (DeviceAddress, &[PeerSlice]),
    ) -> Result<(), DeviceError> {
        let (rank, _) = self.ranks();
        let own = |slices: &'_ [PeerSlice]| {
            let own = slices.iter().filter(|(peer, _)| *peer == rank);
            own.map(|(_, range)| range.clone()).collect::<Vec<_>>()
        };
        own(sends).into_iter().zip(own(recvs)).try_for_each(|(sent, received)| {
            let (from, to) = (from.offset(sent.start * FLOAT), to.offset(received.start * FLOAT));
            self.device.copy(self.stream, from, to, sent.len() * FLOAT)
        })
    }
}

/// The kernel that folds the data of so many ranks.
fn fold_of(parts: usize) -> FoldKernel {
    FoldKernel { dtype: Dtype::F32, op: ReduceOp::Sum, parts }
}

fn failed(problem: String) -> DeviceError {
    DeviceError::Exchange { problem }
}

/// Creates the identifier of a communicator on rank 0, for all ranks. The outer error is the group's.
fn share_id_of(group: &Group, device: &dyn Device) -> Result<Result<UniqueId, DeviceError>> {
    let shared = share_created_id(group, || device.create_communicator_id())?;
    Ok(shared.map_err(|absent| match absent {
        AbsentId::NotCreated(error) => error,
        AbsentId::NotSent(first) => failed(format!("rank {first} cannot create it")),
    }))
}
