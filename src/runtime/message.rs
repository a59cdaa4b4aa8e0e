//! Point-to-point messages between ranks: to several and from several at once, of any lengths.
//!
//! Sends are synchronous: a message is complete when its receiver has read it. Between ranks of a
//! node it goes through the sender's staging area, of which every receiver has a share, in chunks
//! that use the halves of the share in turn; a message in the segment is read in place. Chunk *k*
//! of every message is posted before the rank waits for chunk *k* of any, and chunk 0 of all
//! messages is posted before the first wait, so that ranks cannot wait for each other in a circle.

use std::ops::Range;

use crate::base::Rank;
use crate::runtime::across::{incoming, outgoing};
use crate::runtime::cells::{BufferPlace, Mailbox};
use crate::runtime::element::{Element, ReduceOp, ReduceOrder};
use crate::runtime::engine::{Engine, OperationCall};
use crate::runtime::error::{Cause, CollectiveError, Fingerprint, Operation};
use crate::runtime::flag::Flag;
use crate::runtime::node::{Deadline, mismatch};
use crate::runtime::schedule::rounds;
use crate::runtime::shm_window::Window;

/// Data to send to a rank.
pub(crate) struct SendBuf<'a, T> {
    pub(crate) to: usize,
    pub(crate) values: &'a [T],
}

/// Memory for data of a rank.
pub(crate) struct MessageSlot<'a, T> {
    pub(crate) from: usize,
    pub(crate) values: &'a mut [T],
}

/// State of a message that is sent to a rank of this node.
struct Posting<'a, T> {
    to: usize,
    values: &'a [T],
    chunks: Vec<Range<usize>>,
    /// Share of the staging area through which it goes; `None` if it is read in place.
    share: Option<Window<T>>,
    /// Value of the mailbox's counters before the message.
    base: u32,
}

/// State of a message that is received from a rank of this node.
struct Taking<'a, T> {
    from: usize,
    values: &'a mut [T],
    fingerprint: Fingerprint,
    /// Position of the data and its chunks, which the first chunk announces.
    source: Option<(BufferPlace, Vec<Range<usize>>)>,
    base: u32,
}

/// Number of chunks of a message that can be in transit at once.
const HALVES: usize = 2;

impl Engine {
    /// Sends and receives messages, at most one in each direction with every rank; a message to
    /// this rank itself is copied.
    pub(crate) fn exchange<T: Element>(
        &mut self,
        op: Operation,
        parcels: &[SendBuf<'_, T>],
        slots: &mut [MessageSlot<'_, T>],
    ) -> Result<(), CollectiveError> {
        let lens = parcels.iter().map(|parcel| parcel.values.len());
        let lens = lens.chain(slots.iter().map(|slot| slot.values.len()));
        let call = OperationCall::new(op, lens.sum());
        // The two sides may have called different functions, but must mean the same operation.
        self.run::<T>(call, |engine, _, patience| {
            engine.deliver(Operation::Send, parcels, slots, patience)
        })
    }

    /// Transfers the messages of an operation.
    pub(super) fn deliver<T: Element>(
        &mut self,
        op: Operation,
        parcels: &[SendBuf<'_, T>],
        slots: &mut [MessageSlot<'_, T>],
        patience: Deadline,
    ) -> Result<(), Cause> {
        self.deliver_to_ourselves(op, parcels, slots)?;
        let me = self.roster.rank;
        let (near, far): (Vec<_>, Vec<_>) = parcels
            .iter()
            .filter(|parcel| parcel.to != me)
            .partition(|parcel| self.is_neighbour(parcel.to));
        let (near_slots, far_slots): (Vec<_>, Vec<_>) = slots
            .iter_mut()
            .filter(|slot| slot.from != me)
            .partition(|slot| self.is_neighbour(slot.from));
        let postings: Vec<_> = near.iter().map(|parcel| self.post(op, parcel)).collect();
        let mut takings: Vec<_> =
            near_slots.into_iter().map(|slot| self.begin_taking(op, slot)).collect();
        self.deliver_far(op, &far, far_slots, patience)?;
        self.deliver_near(&postings, &mut takings, patience)
    }

    fn deliver_to_ourselves<T: Element>(
        &self,
        op: Operation,
        parcels: &[SendBuf<'_, T>],
        slots: &mut [MessageSlot<'_, T>],
    ) -> Result<(), Cause> {
        let me = self.roster.rank;
        let ours = parcels.iter().find(|parcel| parcel.to == me);
        let slot = slots.iter_mut().find(|slot| slot.from == me);
        match (ours, slot) {
            (None, None) => Ok(()),
            (Some(ours), Some(slot)) if ours.values.len() == slot.values.len() => {
                slot.values.copy_from_slice(ours.values);
                Ok(())
            }
            (ours, slot) => {
                let sent = ours.map_or(0, |ours| ours.values.len());
                let taken = slot.map_or(0, |slot| slot.values.len());
                let problem =
                    format!("{op}: we send {sent} elements to ourselves and take {taken}");
                Err(Cause::Argument(problem))
            }
        }
    }

    fn is_neighbour(&self, rank: usize) -> bool {
        self.roster.placement.node_of(rank) == self.roster.node()
    }

    fn mailbox_to(&self, to: usize) -> &Mailbox {
        self.node.segment.mailbox(self.node.me(), self.roster.placement.local_of(to))
    }

    fn mailbox_from(&self, from: usize) -> &Mailbox {
        self.node.segment.mailbox(self.roster.placement.local_of(from), self.node.me())
    }

    /// Announces a message, and posts its first chunk.
    fn post<'a, T: Element>(&mut self, op: Operation, parcel: &SendBuf<'a, T>) -> Posting<'a, T> {
        let SendBuf { to, values } = *parcel;
        let fingerprint = message_fingerprint::<T>(op, values.len(), self.sent[to]);
        let segment = &self.node.segment;
        let (place, share, chunks) = if let Some(offset) = segment.offset_of(&values.as_ptr_range())
        {
            (BufferPlace::Direct(offset), None, Chunks::whole(values.len()))
        } else {
            let share = self.share_of(to);
            let chunks = Chunks::staged(values.len(), share.len());
            (BufferPlace::Staged(share.offset()), Some(share), chunks)
        };
        let base = self.sent[to];
        self.sent[to] = base.wrapping_add(chunks.len() as u32);
        self.mailbox_to(to).entry().write(fingerprint.encode(), place);
        let posting = Posting { to, values, chunks, share, base };
        self.post_chunk(&posting, 0);
        posting
    }

    /// Copies a chunk to its half of the share, which is free, and posts it.
    fn post_chunk<T: Element>(&self, posting: &Posting<'_, T>, chunk: usize) {
        if let Some(share) = &posting.share {
            let half = chunk % HALVES * (share.len() / HALVES);
            share.write(half, &posting.values[posting.chunks[chunk].clone()]);
        }
        let posted = posting.base.wrapping_add(chunk as u32 + 1);
        self.mailbox_to(posting.to).posted.raise(posted);
    }

    /// The share of the staging area for messages to a rank of this node.
    fn share_of<T: Element>(&self, to: usize) -> Window<T> {
        let (local, len) = (self.roster.placement.local_of(to), self.share_len::<T>());
        self.staging::<T>().part(&(local * len..(local + 1) * len))
    }

    fn share_len<T: Element>(&self) -> usize {
        self.staging::<T>().len() / self.roster.neighbours().len()
    }

    fn begin_taking<'a, T: Element>(
        &mut self,
        op: Operation,
        slot: &'a mut MessageSlot<'_, T>,
    ) -> Taking<'a, T> {
        let base = self.received[slot.from];
        let fingerprint = message_fingerprint::<T>(op, slot.values.len(), base);
        Taking { from: slot.from, values: slot.values, fingerprint, source: None, base }
    }

    fn deliver_near<T: Element>(
        &mut self,
        postings: &[Posting<'_, T>],
        takings: &mut [Taking<'_, T>],
        patience: Deadline,
    ) -> Result<(), Cause> {
        for taking in &mut *takings {
            self.open(taking, patience)?;
        }
        let lens = postings.iter().map(|posting| posting.chunks.len());
        let lens = lens.chain(takings.iter().map(Taking::chunks));
        for chunk in 0..lens.max().unwrap_or(0) {
            for posting in postings.iter().filter(|posting| chunk < posting.chunks.len()) {
                if 0 < chunk {
                    // The half of the share is free once the chunk before the previous one is
                    // taken.
                    self.await_taken(posting, (chunk + 1).saturating_sub(HALVES), patience)?;
                    self.post_chunk(posting, chunk);
                }
            }
            for taking in takings.iter_mut().filter(|taking| chunk < taking.chunks()) {
                self.take_chunk(taking, chunk, patience)?;
            }
        }
        for posting in postings {
            self.await_taken(posting, posting.chunks.len(), patience)?;
        }
        Ok(())
    }

    /// Waits for the first chunk, and reads the announcement of the message.
    fn open<T: Element>(
        &mut self,
        taking: &mut Taking<'_, T>,
        patience: Deadline,
    ) -> Result<(), Cause> {
        let mailbox = self.mailbox_from(taking.from);
        self.await_flag(&mailbox.posted, taking.base.wrapping_add(1), taking.from, patience)?;
        let (words, place) = mailbox.entry().read();
        if words != taking.fingerprint.encode() {
            return Err(mismatch(taking.fingerprint.taken(), self.roster.name(taking.from), words));
        }
        let chunks = match place {
            BufferPlace::Direct(_) => Chunks::whole(taking.values.len()),
            BufferPlace::Staged(_) => Chunks::staged(taking.values.len(), self.share_len::<T>()),
        };
        self.received[taking.from] = taking.base.wrapping_add(chunks.len() as u32);
        taking.source = Some((place, chunks));
        Ok(())
    }

    fn take_chunk<T: Element>(
        &self,
        taking: &mut Taking<'_, T>,
        chunk: usize,
        patience: Deadline,
    ) -> Result<(), Cause> {
        let mailbox = self.mailbox_from(taking.from);
        let number = taking.base.wrapping_add(chunk as u32 + 1);
        self.await_flag(&mailbox.posted, number, taking.from, patience)?;
        let Some((place, chunks)) = &taking.source else { return Ok(()) };
        let target = &mut taking.values[chunks[chunk].clone()];
        let half = self.share_len::<T>() / HALVES;
        let offset = match place {
            BufferPlace::Direct(offset) => *offset,
            BufferPlace::Staged(offset) => offset + chunk % HALVES * half * size_of::<T>(),
        };
        let window = Window::new(&self.node.segment, offset, target.len()).ok_or_else(|| {
            Cause::Backend("a peer's window lies outside the shared memory".to_owned())
        })?;
        window.read(0, target);
        mailbox.taken.raise(number);
        Ok(())
    }

    /// Waits until the first `chunks` chunks of a message are taken.
    fn await_taken<T>(
        &self,
        posting: &Posting<'_, T>,
        chunks: usize,
        patience: Deadline,
    ) -> Result<(), Cause> {
        let number = posting.base.wrapping_add(chunks as u32);
        self.await_flag(&self.mailbox_to(posting.to).taken, number, posting.to, patience)
    }

    fn await_flag(
        &self,
        flag: &Flag,
        number: u32,
        peer: usize,
        patience: Deadline,
    ) -> Result<(), Cause> {
        flag.wait(number, patience.spin, || self.node.check(patience, || vec![peer]))
    }

    /// Transfers messages to and from other nodes.
    fn deliver_far<T: Element>(
        &mut self,
        op: Operation,
        parcels: &[&SendBuf<'_, T>],
        slots: Vec<&mut MessageSlot<'_, T>>,
        patience: Deadline,
    ) -> Result<(), Cause> {
        let (sent, received) = (&mut self.sent, &mut self.received);
        let Some(across) = &mut self.across else { return Ok(()) };
        let number = |counters: &mut [u32], peer: usize, len| {
            let before = counters[peer];
            counters[peer] = before.wrapping_add(1);
            message_fingerprint::<T>(op, len, before)
        };
        let outgoing: Vec<_> = parcels
            .iter()
            .map(|parcel| {
                let fingerprint = number(sent, parcel.to, parcel.values.len());
                outgoing(fingerprint, parcel.to, parcel.values)
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
        across.exchange(&outgoing, &mut incoming, &self.node, patience)
    }
}

impl<T> Taking<'_, T> {
    fn chunks(&self) -> usize {
        self.source.as_ref().map_or(0, |(_, chunks)| chunks.len())
    }
}

/// Division of a message into chunks; at least one, because every message synchronizes its ranks.
struct Chunks;

impl Chunks {
    fn whole(len: usize) -> Vec<Range<usize>> {
        rounds(len, len.max(1)).collect()
    }

    fn staged(len: usize, share_len: usize) -> Vec<Range<usize>> {
        rounds(len, share_len / HALVES).collect()
    }
}

/// Fingerprint of a message, equal on both sides, so that they can be compared; `before` is the
/// value of their counters before the message.
fn message_fingerprint<T: Element>(op: Operation, count: usize, before: u32) -> Fingerprint {
    Fingerprint {
        op,
        dtype: T::DTYPE,
        reduce: ReduceOp::Sum,
        order: ReduceOrder::Canonical,
        root: Rank(0),
        count: count as u64,
        seq: u64::from(before) + 1,
    }
}
