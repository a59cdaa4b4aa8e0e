//! Point-to-point messages between ranks: to several and from several at once, of any lengths.
//!
//! Sends are synchronous: a message is complete when its receiver has read it. Between ranks of a
//! node the data moves as described in [`mailbox`](super::mailbox). Chunk *k* of every message is posted before
//! the rank waits for chunk *k* of any, and chunk 0 of all messages is posted before the first wait, so that
//! ranks cannot deadlock in a cycle.

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::inter_node::{incoming, outgoing};
use crate::runtime::comm::host::mailbox::{LocalMessage, message_fingerprint};
use crate::runtime::comm::shm::flag::Flag;
use crate::runtime::dtype::element::Element;

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

/// A message that is sent to a rank of this node.
struct LocalSend<'a> {
    bytes: &'a [u8],
    message: LocalMessage,
}

/// A message that is received from a rank of this node.
struct LocalRecv<'a> {
    bytes: &'a mut [u8],
    message: LocalMessage,
}

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
        let mut local_sends: Vec<_> = local.iter().map(|send| self.post_send(op, send)).collect();
        let mut local_recvs: Vec<_> =
            local_slots.into_iter().map(|slot| self.begin_recv(op, slot)).collect();
        self.transfer_remote(op, &remote, remote_slots, deadline)?;
        self.transfer_local(&mut local_sends, &mut local_recvs, deadline)
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

    /// Announces a message, and posts its first chunk.
    fn post_send<'a, T: Element>(&mut self, op: Operation, send: &SendBuf<'a, T>) -> LocalSend<'a> {
        let bytes = bytemuck::cast_slice(send.values);
        let mut message = self.begin_local_send(op, send.to, T::DTYPE, bytes);
        self.post_chunk(&mut message, bytes);
        LocalSend { bytes, message }
    }

    fn begin_recv<'a, T: Element>(
        &mut self,
        op: Operation,
        slot: &'a mut RecvBuf<'_, T>,
    ) -> LocalRecv<'a> {
        let message = self.begin_local_recv(op, slot.from, T::DTYPE, slot.values.len());
        LocalRecv { bytes: bytemuck::cast_slice_mut(slot.values), message }
    }

    /// Transfers messages to and from ranks of this node, chunk by chunk.
    fn transfer_local(
        &mut self,
        sends: &mut [LocalSend<'_>],
        recvs: &mut [LocalRecv<'_>],
        deadline: Deadline,
    ) -> Result<(), Cause> {
        for LocalRecv { message, .. } in &mut *recvs {
            self.wait_posted(message, deadline)?;
            self.read_announcement(message)?;
        }
        let lens = sends.iter().map(|send| send.message.chunk_count());
        let lens = lens.chain(recvs.iter().map(|recv| recv.message.chunk_count()));
        for chunk in 0..lens.max().unwrap_or(0) {
            for LocalSend { bytes, message } in &mut *sends {
                if 0 < chunk && !message.is_done() {
                    self.wait_received(message, message.free_at(), deadline)?;
                    self.post_chunk(message, bytes);
                }
            }
            for LocalRecv { bytes, message } in &mut *recvs {
                if !message.is_done() {
                    self.wait_posted(message, deadline)?;
                    self.receive_chunk(message, bytes)?;
                }
            }
        }
        for LocalSend { message, .. } in sends {
            self.wait_received(message, message.complete_at(), deadline)?;
        }
        Ok(())
    }

    /// Waits until the next chunk of a message is posted.
    fn wait_posted(&self, recv: &LocalMessage, deadline: Deadline) -> Result<(), Cause> {
        let flag = &self.mailbox_from(recv.peer).posted;
        self.wait_flag(flag, recv.posted_at(), recv.peer, deadline)
    }

    /// Waits until the receiver of a message has counted so many chunks.
    fn wait_received(
        &self,
        send: &LocalMessage,
        number: u32,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        self.wait_flag(&self.mailbox_to(send.peer).received, number, send.peer, deadline)
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
