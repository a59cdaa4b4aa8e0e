//! What would be started: DeepSpeed's `main` with its processes recorded, and our `--dry-run`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command as Process, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use remuda::inventory::usable_cpus;
use serde_json::{Map, Value, json};

use super::{Command, Differences};
use crate::reference::{Reference, Refusal};
use crate::rules::{self, Rule, Verdict};

/// Slots of a machine without a GPU: what we take when nobody says. They are told to have as many.
const CPU_SLOTS: usize = 2;
/// What the stand-in of `hostname -I` says first.
const HOST_ADDRESS: &str = "10.0.0.7";
const LOOPBACK: &str = "127.0.0.1";
/// Stands for any interpreter.
const PYTHON: &str = "/python";

pub(super) fn compare(reference: &mut Reference, command: &Command) -> Verdict {
    let here = reference.directory().to_owned();
    let hosts = here.join("hosts");
    if command.hostfile.is_empty() {
        let _ = std::fs::remove_file(&hosts);
    } else {
        std::fs::write(&hosts, &command.hostfile).expect("the directory is writable");
    }
    let ours = run(command, &here);
    let theirs = reference.ask(&question(command, &here));
    match (ours.status.code(), theirs) {
        (Some(0), Ok(theirs)) => match serde_json::from_slice::<Value>(&ours.stdout) {
            Ok(plan) => same_plan(command, &plan, &theirs),
            Err(error) => Verdict::Unexplained(format!("no plan: {error}")),
        },
        (Some(0), Err(refusal)) => only_they_refuse(command, &refusal),
        (Some(status), Ok(theirs)) => only_we_refuse(status, &ours, &theirs),
        (Some(status), Err(refusal)) => both_refuse(command, status, &ours, &refusal),
        (None, _) => Verdict::Unexplained(format!("we died: {:?}", ours.status)),
    }
}

#[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
fn run(command: &Command, here: &Path) -> Output {
    let mut process = Process::new(env!("CARGO_BIN_EXE_remuda"));
    process.args(["run", "--accelerator=cpu", "--dry-run", "--json", "--show_env"]);
    process.args(&command.argv).current_dir(here).env_clear();
    process.envs(
        environment(command, here)
            .map(|(name, value)| (name, std::ffi::OsStr::from_bytes(value).to_owned())),
    );
    process.env("PYTHON_EXEC", PYTHON).output().expect("remuda starts")
}

fn environment<'a>(
    command: &'a Command,
    here: &'a Path,
) -> impl Iterator<Item = (&'a str, &'a [u8])> {
    let own: [(&str, &[u8]); 2] =
        [("HOME", here.as_os_str().as_bytes()), ("PATH", b"/usr/bin:/bin")];
    own.into_iter().chain(command.env.iter().map(|(name, value)| (name.as_str(), value.as_slice())))
}

fn question(command: &Command, here: &Path) -> Value {
    let env: Map<String, Value> = environment(command, here)
        .map(|(name, value)| (name.to_owned(), BASE64.encode(value).into()))
        .collect();
    json!({
        "kind": "command",
        "argv": command.argv.iter().map(|word| BASE64.encode(word.as_bytes())).collect::<Vec<_>>(),
        "env": env,
        "cwd": here,
        "devices": usable_cpus().min(CPU_SLOTS),
    })
}

/// `error[S009]: …`: the codes that our screen has.
fn codes_of(output: &Output) -> Vec<String> {
    let screen = String::from_utf8_lossy(&output.stderr);
    let after = screen.split("error[").skip(1);
    after.filter_map(|rest| rest.split_once(']')).map(|(code, _)| code.to_owned()).collect()
}

fn last_line(output: &Output) -> String {
    let screen = String::from_utf8_lossy(&output.stderr);
    screen.lines().find(|line| line.starts_with("error")).unwrap_or_default().to_owned()
}

fn only_we_refuse(status: i32, ours: &Output, theirs: &Value) -> Verdict {
    let codes = codes_of(ours);
    let rule_of = |code: &str| -> Option<Rule> {
        Some(match code {
            "C009" if theirs["backend"] == "autotuning" => rules::AUTOTUNING,
            "C009" => rules::NOT_YET,
            "C006" if last_line(ours).contains("`--launcher_args`") => rules::LAUNCHER_WORDS,
            "C010" => rules::NODE_RANK,
            "H010" | "H024" => rules::MISSING_HOSTFILE,
            "S009" => rules::NUM_NODES,
            "S010" => rules::NUM_GPUS,
            "S007" => rules::NOTHING_LEFT,
            _ => return None,
        })
    };
    let found: Option<Vec<Rule>> = codes.iter().map(|code| rule_of(code)).collect();
    match found {
        Some(found) if !found.is_empty() => Verdict::by(found),
        _ => Verdict::Unexplained(format!("only we refuse, {status}: {}", last_line(ours))),
    }
}

/// They take devices from the variable; without a GPU we do not look at it.
fn names_devices(command: &Command) -> bool {
    let names =
        |(name, value): &(String, Vec<u8>)| name == "CUDA_VISIBLE_DEVICES" && !value.is_empty();
    command.env.iter().any(names)
}

fn only_they_refuse(command: &Command, refusal: &Refusal) -> Verdict {
    if names_devices(command) {
        return Verdict::by([rules::CPU_SLOTS]);
    }
    if command.argv.iter().any(|word| word == "--") && refusal.text.starts_with("launch.py: error")
    {
        return Verdict::by([rules::DOUBLE_DASH]);
    }
    Verdict::Unexplained(format!("only they refuse: {}", refusal.text))
}

fn both_refuse(command: &Command, status: i32, ours: &Output, refusal: &Refusal) -> Verdict {
    let codes = codes_of(ours);
    let any_of = |known: &[&str]| known.iter().any(|known| codes.iter().any(|code| code == known));
    // What is not there is refused before anything else is looked at; so is a missing hostfile.
    let is_early = any_of(&["C009", "C010", "H010", "H024"]);
    if is_early || last_line(ours).contains("`--launcher_args`") {
        return Verdict::Refused;
    }
    let says = |text: &str| refusal.text.contains(text);
    if says("invalid literal") && names_devices(command) {
        return Verdict::by([rules::CPU_SLOTS]);
    }
    let is_same = if says("No such file or directory") {
        last_line(ours).contains("name of the program is empty")
    } else if says("Hostfile ") {
        codes.iter().any(|code| code.starts_with('H'))
    } else if says("mutually exclusive") {
        any_of(&["S006", "S008"])
    } else if says("with include/exclude") {
        // What the variable leaves is an `--include` of theirs; ours is counted, and 0 of them is none.
        let is_filtered = command.env.iter().any(|(name, _)| name == "CUDA_VISIBLE_DEVICES");
        any_of(&["S008", "S006"]) || is_filtered && any_of(&["S010"])
    } else if says("not found in hostfile")
        || says("No slot")
        || says("invalid literal")
        || says("too many values")
    {
        any_of(&["S001", "S002", "S003", "S004", "S005"])
    } else if says("no extra nodes available") {
        any_of(&["S009"])
    } else if says("list index out of range") {
        any_of(&["S007"])
    } else if says("--node_rank is not set correctly") || says("out of memory") {
        !codes.is_empty() || last_line(ours).contains("above the limit")
    } else if says("'--no_python' flag") {
        any_of(&["C007"])
    } else {
        false
    };
    if is_same {
        return Verdict::Refused;
    }
    Verdict::Unexplained(format!("we say {status}: {}, they {}", last_line(ours), refusal.text))
}

/// The same workers on the same nodes.
fn same_plan(command: &Command, plan: &Value, theirs: &Value) -> Verdict {
    let mut found = Differences::default();
    if theirs["backend"] != "local" && theirs["backend"] != "pdsh" {
        return Verdict::Unexplained(format!("they start {}", theirs["backend"]));
    }
    if theirs["plain"] == false {
        found.rule(rules::QUOTING);
    }
    let nodes = theirs["nodes"].as_array().expect("a list");
    let ours = plan["nodes"].as_array().expect("a list");
    // With --no_ssh each node starts its own workers; we plan all of them everywhere.
    if !is_without_ssh(command) {
        found.compare("nodes", &ours.len(), &nodes.len());
    }
    for theirs in nodes {
        let workers = theirs.as_array().expect("a list");
        let rank = workers.first().and_then(|first| first["env"]["CROSS_RANK"].as_str());
        let rank = rank.and_then(|rank| rank.parse::<usize>().ok()).unwrap_or(0);
        let Some(ours) = ours.get(rank).or_else(|| ours.first()) else { continue };
        let our_workers = ours["workers"].as_array().expect("a list");
        if our_workers.len() != workers.len() && names_devices(command) {
            return Verdict::by([rules::CPU_SLOTS]);
        }
        found.compare("workers", &our_workers.len(), &workers.len());
        for (ours, theirs) in our_workers.iter().zip(workers) {
            same_worker(command, ours, theirs, &mut found);
            same_address(command, ours, theirs, &mut found);
        }
    }
    found.verdict()
}

fn is_without_ssh(command: &Command) -> bool {
    command.argv.iter().any(|word| word.as_bytes().starts_with(b"--no_s"))
}

fn env(side: &Value, name: &str) -> Option<String> {
    side["env"][name].as_str().map(str::to_owned)
}

fn same_worker(command: &Command, ours: &Value, theirs: &Value, found: &mut Differences) {
    for name in "RANK WORLD_SIZE LOCAL_SIZE CROSS_RANK CROSS_SIZE CUDA_VISIBLE_DEVICES".split(' ') {
        found.compare(name, &env(ours, name), &env(theirs, name));
    }
    // Unset until the agents have answered: 29500 unless it is taken, an address of node 0.
    let port = env(ours, "MASTER_PORT").unwrap_or_else(|| "29500".to_owned());
    found.compare("MASTER_PORT", &Some(port), &env(theirs, "MASTER_PORT"));
    let (mine, yours) = (env(ours, "LOCAL_RANK"), env(theirs, "LOCAL_RANK"));
    let (mine, yours) = (mine.expect("a rank"), yours.expect("a rank"));
    if mine != yours {
        found.rule(rules::LOCAL_RANK);
    }
    let yours = format!("--local_rank={yours}").into_bytes();
    let theirs: Vec<Vec<u8>> = words(&theirs["argv"])
        .into_iter()
        .map(|word| if word == yours { format!("--local_rank={mine}").into_bytes() } else { word })
        .collect();
    same_words(command, &words(&ours["argv"]), &theirs, found);
}

/// Where rank 0 listens, in the eyes of one worker.
fn same_address(command: &Command, ours: &Value, theirs: &Value, found: &mut Differences) {
    let ours = env(ours, "MASTER_ADDR").unwrap_or_else(|| HOST_ADDRESS.to_owned());
    let theirs = env(theirs, "MASTER_ADDR").expect("they always have one");
    let asked_node_0 = theirs == HOST_ADDRESS && ours == LOOPBACK;
    if ours == theirs || asked_node_0 {
        return;
    }
    if theirs == LOOPBACK {
        found.rule(rules::MASTER_ADDR);
    } else if theirs == HOST_ADDRESS && is_host(command, &ours) && is_without_ssh(command) {
        found.rule(rules::NO_SSH);
    } else {
        found.compare("MASTER_ADDR", &ours, &theirs);
    }
}

/// Whether a line of the hostfile begins with this name.
fn is_host(command: &Command, name: &str) -> bool {
    let text = String::from_utf8_lossy(&command.hostfile);
    text.lines().any(|line| line.split_whitespace().next() == Some(name))
}

fn same_words(command: &Command, ours: &[Vec<u8>], theirs: &[Vec<u8>], found: &mut Differences) {
    let ours: Vec<Vec<u8>> = ours
        .iter()
        .map(|word| if word == PYTHON.as_bytes() { b"PYTHON".to_vec() } else { word.clone() })
        .collect();
    // What stands behind `--` they read a second time, as options of the launcher of the node.
    if ours != theirs && command.argv.iter().any(|word| word == "--") {
        found.rule(rules::DOUBLE_DASH);
    } else {
        found.compare("argv", &shown(&ours), &shown(theirs));
    }
}

fn shown(words: &[Vec<u8>]) -> Vec<String> {
    words.iter().map(|word| word.escape_ascii().to_string()).collect()
}

/// Words of a worker, theirs in base64, ours as text or as an object with base64.
fn words(argv: &Value) -> Vec<Vec<u8>> {
    let word = |word: &Value| match (word.as_str(), word["base64"].as_str()) {
        (_, Some(encoded)) => BASE64.decode(encoded).expect("base64"),
        (Some(text), None) => text.as_bytes().to_vec(),
        (None, None) => Vec::new(),
    };
    argv.as_array().expect("a list").iter().map(word).collect()
}
