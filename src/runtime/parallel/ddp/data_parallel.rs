//! [`DistributedDataParallel`]: micro-batches in, one mean gradient out.

use std::sync::PoisonError;

use sha2::Digest;

use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::operation::Operation;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::shm::buffer::SharedBuffer;
use crate::runtime::dtype::element::GradientElement;
use crate::runtime::error::Error;
use crate::runtime::flat::accumulate::BinaryCounter;
use crate::runtime::flat::buckets::{Bucket, buckets};
use crate::runtime::flat::layout::Layout;
use crate::runtime::parallel::ddp::gradients::{GradientTarget, Gradients};
use crate::runtime::parallel::ddp::reducer::{BucketReducer, DdpEvent, Reducer};

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
