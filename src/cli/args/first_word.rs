//! Checks of the first word after the options of `remuda run`: a word that is not a script, where
//! the probable line is known.

use std::ffi::OsString;
use std::path::Path;

use crate::base::shell::quoted;
use crate::base::{Diagnostic, HostName};
use crate::cli::line::{
    CommandLine, RefusedLine, as_host_list, codes, is_launcher, is_python, python_line,
    setting_as_option, translated,
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
    let line = |words: Option<Vec<String>>| {
        let words = words.unwrap_or_else(|| vec!["SCRIPT".to_owned()]);
        show_line(typed, at, &words)
    };
    let (what, help) = if let Some(module) = launcher_module(name, &rest).filter(|_| at == 0) {
        (format!("`{name}` starts another launcher, not a script"), format!("`remuda {module}`"))
    } else if is_python(name) {
        let starts = if rest.is_empty() { "" } else { "remuda starts the interpreter: " };
        let help = format!("{starts}{}", line(python_line(&rest)));
        (format!("`{name}` is the interpreter, not a script"), help)
    } else if is_launcher(name) {
        let what = format!("`{name}` is another launcher, not a script");
        let help = line_of_launcher(name, &rest).filter(|_| at == 0);
        (what, help.unwrap_or_else(|| line(translated(name, &rest))))
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

/// Returns the line of a launcher whose lines remuda reads, with remuda in front.
fn line_of_launcher(name: &str, rest: &[String]) -> Option<String> {
    let rest: Vec<String> = rest.iter().map(quoted).collect();
    (name == "torchrun").then(|| format!("`remuda torchrun {}`", rest.join(" ")))
}

/// Returns the words after `remuda` for `python -m torch.distributed.launch …`.
fn launcher_module(interpreter: &str, rest: &[String]) -> Option<String> {
    let [option, module, rest @ ..] = rest else { return None };
    let name = match module.as_str() {
        "torch.distributed.launch" => "torch.distributed.launch",
        "torch.distributed.run" => "torchrun",
        _ => return None,
    };
    let rest: Vec<String> = rest.iter().map(quoted).collect();
    (is_python(interpreter) && option == "-m").then(|| format!("{name} {}", rest.join(" ")))
}

/// Formats the line with these words in place of the script and the words after it.
fn show_line(typed: &CommandLine, script: usize, words: &[String]) -> String {
    let options = typed.words[..script].iter().map(quoted);
    let words: Vec<String> = options.chain(words.iter().map(quoted)).collect();
    format!("`{} {}`", typed.program, words.join(" "))
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
