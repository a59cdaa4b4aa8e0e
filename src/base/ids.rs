//! Identifiers of jobs, nodes, workers and hosts, each with a type of its own.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index into a list.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Position of a worker among all workers of the job; dense, `0..world_size`.
    Rank
}
number! {
    /// Position of a worker among the workers of its node. Assigned, never computed from a `Rank`.
    LocalRank
}
number! {
    /// Position of a node in the job; hostfile order.
    NodeRank
}
number! {
    /// A device of a host, numbered as the hostfile numbers it: `0..slots`.
    Slot
}
number! {
    /// Number of restarts of the job: 0 at first, one more after every restart.
    Epoch
}

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The epoch as users count it: the first start is attempt 1.
    pub fn attempt(self) -> u64 {
        u64::from(self.0) + 1
    }
}

/// Name of one job, unique per user and machine: `[a-z0-9]+`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub String);

impl JobId {
    /// The job name derived from these bytes: for each byte one of 32 letters and digits.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        Self(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Host name that neither a resolver nor ssh can interpret as anything else.
///
/// The grammar is one for the whole program: ASCII letters, digits, `.`, `-`, `_`, and `:` inside
/// brackets for IPv6; the first character is alphanumeric or `[`; at most 253 bytes, 63 a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct HostName(SmolStr);

/// Why a text is not a host name; positions are byte offsets into the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostNameError {
    /// The text is empty.
    #[error("the host name is empty")]
    Empty,
    /// The first character decides whether ssh reads a host or an option.
    #[error("host names may not begin with `{0}`")]
    BadStart(char),
    /// A character outside the grammar.
    #[error("character `{}` is not allowed in a host name", shown(*.character))]
    BadCharacter {
        /// The first such character.
        character: char,
        /// Its byte offset.
        at: usize,
    },
    /// Unicode names must be written in punycode.
    #[error("the host name is not ASCII")]
    NotAscii {
        /// Byte offset of the first such character.
        at: usize,
    },
    /// More than 253 bytes.
    #[error("the host name is longer than 253 bytes")]
    TooLong,
    /// Two dots in a row.
    #[error("the host name has two dots in a row")]
    EmptyLabel,
    /// A label of more than 63 bytes.
    #[error("a part of the host name between dots is longer than 63 bytes")]
    LabelTooLong,
    /// An opening bracket without a closing one, such as `[::1`.
    #[error("missing `]` after the IPv6 address")]
    UnclosedBracket,
    /// Text in brackets that is not an IPv6 address.
    #[error("`{0}` is not an IPv6 address")]
    NotIpv6(String),
}

/// The character itself if it is printable ASCII, otherwise its escape sequence.
fn shown(character: char) -> String {
    if character.is_ascii_graphic() {
        character.to_string()
    } else {
        character.escape_default().to_string()
    }
}

impl HostName {
    /// Checks a text against the grammar.
    pub fn parse(text: &str) -> Result<Self, HostNameError> {
        check_host(text).map(|()| Self(text.into()))
    }

    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Canonical spelling, the same for all spellings that a resolver treats as one name: lower
    /// case, no final dot, the shortest form of an IPv6 address.
    pub fn canonical(&self) -> Cow<'_, str> {
        if let Some(address) = self.ipv6() {
            return format!("[{address}]").into();
        }
        let name = self.0.strip_suffix('.').unwrap_or(&self.0);
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            name.to_ascii_lowercase().into()
        } else {
            name.into()
        }
    }

    fn ipv6(&self) -> Option<Ipv6Addr> {
        self.0.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for HostName {
    type Error = HostNameError;

    fn try_from(text: String) -> Result<Self, HostNameError> {
        check_host(&text).map(|()| Self(text.into()))
    }
}

impl<'de> Deserialize<'de> for HostName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
    }
}

const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

fn check_host(text: &str) -> Result<(), HostNameError> {
    let bytes = text.as_bytes();
    let first = *bytes.first().ok_or(HostNameError::Empty)?;
    // Most names are one label, and a file may have a hundred thousand of them.
    let is_of_label = |byte: &u8| *byte != b'.' && is_name_byte(*byte);
    if first.is_ascii_alphanumeric()
        && bytes.len() <= LABEL_BYTES_MAX
        && bytes.iter().all(is_of_label)
    {
        return Ok(());
    }
    if let Some(at) = bytes.iter().position(|byte| !byte.is_ascii()) {
        return Err(HostNameError::NotAscii { at });
    }
    if NAME_BYTES_MAX < text.len() {
        return Err(HostNameError::TooLong);
    }
    if first == b'[' {
        return check_ipv6(text);
    }
    if !first.is_ascii_alphanumeric() && is_name_byte(first) {
        return Err(HostNameError::BadStart(char::from(first)));
    }
    if let Some(at) = bytes.iter().position(|byte| !is_name_byte(*byte)) {
        return Err(HostNameError::BadCharacter { character: char::from(bytes[at]), at });
    }
    let absolute = bytes.strip_suffix(b".").unwrap_or(bytes);
    let mut labels = absolute.split(|byte| *byte == b'.');
    if labels.clone().any(<[u8]>::is_empty) {
        return Err(HostNameError::EmptyLabel);
    }
    if labels.any(|label| LABEL_BYTES_MAX < label.len()) {
        return Err(HostNameError::LabelTooLong);
    }
    Ok(())
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

fn check_ipv6(text: &str) -> Result<(), HostNameError> {
    let inner = text[1..].strip_suffix(']').ok_or(HostNameError::UnclosedBracket)?;
    match inner.parse::<Ipv6Addr>() {
        Ok(_) => Ok(()),
        Err(_) => Err(HostNameError::NotIpv6(inner.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = match HostName::parse(text) {
            Ok(name) => name.to_string(),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(found, expect, "for `{text}`");
    }

    #[test]
    fn host_name_rejects_options_and_commands() {
        check("worker-0", "worker-0");
        check("10.0.0.1", "10.0.0.1");
        check("[::1]", "[::1]");
        check("", "error: the host name is empty");
        check("-oProxyCommand=x", "error: host names may not begin with `-`");
        check("a;b", "error: character `;` is not allowed in a host name");
        check("a\0b", "error: character `\\u{0}` is not allowed in a host name");
        check("[::1", "error: missing `]` after the IPv6 address");
        check("a..b", "error: the host name has two dots in a row");
        check("[zz]", "error: `zz` is not an IPv6 address");
        check("wörker", "error: the host name is not ASCII");
        check(
            &"a".repeat(64),
            "error: a part of the host name between dots is longer than 63 bytes",
        );
        check(&"a.".repeat(127), "error: the host name is longer than 253 bytes");
    }

    #[test]
    fn host_name_canonical_form_ignores_spelling() {
        for (written, canonical) in [("A", "a"), ("a.Example.", "a.example"), ("[0:0::1]", "[::1]")]
        {
            let host = HostName::parse(written).expect("a host name");
            assert_eq!(host.canonical(), canonical, "for `{written}`");
        }
    }
}
