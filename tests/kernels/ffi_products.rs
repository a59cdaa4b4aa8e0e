//! Products of the library that computes in the memory of the host.

use remuda::cuda::cublaslt::{LtAddresses, LtPlan, LtWorkspace};

/// Multiplies the matrices at these addresses, which have the layouts of the plan.
pub(super) fn multiply(plan: &LtPlan, addresses: LtAddresses, workspace: LtWorkspace) {
    // SAFETY: the library knows no streams, does not use the workspace, and the caller has the matrices.
    unsafe { plan.multiply(addresses, workspace, std::ptr::null_mut()) }.expect("a product");
}
