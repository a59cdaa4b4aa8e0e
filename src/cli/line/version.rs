//! The answer to `--version`.

use std::env::consts::{ARCH, OS};

/// Version, commit and target of this build, as one line. The commit is known to builds of `scripts/dist`, which
/// sets `REMUDA_COMMIT` for the compiler.
pub(in crate::cli) fn version_line() -> String {
    let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    let commit =
        option_env!("REMUDA_COMMIT").map(|commit| format!("{commit}, ")).unwrap_or_default();
    format!("remuda {} ({commit}{ARCH}-{OS}-{libc})\n", env!("CARGO_PKG_VERSION"))
}
