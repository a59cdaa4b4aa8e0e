//! Directories of shared libraries.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::base::order;

/// Directories that the loader searches by default.
const SYSTEM: [&str; 9] = [
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/opt/conda/lib",
    "/opt/nvidia/nccl/lib",
];

/// Returns every directory that may contain libraries, in the order in which a Python worker finds
/// them: its own packages (`site-packages`), the path of the loader, the roots of environments, the
/// system.
pub fn library_directories(
    packages: &[PathBuf],
    loader_path: Option<&OsStr>,
    roots: &[PathBuf],
) -> Vec<PathBuf> {
    let of_packages = packages.iter().flat_map(|dir| {
        let parts = dir.join("nvidia").read_dir().into_iter().flatten().flatten();
        let mut parts: Vec<_> = parts.map(|part| part.path().join("lib")).collect();
        order::sort(&mut parts);
        parts
    });
    let of_loader = loader_path.map(|path| std::env::split_paths(path).collect::<Vec<_>>());
    let of_loader = of_loader.unwrap_or_default().into_iter().filter(|dir| dir.is_absolute());
    let of_roots = roots.iter().map(|root| root.join("lib"));
    let system = SYSTEM.iter().map(PathBuf::from);
    of_packages.chain(of_loader).chain(of_roots).chain(system).collect()
}

/// Returns the package directories of the Pythons of these environments (`site-packages`).
pub fn python_packages(roots: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for root in roots {
        let entries = root.join("lib").read_dir().into_iter().flatten().flatten();
        let is_python = |path: &Path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3"))
        };
        let pythons = entries.map(|entry| entry.path()).filter(|path| is_python(path));
        let packages = pythons.map(|python| python.join("site-packages"));
        let mut packages: Vec<_> = packages.filter(|path| path.is_dir()).collect();
        order::sort(&mut packages);
        found.append(&mut packages);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_packages_precede_system_libraries() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/libraries/places");
        let packages = root.join("lib/python3.11/site-packages");
        std::fs::create_dir_all(packages.join("nvidia/nccl/lib")).expect("made");
        assert_eq!(python_packages(std::slice::from_ref(&root)), std::slice::from_ref(&packages));
        let path = OsStr::new("/one:relative:/two");
        let found =
            library_directories(std::slice::from_ref(&packages), Some(path), &["/env".into()]);
        let expect =
            [packages.join("nvidia/nccl/lib"), "/one".into(), "/two".into(), "/env/lib".into()];
        assert_eq!(found[..4], expect);
    }
}
