//! The stable codes of what can be wrong with a command line (`C…`).

/// An option that nobody knows.
pub const UNKNOWN_OPTION: &str = "C001";
/// An abbreviation of several options.
pub const AMBIGUOUS: &str = "C002";
/// An option at its end, or before another option.
pub const VALUE_MISSING: &str = "C003";
/// `--quiet=yes`.
pub const VALUE_UNWANTED: &str = "C004";
/// Options, but nothing to run.
pub const NO_SCRIPT: &str = "C005";
/// A value that its option cannot take.
pub const BAD_VALUE: &str = "C006";
/// Two options that contradict each other.
pub const CANNOT_COMBINE: &str = "C007";
/// An option that DeepSpeed itself has given up.
pub const REMOVED: &str = "C008";
/// An option that is understood and has nothing behind it.
pub const NOT_THERE: &str = "C009";
/// An option that needs another one.
pub const NEEDS_OTHER: &str = "C010";
/// A word where none is expected.
pub const UNEXPECTED_WORD: &str = "C011";
