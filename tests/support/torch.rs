//! A Python with torch, where one is installed: it has a few GB, so no test may depend on it.

use std::path::{Path, PathBuf};

use super::proof::{has, skip};

/// The interpreter that `scripts/integrations --install` created, in `REMUDA_INTEGRATIONS` or below
/// `target`. Without it the test is skipped, and the skip is counted.
pub(crate) fn python_with_torch(test: &str) -> Option<PathBuf> {
    if !has("torch", test) {
        return None;
    }
    let named = remuda::base::env_vars::get("REMUDA_INTEGRATIONS").map(PathBuf::from);
    let usual = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("integrations/venv");
    let venv = named.unwrap_or(usual);
    // The installation writes the marker file last.
    let is_whole = venv.join(".remuda-integrations").exists();
    let python = venv.join("bin/python");
    if !is_whole || !python.exists() {
        skip("torch", test);
        return None;
    }
    Some(python)
}
