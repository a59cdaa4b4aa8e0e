//! Messages between two ranks. Both sides meet: a send ends when its message has been taken.

use std::ops::Range;

use crate::base::Rank;
use crate::runtime::element::{Element, ReduceOp};
use crate::runtime::engine::{Call, Engine};
use crate::runtime::error::{Cause, CollectiveError, Fingerprint, Operation};
use crate::runtime::node::{Patience, mismatch};
use crate::runtime::schedule::rounds;
use crate::runtime::shm::Place;
use crate::runtime::shm_window::Window;

impl Engine {
    /// Gives numbers to a rank that calls [`Self::recv`].
    pub(crate) fn send<T: Element>(
        &mut self,
        values: &[T],
        to: usize,
    ) -> Result<(), CollectiveError> {
        let call = Call { root: to, ..Call::new(Operation::Send, values.len()) };
        self.run::<T>(call, |engine, call, patience| {
            let staging = engine.staging::<T>();
            for range in rounds(call.count, staging.len()) {
                engine.sent[to] = engine.sent[to].wrapping_add(1);
                let fingerprint = message_fingerprint::<T>(call.count, engine.sent[to]);
                engine.send_round(fingerprint, to, &values[range], &staging, patience)?;
            }
            Ok(())
        })
    }

    /// Takes numbers from a rank that calls [`Self::send`].
    pub(crate) fn recv<T: Element>(
        &mut self,
        values: &mut [T],
        from: usize,
    ) -> Result<(), CollectiveError> {
        let call = Call { root: from, ..Call::new(Operation::Recv, values.len()) };
        self.run::<T>(call, |engine, call, patience| {
            let each = engine.staging::<T>().len();
            for range in rounds(call.count, each) {
                engine.received[from] = engine.received[from].wrapping_add(1);
                let round = engine.received[from];
                let fingerprint = message_fingerprint::<T>(call.count, round);
                engine.recv_round(fingerprint, from, values, range, patience)?;
            }
            Ok(())
        })
    }

    fn is_neighbour(&self, rank: usize) -> bool {
        self.roster.placement.node_of(rank) == self.roster.node()
    }

    fn send_round<T: Element>(
        &mut self,
        fingerprint: Fingerprint,
        to: usize,
        values: &[T],
        staging: &Window<T>,
        patience: Patience,
    ) -> Result<(), Cause> {
        if !self.is_neighbour(to) {
            let Some(across) = &mut self.across else { return Ok(()) };
            return across.send(fingerprint, to, values, &self.node, patience);
        }
        staging.write(0, values);
        let segment = &self.node.segment;
        let mailbox = segment.mailbox(self.node.me(), self.roster.placement.local_of(to));
        mailbox.entry().write(fingerprint.encode(), Place::Staged(staging.offset()));
        mailbox.posted.raise(self.sent[to]);
        let check = || self.node.check(patience, || vec![Rank(to as u32)]);
        mailbox.taken.wait(self.sent[to], patience.spin, check)
    }

    fn recv_round<T: Element>(
        &mut self,
        fingerprint: Fingerprint,
        from: usize,
        values: &mut [T],
        range: Range<usize>,
        patience: Patience,
    ) -> Result<(), Cause> {
        let values = &mut values[range];
        if !self.is_neighbour(from) {
            let Some(across) = &mut self.across else { return Ok(()) };
            return across.recv(fingerprint, from, values, &self.node, patience);
        }
        let segment = &self.node.segment;
        let mailbox = segment.mailbox(self.roster.placement.local_of(from), self.node.me());
        let check = || self.node.check(patience, || vec![Rank(from as u32)]);
        mailbox.posted.wait(self.received[from], patience.spin, check)?;
        let (words, place) = mailbox.entry().read();
        if words != fingerprint.encode() {
            return Err(mismatch(fingerprint, from, words));
        }
        let window = Window::new(segment, place.offset(), values.len()).ok_or_else(|| {
            Cause::Backend("a peer's window lies outside the shared memory".to_owned())
        })?;
        window.read(0, values);
        mailbox.taken.raise(self.received[from]);
        Ok(())
    }
}

/// Both sides say `send`, so that they can be compared.
fn message_fingerprint<T: Element>(count: usize, round: u32) -> Fingerprint {
    Fingerprint {
        op: Operation::Send,
        dtype: T::DTYPE,
        reduce: ReduceOp::Sum,
        root: Rank(0),
        count: count as u64,
        seq: u64::from(round),
    }
}
