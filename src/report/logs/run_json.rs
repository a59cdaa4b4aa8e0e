//! Writing of `run.json`.

use std::io;
use std::path::Path;

use super::private_files::replace_private;

/// Writes `run.json` atomically: a reader sees the old or the new one.
pub(super) fn write_run_json(directory: &Path, json: &str) -> io::Result<()> {
    replace_private(&directory.join("run.json"), &directory.join(".run.json"), json.as_bytes())
}
