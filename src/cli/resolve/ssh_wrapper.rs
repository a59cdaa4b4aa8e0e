//! A script in the place of `ssh` that gives it a configuration (`-F`): remuda gives one of its own behind it, and ssh
//! uses the last.

use std::path::Path;

use crate::base::shell::quoted;
use crate::cli::resolve::program::search_path;
use crate::launch::Transport;
use crate::os::files::input_file::open;
use crate::transport::ssh::SshConfig;

/// Largest script that is read, in bytes.
const BYTES_MAX: u64 = 1 << 16;

/// Returns a note if `ssh` is such a script, and the line names no configuration.
pub(super) fn note(transport: &Transport) -> Option<String> {
    let Transport::Ssh(options) = transport else { return None };
    let program = search_path("ssh").filter(|_| options.config == SshConfig::Default)?;
    let path = Path::new(&program);
    let file = configuration(&script(path)?)?;
    Some(format!(
        "note: `{}` is a script with `-F`, which has no effect here; type `--ssh_config {file}`\n",
        path.display()
    ))
}

/// Reads a program if it is a script.
fn script(path: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    open(path).ok()?.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    bytes.starts_with(b"#!").then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the value of `-F` in a script, as a user can type it; a placeholder if the script computes it.
fn configuration(script: &str) -> Option<String> {
    let is_comment = |line: &&str| line.trim_start().starts_with('#');
    let mut words = script.lines().filter(|line| !is_comment(line)).flat_map(str::split_whitespace);
    let value = words.find_map(|word| word.strip_prefix("-F"))?;
    let value = if value.is_empty() { words.next().unwrap_or_default() } else { value };
    let mut quotes = ['"', '\''].into_iter();
    let inner = quotes.find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    let value = inner.unwrap_or(value);
    let is_plain = !value.is_empty() && !value.contains(['$', '`', '"', '\'', '~']);
    Some(if is_plain { quoted(value) } else { "FILE".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(script: &str, expect: Option<&str>) {
        assert_eq!(configuration(script).as_deref(), expect, "{script}");
    }

    #[test]
    fn configuration_of_a_script_is_found() {
        check(
            "#!/bin/sh\nexec /usr/bin/ssh -F /etc/lab/ssh_config \"$@\"\n",
            Some("/etc/lab/ssh_config"),
        );
        check("#!/bin/sh\nexec ssh -F'/a b' \"$@\"\n", Some("FILE"));
        check("#!/bin/sh\nexec ssh -Fconf \"$@\"\n", Some("conf"));
        check("#!/bin/sh\nexec ssh -F \"$HOME/c\" \"$@\"\n", Some("FILE"));
        check("#!/bin/sh\n# no -F here\nexec ssh -o BatchMode=yes \"$@\"\n", None);
    }
}
