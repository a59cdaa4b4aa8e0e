//! Messages on the caller's memory of devices: several to ranks and from ranks at once.
//!
//! The two ranks of every message compare its type and length, as host messages, while NCCL or the host moves it.

use cudarc::driver::{CudaStream, result};

use crate::base::Rank;
use crate::cuda::device::{DeviceAddress, PeerMemory};
use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::fingerprint::{Fingerprint, compare_calls};
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::device::active::ActiveBackend;
use crate::runtime::comm::device::ffi_caller::CallerStream;
use crate::runtime::comm::device::group::DeviceGroup;
use crate::runtime::comm::device::pending::is_complete;
use crate::runtime::comm::device::wait::{DeviceDeadline, OperationFailure, nccl_timeout_message};
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::p2p::{RecvBuf, SendBuf};
use crate::runtime::dtype::element::{Dtype, ReduceOp, ReduceOrder};

/// Elements on a device that are sent to a rank, or received from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMessage {
    /// The other rank in the group.
    pub peer: usize,
    /// Address of the first element.
    pub address: u64,
    /// Number of elements.
    pub count: usize,
    /// Element type.
    pub dtype: Dtype,
}

impl DeviceMessage {
    fn bytes(&self) -> usize {
        self.count * self.dtype.bytes()
    }

    fn memory(&self) -> PeerMemory {
        PeerMemory { peer: self.peer, at: DeviceAddress(self.address), bytes: self.bytes() }
    }

    /// What both ranks of a message write about it.
    fn fingerprint(&self, number: usize) -> Fingerprint {
        Fingerprint {
            op: Operation::Send,
            dtype: self.dtype,
            reduce: ReduceOp::Sum,
            order: ReduceOrder::Canonical,
            root: Rank(0),
            count: self.count as u64,
            seq: number as u64 + 1,
        }
    }
}

impl DeviceGroup {
    /// Sends and receives several messages at the same time, so that ranks cannot wait for each other in a cycle. The
    /// messages of two ranks stay in order.
    ///
    /// # Safety
    /// Until the operation has ended, the elements of all messages are on the device of the group, and no other code uses
    /// them, except for work that the stream had when it was recorded.
    pub unsafe fn exchange(
        &self,
        sends: &[DeviceMessage],
        recvs: &[DeviceMessage],
        after: &CallerStream,
    ) -> Result<(), CollectiveError> {
        let group = self.group();
        let op = match (sends, recvs) {
            ([_], []) => Operation::Send,
            ([], [_]) => Operation::Recv,
            _ => Operation::Exchange,
        };
        let all = || sends.iter().chain(recvs);
        all().try_for_each(|message| group.check_rank(op, message.peer))?;
        let from_others = recvs.iter().filter(|message| message.peer != group.rank());
        let received = from_others.map(DeviceMessage::bytes).sum();
        let bytes = all().map(DeviceMessage::bytes).sum();
        let call = OperationCall { received, ..OperationCall::new(op, bytes) };
        let compared = (sends.to_vec(), recvs.to_vec());
        let compare = move |host: &mut HostBackend, _: OperationCall, deadline| {
            compare_messages(host, (&compared.0, &compared.1), deadline)
        };
        self.run_with(call, Dtype::U8, Box::new(compare), &mut |backend, deadline| {
            after.order(deadline.stream);
            match backend {
                ActiveBackend::Nccl(nccl) => {
                    let memory = |messages: &[DeviceMessage]| -> Vec<PeerMemory> {
                        messages.iter().map(DeviceMessage::memory).collect()
                    };
                    let communicator = &mut nccl.communicator;
                    Ok(communicator.exchange_on(&memory(sends), &memory(recvs), deadline.stream)?)
                }
                ActiveBackend::Staged(_) => exchange_staged((sends, recvs), backend, deadline),
            }
        })
    }
}

/// Messages in rounds with at most one for every rank: the first ones, then the second ones.
fn rounds(messages: &[DeviceMessage]) -> Vec<Vec<DeviceMessage>> {
    let mut rounds: Vec<Vec<DeviceMessage>> = Vec::new();
    for message in messages {
        let has_peer = |round: &Vec<DeviceMessage>| round.iter().any(|m| m.peer == message.peer);
        match rounds.iter_mut().find(|round| !has_peer(round)) {
            Some(round) => round.push(*message),
            None => rounds.push(vec![*message]),
        }
    }
    rounds
}

/// Rounds of sends and receives.
fn paired_rounds(
    (sends, recvs): (&[DeviceMessage], &[DeviceMessage]),
) -> Vec<(Vec<DeviceMessage>, Vec<DeviceMessage>)> {
    let (mut sends, mut recvs) = (rounds(sends), rounds(recvs));
    let count = sends.len().max(recvs.len());
    sends.resize_with(count, Vec::new);
    recvs.resize_with(count, Vec::new);
    sends.into_iter().zip(recvs).collect()
}

/// Sends what this rank calls to the receivers of its messages, and compares what their senders call.
fn compare_messages(
    host: &mut HostBackend,
    messages: (&[DeviceMessage], &[DeviceMessage]),
    deadline: Deadline,
) -> Result<(), Cause> {
    for (number, (sends, recvs)) in paired_rounds(messages).into_iter().enumerate() {
        let words =
            |message: &DeviceMessage| message.fingerprint(number).encode().map(u64::cast_signed);
        let sent: Vec<[i64; 3]> = sends.iter().map(words).collect();
        let mut received = vec![[0; 3]; recvs.len()];
        let bufs = sends.iter().zip(&sent).map(|(send, values)| SendBuf { to: send.peer, values });
        let bufs: Vec<SendBuf<'_, i64>> = bufs.collect();
        let slots = recvs.iter().zip(&mut received);
        let slots = slots.map(|(recv, values)| RecvBuf { from: recv.peer, values });
        let mut slots: Vec<RecvBuf<'_, i64>> = slots.collect();
        host.transfer(Operation::Send, &bufs, &mut slots, deadline)?;
        for (recv, words) in recvs.iter().zip(received) {
            let peer = || host.roster.job_rank(recv.peer);
            compare_calls(recv.fingerprint(number), peer, words.map(i64::cast_unsigned))?;
        }
    }
    Ok(())
}

/// Moves messages through host memory of their size.
fn exchange_staged(
    messages: (&[DeviceMessage], &[DeviceMessage]),
    backend: &ActiveBackend,
    deadline: &DeviceDeadline<'_>,
) -> Result<(), OperationFailure> {
    let DeviceDeadline { group, stream, .. } = deadline;
    // A copy to pageable memory blocks until the stream has reached it, without a deadline.
    let earlier = stream.record_event(None)?;
    deadline.wait(&mut || is_complete(&earlier, Some(backend)), nccl_timeout_message)?;
    for (sends, recvs) in paired_rounds(messages) {
        let sent: Vec<Vec<u8>> =
            sends.iter().map(|send| copy_to_host(send, stream)).collect::<Result<_, _>>()?;
        let mut received: Vec<Vec<u8>> = recvs.iter().map(|recv| vec![0; recv.bytes()]).collect();
        let bufs = sends.iter().zip(&sent).map(|(send, bytes)| (send.peer, &bytes[..]));
        let bufs: Vec<(usize, &[u8])> = bufs.collect();
        let slots = recvs.iter().zip(&mut received);
        group.exchange(&bufs, slots.map(|(recv, bytes)| (recv.peer, &mut bytes[..])).collect())?;
        for (recv, bytes) in recvs.iter().zip(&received) {
            copy_to_device(bytes, recv, stream)?;
        }
    }
    Ok(())
}

fn copy_to_host(message: &DeviceMessage, stream: &CudaStream) -> Result<Vec<u8>, OperationFailure> {
    let mut bytes = vec![0u8; message.bytes()];
    if !bytes.is_empty() {
        // SAFETY: `exchange` promises the memory of the device; that of the host lives until the stream is idle.
        let copied =
            unsafe { result::memcpy_dtoh_async(&mut bytes, message.address, stream.cu_stream()) };
        stream.synchronize()?;
        copied?;
    }
    Ok(bytes)
}

fn copy_to_device(
    bytes: &[u8],
    message: &DeviceMessage,
    stream: &CudaStream,
) -> Result<(), OperationFailure> {
    if !bytes.is_empty() {
        // SAFETY: as above.
        let copied =
            unsafe { result::memcpy_htod_async(message.address, bytes, stream.cu_stream()) };
        stream.synchronize()?;
        copied?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_keep_the_order_of_the_messages_of_two_ranks() {
        let message = |peer, count| DeviceMessage { peer, address: 8, count, dtype: Dtype::F32 };
        let all = [message(1, 1), message(2, 2), message(1, 3), message(1, 4), message(2, 5)];
        let counts: Vec<Vec<usize>> =
            rounds(&all).iter().map(|round| round.iter().map(|m| m.count).collect()).collect();
        assert_eq!(counts, [vec![1, 2], vec![3, 5], vec![4]]);
        let paired = paired_rounds((&all[..1], &all));
        assert_eq!(paired.iter().map(|(sends, _)| sends.len()).collect::<Vec<_>>(), [1, 0, 0]);
    }
}
