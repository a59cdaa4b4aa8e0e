//! Messages of remuda for errors of clap, with a caret under the wrong word.

use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::codes;
use super::flags::{Flags, OptionOwner, underscored};
use super::number::BadValue;
use super::typed::{ArgvSpan, CommandLine, RefusedLine};
use crate::base::Diagnostic;
use crate::base::order;
use crate::base::shell::{quoted, quoted_line};
use crate::cli::line::equivalents::{suggestion, total};
use crate::pool::nearest;

/// Commands whose subcommands read files, with the subcommand that a path alone stands for.
const READING_COMMANDS: [(&str, &str); 3] =
    [("remuda checkpoint", "show"), ("remuda config", "check"), ("remuda hostfile", "check")];

/// Reason why clap returned no result.
pub(in crate::cli) enum NotParsed {
    /// A text that the line requests, such as help.
    Text(StyledStr),
    /// The line has an error.
    Refused(RefusedLine),
}

/// Converts an error of clap to a message of remuda. The options of `typed` are known.
pub(in crate::cli) fn explain(
    error: &clap::Error,
    flags: &Flags,
    typed: &CommandLine,
) -> NotParsed {
    if !error.use_stderr() {
        return NotParsed::Text(error.render());
    }
    let about = ErrorContext::new(error, typed);
    NotParsed::Refused(match error.kind() {
        ErrorKind::InvalidValue if about.value.is_empty() => about.value_missing(),
        ErrorKind::InvalidValue => about.not_in_list(&texts(error, ContextKind::ValidValue)),
        ErrorKind::ValueValidation => about.bad_value(error, flags),
        ErrorKind::InvalidUtf8 => not_text(typed),
        ErrorKind::ArgumentConflict => about.conflict(error),
        ErrorKind::UnknownArgument => about.unknown(flags),
        ErrorKind::InvalidSubcommand => about.unknown_command(error),
        ErrorKind::MissingRequiredArgument => {
            argument_missing(typed, &about.command, &texts(error, ContextKind::InvalidArg))
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            command_missing(typed, &about.command, flags)
        }
        _ => about.first_line(error),
    })
}

/// Parts of clap's error.
struct ErrorContext<'a> {
    typed: &'a CommandLine,
    /// The option without dashes, or the word.
    flag: String,
    /// The value that was refused.
    value: String,
    span: ArgvSpan,
    /// The command with its parent commands.
    command: String,
}

impl<'a> ErrorContext<'a> {
    fn new(error: &clap::Error, typed: &'a CommandLine) -> Self {
        let subject = texts(error, ContextKind::InvalidArg).into_iter().next();
        let subject = subject.or_else(|| texts(error, ContextKind::InvalidSubcommand).pop());
        let subject = subject.unwrap_or_default();
        // The subject looks like `--timeout <TIME>`.
        let flag = subject.split([' ', '=']).next().unwrap_or_default();
        let flag = flag.strip_prefix("--").unwrap_or(flag).to_owned();
        let value = texts(error, ContextKind::InvalidValue).pop().unwrap_or_default();
        let place = find_span(typed, &flag, &subject, &value);
        Self { typed, flag, value, span: place, command: command(error, typed) }
    }

    fn value_missing(&self) -> RefusedLine {
        self.typed.refuse(&[self.span], |spans| {
            let message = format!("`--{}` needs a value", self.flag);
            Diagnostic::error(codes::VALUE_MISSING, spans[0], message)
                .label("expected a value")
                .help(format!("write `--{} VALUE`, or leave it out", self.flag))
        })
    }

    fn not_in_list(&self, list: &[String]) -> RefusedLine {
        // `gpu` is similar to `cpu` but means the opposite.
        let begins = |word: &&str| word.chars().next() == self.value.to_lowercase().chars().next();
        let near = nearest(&self.value, list.iter().map(String::as_str).filter(begins));
        let bad = BadValue::new(format!("expected one of {}", list.join(", ")));
        let brand = match (&*self.flag, &*self.value.to_lowercase()) {
            ("accelerator", "gpu" | "gpus") => Some("`cuda` is an NVIDIA GPU, `rocm` an AMD GPU"),
            ("accelerator", "nvidia") => Some("did you mean `cuda`?"),
            ("accelerator", "amd" | "hip") => Some("did you mean `rocm`?"),
            _ => None,
        };
        self.refuse_value(&match (near, brand) {
            (_, Some(help)) => bad.help(help),
            (Some(near), None) => bad.help(format!("did you mean `{near}`?")),
            (None, None) => bad,
        })
    }

    fn bad_value(&self, error: &clap::Error, flags: &Flags) -> RefusedLine {
        let source = std::error::Error::source(error);
        let bad = match source {
            None => BadValue::new("not a valid value"),
            Some(source) => {
                if let Some(bad) = source.downcast_ref::<BadValue>() {
                    bad.clone()
                } else if let Some(number) = source.downcast_ref::<ParseIntError>() {
                    BadValue::new(number_problem(number))
                } else {
                    BadValue::new(source.to_string())
                }
            }
        };
        self.refuse_value(
            &self.mpirun_hint(flags).or_else(|| self.one_dash_hint(flags)).unwrap_or(bad),
        )
    }

    /// Hint for `-np 2` of MPI's launchers, which is parsed as `-n` with the value `p`.
    fn mpirun_hint(&self, flags: &Flags) -> Option<BadValue> {
        let is_np = self.typed.words.get(self.span.word).is_some_and(|word| word == "-np");
        let help = is_np.then(|| total(self.typed, self.span.word, flags))?;
        Some(BadValue::new("expected a whole number").help(help))
    }

    /// Hint for `-num_gpus 2`, which is parsed as `-n` with the value `um_gpus`.
    fn one_dash_hint(&self, flags: &Flags) -> Option<BadValue> {
        let word = self.typed.words.get(self.span.word)?.to_str()?;
        let name = underscored(word.strip_prefix('-')?.split('=').next()?);
        flags.exact(&name, OptionOwner::All)?;
        let bad = BadValue::new(format!("read as the value of `{}`", &word[..2]));
        Some(bad.help(format!("did you mean `--{name}`?")))
    }

    fn refuse_value(&self, bad: &BadValue) -> RefusedLine {
        refuse_value(self.typed, self.span, &self.flag, &self.value, bad)
    }

    fn unknown(&self, flags: &Flags) -> RefusedLine {
        if !self.typed.word_starts_with_dash(self.span) {
            return self.typed.refuse(&[self.span], |spans| {
                let message = format!("unexpected word `{}`", self.flag);
                Diagnostic::error(codes::UNEXPECTED_WORD, spans[0], message)
                    .label("nothing is expected here")
                    .help(self.help_for_word())
            });
        }
        let shown = self.typed.text_of(self.span);
        let meant = suggestion(self.typed, self.span.word, &self.command, flags);
        self.typed.refuse(&[self.span], |spans| {
            let message = format!("there is no option `{shown}`");
            let problem =
                Diagnostic::error(codes::UNKNOWN_OPTION, spans[0], message).label("unknown");
            match meant {
                Some(meant) => problem.help(meant),
                // pdsh and clush have this option.
                None if shown == "-w" && self.command == "remuda ssh" => {
                    problem.help("hosts are named with `-H`: `-H n1,n2`, or `-H 'n[1-4]'`")
                }
                None if self.command == "remuda sbatch" => problem.help(self.help_of_sbatch()),
                None => problem.help(format!("`{} --help` lists the options", self.command)),
            }
        })
    }

    /// The line with the option where those of the job are.
    fn help_of_sbatch(&self) -> String {
        let (before, after) = self.typed.words.split_at(self.span.word);
        let parts = [quoted_line(before), "--".to_owned(), quoted_line(after)];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        format!("options of `remuda run` stand behind `--`: `remuda sbatch {}`", parts.join(" "))
    }

    /// What to type instead of a line with a word that is not expected.
    fn help_for_word(&self) -> String {
        let usage = format!("`{} --help` shows the usage", self.command);
        let is_script = |word: &OsString| {
            let path = Path::new(word);
            path.is_file() || path.extension().is_some_and(|ending| ending == "py")
        };
        let word = self.typed.words.get(self.span.word);
        if let Some([.., option, kind, dir]) = self.typed.words.get(..=self.span.word)
            && option == "--to"
            && kind == "hf"
        {
            return format!("a directory of Hugging Face is `--to hf:{}`", dir.display());
        }
        if !word.is_some_and(is_script) || self.command != "remuda train" {
            return usage;
        }
        let line = quoted_line(&self.typed.words);
        format!(
            "`remuda train` is the bundled trainer; to start a script of yours: `remuda run {line}`"
        )
    }

    fn unknown_command(&self, error: &clap::Error) -> RefusedLine {
        let near = texts(error, ContextKind::SuggestedSubcommand).into_iter().next();
        let near = near.filter(|near| nearest(&self.flag, [near.as_str()]).is_some());
        let near = near.or_else(|| self.command_for_path()).or_else(|| self.check_with_fix());
        self.typed.refuse(&[self.span], |spans| {
            let message = format!("there is no command `{}`", self.flag);
            let problem =
                Diagnostic::error(codes::UNKNOWN_COMMAND, spans[0], message).label("unknown");
            match near {
                Some(near) => problem.help(format!("did you mean `{near}`?")),
                None => problem.help(format!("`{} --help` lists the commands", self.typed.program)),
            }
        })
    }

    /// The line that was meant if a path was typed instead of a subcommand.
    fn command_for_path(&self) -> Option<String> {
        let reading = READING_COMMANDS.iter().find(|(command, _)| *command == self.typed.program);
        let (command, subcommand) = reading?;
        let path = self.typed.words.get(self.span.word)?;
        Path::new(path).exists().then(|| format!("{command} {subcommand} {}", quoted(path)))
    }

    /// The line that was meant by `remuda hostfile fix FILE`.
    fn check_with_fix(&self) -> Option<String> {
        const HOSTFILE: &str = "remuda hostfile";
        if self.typed.program != HOSTFILE || self.flag != "fix" {
            return None;
        }
        let files = match &self.typed.words[self.span.word + 1..] {
            [] => "FILE".to_owned(),
            files => quoted_line(files),
        };
        Some(format!("{HOSTFILE} check --fix {files}"))
    }

    /// Returns the error for two options that exclude each other.
    fn conflict(&self, error: &clap::Error) -> RefusedLine {
        let other = texts(error, ContextKind::PriorArg).into_iter().next().unwrap_or_default();
        let other = other.split([' ', '=']).next().unwrap_or_default().trim_start_matches("--");
        let other_place = self.typed.name_span(other).unwrap_or(self.span);
        let place = self.typed.name_span(&self.flag).unwrap_or(self.span);
        let mut two = [(place, &*self.flag), (other_place, other)];
        order::sort_by_key(&mut two, |(place, _)| (place.word, place.start));
        let [(first_place, first), (second_place, second)] = two;
        self.typed.refuse(&[second_place, first_place], |spans| {
            let message = format!("`--{first}` and `--{second}` cannot be combined");
            Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
                .label("one of the two has no effect")
                .related(spans[1], "")
                .help("keep one of the two")
        })
    }

    /// Returns the first line of clap's message, for a kind of error that no definition of remuda
    /// can cause.
    fn first_line(&self, error: &clap::Error) -> RefusedLine {
        let text = error.render().to_string();
        let line = text.lines().next().unwrap_or_default();
        let message = line.strip_prefix("error: ").unwrap_or(line).to_owned();
        self.typed.refuse(&[self.span], |spans| {
            Diagnostic::error(codes::UNEXPECTED_WORD, spans[0], message)
        })
    }
}

/// Returns the error for a value that its option does not accept.
pub(in crate::cli) fn refuse_value(
    typed: &CommandLine,
    place: ArgvSpan,
    flag: &str,
    value: &str,
    bad: &BadValue,
) -> RefusedLine {
    // `<COLLECTIVE>` is a positional argument.
    let subject = match flag.strip_prefix('<').and_then(|name| name.strip_suffix('>')) {
        Some(name) => name.to_owned(),
        None => format!("`{}`", typed.shown_name(flag)),
    };
    let original = typed.original_value(flag, place);
    let value = original.as_deref().unwrap_or(value);
    typed.refuse(&[place], |spans| {
        let message = format!("{subject} cannot be `{value}`");
        let problem = Diagnostic::error(codes::BAD_VALUE, spans[0], message).label(&bad.label);
        match &bad.help {
            Some(help) => problem.help(help),
            None => problem,
        }
    })
}

/// Refuses `-hostfile` and the like, which clap parses as `-h`.
pub(in crate::cli) fn refuse_words_after_h(
    typed: &CommandLine,
    flags: &Flags,
) -> Result<(), RefusedLine> {
    let is_long = |given: &&super::typed::GivenOption| {
        let word = typed.words[given.name.word].as_bytes();
        given.flag == "help" && 2 < word.len() && !word.starts_with(b"--")
    };
    let Some(given) = typed.options.iter().find(is_long) else { return Ok(()) };
    let place = typed.word_span(given.name.word);
    let help = suggestion(typed, place.word, &typed.program, flags);
    let help = help.unwrap_or_else(|| format!("`{} --help` lists the options", typed.program));
    Err(typed.refuse(&[place], |spans| {
        let message = format!("there is no option `{}`", typed.text_of(place));
        Diagnostic::error(codes::UNKNOWN_OPTION, spans[0], message).label("unknown").help(help)
    }))
}

/// Returns the place of the value, else of the option, else of the word, else the end of the line.
fn find_span(typed: &CommandLine, flag: &str, word: &str, value: &str) -> ArgvSpan {
    let is_it = |given: &&super::typed::GivenOption| {
        given.flag == flag && given.value.as_ref().is_some_and(|(text, _)| *text == *value)
    };
    let given = typed.options.iter().find(is_it).and_then(|given| given.value.as_ref());
    let find = |text: &str| typed.words.iter().position(|word| *word == *text && !text.is_empty());
    let starts = || {
        let is_short = word.len() == 2 && word.starts_with('-') && word != "--";
        let found = |typed_word: &std::ffi::OsString| {
            let text = typed_word.to_string_lossy();
            let is_attached = is_short && text.starts_with(word);
            !word.is_empty() && (text.split('=').next() == Some(word) || is_attached)
        };
        typed.words.iter().position(found)
    };
    given
        .map(|(_, place)| *place)
        .or_else(|| find(value).map(|at| typed.word_span(at)))
        .or_else(|| typed.value_span(flag))
        .or_else(|| {
            let at = starts()?;
            let end = word.len().min(typed.words[at].len());
            Some(ArgvSpan { word: at, start: 0, end })
        })
        .unwrap_or_else(|| typed.end_span())
}

/// Returns the command with its parents, such as `remuda hostfile check`, from clap's usage.
fn command(error: &clap::Error, typed: &CommandLine) -> String {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else {
        return typed.program.clone();
    };
    let usage = usage.to_string();
    let words = usage.trim_start_matches("Usage:").split_whitespace();
    let words = words.take_while(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()));
    let command = words.collect::<Vec<_>>().join(" ");
    if command.starts_with(&typed.program) { command } else { typed.program.clone() }
}

fn argument_missing(typed: &CommandLine, command: &str, what: &[String]) -> RefusedLine {
    let what: Vec<String> = what.iter().map(|what| show_missing(what)).collect();
    let message = match &what[..] {
        [] => "a word is missing".to_owned(),
        [only] => format!("{only} is missing"),
        [first @ .., last] => format!("{} and {last} are missing", first.join(", ")),
    };
    let help = match what.first() {
        Some(first) if first.starts_with("`--world_info") => run_instead_of_launch(typed),
        _ => format!("`{command} --help` shows the usage"),
    };
    typed.refuse(&[typed.end_span()], |spans| {
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], message).label("expected here").help(help)
    })
}

/// Help for `remuda launch SCRIPT`, where a job was meant.
fn run_instead_of_launch(typed: &CommandLine) -> String {
    let has_options = !typed.options.is_empty();
    let line = if has_options { "SCRIPT".to_owned() } else { quoted_line(&typed.words) };
    format!(
        "`remuda run {line}` starts a job; `remuda launch` starts one node for a launcher that passes \
         `--world_info`"
    )
}

fn command_missing(typed: &CommandLine, command: &str, flags: &Flags) -> RefusedLine {
    let names = flags.commands().iter().filter(|name| *name != "help");
    let names: Vec<String> = names.map(|name| format!("`{command} {name}`")).collect();
    typed.refuse(&[typed.end_span()], |spans| {
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], "a command is missing")
            .label("expected here")
            .help(format!("the commands are {}", names.join(", ")))
    })
}

/// Formats a missing argument: an option with its value, or the name of a word.
fn show_missing(what: &str) -> String {
    let what = what.replace(['<', '>'], "");
    match what.trim_end_matches("...") {
        "SCRIPT" | "WORD" => "the script".to_owned(),
        option if option.starts_with('-') => format!("`{option}`"),
        name => name.to_owned(),
    }
}

fn not_text(typed: &CommandLine) -> RefusedLine {
    let is_odd = |given: &&super::typed::GivenOption| {
        given.value.as_ref().is_some_and(|(text, _)| text.to_str().is_none())
    };
    let given = typed.options.iter().find(is_odd);
    let value = given.and_then(|given| given.value.as_ref());
    let word = || typed.words.iter().position(|word| word.to_str().is_none());
    let place = value
        .map(|(_, place)| *place)
        .or_else(|| word().map(|at| typed.word_span(at)))
        .unwrap_or_else(|| typed.end_span());
    typed.refuse(&[place], |spans| {
        Diagnostic::error(codes::BAD_VALUE, spans[0], "this value is not text")
            .label("expected UTF-8")
    })
}

fn number_problem(error: &ParseIntError) -> &'static str {
    match error.kind() {
        IntErrorKind::Zero => "expected a number of at least 1",
        IntErrorKind::PosOverflow => "the number is too large",
        IntErrorKind::NegOverflow => "the number is too small",
        _ => "expected a whole number",
    }
}

fn texts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}
