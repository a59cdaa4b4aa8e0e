//! Name, files and package of a library.

/// Library to open at run time.
#[derive(Debug, PartialEq, Eq)]
pub struct LibrarySpec {
    /// Display name.
    pub name: &'static str,
    /// File names, the preferred one first; Python wheels contain only that one.
    pub files: &'static [&'static str],
    /// Python package that contains it.
    pub package: &'static str,
    /// Environment variable that can name the file.
    pub variable: &'static str,
}
