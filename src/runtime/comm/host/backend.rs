//! Backend of a group on hosts: counters, deadlines, rounds and failures, which all operations share.

use std::sync::Arc;
use std::time::Duration;

use crate::base::{Note, Rank, clock};
use crate::runtime::comm::core::abort::AbortRecord;
use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::error::Departure;
use crate::runtime::comm::core::fingerprint::{CallCounts, Fingerprint};
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::core::roster::RankRoster;
use crate::runtime::comm::core::spin::Spin;
use crate::runtime::comm::core::traffic::TrafficCounters;
use crate::runtime::comm::core::wait_report::WaitReport;
use crate::runtime::comm::host::agent_link::AgentLink;
use crate::runtime::comm::host::inter_node::InterNode;
use crate::runtime::comm::host::round::Round;
use crate::runtime::comm::shm::barrier::LocalNode;
use crate::runtime::comm::shm::cells::BufferLocation;
use crate::runtime::comm::shm::fold::Workspace;
use crate::runtime::comm::shm::segment::{Segment, staging_bytes};
use crate::runtime::comm::shm::window::Window;
use crate::runtime::comm::store::wait_graph::WaitReporter;
use crate::runtime::dtype::element::{Dtype, Element, ReduceOrder};
use crate::runtime::schedule::tree::Fold;

/// State of a group that runs operations one after the other, behind the lock of the group.
pub(crate) struct HostBackend {
    pub(crate) node: LocalNode,
    pub(crate) roster: Arc<RankRoster>,
    /// Connections to other nodes, if there are any.
    pub(crate) inter_node: Option<InterNode>,
    pub(crate) workspace: Workspace,
    /// Fold of the windows of all ranks, for groups on one node.
    pub(crate) fold: Fold,
    pub(crate) rounds: u64,
    /// Counters of message rounds to and from every rank.
    pub(crate) sent: Vec<u32>,
    pub(crate) received: Vec<u32>,
    pub(crate) spin: Spin,
    /// Operations that have succeeded.
    pub(crate) traffic: Arc<TrafficCounters>,
    /// Number of splits of the group.
    pub(crate) splits: u64,
    /// Connection to the agent, if there is one.
    agent: Option<Arc<AgentLink>>,
    timeout: Duration,
    order: ReduceOrder,
    calls: u64,
    failed: Option<Failed>,
}

/// Failure of the group, after which every operation fails.
struct Failed {
    cause: Cause,
    /// Operation that failed; `None` if the group was aborted.
    operation: Option<Operation>,
}

impl HostBackend {
    pub(crate) fn new(
        roster: Arc<RankRoster>,
        segment: Arc<Segment>,
        inter_node: Option<InterNode>,
        agent: Option<Arc<AgentLink>>,
        (timeout, order): (Duration, ReduceOrder),
    ) -> Self {
        let world = roster.placement.world_size();
        let wait_report = inter_node.as_ref().map(|inter_node| -> Box<dyn WaitReport> {
            let store = inter_node.net().shared_store();
            Box::new(WaitReporter::new(roster.own_job_rank(), store))
        });
        Self {
            spin: Spin::for_ranks(segment.node_world()),
            fold: Fold::of(world),
            node: LocalNode::new(roster.clone(), segment, wait_report),
            inter_node,
            roster,
            workspace: Workspace::default(),
            rounds: 0,
            sent: vec![0; world],
            received: vec![0; world],
            traffic: Arc::default(),
            splits: 0,
            agent,
            timeout,
            order,
            calls: 0,
            failed: None,
        }
    }

    /// Number of ranks of the group.
    pub(crate) fn world(&self) -> usize {
        self.roster.placement.world_size()
    }

    /// Sets the time limit of the following operations.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Aborts the group: further operations fail on all ranks.
    pub(crate) fn abort(&mut self, record: AbortRecord) {
        if self.failed.is_none() {
            self.publish_abort(&record);
            self.failed = Some(Failed { cause: self.roster.abort_cause(record), operation: None });
        }
    }

    /// Runs an operation like [`Self::run_uncounted`], and adds it to the traffic of the group if it has
    /// succeeded.
    pub(crate) fn run<T: Element>(
        &mut self,
        call: OperationCall,
        body: impl FnOnce(&mut Self, OperationCall, Deadline) -> Result<(), Cause>,
    ) -> Result<(), CollectiveError> {
        self.run_uncounted::<T>(call, body)?;
        let bytes = call.received_bytes(size_of::<T>(), self.roster.rank, self.world());
        self.traffic.record(call.op, bytes);
        Ok(())
    }

    /// Runs an operation: gives it a number, sets its deadline, and turns a failure into an error that ends
    /// the group.
    pub(crate) fn run_uncounted<T: Element>(
        &mut self,
        call: OperationCall,
        body: impl FnOnce(&mut Self, OperationCall, Deadline) -> Result<(), Cause>,
    ) -> Result<(), CollectiveError> {
        self.run_of(call, size_of::<T>(), body)
    }

    /// [`Self::run_uncounted`] for elements of `element_bytes`.
    pub(crate) fn run_of(
        &mut self,
        call: OperationCall,
        element_bytes: usize,
        body: impl FnOnce(&mut Self, OperationCall, Deadline) -> Result<(), Cause>,
    ) -> Result<(), CollectiveError> {
        self.run_several(call, element_bytes, |host, deadline| {
            body(host, call, deadline).map_err(|cause| (call.op, cause))
        })
    }

    /// [`Self::run_of`] for several operations at once: `body` says which one has failed.
    pub(crate) fn run_several(
        &mut self,
        call: OperationCall,
        element_bytes: usize,
        body: impl FnOnce(&mut Self, Deadline) -> Result<(), (Operation, Cause)>,
    ) -> Result<(), CollectiveError> {
        self.calls += 1;
        let since = clock::now();
        let until = clock::after(since, self.timeout);
        let deadline = Deadline { since, until, spin: self.spin };
        let earlier = self.failed.as_ref().and_then(|failed| failed.operation);
        let outcome = match &self.failed {
            Some(failed) => Err(failed.cause.clone()),
            None => self
                .check_abort()
                .map_err(|cause| (call.op, cause))
                .and_then(|()| body(self, deadline))
                .inspect(|()| self.node.end_wait())
                .map_err(|(op, cause)| self.fail(cause, op)),
        };
        outcome.map_err(|cause| CollectiveError {
            op: call.op,
            seq: self.calls,
            bytes: (call.passed * element_bytes) as u64,
            rank: self.roster.own_job_rank(),
            cause,
            earlier,
        })
    }

    /// Fails if the group was aborted. Every operation calls it once, because ranks that are never
    /// late do not wait long enough to check while they wait.
    fn check_abort(&self) -> Result<(), Cause> {
        match self.node.segment.abort_record() {
            Some(record) => Err(self.roster.abort_cause(record)),
            None => Ok(()),
        }
    }

    /// Ends the group after a failed operation, which leaves the ranks in different states.
    fn fail(&mut self, cause: Cause, op: Operation) -> Cause {
        let cause = match cause {
            Cause::PeerLost { how: Departure::Gone, .. } => {
                self.find_abort_cause().unwrap_or(cause)
            }
            Cause::Deadline { waiting_for, timeout } => {
                Cause::Deadline { waiting_for: self.node.late_ranks(waiting_for), timeout }
            }
            cause => self.count_calls_of_nodes(cause),
        };
        if let (Some(agent), false) = (&self.agent, cause.is_of_another_rank()) {
            agent.send_note(&Note::gave_up(&cause.to_string()));
        }
        self.publish_abort(&AbortRecord::of_failure(self.roster.own_job_rank(), op, &cause));
        self.failed = Some(Failed { cause: cause.clone(), operation: Some(op) });
        cause
    }

    /// Counts the ranks of both nodes whose ranks differ: those of one node had compared their calls before.
    fn count_calls_of_nodes(&self, cause: Cause) -> Cause {
        match cause {
            Cause::Mismatch { own_call, peer, peer_call, .. }
                if [own_call.op, peer_call.op].into_iter().all(Operation::is_compared_on_nodes)
                    && let Some(ranks) = self.roster.ranks_of_other_node(peer) =>
            {
                let own = self.roster.local_ranks().len() as u16;
                let counts = CallCounts { own, peer: ranks };
                Cause::Mismatch { own_call, peer, peer_call, counts }
            }
            cause => cause,
        }
    }

    /// The cause behind a closed connection, if there is one: the peer may have failed because of
    /// another rank.
    fn find_abort_cause(&mut self) -> Option<Cause> {
        let local = self.node.segment.abort_record();
        let record = local.or_else(|| self.inter_node.as_mut()?.find_abort())?;
        Some(self.roster.abort_cause(record))
    }

    /// Publishes an abort to the ranks of this node and of the other nodes.
    fn publish_abort(&mut self, record: &AbortRecord) {
        self.node.segment.set_abort(record);
        if let Some(inter_node) = &mut self.inter_node {
            inter_node.abort(record);
        }
    }

    /// Order of reductions of an operation; only all-reduce has another than the canonical one.
    pub(crate) fn order_of(&self, op: Operation) -> ReduceOrder {
        if op == Operation::AllReduce { self.order } else { ReduceOrder::Canonical }
    }

    /// Fingerprint of the next round of a call; counts the round.
    pub(crate) fn fingerprint(&mut self, call: OperationCall, dtype: Dtype) -> Fingerprint {
        self.rounds += 1;
        Fingerprint {
            op: call.op,
            dtype,
            reduce: call.reduce,
            order: self.order_of(call.op),
            root: call.root.map_or(Rank(0), |root| self.roster.job_rank(root)),
            count: call.count as u64,
            seq: self.rounds,
        }
    }

    /// Begins a round; returns the staged window of every rank, in local order.
    pub(crate) fn begin_round<T: Element>(
        &mut self,
        call: OperationCall,
        own_window: &Window<T>,
        deadline: Deadline,
    ) -> Result<Round<T>, Cause> {
        let location = BufferLocation::Staged(own_window.offset());
        self.begin_round_at(call, location, |_| own_window.len(), deadline)
    }

    /// Begins a round; returns its fingerprint and what `read` makes of the locations of all ranks' data, in
    /// local order.
    pub(super) fn enter_round<V>(
        &mut self,
        call: OperationCall,
        dtype: Dtype,
        location: BufferLocation,
        deadline: Deadline,
        read: impl FnOnce(&Arc<Segment>, &[BufferLocation]) -> V,
    ) -> Result<(Fingerprint, V), Cause> {
        let fingerprint = self.fingerprint(call, dtype);
        let Self { node, inter_node, roster, .. } = self;
        let segment = node.segment.clone();
        let work =
            || inter_node.as_mut().map_or(Ok(false), |inter_node| inter_node.progress(roster));
        let locations = node.begin_round(fingerprint, location, deadline, work)?;
        Ok((fingerprint, read(&segment, locations)))
    }

    /// Begins a round; returns the window of every rank, in local order. `len` computes their
    /// length from the locations of all ranks' data.
    pub(crate) fn begin_round_at<T: Element>(
        &mut self,
        call: OperationCall,
        location: BufferLocation,
        len: impl FnOnce(&[BufferLocation]) -> usize,
        deadline: Deadline,
    ) -> Result<Round<T>, Cause> {
        let read = |segment: &Arc<Segment>, locations: &[BufferLocation]| {
            let len = len(locations);
            let window = |location: &BufferLocation| peer_window(segment, *location, len);
            Ok::<_, Cause>((locations.iter().map(window).collect::<Result<_, Cause>>()?, len))
        };
        let (fingerprint, read) = self.enter_round(call, T::DTYPE, location, deadline, read)?;
        let (windows, len) = read?;
        Ok(Round { fingerprint, windows, len, deadline })
    }

    /// Barrier of the ranks of the node; transfers to other nodes continue meanwhile.
    pub(crate) fn local_barrier(&mut self, deadline: Deadline) -> Result<(), Cause> {
        let Self { node, inter_node, roster, .. } = self;
        let work =
            || inter_node.as_mut().map_or(Ok(false), |inter_node| inter_node.progress(roster));
        node.barrier(deadline, work)
    }

    /// The window on this node that contains a rank's part.
    #[inline]
    pub(crate) fn window_of<'r, T>(&self, round: &'r Round<T>, rank: usize) -> &'r Window<T> {
        let placement = &self.roster.placement;
        let holder = placement.helper(self.roster.node(), rank);
        &round.windows[placement.local_of(holder)]
    }

    /// Window in which this rank stages data that lies outside the segment.
    pub(crate) fn staging<T: Element>(&self) -> Window<T> {
        let offset = self.node.segment.staging_offset(self.node.local_rank());
        let bytes = staging_bytes(self.inter_node.is_some());
        Window::new(&self.node.segment, offset, bytes / size_of::<T>())
            .expect("the layout keeps staging areas aligned and inside")
    }
}

/// Window of `len` elements at the location that a rank of the node has published.
#[inline]
pub(super) fn peer_window<T: Element>(
    segment: &Arc<Segment>,
    location: BufferLocation,
    len: usize,
) -> Result<Window<T>, Cause> {
    Window::new(segment, location.offset(), len).ok_or_else(|| {
        Cause::Backend("the window of a peer is outside the shared memory segment".to_owned())
    })
}
