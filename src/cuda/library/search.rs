//! Search for a library: the candidate paths, in the order in which they are tried.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::base::env_vars;
use crate::os::shared_libraries::{library_directories, python_packages};

/// Search path for libraries, from the settings of the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchPath {
    /// File that the user has named; no other is tried.
    pub(crate) explicit_file: Option<OsString>,
    /// Value of `LD_LIBRARY_PATH`.
    pub(crate) loader_path: Option<OsString>,
    /// Roots of the active environments: `VIRTUAL_ENV`, `CONDA_PREFIX`.
    pub(crate) roots: Vec<PathBuf>,
}

impl SearchPath {
    /// Reads the settings of this process; `variable` is the one that may name the file.
    pub(crate) fn from_env(variable: &str) -> Self {
        let roots = [env_vars::VIRTUAL_ENV, env_vars::CONDA_PREFIX].map(env_vars::get);
        Self {
            explicit_file: env_vars::get(variable),
            loader_path: env_vars::get(env_vars::LD_LIBRARY_PATH),
            roots: roots.into_iter().flatten().map(PathBuf::from).collect(),
        }
    }

    /// Files to try: first existing files, then bare names for the system's loader. The order is
    /// the one in which a Python worker of the same environment finds its NCCL.
    pub(crate) fn candidates(&self, names: &[&str]) -> Vec<PathBuf> {
        if let Some(file) = &self.explicit_file {
            return vec![file.into()];
        }
        let directories = self.directories();
        let in_directory =
            |directory: &PathBuf| names.iter().map(|name| directory.join(name)).collect::<Vec<_>>();
        let files = directories.iter().flat_map(in_directory).filter(|file| file.is_file());
        files.chain(names.iter().map(PathBuf::from)).collect()
    }

    /// Searched directories, for the error message when nothing was found.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let packages = python_packages(&self.roots);
        library_directories(&packages, self.loader_path.as_deref(), &self.roots)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

    fn root(name: &str, files: &[&str]) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/libraries/nccl").join(name);
        for file in files {
            let file = root.join(file);
            std::fs::create_dir_all(file.parent().expect("a file has a directory"))
                .expect("a new directory");
            std::fs::write(file, "").expect("a new file");
        }
        root
    }

    #[test]
    fn search_prefers_the_python_environment_to_the_loader_path() {
        let wheel = "lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2";
        let venv = root("venv", &[wheel]);
        let other = root("other", &["libnccl.so", "libnccl.so.2"]);
        let search_path = SearchPath {
            explicit_file: None,
            loader_path: Some(other.clone().into_os_string()),
            roots: vec![venv.clone()],
        };
        let candidates = search_path.candidates(&NAMES);
        let expect = [venv.join(wheel), other.join("libnccl.so.2"), other.join("libnccl.so")];
        assert_eq!(candidates[..3], expect);
        let last = &candidates[candidates.len() - 2..];
        assert_eq!(last, [PathBuf::from("libnccl.so.2"), "libnccl.so".into()]);
    }

    #[test]
    fn search_tries_only_the_named_file() {
        let search_path = SearchPath {
            explicit_file: Some("/opt/my/libnccl.so".into()),
            ..SearchPath::default()
        };
        assert_eq!(search_path.candidates(&NAMES), [PathBuf::from("/opt/my/libnccl.so")]);
    }
}
