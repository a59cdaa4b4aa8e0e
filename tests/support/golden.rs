//! Golden tests: directories of inputs, each file with its expected screen beside it.
//!
//! `UPDATE_EXPECTED=1 cargo test --test NAME` rewrites the screens.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use remuda::base::Explanation;

use super::expected::check_expected;

/// A directory of inputs with the same extension.
pub(crate) struct Golden {
    pub(crate) directory: &'static str,
    /// The extension of the inputs; that of the screens is `expected`.
    pub(crate) extension: &'static str,
}

impl Golden {
    /// Compares the screen of every input with its expectation.
    #[track_caller]
    pub(crate) fn check(&self, screen_of: impl Fn(&Path) -> String) {
        let inputs = files(self.directory, self.extension);
        assert!(!inputs.is_empty());
        for input in &inputs {
            check_expected(&input.with_extension("expected"), &screen_of(input));
        }
        let with_input: BTreeSet<_> =
            inputs.iter().map(|input| input.with_extension("expected")).collect();
        assert_eq!(files(self.directory, "expected"), with_input, "a screen without its input");
    }
}

/// Checks that every code of `explanations` is on a screen of these directories, except the codes
/// that need more than a file in the repository.
#[track_caller]
pub(crate) fn check_codes(
    directories: &[&str],
    explanations: impl IntoIterator<Item = &'static Explanation>,
    without_file: &[&str],
) {
    let expectations = directories.iter().flat_map(|directory| files(directory, "expected"));
    let screens: String =
        expectations.map(|path| fs::read_to_string(path).expect("it is readable")).collect();
    for Explanation { code, .. } in explanations {
        let is_shown = screens.contains(&format!("[{code}]"));
        assert_eq!(is_shown, !without_file.contains(code), "for {code}");
    }
}

/// The files of a directory with this extension.
pub(crate) fn files(directory: &str, extension: &str) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory is there");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}
