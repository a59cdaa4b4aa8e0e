//! Version of NCCL.

use std::fmt;

/// Version of NCCL, as returned by `ncclGetVersion` since 2.9: `major × 10000 + minor × 100 + patch`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32);

impl Version {
    /// First version with nonblocking communicators and with splitting.
    pub const LEAST: Self = Self(2_18_03);

    /// Returns the number that `ncclGetVersion` returns for this version.
    pub fn code(self) -> u32 {
        self.0
    }

    pub(crate) fn from_code(code: u32) -> Self {
        Self(code)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0 / 10_000, self.0 / 100 % 100, self.0 % 100)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({self})")
    }
}
