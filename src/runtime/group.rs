//! Ranks that communicate, as their user sees them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::base::Rank;
use crate::runtime::contract::Note;
use crate::runtime::element::{Element, ReduceOp};
use crate::runtime::engine::Engine;
use crate::runtime::error::{Cause, CollectiveError, Operation, Result};
use crate::runtime::membership::{self, Links, Membership};
use crate::runtime::memory::{Finish, Memory, SharedMemory};
use crate::runtime::node::Roster;
use crate::runtime::runner::{Moment, Pending, Runner};
use crate::runtime::shm::{Alarm, Segment};
use crate::runtime::shm_window::{Arena, Buffer, Window};
use crate::runtime::work::Work;

/// Deadline of an operation unless the caller sets another: torch's.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);

/// A set of ranks that communicate; every rank holds one of its own.
///
/// All ranks must call the same operations in the same order; a rank that calls something else gets,
/// and causes, [`Cause::Mismatch`]. After an error the group is of no use any more: every further
/// operation fails. Clones are the same group; its last drop ends it.
///
/// ```
/// use remuda::runtime::{Error, Group, ReduceOp};
///
/// let workers: Vec<_> = Group::threads(3)?
///     .into_iter()
///     .map(|group| {
///         std::thread::spawn(move || {
///             let mut values = [group.rank() as f32, 1.0];
///             group.all_reduce(&mut values, ReduceOp::Sum)?;
///             Ok::<_, Error>(values)
///         })
///     })
///     .collect();
/// for worker in workers {
///     assert_eq!(worker.join().expect("no panic")?, [3.0, 3.0]);
/// }
/// # Ok::<(), remuda::runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Group {
    inner: Arc<Inner>,
}

struct Inner {
    roster: Arc<Roster>,
    local_rank: usize,
    restart_count: u32,
    arena: Arc<Arena>,
    segment: Arc<Segment>,
    runner: Runner,
    links: Links,
}

/// How a group is made.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// Deadline of every operation.
    pub timeout: Duration,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self { timeout: TIMEOUT_DEFAULT }
    }
}

impl Group {
    /// The group that the environment describes: that of `remuda run`, or, with
    /// `REMUDA_KEY_FILE RANK WORLD_SIZE MASTER_ADDR MASTER_PORT`, of anything else.
    pub fn from_env() -> Result<Self> {
        Self::init(&InitOptions::default())
    }

    /// [`Self::from_env`] with options.
    pub fn init(options: &InitOptions) -> Result<Self> {
        let group = Self::assemble(Membership::from_env(options.timeout)?, options);
        group.note(&Note::Ready);
        Ok(group)
    }

    /// A group of one: every operation is over at once.
    pub fn single() -> Result<Self> {
        let mut groups = Self::threads(1)?;
        Ok(groups.pop().expect("one rank was asked for"))
    }

    /// A group for `ranks` threads of this process, in rank order; move one into each.
    pub fn threads(ranks: usize) -> Result<Vec<Self>> {
        Self::threads_with(ranks, &InitOptions::default())
    }

    /// [`Self::threads`] with options.
    pub fn threads_with(ranks: usize, options: &InitOptions) -> Result<Vec<Self>> {
        let members = membership::threads(ranks)?;
        Ok(members.into_iter().map(|member| Self::assemble(member, options)).collect())
    }

    /// A group of threads on pretended nodes: `ranks_of_nodes[n]` ranks share memory, ranks of
    /// different nodes talk over TCP on loopback. For tests of what a cluster would do.
    pub fn threads_on(ranks_of_nodes: &[usize]) -> Result<Vec<Self>> {
        Self::threads_on_with(ranks_of_nodes, &InitOptions::default())
    }

    /// [`Self::threads_on`] with options.
    pub fn threads_on_with(ranks_of_nodes: &[usize], options: &InitOptions) -> Result<Vec<Self>> {
        let members = membership::simulate(ranks_of_nodes, options.timeout)?;
        Ok(members.into_iter().map(|member| Self::assemble(member, options)).collect())
    }

    fn assemble(member: Membership, options: &InitOptions) -> Self {
        let Membership { roster, segment, across, local_rank, restart_count, links } = member;
        let engine = Engine::new(roster.clone(), segment.clone(), across, options.timeout);
        let inner = Inner {
            arena: Arena::new(&segment, roster.local_rank()),
            roster,
            local_rank,
            restart_count,
            segment,
            runner: Runner::new(engine),
            links,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Tells the launcher something to draw; does nothing when there is none.
    pub fn note(&self, note: &Note) {
        if let Some(agent) = &self.inner.links.agent {
            agent.note(note);
        }
    }

    /// Position of this worker in the job: `0..world_size`.
    pub fn rank(&self) -> usize {
        self.inner.roster.rank
    }

    /// Workers of the job.
    pub fn world_size(&self) -> usize {
        self.inner.roster.placement.world_size()
    }

    /// Position of this worker on its node.
    pub fn local_rank(&self) -> usize {
        self.inner.local_rank
    }

    /// How often the job was started again.
    pub fn restart_count(&self) -> u32 {
        self.inner.restart_count
    }

    /// `len` zeros in memory that operations need not copy inside the node.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        self.inner.arena.alloc(len)
    }

    /// Replaces everybody's numbers by their reduction over all ranks.
    ///
    /// `data` is a slice, a vector, an array, or a [`Buffer`], which is not copied. Floats are
    /// combined in the order of the canonical tree: the bits of the result do not depend on which
    /// rank runs where.
    pub fn all_reduce<R: Region + ?Sized>(
        &self,
        data: &mut R,
        op: ReduceOp,
    ) -> Result<(), CollectiveError> {
        self.blocking(|engine| engine.all_reduce(data.memory(), op, Finish::Keep))
    }

    /// Replaces everybody's numbers by those of rank `root`.
    pub fn broadcast<R: Region + ?Sized>(
        &self,
        data: &mut R,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.check_rank(Operation::Broadcast, root)?;
        self.blocking(|engine| engine.broadcast(data.memory(), root))
    }

    /// Fills `all` with everybody's `ours`, in rank order; it is `world_size` times as long.
    pub fn all_gather<T: Element>(&self, ours: &[T], all: &mut [T]) -> Result<(), CollectiveError> {
        self.check_parts(Operation::AllGather, all.len(), ours.len())?;
        self.blocking(|engine| engine.all_gather(ours, all))
    }

    /// Fills `ours` with part `rank` of the reduction of everybody's `all`, which is `world_size`
    /// times as long.
    pub fn reduce_scatter<T: Element>(
        &self,
        all: &[T],
        ours: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CollectiveError> {
        self.check_parts(Operation::ReduceScatter, all.len(), ours.len())?;
        self.blocking(|engine| engine.reduce_scatter(all, ours, op))
    }

    /// Returns when every rank has called it.
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        self.blocking(Engine::barrier)
    }

    /// Gives `values` to rank `to`, which calls [`Self::recv`]; returns when it has them. Two ranks
    /// that both send first wait for each other until their deadlines.
    pub fn send<T: Element>(&self, values: &[T], to: usize) -> Result<(), CollectiveError> {
        self.check_peer(Operation::Send, to)?;
        self.blocking(|engine| engine.send(values, to))
    }

    /// Takes `values` from rank `from`, which calls [`Self::send`] with as many.
    pub fn recv<T: Element>(&self, values: &mut [T], from: usize) -> Result<(), CollectiveError> {
        self.check_peer(Operation::Recv, from)?;
        self.blocking(|engine| engine.recv(values, from))
    }

    /// Starts an [`Self::all_reduce`] of a range of a buffer and returns at once. The handle owns
    /// the buffer until the operation is over. Started operations run in the order of their start.
    pub fn start_all_reduce<T: Element>(
        &self,
        buffer: Buffer<T>,
        range: Range<usize>,
        op: ReduceOp,
    ) -> Work<Buffer<T>> {
        let window = buffer.window().part(&range);
        let pending = self.start_window(window, op, Finish::Keep, |_| {});
        Work::new(pending, buffer, self.clone())
    }

    /// Ends the group for everybody: operations under way fail on every rank with
    /// [`Cause::Aborted`].
    pub fn abort(&self, reason: &str) {
        let alarm = Alarm { by: Rank(self.rank() as u32), lost: None, reason: reason.to_owned() };
        // First the flag, so that an operation that holds the engine lets go of it.
        self.inner.segment.raise_alarm(&alarm);
        self.inner.runner.interrupt(|engine| engine.abort(alarm));
    }

    pub(crate) fn start_window<T: Element>(
        &self,
        window: Window<T>,
        op: ReduceOp,
        finish: Finish,
        watch: impl Fn(Moment) + Send + 'static,
    ) -> Pending {
        let memory = Memory::Shared(SharedMemory(window));
        let operation = move |engine: &mut Engine| engine.all_reduce(memory, op, finish);
        self.inner.runner.start(operation, watch).unwrap_or_else(|error| {
            let reason = format!("cannot start the thread that communicates: {error}");
            self.abort(&reason);
            let (op, rank) = (Operation::AllReduce, Rank(self.rank() as u32));
            let cause = Cause::System(reason);
            Pending::failed(CollectiveError { op, seq: 0, bytes: 0, rank, cause })
        })
    }

    /// Runs an operation once everything that was started is over.
    fn blocking(
        &self,
        operation: impl FnOnce(&mut Engine) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        let outcome = self.inner.runner.run(operation);
        if let Err(error) = &outcome {
            self.report(error);
        }
        outcome
    }

    /// Fails when the group is known to be of no use any more, without waiting for anybody.
    pub(crate) fn check_alarm(&self, op: Operation) -> Result<(), CollectiveError> {
        let Some(alarm) = self.inner.segment.alarm() else { return Ok(()) };
        let rank = Rank(self.rank() as u32);
        let cause = self.inner.roster.cause(alarm);
        Err(CollectiveError { op, seq: 0, bytes: 0, rank, cause })
    }

    /// Points the launcher to the worker that is the cause.
    pub(crate) fn report(&self, error: &CollectiveError) {
        if let Cause::PeerLost { rank, .. } = &error.cause {
            self.note(&Note::PeerLost { rank: *rank });
        }
    }

    fn check_rank(&self, op: Operation, rank: usize) -> Result<(), CollectiveError> {
        if rank < self.world_size() {
            Ok(())
        } else {
            let world = self.world_size();
            Err(self.bad_argument(op, format!("there is no rank {rank} among {world}")))
        }
    }

    fn check_peer(&self, op: Operation, rank: usize) -> Result<(), CollectiveError> {
        self.check_rank(op, rank)?;
        if rank == self.rank() {
            Err(self.bad_argument(op, "a rank sends nothing to itself".to_owned()))
        } else {
            Ok(())
        }
    }

    fn check_parts(&self, op: Operation, all: usize, ours: usize) -> Result<(), CollectiveError> {
        let world = self.world_size();
        if ours.checked_mul(world) == Some(all) {
            Ok(())
        } else {
            Err(self
                .bad_argument(op, format!("{all} elements are not {world} times {ours} elements")))
        }
    }

    fn bad_argument(&self, op: Operation, problem: String) -> CollectiveError {
        let rank = Rank(self.rank() as u32);
        CollectiveError { op, seq: 0, bytes: 0, rank, cause: Cause::Argument(problem) }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({} of {})", self.rank(), self.world_size())
    }
}

/// Memory that an operation can replace the contents of.
pub trait Region {
    /// What it consists of.
    type Element: Element;

    #[doc(hidden)]
    fn memory(&mut self) -> Memory<'_, Self::Element>;
}

impl<T: Element> Region for [T] {
    type Element = T;

    fn memory(&mut self) -> Memory<'_, T> {
        Memory::Slice(self)
    }
}

impl<T: Element, const N: usize> Region for [T; N] {
    type Element = T;

    fn memory(&mut self) -> Memory<'_, T> {
        Memory::Slice(self)
    }
}

impl<T: Element> Region for Vec<T> {
    type Element = T;

    fn memory(&mut self) -> Memory<'_, T> {
        Memory::Slice(self)
    }
}

impl<T: Element> Region for Buffer<T> {
    type Element = T;

    fn memory(&mut self) -> Memory<'_, T> {
        Memory::Shared(SharedMemory(self.window()))
    }
}
