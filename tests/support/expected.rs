//! Comparison of a text with a file of the repository.

use std::fs;
use std::path::Path;

use remuda::base::env_vars;

/// Lines of both texts that are shown around the first difference.
const LINES_SHOWN: usize = 8;

/// Compares a text with a file, which `UPDATE_EXPECTED=1` rewrites.
#[track_caller]
pub(crate) fn check_expected(path: &Path, found: &str) {
    if env_vars::get("UPDATE_EXPECTED").is_some() {
        fs::write(path, found).expect("the directory is writable");
        return;
    }
    let expected = fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    assert!(found == expected, "{}", difference(path, &expected, found));
}

fn difference(path: &Path, expected: &str, found: &str) -> String {
    let same = expected.lines().zip(found.lines()).take_while(|(old, new)| old == new).count();
    let part = |text: &str, mark: char| {
        let lines: Vec<_> = text.lines().skip(same).take(LINES_SHOWN).collect();
        lines.iter().fold(String::new(), |part, line| part + &format!("{mark} {line}\n"))
    };
    format!(
        "{} differs from line {}; UPDATE_EXPECTED=1 rewrites it\n{}{}",
        path.display(),
        same + 1,
        part(expected, '-'),
        part(found, '+')
    )
}
