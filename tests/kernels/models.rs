//! Models on the emulated device: losses and gradients, compared with those of the models on the CPU in double
//! precision.

use std::sync::Arc;

use remuda::cuda::device::{Device, DeviceAddress, DeviceMemory};
use remuda::cuda::kernels::{ElementType, HalfType};
use remuda::runtime::RandomStream;
use remuda::runtime::engine::{
    DeviceBackward, DeviceForward, DeviceModel, Model, ModelPass, gradient_of,
};
use remuda::train::{DeviceMlp, Mlp, Samples, Threads};

use super::emulated::{decode, encode, error_of};
use super::emulated_streams::{EmulatedStreams, Order};
use crate::support::proof::has;

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
    device: &Arc<EmulatedStreams>,
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
        let pass = DeviceForward { index, stream, loss_scale: loss_scale.address(), units: &units };
        model.forward(&pass, batch).expect("a pass");
    }
    let loss = model.loss(stream).expect("the loss");
    for (index, pass) in passes.iter().enumerate().rev() {
        let (units, gradients) = (addresses(pass, &weights), addresses(pass, &gradients));
        let forward =
            DeviceForward { index, stream, loss_scale: loss_scale.address(), units: &units };
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

/// Trains one batch of samples on a model of these sizes, and compares.
#[track_caller]
fn check_mlp(sizes: &[usize], count: usize, element: ElementType) {
    let mut stream = RandomStream::new(&[6, count as u64]);
    let mut host = Mlp::<f64>::new(sizes, Threads::ONE);
    let round = |values: &[f64]| decode(element, &encode(element, values));
    let params = round(&Model::<f64>::parameters(&host).init::<f64>(3));
    let inputs: Vec<f64> = (0..sizes[0] * count).map(|_| stream.normal()).collect();
    let inputs = round(&inputs).into_iter().map(|value| value as f32).collect();
    let last = sizes[sizes.len() - 1];
    let classes = (0..count).map(|_| stream.below(last) as u8).collect();
    let batch = Samples { inputs, classes };
    let mut expected = vec![0.0; params.len()];
    let loss =
        gradient_of(&mut host, &params, &widened(&batch), &mut expected).expect("its passes");
    for value in &mut expected {
        *value *= f64::from(LOSS_SCALE);
    }
    let (loss_limit, limit) = limits(element);
    let mut bits = None;
    for order in ORDERS {
        let device = Arc::new(EmulatedStreams::new(order));
        let mut model = DeviceMlp::new(device.clone(), sizes, element);
        let found = run(&device, &mut model, element, (&params, &batch));
        let error = (found.loss - loss).abs() / loss;
        assert!(error < loss_limit, "{sizes:?}, {element:?}: loss {} for {loss}", found.loss);
        let error = error_of(&found.gradient, &expected);
        assert!(error < limit, "{sizes:?}, {element:?}: error of the gradient {error:.1e}");
        assert_eq!(*bits.get_or_insert(found.gradient.clone()), found.gradient, "{order:?}");
    }
}

#[test]
fn mlp_on_a_device_has_the_gradients_of_a_cpu() {
    if !has("compiler", "mlp_on_a_device_has_the_gradients_of_a_cpu") {
        return;
    }
    for element in ElementType::ALL {
        check_mlp(&[24, 32, 16, 10], 7, element);
        check_mlp(&[8, 3], 1, element);
        check_mlp(&[5, 9, 2], 33, element);
    }
}
