//! Functions of the cuBLASLt library.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::base::env_vars::REMUDA_CUBLASLT_LIBRARY;
use crate::cuda::cublaslt::CublasLtError;
use crate::cuda::library::{LibrarySpec, OpenLibrary, copy_c_string, functions};

/// Names under which the library is searched.
static CUBLASLT: LibrarySpec = LibrarySpec {
    name: "cuBLASLt",
    files: &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
    package: "nvidia-cublas",
    variable: REMUDA_CUBLASLT_LIBRARY,
};

const SUCCESS: c_int = 0;

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct HeuristicResult {
    /// `cublasLtMatmulAlgo_t`.
    pub(super) algorithm: [u64; 8],
    pub(super) workspace_bytes: usize,
    pub(super) state: c_int,
    pub(super) waves: f32,
    pub(super) reserved: [c_int; 4],
}

impl HeuristicResult {
    /// A result that the library replaces.
    pub(super) const NONE: Self =
        Self { algorithm: [0; 8], workspace_bytes: 0, state: 0, waves: 0.0, reserved: [0; 4] };
}

/// `cublasLtHandle_t`, `cublasLtMatmulDesc_t`, `cublasLtMatrixLayout_t`, `cublasLtMatmulPreference_t`.
pub(super) type Opaque = *mut c_void;

functions! {
    get_version = cublasLtGetVersion() -> usize;
    get_status_string = cublasLtGetStatusString(c_int) -> *const c_char;
    create = cublasLtCreate(*mut Opaque) -> c_int;
    destroy = cublasLtDestroy(Opaque) -> c_int;
    create_product = cublasLtMatmulDescCreate(*mut Opaque, c_int, c_int) -> c_int;
    destroy_product = cublasLtMatmulDescDestroy(Opaque) -> c_int;
    set_product = cublasLtMatmulDescSetAttribute(Opaque, c_int, *const c_void, usize) -> c_int;
    create_layout = cublasLtMatrixLayoutCreate(*mut Opaque, c_int, u64, u64, i64) -> c_int;
    set_layout = cublasLtMatrixLayoutSetAttribute(Opaque, c_int, *const c_void, usize) -> c_int;
    destroy_layout = cublasLtMatrixLayoutDestroy(Opaque) -> c_int;
    create_preference = cublasLtMatmulPreferenceCreate(*mut Opaque) -> c_int;
    destroy_preference = cublasLtMatmulPreferenceDestroy(Opaque) -> c_int;
    set_preference = cublasLtMatmulPreferenceSetAttribute(Opaque, c_int, *const c_void, usize) -> c_int;
    find_algorithms = cublasLtMatmulAlgoGetHeuristic(Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut HeuristicResult, *mut c_int) -> c_int;
    check_algorithm = cublasLtMatmulAlgoCheck(Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, *const u64, *mut HeuristicResult) -> c_int;
    multiply = cublasLtMatmul(Opaque, Opaque, *const c_void, *const c_void, Opaque, *const c_void, Opaque, *const c_void, *const c_void, Opaque, *mut c_void, Opaque, *const u64, *mut c_void, usize, *mut c_void) -> c_int;
}

/// cuBLASLt library of this process, which any thread can use.
pub struct CublasLt {
    path: PathBuf,
    pub(super) functions: Functions,
}

impl fmt::Debug for CublasLt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuBLASLt {} (`{}`)", self.version(), self.path.display())
    }
}

impl CublasLt {
    /// Opens the first library that is found: the file of `REMUDA_CUBLASLT_LIBRARY`, the one that a Python worker of
    /// this environment would load, or the system's. It is loaded once in a process.
    ///
    /// # Errors
    /// If no library is found.
    pub fn open() -> Result<Arc<Self>, CublasLtError> {
        static OPENED: OnceLock<Result<Arc<CublasLt>, CublasLtError>> = OnceLock::new();
        let open = || {
            let OpenLibrary { path, functions } = OpenLibrary::open(&CUBLASLT)?;
            Ok(Arc::new(Self { path, functions }))
        };
        OPENED.get_or_init(open).clone()
    }

    /// Opens this file.
    ///
    /// # Errors
    /// If it is no such library.
    pub fn open_file(path: &Path) -> Result<Arc<Self>, CublasLtError> {
        let OpenLibrary { path, functions } =
            OpenLibrary::open_first(&CUBLASLT, [path.to_owned()])?;
        Ok(Arc::new(Self { path, functions }))
    }

    /// Returns the path of the library.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the version of the library, such as `13.1.0`.
    pub fn version(&self) -> String {
        // SAFETY: the call reads a constant of the library.
        let number = unsafe { (self.functions.get_version)() };
        // Since version 12, a major version counts 10,000.
        format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
    }

    pub(super) fn check(&self, function: &'static str, code: c_int) -> Result<(), CublasLtError> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: any number may be passed; the result is a string of the library.
        let meaning = unsafe { copy_c_string((self.functions.get_status_string)(code)) };
        let meaning = meaning.unwrap_or_else(|| format!("result {code}"));
        Err(CublasLtError::Call { function, code, meaning })
    }
}
