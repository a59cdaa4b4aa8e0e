//! The running executable, to compare and to send.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::bootstrap;
use super::digest::{Digest, is_digest};

/// Opens the running executable, even if its name was removed.
const SELF_EXE: &str = "/proc/self/exe";

/// The running executable.
#[derive(Clone, Debug)]
pub(super) struct Binary {
    pub(super) digest: Digest,
    pub(super) bytes: u64,
    /// See [`identity`].
    pub(super) identity: String,
    /// Its path, if a file at that path on a node can be trusted.
    pub(super) path: Option<String>,
}

impl Binary {
    /// Reads and hashes the executable, which takes some milliseconds.
    pub(super) fn read() -> io::Result<Self> {
        let mut file = File::open(SELF_EXE)?;
        let metadata = file.metadata()?;
        Ok(Self {
            digest: Digest::of(&mut file)?,
            bytes: metadata.len(),
            identity: identity(&metadata),
            path: trusted_path(),
        })
    }

    /// Opens the file at its first byte.
    pub(super) fn open(&self) -> io::Result<File> {
        let file = File::open(SELF_EXE)?;
        if identity(&file.metadata()?) == self.identity {
            return Ok(file);
        }
        Err(io::Error::other("the executable of remuda has changed since it was started"))
    }
}

/// Identity of a file. Two paths with the same identity are the same file, on this machine or on a
/// shared file system, because the time of the last change cannot be set.
fn identity(metadata: &Metadata) -> String {
    let (inode, bytes) = (metadata.ino(), metadata.len());
    format!("{inode}:{bytes}:{}.{:09}", metadata.ctime(), metadata.ctime_nsec())
}

/// Path of the executable; `None` if it lies in a directory that every user may write to, because
/// another machine may have a different file at this path.
fn trusted_path() -> Option<String> {
    let path = std::fs::read_link(SELF_EXE).ok()?;
    let text = path.to_str().filter(|text| bootstrap::fits_in_line(text))?;
    path.ancestors().all(is_write_protected).then(|| text.to_owned())
}

fn is_write_protected(path: &Path) -> bool {
    const OTHERS_WRITE: u32 = 0o002;
    path.metadata().is_ok_and(|metadata| metadata.mode() & OTHERS_WRITE == 0)
}

/// Called on a node as `remuda agent DIGEST IDENTITY`: whether this executable has the digest.
/// Reads the whole file only if the identity differs.
pub fn has_digest(digest_text: &str, identity_text: &str) -> io::Result<bool> {
    let mut file = File::open(SELF_EXE)?;
    Ok(identity(&file.metadata()?) == identity_text
        || Digest::of(&mut file)?.to_string() == digest_text)
}

/// Number of builds that a cache keeps regardless of their age.
const BUILDS_KEPT_MAX: usize = 4;
/// Age below which a build is kept because a job may still run it: jobs run for days.
const BUILD_AGE_MIN: std::time::Duration = std::time::Duration::from_secs(14 * 24 * 3600);

/// Removes old builds beside a new one; called on a node. Errors are ignored, because no other step
/// depends on it.
pub fn prune_cache(now: std::time::Duration) {
    let Some(cache) = std::fs::read_link(SELF_EXE).ok().and_then(|own| cache_of(&own)) else {
        return;
    };
    let mut builds = builds_in(&cache);
    builds.sort_by_key(|(changed, _)| std::cmp::Reverse(*changed));
    for (changed, path) in builds.into_iter().skip(BUILDS_KEPT_MAX) {
        if changed + (BUILD_AGE_MIN.as_secs() as i64) < now.as_secs() as i64 {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// Path of the cache: `CACHE/DIGEST/remuda` → `CACHE`.
fn cache_of(own: &Path) -> Option<PathBuf> {
    let build = own.parent()?;
    is_digest(build.file_name()?.to_str()?).then(|| build.parent().map(Path::to_owned))?
}

fn builds_in(cache: &Path) -> Vec<(i64, PathBuf)> {
    let entries = std::fs::read_dir(cache).into_iter().flatten().flatten();
    let builds = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_digest));
    builds.filter_map(|entry| Some((entry.metadata().ok()?.mtime(), entry.path()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_binary_is_confirmed_by_digest_or_identity() {
        let own = Binary::read().expect("a test is an executable");
        let digest = own.digest.to_string();
        assert!(is_digest(&digest));
        assert!(has_digest(&digest, "-").expect("readable"), "by digest");
        assert!(has_digest("?", &own.identity).expect("readable"), "by identity");
        assert!(!has_digest("?", "-").expect("readable"));
    }

    #[test]
    fn cache_is_recognized_by_the_digest_in_its_path() {
        let digest = "a".repeat(64);
        let own = format!("/var/tmp/.remuda-x/{digest}/remuda");
        assert_eq!(cache_of(Path::new(&own)), Some("/var/tmp/.remuda-x".into()));
        assert_eq!(cache_of(Path::new("/usr/local/bin/remuda")), None);
    }
}
