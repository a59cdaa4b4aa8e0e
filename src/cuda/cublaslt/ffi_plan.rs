//! [`LtPlan`]: a product, and the algorithm that was chosen for it.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

use crate::base::lock;
use crate::cuda::cublaslt::CublasLtError;
use crate::cuda::cublaslt::ffi::{CublasLt, HeuristicResult, Opaque};
use crate::cuda::cublaslt::ffi_description::Description;
use crate::cuda::cublaslt::product::{LtAddresses, LtProduct};
use crate::cuda::device::DeviceAddress;

/// `CUBLAS_STATUS_NOT_SUPPORTED`.
const NOT_SUPPORTED: c_int = 15;

/// Memory that an algorithm may use. Two streams must not share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LtWorkspace {
    /// Address, a multiple of 256.
    pub address: DeviceAddress,
    /// Size in bytes.
    pub bytes: usize,
}

/// Handle of the library for the device of the current context (`cublasLtHandle_t`).
#[derive(Debug)]
pub struct LtHandle {
    library: Arc<CublasLt>,
    raw: Opaque,
}

// SAFETY: the library's functions may be called with one handle by several threads.
unsafe impl Send for LtHandle {}
// SAFETY: as above.
unsafe impl Sync for LtHandle {}

/// A product whose algorithm was chosen.
#[derive(Debug)]
pub struct LtPlan {
    handle: Arc<LtHandle>,
    /// It has the addresses of an epilogue, so it is locked until the library has read them.
    description: Mutex<Description>,
    /// First operand, second operand, result.
    layouts: [Description; 3],
    algorithm: [u64; 8],
    adds: bool,
}

impl LtHandle {
    /// Creates a handle for the device of the current context.
    ///
    /// # Errors
    /// If the library fails, for example because there is no driver.
    pub fn new(library: Arc<CublasLt>) -> Result<Self, CublasLtError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the call writes one handle.
        let code = unsafe { (library.functions.create)(&raw mut raw) };
        library.check("cublasLtCreate", code)?;
        Ok(Self { library, raw })
    }

    /// Returns the version of the library.
    pub fn version(&self) -> String {
        self.library.version()
    }

    /// Returns plans with the algorithms that the library proposes for a product, at most `most`: the first one is that which it
    /// recommends, without any measurement. Each sums in an order that is fixed for one kind of device and one version
    /// of the library.
    ///
    /// # Errors
    /// If the library has none, or fails.
    pub fn candidates(
        self: &Arc<Self>,
        product: &LtProduct,
        workspace_bytes: usize,
        most: usize,
    ) -> Result<Vec<LtPlan>, CublasLtError> {
        let (description, layouts) = self.library.describe(product)?;
        let preference = self.library.preference(product, workspace_bytes)?;
        let [a, b, c] = layouts.each_ref().map(|layout| layout.raw);
        let (mut found, mut count) = (vec![HeuristicResult::NONE; most], 0);
        // SAFETY: all objects are live; the call writes at most so many results, and their number.
        let code = unsafe {
            (self.library.functions.find_algorithms)(
                self.raw,
                description.raw,
                a,
                b,
                c,
                c,
                preference.raw,
                most as c_int,
                found.as_mut_ptr(),
                &raw mut count,
            )
        };
        // Nothing found is a status of its own in some versions, and success in others.
        if code != NOT_SUPPORTED {
            self.library.check("cublasLtMatmulAlgoGetHeuristic", code)?;
        }
        found.truncate(usize::try_from(count).unwrap_or_default());
        found.retain(|result| result.state == 0 && result.workspace_bytes <= workspace_bytes);
        if found.is_empty() {
            return Err(CublasLtError::NoAlgorithm {
                version: self.version(),
                product: Box::new(*product),
            });
        }
        found.into_iter().map(|result| self.plan_with(product, result.algorithm)).collect()
    }

    /// Returns a plan with an algorithm that another process has chosen.
    ///
    /// # Errors
    /// If the library does not have it for this product.
    pub fn plan_of(
        self: &Arc<Self>,
        product: &LtProduct,
        algorithm: [u64; 8],
    ) -> Result<LtPlan, CublasLtError> {
        let plan = self.plan_with(product, algorithm)?;
        let [a, b, c] = plan.layouts.each_ref().map(|layout| layout.raw);
        let mut result = HeuristicResult::NONE;
        // SAFETY: all objects are live; the call reads the algorithm and writes one result.
        let code = unsafe {
            (self.library.functions.check_algorithm)(
                self.raw,
                lock(&plan.description).raw,
                a,
                b,
                c,
                c,
                plan.algorithm.as_ptr(),
                &raw mut result,
            )
        };
        self.library.check("cublasLtMatmulAlgoCheck", code)?;
        Ok(plan)
    }

    fn plan_with(
        self: &Arc<Self>,
        product: &LtProduct,
        algorithm: [u64; 8],
    ) -> Result<LtPlan, CublasLtError> {
        let (description, layouts) = self.library.describe(product)?;
        let (handle, description) = (self.clone(), Mutex::new(description));
        Ok(LtPlan { handle, description, layouts, algorithm, adds: product.adds })
    }
}

impl Drop for LtHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and this is its last use.
        let _ = unsafe { (self.library.functions.destroy)(self.raw) };
    }
}

impl LtPlan {
    /// Returns the algorithm, which another process can use for the same product (`cublasLtMatmulAlgo_t`).
    pub fn algorithm(&self) -> [u64; 8] {
        self.algorithm
    }

    /// Submits the product of the matrices at these addresses.
    ///
    /// # Errors
    /// If the library fails.
    ///
    /// # Safety
    /// `stream` is a stream of the handle's device (`CUstream`). The memory has the layouts of the plan, and there are the
    /// addresses of its epilogue; the workspace has the size of the plan. All of it stays allocated until the stream has
    /// executed the product.
    pub unsafe fn multiply(
        &self,
        LtAddresses { matrices: [a, b, c], bias, before }: LtAddresses,
        workspace: LtWorkspace,
        stream: *mut c_void,
    ) -> Result<(), CublasLtError> {
        let description = lock(&self.description);
        self.handle.library.set_addresses(&description, bias, before)?;
        let (alpha, beta) = (1.0f32, if self.adds { 1.0f32 } else { 0.0 });
        let [of_a, of_b, of_c] = self.layouts.each_ref().map(|layout| layout.raw);
        let at = |address: DeviceAddress| address.0 as *mut c_void;
        let LtHandle { library, raw } = &*self.handle;
        // SAFETY: the descriptions are live, the factors are f32 as the description says, and the caller guarantees
        // the rest.
        let code = unsafe {
            (library.functions.multiply)(
                *raw,
                description.raw,
                (&raw const alpha).cast(),
                at(a),
                of_a,
                at(b),
                of_b,
                (&raw const beta).cast(),
                at(c),
                of_c,
                at(c),
                of_c,
                self.algorithm.as_ptr(),
                at(workspace.address),
                workspace.bytes,
                stream,
            )
        };
        library.check("cublasLtMatmul", code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_of_the_heuristic_has_the_size_of_the_header() {
        assert_eq!(size_of::<HeuristicResult>(), 96);
        assert_eq!(std::mem::offset_of!(HeuristicResult, state), 72);
    }
}
