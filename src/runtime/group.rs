//! Ranks that communicate, as their user sees them.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, ops::Range};

use crate::base::Rank;
use crate::runtime::contract::Note;
use crate::runtime::element::{Element, ReduceOp};
use crate::runtime::engine::Engine;
use crate::runtime::error::{Cause, CollectiveError, Operation, Result};
use crate::runtime::membership::{self, Links, Membership};
use crate::runtime::memory::{Finish, Memory, SharedMemory};
use crate::runtime::node::Roster;
use crate::runtime::shm::{Alarm, Segment, Spin};
use crate::runtime::shm_window::{Arena, Buffer, Window};

/// Deadline of an operation unless the caller sets another: torch's.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);

/// A set of ranks that communicate; every rank holds one of its own.
///
/// All ranks must call the same operations in the same order; a rank that calls something else gets,
/// and causes, [`Cause::Mismatch`]. After an error the group is of no use any more: every further
/// operation fails. Clones are the same group; its last drop ends it.
///
/// ```
/// use remuda::runtime::{Group, ReduceOp};
///
/// let sums = std::thread::scope(|scope| {
///     let workers = Group::threads(3)?.into_iter().map(|group| {
///         scope.spawn(move || {
///             let mut values = [group.rank() as f32, 1.0];
///             group.all_reduce(&mut values, ReduceOp::Sum).map(|()| values)
///         })
///     });
///     let workers: Vec<_> = workers.collect();
///     workers.into_iter().map(|worker| worker.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
///         .map_err(remuda::runtime::Error::from)
/// })?;
/// assert_eq!(sums, [[3.0, 3.0]; 3]);
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
    /// Before the engine and the links that it uses.
    comm: OnceLock<Comm>,
    core: Arc<Core>,
    links: Links,
}

/// What the communication thread shares with callers.
struct Core {
    engine: Mutex<Engine>,
    /// Operations that were started and are not over; blocking ones wait for them, so that all
    /// ranks see one order.
    pending: Mutex<usize>,
    idle: Condvar,
}

type Job = Box<dyn FnOnce(&mut Engine) + Send>;

/// The thread that runs started operations, in order.
struct Comm {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
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
        let core =
            Core { engine: Mutex::new(engine), pending: Mutex::new(0), idle: Condvar::new() };
        let inner = Inner {
            arena: Arena::new(&segment, roster.local_rank()),
            roster,
            local_rank,
            restart_count,
            segment,
            core: Arc::new(core),
            comm: OnceLock::new(),
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
        Work { pending, kept: Some(buffer), group: self.clone() }
    }

    /// Ends the group for everybody: operations under way fail on every rank with
    /// [`Cause::Aborted`].
    pub fn abort(&self, reason: &str) {
        let alarm = Alarm { by: Rank(self.rank() as u32), lost: None, reason: reason.to_owned() };
        // First the flag, so that an operation that holds the engine lets go of it.
        self.inner.segment.raise_alarm(&alarm);
        self.inner.core.lock().abort(alarm);
    }

    pub(crate) fn start_window<T: Element>(
        &self,
        window: Window<T>,
        op: ReduceOp,
        finish: Finish,
        watch: impl Fn(Moment) + Send + 'static,
    ) -> Pending {
        let (done, outcome) = mpsc::channel();
        self.submit(Box::new(move |engine| {
            watch(Moment::Started);
            let ended = engine.all_reduce(Memory::Shared(SharedMemory(window)), op, finish);
            if ended.is_ok() {
                watch(Moment::Done);
            }
            // The receiver may be gone: its owner dropped the handle and does not care.
            let _ = done.send(ended);
        }));
        Pending { outcome, ended: None }
    }

    fn submit(&self, job: Job) {
        let core = &self.inner.core;
        *core.pending.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let comm = self.inner.comm.get_or_init(|| Comm::start(core.clone()));
        let jobs = comm.jobs.as_ref().expect("jobs are closed only by the last drop");
        jobs.send(job).expect("the communication thread runs until jobs are closed");
    }

    /// Runs an operation once everything that was started is over.
    fn blocking(
        &self,
        operation: impl FnOnce(&mut Engine) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        self.inner.core.wait_idle();
        let outcome = operation(&mut self.inner.core.lock());
        if let Err(error) = &outcome {
            self.report(error);
        }
        outcome
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

impl Core {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_idle(&self) {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        // Every started operation has a deadline of its own, so this ends.
        drop(self.idle.wait_while(pending, |pending| 0 < *pending));
    }

    fn finish_one(&self) {
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.idle.notify_all();
    }
}

impl Comm {
    fn start(core: Arc<Core>) -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        let body = move || {
            for job in queue {
                let mut engine = core.lock();
                // The caller computes meanwhile: it should have the processor.
                let patient = std::mem::replace(&mut engine.spin, Spin::BRIEF);
                job(&mut engine);
                engine.spin = patient;
                drop(engine);
                core.finish_one();
            }
        };
        let thread = std::thread::Builder::new()
            .name("remuda-comm".to_owned())
            .spawn(body)
            .expect("a process that may not start one thread cannot train");
        Self { jobs: Some(jobs), thread: Some(thread) }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been seen by whoever waited for the operation.
            let _ = thread.join();
        }
    }
}

/// What the communication thread tells about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Started,
    Done,
}

/// The end of a started operation, to come.
pub(crate) struct Pending {
    outcome: Receiver<Result<(), CollectiveError>>,
    ended: Option<Result<(), CollectiveError>>,
}

impl Pending {
    pub(crate) fn wait(mut self) -> Result<(), CollectiveError> {
        match self.ended.take() {
            Some(ended) => ended,
            None => self.outcome.recv().expect("the communication thread answers every job"),
        }
    }

    /// Whether it has ended, after waiting for at most `limit`.
    fn poll(&mut self, limit: Duration) -> bool {
        if self.ended.is_none() {
            self.ended = match self.outcome.recv_timeout(limit) {
                Ok(outcome) => Some(outcome),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the communication thread answers every job")
                }
            };
        }
        self.ended.is_some()
    }
}

/// An operation under way, and the memory that it works on. Dropping it waits for the end, which
/// the operation's deadline bounds.
#[must_use = "dropping it waits"]
pub struct Work<B> {
    pending: Pending,
    kept: Option<B>,
    group: Group,
}

impl<B> Work<B> {
    /// Waits for the end and gives the memory back.
    pub fn wait(mut self) -> Result<B, CollectiveError> {
        self.pending.poll(Duration::MAX);
        let kept = self.kept.take().expect("memory is taken once, by the method that consumes");
        self.pending.ended.take().expect("waiting without limit ends with an outcome")?;
        Ok(kept)
    }

    /// Waits for at most `limit`; the handle itself comes back when it is not over by then.
    pub fn wait_for(mut self, limit: Duration) -> Result<Result<B, CollectiveError>, Self> {
        if self.pending.poll(limit) { Ok(self.wait()) } else { Err(self) }
    }

    /// Whether it is over, well or not.
    pub fn is_completed(&mut self) -> bool {
        self.pending.poll(Duration::ZERO)
    }

    /// Ends the group, and with it the operation.
    pub fn abort(self, reason: &str) {
        self.group.abort(reason);
    }
}

impl<B> Drop for Work<B> {
    fn drop(&mut self) {
        if self.kept.is_some() {
            self.pending.poll(Duration::MAX);
        }
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
