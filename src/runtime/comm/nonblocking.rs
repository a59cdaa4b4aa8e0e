//! Nonblocking operations of [`Group`], which return a [`Work`] handle.
//!
//! A handle that borrows memory would be unsound if it is leaked, so these operations own their memory (a
//! [`Buffer`], a vector, or another type that dereferences to a slice) and return it at the end.

use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex};

use crate::base::{clock, lock};
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::ffi_memory::{MemoryParts, OwnedMemory, RawSlice};
use crate::runtime::comm::core::operation::Operation;
use crate::runtime::comm::executor::{OperationEvent, PendingOutcome};
use crate::runtime::comm::group::Group;
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::gather::Counts;
use crate::runtime::comm::host::messages::{Completion, Direction, MessageCall, StartedMessage};
use crate::runtime::comm::host::region::{CallMemory, PostOp, Region, SharedMemory, SourceMemory};
use crate::runtime::comm::shm::buffer::Buffer;
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::{Element, ReduceOp};

/// Started operations run one after the other, in the order of their start, which must be the same
/// on all ranks; messages that are started one after the other run together. A blocking operation waits for
/// all that were started before it.
impl Group {
    /// Starts an [`Self::all_reduce`] of a range of a buffer.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group, ReduceOp};
    /// let results = Group::on_threads(2, |group| {
    ///     let (mut first, mut second) = (group.alloc::<f32>(4)?, group.alloc::<f32>(4)?);
    ///     first.fill(1.0);
    ///     second.fill(2.0);
    ///     let first = group.start_all_reduce(first, 0..4, ReduceOp::Sum);
    ///     let second = group.start_all_reduce(second, 2..4, ReduceOp::Sum);
    ///     // Compute something else here.
    ///     let (first, second) = (first.wait()?, second.wait()?);
    ///     Ok([first[0], second[0], second[3]])
    /// })?;
    /// assert_eq!(results, [[2.0, 2.0, 4.0]; 2]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn start_all_reduce<T: Element>(
        &self,
        buffer: Buffer<T>,
        range: Range<usize>,
        op: ReduceOp,
    ) -> Work<Buffer<T>> {
        let len = buffer.len();
        let checked = if range.start <= range.end && range.end <= len {
            Ok(())
        } else {
            let problem = format!("range {range:?} is outside a buffer of {len} elements");
            Err(self.bad_argument(Operation::AllReduce, problem))
        };
        self.start(Operation::AllReduce, checked, buffer, move |backend, buffer| {
            let part = CallMemory::Shared(SharedMemory(buffer.window().part(&range)));
            backend.all_reduce(part, op, PostOp::Keep)
        })
    }

    /// Starts a [`Self::reduce`].
    pub fn start_reduce<R>(&self, data: R, op: ReduceOp, root: usize) -> Work<R>
    where
        R: Region + Send + 'static,
    {
        let checked = self.check_rank(Operation::Reduce, root);
        self.start(Operation::Reduce, checked, data, move |backend, data| {
            backend.reduce(data.memory(), op, root)
        })
    }

    /// Starts a [`Self::broadcast`].
    pub fn start_broadcast<R: Region + Send + 'static>(&self, data: R, root: usize) -> Work<R> {
        let checked = self.check_rank(Operation::Broadcast, root);
        self.start(Operation::Broadcast, checked, data, move |backend, data| {
            backend.broadcast(data.memory(), root)
        })
    }

    /// Starts an [`Self::all_gather`].
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group};
    /// let results = Group::on_threads(2, |group| {
    ///     let work = group.start_all_gather(vec![group.rank() as u8], vec![0; 2]);
    ///     let (_input, output) = work.wait()?;
    ///     Ok(output)
    /// })?;
    /// assert_eq!(results, [[0, 1]; 2]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn start_all_gather<T, A, B>(&self, input: A, output: B) -> Work<(A, B)>
    where
        T: Element,
        A: Deref<Target = [T]> + Send + 'static,
        B: DerefMut<Target = [T]> + Send + 'static,
    {
        let checked = self.check_parts(Operation::AllGather, output.len(), input.len());
        self.start(Operation::AllGather, checked, (input, output), |backend, (input, output)| {
            backend.all_gather(SourceMemory::Slice(input), CallMemory::Slice(output))
        })
    }

    /// Starts a [`Self::reduce_scatter`].
    pub fn start_reduce_scatter<T, A, B>(&self, input: A, output: B, op: ReduceOp) -> Work<(A, B)>
    where
        T: Element,
        A: Deref<Target = [T]> + Send + 'static,
        B: DerefMut<Target = [T]> + Send + 'static,
    {
        let checked = self.check_parts(Operation::ReduceScatter, input.len(), output.len());
        let memory = (input, output);
        self.start(Operation::ReduceScatter, checked, memory, move |backend, (input, output)| {
            let (input, output) = (SourceMemory::Slice(input), CallMemory::Slice(output));
            backend.reduce_scatter(input, output, op, PostOp::Keep)
        })
    }

    /// Starts a [`Self::gather`].
    pub fn start_gather<T, A, B>(&self, input: A, output: B, root: usize) -> Work<(A, B)>
    where
        T: Element,
        A: Deref<Target = [T]> + Send + 'static,
        B: DerefMut<Target = [T]> + Send + 'static,
    {
        let checked = self.check_root_parts(Operation::Gather, output.len(), input.len(), root);
        self.start(Operation::Gather, checked, (input, output), move |backend, (input, output)| {
            backend.gather(input, output, root)
        })
    }

    /// Starts a [`Self::scatter`].
    pub fn start_scatter<T, A, B>(&self, input: A, output: B, root: usize) -> Work<(A, B)>
    where
        T: Element,
        A: Deref<Target = [T]> + Send + 'static,
        B: DerefMut<Target = [T]> + Send + 'static,
    {
        let checked = self.check_root_parts(Operation::Scatter, input.len(), output.len(), root);
        self.start(Operation::Scatter, checked, (input, output), move |backend, (input, output)| {
            backend.scatter(input, output, root)
        })
    }

    /// Starts an [`Self::all_to_all`].
    pub fn start_all_to_all<T, A, B>(&self, input: A, output: B) -> Work<(A, B)>
    where
        T: Element,
        A: Deref<Target = [T]> + Send + 'static,
        B: DerefMut<Target = [T]> + Send + 'static,
    {
        let part = input.len() / self.world_size();
        let checked = self
            .check_parts(Operation::AllToAll, input.len(), part)
            .and_then(|()| self.check_parts(Operation::AllToAll, output.len(), part));
        self.start(
            Operation::AllToAll,
            checked,
            (input, output),
            move |backend, (input, output)| backend.all_to_all(input, output, Counts::Equal(part)),
        )
    }

    /// Starts a [`Self::send_recv`].
    pub fn start_send_recv<T, A, B>(
        &self,
        values: A,
        to: usize,
        buffer: B,
        from: usize,
    ) -> Work<(A, B)>
    where
        T: Element,
        A: Deref<Target = [T]> + Send + 'static,
        B: DerefMut<Target = [T]> + Send + 'static,
    {
        let op = Operation::SendRecv;
        let checked = self.check_rank(op, to).and_then(|()| self.check_rank(op, from));
        let memory = OwnedMemory::new((values, buffer), |(values, buffer)| MemoryParts {
            sends: vec![&**values],
            recvs: vec![&mut **buffer],
        });
        self.start_messages(op, checked, memory, &[to], &[from])
    }

    /// Starts a [`Self::send`].
    ///
    /// Messages that are started one after the other are in flight together, so ranks may start a send and
    /// then a receive in a cycle. Messages to one rank stay in order.
    ///
    /// ```
    /// # use remuda::runtime::{Error, Group};
    /// let results = Group::on_threads(3, |group| {
    ///     let (rank, world) = (group.rank(), group.world_size());
    ///     let send = group.start_send(vec![rank as i32], (rank + 1) % world);
    ///     let recv = group.start_recv(vec![0], (rank + world - 1) % world);
    ///     send.wait()?;
    ///     Ok(recv.wait()?[0])
    /// })?;
    /// assert_eq!(results, [2, 0, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn start_send<T, A>(&self, values: A, to: usize) -> Work<A>
    where
        T: Element,
        A: Deref<Target = [T]> + Send + 'static,
    {
        let checked = self.check_peer(Operation::Send, to);
        let memory = OwnedMemory::new(values, |values| MemoryParts {
            sends: vec![&**values],
            recvs: Vec::new(),
        });
        self.start_messages(Operation::Send, checked, memory, &[to], &[])
    }

    /// Starts a [`Self::recv`]; see [`Self::start_send`].
    pub fn start_recv<T, B>(&self, buffer: B, from: usize) -> Work<B>
    where
        T: Element,
        B: DerefMut<Target = [T]> + Send + 'static,
    {
        let checked = self.check_peer(Operation::Recv, from);
        let memory = OwnedMemory::new(buffer, |buffer| MemoryParts {
            sends: Vec::new(),
            recvs: vec![&mut **buffer],
        });
        self.start_messages(Operation::Recv, checked, memory, &[], &[from])
    }

    /// Starts an [`Self::exchange`]: each `(to, values)` is sent, each `(from, buffer)` is filled. Several
    /// messages to one rank, or from one, stay in order. The handle returns values and buffers.
    pub fn start_exchange<T, A, B>(
        &self,
        sends: Vec<(usize, A)>,
        recvs: Vec<(usize, B)>,
    ) -> Work<(Vec<A>, Vec<B>)>
    where
        T: Element,
        A: Deref<Target = [T]> + Send + 'static,
        B: DerefMut<Target = [T]> + Send + 'static,
    {
        let op = Operation::Exchange;
        let (to, values): (Vec<_>, Vec<_>) = sends.into_iter().unzip();
        let (from, buffers): (Vec<_>, Vec<_>) = recvs.into_iter().unzip();
        let checked = to.iter().chain(&from).try_for_each(|rank| self.check_rank(op, *rank));
        let memory = OwnedMemory::new((values, buffers), |(values, buffers)| MemoryParts {
            sends: values.iter().map(|values| &**values).collect(),
            recvs: buffers.iter_mut().map(|buffer| &mut **buffer).collect(),
        });
        self.start_messages(op, checked, memory, &to, &from)
    }

    /// Starts a [`Self::barrier`].
    pub fn start_barrier(&self) -> Work<()> {
        self.start(Operation::Barrier, Ok(()), (), |backend, ()| backend.barrier())
    }

    /// Starts messages: the sends of `memory` go to the ranks `to`, its receives come from the ranks `from`.
    pub(crate) fn start_messages<M: Send + 'static>(
        &self,
        op: Operation,
        checked: Result<(), CollectiveError>,
        memory: OwnedMemory<M>,
        to: &[usize],
        from: &[usize],
    ) -> Work<M> {
        let OwnedMemory { shared, sends, recvs } = memory;
        let bytes = |memory: &RawSlice| (memory.count() * memory.dtype().bytes()) as u64;
        let rank = self.rank();
        let from_others = recvs.iter().zip(from).filter(|(_, from)| **from != rank);
        let call = MessageCall {
            op,
            messages: sends.len() + recvs.len(),
            bytes: sends.iter().chain(&recvs).map(bytes).sum(),
            received: from_others.map(|(memory, _)| bytes(memory)).sum(),
        };
        if let Err(error) = checked {
            return Work::new(PendingOutcome::failed(error), shared, self.clone());
        }
        let (completion, receiver) = Completion::new(call, &self.inner.traffic);
        let since = clock::now();
        let message = |direction| {
            let completion = completion.clone();
            move |(memory, peer): (RawSlice, &usize)| {
                let (peer, completion) = (*peer, completion.clone());
                StartedMessage { direction, peer, memory, since, completion }
            }
        };
        let sends = sends.into_iter().zip(to).map(message(Direction::Send));
        let recvs = recvs.into_iter().zip(from).map(message(Direction::Recv));
        let messages: Vec<_> = sends.chain(recvs).collect();
        if messages.is_empty() {
            return Work::new(PendingOutcome::new(receiver), shared, self.clone());
        }
        let pending = match self.inner.executor.start_messages(messages) {
            Ok(()) => PendingOutcome::new(receiver),
            Err(error) => self.failed_thread(op, &error),
        };
        Work::new(pending, shared, self.clone())
    }

    /// Starts an operation, which owns its memory.
    pub(crate) fn start<M: Send + 'static>(
        &self,
        op: Operation,
        checked: Result<(), CollectiveError>,
        memory: M,
        operation: impl FnOnce(&mut HostBackend, &mut M) -> Result<(), CollectiveError> + Send + 'static,
    ) -> Work<M> {
        self.start_observed(op, checked, memory, operation, |_| {})
    }

    /// [`Self::start`]; `on_event` is called when the operation begins and when it has succeeded.
    pub(crate) fn start_observed<M: Send + 'static>(
        &self,
        op: Operation,
        checked: Result<(), CollectiveError>,
        memory: M,
        operation: impl FnOnce(&mut HostBackend, &mut M) -> Result<(), CollectiveError> + Send + 'static,
        on_event: impl Fn(OperationEvent) + Send + 'static,
    ) -> Work<M> {
        let memory = Arc::new(Mutex::new(Some(memory)));
        let shared = memory.clone();
        let on_memory = move |backend: &mut HostBackend| {
            let mut memory = lock(&shared);
            let memory = memory.as_mut().expect("memory is taken after the operation only");
            operation(backend, memory)
        };
        let pending = match checked {
            Ok(()) => self.start_on_thread(op, on_memory, on_event),
            Err(error) => PendingOutcome::failed(error),
        };
        Work::new(pending, memory, self.clone())
    }

    /// Starts an operation on the communication thread; aborts the group if there is no thread.
    pub(crate) fn start_on_thread(
        &self,
        op: Operation,
        operation: impl FnOnce(&mut HostBackend) -> Result<(), CollectiveError> + Send + 'static,
        on_event: impl Fn(OperationEvent) + Send + 'static,
    ) -> PendingOutcome {
        let reason = "the operation panicked on the communication thread".to_owned();
        let if_panicked = self.rejected(op, Cause::System(reason));
        let started = self.inner.executor.start(operation, on_event, if_panicked);
        started.unwrap_or_else(|error| self.failed_thread(op, &error))
    }

    /// Outcome of an operation without a communication thread; aborts the group.
    fn failed_thread(&self, op: Operation, error: &io::Error) -> PendingOutcome {
        let reason = format!("cannot start the communication thread: {error}");
        self.abort(&reason);
        PendingOutcome::failed(self.rejected(op, Cause::System(reason)))
    }
}
