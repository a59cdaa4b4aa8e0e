//! [`Matmul`]: a product of matrices.

use crate::cuda::device::types::DeviceAddress;
use crate::cuda::kernels::ElementType;

/// Matrix in the memory of a device, row after row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMatrix {
    /// Address of the first element.
    pub address: DeviceAddress,
    /// Rows, as they lie in memory.
    pub rows: u32,
    /// Columns, as they lie in memory.
    pub columns: u32,
    /// Elements from the begin of a row to that of the next one.
    pub stride: u32,
    /// Type of the elements.
    pub element: ElementType,
}

/// `C = A · B`, or `C += A · B`, where A and B may be transposed. Products are summed in f32, and a sum is rounded
/// once, to the type of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matmul {
    /// Left operand.
    pub a: DeviceMatrix,
    /// Whether the left operand is the transpose of `a`.
    pub transposes_a: bool,
    /// Right operand, of the type of `a`.
    pub b: DeviceMatrix,
    /// Whether the right operand is the transpose of `b`.
    pub transposes_b: bool,
    /// Result.
    pub c: DeviceMatrix,
    /// Whether the product is added to `c`.
    pub adds: bool,
}

/// Sizes of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulShape {
    /// Rows of the result.
    pub rows: u32,
    /// Columns of the result.
    pub columns: u32,
    /// Products in a sum.
    pub inner: u32,
}

impl DeviceMatrix {
    /// Returns a matrix whose rows are adjacent.
    pub fn new(address: DeviceAddress, rows: u32, columns: u32, element: ElementType) -> Self {
        Self { address, rows, columns, stride: columns, element }
    }

    /// Returns the same matrix with rows that are `stride` elements apart.
    #[must_use]
    pub fn with_stride(self, stride: u32) -> Self {
        assert!(self.columns <= stride, "rows do not overlap");
        Self { stride, ..self }
    }

    /// Rows and columns of the operand.
    fn shape(&self, is_transposed: bool) -> (u32, u32) {
        if is_transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }
}

impl Matmul {
    /// Returns the product `A · B`, written to `c`.
    pub fn new(a: DeviceMatrix, b: DeviceMatrix, c: DeviceMatrix) -> Self {
        Self { a, transposes_a: false, b, transposes_b: false, c, adds: false }
    }

    /// Transposes the left operand.
    #[must_use]
    pub fn transpose_a(self) -> Self {
        Self { transposes_a: true, ..self }
    }

    /// Transposes the right operand.
    #[must_use]
    pub fn transpose_b(self) -> Self {
        Self { transposes_b: true, ..self }
    }

    /// Adds the product to `c`.
    #[must_use]
    pub fn add(self) -> Self {
        Self { adds: true, ..self }
    }

    /// Returns the sizes of the product.
    ///
    /// # Panics
    /// If the operands do not fit each other or the result, or are of different types.
    pub fn shape(&self) -> MatmulShape {
        let (rows, inner) = self.a.shape(self.transposes_a);
        let (inner_of_b, columns) = self.b.shape(self.transposes_b);
        let fits = inner == inner_of_b && (rows, columns) == (self.c.rows, self.c.columns);
        assert!(fits && self.a.element == self.b.element, "operands and result fit: {self:?}");
        MatmulShape { rows, columns, inner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: u32, columns: u32) -> DeviceMatrix {
        DeviceMatrix::new(DeviceAddress(256), rows, columns, ElementType::F32)
    }

    #[test]
    fn shape_of_a_product_is_that_of_its_operands_as_they_are_used() {
        let shape = MatmulShape { rows: 2, columns: 3, inner: 5 };
        let product = Matmul::new(matrix(2, 5), matrix(5, 3), matrix(2, 3));
        assert_eq!(product.shape(), shape);
        let product = Matmul::new(matrix(5, 2), matrix(3, 5), matrix(2, 3));
        assert_eq!(product.transpose_a().transpose_b().shape(), shape);
        assert_eq!(matrix(2, 5).with_stride(8).stride, 8);
    }

    #[test]
    #[should_panic(expected = "operands and result fit")]
    fn operands_that_do_not_fit_are_refused() {
        Matmul::new(matrix(2, 5), matrix(3, 5), matrix(2, 3)).shape();
    }
}
