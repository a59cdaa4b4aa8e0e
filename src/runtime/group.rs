//! Process group, the interface for users of the runtime.

use std::fmt;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use crate::runtime::across::{Across, short_bytes_max};
use crate::runtime::cells::Alarm;
use crate::runtime::contract::Note;
use crate::runtime::element::{Element, ReduceOrder};
use crate::runtime::engine::Engine;
use crate::runtime::error::{Cause, CollectiveError, Departure, Error, Loss, Operation, Result};
use crate::runtime::membership::{self, Links, Membership};
use crate::runtime::node::Roster;
use crate::runtime::runner::Runner;
use crate::runtime::schedule::Placement;
use crate::runtime::shm::{EAGER_BYTES, Segment, staging_bytes};
use crate::runtime::shm_window::{Arena, Buffer, Seat};
use crate::runtime::split::{Part, Wish};

/// Deadline of an operation unless the caller sets another: ten minutes, as torch has it.
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
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) roster: Arc<Roster>,
    local_rank: usize,
    restart_count: u32,
    arena: Arc<Arena>,
    segment: Arc<Segment>,
    pub(super) runner: Runner,
    /// Lease of the segment; dropped after the runner, which reads the segment.
    #[expect(dead_code, reason = "it is there to be dropped")]
    seat: Option<Seat>,
    /// Departure notice; dropped after the runner, when its last operations are complete.
    #[expect(dead_code, reason = "it is there to be dropped")]
    leaving: Option<Leaving>,
    links: Links,
    options: InitOptions,
    between_nodes: Option<BetweenNodes>,
    /// The group of which this one is a part. It owns the connections, so it must live as long.
    whole: Option<Group>,
}

/// Notice to the ranks of the node, given when it is dropped, that this rank takes part in no
/// further operation.
struct Leaving {
    segment: Arc<Segment>,
    local: usize,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.segment.depart(self.local, Departure::Left);
    }
}

/// How a group is made.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// Deadline of every operation. One that needs another has a group of its own
    /// ([`Group::split_with`]), or is started and waited for ([`Work::wait_for`](crate::runtime::Work::wait_for)).
    pub timeout: Duration,
    /// TCP streams between two ranks of different nodes, 1 to 16; where the two differ, the lesser.
    /// `None`: what `REMUDA_STREAMS` says, else 1 on loopback and 4 between machines, because
    /// networks and clouds bound what one stream may carry.
    pub streams: Option<NonZero<u8>>,
    /// Whether rounds of large all-reduces between nodes overlap, which all ranks must want. `None`:
    /// between machines; on loopback they would only be in each other's way.
    pub overlap: Option<bool>,
    /// In which order all-reduces combine; the same on all ranks.
    pub order: ReduceOrder,
}

/// Sizes, in bytes of a rank's numbers, at which operations of a group change their ways. They are the
/// same on every machine: results must not depend on a measurement, and the sizes at which one way
/// overtakes another lie near each other on the machines that were tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Up to so many, sums travel beside the flags and all ranks meet once; on one node only.
    pub eager_bytes: Option<usize>,
    /// Numbers outside of the group's memory ([`Group::alloc`]) are handled so many at a time.
    pub round_bytes: usize,
    /// Up to so many, every node folds everything after one exchange with each of the others; above,
    /// every rank folds a slice. `None` where one way serves all sizes.
    pub short_bytes: Option<usize>,
    /// How this rank talks to other nodes, if there are any.
    pub between_nodes: Option<BetweenNodes>,
}

/// How a rank talks to other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BetweenNodes {
    /// TCP streams of a connection, at most: as many as both sides want.
    pub streams: usize,
    /// Whether rounds of large all-reduces overlap.
    pub overlap: bool,
    /// In which order all-reduces combine.
    pub order: ReduceOrder,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self {
            timeout: TIMEOUT_DEFAULT,
            streams: None,
            overlap: None,
            order: ReduceOrder::Canonical,
        }
    }
}

impl Group {
    /// The group that the environment describes: that of `remuda run`, or, with
    /// `REMUDA_KEY_FILE RANK WORLD_SIZE MASTER_ADDR MASTER_PORT`, of anything else. The key file holds
    /// a secret of 16 bytes or more, the same for all ranks; they find each other through rank 0, which
    /// listens at the address.
    pub fn from_env() -> Result<Self> {
        Self::init(&InitOptions::default())
    }

    /// [`Self::from_env`] with options.
    pub fn init(options: &InitOptions) -> Result<Self> {
        let group = Self::assemble(Membership::from_env(options)?, options);
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
        let members = membership::simulate(ranks_of_nodes, options)?;
        Ok(members.into_iter().map(|member| Self::assemble(member, options)).collect())
    }

    /// Runs `worker` on every rank of a group of threads, and returns what each returned, in rank
    /// order. Where one fails, the group ends for all, and its error is returned; where one returns
    /// early, nobody waits for it.
    pub fn on_threads<V: Send>(
        ranks: usize,
        worker: impl Fn(&Self) -> Result<V> + Sync,
    ) -> Result<Vec<V>> {
        Self::on_threads_with(ranks, &InitOptions::default(), worker)
    }

    /// [`Self::on_threads`] with options.
    pub fn on_threads_with<V: Send>(
        ranks: usize,
        options: &InitOptions,
        worker: impl Fn(&Self) -> Result<V> + Sync,
    ) -> Result<Vec<V>> {
        let groups = Self::threads_with(ranks, options)?;
        std::thread::scope(|scope| {
            let worker = &worker;
            let spawn = |group: Self| scope.spawn(move || group.run_worker(worker));
            let threads: Vec<_> = groups.into_iter().map(spawn).collect();
            let joined: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
            joined.into_iter().map(|end| end.unwrap_or_else(|p| resume_unwind(p))).collect()
        })
    }

    fn run_worker<V>(&self, worker: &impl Fn(&Self) -> Result<V>) -> Result<V> {
        struct OnPanic<'a>(&'a Group);
        impl Drop for OnPanic<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    // The other ranks would wait for one that never arrives.
                    self.0.abort("a rank panicked");
                }
            }
        }
        let _guard = OnPanic(self);
        worker(self).inspect_err(|error| self.abort(&error.to_string()))
    }

    fn assemble(member: Membership, options: &InitOptions) -> Self {
        let Membership { roster, segment, across, local_rank, restart_count, links } = member;
        let between_nodes = between_nodes(across.as_ref(), options);
        let manner = (options.timeout, options.order);
        let engine = Engine::new(roster.clone(), segment.clone(), across, manner);
        let inner = Inner {
            arena: Arena::new(&segment, roster.local_rank()),
            leaving: Some(Leaving { segment: segment.clone(), local: roster.local_rank() }),
            roster,
            local_rank,
            restart_count,
            segment,
            runner: Runner::new(engine),
            seat: None,
            links,
            options: options.clone(),
            between_nodes,
            whole: None,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Tells the launcher something to draw; does nothing when there is none.
    pub fn note(&self, note: &Note) {
        match (&self.inner.whole, &self.inner.links.agent) {
            (Some(whole), _) => whole.note(note),
            (None, Some(agent)) => agent.note(note),
            (None, None) => {}
        }
    }

    /// Makes groups of ranks that name the same color; a rank without a color is in none. Ranks are
    /// numbered in the order of their keys, equal ones in the order of this group.
    ///
    /// Every rank of this group calls it. The new group has operations, deadlines and errors of its
    /// own: both can be used at once, and where the new one fails, this one goes on. Where this one
    /// fails or is aborted, so do all that were split from it. Buffers of either serve both.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group, ReduceOp};
    /// // Two rows of two; a row sums by itself, while the other may be anywhere.
    /// let results = Group::on_threads(4, |group| {
    ///     let row = group.split(group.rank() / 2, group.rank())?.expect("every rank has a row");
    ///     let mut sum = [group.rank() as i32];
    ///     row.all_reduce(&mut sum, ReduceOp::Sum)?;
    ///     let first = group.split((row.rank() == 0).then_some(0), 0)?;
    ///     Ok((sum[0], row.rank(), first.map(|group| group.world_size())))
    /// })?;
    /// assert_eq!(results, [(1, 0, Some(2)), (1, 1, None), (5, 0, Some(2)), (5, 1, None)]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn split(&self, color: impl Into<Option<usize>>, key: usize) -> Result<Option<Self>> {
        self.split_with(color, key, &self.inner.options)
    }

    /// [`Self::split`] with options of the new group; streams are as many as this one's.
    pub fn split_with(
        &self,
        color: impl Into<Option<usize>>,
        key: usize,
        options: &InitOptions,
    ) -> Result<Option<Self>> {
        let wish = Wish { color: color.into(), key };
        let made = self.inner.runner.run(|engine| engine.split(wish, &self.inner.arena));
        if let Err(Error::Collective(error)) = &made {
            self.report(error);
        }
        let Some(Part { roster, segment, across, seat }) = made? else { return Ok(None) };
        let between_nodes = between_nodes(across.as_ref(), options);
        let manner = (options.timeout, options.order);
        let engine = Engine::new(roster.clone(), segment.clone(), across, manner);
        let inner = Inner {
            roster,
            local_rank: self.inner.local_rank,
            restart_count: self.inner.restart_count,
            arena: self.inner.arena.clone(),
            segment,
            runner: Runner::new(engine),
            seat: Some(seat),
            // A rank that leaves a part has not left the whole group.
            leaving: None,
            links: Links::default(),
            options: options.clone(),
            between_nodes,
            whole: Some(self.clone()),
        };
        Ok(Some(Self { inner: Arc::new(inner) }))
    }

    /// Position of this worker in the group: `0..world_size`.
    pub fn rank(&self) -> usize {
        self.inner.roster.rank
    }

    /// Workers of the group.
    pub fn world_size(&self) -> usize {
        self.inner.roster.placement.world_size()
    }

    /// Where every rank of the group runs.
    pub fn placement(&self) -> &Placement {
        &self.inner.roster.placement
    }

    /// At which sizes operations change their ways.
    pub fn thresholds(&self) -> Thresholds {
        let nodes = self.placement().nodes();
        Thresholds {
            eager_bytes: (nodes == 1).then_some(EAGER_BYTES),
            round_bytes: staging_bytes(1 < nodes),
            short_bytes: short_bytes_max(nodes),
            between_nodes: self.inner.between_nodes,
        }
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

    /// Ends the group for everybody: operations under way fail on every rank with
    /// [`Cause::Aborted`].
    pub fn abort(&self, reason: &str) {
        let by = self.inner.roster.own_name();
        self.raise(Alarm { by, lost: None, reason: reason.to_owned() });
    }

    fn raise(&self, alarm: Alarm) {
        // The alarm comes first, so that an operation that holds the engine's lock ends and
        // releases it.
        self.inner.segment.raise_alarm(&alarm);
        self.inner.runner.interrupt(|engine| engine.abort(alarm));
    }

    /// Runs an operation after all started ones are complete.
    pub(super) fn blocking(
        &self,
        operation: impl FnOnce(&mut Engine) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        let outcome = self.inner.runner.run(operation);
        if let Err(error) = &outcome {
            self.report(error);
        }
        outcome
    }

    /// Fails if the group is known to have failed; does not wait for other ranks.
    pub(crate) fn check_alarm(&self, op: Operation) -> Result<(), CollectiveError> {
        let Some(cause) = self.alarm() else { return Ok(()) };
        let rank = self.inner.roster.own_name();
        let error = CollectiveError::before(op, rank, cause);
        self.report(&error);
        Err(error)
    }

    /// Why the group has failed, if it is known to have; does not wait for other ranks.
    pub(super) fn alarm(&self) -> Option<Cause> {
        self.inner.segment.alarm().map(|alarm| self.inner.roster.cause(alarm))
    }

    /// Time limit of an operation.
    #[cfg(feature = "nccl")]
    pub(super) fn timeout(&self) -> Duration {
        self.inner.options.timeout
    }

    /// Reports the worker that caused the error to the launcher, and to the groups of which this
    /// one is a part: a lost rank is lost for them too, and they can notify nodes that this group
    /// does not reach.
    pub(crate) fn report(&self, error: &CollectiveError) {
        if let Cause::Aborted { by, .. } = &error.cause
            && *by != error.rank
        {
            // The error of that rank is the cause; the error of this one is its consequence.
            self.note(&Note::PeerLost { rank: *by });
        }
        let Cause::PeerLost { rank, how, .. } = &error.cause else { return };
        self.note(&Note::PeerLost { rank: *rank });
        if *how == Departure::Gone {
            let lost = Some(Loss { rank: *rank, how: *how });
            let alarm = Alarm { by: error.rank, lost, reason: error.cause.to_string() };
            let mut whole = &self.inner.whole;
            while let Some(group) = whole {
                group.raise(alarm.clone());
                whole = &group.inner.whole;
            }
        }
    }
}

fn between_nodes(across: Option<&Across>, options: &InitOptions) -> Option<BetweenNodes> {
    let net = across?.net();
    let (streams, overlap) = (net.manner().streams.into(), net.overlaps());
    Some(BetweenNodes { streams, overlap, order: options.order })
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({} of {})", self.rank(), self.world_size())
    }
}
