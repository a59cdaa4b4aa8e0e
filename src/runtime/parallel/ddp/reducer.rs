//! Reduction of buckets while later gradients are computed.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::executor::{OperationEvent, PendingOutcome};
use crate::runtime::comm::group::Group;
use crate::runtime::comm::host::region::PostOp;
use crate::runtime::comm::shm::buffer::SharedBuffer;
use crate::runtime::dtype::element::{GradientElement, ReduceOp};
use crate::runtime::flat::accumulate::BinaryCounter;
use crate::runtime::flat::buckets::Bucket;

/// Event of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DdpEvent {
    /// The last element of a bucket is ready.
    GradReady {
        /// Index of the bucket.
        bucket: usize,
    },
    /// The reduction of a bucket has started.
    ReduceStarted {
        /// Index of the bucket.
        bucket: usize,
    },
    /// A bucket contains the mean over all lanes.
    ReduceDone {
        /// Index of the bucket.
        bucket: usize,
    },
}

pub(crate) type Events = Arc<Mutex<Vec<DdpEvent>>>;

/// Progress of the buckets of a step.
pub(crate) struct Reducer {
    pub(super) buckets: Vec<Bucket>,
    /// Number of elements of each bucket that are not ready yet.
    unready: Vec<usize>,
    /// Next bucket to reduce. Buckets are started in order on every rank, so that all ranks have
    /// the same order of operations.
    next: usize,
    pending: Vec<PendingOutcome>,
    pub(super) events: Events,
}

impl Reducer {
    pub(super) fn new(buckets: Vec<Bucket>) -> Self {
        Self {
            unready: vec![0; buckets.len()],
            next: buckets.len(),
            buckets,
            pending: Vec::new(),
            events: Events::default(),
        }
    }

    pub(super) fn start_step(&mut self) {
        self.unready = self.buckets.iter().map(|bucket| bucket.range.len()).collect();
        self.next = 0;
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn wait(&mut self) -> Result<(), CollectiveError> {
        let outcomes: Vec<_> = self.pending.drain(..).map(PendingOutcome::wait).collect();
        outcomes.into_iter().collect()
    }
}

pub(crate) fn record(events: &Events, event: DdpEvent) {
    events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
}

/// Gradient of the last micro-batch of a step, which starts the reductions of complete buckets.
pub(crate) struct BucketReducer<'a, T: GradientElement> {
    pub(super) group: &'a Group,
    pub(super) gradient: &'a mut SharedBuffer<T>,
    pub(super) accumulated: &'a BinaryCounter<T>,
    pub(super) reducer: &'a mut Reducer,
    pub(super) lanes: u64,
}

impl<T: GradientElement> BucketReducer<'_, T> {
    pub(crate) fn slice_mut(&mut self, range: &Range<usize>) -> &mut [T] {
        self.gradient.slice_mut(range)
    }

    pub(crate) fn is_reduced(&self, bucket: usize) -> bool {
        let events = self.reducer.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.contains(&DdpEvent::ReduceDone { bucket })
    }

    pub(crate) fn on_ready(&mut self, range: &Range<usize>) {
        for (index, bucket) in self.reducer.buckets.iter().enumerate() {
            let start = bucket.range.start.max(range.start);
            let end = bucket.range.end.min(range.end);
            if start < end {
                self.reducer.unready[index] -= end - start;
                if self.reducer.unready[index] == 0 {
                    record(&self.reducer.events, DdpEvent::GradReady { bucket: index });
                }
            }
        }
        while self.reducer.unready.get(self.reducer.next) == Some(&0) {
            self.start(self.reducer.next);
            self.reducer.next += 1;
        }
    }

    fn start(&mut self, bucket: usize) {
        let range = self.reducer.buckets[bucket].range.clone();
        let values = self.gradient.slice_mut(&range);
        self.accumulated.add_to(&range, values);
        if self.group.world_size() == 1 {
            record(&self.reducer.events, DdpEvent::ReduceStarted { bucket });
            T::divide(values, self.lanes);
            record(&self.reducer.events, DdpEvent::ReduceDone { bucket });
            return;
        }
        let window = self.gradient.lend(&range);
        let events = self.reducer.events.clone();
        let finish = PostOp::Divide(self.lanes);
        let pending = self.group.start_window(window, ReduceOp::Sum, finish, move |moment| {
            record(
                &events,
                match moment {
                    OperationEvent::Started => DdpEvent::ReduceStarted { bucket },
                    OperationEvent::Done => DdpEvent::ReduceDone { bucket },
                },
            );
        });
        self.reducer.pending.push(pending);
    }
}
