//! Name of a user on another machine.

use std::fmt;

/// User name that ssh cannot interpret as anything else: ASCII letters, digits, `.`, `-` and `_`,
/// the first character neither `-` nor `.`; at most 255 bytes, the limit of a login name on Linux.
///
/// Ssh inserts the name into commands that a shell runs (`%r` in `ProxyCommand` and `Match exec`),
/// so no character of it may have a meaning in a shell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserName(String);

/// Why a text is not a user name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserNameError {
    /// The text is empty.
    #[error("the user name is empty")]
    Empty,
    /// The first character decides whether ssh reads a user or an option.
    #[error("user names may not begin with `{0}`")]
    BadStart(char),
    /// A character outside the grammar.
    #[error("character `{}` is not allowed in a user name", .character.escape_default())]
    BadCharacter {
        /// The first such character.
        character: char,
        /// Its byte offset.
        at: usize,
    },
    /// More than 255 bytes.
    #[error("the user name is longer than 255 bytes")]
    TooLong,
}

impl UserName {
    /// Checks a text against the grammar.
    pub fn parse(text: &str) -> Result<Self, UserNameError> {
        const NAME_BYTES_MAX: usize = 255;
        let first = text.chars().next().ok_or(UserNameError::Empty)?;
        if let '-' | '.' = first {
            return Err(UserNameError::BadStart(first));
        }
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if let Some((at, character)) = text.char_indices().find(|(_, c)| !is_allowed(*c)) {
            return Err(UserNameError::BadCharacter { character, at });
        }
        if NAME_BYTES_MAX < text.len() {
            return Err(UserNameError::TooLong);
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = match UserName::parse(text) {
            Ok(name) => name.to_string(),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(found, expect, "for `{text}`");
    }

    #[test]
    fn user_name_rejects_options_and_commands() {
        check("ada", "ada");
        check("_svc.train-01", "_svc.train-01");
        check("", "error: the user name is empty");
        check("-oProxyCommand=x", "error: user names may not begin with `-`");
        check(".ada", "error: user names may not begin with `.`");
        check("a$(id)", "error: character `$` is not allowed in a user name");
        check("DOMAIN\\ada", "error: character `\\\\` is not allowed in a user name");
        check("a@b", "error: character `@` is not allowed in a user name");
        check("ädä", "error: character `\\u{e4}` is not allowed in a user name");
        check(&"a".repeat(256), "error: the user name is longer than 255 bytes");
    }
}
