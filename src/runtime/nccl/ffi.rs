//! The functions of NCCL, and the library that holds them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use libloading::os::unix;

use super::error::NcclError;
use super::search::Places;

/// Bytes of a [`UniqueId`].
pub const UNIQUE_ID_BYTES: usize = 128;

/// What all ranks of a communicator are told before it is made.
///
/// It holds the address of a listener of the process that made it, which must live until every rank
/// has the communicator.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct UniqueId(pub [u8; UNIQUE_ID_BYTES]);

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It lets whoever has it in.
        f.write_str("UniqueId(…)")
    }
}

/// A version of NCCL, as `ncclGetVersion` counts since 2.9: `major × 10000 + minor × 100 + patch`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32);

impl Version {
    /// The first that makes communicators without blocking and splits them.
    pub const LEAST: Self = Self(2_18_03);

    /// The number as the library tells it.
    pub fn code(self) -> u32 {
        self.0
    }

    pub(crate) fn of_code(code: u32) -> Self {
        Self(code)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0 / 10_000, self.0 / 100 % 100, self.0 % 100)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({self})")
    }
}

pub(super) const SUCCESS: c_int = 0;
pub(super) const IN_PROGRESS: c_int = 7;

/// `ncclComm_t`.
pub(super) type Comm = *mut c_void;
/// `cudaStream_t`.
pub(super) type Stream = *mut c_void;

/// `ncclConfig_t` as of [`Version::LEAST`]; its first fields tell newer libraries where it ends.
#[repr(C)]
pub(super) struct Config {
    pub(super) size: usize,
    pub(super) magic: u32,
    pub(super) version: u32,
    pub(super) blocking: c_int,
    pub(super) cga_cluster_size: c_int,
    pub(super) min_ctas: c_int,
    pub(super) max_ctas: c_int,
    pub(super) net_name: *const c_char,
    pub(super) split_share: c_int,
}

impl Config {
    /// Calls return at once; everything else as NCCL sees fit.
    pub(super) fn without_blocking() -> Self {
        const MAGIC: u32 = 0xcafe_beef;
        const UNSET: c_int = c_int::MIN;
        Self {
            size: size_of::<Self>(),
            magic: MAGIC,
            version: Version::LEAST.0,
            blocking: 0,
            cga_cluster_size: UNSET,
            min_ctas: UNSET,
            max_ctas: UNSET,
            net_name: std::ptr::null(),
            split_share: UNSET,
        }
    }
}

/// A field, a type and a look-up for each function.
macro_rules! functions {
    ($($field:ident = $symbol:ident ( $($argument:ty),* ) -> $result:ty;)*) => {
        /// Every function that we call; each was found when the library was opened.
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// # Safety
            ///
            /// `library` is an NCCL, never closed.
            unsafe fn find(library: &unix::Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        let symbol = concat!(stringify!($symbol), "\0").as_bytes();
                        // SAFETY: a function of that name has this type in every NCCL since 2.18.
                        let found = unsafe { library.get(symbol) };
                        *found.map_err(|_| stringify!($symbol))?
                    },)*
                })
            }
        }
    };
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
    all_reduce = ncclAllReduce(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> c_int;
    broadcast = ncclBroadcast(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> c_int;
    reduce = ncclReduce(*const c_void, *mut c_void, usize, c_int, c_int, c_int, Comm, Stream) -> c_int;
    all_gather = ncclAllGather(*const c_void, *mut c_void, usize, c_int, Comm, Stream) -> c_int;
    reduce_scatter = ncclReduceScatter(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> c_int;
    send = ncclSend(*const c_void, usize, c_int, c_int, Comm, Stream) -> c_int;
    recv = ncclRecv(*mut c_void, usize, c_int, c_int, Comm, Stream) -> c_int;
    group_start = ncclGroupStart() -> c_int;
    group_end = ncclGroupEnd() -> c_int;
}

/// The NCCL of this process.
pub struct Library {
    path: PathBuf,
    version: Version,
    pub(super) functions: Functions,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NCCL {} (`{}`)", self.version, self.path.display())
    }
}

impl Library {
    /// The first that is found: the file that `REMUDA_NCCL_LIBRARY` names, or the one that a Python
    /// worker of this environment would load, or the system's. Loaded once in a process.
    pub fn open() -> Result<Arc<Self>, NcclError> {
        static OPENED: OnceLock<Result<Arc<Library>, NcclError>> = OnceLock::new();
        OPENED.get_or_init(|| Self::open_first(&Places::of_environment()).map(Arc::new)).clone()
    }

    fn open_first(places: &Places) -> Result<Self, NcclError> {
        let mut refused = Vec::new();
        for path in places.candidates() {
            match Self::open_at(&path) {
                Ok(library) => return Ok(library),
                Err(NcclError::NotLoadable(mut files)) => refused.append(&mut files),
                Err(other) => return Err(other),
            }
        }
        // A bare name that nobody knows is not worth a word.
        refused.retain(|(path, _)| path.components().nth(1).is_some());
        if refused.is_empty() {
            return Err(NcclError::NotFound { searched: places.directories() });
        }
        Err(NcclError::NotLoadable(refused))
    }

    fn open_at(path: &Path) -> Result<Self, NcclError> {
        // SAFETY: the initialisers of an NCCL start nothing; a file of another kind under its name
        // is the user's to answer for, as with any program's library path.
        let opened = unsafe { unix::Library::open(Some(path), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let library = opened.map_err(|error| {
            NcclError::NotLoadable(vec![(path.to_owned(), words_of(&error, path))])
        })?;
        // NCCL has threads, and thread-local destructors: once in, it stays.
        let library: &'static unix::Library = Box::leak(Box::new(library));
        // SAFETY: never closed, and of that name.
        let functions = unsafe { Functions::find(library) };
        let missing = |symbol| NcclError::MissingSymbol { path: path.to_owned(), symbol };
        let functions = functions.map_err(missing)?;
        let mut library = Self { path: path.to_owned(), version: Version(0), functions };
        library.path = library.real_path().unwrap_or(library.path);
        library.version = library.ask_version()?;
        if library.version < Version::LEAST {
            return Err(NcclError::TooOld { path: library.path, version: library.version });
        }
        Ok(library)
    }

    /// The file that the loader has taken for a bare name.
    fn real_path(&self) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStrExt;
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address may be asked about; the answer is written to `info`.
        let known =
            unsafe { libc::dladdr(self.functions.get_version as *const c_void, info.as_mut_ptr()) };
        // SAFETY: zeros are a valid `Dl_info`.
        let name = unsafe { info.assume_init() }.dli_fname;
        if known == 0 || name.is_null() {
            return None;
        }
        // SAFETY: a string of the loader that lives as long as the library.
        let name = unsafe { CStr::from_ptr(name) };
        std::fs::canonicalize(std::ffi::OsStr::from_bytes(name.to_bytes())).ok()
    }

    fn ask_version(&self) -> Result<Version, NcclError> {
        let mut version = 0;
        // SAFETY: it writes one number.
        let code = unsafe { (self.functions.get_version)(&raw mut version) };
        self.check("ncclGetVersion", code)?;
        Ok(Version(u32::try_from(version).unwrap_or(0)))
    }

    /// The file that was loaded.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// An id for a new communicator. This process listens from now on for the ranks that are told it,
    /// on the interface that `NCCL_SOCKET_IFNAME` names.
    pub fn unique_id(&self) -> Result<UniqueId, NcclError> {
        let mut id = UniqueId([0; UNIQUE_ID_BYTES]);
        // SAFETY: it writes one id.
        let code = unsafe { (self.functions.get_unique_id)(&raw mut id) };
        self.check("ncclGetUniqueId", code)?;
        Ok(id)
    }

    /// An error for every result but success, with NCCL's words.
    pub(super) fn check(&self, function: &'static str, code: c_int) -> Result<(), NcclError> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: any number may be asked about; the answer is a string of the library.
        let meaning = unsafe { text((self.functions.get_error_string)(code)) };
        // SAFETY: without a communicator it is the last error of this process.
        let detail = unsafe { text((self.functions.get_last_error)(std::ptr::null_mut())) };
        let meaning = meaning.unwrap_or_else(|| format!("result {code}"));
        Err(NcclError::Call { function, code, meaning, detail })
    }
}

/// # Safety
///
/// Null, or a string that lives through the call.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) }.to_string_lossy();
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// What the loader said, without the path that stands before it.
fn words_of(error: &libloading::Error, path: &Path) -> String {
    let words =
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let path = path.to_string_lossy();
    let words =
        words.strip_prefix(&*path).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&words);
    words.to_owned()
}
