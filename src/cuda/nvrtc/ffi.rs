//! Functions of the NVRTC library.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::base::env_vars::REMUDA_NVRTC_LIBRARY;
use crate::cuda::library::LibrarySpec;
use crate::cuda::library::OpenLibrary;
use crate::cuda::library::copy_c_string;
use crate::cuda::library::functions;
use crate::cuda::library::open_sibling;
use crate::cuda::nvrtc::NvrtcError;
use crate::cuda::nvrtc::architecture::Architecture;

/// Names under which the library is searched.
static NVRTC: LibrarySpec = LibrarySpec {
    name: "NVRTC",
    files: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    package: "nvidia-cuda-nvrtc",
    variable: REMUDA_NVRTC_LIBRARY,
};

const SUCCESS: c_int = 0;
const COMPILATION_ERROR: c_int = 6;

/// `nvrtcProgram`.
type Program = *mut c_void;

functions! {
    version = nvrtcVersion(*mut c_int, *mut c_int) -> c_int;
    get_error_string = nvrtcGetErrorString(c_int) -> *const c_char;
    create_program = nvrtcCreateProgram(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int;
    destroy_program = nvrtcDestroyProgram(*mut Program) -> c_int;
    compile_program = nvrtcCompileProgram(Program, c_int, *const *const c_char) -> c_int;
    get_log_size = nvrtcGetProgramLogSize(Program, *mut usize) -> c_int;
    get_log = nvrtcGetProgramLog(Program, *mut c_char) -> c_int;
    get_cubin_size = nvrtcGetCUBINSize(Program, *mut usize) -> c_int;
    get_cubin = nvrtcGetCUBIN(Program, *mut c_char) -> c_int;
}

/// NVRTC library of this process, which any thread can use.
pub struct Compiler {
    path: PathBuf,
    version: (i32, i32),
    functions: Functions,
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NVRTC {} (`{}`)", self.version(), self.path.display())
    }
}

/// Compiled source: code of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// CUDA binary, which the driver loads.
    pub cubin: Vec<u8>,
    /// Output of the compiler, such as warnings.
    pub log: String,
}

impl Compiler {
    /// Opens the first library that is found: the file of `REMUDA_NVRTC_LIBRARY`, the one that a Python
    /// worker of this environment would load, or the system's. It is loaded once in a process.
    pub fn open() -> Result<Arc<Self>, NvrtcError> {
        static OPENED: OnceLock<Result<Arc<Compiler>, NvrtcError>> = OnceLock::new();
        let open = || Self::from_library(OpenLibrary::open(&NVRTC)?).map(Arc::new);
        OPENED.get_or_init(open).clone()
    }

    /// Opens this file.
    pub fn open_file(path: &Path) -> Result<Arc<Self>, NvrtcError> {
        Self::from_library(OpenLibrary::open_first(&NVRTC, [path.to_owned()])?).map(Arc::new)
    }

    fn from_library(
        OpenLibrary { path, functions }: OpenLibrary<Functions>,
    ) -> Result<Self, NvrtcError> {
        let mut compiler = Self { path, version: (0, 0), functions };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the call writes two numbers.
        let code = unsafe { (compiler.functions.version)(&raw mut major, &raw mut minor) };
        compiler.check("nvrtcVersion", code)?;
        compiler.version = (major, minor);
        // NVRTC searches this library where the loader does, but Python wheels have it elsewhere.
        open_sibling(&compiler.path, &format!("libnvrtc-builtins.so.{major}.{minor}"));
        Ok(compiler)
    }

    /// Returns the path of the library.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the major and minor version of its CUDA release.
    pub fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// Compiles a source for one architecture. Multiplications and additions are not fused, so that every
    /// operation rounds as on a CPU; `options` are added to the command line.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        architecture: Architecture,
        options: &[&str],
    ) -> Result<Compiled, NvrtcError> {
        let target = format!("--gpu-architecture={architecture}");
        if [name, source].iter().chain(options).any(|text| text.contains('\0')) {
            return Err(self.compile_error(name, "it contains a zero byte".to_owned()));
        }
        let options = [target.as_str(), "--fmad=false", "--std=c++17"]
            .into_iter()
            .chain(options.iter().copied());
        let source = Source::create(self, name, source)?;
        match source.compile(&options.map(c_string).collect::<Vec<_>>()) {
            Ok(()) => Ok(Compiled { cubin: source.cubin()?, log: source.log()? }),
            Err(NvrtcError::Call { code: COMPILATION_ERROR, .. }) => {
                Err(self.compile_error(name, source.log()?))
            }
            Err(NvrtcError::Call { meaning, .. }) => {
                // For example an unknown architecture, for which there may be no log.
                let log = source.log().ok().filter(|log| !log.is_empty());
                Err(self.compile_error(name, log.unwrap_or(meaning)))
            }
            Err(error) => Err(error),
        }
    }

    fn compile_error(&self, name: &str, log: String) -> NvrtcError {
        NvrtcError::Refused { version: self.version(), name: name.to_owned(), log }
    }

    fn check(&self, function: &'static str, code: c_int) -> Result<(), NvrtcError> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: any number may be passed; the result is a string of the library.
        let meaning = unsafe { copy_c_string((self.functions.get_error_string)(code)) };
        let meaning = meaning.unwrap_or_else(|| format!("result {code}"));
        Err(NvrtcError::Call { function, code, meaning })
    }
}

/// A source that was passed to the compiler (`nvrtcProgram`).
struct Source<'c> {
    compiler: &'c Compiler,
    raw: Program,
}

impl<'c> Source<'c> {
    fn create(compiler: &'c Compiler, name: &str, source: &str) -> Result<Self, NvrtcError> {
        let (name, source) = (c_string(name), c_string(source));
        let mut raw = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: the two strings are copied, there are no headers, and one handle is written.
        let code = unsafe {
            (compiler.functions.create_program)(
                &raw mut raw,
                source.as_ptr(),
                name.as_ptr(),
                0,
                none,
                none,
            )
        };
        compiler.check("nvrtcCreateProgram", code)?;
        Ok(Self { compiler, raw })
    }

    fn compile(&self, options: &[CString]) -> Result<(), NvrtcError> {
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let count = pointers.len() as c_int;
        // SAFETY: the program is live, and the count is that of the strings.
        let code = unsafe {
            (self.compiler.functions.compile_program)(self.raw, count, pointers.as_ptr())
        };
        self.compiler.check("nvrtcCompileProgram", code)
    }

    fn cubin(&self) -> Result<Vec<u8>, NvrtcError> {
        let Functions { get_cubin_size, get_cubin, .. } = &self.compiler.functions;
        self.bytes(("nvrtcGetCUBINSize", *get_cubin_size), ("nvrtcGetCUBIN", *get_cubin))
    }

    fn log(&self) -> Result<String, NvrtcError> {
        let Functions { get_log_size, get_log, .. } = &self.compiler.functions;
        let size = ("nvrtcGetProgramLogSize", *get_log_size);
        let bytes = self.bytes(size, ("nvrtcGetProgramLog", *get_log))?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.trim_end_matches('\0').trim().to_owned())
    }

    /// Queries the size of a text, and reads it.
    fn bytes(
        &self,
        (size_name, size_of): (&'static str, unsafe extern "C" fn(Program, *mut usize) -> c_int),
        (name, get): (&'static str, unsafe extern "C" fn(Program, *mut c_char) -> c_int),
    ) -> Result<Vec<u8>, NvrtcError> {
        let mut size = 0;
        // SAFETY: the program is live; the call writes one number.
        let code = unsafe { size_of(self.raw, &raw mut size) };
        self.compiler.check(size_name, code)?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the program is live; the call writes the size that it has returned.
        let code = unsafe { get(self.raw, bytes.as_mut_ptr().cast()) };
        self.compiler.check(name, code)?;
        Ok(bytes)
    }
}

impl Drop for Source<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is live, and this is its last use.
        let _ = unsafe { (self.compiler.functions.destroy_program)(&raw mut self.raw) };
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("`compile` has rejected zero bytes")
}
