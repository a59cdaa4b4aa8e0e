//! Shell quoting for display. Pure; no quoted text is ever executed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A word, in quotes where a shell would interpret it as something else.
pub fn quoted(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    let bytes = word.as_bytes();
    match word.to_str() {
        Some(text) if !bytes.is_empty() && bytes.iter().all(|byte| is_plain(*byte)) => {
            text.to_owned()
        }
        Some(text) if !text.contains(char::is_control) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => format!("$'{}'", bytes.escape_ascii()),
    }
}

/// A line of words as a shell reads it: each in quotes where it needs them.
pub fn quoted_line(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &[u8], expect: &str) {
        assert_eq!(quoted(OsStr::from_bytes(word)), expect);
    }

    #[test]
    fn quoted_word_is_one_shell_word() {
        check(b"/home/a/ssh.conf", "/home/a/ssh.conf");
        check(b"[127.0.0.1]:22", "'[127.0.0.1]:22'");
        check(b"it's", r"'it'\''s'");
        check(b"", "''");
        check(b"a\nb", r"$'a\nb'");
        check(b"\xff", r"$'\xff'");
    }

    #[test]
    fn words_of_a_line_stay_apart() {
        assert_eq!(quoted_line(["a b", "c"]), "'a b' c");
        assert_eq!(quoted_line([""; 0]), "");
    }
}
