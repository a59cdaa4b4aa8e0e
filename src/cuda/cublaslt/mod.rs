//! cuBLASLt: products of matrices on a GPU.
//!
//! Not yet run on a GPU.
//!
//! | file | contents |
//! |---|---|
//! | `product` | a product as the library describes it: column after column |
//! | `ffi` | functions of the library |
//! | `ffi_description` | objects of the library that describe a product |
//! | `ffi_plan` | a product, and the algorithm that was chosen for it |
//! | `algorithms` | how a product is computed, the same on all ranks |
//! | `error` | errors |

mod algorithms;
mod error;
mod ffi;
mod ffi_description;
mod ffi_plan;
mod product;

pub use crate::cuda::cublaslt::algorithms::{
    AlgorithmChoice, LtAlgorithms, LtMethod, ShareChoices, TimeMethod,
};
pub use crate::cuda::cublaslt::error::CublasLtError;
pub use crate::cuda::cublaslt::ffi::CublasLt;
pub use crate::cuda::cublaslt::ffi_plan::{LtHandle, LtPlan, LtWorkspace};
pub use crate::cuda::cublaslt::product::{LtAddresses, LtEpilogue, LtLayout, LtProduct};
