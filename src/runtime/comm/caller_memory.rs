//! Started operations of [`Group`] on memory of the caller.
//!
//! They are those of [`nonblocking`](super::nonblocking) for memory whose element type is known at run time
//! only. The [`Work`] returns the description of the memory.

use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::ffi_memory::{OwnedMemory, RawSlice};
use crate::runtime::comm::core::operation::Operation;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::host::gather::Counts;
use crate::runtime::comm::host::region::{CallMemory, PostOp, SourceMemory};
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::{Dtype, ReduceOp};
use crate::runtime::dtype::half::{Bf16, F16};

/// Evaluates an expression with the element type `$type` of a [`Dtype`].
macro_rules! with_type {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            Dtype::F32 => {
                type $type = f32;
                $body
            }
            Dtype::F64 => {
                type $type = f64;
                $body
            }
            Dtype::I32 => {
                type $type = i32;
                $body
            }
            Dtype::I64 => {
                type $type = i64;
                $body
            }
            Dtype::U8 => {
                type $type = u8;
                $body
            }
            Dtype::F16 => {
                type $type = F16;
                $body
            }
            Dtype::Bf16 => {
                type $type = Bf16;
                $body
            }
        }
    };
}

/// Operations on memory of the caller, described by [`RawSlice::new`], whose rules hold until the [`Work`]
/// has returned it.
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
        self.start(Operation::AllReduce, Ok(()), data, move |backend, data| {
            with_type!(data.dtype(), T => {
                backend.all_reduce(CallMemory::<T>::Slice(data.as_slice_mut()), op, PostOp::Keep)
            })
        })
    }

    /// Starts a [`Self::reduce`] of memory of the caller.
    pub fn start_reduce_raw(&self, data: RawSlice, op: ReduceOp, root: usize) -> Work<RawSlice> {
        let checked = self.check_rank(Operation::Reduce, root);
        self.start(Operation::Reduce, checked, data, move |backend, data| {
            with_type!(data.dtype(), T => {
                backend.reduce(CallMemory::<T>::Slice(data.as_slice_mut()), op, root)
            })
        })
    }

    /// Starts a [`Self::broadcast`] of memory of the caller.
    pub fn start_broadcast_raw(&self, data: RawSlice, root: usize) -> Work<RawSlice> {
        let checked = self.check_rank(Operation::Broadcast, root);
        self.start(Operation::Broadcast, checked, data, move |backend, data| {
            with_type!(data.dtype(), T => {
                backend.broadcast(CallMemory::<T>::Slice(data.as_slice_mut()), root)
            })
        })
    }

    /// Starts an [`Self::all_gather`] of memory of the caller.
    pub fn start_all_gather_raw(
        &self,
        input: RawSlice,
        output: RawSlice,
    ) -> Work<(RawSlice, RawSlice)> {
        let op = Operation::AllGather;
        let checked = self
            .check_types(op, &input, &output)
            .and_then(|()| self.check_parts(op, output.count(), input.count()));
        self.start(op, checked, (input, output), |backend, (input, output)| {
            with_type!(input.dtype(), T => {
                let input = SourceMemory::Slice(input.as_slice::<T>());
                backend.all_gather(input, CallMemory::Slice(output.as_slice_mut()))
            })
        })
    }

    /// Starts a [`Self::reduce_scatter`] of memory of the caller.
    pub fn start_reduce_scatter_raw(
        &self,
        input: RawSlice,
        output: RawSlice,
        op: ReduceOp,
    ) -> Work<(RawSlice, RawSlice)> {
        let checked = self.check_types(Operation::ReduceScatter, &input, &output).and_then(|()| {
            self.check_parts(Operation::ReduceScatter, input.count(), output.count())
        });
        let memory = (input, output);
        self.start(Operation::ReduceScatter, checked, memory, move |backend, (input, output)| {
            with_type!(input.dtype(), T => {
                let input = SourceMemory::Slice(input.as_slice::<T>());
                backend.reduce_scatter(
                    input, CallMemory::Slice(output.as_slice_mut()), op, PostOp::Keep)
            })
        })
    }

    /// Starts a [`Self::gather`] of memory of the caller.
    pub fn start_gather_raw(
        &self,
        input: RawSlice,
        output: RawSlice,
        root: usize,
    ) -> Work<(RawSlice, RawSlice)> {
        let op = Operation::Gather;
        let checked = self
            .check_types(op, &input, &output)
            .and_then(|()| self.check_root_parts(op, output.count(), input.count(), root));
        self.start(op, checked, (input, output), move |backend, (input, output)| {
            with_type!(input.dtype(), T => {
                backend.gather::<T>(input.as_slice(), output.as_slice_mut(), root)
            })
        })
    }

    /// Starts a [`Self::scatter`] of memory of the caller.
    pub fn start_scatter_raw(
        &self,
        input: RawSlice,
        output: RawSlice,
        root: usize,
    ) -> Work<(RawSlice, RawSlice)> {
        let op = Operation::Scatter;
        let checked = self
            .check_types(op, &input, &output)
            .and_then(|()| self.check_root_parts(op, input.count(), output.count(), root));
        self.start(op, checked, (input, output), move |backend, (input, output)| {
            with_type!(input.dtype(), T => {
                backend.scatter::<T>(input.as_slice(), output.as_slice_mut(), root)
            })
        })
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
        let op = Operation::AllToAll;
        let checked = self
            .check_types(op, &input, &output)
            .and_then(|()| self.check_counts(input.count(), &send_counts))
            .and_then(|()| self.check_counts(output.count(), &recv_counts));
        self.start(op, checked, (input, output), move |backend, (input, output)| {
            let counts = Counts::Given { send: &send_counts, recv: &recv_counts };
            with_type!(input.dtype(), T => {
                backend.all_to_all::<T>(input.as_slice(), output.as_slice_mut(), counts)
            })
        })
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
