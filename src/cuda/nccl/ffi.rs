//! Functions of the NCCL library, opened at run time.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::base::env_vars::REMUDA_NCCL_LIBRARY;
use crate::cuda::library::LibrarySpec;
use crate::cuda::library::OpenLibrary;
use crate::cuda::library::copy_c_string;
use crate::cuda::library::functions;
use crate::cuda::nccl::error::NcclError;
use crate::cuda::nccl::version::Version;

/// Names under which the library is searched.
pub(crate) static NCCL: LibrarySpec = LibrarySpec {
    name: "NCCL",
    files: &["libnccl.so.2", "libnccl.so"],
    package: "nvidia-nccl-cu13",
    variable: REMUDA_NCCL_LIBRARY,
};

/// Size of a [`UniqueId`] in bytes.
pub const UNIQUE_ID_BYTES: usize = 128;

/// Identifier that all ranks of a new communicator must have.
///
/// It contains the address of a listener in the process that created it. That process must run until
/// every rank has created its communicator.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct UniqueId(pub [u8; UNIQUE_ID_BYTES]);

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The id is a secret: with it a process can join the communicator.
        f.write_str("UniqueId(…)")
    }
}

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const IN_PROGRESS: c_int = 7;

/// `ncclComm_t`.
pub(crate) type Comm = *mut c_void;
/// Handle of registered memory.
pub(crate) type Registration = *mut c_void;
/// `cudaStream_t`.
pub(crate) type CudaStreamHandle = *mut c_void;

/// `ncclConfig_t` as of [`Version::LEAST`]; its first fields contain its size for newer libraries.
#[repr(C)]
pub(crate) struct Config {
    pub(crate) size: usize,
    pub(crate) magic: u32,
    pub(crate) version: u32,
    pub(crate) blocking: c_int,
    pub(crate) cga_cluster_size: c_int,
    pub(crate) min_ctas: c_int,
    pub(crate) max_ctas: c_int,
    pub(crate) net_name: *const c_char,
    pub(crate) split_share: c_int,
}

impl Config {
    /// Configuration in which calls do not block and the kernels have at most `ctas_max` blocks, with NCCL's defaults for
    /// everything else.
    pub(crate) fn nonblocking(ctas_max: Option<c_int>) -> Self {
        const MAGIC: u32 = 0xcafe_beef;
        const UNSET: c_int = c_int::MIN;
        Self {
            size: size_of::<Self>(),
            magic: MAGIC,
            version: Version::LEAST.code(),
            blocking: 0,
            cga_cluster_size: UNSET,
            min_ctas: UNSET,
            max_ctas: ctas_max.unwrap_or(UNSET),
            net_name: std::ptr::null(),
            split_share: UNSET,
        }
    }
}

functions! {
    get_version = ncclGetVersion(*mut c_int) -> c_int;
    get_unique_id = ncclGetUniqueId(*mut UniqueId) -> c_int;
    get_error_string = ncclGetErrorString(c_int) -> *const c_char;
    get_last_error = ncclGetLastError(Comm) -> *const c_char;
    comm_init_rank_config = ncclCommInitRankConfig(*mut Comm, c_int, UniqueId, c_int, *mut Config) -> c_int;
    comm_split = ncclCommSplit(Comm, c_int, c_int, *mut Comm, *mut Config) -> c_int;
    comm_finalize = ncclCommFinalize(Comm) -> c_int;
    comm_destroy = ncclCommDestroy(Comm) -> c_int;
    comm_abort = ncclCommAbort(Comm) -> c_int;
    comm_get_async_error = ncclCommGetAsyncError(Comm, *mut c_int) -> c_int;
    all_reduce = ncclAllReduce(*const c_void, *mut c_void, usize, c_int, c_int, Comm, CudaStreamHandle) -> c_int;
    broadcast = ncclBroadcast(*const c_void, *mut c_void, usize, c_int, c_int, Comm, CudaStreamHandle) -> c_int;
    reduce = ncclReduce(*const c_void, *mut c_void, usize, c_int, c_int, c_int, Comm, CudaStreamHandle) -> c_int;
    all_gather = ncclAllGather(*const c_void, *mut c_void, usize, c_int, Comm, CudaStreamHandle) -> c_int;
    reduce_scatter = ncclReduceScatter(*const c_void, *mut c_void, usize, c_int, c_int, Comm, CudaStreamHandle) -> c_int;
    send = ncclSend(*const c_void, usize, c_int, c_int, Comm, CudaStreamHandle) -> c_int;
    recv = ncclRecv(*mut c_void, usize, c_int, c_int, Comm, CudaStreamHandle) -> c_int;
    group_start = ncclGroupStart() -> c_int;
    group_end = ncclGroupEnd() -> c_int;
    ? comm_register = ncclCommRegister(Comm, *mut c_void, usize, *mut Registration) -> c_int;
    ? comm_deregister = ncclCommDeregister(Comm, Registration) -> c_int;
    ? mem_alloc = ncclMemAlloc(*mut *mut c_void, usize) -> c_int;
    ? mem_free = ncclMemFree(*mut c_void) -> c_int;
}

/// NCCL library of this process.
pub struct NcclLibrary {
    path: PathBuf,
    version: Version,
    pub(crate) functions: Functions,
}

impl fmt::Debug for NcclLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NCCL {} (`{}`)", self.version, self.path.display())
    }
}

impl NcclLibrary {
    /// Opens the first library that is found: the file of `REMUDA_NCCL_LIBRARY`, the one that a Python
    /// worker of this environment would load, or the system's. It is loaded once in a process.
    pub fn open() -> Result<Arc<Self>, NcclError> {
        static OPENED: OnceLock<Result<Arc<NcclLibrary>, NcclError>> = OnceLock::new();
        OPENED.get_or_init(|| Self::open_first().map(Arc::new)).clone()
    }

    fn open_first() -> Result<Self, NcclError> {
        let OpenLibrary { path, functions } = OpenLibrary::open(&NCCL)?;
        let mut library = Self { path, version: Version::from_code(0), functions };
        library.version = library.query_version()?;
        if library.version < Version::LEAST {
            return Err(NcclError::TooOld { path: library.path, version: library.version });
        }
        Ok(library)
    }

    fn query_version(&self) -> Result<Version, NcclError> {
        let mut version = 0;
        // SAFETY: the call writes one number.
        let code = unsafe { (self.functions.get_version)(&raw mut version) };
        self.check("ncclGetVersion", code)?;
        Ok(Version::from_code(u32::try_from(version).unwrap_or(0)))
    }

    /// Returns the path of the library.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the version of the library.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns whether memory can be registered (since 2.19).
    pub fn can_register(&self) -> bool {
        self.functions.comm_register.is_some() && self.functions.comm_deregister.is_some()
    }

    /// Creates an id for a new communicator. This process then listens for the other ranks, on the
    /// interface of `NCCL_SOCKET_IFNAME`.
    pub fn unique_id(&self) -> Result<UniqueId, NcclError> {
        let mut id = UniqueId([0; UNIQUE_ID_BYTES]);
        // SAFETY: the call writes one id.
        let code = unsafe { (self.functions.get_unique_id)(&raw mut id) };
        self.check("ncclGetUniqueId", code)?;
        Ok(id)
    }

    /// Converts every result but success to an error, with NCCL's message.
    pub(crate) fn check(&self, function: &'static str, code: c_int) -> Result<(), NcclError> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: any number may be passed; the result is a string of the library.
        let meaning = unsafe { copy_c_string((self.functions.get_error_string)(code)) };
        // SAFETY: without a communicator the result is the last error of this process.
        let detail =
            unsafe { copy_c_string((self.functions.get_last_error)(std::ptr::null_mut())) };
        let meaning = meaning.unwrap_or_else(|| format!("result {code}"));
        Err(NcclError::Call { function, code, meaning, detail })
    }
}
