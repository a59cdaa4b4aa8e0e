//! Products of matrices, against the same in f64.

use crate::cuda::device::{Device, DeviceError, DeviceMatrix, DeviceMemory, Matmul, StreamId};
use crate::cuda::kernels::{ElementType, HalfType};
use crate::runtime::data::random::RandomStream;
use crate::runtime::kernel_checks::case::{SEED, decode, encode};
use crate::runtime::kernel_checks::runner::{CheckError, tolerance, within};

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
    ) -> Result<Self, DeviceError> {
        let stride = columns.next_multiple_of(8) + 8;
        let values: Vec<f64> = (0..rows * stride).map(|_| random.normal()).collect();
        let bytes = encode(element, &values);
        let memory = device.alloc(bytes.len())?;
        device.upload(stream, &bytes, memory.address())?;
        let matrix = DeviceMatrix::new(memory.address(), rows, columns, element);
        let values = decode(element, &bytes);
        Ok(Self { memory, values, matrix: matrix.with_stride(stride) })
    }

    fn at(&self, is_transposed: bool, row: u32, column: u32) -> f64 {
        let (row, column) = if is_transposed { (column, row) } else { (row, column) };
        self.values[(row * self.matrix.stride + column) as usize]
    }

    fn read(&self, (device, stream): (&dyn Device, StreamId)) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; self.memory.bytes()];
        device.download(stream, self.matrix.address, &mut bytes)?;
        Ok(bytes)
    }
}

/// Shapes of products: rows, columns and inner size. Those of the last one are no multiples of anything.
const SHAPES: [[u32; 3]; 5] =
    [[8, 8, 8], [64, 128, 32], [256, 768, 96], [72, 24, 1024], [33, 40, 16]];
/// Types of the operands and of the result.
const TYPES: [[ElementType; 2]; 3] = [
    [ElementType::F32, ElementType::F32],
    [ElementType::Half(HalfType::Bf16), ElementType::F32],
    [ElementType::Half(HalfType::Bf16), ElementType::Half(HalfType::Bf16)],
];
/// Number of times that a product is computed; the bits must be equal.
const REPETITIONS: usize = 3;

/// Which of a product's operands are transposed, and whether it is added to what is there.
#[derive(Clone, Copy)]
struct Form {
    transposes_a: bool,
    transposes_b: bool,
    adds: bool,
}

/// Checks products of matrices in all forms.
///
/// # Errors
/// What the device does wrong first.
pub fn check_products(device: &dyn Device) -> Result<(), CheckError> {
    for shape in SHAPES {
        for types in TYPES {
            for bits in 0..8 {
                let [transposes_a, transposes_b, adds] = [1, 2, 4].map(|bit| bits & bit != 0);
                let form = Form { transposes_a, transposes_b, adds };
                check_product(device, shape, types, form)?;
            }
        }
    }
    Ok(())
}

/// Compares a product with its definition, and the bits of its repetitions.
fn check_product(
    device: &dyn Device,
    [rows, columns, inner]: [u32; 3],
    [of_operands, of_result]: [ElementType; 2],
    Form { transposes_a, transposes_b, adds }: Form,
) -> Result<(), CheckError> {
    let what = format!("product of {rows} × {inner} × {columns}");
    let failed = |error: DeviceError| CheckError::Device {
        kernel: what.clone(),
        problem: error.to_string(),
    };
    let mut random = RandomStream::new(&[SEED, u64::from(rows)]);
    let on = (device, device.create_stream().map_err(failed)?);
    let shape = |is_transposed, rows, columns| {
        if is_transposed { (columns, rows) } else { (rows, columns) }
    };
    let mut operand =
        |shape, element| Operand::new(on, shape, element, &mut random).map_err(failed);
    let a = operand(shape(transposes_a, rows, inner), of_operands)?;
    let b = operand(shape(transposes_b, inner, columns), of_operands)?;
    let c = operand((rows, columns), of_result)?;
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
    let compute = || {
        device.upload(on.1, &before, c.matrix.address)?;
        device.matmul(on.1, &product)?;
        c.read(on)
    };
    let first = compute().map_err(failed)?;
    within(&what, tolerance(of_result), &decode(of_result, &first), &expected)?;
    for _ in 1..REPETITIONS {
        if compute().map_err(failed)? != first {
            return Err(CheckError::OtherBits { kernel: what });
        }
    }
    Ok(())
}
