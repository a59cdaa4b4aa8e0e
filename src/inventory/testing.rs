//! Helpers of the tests of this module.

use std::fs;
use std::path::{Path, PathBuf};

/// Creates a tree of files in a directory of its own below `target`; returns the directory.
pub(super) fn tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join(name);
    let _ = fs::remove_dir_all(&root);
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a file has a directory")).expect("made");
        fs::write(path, text).expect("written");
    }
    root
}
