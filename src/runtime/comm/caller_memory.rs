//! Operations of [`Group`] on memory of the caller, blocking and started.
//!
//! They are those of [`blocking`](super::blocking) and [`nonblocking`](super::nonblocking) for memory whose
//! element type is known at run time only. Memory of [`Group::alloc`] is used in place. The [`Work`] of a
//! started operation returns the description of the memory.

use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::ffi_memory::{OwnedMemory, RawSlice};
use crate::runtime::comm::core::operation::Operation;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::gather::Counts;
use crate::runtime::comm::host::region::{CallMemory, PostOp, SourceMemory};
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::ReduceOp;
use crate::runtime::dtype::with_type::with_type;

/// Body of an operation, which the backend runs on memory.
type RawOperation<M> =
    Box<dyn FnOnce(&mut HostBackend, &mut M) -> Result<(), CollectiveError> + Send>;

/// An operation that has not begun.
struct RawCall<M> {
    op: Operation,
    checked: Result<(), CollectiveError>,
    memory: M,
    run: RawOperation<M>,
}

impl<M: Send + 'static> RawCall<M> {
    fn new(
        op: Operation,
        checked: Result<(), CollectiveError>,
        memory: M,
        run: impl FnOnce(&mut HostBackend, &mut M) -> Result<(), CollectiveError> + Send + 'static,
    ) -> Self {
        Self { op, checked, memory, run: Box::new(run) }
    }

    fn start(self, group: &Group) -> Work<M> {
        group.start(self.op, self.checked, self.memory, self.run)
    }

    fn block(self, group: &Group) -> Result<(), CollectiveError> {
        let Self { checked, mut memory, run, .. } = self;
        checked?;
        group.run_blocking(|backend| run(backend, &mut memory))
    }
}

/// A pair of input and output.
type RawPair = (RawSlice, RawSlice);

/// Started operations on memory of the caller, described by [`RawSlice::new`], whose rules hold until the
/// [`Work`] has returned it.
impl Group {
    /// Starts an [`Self::all_reduce`] of memory of the caller.
    ///
    /// ```
    /// use remuda::runtime::{Dtype, Error, Group, RawSlice, ReduceOp};
    ///
    /// let results = Group::on_threads(2, |group| {
    ///     let mut values = vec![group.rank() as f32, 1.0];
    ///     let (pointer, count) = (values.as_mut_ptr().cast(), values.len());
    ///     // SAFETY: `values` is not used or dropped before `wait` returns.
    ///     let memory = unsafe { RawSlice::new(pointer, count, Dtype::F32) }.expect("aligned memory");
    ///     group.start_all_reduce_raw(memory, ReduceOp::Sum).wait()?;
    ///     Ok(values)
    /// })?;
    /// assert_eq!(results, [[1.0, 2.0]; 2]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn start_all_reduce_raw(&self, data: RawSlice, op: ReduceOp) -> Work<RawSlice> {
        all_reduce(data, op).start(self)
    }

    /// Starts a [`Self::reduce`] of memory of the caller.
    pub fn start_reduce_raw(&self, data: RawSlice, op: ReduceOp, root: usize) -> Work<RawSlice> {
        self.reduce_call(data, op, root).start(self)
    }

    /// Starts a [`Self::broadcast`] of memory of the caller.
    pub fn start_broadcast_raw(&self, data: RawSlice, root: usize) -> Work<RawSlice> {
        self.broadcast_call(data, root).start(self)
    }

    /// Starts an [`Self::all_gather`] of memory of the caller.
    pub fn start_all_gather_raw(
        &self,
        input: RawSlice,
        output: RawSlice,
    ) -> Work<(RawSlice, RawSlice)> {
        self.all_gather_call(input, output).start(self)
    }

    /// Starts a [`Self::reduce_scatter`] of memory of the caller.
    pub fn start_reduce_scatter_raw(
        &self,
        input: RawSlice,
        output: RawSlice,
        op: ReduceOp,
    ) -> Work<(RawSlice, RawSlice)> {
        self.reduce_scatter_call(input, output, op).start(self)
    }

    /// Starts a [`Self::gather`] of memory of the caller.
    pub fn start_gather_raw(
        &self,
        input: RawSlice,
        output: RawSlice,
        root: usize,
    ) -> Work<(RawSlice, RawSlice)> {
        self.gather_call(input, output, root).start(self)
    }

    /// Starts a [`Self::scatter`] of memory of the caller.
    pub fn start_scatter_raw(
        &self,
        input: RawSlice,
        output: RawSlice,
        root: usize,
    ) -> Work<(RawSlice, RawSlice)> {
        self.scatter_call(input, output, root).start(self)
    }

    /// Starts an [`Self::all_to_all_v`] of memory of the caller: `send_counts[r]` elements of `input` go to
    /// rank `r`, `recv_counts[r]` elements of `output` come from it.
    pub fn start_all_to_all_raw(
        &self,
        input: RawSlice,
        send_counts: Vec<usize>,
        output: RawSlice,
        recv_counts: Vec<usize>,
    ) -> Work<(RawSlice, RawSlice)> {
        self.all_to_all_call(input, send_counts, output, recv_counts).start(self)
    }

    /// Starts a [`Self::send`] of memory of the caller, which is only read; see [`Self::start_send`].
    pub fn start_send_raw(&self, values: RawSlice, to: usize) -> Work<RawSlice> {
        let checked = self.check_peer(Operation::Send, to);
        let sends = vec![values.alias()];
        let memory = OwnedMemory::of_caller(values, sends, Vec::new());
        self.start_messages(Operation::Send, checked, memory, &[to], &[])
    }

    /// Starts a [`Self::recv`] into memory of the caller; see [`Self::start_send`].
    pub fn start_recv_raw(&self, buffer: RawSlice, from: usize) -> Work<RawSlice> {
        let checked = self.check_peer(Operation::Recv, from);
        let recvs = vec![buffer.alias()];
        let memory = OwnedMemory::of_caller(buffer, Vec::new(), recvs);
        self.start_messages(Operation::Recv, checked, memory, &[], &[from])
    }

    /// Starts an [`Self::exchange`] of memory of the caller; see [`Self::start_exchange`].
    pub fn start_exchange_raw(
        &self,
        sends: Vec<(usize, RawSlice)>,
        recvs: Vec<(usize, RawSlice)>,
    ) -> Work<(Vec<RawSlice>, Vec<RawSlice>)> {
        let op = Operation::Exchange;
        let (to, values): (Vec<_>, Vec<_>) = sends.into_iter().unzip();
        let (from, buffers): (Vec<_>, Vec<_>) = recvs.into_iter().unzip();
        let checked = to.iter().chain(&from).try_for_each(|rank| self.check_rank(op, *rank));
        let aliases = |all: &[RawSlice]| all.iter().map(RawSlice::alias).collect();
        let (sends, recvs) = (aliases(&values), aliases(&buffers));
        let memory = OwnedMemory::of_caller((values, buffers), sends, recvs);
        self.start_messages(op, checked, memory, &to, &from)
    }
}

/// Blocking operations on memory of the caller, described by [`RawSlice::new`], whose rules hold until the call
/// returns.
impl Group {
    /// [`Self::all_reduce`] of memory of the caller.
    ///
    /// ```
    /// use remuda::runtime::{Dtype, Error, Group, RawSlice, ReduceOp};
    ///
    /// let results = Group::on_threads(2, |group| {
    ///     let mut values = vec![group.rank() as f64; 3];
    ///     let (pointer, count) = (values.as_mut_ptr().cast(), values.len());
    ///     // SAFETY: `values` is not used before the call returns.
    ///     let memory = unsafe { RawSlice::new(pointer, count, Dtype::F64) }.expect("aligned memory");
    ///     group.all_reduce_raw(memory, ReduceOp::Max)?;
    ///     Ok(values)
    /// })?;
    /// assert_eq!(results, [[1.0; 3]; 2]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn all_reduce_raw(&self, data: RawSlice, op: ReduceOp) -> Result<(), CollectiveError> {
        all_reduce(data, op).block(self)
    }

    /// [`Self::reduce`] of memory of the caller.
    pub fn reduce_raw(
        &self,
        data: RawSlice,
        op: ReduceOp,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.reduce_call(data, op, root).block(self)
    }

    /// [`Self::broadcast`] of memory of the caller.
    pub fn broadcast_raw(&self, data: RawSlice, root: usize) -> Result<(), CollectiveError> {
        self.broadcast_call(data, root).block(self)
    }

    /// [`Self::all_gather`] of memory of the caller.
    pub fn all_gather_raw(&self, input: RawSlice, output: RawSlice) -> Result<(), CollectiveError> {
        self.all_gather_call(input, output).block(self)
    }

    /// [`Self::reduce_scatter`] of memory of the caller.
    pub fn reduce_scatter_raw(
        &self,
        input: RawSlice,
        output: RawSlice,
        op: ReduceOp,
    ) -> Result<(), CollectiveError> {
        self.reduce_scatter_call(input, output, op).block(self)
    }

    /// [`Self::gather`] of memory of the caller.
    pub fn gather_raw(
        &self,
        input: RawSlice,
        output: RawSlice,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.gather_call(input, output, root).block(self)
    }

    /// [`Self::scatter`] of memory of the caller.
    pub fn scatter_raw(
        &self,
        input: RawSlice,
        output: RawSlice,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.scatter_call(input, output, root).block(self)
    }

    /// [`Self::all_to_all_v`] of memory of the caller.
    pub fn all_to_all_raw(
        &self,
        input: RawSlice,
        send_counts: Vec<usize>,
        output: RawSlice,
        recv_counts: Vec<usize>,
    ) -> Result<(), CollectiveError> {
        self.all_to_all_call(input, send_counts, output, recv_counts).block(self)
    }

    /// [`Self::send`] of memory of the caller, which is only read.
    pub fn send_raw(&self, values: &RawSlice, to: usize) -> Result<(), CollectiveError> {
        with_type!(values.dtype(), T => self.send(values.as_slice::<T>(), to))
    }

    /// [`Self::recv`] into memory of the caller.
    pub fn recv_raw(&self, mut buffer: RawSlice, from: usize) -> Result<(), CollectiveError> {
        with_type!(buffer.dtype(), T => self.recv(buffer.as_slice_mut::<T>(), from))
    }
}

/// The operations themselves.
impl Group {
    fn reduce_call(&self, data: RawSlice, op: ReduceOp, root: usize) -> RawCall<RawSlice> {
        let checked = self.check_rank(Operation::Reduce, root);
        RawCall::new(Operation::Reduce, checked, data, move |backend, data| {
            with_type!(data.dtype(), T => {
                let data = CallMemory::<T>::of_caller(data.as_slice_mut(), &backend.node.segment);
                backend.reduce(data, op, root)
            })
        })
    }

    fn broadcast_call(&self, data: RawSlice, root: usize) -> RawCall<RawSlice> {
        let checked = self.check_rank(Operation::Broadcast, root);
        RawCall::new(Operation::Broadcast, checked, data, move |backend, data| {
            with_type!(data.dtype(), T => {
                let data = CallMemory::<T>::of_caller(data.as_slice_mut(), &backend.node.segment);
                backend.broadcast(data, root)
            })
        })
    }

    fn all_gather_call(&self, input: RawSlice, output: RawSlice) -> RawCall<RawPair> {
        let op = Operation::AllGather;
        let checked = self
            .check_types(op, &input, &output)
            .and_then(|()| self.check_parts(op, output.count(), input.count()));
        RawCall::new(op, checked, (input, output), |backend, (input, output)| {
            with_type!(input.dtype(), T => {
                let segment = &backend.node.segment;
                let input = SourceMemory::<T>::of_caller(input.as_slice(), segment);
                let output = CallMemory::of_caller(output.as_slice_mut(), segment);
                backend.all_gather(input, output)
            })
        })
    }

    fn reduce_scatter_call(
        &self,
        input: RawSlice,
        output: RawSlice,
        op: ReduceOp,
    ) -> RawCall<RawPair> {
        let operation = Operation::ReduceScatter;
        let checked = self
            .check_types(operation, &input, &output)
            .and_then(|()| self.check_parts(operation, input.count(), output.count()));
        RawCall::new(operation, checked, (input, output), move |backend, (input, output)| {
            with_type!(input.dtype(), T => {
                let segment = &backend.node.segment;
                let input = SourceMemory::<T>::of_caller(input.as_slice(), segment);
                let output = CallMemory::of_caller(output.as_slice_mut(), segment);
                backend.reduce_scatter(input, output, op, PostOp::Keep)
            })
        })
    }

    fn gather_call(&self, input: RawSlice, output: RawSlice, root: usize) -> RawCall<RawPair> {
        let op = Operation::Gather;
        let checked = self
            .check_types(op, &input, &output)
            .and_then(|()| self.check_root_parts(op, output.count(), input.count(), root));
        RawCall::new(op, checked, (input, output), move |backend, (input, output)| {
            with_type!(input.dtype(), T => {
                backend.gather::<T>(input.as_slice(), output.as_slice_mut(), root)
            })
        })
    }

    fn scatter_call(&self, input: RawSlice, output: RawSlice, root: usize) -> RawCall<RawPair> {
        let op = Operation::Scatter;
        let checked = self
            .check_types(op, &input, &output)
            .and_then(|()| self.check_root_parts(op, input.count(), output.count(), root));
        RawCall::new(op, checked, (input, output), move |backend, (input, output)| {
            with_type!(input.dtype(), T => {
                backend.scatter::<T>(input.as_slice(), output.as_slice_mut(), root)
            })
        })
    }

    fn all_to_all_call(
        &self,
        input: RawSlice,
        send_counts: Vec<usize>,
        output: RawSlice,
        recv_counts: Vec<usize>,
    ) -> RawCall<RawPair> {
        let op = Operation::AllToAll;
        let checked = self
            .check_types(op, &input, &output)
            .and_then(|()| self.check_counts(input.count(), &send_counts))
            .and_then(|()| self.check_counts(output.count(), &recv_counts));
        RawCall::new(op, checked, (input, output), move |backend, (input, output)| {
            let counts = Counts::Given { send: &send_counts, recv: &recv_counts };
            with_type!(input.dtype(), T => {
                backend.all_to_all::<T>(input.as_slice(), output.as_slice_mut(), counts)
            })
        })
    }

    /// Checks that input and output have one element type.
    fn check_types(
        &self,
        op: Operation,
        input: &RawSlice,
        output: &RawSlice,
    ) -> Result<(), CollectiveError> {
        let (from, to) = (input.dtype(), output.dtype());
        if from == to {
            return Ok(());
        }
        let problem = format!("the input has elements of type {from}, the output of type {to}");
        Err(self.bad_argument(op, problem))
    }
}

fn all_reduce(data: RawSlice, op: ReduceOp) -> RawCall<RawSlice> {
    RawCall::new(Operation::AllReduce, Ok(()), data, move |backend, data| {
        with_type!(data.dtype(), T => {
            let data = CallMemory::<T>::of_caller(data.as_slice_mut(), &backend.node.segment);
            backend.all_reduce(data, op, PostOp::Keep)
        })
    })
}
