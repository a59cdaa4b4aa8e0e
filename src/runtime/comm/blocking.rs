//! Blocking operations of [`Group`].

use std::time::Duration;

use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::Operation;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::gather::Counts;
use crate::runtime::comm::host::p2p::{RecvBuf, SendBuf};
use crate::runtime::comm::host::region::{CallMemory, PostOp, Region, SourceMemory};
use crate::runtime::dtype::element::{Element, ReduceOp};
use crate::runtime::schedule::tree::Lanes;

impl Group {
    /// Replaces `data` on every rank by its reduction over all ranks.
    ///
    /// `data` is a slice, a vector, an array, several slices, or a [`Buffer`](crate::runtime::Buffer),
    /// which is not copied. Floats are combined in the order of the canonical tree, so the bits of the
    /// result do not depend on the placement of the ranks.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group, ReduceOp};
    /// let results = Group::on_threads(3, |group| {
    ///     let mut values = [group.rank() as f32, 1.0];
    ///     group.all_reduce(&mut values, ReduceOp::Sum)?;
    ///     Ok(values)
    /// })?;
    /// assert_eq!(results, [[3.0, 3.0]; 3]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// Several slices are one operation, which costs as much as one slice of the same size:
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group, ReduceOp};
    /// let results = Group::on_threads(3, |group| {
    ///     let (mut weight, mut bias) = (vec![1.0f32; 4], [group.rank() as f32]);
    ///     group.all_reduce(&mut [&mut weight[..], &mut bias[..]], ReduceOp::Sum)?;
    ///     Ok((weight[3], bias[0]))
    /// })?;
    /// assert_eq!(results, [(3.0, 3.0); 3]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn all_reduce<R: Region + ?Sized>(
        &self,
        data: &mut R,
        op: ReduceOp,
    ) -> Result<(), CollectiveError> {
        self.run_blocking(|backend| backend.all_reduce(data.memory(), op, PostOp::Keep))
    }

    /// Replaces the data of rank `root` by the reduction over all ranks; other ranks keep their data.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group, ReduceOp};
    /// let results = Group::on_threads(3, |group| {
    ///     let mut value = [group.rank() as i64 + 1];
    ///     group.reduce(&mut value, ReduceOp::Prod, 0)?;
    ///     Ok(value[0])
    /// })?;
    /// assert_eq!(results, [6, 2, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn reduce<R: Region + ?Sized>(
        &self,
        data: &mut R,
        op: ReduceOp,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.check_rank(Operation::Reduce, root)?;
        self.run_blocking(|backend| backend.reduce(data.memory(), op, root))
    }

    /// Replaces the data of every rank by that of rank `root`.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group};
    /// let results = Group::on_threads(3, |group| {
    ///     let mut values = [group.rank() as u8; 2];
    ///     group.broadcast(&mut values, 1)?;
    ///     Ok(values)
    /// })?;
    /// assert_eq!(results, [[1, 1]; 3]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn broadcast<R: Region + ?Sized>(
        &self,
        data: &mut R,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.check_rank(Operation::Broadcast, root)?;
        self.run_blocking(|backend| backend.broadcast(data.memory(), root))
    }

    /// Fills `output` with the `input` of every rank, in rank order; `output` is `world_size` times as
    /// long as `input`.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group};
    /// let results = Group::on_threads(3, |group| {
    ///     let mut output = [0; 3];
    ///     group.all_gather(&[10 * group.rank() as i32], &mut output)?;
    ///     Ok(output)
    /// })?;
    /// assert_eq!(results, [[0, 10, 20]; 3]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn all_gather<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        self.check_parts(Operation::AllGather, output.len(), input.len())?;
        self.run_blocking(|backend| {
            backend.all_gather(SourceMemory::Slice(input), CallMemory::Slice(output))
        })
    }

    /// Fills `output` with part `rank` of the reduction of `input` over all ranks; `input` is `world_size`
    /// times as long as `output`.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group, ReduceOp};
    /// let results = Group::on_threads(2, |group| {
    ///     let mut output = [0.0; 2];
    ///     group.reduce_scatter(&[1.0f64, 2.0, 3.0, 4.0], &mut output, ReduceOp::Sum)?;
    ///     Ok(output)
    /// })?;
    /// assert_eq!(results, [[2.0, 4.0], [6.0, 8.0]]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn reduce_scatter<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CollectiveError> {
        self.check_parts(Operation::ReduceScatter, input.len(), output.len())?;
        self.run_blocking(|backend| {
            let (input, output) = (SourceMemory::Slice(input), CallMemory::Slice(output));
            backend.reduce_scatter(input, output, op, PostOp::Keep)
        })
    }

    /// Fills `output` on rank `root` with the `input` of every rank, in rank order. There, `output` is
    /// `world_size` times as long as `input`; on other ranks it is ignored and may be empty.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group};
    /// let results = Group::on_threads(3, |group| {
    ///     let mut output = vec![0; if group.rank() == 2 { 3 } else { 0 }];
    ///     group.gather(&[group.rank() as u8], &mut output, 2)?;
    ///     Ok(output)
    /// })?;
    /// assert_eq!(results, [vec![], vec![], vec![0, 1, 2]]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn gather<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.check_root_parts(Operation::Gather, output.len(), input.len(), root)?;
        self.run_blocking(|backend| backend.gather(input, output, root))
    }

    /// Fills `output` on every rank with part `rank` of the `input` of rank `root`. There, `input` is
    /// `world_size` times as long as `output`; on other ranks it is ignored and may be empty.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group};
    /// let results = Group::on_threads(3, |group| {
    ///     let input: &[i64] = if group.rank() == 0 { &[7, 8, 9] } else { &[] };
    ///     let mut output = [0];
    ///     group.scatter(input, &mut output, 0)?;
    ///     Ok(output[0])
    /// })?;
    /// assert_eq!(results, [7, 8, 9]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn scatter<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.check_root_parts(Operation::Scatter, input.len(), output.len(), root)?;
        self.run_blocking(|backend| backend.scatter(input, output, root))
    }

    /// Sends part `r` of `input` to rank `r` and fills part `r` of `output` with the part that rank `r`
    /// sends to this rank. Both consist of `world_size` equal parts.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group};
    /// let results = Group::on_threads(2, |group| {
    ///     let input = [10 * group.rank() as i32, 10 * group.rank() as i32 + 1];
    ///     let mut output = [0; 2];
    ///     group.all_to_all(&input, &mut output)?;
    ///     Ok(output)
    /// })?;
    /// assert_eq!(results, [[0, 10], [1, 11]]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn all_to_all<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let part = input.len() / self.world_size();
        self.check_parts(Operation::AllToAll, input.len(), part)?;
        self.check_parts(Operation::AllToAll, output.len(), part)?;
        self.run_blocking(|backend| backend.all_to_all(input, output, Counts::Equal(part)))
    }

    /// Exchanges parts of any length: `send_counts[r]` elements are sent to rank `r`, `recv_counts[r]` are
    /// received from it. The counts of the two ranks must agree. See [`Self::all_to_all`].
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group};
    /// let results = Group::on_threads(2, |group| {
    ///     // Rank 0 sends two numbers to rank 1 and receives none.
    ///     let (send_counts, recv_counts) =
    ///         if group.rank() == 0 { ([0, 2], [0, 0]) } else { ([0, 0], [2, 0]) };
    ///     let input: &[u8] = if group.rank() == 0 { &[5, 6] } else { &[] };
    ///     let mut output = vec![0; recv_counts.iter().sum()];
    ///     group.all_to_all_v(input, &send_counts, &mut output, &recv_counts)?;
    ///     Ok(output)
    /// })?;
    /// assert_eq!(results, [vec![], vec![5, 6]]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn all_to_all_v<T: Element>(
        &self,
        input: &[T],
        send_counts: &[usize],
        output: &mut [T],
        recv_counts: &[usize],
    ) -> Result<(), CollectiveError> {
        self.check_counts(input.len(), send_counts)?;
        self.check_counts(output.len(), recv_counts)?;
        let counts = Counts::Given { send: send_counts, recv: recv_counts };
        self.run_blocking(|backend| backend.all_to_all(input, output, counts))
    }

    /// Waits until every rank has called it.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group};
    /// Group::on_threads(3, |group| Ok(group.barrier()?))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        self.run_blocking(HostBackend::barrier)
    }

    /// Waits until every rank has called it, for at most `timeout`, or as long as any operation of the group. The
    /// error names the ranks that are late. Ranks that check each other here all call this function: a
    /// [`Self::barrier`] elsewhere is a mismatch.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use remuda::runtime::{Error, Group};
    /// Group::on_threads(3, |group| Ok(group.monitored_barrier(Some(Duration::from_secs(5)))?))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn monitored_barrier(&self, timeout: Option<Duration>) -> Result<(), CollectiveError> {
        self.run_blocking(|backend| backend.monitored_barrier(timeout))
    }

    /// Sends `values` to rank `to`, which calls [`Self::recv`]; returns when `values` can be changed: a
    /// rank of the same node has received them then, a rank of another node may not have. If two ranks
    /// both send first, they can wait for each other until the deadline: use [`Self::send_recv`].
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group};
    /// let results = Group::on_threads(2, |group| {
    ///     let mut value = [1.5f32];
    ///     match group.rank() {
    ///         0 => group.send(&value, 1)?,
    ///         _ => {
    ///             value = [0.0];
    ///             group.recv(&mut value, 0)?;
    ///         }
    ///     }
    ///     Ok(value)
    /// })?;
    /// assert_eq!(results, [[1.5]; 2]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn send<T: Element>(&self, values: &[T], to: usize) -> Result<(), CollectiveError> {
        self.check_peer(Operation::Send, to)?;
        let send = SendBuf { to, values };
        self.run_blocking(|backend| backend.exchange(Operation::Send, &[send], &mut []))
    }

    /// Receives `values` from rank `from`, which calls [`Self::send`] with the same number of elements.
    pub fn recv<T: Element>(&self, values: &mut [T], from: usize) -> Result<(), CollectiveError> {
        self.check_peer(Operation::Recv, from)?;
        let slot = RecvBuf { from, values };
        self.run_blocking(|backend| backend.exchange(Operation::Recv, &[], &mut [slot]))
    }

    /// Sends `values` to rank `to` and receives `buffer` from rank `from` at the same time, so ranks cannot
    /// deadlock in a cycle. The other ranks can call [`Self::send`] or [`Self::recv`].
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group};
    /// let results = Group::on_threads(4, |group| {
    ///     let (rank, world) = (group.rank(), group.world_size());
    ///     let mut left = [0];
    ///     group.send_recv(&[rank as i32], (rank + 1) % world, &mut left, (rank + world - 1) % world)?;
    ///     Ok(left[0])
    /// })?;
    /// assert_eq!(results, [3, 0, 1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn send_recv<T: Element>(
        &self,
        values: &[T],
        to: usize,
        buffer: &mut [T],
        from: usize,
    ) -> Result<(), CollectiveError> {
        self.check_rank(Operation::SendRecv, to)?;
        self.check_rank(Operation::SendRecv, from)?;
        let (send, slot) = (SendBuf { to, values }, RecvBuf { from, values: buffer });
        self.run_blocking(|backend| backend.exchange(Operation::SendRecv, &[send], &mut [slot]))
    }

    /// Sends and receives several messages at the same time, at most one in each direction for every
    /// rank: each `(to, values)` is sent, each `(from, buffer)` is filled. torch calls this a batch of
    /// `isend` and `irecv`.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group};
    /// // Every rank sends its number to both neighbours.
    /// let results = Group::on_threads(3, |group| {
    ///     let rank = group.rank();
    ///     let peers = [rank.wrapping_sub(1), rank + 1];
    ///     let peers: Vec<usize> = peers.into_iter().filter(|peer| *peer < 3).collect();
    ///     let values = [rank as u8];
    ///     let mut buffers = vec![[0u8]; peers.len()];
    ///     let sends: Vec<_> = peers.iter().map(|peer| (*peer, &values[..])).collect();
    ///     let recvs = peers.iter().zip(&mut buffers).map(|(peer, buffer)| (*peer, &mut buffer[..]));
    ///     group.exchange(&sends, recvs.collect())?;
    ///     Ok(buffers.concat())
    /// })?;
    /// assert_eq!(results, [vec![1], vec![0, 2], vec![1]]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn exchange<T: Element>(
        &self,
        sends: &[(usize, &[T])],
        recvs: Vec<(usize, &mut [T])>,
    ) -> Result<(), CollectiveError> {
        self.check_distinct(sends.iter().map(|(to, _)| *to))?;
        self.check_distinct(recvs.iter().map(|(from, _)| *from))?;
        let sends: Vec<_> = sends.iter().map(|(to, values)| SendBuf { to: *to, values }).collect();
        let slots = recvs.into_iter().map(|(from, values)| RecvBuf { from, values });
        let mut slots: Vec<_> = slots.collect();
        self.run_blocking(|backend| backend.exchange(Operation::Exchange, &sends, &mut slots))
    }

    pub(crate) fn check_rank(&self, op: Operation, rank: usize) -> Result<(), CollectiveError> {
        if rank < self.world_size() {
            Ok(())
        } else {
            let world = self.world_size();
            Err(self.bad_argument(op, format!("rank {rank} is not in a group of size {world}")))
        }
    }

    pub(crate) fn check_peer(&self, op: Operation, rank: usize) -> Result<(), CollectiveError> {
        self.check_rank(op, rank)?;
        if rank == self.rank() {
            let problem = "a rank cannot send to itself or receive from itself; use `send_recv`";
            Err(self.bad_argument(op, problem.to_owned()))
        } else {
            Ok(())
        }
    }

    /// Checks that no rank occurs twice.
    fn check_distinct(&self, peers: impl Iterator<Item = usize>) -> Result<(), CollectiveError> {
        let mut seen = vec![false; self.world_size()];
        for peer in peers {
            self.check_rank(Operation::Exchange, peer)?;
            if std::mem::replace(&mut seen[peer], true) {
                let problem =
                    format!("two messages in one direction between this rank and rank {peer}");
                return Err(self.bad_argument(Operation::Exchange, problem));
            }
        }
        Ok(())
    }

    /// Checks that `all` elements are one part of `part` elements for each rank.
    pub(crate) fn check_parts(
        &self,
        op: Operation,
        all: usize,
        part: usize,
    ) -> Result<(), CollectiveError> {
        let world = self.world_size();
        if part.checked_mul(world) == Some(all) {
            Ok(())
        } else {
            let problem = format!("expected {world} × {part} elements, got {all}");
            Err(self.bad_argument(op, problem))
        }
    }

    /// Checks that `all` elements can be divided into equal parts for the ranks.
    pub(crate) fn check_divisible(&self, op: Operation, all: usize) -> Result<(), CollectiveError> {
        self.check_parts(op, all, all / self.world_size())
    }

    /// Checks the pieces of a rank that has `lanes` lanes: their number, and that each has one part of `part`
    /// elements for each rank.
    pub(crate) fn check_pieces(
        &self,
        lens: &[usize],
        part: usize,
        lanes: usize,
    ) -> Result<(), CollectiveError> {
        let op = Operation::ReduceScatterOfPieces;
        if lanes == 0 {
            return Err(self.bad_argument(op, "a rank has at least one lane".to_owned()));
        }
        let ranks = self.world_size();
        let expected = Lanes { ranks, each: lanes }.pieces_of(self.rank()).len();
        if lens.len() != expected {
            let given = lens.len();
            let problem = format!(
                "expected {expected} pieces of {lanes} lanes of rank {} of {ranks}, got {given}",
                self.rank()
            );
            return Err(self.bad_argument(op, problem));
        }
        lens.iter().try_for_each(|len| self.check_parts(op, *len, part))
    }

    /// Checks the lengths like [`Self::check_parts`], on the root only.
    pub(crate) fn check_root_parts(
        &self,
        op: Operation,
        all: usize,
        part: usize,
        root: usize,
    ) -> Result<(), CollectiveError> {
        self.check_rank(op, root)?;
        if root == self.rank() { self.check_parts(op, all, part) } else { Ok(()) }
    }

    /// Checks that there is a count for each rank, and that their sum is `len`.
    pub(crate) fn check_counts(&self, len: usize, counts: &[usize]) -> Result<(), CollectiveError> {
        let world = self.world_size();
        let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        if counts.len() == world && sum == Some(len) {
            return Ok(());
        }
        let given = counts.len();
        let problem = format!("expected {world} counts whose sum is {len}, got {given} counts");
        Err(self.bad_argument(Operation::AllToAll, problem))
    }

    pub(crate) fn bad_argument(&self, op: Operation, problem: String) -> CollectiveError {
        self.rejected(op, Cause::Argument(problem))
    }
}
