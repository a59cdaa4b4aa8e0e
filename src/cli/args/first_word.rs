//! Checks of the first word after the options of `remuda run`: a word that is not a script of Python,
//! where the probable line is known.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::base::shell::{quoted, quoted_line};
use crate::base::{Diagnostic, HostName, env_vars};
use crate::cli::args::ProgramArgs;
use crate::cli::executable;
use crate::cli::line::{
    CommandLine, Instead, RefusedLine, as_host_list, codes, instead_of, is_launcher, is_python,
    launcher_of_python, setting_as_option,
};

/// Refuses a first word that is not a script of Python: a script of a shell, a program in PATH, the
/// interpreter, another launcher, a command of remuda, a host, or an option without its dashes.
pub(super) fn check(args: &ProgramArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    let words = &args.script_and_args[..];
    one_word(words, typed)?;
    let Some((first, rest)) = words.split_first() else { return Ok(()) };
    let at = typed.words.len() - words.len();
    if Path::new(first).exists() {
        return shell_script(args, typed, at);
    }
    let Some(name) = first.to_str() else { return Ok(()) };
    let place = ScriptPlace { typed, at, without_python: &WITHOUT_PYTHON, is_face: false };
    let (what, help) = if let Some(problem) = place.other_program(name, rest) {
        problem
    } else if let Some(option) = setting_as_option(name) {
        (format!("`{name}` is not a script"), format!("did you mean `{option}`?"))
    } else if let Some(host) = as_host_list(name) {
        (format!("`{name}` is not a script"), format!("did you mean `-H {host}`?"))
    } else if is_host_with_slots(name) {
        let list = host_list(typed, at, words);
        (format!("`{name}` is not a script"), format!("did you mean `-H {list}`?"))
    } else if let Some(problem) = place.program_in_path(name) {
        problem
    } else {
        return Ok(());
    };
    Err(not_a_script(typed, at, what, help))
}

/// Refuses the interpreter, a launcher, a command of remuda or a program in PATH as the script of a line of
/// another launcher, which has the options `without_python` for programs.
pub(super) fn script_of_face(
    words: &[OsString],
    typed: &CommandLine,
    without_python: &[&str],
) -> Result<(), RefusedLine> {
    let Some((first, rest)) = words.split_first() else { return Ok(()) };
    let at = typed.words.len() - words.len();
    let Some(name) = first.to_str().filter(|name| !Path::new(name).exists()) else { return Ok(()) };
    if let Some(refused) = value_of_switch(typed, at, name) {
        return Err(refused);
    }
    let place = ScriptPlace { typed, at, without_python, is_face: true };
    match place.other_program(name, rest).or_else(|| place.program_in_path(name)) {
        Some((what, help)) => Err(not_a_script(typed, at, what, help)),
        None => Ok(()),
    }
}

/// Refuses `true` or `false` behind an option that takes no value: it would be the script.
fn value_of_switch(typed: &CommandLine, at: usize, name: &str) -> Option<RefusedLine> {
    let is_on = match name.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => true,
        "false" | "no" | "off" | "0" => false,
        _ => return None,
    };
    let option = typed.options.iter().find(|option| option.name.word + 1 == at)?;
    let shown = typed.option_name(&option.flag);
    if option.value.is_some() {
        return None;
    }
    let help = if is_on {
        format!("leave `{name}` out: `{shown}` alone turns it on")
    } else {
        format!("leave `{shown} {name}` out: without the option it is off")
    };
    Some(typed.refuse(&[typed.word_span(at)], |spans| {
        let message = format!("`{shown}` takes no value");
        Diagnostic::error(codes::BAD_VALUE, spans[0], message).label("a value").help(help)
    }))
}

/// The command whose line has a line of `remuda run` behind `--`.
const SBATCH: &str = "remuda sbatch";

/// Options of `remuda run` for a program that is not a script of Python.
const WITHOUT_PYTHON: [&str; 2] = ["no_python", "no_local_rank"];

/// Commands of remuda that start workers, and that users type in the place of a script.
const WITH_WORKERS: [&str; 2] = ["train", "bench"];

/// The place of the script in a line.
#[derive(Clone, Copy)]
struct ScriptPlace<'a> {
    typed: &'a CommandLine,
    /// Index of its word.
    at: usize,
    /// Options of the line for a program that is not a script of Python.
    without_python: &'a [&'a str],
    /// Whether the line is that of another launcher, which has options of its own.
    is_face: bool,
}

impl ScriptPlace<'_> {
    /// Returns the message and the help for the interpreter, a launcher, or a command of remuda.
    fn other_program(self, name: &str, rest: &[OsString]) -> Option<(String, String)> {
        if is_python(name) || is_launcher(name) {
            return Some(self.launcher_problem(name, rest));
        }
        // `train.py` is more similar.
        let is_own = WITH_WORKERS.contains(&name) && !Path::new(name).with_extension("py").exists();
        let own = is_own.then_some(["remuda", name])?;
        let words: Vec<OsString> =
            own.into_iter().map(OsString::from).chain(rest.iter().cloned()).collect();
        let line = without_python(self.typed, self.at, self.without_python, &words);
        Some((
            format!("`{name}` is a command of remuda, not a script"),
            format!("type `{}`, which is a job of its own, or `{line}`", quoted_line(&words)),
        ))
    }

    /// Returns the message and the help for a program in PATH.
    fn program_in_path(self, name: &str) -> Option<(String, String)> {
        let program = program_in_path(name)?;
        let words = &self.typed.words[self.at..];
        let line = without_python(self.typed, self.at, self.without_python, words);
        Some((
            format!("`{name}` is a program in PATH, not a script"),
            format!("to run `{program}`, type `{line}`"),
        ))
    }

    /// Formats the message and the help for a line that begins with the interpreter or a launcher.
    fn launcher_problem(self, name: &str, rest: &[OsString]) -> (String, String) {
        let rest: Vec<String> =
            rest.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let is_module = is_python(name) && launcher_of_python(&rest).is_some();
        let what = match (is_python(name), is_module) {
            (true, true) => "starts another launcher, not a script",
            (true, false) => "is the interpreter, not a script",
            (false, _) if self.typed.program.split(' ').any(|word| word == name) => {
                "is the launcher, not a script"
            }
            (false, _) => "is another launcher, not a script",
        };
        let starts = is_python(name) && !is_module && !rest.is_empty();
        let starts = if starts { "remuda starts the interpreter; " } else { "" };
        let line = match instead_of(name, &rest) {
            // Its words are options of `remuda run`.
            Instead::Run { words, remark } if self.is_face && (is_module || !is_python(name)) => {
                format!("`remuda run {}`{}", quoted_line(&words), show_remark(remark))
            }
            instead => show_instead(instead, self.typed, self.at),
        };
        (format!("`{name}` {what}"), format!("{starts}type {line}"))
    }
}

fn not_a_script(typed: &CommandLine, at: usize, what: String, help: String) -> RefusedLine {
    typed.refuse(&[typed.word_span(at)], |spans| {
        Diagnostic::error(codes::UNEXPECTED_WORD, spans[0], what)
            .label("read as the script")
            .help(help)
    })
}

/// Refuses a script that is empty, as from a variable that is not set, or that is a whole line in quotes.
pub(super) fn one_word(words: &[OsString], typed: &CommandLine) -> Result<(), RefusedLine> {
    let Some((first, rest)) = words.split_first() else { return Ok(()) };
    let at = typed.words.len() - words.len();
    let line = |script: &str| {
        let line = [quoted_line(typed.words_before(at)), script.to_owned(), quoted_line(rest)];
        let parts = line.into_iter().filter(|part| !part.is_empty());
        std::iter::once(typed.program.clone()).chain(parts).collect::<Vec<_>>().join(" ")
    };
    let (message, label, help) = match first.to_str() {
        Some("") => (
            "the script is an empty word".to_owned(),
            "an empty word",
            format!("type `{}`; a variable of the shell that is not set is empty", line("SCRIPT")),
        ),
        Some(text) if !Path::new(text).exists() && begins_with_script(text) => (
            format!("there is no script `{text}`"),
            "one word, because of the quotes",
            format!("leave the quotes out: `{}`", line(text.trim())),
        ),
        _ => return Ok(()),
    };
    let problem = Diagnostic::whole(codes::UNEXPECTED_WORD, message).label(label).help(help);
    Err(typed.refuse_at(typed.word_span(at), problem))
}

/// Whether a text is a script and more words: `train.py --lr 3`.
fn begins_with_script(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let script = words.next().map(Path::new);
    let is_script =
        |script: &Path| script.extension().is_some_and(|end| end == "py") || script.is_file();
    script.is_some_and(is_script) && words.next().is_some()
}

/// Refuses a script of a shell that would run with Python; `--python` may name another interpreter.
fn shell_script(args: &ProgramArgs, typed: &CommandLine, at: usize) -> Result<(), RefusedLine> {
    let words = &args.script_and_args[..];
    let named = args.python.clone().or_else(|| env_vars::get(env_vars::PYTHON_EXEC));
    let runs_python = named.is_none_or(|named| {
        let name = Path::new(&named).file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("py")
    });
    let script = Path::new(&words[0]);
    if runs_python && executable::is_batch_script(script) {
        return Err(batch_script(typed, at, words));
    }
    let Some(shell) = executable::shell_of(script).filter(|_| runs_python) else { return Ok(()) };
    let is_executable = script.metadata().is_ok_and(|found| found.mode() & 0o111 != 0);
    let mut line: Vec<OsString> = Vec::new();
    if !is_executable {
        line.push(shell.clone().into());
    }
    // A name without a directory would be looked for in PATH.
    let is_name = script.parent().is_some_and(|parent| parent.as_os_str().is_empty());
    line.push(if is_name && is_executable {
        Path::new(".").join(script).into()
    } else {
        words[0].clone()
    });
    line.extend_from_slice(&words[1..]);
    let help = format!("type `{}`", without_python(typed, at, &WITHOUT_PYTHON, &line));
    Err(typed.refuse(&[typed.word_span(at)], |spans| {
        let message = format!("`{}` is a script of {shell}, not of Python", script.display());
        Diagnostic::error(codes::UNEXPECTED_WORD, spans[0], message)
            .label("would run with Python")
            .help(help)
    }))
}

/// Returns the error for a batch script of Slurm.
fn batch_script(typed: &CommandLine, at: usize, words: &[OsString]) -> RefusedLine {
    let line = quoted_line(words);
    typed.refuse(&[typed.word_span(at)], |spans| {
        let message = format!("`{}` is a batch script of Slurm, not of Python", words[0].display());
        Diagnostic::error(codes::UNEXPECTED_WORD, spans[0], message)
            .label("has `#SBATCH` lines, which only `sbatch` reads")
            .help(format!("type `sbatch {line}`; in the script, `remuda run` starts the workers"))
    })
}

/// Returns the path of the program of this name in PATH.
fn program_in_path(name: &str) -> Option<String> {
    let is_name = !name.is_empty() && !name.contains('/');
    let found = executable::search_path(name).filter(|_| is_name)?;
    Some(found.to_string_lossy().into_owned())
}

/// Formats the line that runs `words` with the options `flags` added to those before the word `at`.
fn without_python(typed: &CommandLine, at: usize, flags: &[&str], words: &[OsString]) -> String {
    let options = options_before(typed, at);
    let added = flags.iter().filter(|flag| typed.last(flag).is_none());
    let added: Vec<OsString> = added.map(|flag| typed.option_name(flag).into()).collect();
    let line = quoted_line(options.iter().chain(&added).chain(words));
    format!("{} {line}", typed.program)
}

/// Returns the words before the word `at`, to which options of `remuda run` can be added.
fn options_before(typed: &CommandLine, at: usize) -> Vec<OsString> {
    let (mut words, end) = (typed.words_before(at).to_vec(), OsString::from("--"));
    if typed.program.starts_with(SBATCH) {
        // Behind it are the options of `remuda run`; the program has those of sbatch.
        if !typed.program.ends_with(" --") {
            words.insert(0, end);
        }
    } else if words.last() == Some(&end) {
        words.pop();
    }
    words
}

/// Formats what to type instead of the line from the word `at`, with the options before it.
fn show_instead(instead: Instead, typed: &CommandLine, at: usize) -> String {
    let with_options = |words: Vec<String>| {
        let words = words.into_iter().map(OsString::from).collect::<Vec<_>>();
        quoted_line(options_before(typed, at).iter().chain(&words))
    };
    match instead {
        Instead::Run { words, remark } => {
            format!("`{} {}`{}", typed.program, with_options(words), show_remark(remark))
        }
        Instead::Command { name, words } if typed.program.starts_with(SBATCH) => format!(
            "`{SBATCH}` with a line of `remuda run`, or write `remuda {name} {}` into a script for `sbatch`",
            quoted_line(words)
        ),
        Instead::Command { name, words } if typed.program.ends_with(name) => {
            format!("`{} {}`", typed.program, with_options(words))
        }
        // Of the options before it, these commands have `-H`.
        Instead::Command { name, words } => {
            let hosts = typed.last("hostfile").and_then(|given| given.value.as_ref());
            let hosts = hosts.map_or_else(String::new, |(text, _)| format!(" -H {}", quoted(text)));
            format!("`remuda {name}{hosts} {}`", quoted_line(words))
        }
        Instead::Whole(words) => format!("`{}`", quoted_line(words)),
    }
}

fn show_remark(remark: Option<String>) -> String {
    remark.map_or_else(String::new, |remark| format!("; {remark}"))
}

/// Whether a word is an element of a list of hosts: `n2:2`.
fn is_host_with_slots(word: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    word.split_once(':')
        .is_some_and(|(host, slots)| is_number(slots) && HostName::parse(host).is_ok())
}

/// Returns the list that was typed with blanks: `-H n1:2 n2:2`.
fn host_list(typed: &CommandLine, script: usize, words: &[OsString]) -> String {
    let before = typed.last("hostfile").and_then(|given| given.value.as_ref());
    let before = before.filter(|(_, place)| place.word + 1 == script);
    let before = before.map(|(list, _)| list.to_string_lossy().into_owned());
    let hosts =
        words.iter().map_while(|word| word.to_str().filter(|word| is_host_with_slots(word)));
    before.into_iter().chain(hosts.map(str::to_owned)).collect::<Vec<_>>().join(",")
}
