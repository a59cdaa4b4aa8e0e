//! [`LtProduct`]: a product as cuBLASLt describes it. Pure.
//!
//! The library has matrices column after column. Memory with the rows of a matrix one after another has, read so,
//! its transpose; and `C = A · B` is `Cᵀ = Bᵀ · Aᵀ`. So the operands change places, and nothing is copied.

use crate::cuda::device::{DeviceAddress, DeviceMatrix, Epilogue, Matmul};
use crate::cuda::kernels::ElementType;

/// Alignment of the memory of a device in bytes, and the most that the library distinguishes.
const ALIGNMENT_MAX: u64 = 256;

/// Matrix, column after column, or several of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LtLayout {
    /// Type of the elements.
    pub element: ElementType,
    /// Elements of a column.
    pub rows: u32,
    /// Number of columns.
    pub columns: u32,
    /// Elements from the begin of a column to that of the next one.
    pub stride: u32,
    /// Number of matrices.
    pub count: u32,
    /// Elements from the begin of a matrix to that of the next one.
    pub matrix_stride: u64,
    /// Power of two that divides the addresses of all of them, at most 256.
    pub alignment: u32,
}

/// What becomes of a product before it is written: an [`Epilogue`] without its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LtEpilogue {
    /// Nothing.
    None,
    /// A bias is added.
    Bias,
    /// A bias is added, the sum is kept, and its GELU is the result.
    Gelu,
    /// The product is multiplied by the derivative of GELU.
    GeluBackward,
}

/// Addresses of the memory of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LtAddresses {
    /// First operand, second operand, result.
    pub matrices: [DeviceAddress; 3],
    /// Bias, if there is one.
    pub bias: Option<DeviceAddress>,
    /// Input of GELU, if there is one.
    pub before: Option<DeviceAddress>,
}

/// Shapes and types of a product: what the choice of an algorithm depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LtProduct {
    /// First operand, second operand, result.
    pub layouts: [LtLayout; 3],
    /// Whether the first and the second operand are transposed.
    pub transposes: [bool; 2],
    /// Whether the product is added to the result.
    pub adds: bool,
    /// What becomes of the product before it is written.
    pub epilogue: LtEpilogue,
}

impl LtLayout {
    /// Returns the memory of matrices, whose rows are one after another, as columns.
    fn of(matrix: DeviceMatrix, count: u32, matrix_stride: u64) -> Self {
        let DeviceMatrix { address, rows, columns, stride, element } = matrix;
        let bytes = matrix_stride * element.bytes() as u64;
        let multiple = address.0 | bytes | ALIGNMENT_MAX;
        let alignment = 1 << multiple.trailing_zeros();
        Self { element, rows: columns, columns: rows, stride, count, matrix_stride, alignment }
    }
}

impl LtProduct {
    /// Returns the description of a product. Its first operand is the right one of `product`, and its second operand
    /// the left one.
    pub fn of(product: &Matmul) -> Self {
        let Matmul { a, b, c, batch, .. } = *product;
        let [of_a, of_b, of_c] = batch.strides;
        let layout = |matrix, stride| LtLayout::of(matrix, batch.count, stride);
        Self {
            layouts: [layout(b, of_b), layout(a, of_a), layout(c, of_c)],
            transposes: [product.transposes_b, product.transposes_a],
            adds: product.adds,
            epilogue: match product.epilogue {
                Epilogue::None => LtEpilogue::None,
                Epilogue::Bias { .. } => LtEpilogue::Bias,
                Epilogue::Gelu { .. } => LtEpilogue::Gelu,
                Epilogue::GeluBackward { .. } => LtEpilogue::GeluBackward,
            },
        }
    }
}

impl LtAddresses {
    /// Returns the addresses of a product. A row of its result is a column of the library's, so a number for each column
    /// of the result is one for each row there, as the library has biases.
    pub fn of(product: &Matmul) -> Self {
        let (bias, before) = match product.epilogue {
            Epilogue::None => (None, None),
            Epilogue::Bias { bias } => (Some(bias), None),
            Epilogue::Gelu { bias, before } => (Some(bias), Some(before)),
            Epilogue::GeluBackward { before } => (None, Some(before)),
        };
        let matrices = [product.b, product.a, product.c].map(|matrix| matrix.address);
        Self { matrices, bias, before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::device::MatmulBatch;

    /// Multiplies as the library is documented to: column after column.
    fn multiply(product: &LtProduct, [a, b]: [&[i64]; 2], c: &mut [i64]) {
        let [of_a, of_b, of_c] = product.layouts;
        let inner = if product.transposes[0] { of_a.rows } else { of_a.columns };
        let at = |layout: LtLayout, is_transposed: bool, row: u32, column: u32| {
            let (row, column) = if is_transposed { (column, row) } else { (row, column) };
            assert!(row < layout.rows && column < layout.columns, "inside the matrix");
            (row + column * layout.stride) as usize
        };
        for row in 0..of_c.rows {
            for column in 0..of_c.columns {
                let term = |k| {
                    a[at(of_a, product.transposes[0], row, k)]
                        * b[at(of_b, product.transposes[1], k, column)]
                };
                let sum: i64 = (0..inner).map(term).sum();
                let result = &mut c[at(of_c, false, row, column)];
                *result = sum + if product.adds { *result } else { 0 };
            }
        }
    }

    /// Rows and columns in memory of an operand with this shape.
    fn in_memory(rows: u32, columns: u32, is_transposed: bool) -> DeviceMatrix {
        let (rows, columns) = if is_transposed { (columns, rows) } else { (rows, columns) };
        let matrix = DeviceMatrix::new(DeviceAddress(256), rows, columns, ElementType::F32);
        matrix.with_stride(columns + 3)
    }

    #[track_caller]
    fn check(transposes_a: bool, transposes_b: bool, adds: bool) {
        let (rows, columns, inner) = (2, 3, 5);
        let (a, b) =
            (in_memory(rows, inner, transposes_a), in_memory(inner, columns, transposes_b));
        let c = in_memory(rows, columns, false);
        let product = Matmul { transposes_a, transposes_b, adds, ..Matmul::new(a, b, c) };
        let numbers = |matrix: DeviceMatrix, first: i64| -> Vec<i64> {
            let count = matrix.rows * matrix.stride;
            (0..count).map(|index| first + i64::from(index * index % 7)).collect()
        };
        let (left, right, mut result) = (numbers(a, 1), numbers(b, -2), numbers(c, 3));
        let before = result.clone();
        multiply(&LtProduct::of(&product), [&right, &left], &mut result);
        let element = |values: &[i64], matrix: DeviceMatrix, row: u32, column: u32| {
            values[(row * matrix.stride + column) as usize]
        };
        for row in 0..rows {
            for column in 0..columns {
                let term = |k| {
                    let (of_a, of_b) = match (transposes_a, transposes_b) {
                        (false, false) => ((row, k), (k, column)),
                        (true, false) => ((k, row), (k, column)),
                        (false, true) => ((row, k), (column, k)),
                        (true, true) => ((k, row), (column, k)),
                    };
                    element(&left, a, of_a.0, of_a.1) * element(&right, b, of_b.0, of_b.1)
                };
                let sum: i64 = (0..inner).map(term).sum();
                let added = if adds { element(&before, c, row, column) } else { 0 };
                assert_eq!(element(&result, c, row, column), sum + added, "row {row}, {column}");
            }
        }
        for (index, (after, before)) in result.iter().zip(&before).enumerate() {
            let is_between = columns <= index as u32 % c.stride;
            assert!(!is_between || after == before, "element {index} is between two rows");
        }
    }

    #[test]
    fn alignment_is_that_of_all_matrices() {
        let matrix =
            |at| DeviceMatrix::new(DeviceAddress(at), 4, 4, ElementType::F32).with_stride(24);
        let product = Matmul::new(matrix(512), matrix(512 + 16), matrix(256 + 128));
        let alignments = |product| LtProduct::of(&product).layouts.map(|layout| layout.alignment);
        assert_eq!(alignments(product), [16, 256, 128]);
        // The matrices of A are 8 floats apart, those of B 64, and those of C 16.
        let batch = MatmulBatch { count: 3, strides: [8, 64, 16] };
        assert_eq!(alignments(product.repeat(batch)), [16, 32, 64]);
    }

    #[test]
    fn product_of_rows_is_one_of_columns() {
        for bits in 0..8 {
            check(bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        }
    }
}
