//! Help pages: layout of clap's definitions.

use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::{Arg, Command};

use super::layout::{paragraphs, shell_line};
use super::topics::{self, SHORT_HELP, TOPICS, Topic};
use crate::base::env_vars;
use crate::cli::command::entry::CommandEntry;

/// Width of a page that is not printed on a terminal, in columns, unless COLUMNS is set.
const WIDTH_OFF_TERMINAL: usize = 100;
/// Minimum and maximum width of a page, in columns: longer lines are hard to read.
const WIDTH_MIN: usize = 40;
const WIDTH_MAX: usize = 120;

/// If a page is narrower than this, the description of an option is below its name.
const NARROW: usize = 60;

/// Length of a help page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Length {
    /// `-h`: the most used options.
    Short,
    /// `--help`: every option.
    Long,
}

impl Length {
    /// Returns the length that an option asks for.
    pub(in crate::cli) fn of(word: &[u8]) -> Self {
        if word.starts_with(b"--") { Self::Long } else { Self::Short }
    }
}

/// Returns the width of a page on standard output, in columns: COLUMNS, else the width of the
/// terminal.
pub(in crate::cli) fn width() -> usize {
    let columns = env_vars::get_text(env_vars::COLUMNS).and_then(|text| text.parse().ok());
    let terminal = || {
        let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
        Some(usize::from(size.ws_col)).filter(|columns| 0 < *columns)
    };
    let width = columns.filter(|columns| 0 < *columns).or_else(terminal);
    width.unwrap_or(WIDTH_OFF_TERMINAL).clamp(WIDTH_MIN, WIDTH_MAX)
}

/// Returns the page of a command; its definition must be built.
pub(in crate::cli) fn page(command: &Command, length: Length, width: usize) -> StyledStr {
    let topic = topic(command);
    let page = command.clone().term_width(width).after_long_help(None::<&'static str>);
    // If the page is narrow, descriptions do not fit beside the names of options.
    let page = page.next_line_help(width < NARROW);
    let mut page = match length {
        Length::Short => page.mut_args(|arg| keep_most_used(arg, topic)),
        Length::Long => {
            let about = command.get_long_about().or(command.get_about()).cloned();
            let help = "Print this page; `-h` prints the most used options only";
            page.about(about.unwrap_or_default()).mut_arg("help", |arg| arg.help(help))
        }
    };
    page = page.after_help(footer(command, topic, length, width));
    page.render_help()
}

/// Returns the most used options and the examples of a command, if it has any.
fn topic(command: &Command) -> Option<&'static Topic> {
    let name = match command.get_bin_name().unwrap_or(command.get_name()) {
        "remuda" => return Some(&topics::FRONT),
        // Names by which remuda itself can be started.
        name @ ("torchrun" | "accelerate" | "accelerate launch") => name,
        "accelerate-launch" => "accelerate launch",
        "remuda torch.distributed.run" => "torchrun",
        "remuda deepspeed" => "run",
        // The names of DeepSpeed's launcher are aliases of `remuda run`.
        name => name.strip_prefix("remuda ").unwrap_or("run"),
    };
    TOPICS.iter().find(|topic| topic.command == name)
}

/// Hides an option that is not among the most used ones, and sorts the others in the order of the
/// list.
fn keep_most_used(arg: Arg, topic: Option<&Topic>) -> Arg {
    let Some(Topic { options, command, .. }) = topic else { return arg };
    let id = arg.get_id().as_str();
    let Some(order) = options.iter().position(|shown| *shown == id) else {
        return arg.hide(true);
    };
    let is_pod = command.starts_with("k8s") || *command == "pod" && id == "num_gpus";
    let own = format!("{command} {id}");
    let find = |wanted: &str| SHORT_HELP.iter().find(|(name, _)| *name == wanted);
    let brief = find(&own).or_else(|| find(id)).filter(|_| !is_pod).map(|(_, brief)| *brief);
    let arg = arg.help_heading(None::<&'static str>).display_order(order);
    match brief {
        Some(brief) => arg.help(brief).hide_default_value(true).hide_possible_values(true),
        None => arg,
    }
}

/// Returns the text after the options: the examples, then more information or a reference to it.
fn footer(command: &Command, topic: Option<&Topic>, length: Length, width: usize) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let examples = topic.map_or_else(String::new, |topic| examples(topic, name, width));
    let more = match length {
        Length::Short if command.has_subcommands() => {
            format!("`{name} COMMAND -h` is one screen about a command.")
        }
        Length::Short => format!("`{name} --help` lists every option."),
        Length::Long => command.get_after_help().map(ToString::to_string).unwrap_or_default(),
    };
    let parts = [examples, paragraphs(&more, width)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn examples(topic: &Topic, name: &str, width: usize) -> String {
    let mut text = "Examples:".to_owned();
    for (what, line) in topic.examples {
        let line = under_name(line, topic, name);
        let _ = write!(text, "\n  # {what}\n{}", shell_line(&line, width));
    }
    text
}

/// Returns the usage of a command and its first example, for a line with nothing after the name of the command.
pub(in crate::cli) fn usage(mut command: Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let usage = command.render_usage().to_string();
    let topic = topic(&command);
    let example = topic.map_or_else(String::new, |topic| {
        let [(_, line), ..] = topic.examples;
        format!("example: {}\n", under_name(line, topic, &name))
    });
    format!("usage: {}\n{example}", usage.trim_start_matches("Usage: ").trim_end())
}

/// Returns the line of an example as a user types it who started remuda by this name.
fn under_name(line: &str, topic: &Topic, name: &str) -> String {
    line.replacen(&format!("remuda {} ", topic.command), &format!("{name} "), 1)
}

/// Returns the examples of a command as lines for a manual page.
pub(super) fn examples_of(command: &Command) -> Option<String> {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    topic(command).map(|topic| examples(topic, name, usize::MAX))
}

/// Returns the names and the summary of every command that users type.
fn summaries(commands: &[CommandEntry]) -> Vec<(String, &'static str)> {
    let mut lines: Vec<(String, &str)> = Vec::new();
    for entry in commands {
        let Some(own) = entry.help.and_then(|help| help.summary) else { continue };
        match lines.last_mut() {
            Some((names, summary)) if *summary == own => {
                *names = format!("{names}, {}", entry.name);
            }
            _ => lines.push((entry.name.to_owned(), own)),
        }
    }
    lines
}

/// Returns the first page: every command, and how to begin.
pub(in crate::cli) fn front_page(commands: &[CommandEntry], width: usize) -> String {
    let commands = summaries(commands);
    let names = commands.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut text = paragraphs(topics::ABOUT, width);
    text += "\n\nUsage: remuda COMMAND [OPTIONS]\n\nCommands:\n";
    for (name, about) in &commands {
        let lines = paragraphs(about, width - names - 4);
        for (number, line) in lines.lines().enumerate() {
            let name = if number == 0 { name.as_str() } else { "" };
            let _ = writeln!(text, "  {name:names$}  {line}");
        }
    }
    let examples = examples(&topics::FRONT, "remuda", width);
    format!("{text}\n{examples}\n\n{}\n", paragraphs(topics::FRONT_END, width))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::command::entry::full_definition;
    use crate::cli::help::fit;
    use crate::cli::line::{CommandLine, Parsed, RefusedLine};
    use crate::cli::registry::COMMANDS;

    /// Returns every command that has a page, with its arguments.
    fn commands() -> Vec<Command> {
        let mut whole = full_definition(COMMANDS);
        whole.build();
        let mut found = Vec::new();
        for command in whole.get_subcommands() {
            found.push(command.clone());
            found.extend(command.get_subcommands().filter(|one| one.get_name() != "help").cloned());
        }
        found
    }

    #[test]
    #[cfg(feature = "train")]
    fn topics_are_commands_and_name_their_options() {
        let commands = commands();
        for topic in &TOPICS {
            let is_topic = |command: &&Command| {
                command
                    .get_bin_name()
                    .is_some_and(|name| name == format!("remuda {}", topic.command))
            };
            let command = commands.iter().find(is_topic).expect(topic.command);
            for id in topic.options {
                let has =
                    command.get_arguments().any(|arg| arg.get_id() == id && !arg.is_hide_set());
                assert!(has, "{}: {id}", topic.command);
            }
        }
        let missing: Vec<_> = commands.iter().filter(|one| topic(one).is_none()).collect();
        let names: Vec<_> = missing.iter().filter_map(|one| one.get_bin_name()).collect();
        assert_eq!(names, [""; 0]);
    }

    #[test]
    fn every_page_has_three_examples() {
        let examples = |page: &str| page.lines().filter(|line| line.starts_with("  # ")).count();
        for command in commands() {
            for length in [Length::Short, Length::Long] {
                let page = page(&command, length, 80).to_string();
                assert_eq!(examples(&page), 3, "{page}");
            }
        }
        assert_eq!(examples(&front_page(COMMANDS, 80)), 3);
    }

    #[test]
    fn short_page_is_one_screen() {
        let mut long = Vec::new();
        for command in commands() {
            let page = page(&command, Length::Short, 80).to_string();
            let lines = page.lines().count();
            let name = command.get_bin_name();
            if 30 < lines {
                long.push(format!("{name:?}: {lines} lines\n{page}"));
            }
        }
        assert!(long.is_empty(), "{}", long.join("\n"));
        assert!(front_page(COMMANDS, 80).lines().count() <= 30);
    }

    #[test]
    fn pages_fit_the_terminal() {
        let commands = commands();
        for width in WIDTH_MIN..=160 {
            for command in &commands {
                for length in [Length::Short, Length::Long] {
                    let page = fit(&page(command, length, width).to_string(), width);
                    let widest = page.lines().max_by_key(|line| line.chars().count());
                    let widest = widest.expect("a line");
                    let name = command.get_bin_name();
                    assert!(widest.chars().count() <= width, "{name:?} at {width}: {widest}");
                }
            }
            let front = fit(&front_page(COMMANDS, width), width);
            assert!(front.lines().all(|line| line.chars().count() <= width), "{front}");
        }
    }

    /// Parses an example in the same way as its command, without running it.
    fn read(words: Vec<OsString>) -> Result<(), RefusedLine> {
        let (command, rest) = (words[1].to_string_lossy().into_owned(), words[2..].to_vec());
        let mut whole = full_definition(COMMANDS);
        whole.build();
        let found = match &*command {
            "run" => {
                return crate::cli::command::run::parse("remuda run", rest).map(|parsed| {
                    assert!(matches!(parsed, Parsed::Run(..)));
                });
            }
            "pod" => return crate::cli::command::pod::parse(rest).map(drop),
            "launch" => return crate::cli::command::launch::parse(rest).map(drop),
            _ => whole.try_get_matches_from(words.clone()),
        };
        found.map(drop).map_err(|error| {
            CommandLine::new(&error.to_string(), words)
                .refuse(&[], |_| crate::base::Diagnostic::whole("", error.to_string()))
        })
    }

    #[test]
    fn every_example_is_a_valid_line() {
        for topic in TOPICS.iter().chain([&topics::FRONT]) {
            for (_, whole) in topic.examples {
                let line = whole;
                // Redirections and pipes are not part of the command.
                let line = line.split(['>', '|']).next().filter(|_| !line.contains('\''));
                let line = line.unwrap_or(whole);
                let words = crate::cli::line::split(line.trim_end()).expect("words");
                let read = read(words.iter().map(OsString::from).collect());
                assert!(read.is_ok(), "{line}: {read:?}");
            }
        }
    }
}
