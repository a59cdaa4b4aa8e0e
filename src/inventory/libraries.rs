//! Libraries that a worker may load, and their versions: from the names of files, from what Python's
//! packages say beside them, or from the library itself. Nothing is loaded.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLibrary {
    /// `NCCL`, `CUDA runtime`.
    pub name: &'static str,
    /// `2.21.5`.
    pub version: Option<String>,
    /// The file itself, links resolved.
    pub path: PathBuf,
}

/// What is looked for.
struct Wanted {
    name: &'static str,
    /// How its file begins.
    file: &'static str,
    /// How its Python package is called.
    package: &'static str,
    /// What stands before the version inside the file.
    sign: Option<&'static [u8]>,
}

const WANTED: [Wanted; 2] = [
    Wanted {
        name: "NCCL",
        file: "libnccl.so",
        package: "nvidia_nccl_",
        sign: Some(b"NCCL version "),
    },
    Wanted {
        name: "CUDA runtime",
        file: "libcudart.so",
        package: "nvidia_cuda_runtime",
        sign: None,
    },
];

/// Of a library that does not say its version outside, so much is read.
const SCANNED_BYTES_MAX: u64 = 1 << 30;

/// What lies in these directories, in their order, each file once.
pub fn libraries(directories: &[PathBuf]) -> Vec<FoundLibrary> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for directory in directories {
        for path in files_of(directory) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let wanted = WANTED.iter().find(|wanted| is_library(&name, wanted.file));
            let Some((wanted, real)) = wanted.zip(fs::canonicalize(&path).ok()) else { continue };
            if seen.insert(real.clone()) {
                let version = version_of(wanted, directory, &real);
                found.push(FoundLibrary { name: wanted.name, version, path: real });
            }
        }
    }
    found
}

fn files_of(directory: &Path) -> Vec<PathBuf> {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// `libnccl.so`, `libnccl.so.2`, `libnccl.so.2.21.5`; not `libnccl.so.debug`.
fn is_library(name: &str, file: &str) -> bool {
    name.strip_prefix(file).is_some_and(|rest| {
        rest.is_empty()
            || rest.starts_with('.') && rest[1..].starts_with(|c: char| c.is_ascii_digit())
    })
}

fn version_of(wanted: &Wanted, directory: &Path, real: &Path) -> Option<String> {
    let name = real.file_name()?.to_string_lossy();
    let of_name = name.split_once(".so.").map(|(_, version)| version.to_owned());
    let of_name = of_name.filter(|version| version.contains('.'));
    of_name.or_else(|| of_package(wanted, directory)).or_else(|| scan(real, wanted.sign?))
}

/// `site-packages/nvidia/nccl/lib` stands beside `site-packages/nvidia_nccl_cu12-2.21.5.dist-info`.
fn of_package(wanted: &Wanted, directory: &Path) -> Option<String> {
    let packages = directory.ancestors().nth(3)?;
    files_of(packages).iter().find_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".dist-info")?;
        let (package, version) = name.split_once('-')?;
        package.starts_with(wanted.package).then(|| version.to_owned())
    })
}

/// The version that stands behind a sign in a file.
fn scan(path: &Path, sign: &[u8]) -> Option<String> {
    const PIECE_BYTES: usize = 1 << 20;
    const VERSION_BYTES_MAX: usize = 64;
    let mut file = File::open(path).ok()?.take(SCANNED_BYTES_MAX);
    let mut piece = Vec::with_capacity(2 * PIECE_BYTES);
    loop {
        let read = file.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece).ok()?;
        let versions = memchr::memmem::find_iter(&piece, sign).map(|at| &piece[at + sign.len()..]);
        let is_whole = |rest: &&[u8]| VERSION_BYTES_MAX <= rest.len() || read == 0;
        if let Some(version) = versions.filter(is_whole).find_map(number) {
            return Some(version);
        }
        if read == 0 {
            return None;
        }
        // A sign at the border is looked at again.
        let kept = piece.len().saturating_sub(sign.len() + VERSION_BYTES_MAX);
        piece.drain(..kept);
    }
}

/// `2.21.5+cuda12.4` → `2.21.5`; a format (`%d.%d`) is none.
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
    fn the_version_is_told_by_the_name_the_package_or_the_file() {
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
    fn what_is_no_library_is_left_alone() {
        let root = tree("others", &[("libnccl.so.debug", b""), ("libnccl_static.a", b"")]);
        assert!(libraries(&[root]).is_empty());
    }
}
