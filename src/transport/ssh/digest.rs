//! The digest that names a build of remuda in the caches of nodes.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

/// Bytes that are read, hashed or sent at a time.
pub(super) const CHUNK_BYTES: usize = 256 * 1024;

/// SHA-256 of an executable, printed as hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    /// Reads the file to its end.
    pub(super) fn of(file: &mut File) -> io::Result<Self> {
        let mut hash = Sha256::new();
        let mut piece = vec![0; CHUNK_BYTES];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(Self(hash.finalize().into())),
                length => hash.update(&piece[..length]),
            }
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Whether a name consists of the digits of a digest.
pub(super) fn is_digest(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}
