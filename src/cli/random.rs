//! Random bytes of the kernel.

use crate::base::Status;
use crate::cli::codes::machine::SYSTEM;
use crate::cli::error::CliError;
use crate::os::random;

/// Returns random bytes, for keys and names.
pub(in crate::cli) fn random_bytes<const N: usize>() -> Result<[u8; N], CliError> {
    random::random_bytes().map_err(|_| {
        CliError::new(Status::OsLimit, SYSTEM, "the kernel returned no random numbers")
    })
}
