//! [`DistributedDataParallel`]: micro-batches in, one mean gradient out.

use sha2::Digest;

use crate::base::lock;
use crate::runtime::comm::collectives::{
    GradientCollectives, HostMemory, Plan, PlanDigest, StepCheck,
};
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{DividedReduction, Operation};
use crate::runtime::comm::group::Group;
use crate::runtime::comm::group::PANICKED;
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
pub struct DistributedDataParallel<T: GradientElement, C: GradientCollectives<T> = Group> {
    collectives: C,
    options: DdpOptions,
    plan: Plan,
    step_check: Option<StepCheck>,
    /// The last micro-batch's gradient, then the sum, then the mean.
    gradient: C::Buffer,
    accumulated: BinaryCounter<C::Scratch>,
    reducer: Reducer<T, C>,
    micro_batches: usize,
    len: usize,
}

impl<T: GradientElement, C: GradientCollectives<T>> DistributedDataParallel<T, C> {
    /// Checks that all ranks agree on layout and options, and allocates the gradient. `collectives` is a
    /// [`Group`], or a group of devices for gradients in their memory.
    ///
    /// # Errors
    /// If layout or options of a rank differ, or there is not enough memory.
    pub fn new(collectives: &C, layout: &Layout, options: DdpOptions) -> Result<Self, Error> {
        if options.accumulate == 0 {
            return Err(Error::BadArgument("`accumulate` must be at least 1".to_owned()));
        }
        let digest = digest::<T>(layout, options);
        let plan = Plan::agree(collectives.as_ref(), digest, "layout or options")?;
        let lanes = (collectives.as_ref().world_size() * options.accumulate) as u64;
        collectives.prepare(DividedReduction::mean_of(lanes), 1 < options.accumulate)?;
        let buckets =
            buckets(layout, size_of::<T>(), options.first_bucket_bytes, options.bucket_bytes);
        Ok(Self {
            collectives: collectives.clone(),
            options,
            plan,
            step_check: None,
            gradient: collectives.alloc_shared(layout.len())?,
            accumulated: BinaryCounter::new(),
            reducer: Reducer::new(buckets),
            micro_batches: 0,
            len: layout.len(),
        })
    }

    fn group(&self) -> &Group {
        self.collectives.as_ref()
    }

    /// Copies the parameters of rank 0, in host memory, to every rank. Parameters on devices are copied by the
    /// group of the devices.
    pub fn broadcast_params(&self, params: &mut [T]) -> Result<(), CollectiveError> {
        self.group().broadcast(params, 0)
    }

    /// Runs the backward pass of one micro-batch on a gradient of zeros; the gradients of earlier
    /// micro-batches are added afterwards. Returns the result of the closure.
    ///
    /// # Errors
    /// [`Cause::Argument`] if the step already has all its micro-batches; the closure is not called then. Else
    /// if the group has failed, or the memory or the device of this rank fails, which aborts the group.
    pub fn micro_batch<V>(
        &mut self,
        backward: impl FnOnce(&mut Gradients<'_, T, C>) -> V,
    ) -> Result<V, CollectiveError> {
        let all = self.options.accumulate;
        if self.micro_batches == all {
            return Err(self.out_of_order(format!("call `reduce` after {all} micro-batches")));
        }
        // If the group has failed, a late peer may still write into the gradient.
        self.group().check_abort(Operation::AllReduce)?;
        self.micro_batches += 1;
        if self.micro_batches < all {
            return self.accumulate(backward);
        }
        self.reducer.start_step();
        self.plan.begin_step();
        if 1 < self.group().world_size() {
            self.step_check = self.collectives.submit_step_check(&self.plan);
        }
        let zeroed = self.collectives.zero(&mut self.gradient, &(0..self.len));
        zeroed.map_err(|error| self.fail(&error))?;
        let lanes = (self.group().world_size() * all) as u64;
        let reducer = BucketReducer {
            collectives: &self.collectives,
            gradient: &mut self.gradient,
            accumulated: &self.accumulated,
            reducer: &mut self.reducer,
            lanes,
        };
        let mut gradients = Gradients::new(GradientTarget::Shared(reducer), self.len);
        let value = backward(&mut gradients);
        gradients.finish().map_err(|error| self.fail(&error))?;
        Ok(value)
    }

    /// Runs the backward pass of an additional micro-batch that the step does not count: its gradient is
    /// kept on this rank and added to the next gradient that is reduced. It does not change the divisor of
    /// the mean, as in torch's `no_sync`.
    ///
    /// # Errors
    /// If there is no memory for the gradient.
    pub fn no_sync<V>(
        &mut self,
        backward: impl FnOnce(&mut Gradients<'_, T, C>) -> V,
    ) -> Result<V, CollectiveError> {
        self.accumulate(backward)
    }

    fn accumulate<V>(
        &mut self,
        backward: impl FnOnce(&mut Gradients<'_, T, C>) -> V,
    ) -> Result<V, CollectiveError> {
        let gradient = match self.accumulated.take_spare() {
            Some(mut spare) => self.collectives.zero_scratch(&mut spare).map(|()| spare),
            None => self.collectives.alloc_scratch(self.len),
        };
        let mut gradient = gradient.map_err(|error| self.fail(&error))?;
        let mut gradients = Gradients::new(GradientTarget::Private(&mut gradient), self.len);
        let value = backward(&mut gradients);
        let collectives = &self.collectives;
        let add =
            |older: &C::Scratch, newer: &mut C::Scratch| collectives.add_scratch(older, newer);
        self.accumulated.try_push(gradient, add).map_err(|error| self.fail(&error))?;
        Ok(value)
    }

    /// The memory or the device of this rank failed: the step cannot be completed, so the group is aborted.
    fn fail(&self, error: &Error) -> CollectiveError {
        self.group().abort(&error.to_string());
        self.group().rejected(Operation::AllReduce, Cause::System(error.to_string()))
    }

    /// Waits for all buckets; the gradient is then the mean over all lanes of the step, which is the same
    /// on every rank.
    ///
    /// # Errors
    /// [`Cause::Argument`] if micro-batches of the step are missing; the step can continue with them. Else if a
    /// rank is in another step or has failed.
    pub fn finish_step(&mut self) -> Result<&mut C::Buffer, CollectiveError> {
        let all = self.options.accumulate;
        let done = self.micro_batches;
        if done != all {
            let problem = format!("`reduce` was called after {done} of {all} micro-batches");
            return Err(self.out_of_order(problem));
        }
        self.micro_batches = 0;
        // A rank in another step would never complete the buckets; this names it.
        let step = self.step_check.take().map_or(Ok(()), StepCheck::wait);
        let buckets = self.reducer.wait(&mut self.gradient);
        self.accumulated.clear();
        step.and(buckets)?;
        Ok(&mut self.gradient)
    }

    /// The error of a call that does not follow the order of a step; nothing has happened.
    fn out_of_order(&self, problem: String) -> CollectiveError {
        self.group().rejected(Operation::AllReduce, Cause::Argument(problem))
    }

    /// Returns the buckets in the order in which they are reduced.
    pub fn buckets(&self) -> &[Bucket] {
        &self.reducer.buckets
    }

    /// Returns the events since the start of the step's last micro-batch, in order.
    pub fn events(&self) -> Vec<DdpEvent> {
        lock(&self.reducer.events).clone()
    }
}

impl<T: GradientElement, C: GradientCollectives<T>> DistributedDataParallel<T, C>
where
    C::Buffer: HostMemory<T>,
{
    /// Calls [`Self::finish_step`] and returns the mean gradient. The rank can change the slice until the next
    /// micro-batch, for example to clip it.
    ///
    /// # Errors
    /// As [`Self::finish_step`].
    pub fn reduce(&mut self) -> Result<&mut [T], CollectiveError> {
        let len = self.len;
        Ok(self.finish_step()?.slice_mut(&(0..len)))
    }
}

impl<T: GradientElement, C: GradientCollectives<T>> Drop for DistributedDataParallel<T, C> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The other ranks would wait for buckets that are never reduced.
            self.group().abort(PANICKED);
        }
        // Peers still read and write the gradient until the last bucket is done; an error has
        // no caller to be returned to.
        let _ = self.reducer.wait(&mut self.gradient);
    }
}

/// Digest of what must be equal on all ranks; otherwise they would add unrelated data, or hang.
fn digest<T: GradientElement>(layout: &Layout, options: DdpOptions) -> PlanDigest {
    let mut digest = layout.digest();
    let DdpOptions { accumulate, first_bucket_bytes, bucket_bytes } = options;
    for number in [accumulate, first_bucket_bytes, bucket_bytes, size_of::<T>()] {
        digest.update((number as u64).to_le_bytes());
    }
    digest.finalize().into()
}
