//! Engine of a group: counters, deadlines, rounds and failures, which all operations share.

use std::sync::Arc;
use std::time::Duration;

use crate::base::{Rank, clock};
use crate::runtime::across::{InterNode, Round};
use crate::runtime::cells::{AbortRecord, BufferPlace};
use crate::runtime::element::{Element, ReduceOp, ReduceOrder};
use crate::runtime::error::{Cause, CollectiveError, Departure, Fingerprint, Loss, Operation};
use crate::runtime::flag::Spin;
use crate::runtime::node::{Deadline, LocalNode, RankRoster};
use crate::runtime::shm::{Segment, staging_bytes};
use crate::runtime::shm_window::{Window, Workspace};
use crate::runtime::tree::Fold;

/// Parameters of one operation, as its caller passed them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationCall {
    pub(crate) op: Operation,
    pub(crate) reduce: ReduceOp,
    pub(crate) root: Option<usize>,
    pub(crate) count: usize,
}

impl OperationCall {
    pub(crate) fn new(op: Operation, count: usize) -> Self {
        Self { op, reduce: ReduceOp::Sum, root: None, count }
    }
}

/// State of a group that runs operations one after the other, behind the lock of the group.
pub(crate) struct Engine {
    pub(super) node: LocalNode,
    pub(super) roster: Arc<RankRoster>,
    /// Connections to other nodes, if there are any.
    pub(super) across: Option<InterNode>,
    pub(super) workspace: Workspace,
    /// Fold of the windows of all ranks, for groups on one node.
    pub(super) fold: Fold,
    pub(super) rounds: u64,
    /// Counters of message rounds to and from every rank.
    pub(super) sent: Vec<u32>,
    pub(super) received: Vec<u32>,
    pub(crate) spin: Spin,
    /// Number of splits of the group.
    pub(super) splits: u64,
    timeout: Duration,
    order: ReduceOrder,
    calls: u64,
    failed: Option<Failed>,
}

/// Failure of the group, after which every operation fails.
struct Failed {
    cause: Cause,
    /// The operation that failed; `None` if the group was aborted.
    at: Option<Operation>,
}

impl Engine {
    pub(crate) fn new(
        roster: Arc<RankRoster>,
        segment: Arc<Segment>,
        across: Option<InterNode>,
        (timeout, order): (Duration, ReduceOrder),
    ) -> Self {
        let world = roster.placement.world_size();
        let store = across.as_ref().map(|across| across.net().shared_store());
        Self {
            spin: Spin::for_ranks(segment.node_world()),
            fold: Fold::of(world),
            node: LocalNode::new(roster.clone(), segment, store),
            across,
            roster,
            workspace: Workspace::default(),
            rounds: 0,
            sent: vec![0; world],
            received: vec![0; world],
            splits: 0,
            timeout,
            order,
            calls: 0,
            failed: None,
        }
    }

    pub(super) fn world(&self) -> usize {
        self.roster.placement.world_size()
    }

    /// Makes every operation of this group fail, here and elsewhere.
    pub(crate) fn abort(&mut self, alarm: AbortRecord) {
        if self.failed.is_none() {
            self.tell(&alarm);
            self.failed = Some(Failed { cause: self.roster.cause(alarm), at: None });
        }
    }

    /// Runs an operation: counts it, sets its deadline, and turns a failure into an error that ends
    /// the group.
    pub(super) fn run<T: Element>(
        &mut self,
        call: OperationCall,
        body: impl FnOnce(&mut Self, OperationCall, Deadline) -> Result<(), Cause>,
    ) -> Result<(), CollectiveError> {
        self.calls += 1;
        let since = clock::now();
        let deadline = clock::after(since, self.timeout);
        let patience = Deadline { since, until: deadline, spin: self.spin };
        let earlier = self.failed.as_ref().and_then(|failed| failed.at);
        let outcome = match &self.failed {
            Some(failed) => Err(failed.cause.clone()),
            None => self
                .check_alarm()
                .and_then(|()| body(self, call, patience))
                .inspect(|()| self.node.end_wait())
                .map_err(|cause| self.give_up(cause, call.op)),
        };
        outcome.map_err(|cause| CollectiveError {
            op: call.op,
            seq: self.calls,
            bytes: (call.count * size_of::<T>()) as u64,
            rank: self.roster.own_name(),
            cause,
            earlier,
        })
    }

    /// Checks for an alarm once in each operation, because ranks that are never late do not wait
    /// long enough to check for one.
    fn check_alarm(&self) -> Result<(), Cause> {
        match self.node.segment.alarm() {
            Some(alarm) => Err(self.roster.cause(alarm)),
            None => Ok(()),
        }
    }

    /// Ends the group after a failed operation, which leaves the ranks in different states.
    fn give_up(&mut self, cause: Cause, op: Operation) -> Cause {
        let cause = match cause {
            Cause::PeerLost { how: Departure::Gone, .. } => self.explain_loss().unwrap_or(cause),
            Cause::Deadline { waiting_for } => {
                Cause::Deadline { waiting_for: self.node.trace(waiting_for) }
            }
            cause => cause,
        };
        let lost = match &cause {
            Cause::PeerLost { rank, how, .. } => Some(Loss { rank: *rank, how: *how }),
            _ => None,
        };
        let (by, reason) = match &cause {
            // Forwarded unchanged.
            Cause::Aborted { by, reason } => (*by, reason.clone()),
            cause => (self.roster.own_name(), cause.to_string()),
        };
        self.tell(&AbortRecord { by, lost, reason });
        self.failed = Some(Failed { cause: cause.clone(), at: Some(op) });
        cause
    }

    /// The cause behind a closed connection, if there is one: the peer may have failed because of
    /// another rank.
    fn explain_loss(&mut self) -> Option<Cause> {
        let told = self.node.segment.alarm();
        let alarm = told.or_else(|| self.across.as_mut()?.explain())?;
        Some(self.roster.cause(alarm))
    }

    fn tell(&mut self, alarm: &AbortRecord) {
        self.node.segment.raise_alarm(alarm);
        if let Some(across) = &mut self.across {
            across.give_up(alarm);
        }
    }

    /// Order of reductions of an operation; only all-reduce has another than the canonical one.
    pub(super) fn order_of(&self, op: Operation) -> ReduceOrder {
        if op == Operation::AllReduce { self.order } else { ReduceOrder::Canonical }
    }

    pub(super) fn fingerprint<T: Element>(&mut self, call: OperationCall) -> Fingerprint {
        self.rounds += 1;
        Fingerprint {
            op: call.op,
            dtype: T::DTYPE,
            reduce: call.reduce,
            order: self.order_of(call.op),
            root: call.root.map_or(Rank(0), |root| self.roster.name(root)),
            count: call.count as u64,
            seq: self.rounds,
        }
    }

    /// Begins a round; returns the staged window of every rank, in local order.
    pub(super) fn enter<T: Element>(
        &mut self,
        call: OperationCall,
        ours: &Window<T>,
        patience: Deadline,
    ) -> Result<Round<T>, Cause> {
        let place = BufferPlace::Staged(ours.offset());
        self.enter_at(call, place, |_| ours.len(), patience)
    }

    /// Begins a round; returns the window of every rank, in local order. `len` computes their
    /// length from the places of all ranks.
    pub(super) fn enter_at<T: Element>(
        &mut self,
        call: OperationCall,
        place: BufferPlace,
        len: impl FnOnce(&[BufferPlace]) -> usize,
        patience: Deadline,
    ) -> Result<Round<T>, Cause> {
        let fingerprint = self.fingerprint::<T>(call);
        let segment = self.node.segment.clone();
        let Self { node, across, roster, .. } = self;
        let work = || across.as_mut().map_or(Ok(false), |across| across.work(roster));
        let places = node.enter(fingerprint, place, patience, work)?;
        let len = len(places);
        let windows = places.iter().map(|place| Window::new(&segment, place.offset(), len));
        let windows = windows.collect::<Option<_>>().ok_or_else(|| {
            Cause::Backend("a peer's window lies outside the shared memory".to_owned())
        })?;
        Ok(Round { fingerprint, windows, len, patience })
    }

    /// Barrier of the ranks of the node; transfers to other nodes continue meanwhile.
    pub(super) fn meet(&mut self, patience: Deadline) -> Result<(), Cause> {
        let Self { node, across, roster, .. } = self;
        let work = || across.as_mut().map_or(Ok(false), |across| across.work(roster));
        node.meet(patience, work)
    }

    /// Window in which this rank stages data that lies outside the segment.
    pub(super) fn staging<T: Element>(&self) -> Window<T> {
        let offset = self.node.segment.staging_offset(self.node.me());
        let bytes = staging_bytes(self.across.is_some());
        Window::new(&self.node.segment, offset, bytes / size_of::<T>())
            .expect("the layout keeps staging areas aligned and inside")
    }
}
