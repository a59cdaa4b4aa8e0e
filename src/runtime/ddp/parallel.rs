//! [`DistributedDataParallel`]: micro-batches in, one mean gradient out.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::Digest;

use crate::runtime::ddp::counter::BinaryCounter;
use crate::runtime::ddp::gradients::{GradientTarget, Gradients};
use crate::runtime::ddp::layout::{Bucket, Layout, buckets};
use crate::runtime::element::{GradientElement, ReduceOp};
use crate::runtime::error::{CollectiveError, Error, Operation};
use crate::runtime::group::Group;
use crate::runtime::memory::PostOp;
use crate::runtime::runner::{OperationEvent, PendingOutcome};
use crate::runtime::shm_window::SharedBuffer;

/// Options of [`DistributedDataParallel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DdpOptions {
    /// Number of micro-batches of a step; use a power of two for equal bits on other numbers of workers.
    pub accumulate: usize,
    /// Size of the first bucket in bytes; small, so that its reduction starts early.
    pub first_bucket_bytes: usize,
    /// Size of every other bucket in bytes.
    pub bucket_bytes: usize,
}

impl Default for DdpOptions {
    fn default() -> Self {
        Self { accumulate: 1, first_bucket_bytes: 256 << 10, bucket_bytes: 1 << 20 }
    }
}

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

type Events = Arc<Mutex<Vec<DdpEvent>>>;

/// Reducer of gradients over micro-batches and workers, which overlaps with the backward pass.
///
/// A step consists of `accumulate` calls of [`Self::micro_batch`] and one call of [`Self::reduce`]. Every
/// rank must use the same layout and options.
///
/// ```
/// use remuda::runtime::{DdpOptions, DistributedDataParallel, Group, Layout};
///
/// let group = Group::single()?;
/// let layout = Layout::new([("weight", 3), ("bias", 1)]);
/// let options = DdpOptions { accumulate: 2, ..DdpOptions::default() };
/// let mut ddp = DistributedDataParallel::<f32>::new(&group, &layout, options)?;
/// for micro_batch in 0..2 {
///     ddp.micro_batch(|grads| grads.flat().fill(micro_batch as f32))?;
/// }
/// assert_eq!(ddp.reduce()?, [0.5; 4]);
/// # Ok::<(), remuda::runtime::Error>(())
/// ```
pub struct DistributedDataParallel<T: GradientElement> {
    group: Group,
    options: DdpOptions,
    /// The last micro-batch's gradient, then the sum, then the mean.
    gradient: SharedBuffer<T>,
    accumulated: BinaryCounter<T>,
    reducer: Reducer,
    micro_batches: usize,
    len: usize,
}

/// Progress of the buckets of a step.
struct Reducer {
    buckets: Vec<Bucket>,
    /// Number of elements of each bucket that are not ready yet.
    unready: Vec<usize>,
    /// Next bucket to reduce. Buckets are started in order on every rank, so that all ranks have
    /// the same order of operations.
    next: usize,
    pending: Vec<PendingOutcome>,
    events: Events,
}

impl<T: GradientElement> DistributedDataParallel<T> {
    /// Checks that all ranks agree on layout and options, and allocates the gradient.
    pub fn new(group: &Group, layout: &Layout, options: DdpOptions) -> Result<Self, Error> {
        if options.accumulate == 0 {
            return Err(Error::BadArgument("`accumulate` must be at least 1".to_owned()));
        }
        check_agreement::<T>(group, layout, options)?;
        let buckets =
            buckets(layout, size_of::<T>(), options.first_bucket_bytes, options.bucket_bytes);
        Ok(Self {
            group: group.clone(),
            options,
            gradient: SharedBuffer::new(group.alloc(layout.len())?),
            accumulated: BinaryCounter::new(layout.len()),
            reducer: Reducer::new(buckets),
            micro_batches: 0,
            len: layout.len(),
        })
    }

    /// Copies the parameters of rank 0 to every rank.
    pub fn broadcast_params(&self, params: &mut [T]) -> Result<(), CollectiveError> {
        self.group.broadcast(params, 0)
    }

    /// Runs the backward pass of one micro-batch on a gradient of zeros; the gradients of earlier
    /// micro-batches are added afterwards. Returns the result of the closure.
    ///
    /// # Panics
    /// If the step already has all its micro-batches.
    pub fn micro_batch<V>(
        &mut self,
        backward: impl FnOnce(&mut Gradients<'_, T>) -> V,
    ) -> Result<V, CollectiveError> {
        let all = self.options.accumulate;
        assert!(self.micro_batches < all, "call `reduce` after {all} micro-batches");
        // If the group has failed, a late peer may still write into the gradient.
        self.group.check_abort(Operation::AllReduce)?;
        self.micro_batches += 1;
        if self.micro_batches < all {
            return Ok(self.accumulate(backward));
        }
        self.reducer.start_step();
        self.gradient.slice_mut(&(0..self.len)).fill(T::ZERO);
        let lanes = (self.group.world_size() * all) as u64;
        let reducer = BucketReducer {
            group: &self.group,
            gradient: &mut self.gradient,
            accumulated: &self.accumulated,
            reducer: &mut self.reducer,
            lanes,
        };
        let mut gradients = Gradients::new(GradientTarget::Shared(reducer), self.len);
        let value = backward(&mut gradients);
        gradients.finish();
        Ok(value)
    }

    /// Runs the backward pass of an additional micro-batch that the step does not count: its gradient is
    /// kept on this rank and added to the next gradient that is reduced. It does not change the divisor of
    /// the mean, as in torch's `no_sync`.
    pub fn no_sync<V>(&mut self, backward: impl FnOnce(&mut Gradients<'_, T>) -> V) -> V {
        self.accumulate(backward)
    }

    fn accumulate<V>(&mut self, backward: impl FnOnce(&mut Gradients<'_, T>) -> V) -> V {
        let mut buffer = self.accumulated.buffer();
        let mut gradients = Gradients::new(GradientTarget::Private(&mut buffer), self.len);
        let value = backward(&mut gradients);
        self.accumulated.push(buffer);
        value
    }

    /// Waits for all buckets and returns the mean gradient over all lanes of the step, which is the same
    /// on every rank. The rank can change the slice until the next micro-batch, for example to clip it.
    ///
    /// # Panics
    /// If micro-batches of the step are missing.
    pub fn reduce(&mut self) -> Result<&mut [T], CollectiveError> {
        let all = self.options.accumulate;
        let done = self.micro_batches;
        assert!(done == all, "`reduce` was called after {done} of {all} micro-batches");
        self.micro_batches = 0;
        let outcome = self.reducer.wait();
        self.gradient.reclaim_all();
        self.accumulated.clear();
        outcome.inspect_err(|error| self.group.report(error))?;
        Ok(self.gradient.slice_mut(&(0..self.len)))
    }

    /// Returns the buckets in the order in which they are reduced.
    pub fn buckets(&self) -> &[Bucket] {
        &self.reducer.buckets
    }

    /// Returns the events since the start of the step's last micro-batch, in order.
    pub fn events(&self) -> Vec<DdpEvent> {
        self.reducer.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<T: GradientElement> Drop for DistributedDataParallel<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The other ranks would wait for buckets that are never reduced.
            self.group.abort("a rank panicked");
        }
        // Peers still read and write the gradient until the last bucket is done; an error has
        // no caller to be returned to.
        let _ = self.reducer.wait();
    }
}

/// Checks that all ranks have the same layout and options; otherwise they would add unrelated data,
/// or hang.
fn check_agreement<T: GradientElement>(
    group: &Group,
    layout: &Layout,
    options: DdpOptions,
) -> Result<(), Error> {
    let mut digest = layout.digest();
    let DdpOptions { accumulate, first_bucket_bytes, bucket_bytes } = options;
    for number in [accumulate, first_bucket_bytes, bucket_bytes, size_of::<T>()] {
        digest.update((number as u64).to_le_bytes());
    }
    let digest: [u8; 32] = digest.finalize().into();
    let mut all = vec![0; digest.len() * group.world_size()];
    group.all_gather(&digest, &mut all)?;
    match all.chunks(digest.len()).position(|other| other != digest) {
        None => Ok(()),
        Some(rank) => Err(Error::BadArgument(format!(
            "layout or options of rank {rank} differ from those of rank {}",
            group.rank()
        ))),
    }
}

impl Reducer {
    fn new(buckets: Vec<Bucket>) -> Self {
        Self {
            unready: vec![0; buckets.len()],
            next: buckets.len(),
            buckets,
            pending: Vec::new(),
            events: Events::default(),
        }
    }

    fn start_step(&mut self) {
        self.unready = self.buckets.iter().map(|bucket| bucket.range.len()).collect();
        self.next = 0;
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn wait(&mut self) -> Result<(), CollectiveError> {
        let outcomes: Vec<_> = self.pending.drain(..).map(PendingOutcome::wait).collect();
        outcomes.into_iter().collect()
    }
}

fn record(events: &Events, event: DdpEvent) {
    events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
}

/// Gradient of the last micro-batch of a step, which starts the reductions of complete buckets.
pub(crate) struct BucketReducer<'a, T: GradientElement> {
    group: &'a Group,
    gradient: &'a mut SharedBuffer<T>,
    accumulated: &'a BinaryCounter<T>,
    reducer: &'a mut Reducer,
    lanes: u64,
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
