//! What each option was understood to be.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::os::unix::ffi::OsStrExt;

use remuda::cli::line::{Refused, codes};
use remuda::cli::run::{Parsed, RunArgs, parse};
use remuda::cli::values::{AutotuningArg, LauncherArg, LogLevel};
use serde_json::{Value, json};

use super::{Command, Differences, show};
use crate::reference::{Reference, Refusal};
use crate::rules::{self, Verdict};

pub(super) fn compare(reference: &mut Reference, command: &Command) -> Verdict {
    let words: Vec<String> =
        command.argv.iter().map(|word| BASE64.encode(word.as_bytes())).collect();
    let theirs = reference.ask(&json!({ "kind": "parse", "argv": words }));
    match (parse("remuda run", command.argv.clone()), theirs) {
        (Ok(Parsed::Run(ours, _)), Ok(theirs)) => same_args(&ours, &theirs["args"]),
        // argparse looks at the script's own words, too.
        (Ok(Parsed::Run(..)), Err(theirs)) if theirs.text.contains("ambiguous option") => {
            Verdict::by([rules::SCRIPT_WORDS])
        }
        (Ok(Parsed::Asked(_)), Err(theirs)) if theirs.status == 0 => Verdict::Refused,
        (Err(ours), Err(theirs)) if theirs.status == 2 && !has_own_option(command) => {
            both_refuse(&ours, &theirs)
        }
        (Err(ours), Ok(_)) => only_we_refuse(&ours),
        (Ok(Parsed::Asked(_)), Err(_)) => Verdict::by([rules::HELP]),
        (_, Err(_)) if has_own_option(command) => Verdict::by([rules::OWN_OPTIONS]),
        (ours, theirs) => Verdict::Unexplained(format!("we {}, they {theirs:?}", outcome(&ours))),
    }
}

/// What only we understand.
fn has_own_option(command: &Command) -> bool {
    const OWN: [&[u8]; 5] = [b"--num-", b"--dry-run", b"--timeout", b"--env", b"-n"];
    command.argv.iter().any(|word| OWN.iter().any(|own| word.as_bytes().starts_with(own)))
}

fn outcome(ours: &Result<Parsed, Refused>) -> String {
    match ours {
        Ok(Parsed::Run(_, typed)) => format!("accept {:?}", typed.options),
        Ok(Parsed::Asked(_)) => "give help".to_owned(),
        Err(refused) => show(&refused.findings.diagnostics[0]),
    }
}

fn both_refuse(ours: &Refused, theirs: &Refusal) -> Verdict {
    let code = ours.findings.diagnostics[0].code;
    let says = |text: &str| theirs.text.contains(text);
    let is_same = match code {
        // They look for abbreviations first, and convert values on their way through the line.
        _ if says("ambiguous option") || says("invalid") => true,
        codes::UNKNOWN_OPTION => {
            says("unrecognized arguments") || says("are required") || says("ambiguous option: --=")
        }
        codes::AMBIGUOUS => says("ambiguous option"),
        // They look at all words for abbreviations before they look at any value.
        codes::VALUE_MISSING => {
            says("expected one argument") || says("ambiguous option") || says("invalid choice: ''")
        }
        codes::VALUE_UNWANTED => says("ignored explicit argument"),
        // They stumble over a bad value on their way to the script that is not there.
        codes::NO_SCRIPT => says("the following arguments are required") || says("invalid"),
        codes::BAD_VALUE => says("invalid int value") || says("invalid choice"),
        codes::REMOVED => says("unrecognized arguments") || says("are required"),
        _ => false,
    };
    if is_same {
        return Verdict::Refused;
    }
    Verdict::Unexplained(format!(
        "we say {}, they {}",
        show(&ours.findings.diagnostics[0]),
        theirs.text
    ))
}

fn only_we_refuse(ours: &Refused) -> Verdict {
    let problem = &ours.findings.diagnostics[0];
    let is_about = |option: &str| problem.message.contains(option);
    if problem.code == codes::VALUE_MISSING && (is_about("--hostfile") || is_about("--venv_script"))
    {
        return Verdict::by([rules::EMPTY_PATHS]);
    }
    if problem.code == codes::BAD_VALUE && is_about("--master_addr") {
        return Verdict::by([rules::MASTER_ADDR]);
    }
    if problem.code == codes::BAD_VALUE && is_about("--launcher`") {
        return Verdict::by([rules::LAUNCHER_NAMES]);
    }
    if problem.code == codes::BAD_VALUE
        && (is_about("--bind_core_list") || is_about("--launcher_args"))
    {
        return Verdict::by([rules::EARLY_VALUES]);
    }
    if problem.code == codes::BAD_VALUE && (is_about("--master_port") || is_about("--ssh_port")) {
        return Verdict::by([rules::PORTS]);
    }
    Verdict::Unexplained(format!("only we refuse: {}", show(problem)))
}

fn same_args(ours: &RunArgs, theirs: &Value) -> Verdict {
    let mut found = Differences::default();
    let text = |name: &str| -> Vec<u8> {
        let encoded = theirs[name].as_str().unwrap_or_default();
        BASE64.decode(encoded).expect("base64")
    };
    let lossy = |name: &str| String::from_utf8_lossy(&text(name)).into_owned();
    let given = |value: Option<&str>, default: &str| value.unwrap_or(default).to_owned();
    let place = &ours.place;
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
    let reach = &place.reach;
    let port = reach.master_port.map_or("29500".to_owned(), |port| port.to_string());
    found.compare("master_port", &port, &lossy("master_port"));
    found.compare("master_addr", &given(reach.master_addr.as_deref(), ""), &lossy("master_addr"));
    found.compare("node_rank", &reach.node_rank.unwrap_or(-1).to_string(), &lossy("node_rank"));
    let ssh_port = reach.ssh_port.map_or(String::new(), |port| port.to_string());
    found.compare("ssh_port", &ssh_port, &lossy("ssh_port"));
    let launcher = match reach.launcher {
        None | Some(LauncherArg::Ssh) => "pdsh",
        Some(LauncherArg::Local) => "local",
        Some(LauncherArg::NotThere(name)) => name,
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
    same_words(ours, theirs, &text("user_script"), &mut found);
    found.verdict()
}

/// The script and its arguments.
fn same_words(ours: &RunArgs, theirs: &Value, script: &[u8], found: &mut Differences) {
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
}

/// One `--` behind the script is swallowed by every parse of theirs.
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
