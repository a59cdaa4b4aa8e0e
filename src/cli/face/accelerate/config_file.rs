//! The place of the file that `accelerate config` writes, and its content.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::shell::quoted;
use crate::base::{Diagnostic, Source, Status, env_vars};
use crate::cli::codes::machine::CANNOT_READ;
use crate::cli::error::CliError;
use crate::cli::line::{CommandLine, codes};
use crate::config::accelerate::{ConfigFile, parse_config_file};
use crate::config::is_deepspeed_config;
use crate::os::files::input_file::read_regular;
use crate::os::user::home_of;
use crate::report::text::show_io_error;

/// Option that names the file.
const CONFIG_FILE: &str = "config_file";

/// Returns the file that accelerate reads if the line names none and the file exists.
pub(super) fn default_path() -> Option<PathBuf> {
    let home = || env_vars::get(env_vars::HOME).map(PathBuf::from);
    let cache = env_vars::get(env_vars::XDG_CACHE_HOME).map(PathBuf::from);
    let hub = env_vars::get(env_vars::HF_HOME).map(PathBuf::from);
    let hub =
        hub.or_else(|| Some(cache.or_else(|| Some(home()?.join(".cache")))?.join("huggingface")))?;
    let hub = with_home(&hub, home().as_deref());
    Some(hub.join("accelerate/default_config.yaml")).filter(|path| path.is_file())
}

/// Replaces `~` and `~USER` at the start of a path, as a shell does. The path of an unknown user stays.
fn with_home(path: &Path, own: Option<&Path>) -> PathBuf {
    let mut parts = path.iter();
    let first = parts.next().and_then(|first| first.to_str());
    let home = match first.and_then(|first| first.strip_prefix('~')) {
        None => None,
        Some("") => own.map(Path::to_owned),
        Some(name) => home_of(name),
    };
    home.map_or_else(|| path.to_owned(), |home| home.join(parts.as_path()))
}

/// Reads a file; `typed` is the line that names it, or `None` for the default file.
pub(super) fn read(path: &Path, typed: Option<&CommandLine>) -> Result<ConfigFile, CliError> {
    let text = read_regular(path).and_then(|bytes| {
        String::from_utf8(bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
    });
    let text = text.map_err(|error| {
        let message = format!("cannot read `{}`: {}", path.display(), show_io_error(&error));
        CliError::new(Status::NoInput, CANNOT_READ, message)
            .help("`--config_file` is a file that `accelerate config` wrote")
    })?;
    if let Some(typed) = typed.filter(|_| is_deepspeed_config(&text)) {
        return Err(of_deepspeed(path, typed));
    }
    let source = Source { name: path.display().to_string(), text };
    parse_config_file(source).map_err(|findings| CliError::Findings {
        status: Status::BadInput,
        findings: vec![findings],
    })
}

/// Returns the error for a `ds_config.json`, which another option takes.
fn of_deepspeed(path: &Path, typed: &CommandLine) -> CliError {
    let mut words: Vec<String> = typed.words.iter().map(quoted).collect();
    if let Some((name, value)) = typed.last(CONFIG_FILE).and_then(|given| {
        let (_, value) = given.value.as_ref()?;
        Some((given.name.word, value.word))
    }) {
        let use_deepspeed = typed.last("use_deepspeed").is_none().then_some("--use_deepspeed");
        let option = format!("--deepspeed_config_file {}", quoted(path));
        let instead = use_deepspeed.map(str::to_owned).into_iter().chain([option]);
        words.splice(name..=value, instead);
    }
    let help = format!("type `{} {}`", typed.program, words.join(" "));
    let refused = typed.refuse(&[typed.value_or_end(CONFIG_FILE)], |spans| {
        let message = format!("`{}` is a configuration of DeepSpeed", path.display());
        Diagnostic::error(codes::BAD_VALUE, spans[0], message)
            .label("expected a file that `accelerate config` wrote")
            .help(help)
    });
    refused.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_directories_are_expanded() {
        let expanded = |path: &str| with_home(Path::new(path), Some(Path::new("/home/me")));
        assert_eq!(expanded("~/cache"), PathBuf::from("/home/me/cache"));
        assert_eq!(expanded("~root/cache"), PathBuf::from("/root/cache"));
        for path in ["/x/~/y", "~no such user/x", "x"] {
            assert_eq!(expanded(path), PathBuf::from(path));
        }
    }
}
