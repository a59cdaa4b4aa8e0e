//! The running executable, to compare with that of a node and to send (`push`).

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::bootstrap;
use super::digest::Digest;

/// Opens the running executable, even if its name was removed.
pub(super) const SELF_EXE: &str = "/proc/self/exe";

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::ssh::digest::is_digest;

    #[test]
    fn own_binary_is_confirmed_by_digest_or_identity() {
        let own = Binary::read().expect("a test is an executable");
        let digest = own.digest.to_string();
        assert!(is_digest(&digest));
        assert!(has_digest(&digest, "-").expect("readable"), "by digest");
        assert!(has_digest("?", &own.identity).expect("readable"), "by identity");
        assert!(!has_digest("?", "-").expect("readable"));
    }
}
