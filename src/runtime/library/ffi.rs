//! A library that is opened, and its functions.

use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};

use libloading::os::unix;

use super::search::Places;
use super::{LibraryError, Wanted};

/// The functions of a library; made by [`functions!`].
pub(crate) trait Functions: Sized {
    /// Looks for all of them; where one is missing, that is its name.
    ///
    /// # Safety
    ///
    /// `library` is what the functions were declared for, never closed.
    unsafe fn find(library: &unix::Library) -> Result<Self, &'static str>;

    /// Where the first of them lies.
    fn address(&self) -> *const c_void;
}

/// A struct with a field, a type and a look-up for each function; those behind `?` may be missing.
macro_rules! functions {
    ($first:ident = $($rest:tt)*) => {
        $crate::runtime::library::functions!(@ $first, $first = $($rest)*);
    };
    (
        @ $first:ident, $($field:ident = $symbol:ident ( $($argument:ty),* ) -> $result:ty;)*
        $(? $also:ident = $name:ident ( $($given:ty),* ) -> $returned:ty;)*
    ) => {
        /// Every function that we call; each was looked for when the library was opened.
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            $(pub(super) $also: Option<unsafe extern "C" fn($($given),*) -> $returned>,)*
        }

        impl $crate::runtime::library::Functions for Functions {
            unsafe fn find(
                library: &libloading::os::unix::Library,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        let symbol = concat!(stringify!($symbol), "\0").as_bytes();
                        // SAFETY: a function of that name has this type in every version that we take.
                        let found = unsafe { library.get(symbol) };
                        *found.map_err(|_| stringify!($symbol))?
                    },)*
                    $($also: {
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

/// A library that stays open.
pub(crate) struct Opened<F> {
    /// The file that was loaded.
    pub(crate) path: PathBuf,
    pub(crate) functions: F,
}

impl<F: Functions> Opened<F> {
    /// The first that is found: the file that the variable names, or the one that a Python worker of
    /// this environment would load, or the system's.
    pub(crate) fn open(wanted: &'static Wanted) -> Result<Self, LibraryError> {
        let places = Places::of_environment(wanted.variable);
        match Self::open_first(wanted, places.candidates(wanted.files)) {
            Err(LibraryError::NotLoadable { refused, .. }) if refused.is_empty() => {
                Err(LibraryError::NotFound { wanted, searched: places.directories() })
            }
            found => found,
        }
    }

    /// The first of these files that the loader takes.
    pub(crate) fn open_first(
        wanted: &'static Wanted,
        files: impl IntoIterator<Item = PathBuf>,
    ) -> Result<Self, LibraryError> {
        let mut refused = Vec::new();
        for path in files {
            match open_file(&path) {
                Ok(library) => return Self::bind(library, path, wanted),
                Err(words) => refused.push((path, words)),
            }
        }
        // A bare name that the loader does not find needs no line of its own.
        refused.retain(|(path, _)| path.components().nth(1).is_some());
        Err(LibraryError::NotLoadable { wanted, refused })
    }

    fn bind(
        library: unix::Library,
        path: PathBuf,
        wanted: &'static Wanted,
    ) -> Result<Self, LibraryError> {
        // These have threads, and thread-local destructors: once in, they stay.
        let library: &'static unix::Library = Box::leak(Box::new(library));
        // SAFETY: never closed, and of that name.
        match unsafe { F::find(library) } {
            Ok(functions) => {
                let path = real_path(functions.address()).unwrap_or(path);
                Ok(Self { path, functions })
            }
            Err(symbol) => Err(LibraryError::MissingSymbol { wanted, path, symbol }),
        }
    }
}

/// Opens a file that a library will ask the loader for by its name, if it lies beside the library: the
/// loader knows it then. It stays open.
pub(crate) fn open_beside(library: &Path, name: &str) {
    if let Some(file) = library.parent().map(|directory| directory.join(name))
        && file.is_file()
        && let Ok(opened) = open_file(&file)
    {
        Box::leak(Box::new(opened));
    }
}

/// Opens a file, or says what the loader said.
fn open_file(path: &Path) -> Result<unix::Library, String> {
    // SAFETY: the initialisers of these libraries start nothing; a file of another kind under their
    // name is the user's to answer for, as with any program's library path.
    let opened = unsafe { unix::Library::open(Some(path), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    opened.map_err(|error| words_of(&error, path))
}

/// The file that the loader has taken for a bare name.
fn real_path(function: *const c_void) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked about; the answer is written to `info`.
    let known = unsafe { libc::dladdr(function, info.as_mut_ptr()) };
    // SAFETY: zeros are a valid `Dl_info`.
    let name = unsafe { info.assume_init() }.dli_fname;
    if known == 0 || name.is_null() {
        return None;
    }
    // SAFETY: a string of the loader that lives as long as the library.
    let name = unsafe { CStr::from_ptr(name) };
    std::fs::canonicalize(std::ffi::OsStr::from_bytes(name.to_bytes())).ok()
}

/// # Safety
///
/// Null, or a string that lives through the call.
pub(crate) unsafe fn text(pointer: *const c_char) -> Option<String> {
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
