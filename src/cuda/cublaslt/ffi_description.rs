//! [`Description`]: products, matrices and preferences as objects of the library. They need no device.

use std::ffi::{c_int, c_void};

use crate::cuda::cublaslt::CublasLtError;
use crate::cuda::cublaslt::ffi::{CublasLt, Opaque};
use crate::cuda::cublaslt::product::{LtEpilogue, LtLayout, LtProduct};
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

/// An object of the library that describes something.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) raw: Opaque,
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

impl CublasLt {
    /// Describes a product, as for a device: whether the library knows all that a product has.
    ///
    /// # Errors
    /// If it does not.
    pub fn check_description(&self, product: &LtProduct) -> Result<(), CublasLtError> {
        self.describe(product)?;
        self.preference(product, 0).map(drop)
    }

    /// Descriptions of a product: the product itself, and its matrices.
    pub(super) fn describe(
        &self,
        product: &LtProduct,
    ) -> Result<(Description, [Description; 3]), CublasLtError> {
        let [a, b, c] = product.layouts.map(|layout| self.layout(layout));
        Ok((self.description(product)?, [a?, b?, c?]))
    }

    fn layout(&self, layout: LtLayout) -> Result<Description, CublasLtError> {
        let LtLayout { element, rows, columns, stride, count, matrix_stride, .. } = layout;
        let functions = &self.functions;
        let mut raw = std::ptr::null_mut();
        let (rows, columns, stride) = (u64::from(rows), u64::from(columns), i64::from(stride));
        // SAFETY: the call writes one handle.
        let code = unsafe {
            (functions.create_layout)(&raw mut raw, data_type(element), rows, columns, stride)
        };
        self.check("cublasLtMatrixLayoutCreate", code)?;
        let set = (functions.set_layout, "cublasLtMatrixLayoutSetAttribute");
        let found = Description { raw, destroy: functions.destroy_layout, set };
        if 1 < count {
            self.set(&found, COUNT_ATTRIBUTE, &(count as c_int))?;
            self.set(&found, MATRIX_STRIDE_ATTRIBUTE, &matrix_stride)?;
        }
        Ok(found)
    }

    /// The description of a product, without addresses.
    fn description(&self, product: &LtProduct) -> Result<Description, CublasLtError> {
        let functions = &self.functions;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the call writes one handle.
        let code = unsafe {
            (functions.create_product)(&raw mut raw, COMPUTE_F32, data_type(ElementType::F32))
        };
        self.check("cublasLtMatmulDescCreate", code)?;
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
        self.check(name, code)
    }

    /// Sets the addresses that the epilogue of a product has.
    pub(super) fn set_addresses(
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
    pub(super) fn preference(
        &self,
        product: &LtProduct,
        workspace_bytes: usize,
    ) -> Result<Description, CublasLtError> {
        let functions = &self.functions;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the call writes one handle.
        let code = unsafe { (functions.create_preference)(&raw mut raw) };
        self.check("cublasLtMatmulPreferenceCreate", code)?;
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
}
