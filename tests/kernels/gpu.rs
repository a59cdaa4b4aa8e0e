//! The checks of the emulated device, on the first GPU. Without one the tests are skipped.

use std::sync::Arc;

use remuda::cuda::device::{Device, DeviceMatrix, DeviceMemory, Matmul, StreamId};
use remuda::cuda::driver::{CubinCache, CudaDevice};
use remuda::cuda::kernels::{ElementType, HalfType};
use remuda::runtime::RandomStream;
use remuda::runtime::device::{device_count, open_device};

use super::emulated::{decode, encode, error_of};
use super::{models, saved, stages, streams, trainer, training};
use crate::support::proof::skip;

/// The first GPU; programs are kept in a directory of the tests.
fn open() -> Arc<dyn Device> {
    let context = open_device(0).expect("there is a GPU");
    let cache = std::env::temp_dir().join("remuda-kernels-of-tests");
    Arc::new(CudaDevice::new(context, CubinCache::in_dir(&cache)).expect("its libraries are there"))
}

/// Whether there is a GPU; else the test is skipped.
fn has_gpu(test: &str) -> bool {
    let has_gpu = matches!(device_count(), Ok(1..));
    if !has_gpu {
        skip("gpu", test);
    }
    has_gpu
}

/// Matrix of the product that is checked, with gaps between its rows.
struct Operand {
    memory: Box<dyn DeviceMemory>,
    values: Vec<f64>,
    matrix: DeviceMatrix,
}

impl Operand {
    fn new(
        (device, stream): (&dyn Device, StreamId),
        (rows, columns): (u32, u32),
        element: ElementType,
        random: &mut RandomStream,
    ) -> Self {
        let stride = columns.next_multiple_of(8) + 8;
        let values: Vec<f64> = (0..rows * stride).map(|_| random.normal()).collect();
        let bytes = encode(element, &values);
        let memory = device.alloc(bytes.len()).expect("memory");
        device.upload(stream, &bytes, memory.address()).expect("a copy");
        let matrix = DeviceMatrix::new(memory.address(), rows, columns, element);
        Self { memory, values: decode(element, &bytes), matrix: matrix.with_stride(stride) }
    }

    fn at(&self, is_transposed: bool, row: u32, column: u32) -> f64 {
        let (row, column) = if is_transposed { (column, row) } else { (row, column) };
        self.values[(row * self.matrix.stride + column) as usize]
    }

    fn read(&self, device: &dyn Device, stream: StreamId) -> Vec<u8> {
        let mut bytes = vec![0; self.memory.bytes()];
        device.download(stream, self.matrix.address, &mut bytes).expect("a copy");
        bytes
    }
}

/// Compares a product with its definition, and the bits of five repetitions.
#[track_caller]
fn check_product(device: &dyn Device, [rows, columns, inner]: [u32; 3], bits: u32) {
    let elements = [ElementType::F32, ElementType::Half(HalfType::Bf16)];
    let (of_operands, of_result) =
        (elements[(bits & 1) as usize], elements[(bits >> 1 & 1) as usize]);
    if of_operands == ElementType::F32 && of_result != of_operands {
        return;
    }
    let [transposes_a, transposes_b, adds] = [2, 3, 4].map(|bit| bits >> bit & 1 == 1);
    let mut random = RandomStream::new(&[9, u64::from(rows), u64::from(bits)]);
    let stream = device.create_stream().expect("a stream");
    let shape = |is_transposed, rows, columns| {
        if is_transposed { (columns, rows) } else { (rows, columns) }
    };
    let on = (device, stream);
    let a = Operand::new(on, shape(transposes_a, rows, inner), of_operands, &mut random);
    let b = Operand::new(on, shape(transposes_b, inner, columns), of_operands, &mut random);
    let c = Operand::new(on, (rows, columns), of_result, &mut random);
    let product =
        Matmul { a: a.matrix, transposes_a, b: b.matrix, transposes_b, c: c.matrix, adds };
    let (mut expected, stride) = (c.values.clone(), c.matrix.stride);
    for row in 0..rows {
        for column in 0..columns {
            let term = |k| a.at(transposes_a, row, k) * b.at(transposes_b, k, column);
            let sum: f64 = (0..inner).map(term).sum();
            let result = &mut expected[(row * stride + column) as usize];
            *result = sum + if adds { *result } else { 0.0 };
        }
    }
    let before = encode(of_result, &c.values);
    let mut first = None;
    for _ in 0..5 {
        device.upload(stream, &before, c.matrix.address).expect("a copy");
        device.matmul(stream, &product).expect("a product");
        let found = c.read(device, stream);
        let error = error_of(&decode(of_result, &found), &expected);
        let limit = if of_result == ElementType::F32 { 1e-5 } else { 4e-3 };
        assert!(error < limit, "{product:?}: error {error:.1e}");
        assert!(*first.get_or_insert(found.clone()) == found, "{product:?}: other bits");
    }
}

#[test]
fn products_on_a_gpu_match_their_definition() {
    if !has_gpu("products_on_a_gpu_match_their_definition") {
        return;
    }
    let device = open();
    for shape in [[8, 8, 8], [64, 128, 32], [256, 768, 96], [72, 24, 1024], [33, 40, 16]] {
        for bits in 0..32 {
            check_product(&*device, shape, bits);
        }
    }
}

#[test]
fn pipeline_on_a_gpu_is_right() {
    if has_gpu("pipeline_on_a_gpu_is_right") {
        streams::check_pipeline(&*open());
    }
}

#[test]
fn models_on_a_gpu_have_the_gradients_of_a_cpu() {
    if has_gpu("models_on_a_gpu_have_the_gradients_of_a_cpu") {
        let devices = [open(), open()];
        models::check_mlps(&devices);
        models::check_gpts(&devices);
    }
}

#[test]
fn training_on_a_gpu_equals_that_on_a_cpu() {
    if has_gpu("training_on_a_gpu_equals_that_on_a_cpu") {
        training::check_optimizers(&open);
        training::check_overflows([&open, &open]);
        training::check_gpt(&open);
    }
}

#[test]
fn ranks_and_micro_batches_on_a_gpu_change_no_bit() {
    if has_gpu("ranks_and_micro_batches_on_a_gpu_change_no_bit") {
        training::check_lanes([&open, &open, &open, &open]);
    }
}

#[test]
fn stages_on_a_gpu_change_no_bit() {
    if has_gpu("stages_on_a_gpu_change_no_bit") {
        stages::check(&open);
    }
}

#[test]
fn training_on_a_gpu_continues_with_other_ranks_and_stages() {
    if has_gpu("training_on_a_gpu_continues_with_other_ranks_and_stages") {
        saved::check(&open);
    }
}

#[test]
fn trainer_on_a_gpu_does_what_it_does_on_a_processor() {
    if has_gpu("trainer_on_a_gpu_does_what_it_does_on_a_processor") {
        trainer::check(&open);
    }
}
