//! Collective operations on memory of devices: what their ranks compare, and how the backends run them.

use std::sync::Arc;

use cudarc::driver::CudaStream;

use crate::cuda::nccl::{Communicator, PeerSlice};
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::operation::{DividedReduction, Operation, OperationCall};
use crate::runtime::comm::device::active::ActiveBackend;
use crate::runtime::comm::device::nccl::Nccl;
use crate::runtime::comm::device::operand::DeviceOperand;
use crate::runtime::comm::device::staged::Staged;
use crate::runtime::comm::device::wait::{DeviceDeadline, OperationFailure};
use crate::runtime::comm::group::Group;
use crate::runtime::dtype::element::ReduceOp;
use crate::runtime::schedule::device_slices::Goal;

/// A collective operation; those in place use the output only. See the methods of
/// [`DeviceGroup`](super::DeviceGroup) with their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the arguments of the methods")]
pub enum DeviceCollective {
    /// In place.
    AllReduce { op: ReduceOp },
    /// In place.
    Reduce { op: ReduceOp, root: usize },
    /// In place.
    Broadcast { root: usize },
    /// From input to output.
    AllGather,
    /// From input to output.
    ReduceScatter { op: ReduceOp },
    /// From input to output.
    Gather { root: usize },
    /// From input to output.
    Scatter { root: usize },
    /// From input to output.
    AllToAll,
    /// From input to output.
    SendRecv { to: usize, from: usize },
}

/// Input and output of an operation.
pub(super) struct OperandPair<'a> {
    pub(super) input: &'a mut dyn DeviceOperand,
    pub(super) output: &'a mut dyn DeviceOperand,
}

impl DeviceCollective {
    /// What the ranks compare, for memory with these numbers of elements.
    pub(super) fn call(
        self,
        group: &Group,
        [input, output]: [usize; 2],
    ) -> Result<OperationCall, CollectiveError> {
        let of_root =
            |op, count, root| OperationCall { root: Some(root), ..OperationCall::new(op, count) };
        let reducing = |op, call| OperationCall { reduce: op, ..call };
        Ok(match self {
            Self::AllReduce { op } => {
                reducing(op, OperationCall::new(Operation::AllReduce, output))
            }
            Self::Reduce { op, root } => {
                group.check_rank(Operation::Reduce, root)?;
                reducing(op, of_root(Operation::Reduce, output, root))
            }
            Self::Broadcast { root } => {
                group.check_rank(Operation::Broadcast, root)?;
                of_root(Operation::Broadcast, output, root)
            }
            Self::AllGather => {
                group.check_parts(Operation::AllGather, output, input)?;
                OperationCall::new(Operation::AllGather, input)
            }
            Self::ReduceScatter { op } => {
                group.check_parts(Operation::ReduceScatter, input, output)?;
                reducing(op, OperationCall::new(Operation::ReduceScatter, input))
            }
            Self::Gather { root } => {
                group.check_root_parts(Operation::Gather, output, input, root)?;
                of_root(Operation::Gather, input, root)
            }
            Self::Scatter { root } => {
                group.check_root_parts(Operation::Scatter, input, output, root)?;
                of_root(Operation::Scatter, output, root)
            }
            Self::AllToAll => {
                let part = input / group.world_size();
                group.check_parts(Operation::AllToAll, input, part)?;
                group.check_parts(Operation::AllToAll, output, part)?;
                let call = OperationCall::new(Operation::AllToAll, input);
                OperationCall { received: input - part, ..call }
            }
            Self::SendRecv { to, from } => {
                group.check_rank(Operation::SendRecv, to)?;
                group.check_rank(Operation::SendRecv, from)?;
                let received = if from == group.rank() { 0 } else { output };
                let call = OperationCall::new(Operation::SendRecv, input.max(output));
                OperationCall { received, ..call }
            }
        })
    }

    /// Enqueues it on a backend; through host memory, it has ended then.
    pub(super) fn enqueue(
        self,
        backend: &mut ActiveBackend,
        operands: OperandPair<'_>,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        match backend {
            ActiveBackend::Nccl(nccl) => self.enqueue_on_nccl(nccl, operands, deadline),
            ActiveBackend::Staged(staged) => self.run_staged(staged, operands, deadline),
        }
    }

    fn enqueue_on_nccl(
        self,
        nccl: &mut Nccl,
        OperandPair { input, output }: OperandPair<'_>,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let (communicator, stream) = (&mut nccl.communicator, deadline.stream);
        let (rank, world) = deadline.ranks();
        let (sent, received) = (input.count(), output.count());
        let at_root = |root: usize, part: usize| {
            if root == rank { parts(world, part) } else { Vec::new() }
        };
        match self {
            Self::AllReduce { op } => nccl.reduce(output, op, Goal::All, deadline),
            Self::Reduce { op, root } => nccl.reduce(output, op, Goal::Root(root), deadline),
            Self::Broadcast { root } => nccl.broadcast(output, root, deadline),
            Self::AllGather => nccl.all_gather(input, output, deadline),
            Self::ReduceScatter { op } => nccl.reduce_scatter(input, output, op, deadline),
            Self::Gather { root } => {
                let recvs = at_root(root, sent);
                exchange(communicator, (input, &[(root, 0..sent)]), (output, &recvs), stream)
            }
            Self::Scatter { root } => {
                let sends = at_root(root, received);
                exchange(communicator, (input, &sends), (output, &[(root, 0..received)]), stream)
            }
            Self::AllToAll => {
                let parts = parts(world, sent / world);
                exchange(communicator, (input, &parts), (output, &parts), stream)
            }
            Self::SendRecv { to, from } => {
                let (sends, recvs) = ([(to, 0..sent)], [(from, 0..received)]);
                exchange(communicator, (input, &sends), (output, &recvs), stream)
            }
        }
    }

    fn run_staged(
        self,
        staged: &mut Staged,
        OperandPair { input, output }: OperandPair<'_>,
        deadline: &DeviceDeadline<'_>,
    ) -> Result<(), OperationFailure> {
        let undivided = |op| DividedReduction { op, divisor: 1 };
        match self {
            Self::AllReduce { op } => staged.all_reduce(output, undivided(op), deadline),
            Self::Reduce { op, root } => staged.reduce(output, op, root, deadline),
            Self::Broadcast { root } => staged.broadcast(output, root, deadline),
            Self::AllGather => staged.all_gather(input, output, deadline),
            Self::ReduceScatter { op } => {
                staged.reduce_scatter(input, output, undivided(op), deadline)
            }
            Self::Gather { root } => staged.gather(input, output, root, deadline),
            Self::Scatter { root } => staged.scatter(input, output, root, deadline),
            Self::AllToAll => staged.all_to_all(input, output, deadline),
            Self::SendRecv { to, from } => staged.send_recv((input, to), (output, from), deadline),
        }
    }
}

/// One part of `len` elements for every rank.
fn parts(world: usize, len: usize) -> Vec<PeerSlice> {
    (0..world).map(|rank| (rank, rank * len..(rank + 1) * len)).collect()
}

fn exchange(
    communicator: &mut Communicator,
    (input, sends): (&mut dyn DeviceOperand, &[PeerSlice]),
    (output, recvs): (&mut dyn DeviceOperand, &[PeerSlice]),
    stream: &Arc<CudaStream>,
) -> Result<(), OperationFailure> {
    let (input, output) = (input.lease(stream), output.lease(stream));
    Ok(communicator.exchange((&input, sends), (&output, recvs), stream)?)
}
