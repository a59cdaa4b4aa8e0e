//! [`EmulatedStreams`]: the emulated device as a [`Device`], whose streams run as early or as late as events allow.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use remuda::cuda::device::{
    Device, DeviceAddress, DeviceError, DeviceMatrix, DeviceMemory, EventId, KernelArgument,
    Matmul, StreamId,
};
use remuda::cuda::kernels::{Kernel, KernelLaunch, KernelProgram};

use super::emulated::{device, name_of};
use super::ffi_emulated::{EmulatedMemory, Schedule, read_memory, write_memory};
use crate::support::proof::Random;
use remuda::runtime::kernel_checks::{decode, encode};

/// When the operations of streams run, among the times that are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As soon as they are submitted, unless they wait for an event.
    Early,
    /// When the host needs a result, and only those before it.
    Late,
    /// As soon as they are submitted, but for those of one stream, which run when the host needs a result.
    Lagging(usize),
    /// At any time; the number chooses.
    Random(u64),
}

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
    memory_changes: usize,
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

/// Number of records of an event that were submitted, and that were executed.
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    recorded: u64,
    executed: u64,
    /// Stream of the last record.
    stream: usize,
}

enum Operation {
    Run(Box<dyn FnOnce() -> Result<(), DeviceError> + Send>),
    Record { event: usize, number: u64 },
    Wait { event: usize, number: u64 },
}

impl EmulatedStreams {
    pub(super) fn new(order: Order) -> Self {
        let random = Random::new(match order {
            Order::Random(seed) => seed,
            Order::Early | Order::Late | Order::Lagging(_) => 0,
        });
        let (streams, events) = (Vec::new(), Vec::new());
        Self(Arc::new(Mutex::new(Queues {
            order,
            random,
            streams,
            events,
            error: None,
            counts: Vec::new(),
            memory_changes: 0,
        })))
    }

    /// How often the host has waited for a stream.
    pub(super) fn host_waits(&self) -> usize {
        self.counts().iter().map(|stream| stream.host_waits).sum()
    }

    /// What happened in the streams, in the order in which they were created.
    pub(super) fn counts(&self) -> Vec<StreamCounts> {
        self.lock().counts.clone()
    }

    /// How often memory was allocated or released, for which a driver may wait until the device is idle.
    pub(super) fn memory_changes(&self) -> usize {
        self.lock().memory_changes
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
        let is_executed = |events: &[Event], event: usize, number| number <= events[event].executed;
        match self.streams[stream].front() {
            None => return false,
            Some(Operation::Wait { event, number })
                if !is_executed(&self.events, *event, *number) =>
            {
                return false;
            }
            Some(_) => {}
        }
        match self.streams[stream].pop_front().expect("there is one") {
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
            Operation::Wait { .. } => {}
        }
        self.counts[stream].executed += 1;
        true
    }

    /// Executes all operations of a stream, and those of others for which it waits.
    fn finish(&mut self, stream: usize) {
        while !self.streams[stream].is_empty() {
            if self.step(stream) {
                continue;
            }
            let Some(&Operation::Wait { event, number }) = self.streams[stream].front() else {
                unreachable!("only a wait cannot be executed")
            };
            self.finish_record(event, number);
        }
    }

    /// Executes what is before a record of an event.
    fn finish_record(&mut self, event: usize, number: u64) {
        let is_record = |operation: &Operation| matches!(operation, Operation::Record { event: of, number: found } if (*of, *found) == (event, number));
        while self.events[event].executed < number {
            let found = self.streams.iter().position(|stream| stream.iter().any(is_record));
            let stream = found.expect("a record that was not executed is in a stream");
            if !self.step(stream) {
                let Some(&Operation::Wait { event, number }) = self.streams[stream].front() else {
                    unreachable!("only a wait cannot be executed")
                };
                self.finish_record(event, number);
            }
        }
    }
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
        let mut queues = self.device.lock();
        queues.memory_changes += 1;
        (0..queues.streams.len()).for_each(|stream| queues.finish(stream));
    }
}

impl Device for EmulatedStreams {
    fn name(&self) -> String {
        "emulated device".to_owned()
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn alloc(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        // NaN, whatever the type.
        let memory = device().memory(&vec![0xff; bytes]);
        self.lock().memory_changes += 1;
        Ok(Box::new(Memory { held: memory, bytes, device: self.clone() }))
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
        if executed < recorded && queues.order != Order::Early {
            // Who asks again and again gets ahead.
            queues.step(stream);
        }
        queues.error.clone().map_or(Ok(recorded <= executed), Err)
    }

    fn upload(&self, stream: StreamId, from: &[u8], to: DeviceAddress) -> Result<(), DeviceError> {
        let from = from.to_vec();
        self.submit(stream, move || {
            write_memory(to, &from);
            Ok(())
        })
    }

    fn download(
        &self,
        stream: StreamId,
        from: DeviceAddress,
        to: &mut [u8],
    ) -> Result<(), DeviceError> {
        let mut queues = self.lock();
        queues.counts[stream.0 as usize].host_waits += 1;
        queues.finish(stream.0 as usize);
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
        self.submit(stream, move || {
            multiply(&product);
            Ok(())
        })
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

fn multiply(product: &Matmul) {
    let inner = product.shape().inner as usize;
    let (a, b) = (rows_of(&product.a), rows_of(&product.b));
    let a = |row: usize, at: usize| if product.transposes_a { a[at][row] } else { a[row][at] };
    let b =
        |at: usize, column: usize| if product.transposes_b { b[column][at] } else { b[at][column] };
    let before = product.adds.then(|| rows_of(&product.c));
    for row in 0..product.c.rows {
        let of_row = row as usize;
        let sum = |column: usize| {
            let product = (0..inner).fold(0.0, |sum, at| sum + a(of_row, at) * b(at, column));
            f64::from(before.as_ref().map_or(0.0, |before| before[of_row][column]) + product)
        };
        let sums: Vec<f64> = (0..product.c.columns as usize).map(sum).collect();
        write_memory(row_address(&product.c, row), &encode(product.c.element, &sums));
    }
}
