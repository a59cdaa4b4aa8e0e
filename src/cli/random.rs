//! Random bytes of the kernel.

use crate::base::Status;
use crate::cli::codes::machine::SYSTEM;
use crate::cli::error::CliError;

/// Returns random bytes, for keys and names.
pub(in crate::cli) fn random_bytes<const N: usize>() -> Result<[u8; N], CliError> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(count) if count == N => Ok(bytes),
        _ => Err(CliError::new(Status::OsLimit, SYSTEM, "the kernel returned no random numbers")),
    }
}
