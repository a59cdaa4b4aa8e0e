//! Errors of cuBLASLt.

use crate::cuda::cublaslt::product::LtProduct;
use crate::cuda::library::LibraryError;

/// Error of cuBLASLt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CublasLtError {
    /// The library cannot be opened.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A call failed.
    #[error("{function} failed: {meaning}")]
    Call {
        /// Name of the function.
        function: &'static str,
        /// Result code of cuBLAS.
        code: i32,
        /// cuBLAS's description of the code.
        meaning: String,
    },
    /// The library has no algorithm for a product.
    #[error("cuBLASLt {version} has no algorithm for {product:?}")]
    NoAlgorithm {
        /// Version of the library, such as `13.1.0`.
        version: String,
        /// Shapes, types and transposes of the operands.
        product: LtProduct,
    },
}
