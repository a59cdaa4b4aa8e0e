//! [`Group`]: the set of ranks that communicate, and its options.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use crate::base::lock;
use crate::os::process::peak_memory::{ProcessPeak, peak_memory};
use crate::runtime::comm::bootstrap::join::{self, Links, Membership};
use crate::runtime::comm::bootstrap::meet::{KeyValue, Meeting};
use crate::runtime::comm::bootstrap::members::Meetings;
use crate::runtime::comm::bootstrap::split::SplitRequest;
use crate::runtime::comm::bootstrap::subgroup::{Founder, Subgroup};
use crate::runtime::comm::core::abort::AbortRecord;
use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::error::Departure;
use crate::runtime::comm::core::operation::Operation;
use crate::runtime::comm::core::options::{BetweenNodes, InitOptions, Thresholds};
use crate::runtime::comm::core::roster::RankRoster;
use crate::runtime::comm::core::traffic::{Traffic, TrafficCounters};
use crate::runtime::comm::executor::Executor;
use crate::runtime::comm::host::agent_link::AgentLink;
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::inter_node::InterNode;
use crate::runtime::comm::host::select::short_bytes_max;
use crate::runtime::comm::shm::arena::{Arena, SegmentLease};
use crate::runtime::comm::shm::buffer::Buffer;
use crate::runtime::comm::shm::segment::{EAGER_BYTES, Segment, staging_bytes};
use crate::runtime::comm::store::shared::ABORT_KEY;
use crate::runtime::contract::Note;
use crate::runtime::dtype::element::Element;
use crate::runtime::error::{Error, Result};
use crate::runtime::schedule::Placement;

/// Reason with which a rank that panicked aborts its group.
pub(crate) const PANICKED: &str = "it panicked";

/// A set of ranks that communicate; every rank holds its own handle.
///
/// All ranks must call the same operations in the same order. If a rank calls a different operation, all
/// ranks get [`Cause::Mismatch`]. A rank that did not notice a failure itself gets [`Cause::FailedFirst`], with the
/// failure of the first rank that did. After an error every further operation of the group fails. Clones are
/// handles to the same group, which ends when the last one is dropped.
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
    pub(crate) inner: Arc<GroupInner>,
}

pub(crate) struct GroupInner {
    pub(crate) roster: Arc<RankRoster>,
    local_rank: usize,
    restart_count: u32,
    segment: Arc<Segment>,
    pub(crate) executor: Executor,
    /// Lease of the segment; dropped after the executor, which reads the segment.
    #[expect(dead_code, reason = "its drop ends the lease")]
    lease: Option<SegmentLease>,
    /// Departure notice; dropped after the executor, when its last operations are complete.
    #[expect(dead_code, reason = "its drop sends the notice")]
    departure_notice: Option<DepartureNotice>,
    /// Makes subgroups while the backend runs operations; a client of the store, which `links` may serve.
    founder: Founder,
    meetings: Meetings,
    #[expect(dead_code, reason = "its drop ends the connections")]
    links: Links,
    agent: Option<Arc<AgentLink>>,
    options: InitOptions,
    /// Time limit of operations, at first that of the options.
    timeout: Mutex<Duration>,
    between_nodes: Option<BetweenNodes>,
    pub(crate) traffic: Arc<TrafficCounters>,
    /// Group from which this one was split. It owns the connections, so it must live as long.
    parent: Option<Group>,
}

/// Guard whose drop notifies the ranks of the node that this rank takes part in no further operation.
struct DepartureNotice {
    segment: Arc<Segment>,
    local: usize,
}

impl Drop for DepartureNotice {
    fn drop(&mut self) {
        self.segment.set_departure(self.local, Departure::Left);
    }
}

/// The most memory that a worker has used, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeakMemory {
    /// The pages of its process alone, and its part of the memory that the ranks of the node share.
    pub own: u64,
    /// All pages that it has mapped and used: also the parts of other ranks, and files, such as its program.
    pub resident: u64,
}

impl Group {
    /// Joins the group that the environment describes: the one of `remuda run`, or of any other launcher
    /// that sets `REMUDA_KEY_FILE RANK WORLD_SIZE MASTER_ADDR MASTER_PORT`. The key file contains a secret
    /// of at least 16 bytes, the same for all ranks. Rank 0 listens at the address, and the other ranks
    /// connect to it.
    pub fn from_env() -> Result<Self> {
        Self::init(&InitOptions::default())
    }

    /// Joins the group like [`Self::from_env`], with options.
    pub fn init(options: &InitOptions) -> Result<Self> {
        let group = Self::from_membership(Membership::from_env(options)?, options);
        group.note(&Note::Ready);
        Ok(group)
    }

    /// Returns whether remuda has started this process as a worker, which [`Self::init`] lets join its job. A process
    /// that a worker starts has the same variables, but is none: it has not inherited the worker's descriptors.
    pub fn is_worker() -> bool {
        Membership::is_of_worker()
    }

    /// Joins a group of ranks that another launcher has started, through a key-value store of their program, which
    /// no other group has used. Ranks of one machine find each other by its boot identifier, never by its name, and
    /// share memory; other hosts reach rank 0 at `address`, a name or an IP address.
    ///
    /// Programs that can read the store can join the group. Ranks of one node notice the end of its first rank, and
    /// it notices theirs.
    pub fn meet(
        store: &dyn KeyValue,
        address: &str,
        rank: usize,
        world_size: usize,
        options: &InitOptions,
    ) -> Result<Self> {
        let member = Meeting::new(store, address, rank, world_size).join(options)?;
        Ok(Self::from_membership(member, options))
    }

    /// Returns a group of one rank, whose operations return immediately.
    pub fn single() -> Result<Self> {
        let mut groups = Self::threads(1)?;
        Ok(groups.pop().expect("a group of one rank has one handle"))
    }

    /// Returns the handles of a group of `ranks` threads of this process, in rank order; move one into each
    /// thread.
    pub fn threads(ranks: usize) -> Result<Vec<Self>> {
        Self::threads_with(ranks, &InitOptions::default())
    }

    /// [`Self::threads`] with options.
    pub fn threads_with(ranks: usize, options: &InitOptions) -> Result<Vec<Self>> {
        let members = join::threads(ranks)?;
        Ok(members.into_iter().map(|member| Self::from_membership(member, options)).collect())
    }

    /// Returns the handles of a group of threads on simulated nodes: `ranks_of_nodes[n]` ranks share
    /// memory, and ranks of different nodes use TCP on loopback. For tests.
    pub fn threads_on(ranks_of_nodes: &[usize]) -> Result<Vec<Self>> {
        Self::threads_on_with(ranks_of_nodes, &InitOptions::default())
    }

    /// [`Self::threads_on`] with options.
    pub fn threads_on_with(ranks_of_nodes: &[usize], options: &InitOptions) -> Result<Vec<Self>> {
        let members = join::simulate(ranks_of_nodes, options)?;
        Ok(members.into_iter().map(|member| Self::from_membership(member, options)).collect())
    }

    /// Runs `worker` on every rank of a group of threads and returns the results in rank order. If one
    /// rank fails, the group is aborted and the error of that rank is returned. If one rank returns early,
    /// the others do not wait for it.
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
            let results = joined.into_iter();
            results.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    }

    fn run_worker<V>(&self, worker: &impl Fn(&Self) -> Result<V>) -> Result<V> {
        struct OnPanic<'a>(&'a Group);
        impl Drop for OnPanic<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    // Otherwise the other ranks would wait for this one until their deadlines.
                    self.0.abort(PANICKED);
                }
            }
        }
        let _guard = OnPanic(self);
        worker(self).inspect_err(|error| self.abort(&error.to_string()))
    }

    fn from_membership(member: Membership, options: &InitOptions) -> Self {
        let Membership { roster, segment, inter_node, local_rank, restart_count, agent, links } =
            member;
        let between_nodes = between_nodes(inter_node.as_ref(), options);
        let founder = Founder {
            roster: roster.clone(),
            segment: segment.clone(),
            arena: Arena::new(&segment, roster.local_rank()),
            net: inter_node.as_ref().and_then(|inter_node| inter_node.net().seed()),
            abort_key: ABORT_KEY.to_owned(),
        };
        let settings = (options.timeout, options.order);
        let backend =
            HostBackend::new(roster.clone(), segment.clone(), inter_node, agent.clone(), settings);
        let inner = GroupInner {
            founder,
            meetings: Meetings::default(),
            departure_notice: Some(DepartureNotice {
                segment: segment.clone(),
                local: roster.local_rank(),
            }),
            roster,
            local_rank,
            restart_count,
            segment,
            traffic: backend.traffic.clone(),
            executor: Executor::new(backend),
            lease: None,
            agent,
            links,
            options: options.clone(),
            timeout: Mutex::new(options.timeout),
            between_nodes,
            parent: None,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Sends a note to the launcher, which shows it; does nothing without a launcher.
    pub fn note(&self, note: &Note) {
        if let Some(agent) = &self.inner.agent {
            agent.send_note(note);
        }
    }

    /// Creates one group for each color; a rank without a color joins none. Ranks are numbered in the
    /// order of their keys; ranks with equal keys keep the order of this group.
    ///
    /// Every rank of this group must call it. The new group has its own operations, deadlines and errors:
    /// both groups can be used at the same time, and if the new one fails, this one continues. If this one
    /// fails or is aborted, all groups that were split from it fail, too. Both groups can use the same
    /// buffers.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group, ReduceOp};
    /// // Two rows of two ranks; each row computes its own sum.
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

    /// Splits like [`Self::split`], with options for the new group; it has the same number of streams.
    pub fn split_with(
        &self,
        color: impl Into<Option<usize>>,
        key: usize,
        options: &InitOptions,
    ) -> Result<Option<Self>> {
        let request = SplitRequest { color: color.into(), key };
        let founder = &self.inner.founder;
        let outcome = self.inner.executor.run(|backend| backend.split(request, founder));
        if let Err(Error::Collective(error)) = &outcome {
            self.report(error);
        }
        let subgroup = outcome?;
        self.inner.traffic.record(Operation::Split, 0);
        Ok(subgroup.map(|subgroup| self.subgroup(subgroup, options)))
    }

    /// Creates a group of some ranks of this group, in the order of `ranks`. Only they call it; the other
    /// ranks of this group take no part and need not know of it.
    ///
    /// All members pass the same list and the same `name`, of 1 to 128 bytes. It waits until all of them
    /// have called it, at most for the timeout of this group, while operations of this group continue.
    /// The same list and name can be used again: the *n*-th call of each member belongs together. Disjoint
    /// lists can have one name; lists that share ranks need different names if they are used at the same
    /// time. The new group fails with this one, as one of [`Self::split`] does.
    ///
    /// # Errors
    ///
    /// [`Error::Collective`] with [`Cause::Argument`] if the list or the name is empty or invalid, or if
    /// members passed different lists for one name; with [`Cause::Deadline`], which names the members that
    /// have not called it; with [`Cause::PeerLost`] or [`Cause::Aborted`] if a member is lost or this group
    /// fails. [`Error::Split`] if a member has no memory or no socket. Unless this group has failed, it
    /// can be used further, and the call can be repeated.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group, ReduceOp};
    /// // Ranks 0 and 2 form a group in which rank 2 is the first; rank 1 does nothing.
    /// let results = Group::on_threads(3, |group| {
    ///     if group.rank() == 1 {
    ///         return Ok((0, 0));
    ///     }
    ///     let pair = group.of(&[2, 0], "even")?;
    ///     let mut sum = [group.rank() as i32];
    ///     pair.all_reduce(&mut sum, ReduceOp::Sum)?;
    ///     Ok((pair.rank(), sum[0]))
    /// })?;
    /// assert_eq!(results, [(1, 2), (0, 0), (0, 2)]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn of(&self, ranks: &[usize], name: &str) -> Result<Self> {
        self.of_with(ranks, name, &self.inner.options)
    }

    /// [`Self::of`] with options for the new group, whose timeout also limits the wait for the members.
    pub fn of_with(&self, ranks: &[usize], name: &str, options: &InitOptions) -> Result<Self> {
        let inner = &self.inner;
        let outcome = inner.meetings.create_group(&inner.founder, ranks, name, options.timeout);
        if let Err(Error::Collective(error)) = &outcome {
            self.report(error);
        }
        let subgroup = outcome?;
        self.inner.traffic.record(Operation::GroupOf, 0);
        Ok(self.subgroup(subgroup, options))
    }

    fn subgroup(&self, subgroup: Subgroup, options: &InitOptions) -> Self {
        let Subgroup { roster, segment, inter_node, lease, abort_key } = subgroup;
        let between_nodes = between_nodes(inter_node.as_ref(), options);
        let founder = Founder {
            roster: roster.clone(),
            segment: segment.clone(),
            arena: self.inner.founder.arena.clone(),
            net: inter_node.as_ref().and_then(|inter_node| inter_node.net().seed()),
            abort_key,
        };
        let settings = (options.timeout, options.order);
        let agent = self.inner.agent.clone();
        let backend =
            HostBackend::new(roster.clone(), segment.clone(), inter_node, agent.clone(), settings);
        let inner = GroupInner {
            roster,
            local_rank: self.inner.local_rank,
            restart_count: self.inner.restart_count,
            segment,
            traffic: backend.traffic.clone(),
            executor: Executor::new(backend),
            lease: Some(lease),
            // A rank that leaves a subgroup has not left the parent group.
            departure_notice: None,
            links: Links::default(),
            agent,
            options: options.clone(),
            timeout: Mutex::new(options.timeout),
            between_nodes,
            founder,
            meetings: Meetings::default(),
            parent: Some(self.clone()),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the rank of this worker in the group: `0..world_size`.
    pub fn rank(&self) -> usize {
        self.inner.roster.rank
    }

    /// Returns the number of workers in the group.
    pub fn world_size(&self) -> usize {
        self.inner.roster.placement.world_size()
    }

    /// Returns the node of every rank of the group.
    pub fn placement(&self) -> &Placement {
        &self.inner.roster.placement
    }

    /// Returns the sizes at which operations switch algorithms.
    pub fn thresholds(&self) -> Thresholds {
        let nodes = self.placement().nodes();
        Thresholds {
            eager_bytes: (nodes == 1).then_some(EAGER_BYTES),
            round_bytes: staging_bytes(1 < nodes),
            short_bytes: short_bytes_max(nodes),
            between_nodes: self.inner.between_nodes,
        }
    }

    /// Returns the operations that this group has run since it was created, without those of the groups that
    /// were split from it; does not wait for an operation that is running.
    pub fn traffic(&self) -> Traffic {
        self.inner.traffic.read()
    }

    /// Returns the rank of this worker among the workers of its node.
    pub fn local_rank(&self) -> usize {
        self.inner.local_rank
    }

    /// Returns the directory for the records of a failure, if there is one.
    #[cfg(feature = "nccl")]
    pub(crate) fn run_dir(&self) -> Option<std::path::PathBuf> {
        use crate::base::env_vars;

        let of_launcher = || env_vars::get(env_vars::REMUDA_RUN_PATH).map(Into::into);
        self.inner.options.run_dir.clone().or_else(of_launcher).filter(|dir| dir.is_dir())
    }

    /// Returns how many times the job was restarted.
    pub fn restart_count(&self) -> u32 {
        self.inner.restart_count
    }

    /// Sets the deadline of the operations of this rank that begin after the current one; groups that are made
    /// from this one later keep the timeout of its options.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use remuda::runtime::{Cause, Error, Group};
    /// let results = Group::on_threads(2, |group| {
    ///     if group.rank() == 1 {
    ///         return Ok(true);
    ///     }
    ///     group.set_timeout(Duration::from_millis(1));
    ///     let error = group.barrier().expect_err("rank 1 never calls it");
    ///     Ok(matches!(error.cause, Cause::Deadline { .. } | Cause::PeerLost { .. }))
    /// })?;
    /// assert_eq!(results, [true; 2]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn set_timeout(&self, timeout: Duration) {
        *lock(&self.inner.timeout) = timeout;
        self.inner.executor.run_after_current(|backend| backend.set_timeout(timeout));
    }

    /// Returns why the group has failed, if that is known; does not wait for other ranks.
    pub fn failure(&self) -> Option<Cause> {
        self.abort_cause()
    }

    /// Allocates `len` zeros in memory that operations do not need to copy within the node.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        Ok(Buffer::zeros(&self.inner.founder.arena, len)?)
    }

    /// Returns the most memory that this worker has used so far; `None`: unknown.
    pub fn peak_memory(&self) -> Option<PeakMemory> {
        let ProcessPeak { private, resident } = peak_memory()?;
        let shared = self.inner.founder.arena.peak_bytes() as u64;
        Some(PeakMemory { own: private + shared, resident })
    }

    /// Aborts the group: operations that are running fail on every rank with [`Cause::Aborted`].
    pub fn abort(&self, reason: &str) {
        self.note(&Note::gave_up(reason));
        let by = self.inner.roster.own_job_rank();
        self.raise_abort(AbortRecord::said(by, reason));
    }

    fn raise_abort(&self, record: AbortRecord) {
        // The record is written first, so that an operation that holds the backend's lock fails and
        // releases it.
        self.inner.segment.set_abort(&record);
        self.inner.executor.run_after_current(|backend| backend.abort(record));
    }

    /// Runs an operation after all started ones are complete.
    pub(crate) fn run_blocking(
        &self,
        operation: impl FnOnce(&mut HostBackend) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        let outcome = self.inner.executor.run(operation);
        if let Err(error) = &outcome {
            self.report(error);
        }
        outcome
    }

    /// Error of a call on this rank that did not become an operation.
    pub(crate) fn rejected(&self, op: Operation, cause: Cause) -> CollectiveError {
        CollectiveError::rejected(op, self.inner.roster.own_job_rank(), cause)
    }

    /// Fails if the group is known to have failed; does not wait for other ranks.
    pub(crate) fn check_abort(&self, op: Operation) -> Result<(), CollectiveError> {
        let Some(cause) = self.abort_cause() else { return Ok(()) };
        let error = self.rejected(op, cause);
        self.report(&error);
        Err(error)
    }

    /// Returns why the group was aborted, if that is known; does not wait.
    pub(crate) fn abort_cause(&self) -> Option<Cause> {
        self.inner.segment.abort_record().map(|record| self.inner.roster.abort_cause(record))
    }

    /// Time limit of the operations that begin now.
    #[cfg(feature = "nccl")]
    pub(crate) fn timeout(&self) -> Duration {
        *lock(&self.inner.timeout)
    }

    /// Reports the worker that caused the error to the launcher, and to the groups from which this one
    /// was split: a lost rank is lost for them too, and they can notify nodes that this group does not
    /// reach.
    pub(crate) fn report(&self, error: &CollectiveError) {
        if let Cause::Aborted { by, .. } | Cause::FailedFirst { rank: by, .. } = &error.cause
            && *by != error.rank
        {
            // The error of that rank is the cause; the error of this one is its consequence.
            self.note(&Note::PeerLost { rank: *by });
        }
        let Cause::PeerLost { rank, how, .. } = &error.cause else { return };
        self.note(&Note::PeerLost { rank: *rank });
        if *how == Departure::Gone {
            let record = AbortRecord::lost(error.rank, *rank, *how);
            let mut parent = &self.inner.parent;
            while let Some(group) = parent {
                group.raise_abort(record.clone());
                parent = &group.inner.parent;
            }
        }
    }
}

fn between_nodes(inter_node: Option<&InterNode>, options: &InitOptions) -> Option<BetweenNodes> {
    let net = inter_node?.net();
    let (streams, overlap) = (net.settings().streams.into(), net.overlaps());
    Some(BetweenNodes { streams, overlap, order: options.order })
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({} of {})", self.rank(), self.world_size())
    }
}
