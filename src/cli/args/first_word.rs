//! Checks of the first word after the options of `remuda run`: a word that is not a script, where
//! the probable line is known.

use std::ffi::OsString;
use std::path::Path;

use crate::base::shell::quoted;
use crate::base::{Diagnostic, HostName};
use crate::cli::line::{
    CommandLine, Instead, RefusedLine, as_host_list, codes, instead_of, is_launcher, is_python,
    launcher_module, setting_as_option,
};

/// Refuses a first word that is not a script: the interpreter, another launcher, a host, or an
/// option without its dashes. `words` are the last words of the line.
pub(super) fn check(words: &[OsString], typed: &CommandLine) -> Result<(), RefusedLine> {
    let Some((first, rest)) = words.split_first() else { return Ok(()) };
    let Some(name) = first.to_str().filter(|name| !Path::new(name).exists()) else {
        return Ok(());
    };
    let rest: Vec<String> = rest.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let at = typed.words.len() - words.len();
    let (what, help) = if is_python(name) || is_launcher(name) {
        let is_module = matches!(&*rest, [option, module, ..] if option == "-m" && launcher_module(module).is_some());
        let what = match (is_python(name), is_module) {
            (true, true) => "starts another launcher, not a script",
            (true, false) => "is the interpreter, not a script",
            (false, _) => "is another launcher, not a script",
        };
        let starts = is_python(name) && !is_module && !rest.is_empty();
        let starts = if starts { "remuda starts the interpreter: " } else { "" };
        (format!("`{name}` {what}"), format!("{starts}{}", show_instead(name, &rest, typed, at)))
    } else if let Some(option) = setting_as_option(name) {
        (format!("`{name}` is not a script"), format!("did you mean `{option}`?"))
    } else if let Some(host) = as_host_list(name) {
        (format!("`{name}` is not a script"), format!("did you mean `-H {host}`?"))
    } else if is_host_with_slots(name) {
        let list = host_list(typed, at, words);
        (format!("`{name}` is not a script"), format!("did you mean `-H {list}`?"))
    } else {
        return Ok(());
    };
    Err(typed.refuse(&[typed.word_span(at)], |spans| {
        Diagnostic::error(codes::UNEXPECTED_WORD, spans[0], what)
            .label("read as the script")
            .help(help)
    }))
}

/// Formats what to type instead of the line from the word `at`, with the options before it.
fn show_instead(name: &str, rest: &[String], typed: &CommandLine, at: usize) -> String {
    let line = |words: Vec<String>| words.iter().map(quoted).collect::<Vec<_>>().join(" ");
    match instead_of(name, rest) {
        Instead::Run { words, remark } => {
            let options = typed.words[..at].iter().map(quoted);
            let words: Vec<String> = options.chain(words.iter().map(quoted)).collect();
            let remark = remark.map_or_else(String::new, |remark| format!("; {remark}"));
            format!("`{} {}`{remark}", typed.program, words.join(" "))
        }
        // Of the options before it, these commands have `-H`.
        Instead::Command { name, words } => {
            let hosts = typed.last("hostfile").and_then(|given| given.value.as_ref());
            let hosts = hosts.map_or_else(String::new, |(text, _)| format!(" -H {}", quoted(text)));
            format!("`remuda {name}{hosts} {}`", line(words))
        }
        Instead::Whole(words) => format!("`{}`", line(words)),
    }
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
