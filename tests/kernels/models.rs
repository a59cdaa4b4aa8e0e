//! Models on the emulated device: losses and gradients, compared with those of the models on the CPU in double
//! precision.

use std::sync::Arc;

use remuda::cuda::device::{Device, DeviceAddress, DeviceMemory};
use remuda::cuda::kernels::{ElementType, HalfType};
use remuda::runtime::RandomStream;
use remuda::runtime::engine::{
    DeviceBackward, DeviceForward, DeviceLosses, DeviceModel, Model, ModelPass, gradient_of,
};
use remuda::train::{
    DeviceGpt, DeviceMlp, Gpt, GptArchitecture, GptConfig, Mlp, Samples, Sequences, Threads,
};

use super::emulated_streams::{EmulatedStreams, Order};
use crate::support::proof::has;
use remuda::runtime::kernel_checks::{decode, encode, error_of};

const ORDERS: [Order; 3] = [Order::Early, Order::Late, Order::Random(1)];
const LOSS_SCALE: f32 = 8.0;

/// Loss of a batch, and `LOSS_SCALE` times its gradient.
struct Outcome {
    loss: f64,
    gradient: Vec<f64>,
}

/// Addresses of the units of a pass.
fn addresses(pass: &ModelPass, memory: &[Box<dyn DeviceMemory>]) -> Vec<(usize, DeviceAddress)> {
    pass.units.iter().map(|unit| (*unit, memory[*unit].address())).collect()
}

/// Runs all passes of a model over parameters that are rounded to the type in which it computes.
fn run<M: DeviceModel>(
    device: &Arc<dyn Device>,
    model: &mut M,
    element: ElementType,
    (params, batch): (&[f64], &M::Batch),
) -> Outcome {
    let stream = device.create_stream().expect("a stream");
    let units = model.parameters().units().to_vec();
    let alloc = |bytes| device.alloc(bytes).expect("memory");
    let upload = |memory: &dyn DeviceMemory, bytes: &[u8]| {
        device.upload(stream, bytes, memory.address()).expect("a copy");
    };
    let weights: Vec<_> =
        units.iter().map(|unit| alloc(unit.range.len() * element.bytes())).collect();
    let gradients: Vec<_> = units.iter().map(|unit| alloc(unit.range.len() * 4)).collect();
    for (unit, weights) in units.iter().zip(&weights) {
        upload(&**weights, &encode(element, &params[unit.range.clone()]));
    }
    for gradient in &gradients {
        device.clear(stream, gradient.address(), gradient.bytes()).expect("zeros");
    }
    let loss_scale = alloc(4);
    upload(&*loss_scale, &LOSS_SCALE.to_ne_bytes());
    let passes = model.passes();
    for (index, pass) in passes.iter().enumerate() {
        let units = addresses(pass, &weights);
        let pass = DeviceForward {
            index,
            is_recomputation: false,
            stream,
            loss_scale: loss_scale.address(),
            units: &units,
        };
        model.forward(&pass, batch).expect("a pass");
    }
    let DeviceLosses { address, count } = model.losses();
    let mut losses = vec![0.0f32; count];
    device.download(stream, address, bytemuck::cast_slice_mut(&mut losses)).expect("the losses");
    let loss = DeviceLosses::mean(&losses);
    for (index, pass) in passes.iter().enumerate().rev() {
        let (units, gradients) = (addresses(pass, &weights), addresses(pass, &gradients));
        let forward = DeviceForward {
            index,
            is_recomputation: false,
            stream,
            loss_scale: loss_scale.address(),
            units: &units,
        };
        model.backward(&DeviceBackward { forward, gradients: &gradients }, batch).expect("a pass");
    }
    let gradient = gradients.iter().flat_map(|gradient| {
        let mut bytes = vec![0; gradient.bytes()];
        device.download(stream, gradient.address(), &mut bytes).expect("a copy");
        decode(ElementType::F32, &bytes)
    });
    Outcome { loss: f64::from(loss), gradient: gradient.collect() }
}

fn widened(samples: &Samples<f32>) -> Samples<f64> {
    let inputs = samples.inputs.iter().map(|value| f64::from(*value)).collect();
    Samples { inputs, classes: samples.classes.clone() }
}

/// Largest errors of loss and gradient, relative.
fn limits(element: ElementType) -> (f64, f64) {
    match element {
        ElementType::F32 => (1e-6, 1e-5),
        ElementType::Half(HalfType::Bf16) => (1e-2, 2e-2),
        ElementType::Half(HalfType::F16) => (1e-3, 3e-3),
    }
}

/// Compares a model on a device with the same on a CPU, at parameters that differ from the initial ones, so that gains
/// are not one.
#[track_caller]
fn check<H: Model<f64>, D: DeviceModel>(
    (mut host, host_batch): (H, &H::Batch),
    new: impl Fn(Arc<dyn Device>) -> D,
    (batch, element): (&D::Batch, ElementType),
    devices: &[Arc<dyn Device>],
) {
    let mut stream = RandomStream::new(&[7]);
    let mut params: Vec<f64> = host.parameters().init(3);
    for value in &mut params {
        *value += 0.05 * stream.normal();
    }
    let params = rounded(&params, element);
    let mut expected = vec![0.0; params.len()];
    let loss = gradient_of(&mut host, &params, host_batch, &mut expected).expect("its passes");
    for value in &mut expected {
        *value *= f64::from(LOSS_SCALE);
    }
    let (loss_limit, limit) = limits(element);
    let mut bits = None;
    for (number, device) in devices.iter().enumerate() {
        let mut model = new(device.clone());
        let found = run(device, &mut model, element, (&params, batch));
        let error = (found.loss - loss).abs() / loss;
        assert!(error < loss_limit, "{element:?}: loss {} instead of {loss}", found.loss);
        for parameter in host.parameters() {
            let range = parameter.range.clone();
            let error = error_of(&found.gradient[range.clone()], &expected[range]);
            assert!(error < limit, "{element:?}: error of `{}` {error:.1e}", parameter.name);
        }
        assert_eq!(*bits.get_or_insert(found.gradient.clone()), found.gradient, "device {number}");
    }
}

fn rounded(values: &[f64], element: ElementType) -> Vec<f64> {
    decode(element, &encode(element, values))
}

#[track_caller]
fn check_mlp(devices: &[Arc<dyn Device>], sizes: &[usize], (count, element): (usize, ElementType)) {
    let mut stream = RandomStream::new(&[6, count as u64]);
    let inputs: Vec<f64> = (0..sizes[0] * count).map(|_| stream.normal()).collect();
    let inputs = rounded(&inputs, element).into_iter().map(|value| value as f32).collect();
    let last = sizes[sizes.len() - 1];
    let classes = (0..count).map(|_| stream.below(last) as u8).collect();
    let batch = Samples { inputs, classes };
    let host = Mlp::<f64>::new(sizes, Threads::ONE);
    let new = |device| DeviceMlp::new(device, sizes, element);
    check((host, &widened(&batch)), new, (&batch, element), devices);
}

#[track_caller]
fn check_gpt(
    devices: &[Arc<dyn Device>],
    config: GptConfig,
    (length, count): (usize, usize),
    half: HalfType,
) {
    let mut stream = RandomStream::new(&[5, length as u64]);
    let mut draw = || (0..length * count).map(|_| stream.below(config.vocabulary) as u32).collect();
    let batch = Sequences { length, inputs: draw(), targets: draw() };
    let host = Gpt::<f64>::new(config, Threads::ONE);
    let new = |device| DeviceGpt::new(device, config, half).expect("heads of 64 or 128 features");
    check((host, &batch), new, (&batch, ElementType::Half(half)), devices);
}

fn gpt(architecture: GptArchitecture, layers: usize, heads: usize, width: usize) -> GptConfig {
    GptConfig { architecture, vocabulary: 37, block: 80, layers, heads, width }
}

/// The emulated device, once for every order.
fn emulated() -> Vec<Arc<dyn Device>> {
    let new = |order| -> Arc<dyn Device> { Arc::new(EmulatedStreams::new(order)) };
    ORDERS.map(new).into()
}

/// Checks MLPs on all of these devices, whose gradients have the same bits.
pub(super) fn check_mlps(devices: &[Arc<dyn Device>]) {
    for element in ElementType::ALL {
        check_mlp(devices, &[24, 32, 16, 10], (7, element));
        check_mlp(devices, &[8, 3], (1, element));
        check_mlp(devices, &[5, 9, 2], (33, element));
    }
}

/// Checks GPTs on all of these devices, whose gradients have the same bits.
pub(super) fn check_gpts(devices: &[Arc<dyn Device>]) {
    let (plain, gpt2) = (GptArchitecture::Plain, GptArchitecture::Gpt2);
    // A sequence has more than one tile of the attention.
    check_gpt(devices, gpt(gpt2, 2, 1, 64), (70, 2), HalfType::Bf16);
    check_gpt(devices, gpt(gpt2, 1, 2, 128), (17, 3), HalfType::F16);
    check_gpt(devices, gpt(plain, 1, 1, 128), (9, 1), HalfType::F16);
    check_gpt(devices, gpt(plain, 2, 1, 64), (33, 1), HalfType::Bf16);
}

#[test]
fn mlp_on_a_device_has_the_gradients_of_a_cpu() {
    if has("compiler", "mlp_on_a_device_has_the_gradients_of_a_cpu") {
        check_mlps(&emulated());
    }
}

#[test]
fn gpt_on_a_device_has_the_gradients_of_a_cpu() {
    if has("compiler", "gpt_on_a_device_has_the_gradients_of_a_cpu") {
        check_gpts(&emulated());
    }
}

#[test]
fn gpt_without_epilogues_of_products_has_the_same_gradients() {
    if has("compiler", "gpt_without_epilogues_of_products_has_the_same_gradients") {
        let new = |order| -> Arc<dyn Device> {
            Arc::new(EmulatedStreams::new(order).with_epilogues_apart())
        };
        check_gpts(&[new(Order::Late)]);
    }
}

#[test]
fn gpt_with_other_heads_is_refused() {
    let device = Arc::new(EmulatedStreams::new(Order::Early));
    let error = DeviceGpt::new(device, gpt(GptArchitecture::Plain, 1, 4, 128), HalfType::Bf16);
    assert_eq!(
        error.err().map(|error| error.to_string()).as_deref(),
        Some(
            "attention on a GPU needs heads of 64 or 128 features; 4 heads in a width of 128 have 32"
        )
    );
}
