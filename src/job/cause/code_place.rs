//! [`CodePlace`]: a place in a program, as a traceback names it.

/// A place in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePlace {
    /// The file, as the traceback names it.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
    /// Name of the function; empty where the traceback has none.
    pub function: String,
}

impl CodePlace {
    /// Whether it is in code that the user has not written: of a library, or generated, such as the `__init__` of a data
    /// class. The module of `python -c` is the user's. The last directory is that of remuda's package in a checkout.
    pub(super) fn is_of_library(&self) -> bool {
        let Self { file, function, .. } = self;
        let is_generated = file == "<string>" && function != "<module>";
        let libraries =
            ["/site-packages/", "/dist-packages/", "<frozen ", "/lib/python3", "/python/remuda/"];
        is_generated || libraries.iter().any(|part| file.contains(part))
    }
}
