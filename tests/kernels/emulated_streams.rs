//! [`EmulatedStreams`]: the emulated device as a [`Device`], whose streams run as early or as late as events allow.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use remuda::cuda::device::{
    CommunicatorOffer, Device, DeviceAddress, DeviceCommunicator, DeviceError, DeviceMatrix,
    DeviceMemory, Epilogue, EventId, KernelArgument, Matmul, MatmulBatch, PinnedId, SourceKernel,
    StreamId,
};
use remuda::cuda::kernels::{Activation, Kernel, KernelLaunch, KernelProgram};
use remuda::cuda::nccl::{UniqueId, Version};

use super::emulated::{device, name_of, name_of_source};
use super::emulated_ranks::{self, AwaitedRanks, Progress, RankOperation, Ranks, Sequence};
use super::ffi_emulated::{EmulatedMemory, Schedule, read_memory, write_memory};
use crate::support::proof::Random;
use remuda::runtime::kernel_checks::{decode, encode, value_and_slope};

/// When the operations of streams run, among the times that are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As soon as they are submitted, unless they wait for an event.
    Early,
    /// When the host needs a result, and only those before it.
    Late,
    /// As soon as they are submitted, but for those of one stream, which run when the host needs a result.
    Lagging(usize),
    /// Those of one stream as soon as they are submitted, and of the others what it waits for; the rest when the host needs
    /// a result.
    Ahead(usize),
    /// At any time; the number chooses.
    Random(u64),
}

/// How often a stream that is ahead can wait for other ranks before the others go on.
const POLLS_IN_VAIN_MAX: usize = 5000;
/// Memory of a device with a limit that the library of products takes on a GPU.
pub(super) const LIBRARY_BYTES: usize = 32 << 20;
/// Most memory that a device with a limit takes from the host.
const HOST_BYTES_MAX: usize = 1 << 30;
/// Most ranks that wait for each other in a chain.
const RANKS_MAX: usize = 8;

/// Emulated device with streams. Clones are the same device.
#[derive(Clone)]
pub(super) struct EmulatedStreams(Arc<Mutex<Queues>>);

struct Queues {
    order: Order,
    random: Random,
    streams: Vec<VecDeque<Operation>>,
    events: Vec<Event>,
    /// The first error of an operation; all later calls return it, as those of a driver do.
    error: Option<DeviceError>,
    counts: Vec<StreamCounts>,
    /// What was executed, in this order.
    executed: Vec<Executed>,
    memory_changes: usize,
    /// Pinned memory of the host, and the most parts of it.
    pinned: Vec<Arc<Mutex<Vec<u8>>>>,
    pinned_max: usize,
    /// Bytes of memory, if it has a limit, and those that are allocated.
    capacity: Option<usize>,
    allocated: usize,
    /// Memory that is prepared for exchanges: address and bytes, by the number of the communicator.
    registered: Vec<(u64, DeviceAddress, usize)>,
    /// Operations between ranks, and those on memory that was not prepared.
    exchanges: usize,
    unregistered: usize,
    /// How often the stream that is ahead has waited for other ranks since it was executed.
    polls_in_vain: usize,
    /// Number of this device, if it can be connected with others.
    uuid: Option<u128>,
    /// Whether kernels compute the epilogues of products.
    has_epilogues_apart: bool,
}

/// What happened in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamCounts {
    /// Operations that were submitted, and that were executed.
    pub(super) submitted: usize,
    pub(super) executed: usize,
    /// How often the host has waited for it.
    pub(super) host_waits: usize,
}

/// An operation that was executed: its stream, and its kind.
pub(super) type Executed = (usize, ExecutedKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExecutedKind {
    Computation,
    Record,
    Wait,
    /// An operation between ranks has sent its data.
    Sent,
    /// An operation between ranks has ended.
    Received,
}

/// Number of records of an event that were submitted, and that were executed.
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    recorded: u64,
    executed: u64,
    /// Stream of the last record.
    stream: usize,
}

/// What became of the first operation of a stream.
enum Step {
    Executed,
    /// The stream has none.
    Nothing,
    /// A record of an event was not executed.
    WaitsForEvent(usize, u64),
    WaitsForRanks(AwaitedRanks),
}

enum Operation {
    Run(Box<dyn FnOnce() -> Result<(), DeviceError> + Send>),
    Record { event: usize, number: u64 },
    Wait { event: usize, number: u64 },
    BetweenRanks(RankOperation),
}

impl Operation {
    fn kind(&self) -> ExecutedKind {
        match self {
            Self::Run(_) => ExecutedKind::Computation,
            Self::Record { .. } => ExecutedKind::Record,
            Self::Wait { .. } => ExecutedKind::Wait,
            Self::BetweenRanks(_) => ExecutedKind::Received,
        }
    }
}

impl EmulatedStreams {
    pub(super) fn new(order: Order) -> Self {
        let random = Random::new(match order {
            Order::Random(seed) => seed,
            Order::Early | Order::Late | Order::Lagging(_) | Order::Ahead(_) => 0,
        });
        let (streams, events) = (Vec::new(), Vec::new());
        Self(Arc::new(Mutex::new(Queues {
            order,
            random,
            streams,
            events,
            error: None,
            counts: Vec::new(),
            executed: Vec::new(),
            memory_changes: 0,
            pinned: Vec::new(),
            pinned_max: usize::MAX,
            capacity: None,
            allocated: 0,
            registered: Vec::new(),
            exchanges: 0,
            unregistered: 0,
            polls_in_vain: 0,
            uuid: None,
            has_epilogues_apart: false,
        })))
    }

    /// A device that can be connected with those of other ranks.
    pub(super) fn connected(order: Order) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let device = Self::new(order);
        device.lock().uuid = Some(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)));
        device
    }

    /// A device whose library of products has no epilogues.
    pub(super) fn with_epilogues_apart(self) -> Self {
        self.lock().has_epilogues_apart = true;
        self
    }

    /// A device that has only so many bytes of memory. That of the library cannot be allocated.
    pub(super) fn with_memory(self, bytes: usize) -> Self {
        self.lock().capacity = Some(bytes);
        self
    }

    /// How often the host has waited for a stream.
    pub(super) fn host_waits(&self) -> usize {
        self.counts().iter().map(|stream| stream.host_waits).sum()
    }

    /// What happened in the streams, in the order in which they were created.
    pub(super) fn counts(&self) -> Vec<StreamCounts> {
        self.lock().counts.clone()
    }

    /// What was executed so far, in this order.
    pub(super) fn executed(&self) -> Vec<Executed> {
        self.lock().executed.clone()
    }

    /// A device whose host pins only so many parts of its memory.
    pub(super) fn with_pinned(self, parts: usize) -> Self {
        self.lock().pinned_max = parts;
        self
    }

    /// How many parts of the memory of the host are pinned.
    pub(super) fn pinned(&self) -> usize {
        self.lock().pinned.len()
    }

    /// Bytes of each part of the memory of the host that is pinned.
    pub(super) fn pinned_bytes(&self) -> Vec<usize> {
        let bytes = |part: &Arc<Mutex<Vec<u8>>>| part.lock().expect("no thread panics").len();
        self.lock().pinned.iter().map(bytes).collect()
    }

    /// How often memory was allocated or released, for which a driver may wait until the device is idle.
    pub(super) fn memory_changes(&self) -> usize {
        self.lock().memory_changes
    }

    /// Operations between ranks, of this one, on memory that was not prepared for them.
    pub(super) fn unregistered_exchanges(&self) -> usize {
        self.lock().unregistered
    }

    /// Operations between ranks, of this one.
    pub(super) fn exchanges(&self) -> usize {
        self.lock().exchanges
    }

    /// Ranges of memory that are prepared for operations between ranks.
    pub(super) fn registered_ranges(&self) -> usize {
        self.lock().registered.len()
    }

    /// Prepares memory for the operations of a communicator.
    pub(super) fn register(&self, communicator: u64, at: DeviceAddress, bytes: usize) {
        self.lock().registered.push((communicator, at, bytes));
    }

    /// Ends the preparation of the memory at an address, or of all memory of a communicator.
    pub(super) fn release(&self, communicator: u64, at: Option<DeviceAddress>) {
        let is_meant =
            |of: u64, start: DeviceAddress| of == communicator && at.is_none_or(|at| at == start);
        self.lock().registered.retain(|(of, start, _)| !is_meant(*of, *start));
    }

    /// Counts an operation if it uses memory that is not prepared for this communicator.
    pub(super) fn note_exchange(&self, communicator: u64, used: &[(DeviceAddress, usize)]) {
        let mut queues = self.lock();
        queues.exchanges += 1;
        let is_ready = |(at, bytes): &(DeviceAddress, usize)| {
            queues.registered.iter().any(|(of, start, all)| {
                *of == communicator
                    && start.0 <= at.0
                    && at.0 + *bytes as u64 <= start.0 + *all as u64
            })
        };
        if !used.iter().all(is_ready) {
            queues.unregistered += 1;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queues> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }

    fn submit(
        &self,
        stream: StreamId,
        run: impl FnOnce() -> Result<(), DeviceError> + Send + 'static,
    ) -> Result<(), DeviceError> {
        self.lock().submit(stream, Operation::Run(Box::new(run)))
    }
}

impl Queues {
    fn submit(&mut self, stream: StreamId, operation: Operation) -> Result<(), DeviceError> {
        self.streams[stream.0 as usize].push_back(operation);
        self.counts[stream.0 as usize].submitted += 1;
        match self.order {
            Order::Early => while (0..self.streams.len()).any(|stream| self.step(stream)) {},
            Order::Lagging(late) => {
                let all = 0..self.streams.len();
                while all.clone().any(|stream| stream != late && self.step(stream)) {}
            }
            Order::Late => {}
            Order::Ahead(first) => while self.is_advanced(first) {},
            Order::Random(_) => {
                for _ in 0..self.random.below(4) {
                    let stream = self.random.below(self.streams.len());
                    self.step(stream);
                }
            }
        }
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Executes the next operation of a stream; returns whether there was one that could be executed.
    fn step(&mut self, stream: usize) -> bool {
        matches!(self.try_step(stream), Step::Executed)
    }

    /// Executes the next operation of a stream, if there is one that can be executed.
    fn try_step(&mut self, stream: usize) -> Step {
        let is_executed = |events: &[Event], event: usize, number| number <= events[event].executed;
        match self.streams[stream].front() {
            None => return Step::Nothing,
            Some(Operation::Wait { event, number })
                if !is_executed(&self.events, *event, *number) =>
            {
                return Step::WaitsForEvent(*event, *number);
            }
            Some(Operation::BetweenRanks(_)) if self.error.is_none() => {
                return self.step_between_ranks(stream);
            }
            Some(_) => {}
        }
        let operation = self.streams[stream].pop_front().expect("there is one");
        self.executed.push((stream, operation.kind()));
        match operation {
            Operation::Run(run) => {
                // After an error, a device executes nothing.
                if self.error.is_none() {
                    self.error = run().err();
                }
            }
            Operation::Record { event, number } => {
                let executed = &mut self.events[event].executed;
                *executed = number.max(*executed);
            }
            Operation::Wait { .. } | Operation::BetweenRanks(_) => {}
        }
        self.counts[stream].executed += 1;
        Step::Executed
    }

    /// Advances the operation between ranks that is the first of a stream.
    fn step_between_ranks(&mut self, stream: usize) -> Step {
        let Some(Operation::BetweenRanks(operation)) = self.streams[stream].front_mut() else {
            unreachable!("the caller has looked")
        };
        match operation.advance() {
            Progress::Sent => {
                self.executed.push((stream, ExecutedKind::Sent));
                return Step::Executed;
            }
            Progress::Waits(awaited) => return Step::WaitsForRanks(awaited),
            Progress::Failed(error) => self.error = Some(error),
            Progress::Ended => {}
        }
        self.streams[stream].pop_front();
        self.executed.push((stream, ExecutedKind::Received));
        self.counts[stream].executed += 1;
        Step::Executed
    }

    /// Advances a stream by one operation, of its own or of another one for which it waits. Returns what other devices
    /// must do before, if they must.
    fn advance(&mut self, stream: usize) -> Option<AwaitedRanks> {
        if let Order::Ahead(first) = self.order
            && first < self.streams.len()
            && self.polls_in_vain < POLLS_IN_VAIN_MAX
        {
            match self.try_step(first) {
                Step::Executed => return None,
                Step::WaitsForRanks(awaited) => {
                    self.polls_in_vain += 1;
                    return Some(awaited);
                }
                Step::Nothing | Step::WaitsForEvent(..) => {}
            }
        }
        self.polls_in_vain = 0;
        match self.try_step(stream) {
            Step::Nothing | Step::Executed => None,
            Step::WaitsForRanks(awaited) => Some(awaited),
            Step::WaitsForEvent(event, number) => {
                let is_record = |operation: &Operation| matches!(operation, Operation::Record { event: of, number: found } if (*of, *found) == (event, number));
                let found = self.streams.iter().position(|stream| stream.iter().any(is_record));
                self.advance(found.expect("a record that was not executed is in a stream"))
            }
        }
    }

    /// Executes the next operation of a stream, or one for which it waits; returns whether there was one.
    fn is_advanced(&mut self, stream: usize) -> bool {
        let before = self.executed.len();
        if stream < self.streams.len() && !self.streams[stream].is_empty() {
            let _ = self.advance(stream);
        }
        before < self.executed.len()
    }

    /// The stream with an operation between ranks that has not sent its data.
    fn stream_of(&self, ranks: &Arc<Ranks>, sequence: Sequence) -> Option<usize> {
        let is_wanted = |operation: &Operation| matches!(operation, Operation::BetweenRanks(of) if of.is_wanted(ranks, sequence));
        self.streams.iter().position(|stream| stream.iter().any(is_wanted))
    }
}

impl EmulatedStreams {
    /// Executes all operations of a stream, and those of others for which it waits, of all ranks.
    pub(super) fn finish(&self, stream: usize) {
        loop {
            let awaited = {
                let mut queues = self.lock();
                if queues.streams[stream].is_empty() {
                    return;
                }
                queues.advance(stream)
            };
            help(awaited, RANKS_MAX);
        }
    }

    /// Lets this device send what another one waits for, as far as it can now.
    fn help_with(&self, ranks: &Arc<Ranks>, sequence: Sequence, depth: usize) {
        let awaited = {
            // Another thread that has the device makes progress itself.
            let Ok(mut queues) = self.0.try_lock() else { return };
            let Some(stream) = queues.stream_of(ranks, sequence) else { return };
            queues.advance(stream)
        };
        help(awaited, depth);
    }

    /// Submits an operation between ranks.
    pub(super) fn submit_between_ranks(
        &self,
        stream: StreamId,
        operation: RankOperation,
    ) -> Result<(), DeviceError> {
        self.lock().submit(stream, Operation::BetweenRanks(operation))
    }
}

/// Lets other devices do what one waits for.
fn help(awaited: Option<AwaitedRanks>, depth: usize) {
    let Some(AwaitedRanks { ranks, sequence, devices }) = awaited else { return };
    if 0 < depth {
        for device in &devices {
            device.help_with(&ranks, sequence, depth - 1);
        }
    }
    std::thread::yield_now();
}

/// Memory of the emulated device, which is released when nothing uses it.
struct Memory {
    held: EmulatedMemory<'static>,
    bytes: usize,
    device: EmulatedStreams,
}

impl DeviceMemory for Memory {
    fn address(&self) -> DeviceAddress {
        self.held.address()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let streams = {
            let mut queues = self.device.lock();
            queues.memory_changes += 1;
            queues.allocated -= self.bytes;
            let own = self.held.address();
            let is_free = queues.registered.iter().all(|(_, at, _)| *at != own);
            assert!(is_free || std::thread::panicking(), "memory is released before it is freed");
            queues.streams.len()
        };
        (0..streams).for_each(|stream| self.device.finish(stream));
    }
}

impl Device for EmulatedStreams {
    fn name(&self) -> String {
        "emulated device".to_owned()
    }

    fn free_bytes(&self) -> Option<u64> {
        let queues = self.lock();
        queues.capacity.map(|capacity| (capacity - queues.allocated) as u64)
    }

    fn alloc(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        {
            let mut queues = self.lock();
            let own = queues.capacity.map(|capacity| capacity.saturating_sub(LIBRARY_BYTES));
            let most = own.map(|own| own.min(HOST_BYTES_MAX));
            if most.is_some_and(|most| most < queues.allocated + bytes) {
                return Err(DeviceError::OutOfMemory { bytes, problem: "none is left".to_owned() });
            }
            queues.allocated += bytes;
            queues.memory_changes += 1;
        }
        // NaN, whatever the type.
        let memory = device().memory(&vec![0xff; bytes]);
        Ok(Box::new(Memory { held: memory, bytes, device: self.clone() }))
    }

    fn alloc_exchanged(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        self.alloc(bytes)
    }

    fn create_stream(&self) -> Result<StreamId, DeviceError> {
        let mut queues = self.lock();
        queues.streams.push(VecDeque::new());
        queues.counts.push(StreamCounts::default());
        Ok(StreamId(queues.streams.len() as u32 - 1))
    }

    fn create_event(&self) -> Result<EventId, DeviceError> {
        let mut queues = self.lock();
        queues.events.push(Event::default());
        Ok(EventId(queues.events.len() as u32 - 1))
    }

    fn record(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        let mut queues = self.lock();
        let event = event.0 as usize;
        queues.events[event].recorded += 1;
        queues.events[event].stream = stream.0 as usize;
        let number = queues.events[event].recorded;
        queues.submit(stream, Operation::Record { event, number })
    }

    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        let mut queues = self.lock();
        let event = event.0 as usize;
        let number = queues.events[event].recorded;
        queues.submit(stream, Operation::Wait { event, number })
    }

    fn is_complete(&self, event: EventId) -> Result<bool, DeviceError> {
        let mut queues = self.lock();
        let Event { recorded, executed, stream } = queues.events[event.0 as usize];
        // Who asks again and again gets ahead.
        let awaited = (executed < recorded).then(|| queues.advance(stream)).flatten();
        let answer = queues.error.clone().map_or(Ok(recorded <= executed), Err);
        drop(queues);
        help(awaited, RANKS_MAX);
        answer
    }

    fn upload(&self, stream: StreamId, from: &[u8], to: DeviceAddress) -> Result<(), DeviceError> {
        let from = from.to_vec();
        self.submit(stream, move || {
            write_memory(to, &from);
            Ok(())
        })
    }

    fn create_pinned(&self, bytes: usize) -> Result<Option<PinnedId>, DeviceError> {
        let mut queues = self.lock();
        if queues.pinned.len() == queues.pinned_max {
            return Ok(None);
        }
        queues.pinned.push(Arc::new(Mutex::new(vec![0xff; bytes])));
        Ok(Some(PinnedId(queues.pinned.len() as u32 - 1)))
    }

    /// The device reads the pinned memory when it executes the copy.
    fn upload_pinned(
        &self,
        stream: StreamId,
        through: PinnedId,
        from: &[u8],
        to: DeviceAddress,
    ) -> Result<(), DeviceError> {
        let pinned = self.lock().pinned[through.0 as usize].clone();
        let bytes = from.len();
        pinned.lock().expect("no thread panics")[..bytes].copy_from_slice(from);
        self.submit(stream, move || {
            write_memory(to, &pinned.lock().expect("no thread panics")[..bytes]);
            Ok(())
        })
    }

    fn download(
        &self,
        stream: StreamId,
        from: DeviceAddress,
        to: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.lock().counts[stream.0 as usize].host_waits += 1;
        self.finish(stream.0 as usize);
        let queues = self.lock();
        queues.error.clone().map_or(Ok(()), Err)?;
        to.copy_from_slice(&read_memory(from, to.len()));
        Ok(())
    }

    fn copy(
        &self,
        stream: StreamId,
        from: DeviceAddress,
        to: DeviceAddress,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.submit(stream, move || {
            write_memory(to, &read_memory(from, bytes));
            Ok(())
        })
    }

    fn clear(&self, stream: StreamId, at: DeviceAddress, bytes: usize) -> Result<(), DeviceError> {
        self.submit(stream, move || {
            write_memory(at, &vec![0; bytes]);
            Ok(())
        })
    }

    fn launch(
        &self,
        stream: StreamId,
        (program, kernel): (KernelProgram, Kernel),
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<(), DeviceError> {
        let (name, arguments) = (name_of(program, kernel), arguments.to_vec());
        self.submit(stream, move || {
            let done = device().launch(&name, size, &arguments, Schedule::Late(0), None);
            done.map_err(|problem| DeviceError::Failed { operation: name, problem })
        })
    }

    fn matmul(&self, stream: StreamId, product: &Matmul) -> Result<(), DeviceError> {
        let product = *product;
        product.shape();
        let is_apart = self.lock().has_epilogues_apart;
        if let Some((plain, kernel)) = product.with_epilogue_apart().filter(|_| is_apart) {
            self.matmul(stream, &plain)?;
            return self.launch(stream, kernel.kernel, kernel.size, &kernel.arguments);
        }
        self.submit(stream, move || {
            multiply(&product);
            Ok(())
        })
    }

    fn launch_source(
        &self,
        stream: StreamId,
        kernel: &SourceKernel,
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<(), DeviceError> {
        let (name, arguments) = (name_of_source(&kernel.name), arguments.to_vec());
        self.submit(stream, move || {
            let done = device().launch(&name, size, &arguments, Schedule::Late(0), None);
            done.map_err(|problem| DeviceError::Failed { operation: name, problem })
        })
    }

    fn load_source(&self, _kernel: &SourceKernel) -> Result<(), DeviceError> {
        Ok(())
    }

    fn communicator_offer(&self) -> Option<CommunicatorOffer> {
        let uuid = self.lock().uuid?;
        Some(CommunicatorOffer { uuid, version: Version::LEAST, may_share: false })
    }

    fn create_communicator_id(&self) -> Result<UniqueId, DeviceError> {
        Ok(emulated_ranks::new_id())
    }

    fn connect(
        &self,
        stream: StreamId,
        id: UniqueId,
        ranks: (usize, usize),
    ) -> Result<Box<dyn DeviceCommunicator>, DeviceError> {
        Ok(emulated_ranks::connect(self, stream, id, ranks))
    }
}

/// The rows of a matrix.
fn rows_of(matrix: &DeviceMatrix) -> Vec<Vec<f32>> {
    let bytes = matrix.columns as usize * matrix.element.bytes();
    let row = |row: u32| {
        let values = decode(matrix.element, &read_memory(row_address(matrix, row), bytes));
        values.into_iter().map(|value| value as f32).collect()
    };
    (0..matrix.rows).map(row).collect()
}

fn row_address(matrix: &DeviceMatrix, row: u32) -> DeviceAddress {
    matrix.address.offset(row as usize * matrix.stride as usize * matrix.element.bytes())
}

/// The rows of an operand of a product, transposed if it reads it so.
fn operand(matrix: &DeviceMatrix, is_transposed: bool) -> Vec<Vec<f32>> {
    let rows = rows_of(matrix);
    if !is_transposed {
        return rows;
    }
    let column = |column: usize| rows.iter().map(|row| row[column]).collect();
    (0..matrix.columns as usize).map(column).collect()
}

/// Computes products as a device does.
pub(super) fn multiply(product: &Matmul) {
    product.shape();
    let MatmulBatch { count, strides } = product.batch;
    for number in 0..count as usize {
        let [a, b, c] = [product.a, product.b, product.c];
        let at = |matrix: DeviceMatrix, stride: u64| {
            let bytes = number * stride as usize * matrix.element.bytes();
            DeviceMatrix { address: matrix.address.offset(bytes), ..matrix }
        };
        let (a, b, c) = (at(a, strides[0]), at(b, strides[1]), at(c, strides[2]));
        multiply_one(&Matmul { a, b, c, ..*product });
    }
}

/// Adds the products of a number of the result in the order of the inner index.
fn multiply_one(product: &Matmul) {
    let a = operand(&product.a, product.transposes_a);
    let b = operand(&product.b, product.transposes_b);
    let before = product.adds.then(|| rows_of(&product.c));
    for (row, factors) in (0..product.c.rows).zip(&a) {
        let mut sums = vec![0.0; product.c.columns as usize];
        for (factor, values) in factors.iter().zip(&b) {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += factor * value;
            }
        }
        if let Some(before) = &before {
            sums.iter_mut().zip(&before[row as usize]).for_each(|(sum, before)| *sum += before);
        }
        let mut sums: Vec<f64> = sums.into_iter().map(f64::from).collect();
        finish(product, row, &mut sums);
        write_memory(row_address(&product.c, row), &encode(product.c.element, &sums));
    }
}

/// Computes the epilogue of a row from sums that are not rounded to the type of the result.
fn finish(product: &Matmul, row: u32, sums: &mut [f64]) {
    let c = product.c;
    let row_at = |address, row| row_address(&DeviceMatrix { address, ..c }, row);
    let bytes = sums.len() * c.element.bytes();
    let read = |at: DeviceAddress| decode(c.element, &read_memory(at, bytes));
    let add = |sums: &mut [f64], bias| {
        sums.iter_mut().zip(read(bias)).for_each(|(sum, bias)| *sum += bias);
    };
    let of = |x: &f64| value_and_slope(Activation::GeluTanh, *x);
    match product.epilogue {
        Epilogue::None => {}
        Epilogue::Bias { bias } => add(sums, bias),
        Epilogue::Gelu { bias, before } => {
            add(sums, bias);
            write_memory(row_at(before, row), &encode(c.element, sums));
            for sum in sums {
                *sum = of(sum).0;
            }
        }
        Epilogue::GeluBackward { before } => {
            let before = read(row_at(before, row));
            sums.iter_mut().zip(&before).for_each(|(sum, before)| *sum *= of(before).1);
        }
    }
}
