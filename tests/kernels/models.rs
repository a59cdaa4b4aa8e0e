//! Models on the emulated device: losses and gradients, compared with those of the models on the CPU in double
//! precision.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use remuda::cuda::device::{Device, DeviceAddress, DeviceMemory};
use remuda::cuda::kernels::{ElementType, HalfType};
use remuda::runtime::RandomStream;
use remuda::runtime::engine::{
    DeviceBackward, DeviceForward, DeviceLosses, DeviceModel, Model, ModelPass, Parameter,
    gradient_of,
};
use remuda::train::{
    AttentionChoice, DeviceGpt, DeviceMlp, Gpt, GptArchitecture, GptConfig, Mlp, Samples,
    Sequences, Threads,
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
    (element, attention): (ElementType, AttentionChoice),
) {
    let mut stream = RandomStream::new(&[5, length as u64]);
    let mut draw = || (0..length * count).map(|_| stream.below(config.vocabulary) as u32).collect();
    let batch = Sequences { length, inputs: draw(), targets: draw() };
    let host = Gpt::<f64>::new(config, Threads::ONE);
    let new = |device| {
        let model = DeviceGpt::new(device, config, element).expect("heads of whole packs");
        model.with_attention(attention).expect("it can be computed so")
    };
    check((host, &batch), new, (&batch, element), devices);
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
    let [bf16, f16] = HalfType::ALL.map(ElementType::Half);
    let (flash, products) = (AttentionChoice::Flash, AttentionChoice::Products);
    // A sequence has more than one tile of the attention.
    check_gpt(devices, gpt(gpt2, 2, 1, 64), (70, 2), (bf16, flash));
    check_gpt(devices, gpt(gpt2, 1, 2, 128), (17, 3), (f16, flash));
    check_gpt(devices, gpt(plain, 1, 1, 128), (9, 1), (f16, flash));
    check_gpt(devices, gpt(plain, 2, 1, 64), (33, 1), (bf16, flash));
    check_gpt(devices, gpt(gpt2, 2, 2, 64), (70, 2), (ElementType::F32, products));
    check_gpt(devices, gpt(plain, 1, 3, 36), (17, 3), (ElementType::F32, products));
    check_gpt(devices, gpt(gpt2, 1, 1, 64), (33, 2), (bf16, products));
    check_gpt(devices, gpt(plain, 2, 3, 24), (9, 3), (f16, products));
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

/// The parameter that `scripts/gradient_vectors.py` makes, from the index of its first number.
fn made(index: usize, name: &str, shape: &[usize]) -> Vec<f64> {
    let unit = |at: usize| {
        f64::from((at as u64).wrapping_mul(2_654_435_761) as u32) / f64::from(2.0f32.powi(32))
    };
    let is_centered = shape.len() == 2 || name.ends_with("bias");
    let number = |at| if is_centered { (unit(at) - 0.5) * 0.2 } else { unit(at) + 0.5 };
    let numbers = index..index + shape.iter().product::<usize>();
    rounded(&numbers.map(number).collect::<Vec<_>>(), ElementType::Half(HalfType::Bf16))
}

/// A GPT-2, a batch, and the rounding errors that torch's autocast to bfloat16 has with it.
struct Autocast {
    config: GptConfig,
    batch: Sequences,
    loss: f64,
    loss_error: f64,
    /// Relative error of the whole gradient, and of each parameter's.
    error: f64,
    errors: Vec<f64>,
}

impl Autocast {
    fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/gpt2_autocast.json");
        let text = std::fs::read_to_string(path).expect("a file");
        let found: Value = serde_json::from_str(&text).expect("the file is JSON");
        let number = |value: &Value| value.as_f64().expect("a number");
        let list = |name: &str| -> Vec<f64> {
            found[name].as_array().expect("a list").iter().map(number).collect()
        };
        let size = |name: &str| number(&found["config"][name]) as usize;
        let tokens = |name| list(name).into_iter().map(|token| token as u32).collect();
        Self {
            config: GptConfig {
                architecture: GptArchitecture::Gpt2,
                vocabulary: size("vocabulary"),
                block: size("block"),
                layers: size("layers"),
                heads: size("heads"),
                width: size("width"),
            },
            batch: Sequences {
                length: number(&found["length"]) as usize,
                inputs: tokens("inputs"),
                targets: tokens("targets"),
            },
            loss: number(&found["loss"]),
            loss_error: number(&found["loss_error"]),
            error: number(&found["error"]),
            errors: list("errors"),
        }
    }
}

/// Checks that rounding in bfloat16 moves the gradient by at most 1.5 times as much as torch's autocast does, and that of
/// each matrix by at most so many times. That of a bias or gain is a sum over the residual stream, which autocast keeps in
/// f32: at most twice as much.
pub(super) fn check_beside_autocast(device: &Arc<dyn Device>, of_matrix: f64) {
    let Autocast { config, batch, loss, loss_error, error, errors } = Autocast::read();
    let mut host = Gpt::<f64>::new(config, Threads::ONE);
    let table = host.parameters().clone();
    let made =
        |parameter: &Parameter| made(parameter.range.start, &parameter.name, &parameter.shape);
    let params: Vec<f64> = table.iter().flat_map(made).collect();
    let mut expected = vec![0.0; params.len()];
    let exact = gradient_of(&mut host, &params, &batch, &mut expected).expect("its passes");
    assert!((exact / loss - 1.0).abs() < 1e-6, "the model is not that of torch: {exact}, {loss}");
    for value in &mut expected {
        *value *= f64::from(LOSS_SCALE);
    }
    let element = ElementType::Half(HalfType::Bf16);
    let mut model = DeviceGpt::new(device.clone(), config, element).expect("heads of 64");
    let found = run(device, &mut model, element, (&params, &batch));
    let of_loss = (found.loss / exact - 1.0).abs();
    assert!(of_loss < 1.5 * loss_error.max(1e-3), "loss: {of_loss:.1e}");
    let whole = error_of(&found.gradient, &expected);
    assert!(whole < 1.5 * error, "gradient: {whole:.1e}, autocast {error:.1e}");
    let mut worse = Vec::new();
    for (parameter, of_torch) in table.iter().zip(&errors) {
        let range = parameter.range.clone();
        let own = error_of(&found.gradient[range.clone()], &expected[range]);
        let limit = if parameter.decays() { of_matrix } else { 2.0 };
        if limit * of_torch < own {
            worse.push(format!("{}: {own:.1e}, autocast {of_torch:.1e}", parameter.name));
        }
    }
    assert_eq!(worse, Vec::<String>::new(), "rounding is worse than that of torch");
}

#[test]
fn rounding_of_a_gpt_is_like_that_of_autocast() {
    if has("compiler", "rounding_of_a_gpt_is_like_that_of_autocast") {
        let new = EmulatedStreams::new(Order::Late);
        check_beside_autocast(&(Arc::new(new.clone()) as Arc<dyn Device>), 1.5);
        // A kernel rounds once more: the product, then the function.
        let apart = new.with_epilogues_apart();
        check_beside_autocast(&(Arc::new(apart) as Arc<dyn Device>), 2.0);
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
    let element = ElementType::Half(HalfType::Bf16);
    let error = DeviceGpt::new(device, gpt(GptArchitecture::Plain, 1, 3, 36), element);
    assert_eq!(
        error.err().map(|error| error.to_string()).as_deref(),
        Some(
            "attention on a GPU in 16 bits needs heads of a multiple of 8 features; 3 heads in a width of \
             36 have 12"
        )
    );
}
