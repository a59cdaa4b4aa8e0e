//! Streams and events of a device: a pipeline over three streams is right whenever its operations run, and a missing
//! wait is found.

use remuda::cuda::device::{
    Device, DeviceError, DeviceMatrix, DeviceMemory, EventId, KernelArgument, Matmul, StreamId,
};
use remuda::cuda::kernels::{Activation, ElementType, Kernel, KernelLaunch, KernelProgram};

use super::emulated_streams::{EmulatedStreams, Order};
use crate::support::proof::has;

const SIZE: u32 = 8;
const LEN: usize = (SIZE * SIZE) as usize;
const STEPS: usize = 4;
const RANDOM_ORDERS: u64 = 12;

fn orders() -> Vec<Order> {
    [Order::Early, Order::Late].into_iter().chain((0..RANDOM_ORDERS).map(Order::Random)).collect()
}

/// A wait that the pipeline leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// The copies do not wait until the input was used.
    Used,
    /// The products do not wait until the input is there.
    There,
    /// The sums do not wait until a product is ready.
    Ready,
    /// The products do not wait until the last one was summed.
    Summed,
}

/// Input of a step.
fn input(step: usize) -> Vec<f32> {
    (0..LEN).map(|at| ((at * 7 + step * 3) % 11) as f32 - 5.0).collect()
}

fn weight() -> Vec<f32> {
    (0..LEN).map(|at| ((at * 5) % 7) as f32 - 3.0).collect()
}

/// Σ relu(input · weight) · weight over all steps, in whole numbers.
fn expected() -> Vec<f32> {
    let weight = weight();
    let product = |a: &[f32], b: &[f32]| -> Vec<f32> {
        let size = SIZE as usize;
        let sum =
            |at: usize| (0..size).map(|k| a[at / size * size + k] * b[k * size + at % size]).sum();
        (0..LEN).map(sum).collect()
    };
    let mut total = vec![0.0; LEN];
    for step in 0..STEPS {
        let hidden = product(&input(step), &weight).into_iter().map(|x: f32| x.max(0.0));
        let added = product(&hidden.collect::<Vec<_>>(), &weight);
        total.iter_mut().zip(added).for_each(|(total, added)| *total += added);
    }
    total
}

/// Streams for copies, products and sums, with one buffer between each two of them.
struct Pipeline<'d> {
    device: &'d dyn Device,
    missing: Option<Missing>,
    streams: [StreamId; 3],
    events: [EventId; 4],
    /// Weight, input, product, total.
    memory: [Box<dyn DeviceMemory>; 4],
}

impl<'d> Pipeline<'d> {
    fn new(device: &'d dyn Device, missing: Option<Missing>) -> Result<Self, DeviceError> {
        let stream = |_| device.create_stream().expect("a stream");
        let event = |_| device.create_event().expect("an event");
        let memory = |_| device.alloc(LEN * 4).expect("memory");
        let [copies, products, sums] = [0, 1, 2].map(stream);
        let pipeline = Self {
            device,
            missing,
            streams: [copies, products, sums],
            events: [0, 1, 2, 3].map(event),
            memory: [0, 1, 2, 3].map(memory),
        };
        device.upload(products, bytemuck::cast_slice(&weight()), pipeline.memory[0].address())?;
        device.clear(sums, pipeline.memory[3].address(), LEN * 4)?;
        Ok(pipeline)
    }

    fn matrix(&self, memory: usize) -> DeviceMatrix {
        DeviceMatrix::new(self.memory[memory].address(), SIZE, SIZE, ElementType::F32)
    }

    fn wait(&self, stream: StreamId, event: EventId, wait: Missing) -> Result<(), DeviceError> {
        if self.missing == Some(wait) { Ok(()) } else { self.device.wait(stream, event) }
    }

    fn step(&self, input: &[f32]) -> Result<(), DeviceError> {
        let ([copies, products, sums], device) = (self.streams, self.device);
        let [used, there, ready, summed] = self.events;
        self.wait(copies, used, Missing::Used)?;
        device.upload(copies, bytemuck::cast_slice(input), self.memory[1].address())?;
        device.record(copies, there)?;
        self.wait(products, there, Missing::There)?;
        self.wait(products, summed, Missing::Summed)?;
        device.matmul(products, &Matmul::new(self.matrix(1), self.matrix(0), self.matrix(2)))?;
        device.record(products, used)?;
        self.relu(products)?;
        device.record(products, ready)?;
        self.wait(sums, ready, Missing::Ready)?;
        device.matmul(sums, &Matmul::new(self.matrix(2), self.matrix(0), self.matrix(3)).add())?;
        device.record(sums, summed)
    }

    fn relu(&self, stream: StreamId) -> Result<(), DeviceError> {
        let element = ElementType::F32;
        let program = KernelProgram::Activation(Activation::Relu, element);
        let product = KernelArgument::Address(self.memory[2].address());
        let arguments = [product, product, KernelArgument::U64(LEN as u64)];
        let size = KernelLaunch::elementwise(LEN as u64, element);
        self.device.launch(stream, (program, Kernel::ActivationForward), size, &arguments)
    }

    fn total(&self) -> Result<Vec<f32>, DeviceError> {
        let mut bytes = vec![0; LEN * 4];
        self.device.download(self.streams[2], self.memory[3].address(), &mut bytes)?;
        Ok(bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect())
    }
}

fn total_on(device: &dyn Device, missing: Option<Missing>) -> Vec<f32> {
    let pipeline = Pipeline::new(device, missing).expect("a pipeline");
    for step in 0..STEPS {
        pipeline.step(&input(step)).expect("a step");
    }
    pipeline.total().expect("the total")
}

/// Checks the pipeline on a device.
pub(super) fn check_pipeline(device: &dyn Device) {
    assert_eq!(total_on(device, None), expected());
}

fn run(order: Order, missing: Option<Missing>) -> Vec<f32> {
    let device = EmulatedStreams::new(order);
    let total = total_on(&device, missing);
    assert_eq!(device.host_waits(), 1, "only for the total");
    total
}

#[test]
fn pipeline_over_streams_is_right_in_every_order() {
    if !has("compiler", "pipeline_over_streams_is_right_in_every_order") {
        return;
    }
    for order in orders() {
        assert_eq!(run(order, None), expected(), "{order:?}");
    }
}

#[test]
fn every_missing_wait_gives_wrong_numbers() {
    if !has("compiler", "every_missing_wait_gives_wrong_numbers") {
        return;
    }
    let expected = expected();
    for missing in [Missing::Used, Missing::There, Missing::Ready, Missing::Summed] {
        let is_found = |order: &Order| run(*order, Some(missing)) != expected;
        assert!(orders().iter().any(is_found), "{missing:?} is not needed in any order");
    }
}

#[test]
fn event_is_complete_after_what_was_submitted_before() {
    if !has("compiler", "event_is_complete_after_what_was_submitted_before") {
        return;
    }
    for order in orders() {
        let device = EmulatedStreams::new(order);
        let pipeline = Pipeline::new(&device, None).expect("a pipeline");
        let event = device.create_event().expect("an event");
        assert_eq!(device.is_complete(event), Ok(true), "nothing was before it");
        pipeline.step(&input(0)).expect("a step");
        device.record(pipeline.streams[2], event).expect("it is recorded");
        let _ = pipeline.total();
        while !device.is_complete(event).expect("no error") {}
    }
}

#[test]
fn error_of_a_launch_is_that_of_later_calls() {
    if !has("compiler", "error_of_a_launch_is_that_of_later_calls") {
        return;
    }
    for order in orders() {
        let device = EmulatedStreams::new(order);
        let pipeline = Pipeline::new(&device, None).expect("a pipeline");
        let program = KernelProgram::Activation(Activation::Relu, ElementType::F32);
        let product = KernelArgument::Address(pipeline.memory[2].address());
        let size = KernelLaunch::elementwise(LEN as u64, ElementType::F32);
        let far = KernelArgument::U64(2 * LEN as u64);
        let launched = device.launch(
            pipeline.streams[2],
            (program, Kernel::ActivationForward),
            size,
            &[product, product, far],
        );
        let error = launched.and(pipeline.total()).expect_err("it writes beside its memory");
        assert!(error.to_string().contains("activation_float_relu.activation_forward"), "{error}");
        assert_eq!(pipeline.total(), Err(error));
    }
}
