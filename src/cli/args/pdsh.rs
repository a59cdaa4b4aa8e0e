//! `--launcher_args`: options for pdsh, which DeepSpeed appends to `pdsh -S -f 1024 -w HOSTS`.
//! Remuda does not use pdsh: the options apply to its own fan-out, and those without an equivalent
//! are refused.

use crate::base::{UserName, show_typed};
use crate::cli::args::values::Words;
use crate::cli::line::{BadValue, parse_whole};

/// Values of the supported options of pdsh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct PdshArgs {
    /// `-f N`: number of connections that are established at the same time.
    pub(in crate::cli) fanout: Option<u32>,
    /// `-l USER`: login name on hosts for which the hostfile contains none.
    pub(in crate::cli) user: Option<UserName>,
}

/// Options of pdsh for which remuda has another option.
const EQUIVALENTS: [(&str, &str); 10] = [
    ("-w", "`--hostfile` and `--include` choose hosts"),
    ("-x", "`--exclude` leaves hosts out"),
    ("-t", "write `ConnectTimeout N` to ~/.ssh/config"),
    ("-u", "`--timeout` ends a job that takes too long"),
    ("-N", "`--prefix ''` shows lines without their host"),
    ("-o", "write the option to ~/.ssh/config"),
    ("-p", "`--ssh_port` is the port of every host"),
    ("-i", "write `IdentityFile FILE` to ~/.ssh/config"),
    ("-F", "`--ssh_config` accepts the same files as `ssh -F`"),
    ("-e", "the nodes do not need pdsh"),
];

/// Parses the words; the first option without an equivalent is an error.
pub(in crate::cli) fn parse(Words(words): &Words) -> Result<PdshArgs, BadValue> {
    let mut found = PdshArgs::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let cut = word.char_indices().nth(2).map_or(word.len(), |(at, _)| at);
        let (option, glued) = word.split_at(cut);
        let mut value = || -> Result<&str, BadValue> {
            match glued {
                "" => words
                    .next()
                    .map(String::as_str)
                    .ok_or_else(|| BadValue::new(format!("`{option}` of pdsh needs a value"))),
                glued => Ok(glued),
            }
        };
        match option {
            // With `-S`, pdsh exits with the largest status of a host; a job returns the status of
            // a failure anyway.
            "-S" if glued.is_empty() => {}
            "-f" => {
                let number = parse_whole(value()?, 1..=4096)
                    .map_err(|bad| BadValue::new(format!("`-f` of pdsh: {}", bad.label)))?;
                found.fanout = Some(number as u32);
            }
            "-l" => {
                let name = value()?;
                let user = UserName::parse(name)
                    .map_err(|error| BadValue::new(format!("`-l` of pdsh: {error}")))?;
                found.user = Some(user);
            }
            "-R" => {
                let value = value()?;
                if value != "ssh" {
                    let label = format!("`-R {}` of pdsh is not supported", show_typed(value));
                    return Err(BadValue::new(label).help("remuda connects to every host over ssh"));
                }
            }
            _ => return Err(unsupported(word, option)),
        }
    }
    Ok(found)
}

fn unsupported(word: &str, option: &str) -> BadValue {
    let bad = BadValue::new(format!("`{}` of pdsh is not supported", show_typed(word)));
    match EQUIVALENTS.iter().find(|(known, _)| *known == option) {
        Some((_, instead)) => bad.help(*instead),
        None => bad.help("supported options of pdsh are `-f N`, `-l USER`, `-R ssh` and `-S`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::values::parse_words;

    /// Checks the fan-out and the user, or the error.
    #[track_caller]
    fn check(text: &str, expect: Result<(Option<u32>, Option<&str>), &str>) {
        let found = parse_words(text).and_then(|words| parse(&words));
        match (&found, expect) {
            (Ok(found), Ok((fanout, user))) => {
                assert_eq!(found.fanout, fanout, "for `{text}`");
                assert_eq!(found.user.as_ref().map(UserName::as_str), user, "for `{text}`");
            }
            (Err(bad), Err(label)) => assert_eq!(bad.label, label, "for `{text}`"),
            other => panic!("for `{text}`: {other:?}"),
        }
    }

    #[test]
    fn fanout_and_user_of_pdsh_are_parsed() {
        check("", Ok((None, None)));
        check("-S -R ssh -Rssh", Ok((None, None)));
        check("-f 32", Ok((Some(32), None)));
        check("-f32 -l ada -f 8", Ok((Some(8), Some("ada"))));
        check("-lada", Ok((None, Some("ada"))));
    }

    #[test]
    fn unsupported_options_of_pdsh_are_refused() {
        check("-f", Err("`-f` of pdsh needs a value"));
        check("-f 0", Err("`-f` of pdsh: expected a number from 1 to 4096"));
        check("-l -oProxyCommand=x", Err("`-l` of pdsh: user names may not begin with `-`"));
        check("-R exec", Err("`-R exec` of pdsh is not supported"));
        check("-u 5", Err("`-u` of pdsh is not supported"));
        check("-Sx", Err("`-Sx` of pdsh is not supported"));
        check("--mca btl", Err("`--mca` of pdsh is not supported"));
        check("é", Err("`é` of pdsh is not supported"));
    }
}
