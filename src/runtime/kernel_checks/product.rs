//! Products of matrices, against the same in f64.

use crate::cuda::device::{
    Device, DeviceAddress, DeviceError, DeviceMatrix, DeviceMemory, Epilogue, Matmul, MatmulBatch,
    StreamId,
};
use crate::cuda::kernels::{Activation, ElementType, HalfType};
use crate::runtime::data::random::RandomStream;
use crate::runtime::kernel_checks::activation::value_and_slope;
use crate::runtime::kernel_checks::case::{SEED, decode, encode};
use crate::runtime::kernel_checks::runner::{CheckError, tolerance, within};

/// Matrix of the product that is checked.
struct Operand {
    memory: Box<dyn DeviceMemory>,
    values: Vec<f64>,
    matrix: DeviceMatrix,
}

impl Operand {
    /// A matrix with gaps between its rows.
    fn new(
        on: (&dyn Device, StreamId),
        (rows, columns): (u32, u32),
        element: ElementType,
        random: &mut RandomStream,
    ) -> Result<Self, DeviceError> {
        let stride = columns.next_multiple_of(8) + 8;
        Self::with_stride(on, (rows, columns), stride, element, random)
    }

    fn with_stride(
        (device, stream): (&dyn Device, StreamId),
        (rows, columns): (u32, u32),
        stride: u32,
        element: ElementType,
        random: &mut RandomStream,
    ) -> Result<Self, DeviceError> {
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

/// Checks products of matrices in all forms, and with all epilogues.
///
/// # Errors
/// What the device does wrong first.
pub fn check_products(device: &dyn Device) -> Result<(), CheckError> {
    let side_by_side = [[true, true, false], [false, true, true]];
    let batches = side_by_side.map(|are_side_by_side| Places { count: BATCH, are_side_by_side });
    let batches = batches.map(|places| (BATCH_SHAPE, places));
    for products in SHAPES.map(|shape| (shape, ONE)).into_iter().chain(batches) {
        for types in TYPES {
            for bits in 0..8 {
                let [transposes_a, transposes_b, adds] = [1, 2, 4].map(|bit| bits & bit != 0);
                let form = Form { transposes_a, transposes_b, adds };
                check_product(device, products, types, form)?;
            }
        }
    }
    check_epilogues(device)
}

/// Checks products of matrices with all epilogues.
///
/// # Errors
/// What the device does wrong first.
pub fn check_epilogues(device: &dyn Device) -> Result<(), CheckError> {
    let elements = [ElementType::F32, ElementType::Half(HalfType::Bf16)];
    for shape in SHAPES.into_iter().filter(|[_, columns, _]| columns.is_multiple_of(8)) {
        for element in elements {
            for kind in EpilogueKind::ALL {
                check_epilogue(device, shape, element, kind)?;
            }
        }
    }
    Ok(())
}

/// Products that are computed at once, and their size.
const BATCH: u32 = 3;
const BATCH_SHAPE: [u32; 3] = [40, 24, 16];

/// Where the matrices of products are: those of A, B and C are side by side, as the heads of a token, or one after
/// another.
#[derive(Clone, Copy)]
struct Places {
    count: u32,
    are_side_by_side: [bool; 3],
}

/// A single product.
const ONE: Places = Places { count: 1, are_side_by_side: [false; 3] };

/// Matrices of an operand.
struct Operands {
    memory: Operand,
    matrix: DeviceMatrix,
    matrix_stride: u64,
}

impl Operands {
    fn new(
        on: (&dyn Device, StreamId),
        (rows, columns): (u32, u32),
        (count, is_side_by_side): (u32, bool),
        element: ElementType,
        random: &mut RandomStream,
    ) -> Result<Self, DeviceError> {
        let shape = if is_side_by_side { (rows, count * columns) } else { (count * rows, columns) };
        let memory = Operand::new(on, shape, element, random)?;
        let matrix = DeviceMatrix { rows, columns, ..memory.matrix };
        let matrix_stride = u64::from(if is_side_by_side { columns } else { rows * matrix.stride });
        Ok(Self { memory, matrix, matrix_stride })
    }

    fn index(&self, number: u32, row: u32, column: u32) -> usize {
        let first = u64::from(number) * self.matrix_stride;
        first as usize + (row * self.matrix.stride + column) as usize
    }

    fn at(&self, number: u32, is_transposed: bool, row: u32, column: u32) -> f64 {
        let (row, column) = if is_transposed { (column, row) } else { (row, column) };
        self.memory.values[self.index(number, row, column)]
    }
}

/// Compares products with their definition, and the bits of their repetitions.
fn check_product(
    device: &dyn Device,
    ([rows, columns, inner], places): ([u32; 3], Places),
    [of_operands, of_result]: [ElementType; 2],
    Form { transposes_a, transposes_b, adds }: Form,
) -> Result<(), CheckError> {
    let Places { count, are_side_by_side } = places;
    let what = match count {
        1 => format!("product of {rows} × {inner} × {columns}"),
        _ => format!("{count} products of {rows} × {inner} × {columns}"),
    };
    let failed = |error: DeviceError| CheckError::Device {
        kernel: what.clone(),
        problem: error.to_string(),
    };
    let mut random = RandomStream::new(&[SEED, u64::from(rows)]);
    let on = (device, device.create_stream().map_err(failed)?);
    let mut operands = |(rows, columns), is_transposed, operand: usize, element| {
        let shape = if is_transposed { (columns, rows) } else { (rows, columns) };
        let place = (count, are_side_by_side[operand]);
        Operands::new(on, shape, place, element, &mut random).map_err(failed)
    };
    let a = operands((rows, inner), transposes_a, 0, of_operands)?;
    let b = operands((inner, columns), transposes_b, 1, of_operands)?;
    let c = operands((rows, columns), false, 2, of_result)?;
    let strides = [&a, &b, &c].map(|operands| operands.matrix_stride);
    let product =
        Matmul { transposes_a, transposes_b, adds, ..Matmul::new(a.matrix, b.matrix, c.matrix) };
    let product = product.repeat(MatmulBatch { count, strides });
    let mut expected = c.memory.values.clone();
    for (number, row) in (0..count).flat_map(|number| (0..rows).map(move |row| (number, row))) {
        for column in 0..columns {
            let term =
                |k| a.at(number, transposes_a, row, k) * b.at(number, transposes_b, k, column);
            let sum: f64 = (0..inner).map(term).sum();
            let result = &mut expected[c.index(number, row, column)];
            *result = sum + if adds { *result } else { 0.0 };
        }
    }
    let before = encode(of_result, &c.memory.values);
    let compute = || {
        device.upload(on.1, &before, c.matrix.address)?;
        device.matmul(on.1, &product)?;
        c.memory.read(on)
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

/// Kind of an epilogue.
#[derive(Clone, Copy, Debug)]
enum EpilogueKind {
    Bias,
    Gelu,
    GeluBackward,
}

impl EpilogueKind {
    const ALL: [Self; 3] = [Self::Bias, Self::Gelu, Self::GeluBackward];

    fn of(self, [bias, before]: [DeviceAddress; 2]) -> Epilogue {
        match self {
            Self::Bias => Epilogue::Bias { bias },
            Self::Gelu => Epilogue::Gelu { bias, before },
            Self::GeluBackward => Epilogue::GeluBackward { before },
        }
    }
}

/// Compares a product with an epilogue with its definition, and the bits of its repetitions. The right operand is
/// transposed, as the weight of a layer, or it is not, as for the gradient of a layer's input.
fn check_epilogue(
    device: &dyn Device,
    [rows, columns, inner]: [u32; 3],
    element: ElementType,
    kind: EpilogueKind,
) -> Result<(), CheckError> {
    let what = format!("product of {rows} × {inner} × {columns} with {kind:?}");
    let failed = |error: DeviceError| CheckError::Device {
        kernel: what.clone(),
        problem: error.to_string(),
    };
    let mut random = RandomStream::new(&[SEED, u64::from(rows), u64::from(inner)]);
    let on = (device, device.create_stream().map_err(failed)?);
    let mut operand = |rows, columns| {
        Operand::with_stride(on, (rows, columns), columns, element, &mut random).map_err(failed)
    };
    let is_forward = !matches!(kind, EpilogueKind::GeluBackward);
    let a = operand(rows, inner)?;
    let b = if is_forward { operand(columns, inner)? } else { operand(inner, columns)? };
    let (bias, before, c) =
        (operand(1, columns)?, operand(rows, columns)?, operand(rows, columns)?);
    let epilogue = kind.of([bias.matrix.address, before.matrix.address]);
    let product = Matmul {
        transposes_b: is_forward,
        ..Matmul::new(a.matrix, b.matrix, c.matrix).then(epilogue)
    };
    let (mut kept, mut expected) = (before.values.clone(), Vec::new());
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        let term = |k| a.at(false, row, k) * b.at(is_forward, k, column);
        let sum: f64 = (0..inner).map(term).sum();
        let (of_bias, kept) = (bias.at(false, 0, column), &mut kept[expected.len()]);
        expected.push(match kind {
            EpilogueKind::Bias => sum + of_bias,
            EpilogueKind::Gelu => {
                *kept = sum + of_bias;
                value_and_slope(Activation::GeluTanh, *kept).0
            }
            EpilogueKind::GeluBackward => sum * value_and_slope(Activation::GeluTanh, *kept).1,
        });
    }
    let first_kept = encode(element, &before.values);
    let compute = || {
        device.upload(on.1, &first_kept, before.matrix.address)?;
        device.matmul(on.1, &product)?;
        Ok([c.read(on)?, before.read(on)?])
    };
    let first = compute().map_err(failed)?;
    for (found, expected) in first.iter().zip([&expected, &kept]) {
        within(&what, tolerance(element), &decode(element, found), expected)?;
    }
    for _ in 1..REPETITIONS {
        if compute().map_err(failed)? != first {
            return Err(CheckError::OtherBits { kernel: what });
        }
    }
    Ok(())
}
