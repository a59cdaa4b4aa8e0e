//! [`LtPlan`]: descriptions of a product, and the algorithm that was chosen for it.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

use crate::base::lock;
use crate::cuda::cublaslt::CublasLtError;
use crate::cuda::cublaslt::ffi::{CublasLt, HeuristicResult, Opaque};
use crate::cuda::cublaslt::product::{LtAddresses, LtEpilogue, LtLayout, LtProduct};
use crate::cuda::device::DeviceAddress;
use crate::cuda::kernels::{ElementType, HalfType};

/// `CUBLAS_COMPUTE_32F`: sums are f32, and so are the factors.
const COMPUTE_F32: c_int = 68;
/// `CUBLASLT_MATMUL_DESC_TRANSA` and `…_TRANSB`.
const TRANSPOSE_ATTRIBUTES: [c_int; 2] = [3, 4];
/// `CUBLASLT_MATMUL_DESC_EPILOGUE`.
const EPILOGUE_ATTRIBUTE: c_int = 7;
/// `CUBLASLT_MATMUL_DESC_BIAS_POINTER`.
const BIAS_ATTRIBUTE: c_int = 8;
/// `CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER`: the input of GELU.
const BEFORE_ATTRIBUTE: c_int = 11;
/// `CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD`.
const BEFORE_STRIDE_ATTRIBUTE: c_int = 12;
/// `CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT`.
const COUNT_ATTRIBUTE: c_int = 5;
/// `CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET`.
const MATRIX_STRIDE_ATTRIBUTE: c_int = 6;
/// `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`.
const WORKSPACE_ATTRIBUTE: c_int = 1;
/// `CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK`.
const REDUCTION_ATTRIBUTE: c_int = 3;
/// `CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE`: parts of a sum are added in f32, in a fixed order; not in place, which
/// would add in the type of the result.
const REDUCTION_IN_F32: u32 = 2;
/// `CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES`, `…_B_BYTES`, `…_C_BYTES` and `…_D_BYTES`.
const ALIGNMENT_ATTRIBUTES: [c_int; 4] = [5, 6, 7, 8];

/// `CUBLAS_STATUS_NOT_SUPPORTED`.
const NOT_SUPPORTED: c_int = 15;

/// `cudaDataType_t`.
fn data_type(element: ElementType) -> c_int {
    match element {
        ElementType::F32 => 0,
        ElementType::Half(HalfType::F16) => 2,
        ElementType::Half(HalfType::Bf16) => 14,
    }
}

/// `cublasLtEpilogue_t`.
fn epilogue_code(epilogue: LtEpilogue) -> c_int {
    match epilogue {
        LtEpilogue::None => 1,
        LtEpilogue::Bias => 4,
        // GELU_AUX_BIAS.
        LtEpilogue::Gelu => 32 | 128 | 4,
        // DGELU.
        LtEpilogue::GeluBackward => 64 | 128,
    }
}

/// Address for a product that has none yet. The library reads from it that addresses are aligned, and nothing else.
const ALIGNED: DeviceAddress = DeviceAddress(256);

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

/// An object of the library that describes something.
#[derive(Debug)]
struct Description {
    raw: Opaque,
    destroy: unsafe extern "C" fn(Opaque) -> c_int,
    /// Function that sets an attribute, and its name.
    set: (SetAttribute, &'static str),
}

type SetAttribute = unsafe extern "C" fn(Opaque, c_int, *const c_void, usize) -> c_int;

// SAFETY: the object belongs to no thread.
unsafe impl Send for Description {}
// SAFETY: what is shared is only read.
unsafe impl Sync for Description {}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: the object is live, and this is its last use.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
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

    fn layout(&self, layout: LtLayout) -> Result<Description, CublasLtError> {
        let LtLayout { element, rows, columns, stride, count, matrix_stride, .. } = layout;
        let functions = &self.library.functions;
        let mut raw = std::ptr::null_mut();
        let (rows, columns, stride) = (u64::from(rows), u64::from(columns), i64::from(stride));
        // SAFETY: the call writes one handle.
        let code = unsafe {
            (functions.create_layout)(&raw mut raw, data_type(element), rows, columns, stride)
        };
        self.library.check("cublasLtMatrixLayoutCreate", code)?;
        let set = (functions.set_layout, "cublasLtMatrixLayoutSetAttribute");
        let found = Description { raw, destroy: functions.destroy_layout, set };
        if 1 < count {
            self.set(&found, COUNT_ATTRIBUTE, &(count as c_int))?;
            self.set(&found, MATRIX_STRIDE_ATTRIBUTE, &i64::from(matrix_stride))?;
        }
        Ok(found)
    }

    /// The description of a product, without addresses.
    fn description(&self, product: &LtProduct) -> Result<Description, CublasLtError> {
        let functions = &self.library.functions;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the call writes one handle.
        let code = unsafe {
            (functions.create_product)(&raw mut raw, COMPUTE_F32, data_type(ElementType::F32))
        };
        self.library.check("cublasLtMatmulDescCreate", code)?;
        let set = (functions.set_product, "cublasLtMatmulDescSetAttribute");
        let found = Description { raw, destroy: functions.destroy_product, set };
        for (attribute, is_transposed) in TRANSPOSE_ATTRIBUTES.into_iter().zip(product.transposes) {
            // `cublasOperation_t`.
            self.set(&found, attribute, &c_int::from(is_transposed))?;
        }
        self.set(&found, EPILOGUE_ATTRIBUTE, &epilogue_code(product.epilogue))?;
        let (has_bias, has_before) = match product.epilogue {
            LtEpilogue::None => (false, false),
            LtEpilogue::Bias => (true, false),
            LtEpilogue::Gelu => (true, true),
            LtEpilogue::GeluBackward => (false, true),
        };
        self.set_addresses(&found, has_bias.then_some(ALIGNED), has_before.then_some(ALIGNED))?;
        if has_before {
            let [.., result] = product.layouts;
            self.set(&found, BEFORE_STRIDE_ATTRIBUTE, &i64::from(result.stride))?;
        }
        Ok(found)
    }

    fn set<T>(&self, of: &Description, attribute: c_int, value: &T) -> Result<(), CublasLtError> {
        let (set, name) = of.set;
        // SAFETY: the object is live; the call reads as many bytes as it is told.
        let code =
            unsafe { set(of.raw, attribute, std::ptr::from_ref(value).cast(), size_of::<T>()) };
        self.library.check(name, code)
    }

    /// Sets the addresses that the epilogue of a product has.
    fn set_addresses(
        &self,
        of: &Description,
        bias: Option<DeviceAddress>,
        before: Option<DeviceAddress>,
    ) -> Result<(), CublasLtError> {
        for (attribute, address) in [(BIAS_ATTRIBUTE, bias), (BEFORE_ATTRIBUTE, before)] {
            if let Some(DeviceAddress(address)) = address {
                self.set(of, attribute, &address)?;
            }
        }
        Ok(())
    }

    /// What an algorithm for a product may use, and may rely on.
    fn preference(
        &self,
        product: &LtProduct,
        workspace_bytes: usize,
    ) -> Result<Description, CublasLtError> {
        let functions = &self.library.functions;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the call writes one handle.
        let code = unsafe { (functions.create_preference)(&raw mut raw) };
        self.library.check("cublasLtMatmulPreferenceCreate", code)?;
        let set = (functions.set_preference, "cublasLtMatmulPreferenceSetAttribute");
        let found = Description { raw, destroy: functions.destroy_preference, set };
        self.set(&found, WORKSPACE_ATTRIBUTE, &(workspace_bytes as u64))?;
        self.set(&found, REDUCTION_ATTRIBUTE, &REDUCTION_IN_F32)?;
        let [a, b, c] = product.layouts.map(|layout| layout.alignment);
        for (attribute, alignment) in ALIGNMENT_ATTRIBUTES.into_iter().zip([a, b, c, c]) {
            self.set(&found, attribute, &alignment)?;
        }
        Ok(found)
    }

    /// Returns the version of the library.
    pub fn version(&self) -> String {
        self.library.version()
    }

    /// Descriptions of a product: the product itself, and its matrices.
    fn describe(
        &self,
        product: &LtProduct,
    ) -> Result<(Description, [Description; 3]), CublasLtError> {
        let [a, b, c] = product.layouts.map(|layout| self.layout(layout));
        Ok((self.description(product)?, [a?, b?, c?]))
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
        let (description, layouts) = self.describe(product)?;
        let preference = self.preference(product, workspace_bytes)?;
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
            return Err(CublasLtError::NoAlgorithm { version: self.version(), product: *product });
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
        let (description, layouts) = self.describe(product)?;
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
        self.handle.set_addresses(&description, bias, before)?;
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
