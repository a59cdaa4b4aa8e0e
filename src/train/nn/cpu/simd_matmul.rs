//! Matrix products over slices, with one check of the bounds, by the `gemm` crate.
//!
//! The order in which the products of an element are added depends only on the shapes of the call
//! and on the type of the processor. Callers therefore divide their work into tiles by shape, never
//! by the number of threads.

use crate::train::ModelFloat;

/// Read-only matrix, a window into a slice.
#[derive(Clone, Copy, Debug)]
pub(in crate::train) struct Matrix<'a, F> {
    data: &'a [F],
    shape: Shape,
}

/// Mutable matrix, a window into a slice.
#[derive(Debug)]
pub(in crate::train) struct MatrixMut<'a, F> {
    data: &'a mut [F],
    shape: Shape,
}

/// Number of rows and columns, and their strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl Shape {
    fn contains_only(&self, len: usize) -> bool {
        match (self.rows.checked_sub(1), self.cols.checked_sub(1)) {
            (Some(row), Some(col)) => row * self.row_stride + col * self.col_stride < len,
            _ => true,
        }
    }
}

impl<'a, F> Matrix<'a, F> {
    /// Creates a matrix in row-major order without gaps.
    pub(in crate::train) fn new(data: &'a [F], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Creates a matrix of contiguous rows that begin every `row_stride` elements of `data`.
    ///
    /// # Panics
    /// If the matrix reaches beyond `data`.
    pub(in crate::train) fn strided(
        data: &'a [F],
        rows: usize,
        cols: usize,
        row_stride: usize,
    ) -> Self {
        let shape = Shape { rows, cols, row_stride, col_stride: 1 };
        assert!(shape.contains_only(data.len()), "{shape:?} is larger than {}", data.len());
        Self { data, shape }
    }

    /// Returns the transpose; no element is moved.
    #[must_use]
    pub(in crate::train) fn t(self) -> Self {
        let Shape { rows, cols, row_stride, col_stride } = self.shape;
        let shape =
            Shape { rows: cols, cols: rows, row_stride: col_stride, col_stride: row_stride };
        Self { data: self.data, shape }
    }
}

impl<'a, F> MatrixMut<'a, F> {
    /// Creates a matrix in row-major order without gaps.
    pub(in crate::train) fn new(data: &'a mut [F], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Creates a matrix of contiguous rows that begin every `row_stride` elements of `data`.
    ///
    /// # Panics
    /// If the matrix reaches beyond `data`, or if rows overlap.
    pub(in crate::train) fn strided(
        data: &'a mut [F],
        rows: usize,
        cols: usize,
        row_stride: usize,
    ) -> Self {
        let shape = Shape { rows, cols, row_stride, col_stride: 1 };
        assert!(shape.contains_only(data.len()), "{shape:?} is larger than {}", data.len());
        assert!(cols <= row_stride || rows <= 1, "rows of {shape:?} overlap");
        Self { data, shape }
    }
}

/// Computes `out = a · b`.
pub(in crate::train) fn multiply<F: ModelFloat>(
    out: MatrixMut<'_, F>,
    a: Matrix<'_, F>,
    b: Matrix<'_, F>,
) {
    product(out, Destination::Overwrite, a, b);
}

/// Computes `out += a · b`.
pub(in crate::train) fn multiply_add<F: ModelFloat>(
    out: MatrixMut<'_, F>,
    a: Matrix<'_, F>,
    b: Matrix<'_, F>,
) {
    product(out, Destination::Add, a, b);
}

/// Treatment of the old content of the result.
#[derive(Clone, Copy)]
enum Destination {
    Overwrite,
    Add,
}

#[expect(clippy::needless_pass_by_value, reason = "a mutable matrix is passed by value")]
fn product<F: ModelFloat>(
    out: MatrixMut<'_, F>,
    to: Destination,
    a: Matrix<'_, F>,
    b: Matrix<'_, F>,
) {
    let (o, l, r) = (out.shape, a.shape, b.shape);
    assert!(o.rows == l.rows && o.cols == r.cols && l.cols == r.rows, "{o:?} = {l:?} · {r:?}");
    let (read, old) = match to {
        Destination::Overwrite => (false, F::ZERO),
        Destination::Add => (true, F::ONE),
    };
    // SAFETY: the three shapes agree (asserted above) and each was checked against the length of
    // its slice when the matrix was created; rows of `out` do not overlap, and `out` is borrowed
    // exclusively. For an unknown type `gemm` panics.
    unsafe {
        gemm::gemm(
            o.rows,
            o.cols,
            l.cols,
            out.data.as_mut_ptr(),
            o.col_stride as isize,
            o.row_stride as isize,
            read,
            a.data.as_ptr(),
            l.col_stride as isize,
            l.row_stride as isize,
            b.data.as_ptr(),
            r.col_stride as isize,
            r.row_stride as isize,
            old,
            F::ONE,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A product of 2 × 3 and 3 × 2, written out.
    #[test]
    fn matmul_matches_a_product_by_hand() {
        let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let b = [7.0, 8.0, 9.0, 10.0, 11.0, 12.0];
        let mut out = [1.0; 4];
        let whole = |out: &[f64]| out.iter().map(|&x| x as i64).collect::<Vec<_>>();
        multiply(MatrixMut::new(&mut out, 2, 2), Matrix::new(&a, 2, 3), Matrix::new(&b, 3, 2));
        assert_eq!(whole(&out), [58, 64, 139, 154]);
        multiply_add(
            MatrixMut::new(&mut out, 2, 2),
            Matrix::new(&a, 2, 3),
            Matrix::new(&b, 2, 3).t(),
        );
        assert_eq!(whole(&out), [58 + 50, 64 + 68, 139 + 122, 154 + 167]);
    }

    #[test]
    fn matmul_into_a_window_keeps_other_columns() {
        let a = [2.0_f64];
        let b = [3.0, 4.0];
        let mut out = [-1.0; 8];
        multiply(
            MatrixMut::strided(&mut out[1..], 1, 2, 4),
            Matrix::new(&a, 1, 1),
            Matrix::new(&b, 1, 2),
        );
        assert_eq!(out.map(|x| x as i64), [-1, 6, 8, -1, -1, -1, -1, -1]);
    }

    #[test]
    #[should_panic(expected = "is larger than")]
    fn matrix_beyond_its_slice_panics() {
        let _ = Matrix::new(&[0.0_f32; 5], 2, 3);
    }

    /// The sum of an element must not depend on the number of other rows, as long as tiles are
    /// divided by shape; this checks that repeated calls agree.
    #[test]
    fn matmul_repeated_calls_give_the_same_bits() {
        let a: Vec<f32> = (0..192 * 96).map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0).collect();
        let b: Vec<f32> = (0..96 * 65).map(|i| ((i * 53 % 89) as f32 - 44.0) / 13.0).collect();
        let run = || {
            let mut out = vec![0.0_f32; 192 * 65];
            multiply(
                MatrixMut::new(&mut out, 192, 65),
                Matrix::new(&a, 192, 96),
                Matrix::new(&b, 96, 65),
            );
            out.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
    }
}
