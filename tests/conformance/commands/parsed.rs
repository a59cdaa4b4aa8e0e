//! Comparison of parsed options.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use remuda::base::Diagnostic;
use remuda::cli::line::{CommandLine, DEEPSPEED_FLAGS, RefusedLine, codes};
use remuda::cli::run::{ParsedRun, RunArgs, parse};
use remuda::cli::values::{AutotuningArg, LauncherArg, LogLevel};
use serde_json::{Value, json};

use super::{Command, Differences, show};
use crate::conformance::reference::{Reference, Refusal};
use crate::conformance::rules::{self, Verdict};

/// Result of parsing a line with both launchers.
pub(super) enum Read {
    /// The verdict is final.
    Decided(Verdict),
    /// Both accept the line.
    Parsed(Box<ParsedByBoth>),
}

/// A line that both launchers accept.
pub(super) struct ParsedByBoth {
    pub(super) args: RunArgs,
    /// Script and arguments as DeepSpeed has parsed them.
    pub(super) deepspeed_words: Vec<Vec<u8>>,
    pub(super) found: Differences,
}

pub(super) fn compare(reference: &mut Reference, command: &Command) -> Read {
    let words: Vec<String> =
        command.argv.iter().map(|word| BASE64.encode(word.as_bytes())).collect();
    let theirs = reference.ask(&json!({ "kind": "parse", "argv": words }));
    Read::Decided(match (parse("remuda run", command.argv.clone()), theirs) {
        (Ok(ParsedRun::Run(ours, _)), Ok(theirs)) => return same_args(*ours, &theirs["args"]),
        (Ok(ParsedRun::Run(_, typed)), Err(theirs)) => {
            explain_their_refusal(reference, command, &typed, &theirs)
        }
        (Ok(ParsedRun::Text(_)), Err(theirs)) if theirs.status == 0 => Verdict::Refused,
        (Ok(ParsedRun::Text(_)), Err(theirs)) => help_first(reference, command, &theirs),
        (Err(ours), Err(theirs)) => compare_refusals(reference, command, &ours, &theirs),
        (Err(ours), Ok(_)) => explain_our_refusal(reference, command, &ours),
        (Ok(ParsedRun::Text(_)), Ok(_)) => {
            Verdict::Unexplained("only remuda prints help".to_owned())
        }
    })
}

fn explain_their_refusal(
    reference: &mut Reference,
    command: &Command,
    typed: &CommandLine,
    theirs: &Refusal,
) -> Verdict {
    // argparse of older Pythons parses the script's own words, too.
    if let Some(at) = ambiguous_word(command, theirs) {
        let last_option = typed.options.iter().map(|given| given.name.word).max();
        if last_option.is_none_or(|option| option < at) {
            let rest = super::compare_both(reference, &command.without_words(at..at + 1));
            return super::besides(rules::SCRIPT_WORDS, rest);
        }
    }
    if let Some(rest) = without_own_options(command, typed)
        && (theirs.text.contains("unrecognized arguments") || theirs.text.contains("are required"))
    {
        return super::besides(rules::OWN_OPTIONS, super::compare_both(reference, &rest));
    }
    Verdict::Unexplained(format!(
        "only DeepSpeed refuses: {}, typed {:?}",
        theirs.text, typed.options
    ))
}

/// The line without remuda's own options, and with DeepSpeed's spelling of its options. `None` if that
/// changes nothing.
fn without_own_options(command: &Command, typed: &CommandLine) -> Option<Command> {
    let mut argv = command.argv.clone();
    let mut removed = Vec::new();
    for given in &typed.options {
        let name = argv[given.name.word].to_string_lossy();
        let name = name[given.name.start..given.name.end].to_owned();
        let is_theirs = DEEPSPEED_FLAGS.contains(&given.flag.as_str());
        if is_theirs && !name.trim_start_matches("--").contains('-') {
            continue;
        }
        removed.push(given.name.word);
        let value = given.value.as_ref();
        removed.extend(value.map(|(_, place)| place.word).filter(|word| *word != given.name.word));
        if is_theirs {
            let mut word = std::ffi::OsString::from(format!("--{}", given.flag));
            if let Some((value, _)) = value {
                word.push("=");
                word.push(value);
            }
            argv[given.name.word] = word;
            removed.retain(|word| *word != given.name.word);
        }
    }
    removed.sort_unstable();
    for word in removed.into_iter().rev() {
        argv.remove(word);
    }
    (argv != command.argv).then(|| command.with_argv(argv))
}

/// Index of the word that DeepSpeed calls ambiguous.
fn ambiguous_word(command: &Command, theirs: &Refusal) -> Option<usize> {
    let (_, rest) = theirs.text.split_once("ambiguous option: ")?;
    let (word, _) = rest.split_once(" could match")?;
    let head = |word: &[u8]| word.split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
    let is_it = |other: &std::ffi::OsString| head(other.as_bytes()) == head(word.as_bytes());
    command.argv.iter().position(is_it)
}

/// Compares the line without the word that requests help.
fn help_first(reference: &mut Reference, command: &Command, theirs: &Refusal) -> Verdict {
    const ASKS: [&str; 7] = ["-h", "--help", "--hel", "--he", "-qh", "-hq", "-qqh"];
    // For DeepSpeed `-ho` is a request for help with a value.
    if theirs.text.contains("argument -h/--help: ignored explicit argument") {
        return Verdict::by([rules::HELP]);
    }
    let asks = |word: &std::ffi::OsString| ASKS.iter().any(|asks| word == asks);
    let Some(at) = command.argv.iter().position(asks) else {
        return Verdict::Unexplained(format!(
            "only remuda prints help, DeepSpeed: {}",
            theirs.text
        ));
    };
    let rest = super::compare_both(reference, &command.without_words(at..at + 1));
    super::besides(rules::HELP, rest)
}

fn compare_refusals(
    reference: &mut Reference,
    command: &Command,
    ours: &RefusedLine,
    theirs: &Refusal,
) -> Verdict {
    let problem = &ours.findings.diagnostics[0];
    if is_same_reason(problem, theirs) {
        return Verdict::Refused;
    }
    // Each launcher reports the first problem in its own order: without that of DeepSpeed, that of
    // remuda is left.
    if let Some(places) = refused_words(command, theirs) {
        let rest = super::compare_both(reference, &command.without_words(places));
        return match rest {
            Verdict::Same => Verdict::Refused,
            rest => rest,
        };
    }
    if let Some(own) = own_word(command)
        && (theirs.text.contains("unrecognized arguments") && theirs.text.contains(&own)
            || theirs.text.contains("are required")
            // To DeepSpeed, `-h` behind such an option is no value of it: it prints its help.
            || theirs.status == 0)
    {
        return Verdict::by([rules::OWN_OPTIONS]);
    }
    Verdict::Unexplained(format!("remuda: {}, DeepSpeed: {}", show(problem), theirs.text))
}

fn is_same_reason(ours: &Diagnostic, theirs: &Refusal) -> bool {
    let says = |text: &str| theirs.text.contains(text);
    // DeepSpeed's message has `argument -H/--hostfile: …`, that of remuda `--hostfile`.
    let about = theirs.text.split_once("argument ").and_then(|(_, rest)| rest.split_once(": "));
    let about = about.map_or("", |(names, _)| names.rsplit('/').next().unwrap_or_default());
    let of_same = || {
        let flag = about.replace("num_accelerators", "num_gpus");
        !flag.is_empty() && ours.message.contains(&format!("`{flag}`"))
    };
    match ours.code {
        codes::UNKNOWN_OPTION => {
            let word = ours.message.split('`').nth(1).unwrap_or_default();
            says("are required") || says("unrecognized arguments") && says(word)
                || word.contains('h') && says("argument -h/--help: ignored explicit argument")
                // For DeepSpeed `--=` abbreviates every option.
                || says("ambiguous option: --=")
        }
        codes::REMOVED => says("unrecognized arguments") || says("are required"),
        codes::AMBIGUOUS => {
            let word = ours.message.split('`').nth(1).unwrap_or_default();
            says(&format!("ambiguous option: {word}"))
        }
        codes::VALUE_MISSING => {
            (says("expected one argument") || says("invalid choice: ''")) && of_same()
        }
        codes::VALUE_UNWANTED => says("ignored explicit argument"),
        codes::NO_SCRIPT => says("the following arguments are required"),
        codes::BAD_VALUE => (says("invalid int value") || says("invalid choice")) && of_same(),
        _ => false,
    }
}

/// The words that DeepSpeed refuses, if its message names them.
fn refused_words(command: &Command, theirs: &Refusal) -> Option<std::ops::Range<usize>> {
    if let Some(at) = ambiguous_word(command, theirs) {
        return Some(at..at + 1);
    }
    let (_, rest) = theirs.text.split_once("argument ")?;
    let (names, why) = rest.split_once(": ")?;
    let is_name =
        |head: &str| names.split('/').any(|name| name.starts_with(head) && 1 < head.len());
    let text = |at: usize| command.argv.get(at).map(|word| as_python_shows(word));
    (0..command.argv.len()).find_map(|at| {
        let word = text(at)?;
        match word.split_once('=') {
            Some((head, value)) if is_name(head) => (why.contains(&format!("'{value}'"))
                || why.contains("explicit"))
            .then_some(at..at + 1),
            None if is_name(&word) && why.contains("expected one argument") => Some(at..at + 1),
            None if is_name(&word) => {
                why.contains(&format!("'{}'", text(at + 1)?)).then_some(at..at + 2)
            }
            _ => None,
        }
    })
}

/// A word in a message of Python: escaped, with each byte that is not text as half of a surrogate pair.
fn as_python_shows(word: &std::ffi::OsStr) -> String {
    let mut shown = String::new();
    for chunk in word.as_bytes().utf8_chunks() {
        shown.extend(chunk.valid().escape_debug());
        for byte in chunk.invalid() {
            write!(shown, "\\udc{byte:02x}").expect("a string");
        }
    }
    shown
}

/// A word that only remuda accepts.
fn own_word(command: &Command) -> Option<String> {
    const OWN: [&str; 5] = ["--num-", "--dry-run", "--timeout", "--env", "-n"];
    let text = command.argv.iter().map(|word| word.to_string_lossy().into_owned());
    text.into_iter().find(|word| OWN.iter().any(|own| word.starts_with(own)))
}

/// Whether a row of COMPAT.md is about the value that remuda refuses. DeepSpeed may use another value:
/// of several it checks only the last one.
fn explain_our_refusal(
    reference: &mut Reference,
    command: &Command,
    ours: &RefusedLine,
) -> Verdict {
    let problem = &ours.findings.diagnostics[0];
    let mut quoted = problem.message.split('`').skip(1).step_by(2);
    let (option, value) = (quoted.next().unwrap_or_default(), quoted.next().unwrap_or_default());
    // `--opt=VALUE`, `--opt VALUE`, `-HVALUE`.
    let is_typed = |word: &std::ffi::OsString| word.to_string_lossy().ends_with(value);
    let rule = match (problem.code, option) {
        (codes::VALUE_MISSING, "--hostfile" | "--venv_script") => Some(rules::EMPTY_PATHS),
        (codes::BAD_VALUE, "--master_addr") => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:[]%".contains(c);
            let is_name =
                value.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[' || c == ':');
            (!is_name || !value.chars().all(is_plain)).then_some(rules::MASTER_ADDR)
        }
        (codes::BAD_VALUE, "--launcher") => {
            const KNOWN: &[&str] = &["pdsh", "openmpi", "mpich", "impi", "mvapich", "slurm"];
            (!KNOWN.contains(&value.to_lowercase().as_str())).then_some(rules::LAUNCHER_NAMES)
        }
        (codes::BAD_VALUE, "--bind_core_list") => {
            let question = json!({
                "kind": "bind", "cores": 1024, "hardware": "", "list": value, "workers": 1,
            });
            reference.ask(&question).is_err().then_some(rules::EARLY_VALUES)
        }
        (codes::BAD_VALUE, "--launcher_args") => {
            let is_odd = |quote: &char| value.matches(*quote).count() % 2 == 1;
            let is_open = value.ends_with('\\') || ['\'', '"'].iter().any(is_odd);
            is_open.then_some(rules::EARLY_VALUES)
        }
        (codes::BAD_VALUE, "--master_port" | "--ssh_port") => {
            let is_port = value.trim().parse().is_ok_and(|port: i64| (1..=65535).contains(&port));
            (!is_port).then_some(rules::PORTS)
        }
        _ => None,
    };
    match rule {
        Some(rule) if command.argv.iter().any(is_typed) => Verdict::by([rule]),
        _ => Verdict::Unexplained(format!("only remuda refuses: {}", show(problem))),
    }
}

fn same_args(ours: RunArgs, theirs: &Value) -> Read {
    let mut found = Differences::default();
    let text = |name: &str| -> Vec<u8> {
        let encoded = theirs[name].as_str().unwrap_or_default();
        BASE64.decode(encoded).expect("base64")
    };
    let lossy = |name: &str| String::from_utf8_lossy(&text(name)).into_owned();
    let given = |value: Option<&str>, default: &str| value.unwrap_or(default).to_owned();
    let place = &ours.cluster;
    let hostfile = place.hostfile.as_ref().map(|path| path.as_os_str().as_bytes().to_vec());
    found.compare(
        "hostfile",
        &hostfile.unwrap_or_else(|| b"/job/hostfile".to_vec()),
        &text("hostfile"),
    );
    found.compare("include", &given(place.include.as_deref(), ""), &lossy("include"));
    found.compare("exclude", &given(place.exclude.as_deref(), ""), &lossy("exclude"));
    found.compare("num_nodes", &number(place.num_nodes.as_deref()), &lossy("num_nodes"));
    found.compare("num_gpus", &number(place.num_gpus.as_deref()), &lossy("num_gpus"));
    let reach = &place.transport;
    let port = reach.master_port.map_or("29500".to_owned(), |port| port.to_string());
    found.compare("master_port", &port, &lossy("master_port"));
    found.compare("master_addr", &given(reach.master_addr.as_deref(), ""), &lossy("master_addr"));
    found.compare("node_rank", &reach.node_rank.unwrap_or(-1).to_string(), &lossy("node_rank"));
    let ssh_port = reach.ssh_port.map_or(String::new(), |port| port.to_string());
    found.compare("ssh_port", &ssh_port, &lossy("ssh_port"));
    let launcher = match reach.launcher {
        None | Some(LauncherArg::Pdsh) => "pdsh",
        Some(LauncherArg::Ssh) => "ssh",
        Some(LauncherArg::Local) => "local",
        Some(LauncherArg::Auto) => "auto",
        Some(LauncherArg::Manager(manager)) => manager.option,
    };
    found.compare("launcher", &launcher.to_owned(), &lossy("launcher").to_lowercase());
    let workers = &ours.workers;
    for (name, ours) in [
        ("module", ours.program.module),
        ("no_python", ours.program.no_python),
        ("no_local_rank", ours.program.no_local_rank),
        ("no_ssh", reach.no_ssh),
        ("no_ssh_check", reach.no_ssh_check),
        ("force_multi", reach.force_multi),
        ("save_pid", workers.save_pid),
        ("bind_cores_to_rank", workers.bind_cores_to_rank),
        ("quiet", ours.watch.quiet),
    ] {
        found.compare(name, &Some(ours), &theirs[name].as_bool());
    }
    let venv = workers.venv_script.as_ref().map(|path| path.as_os_str().as_bytes().to_vec());
    found.compare("venv_script", &venv.unwrap_or_default(), &text("venv_script"));
    let log = workers.enable_each_rank_log.as_ref().map(|dir| dir.as_bytes().to_vec());
    found.compare(
        "enable_each_rank_log",
        &log.unwrap_or_else(|| b"None".to_vec()),
        &text("enable_each_rank_log"),
    );
    let autotuning = workers.autotuning.map_or("", |how| match how {
        AutotuningArg::Tune => "tune",
        AutotuningArg::Run => "run",
    });
    found.compare("autotuning", &autotuning.to_owned(), &lossy("autotuning"));
    let level = match ours.watch.log_level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warning => "warning",
        LogLevel::Error => "error",
        LogLevel::Critical => "critical",
    };
    found.compare("log_level", &level.to_owned(), &lossy("log_level"));
    let their_words = same_words(&ours, theirs, &text("user_script"), &mut found);
    Read::Parsed(Box::new(ParsedByBoth { args: ours, deepspeed_words: their_words, found }))
}

/// Compares script and arguments; returns those of DeepSpeed.
fn same_words(
    ours: &RunArgs,
    theirs: &Value,
    script: &[u8],
    found: &mut Differences,
) -> Vec<Vec<u8>> {
    let args = theirs["user_args"].as_array().expect("a list").iter();
    let args = args.map(|word| BASE64.decode(word.as_str().expect("a text")).expect("base64"));
    let theirs: Vec<Vec<u8>> = std::iter::once(script.to_vec()).chain(args).collect();
    let ours: Vec<Vec<u8>> =
        ours.program.script_and_args.iter().map(|word| word.as_bytes().to_vec()).collect();
    if without_first_dashes(&ours) == theirs && ours != theirs {
        found.rule(rules::DOUBLE_DASH);
    } else {
        found.compare("words", &ours, &theirs);
    }
    theirs
}

/// The words without one `--` after the script, which every parse of DeepSpeed removes.
fn without_first_dashes(words: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut words = words.to_vec();
    if words.get(1).is_some_and(|word| word == b"--") {
        words.remove(1);
    }
    words
}

fn number(text: Option<&str>) -> String {
    let digits = text.unwrap_or("-1").trim().replace('_', "");
    let digits = digits.strip_prefix('+').unwrap_or(&digits);
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let digits = digits.trim_start_matches('0');
    match digits {
        "" => "0".to_owned(),
        _ => format!("{sign}{digits}"),
    }
}
