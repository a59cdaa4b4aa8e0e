//! An option of a line that its command does not have: its name, its value and the words around it. Pure.

use super::known_options::Equivalent::{self, Script};
use super::known_options::is_script;
use crate::base::python_int;
use crate::base::shell::{quoted, quoted_line};
use crate::cli::line::flags::underscored;
use crate::cli::line::typed::GivenOption;

/// What is said of a line in which the number of devices is left to the launcher.
pub(super) const EVERY_GPU: &str = "every GPU of this machine is used";

/// An option of a line that its command does not have.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnknownOption<'a> {
    /// Its name as typed, with its dashes.
    pub(super) typed_name: &'a str,
    /// The text after its `=`.
    pub(super) attached_value: Option<&'a str>,
    /// The words before the option, after the name of the command.
    pub(super) words_before: &'a [String],
    /// The words after the option.
    pub(super) words_after: &'a [String],
    /// The name of the command: `remuda run`.
    pub(super) program: &'a str,
    /// The options of the line.
    pub(super) given: &'a [GivenOption],
}

impl<'a> UnknownOption<'a> {
    /// Returns the name without dashes.
    pub(super) fn name(&self) -> &'a str {
        self.typed_name.trim_start_matches('-')
    }

    /// Returns the value if the option takes one.
    pub(super) fn value(&self) -> Option<&'a str> {
        let next = || {
            let next = self.words_after.first().map(String::as_str);
            next.filter(|word| !word.starts_with('-') && !is_script(word))
        };
        self.attached_value.or_else(next)
    }

    /// Formats the help for an option that has no equivalent and needs none.
    pub(super) fn needless(&self, why: &str) -> String {
        format!("leave `{}` out: {why}", self.typed_name)
    }

    /// Whether another word of the line names hosts.
    pub(super) fn has_hosts(&self) -> bool {
        const HOSTS: [&str; 6] =
            ["-H", "--hostfile", "-hostfile", "-host", "--host", "--machinefile"];
        let name_of = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
        self.given.iter().any(|one| one.flag == "hostfile")
            || self.words_after.iter().any(|word| HOSTS.contains(&&*name_of(word)))
    }

    /// Returns the number of nodes, if other words of the line say that there are several.
    pub(super) fn nodes(&self) -> Option<i64> {
        const NODES: [&str; 3] = ["__nnodes", "__num_machines", "__num_nodes"];
        let number_in = |words: &[String]| {
            let at = words.iter().position(|word| {
                NODES.contains(&&*underscored(word.split('=').next().unwrap_or_default()))
            })?;
            let attached = words[at].split_once('=').map(|(_, value)| value);
            python_int(attached.or_else(|| words.get(at + 1).map(String::as_str))?)
        };
        let number = number_in(self.words_before).or_else(|| number_in(self.words_after));
        number.filter(|nodes| 1 < *nodes)
    }

    /// Returns the number of devices in Slurm's notation: `gpu:4`, `gpu:a100:4`, `a100:4`.
    pub(super) fn device_count(&self) -> Option<&'a str> {
        let (_, count) = self.value()?.rsplit_once(':')?;
        let is_number = !count.is_empty() && count.bytes().all(|c| c.is_ascii_digit());
        (is_number && ["gres", "gpu"].iter().any(|part| self.name().contains(part)))
            .then_some(count)
    }

    /// Returns the names of devices that an option selects: `0,2`, or `3` after the name of one device.
    pub(super) fn device_list(&self) -> Option<&'a str> {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        let is_list = |text: &str| text.contains(',') && text.split(',').all(is_number);
        // The option takes the names of devices and not their number.
        let name = self.name();
        let is_id = name.contains("id") || name.contains("visible");
        let names_one = 1 < name.len() && (is_id || !name.ends_with('s'));
        self.value().filter(|list| is_list(list) || names_one && is_number(list))
    }

    /// Formats the line with an option of the script after the script.
    pub(super) fn script_hint(&self, meant: Equivalent) -> String {
        let takes_value = meant == Script || self.next_word_is_value();
        let (script, option) = self.script_and_option(takes_value);
        let skipped = usize::from(takes_value && self.attached_value.is_none());
        let script_words = match self.words_after.get(skipped..) {
            Some([first, rest @ ..]) if !first.starts_with('-') => rest,
            _ => &[],
        };
        let (before, after) = (quoted_line(self.words_before), quoted_line(script_words));
        let line = [self.program, &before, &script, &after, &option];
        let line: Vec<_> = line.into_iter().filter(|part| !part.is_empty()).collect();
        format!("`{}` is an option of the script: `{}`", self.typed_name, line.join(" "))
    }

    /// Whether the next word is the value of the option, because the word after it is the script.
    fn next_word_is_value(&self) -> bool {
        let is_word = |word: &String| !word.starts_with('-');
        let looks_like_path = |word: &String| word.contains(['.', '/']);
        match self.words_after {
            [value, script, ..] => {
                is_word(value)
                    && !looks_like_path(value)
                    && is_word(script)
                    && looks_like_path(script)
            }
            _ => false,
        }
    }

    /// Returns the script, and the option with its value.
    pub(super) fn script_and_option(&self, takes_value: bool) -> (String, String) {
        let option = match self.attached_value {
            Some(value) => format!("{}={}", self.typed_name, quoted(value)),
            None => match self.value().filter(|_| takes_value) {
                Some(value) => format!("{} {}", self.typed_name, quoted(value)),
                None => self.typed_name.to_owned(),
            },
        };
        let skipped = usize::from(takes_value && self.attached_value.is_none());
        let script = self.words_after.get(skipped).filter(|word| !word.starts_with('-'));
        (script.map_or_else(|| "SCRIPT".to_owned(), quoted), option)
    }
}

/// Formats the help that names an option with its value.
pub(super) fn did_you_mean(option: &str, value: Option<&str>) -> String {
    match value {
        Some(value) => format!("did you mean `--{option} {}`?", quoted(value)),
        None => format!("did you mean `--{option}`?"),
    }
}

/// Returns options for `HOST:PORT`, of which the first takes the host and the second the port.
pub(super) fn endpoint_words(endpoint: &str, [host_option, port_option]: [&str; 2]) -> String {
    let is_port =
        |port: &str| port == "PORT" || !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit());
    match endpoint.rsplit_once(':').filter(|(_, port)| is_port(port)) {
        Some((host, port)) => format!("--{host_option} {} --{port_option} {port}", quoted(host)),
        None => format!("--{host_option} {}", quoted(endpoint)),
    }
}

/// Whether the number of devices is left to the launcher.
pub(super) fn is_automatic(value: &str) -> bool {
    matches!(value, "all" | "auto" | "gpu" | "cuda")
}
