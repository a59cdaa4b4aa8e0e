//! Opening of a shared library, and look-up of its functions.

use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};

use libloading::os::unix;

use crate::cuda::library::LibraryError;
use crate::cuda::library::search::SearchPath;
use crate::cuda::library::spec::LibrarySpec;

/// Function table of a library; declared by [`functions!`].
pub(crate) trait FunctionTable: Sized {
    /// Looks up all functions; the error is the name of a missing one.
    ///
    /// # Safety
    ///
    /// `library` must be the library that the functions were declared for, and never be closed.
    unsafe fn find(library: &unix::Library) -> Result<Self, &'static str>;

    /// Address of the first function.
    fn address(&self) -> *const c_void;
}

/// Declares a struct with a field, a type and a lookup for each function; those marked with `?` may
/// be missing.
macro_rules! functions {
    ($first:ident = $($rest:tt)*) => {
        $crate::cuda::library::functions!(@ $first, $first = $($rest)*);
    };
    (
        @ $first:ident, $($field:ident = $symbol:ident ( $($argument:ty),* ) -> $result:ty;)*
        $(? $optional:ident = $name:ident ( $($parameter:ty),* ) -> $output:ty;)*
    ) => {
        /// All functions that are called; each was looked up when the library was opened.
        pub(crate) struct Functions {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            $(pub(crate) $optional: Option<unsafe extern "C" fn($($parameter),*) -> $output>,)*
        }

        impl $crate::cuda::library::FunctionTable for Functions {
            unsafe fn find(
                library: &libloading::os::unix::Library,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        let symbol = concat!(stringify!($symbol), "\0").as_bytes();
                        // SAFETY: the function has this type in every supported version.
                        let found = unsafe { library.get(symbol) };
                        *found.map_err(|_| stringify!($symbol))?
                    },)*
                    $($optional: {
                        let symbol = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: as above.
                        unsafe { library.get(symbol) }.ok().map(|found| *found)
                    },)*
                })
            }

            fn address(&self) -> *const std::ffi::c_void {
                self.$first as *const std::ffi::c_void
            }
        }
    };
}
pub(crate) use functions;

/// An open library, which is never closed.
pub(crate) struct OpenLibrary<F> {
    /// The file that was loaded.
    pub(crate) path: PathBuf,
    pub(crate) functions: F,
}

impl<F: FunctionTable> OpenLibrary<F> {
    /// Opens the first library that is found: the file that the variable names, or the one that a
    /// Python worker of this environment would load, or the system's.
    pub(crate) fn open(wanted: &'static LibrarySpec) -> Result<Self, LibraryError> {
        let search_path = SearchPath::from_env(wanted.variable);
        match Self::open_first(wanted, search_path.candidates(wanted.files)) {
            Err(LibraryError::NotLoadable { refused, .. }) if refused.is_empty() => {
                Err(LibraryError::NotFound { wanted, searched: search_path.directories() })
            }
            found => found,
        }
    }

    /// Opens the first of these files that the loader accepts.
    pub(crate) fn open_first(
        wanted: &'static LibrarySpec,
        files: impl IntoIterator<Item = PathBuf>,
    ) -> Result<Self, LibraryError> {
        let mut refused = Vec::new();
        for path in files {
            match open_file(&path) {
                Ok(library) => return Self::bind(library, path, wanted),
                Err(message) => refused.push((path, message)),
            }
        }
        // A bare name that the loader does not find needs no line of its own.
        refused.retain(|(path, _)| path.components().nth(1).is_some());
        Err(LibraryError::NotLoadable { wanted, refused })
    }

    fn bind(
        library: unix::Library,
        path: PathBuf,
        wanted: &'static LibrarySpec,
    ) -> Result<Self, LibraryError> {
        // These libraries have threads and thread-local destructors, so they are never unloaded.
        let library: &'static unix::Library = Box::leak(Box::new(library));
        // SAFETY: the library is never closed, and has the name that the functions belong to.
        match unsafe { F::find(library) } {
            Ok(functions) => {
                let path = real_path(functions.address()).unwrap_or(path);
                Ok(Self { path, functions })
            }
            Err(symbol) => Err(LibraryError::MissingSymbol { wanted, path, symbol }),
        }
    }
}

/// Opens a file beside a library, if it exists, so that the loader finds it when the library
/// requests it by name. The file stays open.
pub(crate) fn open_sibling(library: &Path, name: &str) {
    if let Some(file) = library.parent().map(|directory| directory.join(name))
        && file.is_file()
        && let Ok(opened) = open_file(&file)
    {
        Box::leak(Box::new(opened));
    }
}

/// Opens a file; the error is the loader's message.
fn open_file(path: &Path) -> Result<unix::Library, String> {
    // SAFETY: the initialisers of these libraries start nothing; if the user supplies another file
    // under their name, that is the user's responsibility, as with any library path.
    let opened = unsafe { unix::Library::open(Some(path), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    opened.map_err(|error| loader_message(&error, path))
}

/// Path of the file that the loader has opened for a bare name.
fn real_path(function: *const c_void) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be passed; the result is written to `info`.
    let known = unsafe { libc::dladdr(function, info.as_mut_ptr()) };
    // SAFETY: zeros are a valid `Dl_info`.
    let name = unsafe { info.assume_init() }.dli_fname;
    if known == 0 || name.is_null() {
        return None;
    }
    // SAFETY: the loader's string lives as long as the library.
    let name = unsafe { CStr::from_ptr(name) };
    std::fs::canonicalize(std::ffi::OsStr::from_bytes(name.to_bytes())).ok()
}

/// Copies a C string; `None` for null.
///
/// # Safety
///
/// `pointer` must be null, or a string that lives through the call.
pub(crate) unsafe fn copy_c_string(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees it.
    let text = unsafe { CStr::from_ptr(pointer) }.to_string_lossy();
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The loader's message, without the path that precedes it.
fn loader_message(error: &libloading::Error, path: &Path) -> String {
    let message =
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let path = path.to_string_lossy();
    let reason = message.strip_prefix(&*path).and_then(|rest| rest.strip_prefix(": "));
    reason.unwrap_or(&message).to_owned()
}
