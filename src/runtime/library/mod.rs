//! Libraries of NVIDIA, opened at run time where a Python worker of the same environment would find
//! them.
//!
//! They are bound by hand: results are numbers here, as a later version may have results that today's
//! header does not know, and a library that is missing is an error that says where it was looked for.

//!
//! | file | what for |
//! |---|---|
//! | `search` | where a library may lie |
//! | `ffi` | opening it, and finding its functions |
//! | `error` | what stands in the way |

mod error;
mod ffi;
mod search;

pub use self::error::LibraryError;
pub(crate) use self::ffi::{Functions, Opened, functions, open_beside, text};

/// A library that is opened when it is needed.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What people call it.
    pub name: &'static str,
    /// What its file is called, the best name first: the wheels of Python have that one only.
    pub files: &'static [&'static str],
    /// The package of Python that has it.
    pub package: &'static str,
    /// The variable that may name the file.
    pub variable: &'static str,
}
