//! Operations that move parts between ranks without reducing them: gather, scatter and all-to-all.

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::p2p::{RecvBuf, SendBuf};
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::Element;

impl HostBackend {
    /// The root gets all ranks' data, in rank order; `all` is used on the root only.
    pub(crate) fn gather<T: Element>(
        &mut self,
        own_part: &[T],
        all: &mut [T],
        root: usize,
    ) -> Result<(), CollectiveError> {
        let call = OperationCall {
            root: Some(root),
            ..OperationCall::new(Operation::Gather, own_part.len())
        };
        self.run::<T>(call, |backend, call, deadline| {
            backend.compare_calls::<T>(call, deadline)?;
            let send = SendBuf { to: root, values: own_part };
            let mut slots = Vec::new();
            if backend.roster.rank == root {
                slots = slots_of(all, vec![own_part.len(); backend.world()]);
            }
            backend.transfer(call.op, &[send], &mut slots, deadline)
        })
    }

    /// Writes part `r` of `all` of the root to rank `r`; `all` of other ranks is ignored.
    pub(crate) fn scatter<T: Element>(
        &mut self,
        all: &[T],
        own_part: &mut [T],
        root: usize,
    ) -> Result<(), CollectiveError> {
        let call = OperationCall {
            root: Some(root),
            ..OperationCall::new(Operation::Scatter, own_part.len())
        };
        self.run::<T>(call, |backend, call, deadline| {
            backend.compare_calls::<T>(call, deadline)?;
            let mut sends = Vec::new();
            if backend.roster.rank == root {
                sends = sends_of(all, &vec![own_part.len(); backend.world()]);
            }
            let slot = RecvBuf { from: root, values: own_part };
            backend.transfer(call.op, &sends, &mut [slot], deadline)
        })
    }

    /// Part `r` of every rank's `input` is sent to rank `r`; `counts` are the lengths of the parts.
    pub(crate) fn all_to_all<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        counts: Counts<'_>,
    ) -> Result<(), CollectiveError> {
        let world = self.world();
        let (count, send_counts, recv_counts) = match counts {
            Counts::Equal(part) => (part, vec![part; world], vec![part; world]),
            // The lengths differ between ranks, so only the parts themselves can be compared.
            Counts::Given { send, recv } => (0, send.to_vec(), recv.to_vec()),
        };
        let received = recv_counts.iter().sum::<usize>() - recv_counts[self.roster.rank];
        let call = OperationCall::new(Operation::AllToAll, count);
        let call = OperationCall { passed: input.len(), received, ..call };
        self.run::<T>(call, |backend, call, deadline| {
            let nothing = backend.staging::<T>().part(&(0..0));
            backend.begin_round(call, &nothing, deadline)?;
            let sends = sends_of(input, &send_counts);
            backend.transfer(call.op, &sends, &mut slots_of(output, recv_counts), deadline)
        })
    }

    /// Barrier that compares the calls of all ranks, so that a mismatch is reported.
    fn compare_calls<T: Element>(
        &mut self,
        call: OperationCall,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let nothing = self.staging::<T>().part(&(0..0));
        let round = self.begin_round(call, &nothing, deadline)?;
        let Some(inter_node) = &mut self.inter_node else { return Ok(()) };
        inter_node.sync_nodes(round.fingerprint, &self.node, deadline)
    }
}

/// Lengths of the parts of an [`HostBackend::all_to_all`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counts<'a> {
    /// All parts have this length.
    Equal(usize),
    /// Lengths of the parts that are sent to and received from each rank.
    Given { send: &'a [usize], recv: &'a [usize] },
}

/// Division of `all` into consecutive parts, one to send to each rank.
fn sends_of<'a, T>(mut all: &'a [T], counts: &[usize]) -> Vec<SendBuf<'a, T>> {
    let parts = counts.iter().enumerate().map(|(to, count)| {
        let (values, rest) = all.split_at(*count);
        all = rest;
        SendBuf { to, values }
    });
    parts.collect()
}

/// Division of `all` into consecutive parts, one to receive from each rank.
fn slots_of<T>(mut all: &mut [T], counts: Vec<usize>) -> Vec<RecvBuf<'_, T>> {
    let parts = counts.into_iter().enumerate().map(|(from, count)| {
        let (values, rest) = std::mem::take(&mut all).split_at_mut(count);
        all = rest;
        RecvBuf { from, values }
    });
    parts.collect()
}

/// Number of elements of every rank's part that fit a staging area at once.
pub(crate) fn part_len_max<T: Element>(staging: &Window<T>, world: usize) -> Result<usize, Cause> {
    match staging.len() / world {
        0 => Err(Cause::Argument(format!("parts for {world} ranks do not fit the staging area"))),
        len => Ok(len),
    }
}
