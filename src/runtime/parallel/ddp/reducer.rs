//! Reduction of buckets while later gradients are computed.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::base::lock;
use crate::runtime::comm::collectives::{Collectives, GradientCollectives, Lend as _};
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::operation::DividedReduction;
use crate::runtime::comm::executor::OperationEvent;
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::{Element, GradientElement};
use crate::runtime::error::{Error, Result};
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
pub(crate) struct Reducer<T: Element, C: Collectives<T>> {
    pub(super) buckets: Vec<Bucket>,
    /// Number of elements of each bucket that are not ready yet.
    unready: Vec<usize>,
    /// Next bucket to reduce. Buckets are submitted in order on every rank, so that all ranks have
    /// the same order of operations.
    next: usize,
    in_flight: Vec<Work<C::Lent>>,
    /// Failure of this step's arithmetic on the gradient; no further bucket is submitted then.
    failure: Option<Error>,
    pub(super) events: Events,
}

impl<T: Element, C: Collectives<T>> Reducer<T, C> {
    pub(super) fn new(buckets: Vec<Bucket>) -> Self {
        Self {
            unready: vec![0; buckets.len()],
            next: buckets.len(),
            buckets,
            in_flight: Vec::new(),
            failure: None,
            events: Events::default(),
        }
    }

    pub(super) fn start_step(&mut self) {
        self.unready = self.buckets.iter().map(|bucket| bucket.range.len()).collect();
        self.next = 0;
        self.failure = None;
        lock(&self.events).clear();
    }

    /// Waits for all buckets and returns their ranges to the gradient; those of failed operations stay
    /// lent, because late peers may still write to them.
    pub(super) fn wait(&mut self, gradient: &mut C::Buffer) -> Result<(), CollectiveError> {
        let outcomes: Vec<_> = self.in_flight.drain(..).map(Work::wait).collect();
        outcomes.into_iter().try_for_each(|outcome| {
            gradient.restore(outcome?);
            Ok(())
        })
    }
}

pub(crate) fn record(events: &Events, event: DdpEvent) {
    lock(events).push(event);
}

/// Gradient of the last micro-batch of a step, which submits the reductions of complete buckets.
pub(crate) struct BucketReducer<'a, T: GradientElement, C: GradientCollectives<T>> {
    pub(super) collectives: &'a C,
    pub(super) gradient: &'a mut C::Buffer,
    pub(super) accumulated: &'a BinaryCounter<C::Scratch>,
    pub(super) reducer: &'a mut Reducer<T, C>,
    pub(super) lanes: u64,
}

impl<T: GradientElement, C: GradientCollectives<T>> BucketReducer<'_, T, C> {
    pub(crate) fn is_reduced(&self, bucket: usize) -> bool {
        let events = lock(&self.reducer.events);
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
        while self.reducer.failure.is_none()
            && self.reducer.unready.get(self.reducer.next) == Some(&0)
        {
            self.reducer.failure = self.submit(self.reducer.next).err();
            self.reducer.next += 1;
        }
    }

    /// Returns why a bucket could not be submitted.
    pub(crate) fn take_failure(&mut self) -> Result<()> {
        self.reducer.failure.take().map_or(Ok(()), Err)
    }

    fn submit(&mut self, bucket: usize) -> Result<()> {
        let range = self.reducer.buckets[bucket].range.clone();
        for older in self.accumulated.sums() {
            self.collectives.add(older, self.gradient, &range)?;
        }
        if self.collectives.as_ref().world_size() == 1 {
            record(&self.reducer.events, DdpEvent::ReduceStarted { bucket });
            self.collectives.divide(self.gradient, &range, self.lanes)?;
            record(&self.reducer.events, DdpEvent::ReduceDone { bucket });
            return Ok(());
        }
        let data = self.gradient.lend(&range);
        let events = self.reducer.events.clone();
        let on_event = move |event| {
            let event = match event {
                OperationEvent::Started => DdpEvent::ReduceStarted { bucket },
                OperationEvent::Done => DdpEvent::ReduceDone { bucket },
            };
            record(&events, event);
        };
        let mean = DividedReduction::mean_of(self.lanes);
        self.reducer.in_flight.push(self.collectives.submit_all_reduce(data, mean, on_event));
        Ok(())
    }
}
