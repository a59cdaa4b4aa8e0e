//! [`Matmul`]: a product of matrices, and what becomes of it before it is written.

use crate::cuda::device::kernel_call::KernelCall;
use crate::cuda::device::types::{DeviceAddress, DeviceMatrix};
use crate::cuda::kernels::Activation;

/// What becomes of a product P before it is rounded and written. GELU is the function as GPT-2 approximates it; a bias has
/// a number for each column of C, of its type; H has the layout and the type of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// `C = P`.
    None,
    /// `C = P + bias`.
    Bias {
        /// Address of the bias.
        bias: DeviceAddress,
    },
    /// `H = P + bias`, and `C = gelu(H)`.
    Gelu {
        /// Address of the bias.
        bias: DeviceAddress,
        /// Address of H, which the backward pass reads.
        before: DeviceAddress,
    },
    /// `C = P · gelu'(H)`.
    GeluBackward {
        /// Address of H.
        before: DeviceAddress,
    },
}

/// Products of equal shape, which are computed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulBatch {
    /// Number of products.
    pub count: u32,
    /// Elements from the begin of an operand to that of the next product's: A, B and C.
    pub strides: [u64; 3],
}

impl MatmulBatch {
    /// A single product.
    pub const ONE: Self = Self { count: 1, strides: [0; 3] };
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
    /// What becomes of the product before it is written. Other than [`Epilogue::None`] is for a single product that is
    /// not added, and for rows of `c` that are adjacent and consist of whole packs of 16 bytes.
    pub epilogue: Epilogue,
    /// Number of such products, and where the others are.
    pub batch: MatmulBatch,
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

impl Matmul {
    /// Returns the product `A · B`, written to `c`.
    pub fn new(a: DeviceMatrix, b: DeviceMatrix, c: DeviceMatrix) -> Self {
        Self {
            a,
            transposes_a: false,
            b,
            transposes_b: false,
            c,
            adds: false,
            epilogue: Epilogue::None,
            batch: MatmulBatch::ONE,
        }
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

    /// Computes this with the product before it is written.
    #[must_use]
    pub fn then(self, epilogue: Epilogue) -> Self {
        Self { epilogue, ..self }
    }

    /// Computes so many products.
    #[must_use]
    pub fn repeat(self, batch: MatmulBatch) -> Self {
        Self { batch, ..self }
    }

    /// Returns the product without its epilogue, and the kernel that computes the epilogue from it; `None` if it has
    /// none. The product is rounded once more than with an epilogue.
    pub fn with_epilogue_apart(&self) -> Option<(Self, KernelCall)> {
        let (c, gelu) = (self.c, Activation::GeluTanh);
        let product = self.then(Epilogue::None);
        match self.epilogue {
            Epilogue::None => None,
            Epilogue::Bias { bias } => {
                Some((product, KernelCall::bias_activation(Activation::Identity, c, bias, None)))
            }
            Epilogue::Gelu { bias, before } => {
                let sum = DeviceMatrix { address: before, ..c };
                let kernel = KernelCall::bias_activation(gelu, sum, bias, Some(c.address));
                Some((Self { c: sum, ..product }, kernel))
            }
            Epilogue::GeluBackward { before } => {
                let sum = DeviceMatrix { address: before, ..c };
                Some((product, KernelCall::activation_backward(gelu, sum, c.address)))
            }
        }
    }

    /// Returns the sizes of the product.
    ///
    /// # Panics
    /// If the operands do not fit each other or the result, or are of different types, or if there cannot be an
    /// epilogue.
    pub fn shape(&self) -> MatmulShape {
        let (rows, inner) = self.a.shape(self.transposes_a);
        let (inner_of_b, columns) = self.b.shape(self.transposes_b);
        let fits = inner == inner_of_b && (rows, columns) == (self.c.rows, self.c.columns);
        assert!(fits && self.a.element == self.b.element, "operands and result fit: {self:?}");
        let is_whole = self.c.stride == columns && columns.is_multiple_of(self.c.element.pack());
        let is_one = self.batch.count == 1;
        let can_go_on = self.epilogue == Epilogue::None || is_whole && is_one && !self.adds;
        assert!(can_go_on, "there can be an epilogue: {self:?}");
        MatmulShape { rows, columns, inner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::device::types::KernelArgument;
    use crate::cuda::kernels::{ElementType, HalfType, Kernel};

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
    fn epilogue_apart_is_a_product_and_a_kernel() {
        let element = ElementType::Half(HalfType::Bf16);
        let matrix =
            |at, rows, columns| DeviceMatrix::new(DeviceAddress(at), rows, columns, element);
        let product = Matmul::new(matrix(256, 2, 8), matrix(512, 8, 16), matrix(768, 2, 16));
        let [bias, before] = [1024, 1280].map(DeviceAddress);
        assert_eq!(product.with_epilogue_apart(), None);
        let (plain, kernel) =
            product.then(Epilogue::Bias { bias }).with_epilogue_apart().expect("it has one");
        assert_eq!((plain, kernel.kernel.1), (product, Kernel::BiasActivation));
        // The sum is where the backward pass reads it, and its function is the result.
        let (plain, kernel) = product
            .then(Epilogue::Gelu { bias, before })
            .with_epilogue_apart()
            .expect("it has one");
        assert_eq!(plain, Matmul { c: matrix(1280, 2, 16), ..product });
        let addresses = [before, bias, product.c.address].map(KernelArgument::Address);
        assert_eq!(kernel.arguments[..3], addresses);
        let backward = product.then(Epilogue::GeluBackward { before });
        let (plain, kernel) = backward.with_epilogue_apart().expect("it has one");
        assert_eq!(plain, product);
        let addresses = [before, product.c.address].map(KernelArgument::Address);
        assert_eq!(kernel.arguments[..2], addresses);
    }

    #[test]
    #[should_panic(expected = "there can be an epilogue")]
    fn epilogue_of_a_product_that_is_added_is_refused() {
        let product = Matmul::new(matrix(2, 4), matrix(4, 8), matrix(2, 8)).add();
        product.then(Epilogue::Bias { bias: DeviceAddress(256) }).shape();
    }

    #[test]
    #[should_panic(expected = "operands and result fit")]
    fn operands_that_do_not_fit_are_refused() {
        Matmul::new(matrix(2, 5), matrix(3, 5), matrix(2, 3)).shape();
    }
}
