//! Messages between ranks of a node, through their mailboxes: announcement, chunks and counters.
//!
//! A message is complete when its receiver has read it. The data passes through the sender's staging area, of
//! which every receiver has a share, in chunks that use the halves of the share in turn; a message in the
//! segment is read in place. Nothing here waits: blocking operations ([`p2p`](super::p2p)) wait for a counter
//! before each step, messages in flight ([`messages`](super::messages)) check whether it has been reached.

use std::ops::Range;

use crate::base::Rank;
use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::core::fingerprint::{Fingerprint, compare_calls};
use crate::runtime::comm::core::operation::Operation;
use crate::runtime::comm::host::backend::{HostBackend, peer_window};
use crate::runtime::comm::shm::cells::{BufferLocation, Mailbox};
use crate::runtime::comm::shm::segment::staging_bytes;
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::{Dtype, ReduceOp, ReduceOrder};
use crate::runtime::schedule::rounds;

/// Number of chunks of a message that can be in transit at once.
const HALVES: usize = 2;

/// A message to or from a rank of this node.
pub(crate) struct LocalMessage {
    /// The other rank.
    pub(crate) peer: usize,
    fingerprint: Fingerprint,
    /// Value of the mailbox's counters before the message.
    base: u32,
    /// Location of the data; a receiver reads it from the announcement.
    location: Option<BufferLocation>,
    /// Elements of each chunk; at least one chunk, because every message synchronizes its ranks.
    chunks: Vec<Range<usize>>,
    /// Number of chunks that were posted or received.
    done: usize,
}

impl LocalMessage {
    fn count(&self) -> usize {
        self.fingerprint.count as usize
    }

    /// Bytes of the next chunk.
    fn next_bytes(&self) -> Range<usize> {
        let (chunk, bytes) = (&self.chunks[self.done], self.fingerprint.dtype.bytes());
        chunk.start * bytes..chunk.end * bytes
    }

    fn counter(&self, chunks: usize) -> u32 {
        self.base.wrapping_add(chunks as u32)
    }

    /// Number of chunks; 0 for a receiver that has not read the announcement.
    pub(crate) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Whether the location of the data is known.
    pub(crate) fn is_announced(&self) -> bool {
        self.location.is_some()
    }

    /// Whether all chunks were posted or received.
    pub(crate) fn is_done(&self) -> bool {
        self.is_announced() && self.done == self.chunks.len()
    }

    /// Count of received chunks at which the next chunk has a free half.
    pub(crate) fn free_at(&self) -> u32 {
        self.counter((self.done + 1).saturating_sub(HALVES))
    }

    /// Count of posted chunks at which the next chunk can be received.
    pub(crate) fn posted_at(&self) -> u32 {
        self.counter(self.done + 1)
    }

    /// Count of received chunks at which the message is complete.
    pub(crate) fn complete_at(&self) -> u32 {
        self.counter(self.chunks.len())
    }
}

impl HostBackend {
    pub(crate) fn is_local(&self, rank: usize) -> bool {
        self.roster.placement.node_of(rank) == self.roster.node()
    }

    pub(crate) fn mailbox_to(&self, to: usize) -> &Mailbox {
        self.node.segment.mailbox(self.node.local_rank(), self.roster.placement.local_of(to))
    }

    pub(crate) fn mailbox_from(&self, from: usize) -> &Mailbox {
        self.node.segment.mailbox(self.roster.placement.local_of(from), self.node.local_rank())
    }

    /// Announces a message. Its first chunk has a free half.
    pub(crate) fn begin_local_send(
        &mut self,
        op: Operation,
        peer: usize,
        dtype: Dtype,
        bytes: &[u8],
    ) -> LocalMessage {
        let (base, count) = (self.sent[peer], bytes.len() / dtype.bytes());
        let fingerprint = message_fingerprint(op, dtype, count, base);
        let location = if let Some(offset) = self.node.segment.offset_of(&bytes.as_ptr_range()) {
            BufferLocation::Direct(offset)
        } else {
            let share = self.share_elements(dtype) * dtype.bytes();
            let own = self.node.segment.staging_offset(self.node.local_rank());
            BufferLocation::Staged(own + self.roster.placement.local_of(peer) * share)
        };
        let chunks = self.chunks(location, dtype, count);
        self.sent[peer] = base.wrapping_add(chunks.len() as u32);
        self.mailbox_to(peer).entry().write(fingerprint.encode(), location);
        LocalMessage { peer, fingerprint, base, location: Some(location), chunks, done: 0 }
    }

    pub(crate) fn begin_local_recv(
        &mut self,
        op: Operation,
        peer: usize,
        dtype: Dtype,
        count: usize,
    ) -> LocalMessage {
        let base = self.received[peer];
        let fingerprint = message_fingerprint(op, dtype, count, base);
        LocalMessage { peer, fingerprint, base, location: None, chunks: Vec::new(), done: 0 }
    }

    /// Copies the next chunk to its half of the share, which is free, and posts it.
    pub(crate) fn post_chunk(&self, send: &mut LocalMessage, bytes: &[u8]) {
        if let Some(BufferLocation::Staged(offset)) = send.location {
            let data = &bytes[send.next_bytes()];
            let at = offset + self.half_offset(send);
            Window::new(&self.node.segment, at, data.len())
                .expect("the layout keeps staging areas inside")
                .write(0, data);
        }
        send.done += 1;
        self.mailbox_to(send.peer).posted.raise(send.counter(send.done));
    }

    /// Reads the announcement of a message, whose first chunk is posted.
    pub(crate) fn read_announcement(&mut self, recv: &mut LocalMessage) -> Result<(), Cause> {
        let (words, location) = self.mailbox_from(recv.peer).entry().read();
        compare_calls(recv.fingerprint, || self.roster.job_rank(recv.peer), words)?;
        recv.chunks = self.chunks(location, recv.fingerprint.dtype, recv.count());
        recv.location = Some(location);
        self.received[recv.peer] = recv.complete_at();
        Ok(())
    }

    /// Reads the next chunk of an announced message, which is posted.
    pub(crate) fn receive_chunk(
        &self,
        recv: &mut LocalMessage,
        bytes: &mut [u8],
    ) -> Result<(), Cause> {
        let Some(location) = recv.location else { return Ok(()) };
        let target = &mut bytes[recv.next_bytes()];
        let at = match location {
            BufferLocation::Direct(offset) => offset,
            BufferLocation::Staged(offset) => offset + self.half_offset(recv),
        };
        peer_window(&self.node.segment, BufferLocation::Direct(at), target.len())?.read(0, target);
        recv.done += 1;
        self.mailbox_from(recv.peer).received.raise(recv.counter(recv.done));
        Ok(())
    }

    /// Elements of the share of a staging area for one receiver.
    fn share_elements(&self, dtype: Dtype) -> usize {
        let staging = staging_bytes(self.inter_node.is_some()) / dtype.bytes();
        staging / self.roster.local_ranks().len()
    }

    /// Offset of the next chunk in its share.
    fn half_offset(&self, message: &LocalMessage) -> usize {
        let dtype = message.fingerprint.dtype;
        message.done % HALVES * (self.share_elements(dtype) / HALVES * dtype.bytes())
    }

    fn chunks(&self, location: BufferLocation, dtype: Dtype, count: usize) -> Vec<Range<usize>> {
        match location {
            BufferLocation::Direct(_) => rounds(count, count.max(1)).collect(),
            BufferLocation::Staged(_) => {
                rounds(count, self.share_elements(dtype) / HALVES).collect()
            }
        }
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
