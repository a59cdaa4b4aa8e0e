//! Reduction of lanes of which ranks have several, with a part of the result for every rank.
//!
//! Every rank receives its part of all pieces and folds them in the order of the canonical tree over all lanes.
//! Pieces are not folded on their way, so that this moves more bytes than a reduce-scatter: it is for numbers of
//! lanes that are no power of two.

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{DividedReduction, Operation, OperationCall};
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::p2p::{RecvBuf, SendBuf};
use crate::runtime::comm::host::region::PostOp;
use crate::runtime::comm::shm::fold::Workspace;
use crate::runtime::dtype::element::{Element, ReduceOp};
use crate::runtime::schedule::blocks;
use crate::runtime::schedule::tree::Lanes;

impl HostBackend {
    /// Rank `r` gets part `r` of the reduction of all lanes. `pieces` are this rank's, each as long as the parts of
    /// all ranks; their number is that of [`Lanes::pieces_of`].
    pub(crate) fn reduce_scatter_of_pieces<T: Element>(
        &mut self,
        pieces: &[&[T]],
        own_part: &mut [T],
        lanes: Lanes,
        reduction: DividedReduction,
    ) -> Result<(), CollectiveError> {
        let (world, part, reduce) = (self.world(), own_part.len(), reduction.op);
        let post_op = match reduce {
            ReduceOp::Avg => PostOp::Divide(lanes.count() as u64),
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max => PostOp::of(reduction),
        };
        let mut pieces_of = vec![0; world];
        for (owner, _) in lanes.pieces() {
            pieces_of[owner] += 1;
        }
        let all: usize = pieces_of.iter().sum();
        let received = (all - pieces_of[self.roster.rank]) * part;
        let call = OperationCall {
            reduce,
            received,
            ..OperationCall::new(Operation::ReduceScatterOfPieces, world * part)
        };
        self.run::<T>(call, |backend, call, deadline| {
            let mut parts: Vec<T> = vec![bytemuck::Zeroable::zeroed(); all * part];
            backend.exchange_pieces(call, pieces, (&mut parts, &pieces_of), deadline)?;
            let fold = lanes.fold();
            for block in blocks(0..part, Workspace::block::<T>()) {
                let source =
                    |piece: usize| &parts[piece * part + block.start..piece * part + block.end];
                let sum = backend.workspace.fold(&fold, reduce, block.len(), &source);
                post_op.apply(sum);
                own_part[block].copy_from_slice(T::narrow(sum, &mut Vec::new()));
            }
            Ok(())
        })
    }

    /// Sends each rank its part of every piece of this rank, and receives this rank's part of all pieces, those of
    /// rank 0 first.
    fn exchange_pieces<T: Element>(
        &mut self,
        call: OperationCall,
        pieces: &[&[T]],
        (mut parts, pieces_of): (&mut [T], &[usize]),
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let nothing = self.staging::<T>().part(&(0..0));
        self.begin_round(call, &nothing, deadline)?;
        let part = call.count / self.world();
        let part_of = |owner: usize| {
            let parts = pieces.iter().map(|piece| &piece[owner * part..(owner + 1) * part]);
            parts.collect::<Vec<_>>().concat()
        };
        let values: Vec<Vec<T>> = (0..self.world()).map(part_of).collect();
        let sends: Vec<_> =
            values.iter().enumerate().map(|(to, values)| SendBuf { to, values }).collect();
        let slots = pieces_of.iter().enumerate().map(|(from, count)| {
            let (values, rest) = std::mem::take(&mut parts).split_at_mut(count * part);
            parts = rest;
            RecvBuf { from, values }
        });
        self.transfer(call.op, &sends, &mut slots.collect::<Vec<_>>(), deadline)
    }
}
