//! Point-to-point messages between ranks: to several and from several at once, of any lengths.
//!
//! Sends are synchronous: a message is complete when its receiver has read it. Between ranks of a
//! node the data passes through the sender's staging area, of which every receiver has a share, in chunks
//! that use the halves of the share in turn; a message in the segment is read in place. Chunk *k*
//! of every message is posted before the rank waits for chunk *k* of any, and chunk 0 of all
//! messages is posted before the first wait, so that ranks cannot deadlock in a cycle.

use std::ops::Range;

use crate::base::Rank;
use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError, mismatch};
use crate::runtime::comm::core::operation::{Fingerprint, Operation, OperationCall};
use crate::runtime::comm::host::backend::{HostBackend, peer_window};
use crate::runtime::comm::host::inter_node::{incoming, outgoing};
use crate::runtime::comm::shm::cells::{BufferLocation, Mailbox};
use crate::runtime::comm::shm::flag::Flag;
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::{Dtype, Element, ReduceOp, ReduceOrder};
use crate::runtime::schedule::rounds;

/// Data to send to a rank.
pub(crate) struct SendBuf<'a, T> {
    pub(crate) to: usize,
    pub(crate) values: &'a [T],
}

/// Memory for data from a rank.
pub(crate) struct RecvBuf<'a, T> {
    pub(crate) from: usize,
    pub(crate) values: &'a mut [T],
}

/// State of a message that is sent to a rank of this node.
struct LocalSend<'a, T> {
    to: usize,
    values: &'a [T],
    chunks: Vec<Range<usize>>,
    /// Share of the staging area for the data; `None` if the data is read in place.
    share: Option<Window<T>>,
    /// Value of the mailbox's counters before the message.
    base: u32,
}

/// State of a message that is received from a rank of this node.
struct LocalRecv<'a, T> {
    from: usize,
    values: &'a mut [T],
    fingerprint: Fingerprint,
    /// Location of the data and its chunks, which the first chunk announces.
    source: Option<(BufferLocation, Vec<Range<usize>>)>,
    base: u32,
}

/// Number of chunks of a message that can be in transit at once.
pub(crate) const HALVES: usize = 2;

impl HostBackend {
    /// Sends and receives messages, at most one in each direction with every rank; a message to
    /// this rank itself is copied.
    pub(crate) fn exchange<T: Element>(
        &mut self,
        op: Operation,
        sends: &[SendBuf<'_, T>],
        slots: &mut [RecvBuf<'_, T>],
    ) -> Result<(), CollectiveError> {
        let lens = sends.iter().map(|send| send.values.len());
        let lens = lens.chain(slots.iter().map(|slot| slot.values.len()));
        let others = slots.iter().filter(|slot| slot.from != self.roster.rank);
        let received = others.map(|slot| slot.values.len()).sum();
        let call = OperationCall { received, ..OperationCall::new(op, lens.sum()) };
        // The two sides may call different functions: `send` matches `send_recv`.
        self.run::<T>(call, |backend, _, deadline| {
            backend.transfer(Operation::Send, sends, slots, deadline)
        })
    }

    /// Transfers the messages of an operation.
    pub(crate) fn transfer<T: Element>(
        &mut self,
        op: Operation,
        sends: &[SendBuf<'_, T>],
        slots: &mut [RecvBuf<'_, T>],
        deadline: Deadline,
    ) -> Result<(), Cause> {
        self.copy_to_self(op, sends, slots)?;
        let rank = self.roster.rank;
        let (local, remote): (Vec<_>, Vec<_>) =
            sends.iter().filter(|send| send.to != rank).partition(|send| self.is_local(send.to));
        let (local_slots, remote_slots): (Vec<_>, Vec<_>) = slots
            .iter_mut()
            .filter(|slot| slot.from != rank)
            .partition(|slot| self.is_local(slot.from));
        let local_sends: Vec<_> = local.iter().map(|send| self.post_send(op, send)).collect();
        let mut local_recvs: Vec<_> =
            local_slots.into_iter().map(|slot| self.begin_recv(op, slot)).collect();
        self.transfer_remote(op, &remote, remote_slots, deadline)?;
        self.transfer_local(&local_sends, &mut local_recvs, deadline)
    }

    /// Copies the message of this rank to itself.
    fn copy_to_self<T: Element>(
        &self,
        op: Operation,
        sends: &[SendBuf<'_, T>],
        slots: &mut [RecvBuf<'_, T>],
    ) -> Result<(), Cause> {
        let rank = self.roster.rank;
        let send = sends.iter().find(|send| send.to == rank);
        let slot = slots.iter_mut().find(|slot| slot.from == rank);
        match (send, slot) {
            (None, None) => Ok(()),
            (Some(send), Some(slot)) if send.values.len() == slot.values.len() => {
                slot.values.copy_from_slice(send.values);
                Ok(())
            }
            (send, slot) => {
                let sends = send.map_or(0, |send| send.values.len());
                let receives = slot.map_or(0, |slot| slot.values.len());
                let problem = format!(
                    "{op}: this rank sends {sends} elements to itself, but receives {receives}"
                );
                Err(Cause::Argument(problem))
            }
        }
    }

    pub(crate) fn is_local(&self, rank: usize) -> bool {
        self.roster.placement.node_of(rank) == self.roster.node()
    }

    pub(crate) fn mailbox_to(&self, to: usize) -> &Mailbox {
        self.node.segment.mailbox(self.node.local_rank(), self.roster.placement.local_of(to))
    }

    pub(crate) fn mailbox_from(&self, from: usize) -> &Mailbox {
        self.node.segment.mailbox(self.roster.placement.local_of(from), self.node.local_rank())
    }

    /// Announces a message, and posts its first chunk.
    fn post_send<'a, T: Element>(
        &mut self,
        op: Operation,
        send: &SendBuf<'a, T>,
    ) -> LocalSend<'a, T> {
        let SendBuf { to, values } = *send;
        let fingerprint = message_fingerprint(op, T::DTYPE, values.len(), self.sent[to]);
        let segment = &self.node.segment;
        let (location, share, chunks) =
            if let Some(offset) = segment.offset_of(&values.as_ptr_range()) {
                (BufferLocation::Direct(offset), None, Chunks::whole(values.len()))
            } else {
                let share = self.share_of(to);
                let chunks = Chunks::staged(values.len(), share.len());
                (BufferLocation::Staged(share.offset()), Some(share), chunks)
            };
        let base = self.sent[to];
        self.sent[to] = base.wrapping_add(chunks.len() as u32);
        self.mailbox_to(to).entry().write(fingerprint.encode(), location);
        let send = LocalSend { to, values, chunks, share, base };
        self.post_chunk(&send, 0);
        send
    }

    /// Copies a chunk to its half of the share, which is free, and posts it.
    fn post_chunk<T: Element>(&self, send: &LocalSend<'_, T>, chunk: usize) {
        if let Some(share) = &send.share {
            let half = chunk % HALVES * (share.len() / HALVES);
            share.write(half, &send.values[send.chunks[chunk].clone()]);
        }
        let posted = send.base.wrapping_add(chunk as u32 + 1);
        self.mailbox_to(send.to).posted.raise(posted);
    }

    /// The share of the staging area for messages to a rank of this node.
    fn share_of<T: Element>(&self, to: usize) -> Window<T> {
        let (local, len) = (self.roster.placement.local_of(to), self.share_len::<T>());
        self.staging::<T>().part(&(local * len..(local + 1) * len))
    }

    fn share_len<T: Element>(&self) -> usize {
        self.staging::<T>().len() / self.roster.local_ranks().len()
    }

    fn begin_recv<'a, T: Element>(
        &mut self,
        op: Operation,
        slot: &'a mut RecvBuf<'_, T>,
    ) -> LocalRecv<'a, T> {
        let base = self.received[slot.from];
        let fingerprint = message_fingerprint(op, T::DTYPE, slot.values.len(), base);
        LocalRecv { from: slot.from, values: slot.values, fingerprint, source: None, base }
    }

    /// Transfers messages to and from ranks of this node, chunk by chunk.
    fn transfer_local<T: Element>(
        &mut self,
        local_sends: &[LocalSend<'_, T>],
        local_recvs: &mut [LocalRecv<'_, T>],
        deadline: Deadline,
    ) -> Result<(), Cause> {
        for recv in &mut *local_recvs {
            self.read_announcement(recv, deadline)?;
        }
        let lens = local_sends.iter().map(|send| send.chunks.len());
        let lens = lens.chain(local_recvs.iter().map(LocalRecv::chunk_count));
        for chunk in 0..lens.max().unwrap_or(0) {
            for send in local_sends.iter().filter(|send| chunk < send.chunks.len()) {
                if 0 < chunk {
                    // This half of the share is free after the chunk before the previous one is
                    // received.
                    self.wait_received(send, (chunk + 1).saturating_sub(HALVES), deadline)?;
                    self.post_chunk(send, chunk);
                }
            }
            for recv in local_recvs.iter_mut().filter(|recv| chunk < recv.chunk_count()) {
                self.receive_chunk(recv, chunk, deadline)?;
            }
        }
        for send in local_sends {
            self.wait_received(send, send.chunks.len(), deadline)?;
        }
        Ok(())
    }

    /// Waits for the first chunk, and reads the announcement of the message.
    fn read_announcement<T: Element>(
        &mut self,
        recv: &mut LocalRecv<'_, T>,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let mailbox = self.mailbox_from(recv.from);
        self.wait_flag(&mailbox.posted, recv.base.wrapping_add(1), recv.from, deadline)?;
        let (words, location) = mailbox.entry().read();
        if words != recv.fingerprint.encode() {
            return Err(mismatch(
                recv.fingerprint.to_recv(),
                self.roster.job_rank(recv.from),
                words,
            ));
        }
        let chunks = match location {
            BufferLocation::Direct(_) => Chunks::whole(recv.values.len()),
            BufferLocation::Staged(_) => Chunks::staged(recv.values.len(), self.share_len::<T>()),
        };
        self.received[recv.from] = recv.base.wrapping_add(chunks.len() as u32);
        recv.source = Some((location, chunks));
        Ok(())
    }

    /// Waits for a chunk and reads it.
    fn receive_chunk<T: Element>(
        &self,
        recv: &mut LocalRecv<'_, T>,
        chunk: usize,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let mailbox = self.mailbox_from(recv.from);
        let number = recv.base.wrapping_add(chunk as u32 + 1);
        self.wait_flag(&mailbox.posted, number, recv.from, deadline)?;
        let Some((location, chunks)) = &recv.source else { return Ok(()) };
        let target = &mut recv.values[chunks[chunk].clone()];
        let half = self.share_len::<T>() / HALVES;
        let offset = match location {
            BufferLocation::Direct(offset) => *offset,
            BufferLocation::Staged(offset) => offset + chunk % HALVES * half * size_of::<T>(),
        };
        let window = peer_window(&self.node.segment, BufferLocation::Direct(offset), target.len())?;
        window.read(0, target);
        mailbox.received.raise(number);
        Ok(())
    }

    /// Waits until the first `chunks` chunks of a message are received.
    fn wait_received<T>(
        &self,
        send: &LocalSend<'_, T>,
        chunks: usize,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let number = send.base.wrapping_add(chunks as u32);
        self.wait_flag(&self.mailbox_to(send.to).received, number, send.to, deadline)
    }

    fn wait_flag(
        &self,
        flag: &Flag,
        number: u32,
        peer: usize,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        flag.wait(number, deadline.spin, || self.node.check(deadline, || vec![peer]))
    }

    /// Transfers messages to and from other nodes.
    fn transfer_remote<T: Element>(
        &mut self,
        op: Operation,
        sends: &[&SendBuf<'_, T>],
        slots: Vec<&mut RecvBuf<'_, T>>,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let (sent, received) = (&mut self.sent, &mut self.received);
        let Some(inter_node) = &mut self.inter_node else { return Ok(()) };
        let number = |counters: &mut [u32], peer: usize, len| {
            let before = counters[peer];
            counters[peer] = before.wrapping_add(1);
            message_fingerprint(op, T::DTYPE, len, before)
        };
        let outgoing: Vec<_> = sends
            .iter()
            .map(|send| {
                let fingerprint = number(sent, send.to, send.values.len());
                outgoing(fingerprint, send.to, send.values)
            })
            .collect();
        let mut incoming: Vec<_> = slots
            .into_iter()
            .map(|slot| {
                let fingerprint = number(received, slot.from, slot.values.len());
                incoming(fingerprint, slot.from, slot.values)
            })
            .collect();
        if outgoing.is_empty() && incoming.is_empty() {
            return Ok(());
        }
        inter_node.exchange(&outgoing, &mut incoming, &self.node, deadline)
    }
}

impl<T> LocalRecv<'_, T> {
    fn chunk_count(&self) -> usize {
        self.source.as_ref().map_or(0, |(_, chunks)| chunks.len())
    }
}

/// Division of a message into chunks; at least one, because every message synchronizes its ranks.
pub(crate) struct Chunks;

impl Chunks {
    pub(crate) fn whole(len: usize) -> Vec<Range<usize>> {
        rounds(len, len.max(1)).collect()
    }

    pub(crate) fn staged(len: usize, share_len: usize) -> Vec<Range<usize>> {
        rounds(len, share_len / HALVES).collect()
    }
}

/// Fingerprint of a message, equal on both sides, so that they can be compared; `before` is the
/// value of their counters before the message.
pub(crate) fn message_fingerprint(
    op: Operation,
    dtype: Dtype,
    count: usize,
    before: u32,
) -> Fingerprint {
    Fingerprint {
        op,
        dtype,
        reduce: ReduceOp::Sum,
        order: ReduceOrder::Canonical,
        root: Rank(0),
        count: count as u64,
        seq: u64::from(before) + 1,
    }
}
