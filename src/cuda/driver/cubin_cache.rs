//! [`CubinCache`]: compiled programs on disk, so that a worker starts without compiling.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::base::env_vars;
use crate::cuda::kernels::KernelProgram;
use crate::cuda::nvrtc::{Architecture, Compiled, Compiler, NvrtcError};

/// Directory of compiled programs. A file has the digest of all that it was made from in its name, so it is never
/// out of date, and any number of processes can use the directory.
#[derive(Clone, Debug)]
pub struct CubinCache {
    /// `None`: nothing is kept.
    dir: Option<PathBuf>,
}

impl CubinCache {
    /// Returns the cache of this user: `remuda/kernels` in `$XDG_CACHE_HOME`, or in `~/.cache`.
    pub fn of_user() -> Self {
        let given = env_vars::get(env_vars::XDG_CACHE_HOME).map(PathBuf::from);
        let cache = given
            .filter(|dir| dir.is_absolute())
            .or_else(|| env_vars::get(env_vars::HOME).map(|home| Path::new(&home).join(".cache")));
        Self { dir: cache.map(|dir| dir.join("remuda/kernels")) }
    }

    /// Returns the cache in a directory, which is created when the first program is kept.
    pub fn in_dir(dir: &Path) -> Self {
        Self { dir: Some(dir.to_owned()) }
    }

    /// Returns the code of a program for an architecture, and compiles it if it is not kept. A file that cannot be
    /// read or written is no error.
    ///
    /// # Errors
    /// If the program does not compile.
    pub fn code(
        &self,
        compiler: &Compiler,
        program: KernelProgram,
        architecture: Architecture,
    ) -> Result<Vec<u8>, NvrtcError> {
        let (name, source, options) = (program.name(), program.source(), program.options());
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        self.code_of_source(compiler, [&name, &source], &options, architecture)
    }

    /// The same for a source with its name and the options of the compiler.
    pub(super) fn code_of_source(
        &self,
        compiler: &Compiler,
        [name, source]: [&str; 2],
        options: &[&str],
        architecture: Architecture,
    ) -> Result<Vec<u8>, NvrtcError> {
        let file = self.dir.as_ref().map(|dir| {
            let version = compiler.version();
            let parts = [name, source, &options.join(" "), &version, &architecture.to_string()];
            dir.join(file_name(name, &parts))
        });
        if let Some(kept) = file.as_deref().and_then(|file| fs::read(file).ok()) {
            return Ok(kept);
        }
        let Compiled { cubin, .. } = compiler.compile(name, source, architecture, options)?;
        if let Some(file) = file {
            // Without the file, the next worker compiles again.
            let _ = write(&file, &cubin);
        }
        Ok(cubin)
    }
}

/// Name of the file of a program that was made from these parts.
fn file_name(program: &str, parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    format!("{program}-{:x}.cubin", digest.finalize())
}

/// Writes a file that is complete whenever it is there.
fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let draft = file.with_extension(format!("{}.draft", std::process::id()));
    fs::write(&draft, bytes)?;
    fs::rename(&draft, file).inspect_err(|_| drop(fs::remove_file(&draft)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_depends_on_every_part_and_on_their_ends() {
        let names = [
            file_name("fold", &["ab", "c"]),
            file_name("fold", &["a", "bc"]),
            file_name("fold", &["ab", "d"]),
            file_name("norm", &["ab", "c"]),
        ];
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
            assert_eq!(name.len(), 4 + 1 + 64 + 6, "{name}");
        }
    }

    #[test]
    fn file_is_written_whole_and_leaves_no_draft() {
        let dir = std::env::temp_dir().join(format!("remuda-cubins-{}", std::process::id()));
        let file = dir.join("kernels/fold-0.cubin");
        write(&file, b"code").expect("it is written");
        write(&file, b"other").expect("it is replaced");
        assert_eq!(fs::read(&file).expect("it is there"), b"other");
        let names = fs::read_dir(dir.join("kernels")).expect("the directory").count();
        fs::remove_dir_all(&dir).expect("it was created");
        assert_eq!(names, 1);
    }
}
