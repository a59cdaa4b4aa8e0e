//! Reduction of lanes of which ranks have several: through host memory, because NCCL has no such operation.

use crate::runtime::comm::core::operation::DividedReduction;
use crate::runtime::comm::device::active::ActiveBackend;
use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::comm::device::memory::LentDevice;
use crate::runtime::comm::device::pending::is_complete;
use crate::runtime::comm::device::wait::{DeviceDeadline, OperationFailure, nccl_timeout_message};
use crate::runtime::schedule::tree::Lanes;

/// Reduces pieces like [`Group`](crate::runtime::Group); the operation has ended on this rank when it returns.
pub(super) fn reduce_scatter_of_pieces<T: DeviceElement>(
    backend: &ActiveBackend,
    (pieces, output): (&[LentDevice<T>], &mut LentDevice<T>),
    (lanes, reduction): (Lanes, DividedReduction),
    deadline: &DeviceDeadline<'_>,
) -> Result<(), OperationFailure> {
    let DeviceDeadline { group, stream, .. } = deadline;
    // A copy to pageable memory blocks until the stream has reached it, without a deadline: earlier operations
    // of the stream are waited for first.
    let earlier = stream.record_event(None)?;
    deadline.wait(&mut || is_complete(&earlier, Some(backend)), nccl_timeout_message)?;
    let zeros = |elements: usize| vec![bytemuck::Zeroable::zeroed(); elements];
    let mut copies: Vec<Vec<T>> = pieces.iter().map(|piece| zeros(piece.elements())).collect();
    for (piece, copy) in pieces.iter().zip(&mut copies) {
        stream.memcpy_dtoh(piece, copy)?;
    }
    stream.synchronize()?;
    let mut own_part: Vec<T> = zeros(output.elements());
    let copies: Vec<&[T]> = copies.iter().map(Vec::as_slice).collect();
    group.run_blocking(|host| {
        host.reduce_scatter_of_pieces(&copies, &mut own_part, lanes, reduction)
    })?;
    stream.memcpy_htod(&own_part, output)?;
    Ok(stream.synchronize()?)
}
