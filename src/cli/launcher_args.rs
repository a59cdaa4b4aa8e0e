//! `--launcher_args`: words for pdsh, which DeepSpeed puts behind `pdsh -S -f 1024 -w HOSTS`. There is
//! no pdsh here: what a word asks of it is asked of our own fan-out, and what cannot be is refused.

use super::line::{BadValue, whole};
use super::values::Words;
use crate::base::UserName;

/// What the words ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PdshArgs {
    /// `-f N`: connections that are made at the same time.
    pub(super) fanout: Option<u32>,
    /// `-l USER`: as whom hosts are reached that the hostfile says nothing about.
    pub(super) user: Option<UserName>,
}

/// Options of pdsh with something else here that does it.
const INSTEAD: [(&str, &str); 10] = [
    ("-w", "`--hostfile` and `--include` choose hosts"),
    ("-x", "`--exclude` leaves hosts out"),
    ("-t", "write `ConnectTimeout` into a file for `--ssh_config`"),
    ("-u", "`--timeout` ends a job that takes too long"),
    ("-N", "`--prefix ''` shows lines without their host"),
    ("-o", "options of ssh are written into a file for `--ssh_config`"),
    ("-p", "`--ssh_port` is the port of every host"),
    ("-i", "keys are named in the configuration of ssh, see `--ssh_config`"),
    ("-F", "`--ssh_config` takes what `ssh -F` takes"),
    ("-e", "nothing of pdsh is looked for on the nodes"),
];

/// Reads the words; the first that cannot be heeded is an error.
pub(super) fn read(Words(words): &Words) -> Result<PdshArgs, BadValue> {
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
            // The largest status of a host is the status: that of a job is the truth anyway.
            "-S" if glued.is_empty() => {}
            "-f" => {
                let number = whole(value()?, 1..=4096)
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
                let way = value()?;
                if way != "ssh" {
                    let label = format!("`-R {}` of pdsh is not there", way.escape_debug());
                    return Err(BadValue::new(label).help("every host is reached over ssh"));
                }
            }
            _ => return Err(not_heeded(word, option)),
        }
    }
    Ok(found)
}

fn not_heeded(word: &str, option: &str) -> BadValue {
    let bad = BadValue::new(format!("`{}` has nothing behind it here", word.escape_debug()));
    match INSTEAD.iter().find(|(known, _)| *known == option) {
        Some((_, instead)) => bad.help(*instead),
        None => bad.help("of pdsh's options `-f N`, `-l USER`, `-R ssh` and `-S` are heeded"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::values::parse_words;

    /// Fan-out and user, or why not.
    #[track_caller]
    fn check(text: &str, expect: Result<(Option<u32>, Option<&str>), &str>) {
        let found = parse_words(text).and_then(|words| read(&words));
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
    fn what_pdsh_is_told_our_own_fan_out_is_told() {
        check("", Ok((None, None)));
        check("-S -R ssh -Rssh", Ok((None, None)));
        check("-f 32", Ok((Some(32), None)));
        check("-f32 -l ada -f 8", Ok((Some(8), Some("ada"))));
        check("-lada", Ok((None, Some("ada"))));
    }

    #[test]
    fn what_cannot_be_heeded_is_named() {
        check("-f", Err("`-f` of pdsh needs a value"));
        check("-f 0", Err("`-f` of pdsh: it is a number from 1 to 4096"));
        check("-l -oProxyCommand=x", Err("`-l` of pdsh: user names may not begin with `-`"));
        check("-R exec", Err("`-R exec` of pdsh is not there"));
        check("-u 5", Err("`-u` has nothing behind it here"));
        check("-Sx", Err("`-Sx` has nothing behind it here"));
        check("--mca btl", Err("`--mca` has nothing behind it here"));
        check("é", Err("`é` has nothing behind it here"));
    }
}
