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
        product: Box<LtProduct>,
    },
    /// This rank has another GPU or another library than rank 0, whose algorithms it cannot use.
    #[error("this rank has {own}, and rank 0 has {first}: they cannot use the same algorithms")]
    OtherMachine {
        /// GPU and library of this rank.
        own: String,
        /// GPU and library of rank 0.
        first: String,
    },
    /// The ranks cannot send each other what they chose.
    #[error("the algorithm of rank 0 was not received: {problem}")]
    Share {
        /// What failed.
        problem: String,
    },
    /// Rank 0 multiplies other matrices at the same place of the program.
    #[error("rank 0 multiplies other matrices than this rank: {product:?}")]
    OtherProduct {
        /// Product of this rank.
        product: Box<LtProduct>,
    },
    /// Rank 0 found no algorithm; its own error says why.
    #[error("rank 0 has no algorithm for {product:?}")]
    NoneOnFirstRank {
        /// Shapes, types and transposes of the operands.
        product: Box<LtProduct>,
    },
    /// The time of an algorithm could not be measured.
    #[error("the time of an algorithm cannot be measured: {problem}")]
    Untimed {
        /// What failed.
        problem: String,
    },
}
