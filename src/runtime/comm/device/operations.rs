//! Blocking operations of a [`DeviceGroup`].

use cudarc::driver::{DevicePtr, DevicePtrMut};

use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::operation::OperationCall;
use crate::runtime::comm::device::collective::{DeviceCollective, OperandPair};
use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::comm::device::ffi_caller::CallerMemory;
use crate::runtime::comm::device::group::DeviceGroup;
use crate::runtime::comm::device::operand::{NoOperand, read, written};
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::dtype::element::ReduceOp;

impl DeviceGroup {
    /// See [`Group::all_reduce`](crate::runtime::Group::all_reduce). NCCL sums in its own order unless
    /// [`Self::in_canonical_order`] was called.
    pub fn all_reduce<T: DeviceElement>(
        &self,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
    ) -> Result<(), CollectiveError> {
        self.run_in_place(DeviceCollective::AllReduce { op }, data)
    }

    /// See [`Group::reduce`](crate::runtime::Group::reduce).
    pub fn reduce<T: DeviceElement>(
        &self,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.run_in_place(DeviceCollective::Reduce { op, root }, data)
    }

    /// See [`Group::broadcast`](crate::runtime::Group::broadcast).
    pub fn broadcast<T: DeviceElement>(
        &self,
        data: &mut impl DevicePtrMut<T>,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.run_in_place(DeviceCollective::Broadcast { root }, data)
    }

    /// See [`Group::all_gather`](crate::runtime::Group::all_gather).
    pub fn all_gather<T: DeviceElement>(
        &self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
    ) -> Result<(), CollectiveError> {
        self.run_out_of_place(DeviceCollective::AllGather, input, output)
    }

    /// See [`Group::reduce_scatter`](crate::runtime::Group::reduce_scatter).
    pub fn reduce_scatter<T: DeviceElement>(
        &self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
    ) -> Result<(), CollectiveError> {
        self.run_out_of_place(DeviceCollective::ReduceScatter { op }, input, output)
    }

    /// See [`Group::gather`](crate::runtime::Group::gather); `output` is ignored on all ranks except the root.
    pub fn gather<T: DeviceElement>(
        &self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.run_out_of_place(DeviceCollective::Gather { root }, input, output)
    }

    /// See [`Group::scatter`](crate::runtime::Group::scatter); `input` is ignored on all ranks except the root.
    pub fn scatter<T: DeviceElement>(
        &self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.run_out_of_place(DeviceCollective::Scatter { root }, input, output)
    }

    /// See [`Group::all_to_all`](crate::runtime::Group::all_to_all).
    pub fn all_to_all<T: DeviceElement>(
        &self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
    ) -> Result<(), CollectiveError> {
        self.run_out_of_place(DeviceCollective::AllToAll, input, output)
    }

    /// See [`Group::send_recv`](crate::runtime::Group::send_recv): sends `input` to rank `to` and receives `output` from
    /// rank `from`. Here, every rank of the group must call it at the same time.
    pub fn send_recv<T: DeviceElement>(
        &self,
        input: &impl DevicePtr<T>,
        to: usize,
        output: &mut impl DevicePtrMut<T>,
        from: usize,
    ) -> Result<(), CollectiveError> {
        self.run_out_of_place(DeviceCollective::SendRecv { to, from }, input, output)
    }

    /// Runs an operation on memory whose element type is known at run time. One in place uses `output` only.
    pub fn run(
        &self,
        collective: DeviceCollective,
        input: &mut CallerMemory<'_>,
        output: &mut CallerMemory<'_>,
    ) -> Result<(), CollectiveError> {
        self.run_on(collective, OperandPair { input, output })
    }

    fn run_in_place<T: DeviceElement>(
        &self,
        collective: DeviceCollective,
        data: &mut impl DevicePtrMut<T>,
    ) -> Result<(), CollectiveError> {
        let operands = OperandPair { input: &mut NoOperand(T::DTYPE), output: &mut written(data) };
        self.run_on(collective, operands)
    }

    fn run_out_of_place<T: DeviceElement>(
        &self,
        collective: DeviceCollective,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
    ) -> Result<(), CollectiveError> {
        let operands = OperandPair { input: &mut read(input), output: &mut written(output) };
        self.run_on(collective, operands)
    }

    /// Compares the calls of all ranks and performs the operation. A failure aborts the group.
    fn run_on(
        &self,
        collective: DeviceCollective,
        operands: OperandPair<'_>,
    ) -> Result<(), CollectiveError> {
        let OperandPair { input, output } = operands;
        let (counts, dtype) = ([input.count(), output.count()], output.dtype());
        let call = collective.call(self.group(), counts)?;
        let compare = Box::new(move |host: &mut HostBackend, call: OperationCall, deadline| {
            host.sync_round(call, dtype, deadline)
        });
        self.run_with(call, dtype, compare, &mut |backend, deadline| {
            let operands = OperandPair { input: &mut *input, output: &mut *output };
            collective.enqueue(backend, operands, deadline)
        })
    }
}
