//! Libraries that a worker may load, with their versions, which come from the file name, from the
//! metadata of the Python package, or from the content of the file. No library is loaded.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::base::order;

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLibrary {
    /// Name, `NCCL` or `CUDA runtime`.
    pub name: &'static str,
    /// Version, such as `2.21.5`; `None`: unknown.
    pub version: Option<String>,
    /// Path of the file, with symbolic links resolved.
    pub path: PathBuf,
}

/// A library that `libraries` recognizes.
struct KnownLibrary {
    name: &'static str,
    /// Prefix of its file name.
    file: &'static str,
    /// Prefix of the name of its Python package.
    package: &'static str,
    /// Text directly before the version in the content of the file; `None` if the file has none.
    version_prefix: Option<&'static [u8]>,
}

const KNOWN_LIBRARIES: [KnownLibrary; 2] = [
    KnownLibrary {
        name: "NCCL",
        file: "libnccl.so",
        package: "nvidia_nccl_",
        version_prefix: Some(b"NCCL version "),
    },
    KnownLibrary {
        name: "CUDA runtime",
        file: "libcudart.so",
        package: "nvidia_cuda_runtime",
        version_prefix: None,
    },
];

/// Bytes of a library that are searched for its version, if neither name nor package has it.
const SCANNED_BYTES_MAX: u64 = 1 << 30;

/// Libraries in these directories, in the order of the directories, each file once.
pub fn libraries(directories: &[PathBuf]) -> Vec<FoundLibrary> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for directory in directories {
        for path in files_of(directory) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let library = KNOWN_LIBRARIES.iter().find(|library| is_library(&name, library.file));
            let Some((library, real)) = library.zip(fs::canonicalize(&path).ok()) else { continue };
            if seen.insert(real.clone()) {
                let version = version_of(library, directory, &real);
                found.push(FoundLibrary { name: library.name, version, path: real });
            }
        }
    }
    found
}

fn files_of(directory: &Path) -> Vec<PathBuf> {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    order::sort(&mut files);
    files
}

/// Whether a file name is that of a library: `libnccl.so`, `libnccl.so.2`, `libnccl.so.2.21.5`, but
/// not `libnccl.so.debug`.
fn is_library(name: &str, file: &str) -> bool {
    name.strip_prefix(file).is_some_and(|rest| {
        rest.is_empty()
            || rest.starts_with('.') && rest[1..].starts_with(|c: char| c.is_ascii_digit())
    })
}

fn version_of(library: &KnownLibrary, directory: &Path, real: &Path) -> Option<String> {
    let name = real.file_name()?.to_string_lossy();
    let of_name = name.split_once(".so.").map(|(_, version)| version.to_owned());
    let of_name = of_name.filter(|version| version.contains('.'));
    of_name
        .or_else(|| package_version(library, directory))
        .or_else(|| find_version(real, library.version_prefix?))
}

/// Version of the Python package that contains the directory: the package of
/// `site-packages/nvidia/nccl/lib` is `site-packages/nvidia_nccl_cu12-2.21.5.dist-info`.
fn package_version(library: &KnownLibrary, directory: &Path) -> Option<String> {
    let packages = directory.ancestors().nth(3)?;
    files_of(packages).iter().find_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".dist-info")?;
        let (package, version) = name.split_once('-')?;
        package.starts_with(library.package).then(|| version.to_owned())
    })
}

/// Version that follows `prefix` in the content of a file.
fn find_version(path: &Path, prefix: &[u8]) -> Option<String> {
    const PIECE_BYTES: usize = 1 << 20;
    const VERSION_BYTES_MAX: usize = 64;
    let mut file = File::open(path).ok()?.take(SCANNED_BYTES_MAX);
    let mut piece = Vec::with_capacity(2 * PIECE_BYTES);
    loop {
        let read = file.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece).ok()?;
        let versions =
            memchr::memmem::find_iter(&piece, prefix).map(|at| &piece[at + prefix.len()..]);
        let is_whole = |rest: &&[u8]| VERSION_BYTES_MAX <= rest.len() || read == 0;
        if let Some(version) = versions.filter(is_whole).find_map(number) {
            return Some(version);
        }
        if read == 0 {
            return None;
        }
        // The end of the piece is searched again with the next one: a version may cross the border.
        let searched = piece.len().saturating_sub(prefix.len() + VERSION_BYTES_MAX);
        piece.drain(..searched);
    }
}

/// Version number at the start of `bytes`, `2.21.5` for `2.21.5+cuda12.4`; `None` for a format
/// string such as `%d.%d`.
fn number(bytes: &[u8]) -> Option<String> {
    let is_part = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
    let text: String = bytes.iter().take_while(is_part).map(|byte| char::from(*byte)).collect();
    (text.contains('.') && text.starts_with(|c: char| c.is_ascii_digit())).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(name: &str, files: &[(&str, &[u8])]) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/libraries").join(name);
        let _ = fs::remove_dir_all(&root);
        for (path, bytes) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a file has a directory")).expect("made");
            fs::write(path, bytes).expect("written");
        }
        root
    }

    #[track_caller]
    fn check(name: &str, files: &[(&str, &[u8])], directory: &str, expect: Option<&str>) {
        let root = tree(name, files);
        let found = libraries(&[root.join(directory), root.join(directory)]);
        assert_eq!(found.len(), 1, "each once: {found:?}");
        assert_eq!(found[0].version.as_deref(), expect, "for {name}");
    }

    #[test]
    fn library_version_comes_from_name_package_or_file() {
        check("named", &[("lib/libnccl.so.2.21.5", b"")], "lib", Some("2.21.5"));
        let package: [(&str, &[u8]); 2] = [
            ("site/nvidia/nccl/lib/libnccl.so.2", b""),
            ("site/nvidia_nccl_cu12-2.20.1.dist-info/METADATA", b""),
        ];
        check("package", &package, "site/nvidia/nccl/lib", Some("2.20.1"));
        let mut long = vec![0; (1 << 20) - 7];
        long.extend_from_slice(b"NCCL version %d\0NCCL version 2.27.3+cuda12.9\0");
        check("inside", &[("lib/libnccl.so.2", &long)], "lib", Some("2.27.3"));
        check("silent", &[("lib/libcudart.so.12", b"12.4")], "lib", None);
    }

    #[test]
    fn libraries_ignores_other_files() {
        let root = tree("others", &[("libnccl.so.debug", b""), ("libnccl_static.a", b"")]);
        assert!(libraries(&[root]).is_empty());
    }
}
