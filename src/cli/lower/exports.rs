//! Variables that every worker is given.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::base::env_vars;
use crate::cli::error::CliError;

/// `NAME=VALUE` as it is, `NAME` with our value.
pub(in crate::cli) fn exports(typed: &[OsString]) -> Result<Vec<(OsString, OsString)>, CliError> {
    typed.iter().map(|text| export(text)).collect()
}

fn export(text: &OsStr) -> Result<(OsString, OsString), CliError> {
    let bytes = text.as_bytes();
    if let Some(at) = bytes.iter().position(|byte| *byte == b'=') {
        let (name, value) = (bytes[..at].to_vec(), bytes[at + 1..].to_vec());
        return Ok((OsString::from_vec(name), OsString::from_vec(value)));
    }
    let value = text.to_str().and_then(env_vars::get);
    value.map(|value| (text.to_owned(), value)).ok_or_else(|| {
        CliError::usage(format!("--env {}: the variable is not set here", text.display()))
            .help("give it a value: `--env NAME=VALUE`")
    })
}
