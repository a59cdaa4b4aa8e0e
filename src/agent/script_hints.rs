//! Suggestions for a script that does not exist.

use std::ffi::OsStr;
use std::path::Path;

use crate::base::env_vars;
use crate::pool::nearest;

/// Maximum number of directory entries that are compared with the name.
const ENTRIES_MAX: usize = 1000;

/// Returns the help text for a script that does not exist, if a file has a similar name.
pub(super) fn script_hint(cwd: &Path, script: &OsStr) -> Option<String> {
    let text = script.to_str()?;
    if let Some(rest) = text.strip_prefix("~/") {
        let home = env_vars::get_text(env_vars::HOME)?;
        let file = Path::new(&home).join(rest);
        return Some(format!("the shell does not expand `~` inside quotes: `{}`", file.display()));
    }
    let with_ending = format!("{text}.py");
    if !text.is_empty() && cwd.join(&with_ending).is_file() {
        return Some(format!("did you mean `{with_ending}`?"));
    }
    let path = Path::new(text);
    let (stem, extension) = (path.file_stem()?.to_str()?, path.extension()?.to_str()?);
    let dir = path.parent().unwrap_or(Path::new(""));
    let entries = std::fs::read_dir(cwd.join(dir)).ok()?.flatten().take(ENTRIES_MAX);
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()));
    let mut stems: Vec<String> = files
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_suffix(extension)?.strip_suffix('.').map(str::to_owned)
        })
        .collect();
    stems.sort_unstable();
    let near = nearest(stem, stems.iter().map(String::as_str))?;
    Some(format!("did you mean `{}.{extension}`?", dir.join(near).display()))
}
