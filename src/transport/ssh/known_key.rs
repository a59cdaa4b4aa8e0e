//! The earlier key of a host. ssh reports the fingerprint of the new key and the file and line of
//! the old one; both are shown together so that they can be compared with the fingerprint that an
//! administrator gives.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest, Sha256};

use crate::base::shell::quoted;

/// Most bytes that are read of a file of known hosts.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// `the key known before: SHA256:… (FILE:LINE)`, if ssh's output names the file and the line.
pub(super) fn describe(words: &str) -> Option<String> {
    let (file, number) = parse_location(words)?;
    let lines = BufReader::new(File::open(file).ok()?.take(FILE_BYTES_MAX)).lines();
    let line = lines.map_while(Result::ok).nth(number.checked_sub(1)?)?;
    Some(format!("the key known before: {} ({file}:{number})", fingerprint(&line)?))
}

/// The command that removes the key, if ssh's output names the file and the host as the file spells
/// it.
pub(super) fn removal_command(words: &str) -> Option<String> {
    let (file, _) = parse_location(words)?;
    let line = words.lines().find_map(|line| line.strip_prefix("Host key for "))?;
    let (name, _) = line.split_once(" has changed")?;
    Some(format!("ssh-keygen -f {} -R {}", quoted(file), quoted(name)))
}

/// Parses `Offending ED25519 key in FILE:LINE`.
fn parse_location(words: &str) -> Option<(&str, usize)> {
    let mut lines = words.lines().map(str::trim).filter(|line| line.starts_with("Offending "));
    let (_, place) = lines.find_map(|line| line.split_once(" key in "))?;
    let (file, number) = place.rsplit_once(':')?;
    Some((file, number.parse().ok()?))
}

/// Fingerprint of a line `[@marker] hosts type key [comment]`, as OpenSSH writes it.
fn fingerprint(line: &str) -> Option<String> {
    let mut words = line.split_ascii_whitespace().filter(|word| !word.starts_with('@'));
    let key = STANDARD.decode(words.nth(2)?).ok()?;
    Some(format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(key))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_key_location_is_read_from_ssh_output() {
        let words = "It is also possible.\r\nOffending ED25519 key in /home/a b/known:hosts:12\r\n";
        assert_eq!(parse_location(words), Some(("/home/a b/known:hosts", 12)));
        assert_eq!(parse_location("Offending key\nOffending RSA key in /x:none"), None);
        assert_eq!(describe("Offending RSA key in /nowhere/x:1"), None);
        assert_eq!(removal_command(words), None);
        let words = format!(
            "{words}Host key for [127.0.0.1]:22 has changed and you have requested strict checking."
        );
        let expected = "ssh-keygen -f '/home/a b/known:hosts' -R '[127.0.0.1]:22'";
        assert_eq!(removal_command(&words).as_deref(), Some(expected));
    }

    /// `ssh-keygen -l` prints the same fingerprint.
    #[test]
    fn known_key_has_the_fingerprint_of_ssh_keygen() {
        let key =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";
        let expected = "SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA";
        let found = fingerprint(&format!("@cert-authority n1 {key} a comment"));
        assert_eq!(found.as_deref(), Some(expected));
        assert_eq!(found, fingerprint(&format!("[127.0.0.1]:22 {key}")));
        assert_eq!(fingerprint("n1 ssh-ed25519"), None);
        assert_eq!(fingerprint("n1 ssh-ed25519 no!base64"), None);
    }
}
