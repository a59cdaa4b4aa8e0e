//! Comparison of plans: DeepSpeed's `main` with recorded processes, and `remuda run --dry-run`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::environment::{self, Promise, Source};
use super::parsed::ParsedByBoth;
use super::refused::{self, OurRefusal, Reparsed, reparsed};
use super::{Command, Differences, besides, compare_both, devices};
use crate::conformance::machine::Machine;
use crate::conformance::reference::Reference;
use crate::conformance::rules::{self, Verdict};

/// First address that the substitute of `hostname -I` prints.
const HOST_ADDRESS: &str = "10.0.0.7";
const LOOPBACK: &str = "127.0.0.1";
/// Stands for any interpreter.
const PYTHON: &str = "/python";
/// Default number of workers on a machine without a GPU.
const CPU_SLOTS: usize = 2;

pub(super) fn compare(reference: &mut Reference, command: &Command, read: ParsedByBoth) -> Verdict {
    let mut command = command.clone();
    if matches!(reference.machine(), Machine::Bare) {
        command = command.without_env(devices::VARIABLE).without_env("DS_ACCELERATOR");
        command.env.push(("DS_ACCELERATOR".to_owned(), b"cpu".to_vec()));
    }
    let here = reference.directory().to_owned();
    command.write_files(&here);
    let gpus = reference.machine().gpus();
    let output = run(reference.machine(), &command, &here);
    let theirs = reference.ask(&question(&command, &here, gpus));
    let is_nothing = theirs.as_ref().is_ok_and(|answer| answer["hosts"] == json!([""]));
    let is_refused = theirs.as_ref().is_ok_and(|answer| {
        let mut nodes = answer["nodes"].as_array().into_iter().flatten();
        answer["backend"] == "pdsh" && nodes.all(|node| node["typed"].is_null())
    });
    let ours = OurRefusal {
        command: &command,
        args: &read.args,
        output: &output,
        gpus,
        has_no_deepspeed_nodes: is_nothing,
        is_refused_by_nodes: is_refused,
    };
    match (output.status.code(), theirs) {
        (Some(0), Ok(theirs)) => match serde_json::from_slice::<Value>(&output.stdout) {
            Ok(plan) => Case::new(reference, &command, read, here, &theirs).compare(&plan, &theirs),
            Err(error) => Verdict::Unexplained(format!("no plan: {error}")),
        },
        (Some(0), Err(refusal)) => {
            refused::explain_their_refusal(reference, &command, &read, &refusal, gpus)
        }
        (Some(_), Ok(_)) => refused::explain_our_refusal(&ours),
        (Some(_), Err(refusal)) => refused::compare_refusals(&ours, &refusal),
        (None, _) => Verdict::Unexplained(format!("remuda was killed: {:?}", output.status)),
    }
}

fn run(machine: &Machine, command: &Command, here: &Path) -> Output {
    let mut process = machine.command(env!("CARGO_BIN_EXE_remuda"), here);
    process.args(["run", "--dry-run", "--json", "--show_env", "--python", PYTHON]);
    process.args(&command.argv);
    let home = here.join("home");
    let variables = environment(command, &home);
    process.envs(variables.map(|(name, value)| (name, OsStr::from_bytes(value).to_owned())));
    process.output().expect("remuda starts")
}

fn environment<'a>(
    command: &'a Command,
    home: &'a Path,
) -> impl Iterator<Item = (&'a str, &'a [u8])> {
    let own: [(&str, &[u8]); 2] =
        [("HOME", home.as_os_str().as_bytes()), ("PATH", b"/usr/bin:/bin")];
    own.into_iter().chain(command.env.iter().map(|(name, value)| (name.as_str(), value.as_slice())))
}

fn question(command: &Command, here: &Path, gpus: usize) -> Value {
    let home = here.join("home");
    let env: Map<String, Value> = environment(command, &home)
        .map(|(name, value)| (name.to_owned(), BASE64.encode(value).into()))
        .collect();
    json!({
        "kind": "command",
        "argv": command.argv.iter().map(|word| BASE64.encode(word.as_bytes())).collect::<Vec<_>>(),
        "env": env,
        "cwd": here,
        "devices": gpus,
    })
}

/// A line for which both launchers make a plan.
struct Case<'a> {
    reference: &'a mut Reference,
    command: &'a Command,
    read: ParsedByBoth,
    here: PathBuf,
    /// Script and arguments as DeepSpeed's second parser reads them.
    reparsed: Option<Reparsed>,
    /// Variables that DeepSpeed exports to other nodes, before any shell.
    exported: Value,
    is_local: bool,
    /// Whether the devices were compared and differ.
    has_other_devices: bool,
}

impl<'a> Case<'a> {
    fn new(
        reference: &'a mut Reference,
        command: &'a Command,
        read: ParsedByBoth,
        here: PathBuf,
        theirs: &Value,
    ) -> Self {
        let reparsed = reparsed(reference, &read.deepspeed_words);
        let is_local = theirs["backend"] == "local";
        Self {
            reference,
            command,
            read,
            here,
            reparsed,
            exported: theirs["exported"].clone(),
            is_local,
            has_other_devices: false,
        }
    }

    /// Compares nodes and workers.
    fn compare(mut self, plan: &Value, theirs: &Value) -> Verdict {
        if theirs["backend"] != "local" && theirs["backend"] != "pdsh" {
            // It starts every rank with that command, remuda one agent a node.
            return Verdict::by([rules::PROCESS_MANAGERS]);
        }
        let nodes = theirs["nodes"].as_array().expect("a list");
        let ours = plan["nodes"].as_array().expect("a list");
        let mut found = std::mem::take(&mut self.read.found);
        found.compare("nodes", &ours.len(), &nodes.len());
        if let Some(verdict) = self.other_devices(ours, nodes, &mut found) {
            return verdict;
        }
        for (ours, theirs) in ours.iter().zip(nodes) {
            // DeepSpeed starts on this machine, whatever the name of the host is.
            if self.is_local
                && !self.read.args.cluster.transport.no_ssh
                && ours["host"] != "localhost"
            {
                found.rule(rules::ONE_HOST);
            }
            if self.is_local {
                self.same_node(ours, theirs, &mut found);
            } else {
                self.same_remote_node(ours, theirs, &mut found);
            }
        }
        found.verdict()
    }

    /// Compares the slots of this machine if there is no hostfile. Returns a verdict if nothing else can
    /// be compared.
    fn other_devices(
        &mut self,
        ours: &[Value],
        theirs: &[Value],
        found: &mut Differences,
    ) -> Option<Verdict> {
        if self.command.pool(&self.read.args).is_some() {
            return None;
        }
        let shown = |workers: &Value| env(&workers[0], devices::VARIABLE).unwrap_or_default();
        let of_node =
            |node: &Value| if self.is_local { node.clone() } else { node["typed"].clone() };
        let (mine, yours) = (shown(&ours.first()?["workers"]), shown(&of_node(theirs.first()?)));
        if mine == yours {
            return None;
        }
        if devices::is_cpu(self.command) {
            return Some(self.other_sockets());
        }
        let gpus = self.reference.machine().gpus();
        let mask = devices::mask(self.command, &self.read.args)?;
        let question = question(&self.command.without_env(devices::VARIABLE), &self.here, gpus);
        let unmasked = self.reference.ask(&question).ok();
        let unmasked = unmasked.map(|answer| shown(&of_node(&answer["nodes"][0])));
        self.has_other_devices = true;
        let args = &self.read.args;
        match devices::rule(args, &mask, gpus, &mine, &yours, unmasked.as_deref()) {
            Some(rule) => found.rule(rule),
            None => found.unexplained(format!("devices: remuda {mine}, DeepSpeed {yours}")),
        }
        let count = |text: &str| text.split(',').count();
        (count(&mine) != count(&yours)).then(|| std::mem::take(found).verdict())
    }

    /// Compares with the same number of slots: DeepSpeed has a slot for each socket, or those of
    /// `CUDA_VISIBLE_DEVICES`.
    fn other_sockets(&mut self) -> Verdict {
        let is_set = self.command.env("LOCAL_SIZE").is_some_and(|size| size != b"0");
        let mut other = self.command.without_env(devices::VARIABLE);
        if !is_set {
            let count = remuda::inventory::usable_cpus().min(CPU_SLOTS);
            other = other.without_env("LOCAL_SIZE");
            other.env.push(("LOCAL_SIZE".to_owned(), count.to_string().into_bytes()));
        } else if self.command.env(devices::VARIABLE).is_none() {
            return Verdict::Unexplained("DeepSpeed has other slots".to_owned());
        }
        besides(rules::CPU_SLOTS, compare_both(self.reference, &other))
    }

    /// Compares a node that pdsh reaches: with the result of its shell, and if that differs, with the
    /// command before the shell.
    fn same_remote_node(&self, ours: &Value, theirs: &Value, found: &mut Differences) {
        // If the script is a script only because of the first `--`, the second parser finds none.
        if self.reparsed.is_none()
            && theirs["typed"].is_null()
            && self.command.argv.iter().any(|word| word == "--")
        {
            found.rule(rules::DOUBLE_DASH);
            return;
        }
        let mut shelled = Differences::default();
        if theirs["shell"].is_null() {
            shelled.unexplained("DeepSpeed starts nothing".to_owned());
        } else {
            self.same_node(ours, &theirs["shell"], &mut shelled);
        }
        if shelled.unexplained.is_empty() {
            found.rules.extend(shelled.rules);
            return;
        }
        let mut typed = Differences::default();
        self.same_node(ours, &theirs["typed"], &mut typed);
        typed.rules.extend(environment::rules_of_broken_shell(self.command, &self.exported));
        let changes = |word: &Vec<u8>| {
            word.is_empty() || word.contains(&b'%') || !environment::is_plain(word)
        };
        if self.read.deepspeed_words.iter().any(changes) {
            typed.rule(rules::QUOTING);
        }
        if typed.rules.is_empty() {
            typed.unexplained.extend(shelled.unexplained);
        }
        found.rules.extend(typed.rules);
        found.unexplained.extend(typed.unexplained);
    }

    fn same_node(&self, ours: &Value, theirs: &Value, found: &mut Differences) {
        let mine = ours["workers"].as_array().expect("a list");
        let Some(yours) = theirs.as_array() else {
            found.unexplained("DeepSpeed's node refuses".to_owned());
            return;
        };
        found.compare("workers", &mine.len(), &yours.len());
        for (local, (ours, theirs)) in mine.iter().zip(yours).enumerate() {
            self.same_worker(local, ours, theirs, found);
            self.same_address(ours, theirs, found);
        }
        if let ([mine, ..], [yours, ..]) = (&mine[..], &yours[..]) {
            let is_here =
                ours["host"] == "localhost" && !self.read.args.cluster.transport.force_multi;
            let is_alone = env(mine, "CROSS_SIZE").as_deref() == Some("1");
            let is_of_one = is_alone && (is_here || self.read.args.cluster.transport.no_ssh);
            let promise = if is_of_one {
                self.command.variables_of_files()
            } else {
                self.command.variables_of_nodes(&self.here)
            };
            self.same_variables(&promise, mine, yours, found);
        }
    }

    fn same_worker(&self, local: usize, ours: &Value, theirs: &Value, found: &mut Differences) {
        for name in ["RANK", "WORLD_SIZE", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"] {
            found.compare(name, &env(ours, name), &env(theirs, name));
        }
        if !self.has_other_devices {
            let name = devices::VARIABLE;
            found.compare(name, &env(ours, name), &env(theirs, name));
        }
        // Unset until the agents have answered: 29500 unless it is in use.
        let port = env(ours, "MASTER_PORT").unwrap_or_else(|| "29500".to_owned());
        let theirs_port = env(theirs, "MASTER_PORT");
        if theirs_port.as_deref() != Some(&*port) && self.has_reparsed_options() {
            found.rule(rules::DOUBLE_DASH);
        } else {
            found.compare("MASTER_PORT", &Some(port), &theirs_port);
        }
        let number = |name: &str| env(theirs, name).and_then(|text| text.parse::<usize>().ok());
        let (mine, yours) = (env(ours, "LOCAL_RANK"), number("LOCAL_RANK"));
        found.compare("LOCAL_RANK", &mine, &Some(local.to_string()));
        if yours != Some(local) {
            let rotated = number("RANK").zip(number("LOCAL_SIZE")).map(|(rank, size)| rank % size);
            found.compare("LOCAL_RANK of DeepSpeed", &rotated, &yours);
            found.rule(rules::LOCAL_RANK);
        }
        let yours = format!("--local_rank={}", yours.unwrap_or_default()).into_bytes();
        let mine = format!("--local_rank={local}").into_bytes();
        let theirs: Vec<Vec<u8>> = words(&theirs["argv"])
            .into_iter()
            .map(|word| if word == yours { mine.clone() } else { word })
            .collect();
        self.same_words(&words(&ours["argv"]), &theirs, found);
    }

    /// Compares the command of a worker. It lacks the words that DeepSpeed's second parser has removed.
    fn same_words(&self, ours: &[Vec<u8>], theirs: &[Vec<u8>], found: &mut Differences) {
        let ours: Vec<Vec<u8>> = ours
            .iter()
            .map(|word| if word == PYTHON.as_bytes() { b"PYTHON".to_vec() } else { word.clone() })
            .collect();
        if ours == theirs {
            return;
        }
        let typed = &self.read.args.program.script_and_args;
        let typed: Vec<Vec<u8>> = typed.iter().map(|word| word.as_bytes().to_vec()).collect();
        // The words before the script, and those between it and its arguments.
        let (head, rest) = match ours.len().checked_sub(typed.len() - 1) {
            Some(at) => ours[..at].split_at(at - 1 - usize::from(ours[at - 1] != typed[0])),
            None => (&ours[..], &[][..]),
        };
        let expected =
            self.reparsed.as_ref().filter(|parsed| parsed.words != typed).map(|parsed| {
                let python = if parsed.has_python { head } else { &[] };
                let module = if parsed.is_module { &[b"-m".to_vec()][..] } else { &[] };
                let rank = rest.get(1..).filter(|_| parsed.has_local_rank).unwrap_or_default();
                [python, module, &parsed.words[..1], rank, &parsed.words[1..]].concat()
            });
        if expected.as_deref() == Some(theirs) {
            found.rule(rules::DOUBLE_DASH);
        } else {
            found.compare("argv", &shown(&ours), &shown(theirs));
        }
    }

    /// Whether DeepSpeed's second parser takes words behind `--` for options of its own.
    fn has_reparsed_options(&self) -> bool {
        let typed = &self.read.args.program.script_and_args;
        self.reparsed.as_ref().is_some_and(|parsed| parsed.words.len() < typed.len())
    }

    /// Compares the address of rank 0 in one worker; unset until node 0 has been asked.
    fn same_address(&self, ours: &Value, theirs: &Value, found: &mut Differences) {
        let reach = &self.read.args.cluster.transport;
        let pool = self.command.pool(&self.read.args);
        let ours = env(ours, "MASTER_ADDR").unwrap_or_else(|| HOST_ADDRESS.to_owned());
        let theirs = env(theirs, "MASTER_ADDR").unwrap_or_default();
        let given = reach.master_addr.clone().filter(|address| !address.is_empty());
        let is_first = |name: &str| pool.iter().flatten().any(|(host, _)| host == name);
        match (ours.as_str(), theirs.as_str()) {
            (ours, theirs) if ours == theirs => {}
            (ours, LOOPBACK) if pool.is_none() && given.as_deref() == Some(ours) => {
                found.rule(rules::MASTER_ADDR);
            }
            (HOST_ADDRESS, LOOPBACK) if pool.is_none() && reach.force_multi => {
                found.rule(rules::LOOPBACK);
            }
            (LOOPBACK, HOST_ADDRESS)
                if given.is_none() && (is_first("localhost") || reach.no_ssh) =>
            {
                found.rule(rules::LOOPBACK);
            }
            (ours, HOST_ADDRESS) if reach.no_ssh && given.is_none() && is_first(ours) => {
                found.rule(rules::NO_SSH);
            }
            (_, _) if self.has_reparsed_options() => found.rule(rules::DOUBLE_DASH),
            (ours, theirs) => found.compare("MASTER_ADDR", &ours, &theirs),
        }
    }

    /// Variables of env files, and those that travel.
    fn same_variables(
        &self,
        promise: &Promise,
        ours: &Value,
        theirs: &Value,
        found: &mut Differences,
    ) {
        for (name, (value, source)) in promise {
            let mine = bytes(&ours["env"][name]);
            found.compare(name, &mine.as_deref(), &Some(&value[..]));
            let yours = bytes(&theirs["env"][name]);
            if mine == yours {
                continue;
            }
            let rule = if self.is_local {
                let is_new = matches!(source, Source::File(_)) || name == "PYTHONPATH";
                let is_old = yours.as_deref() == self.command.env(name);
                (is_new && is_old).then_some(rules::ENV_MODES)
            } else {
                let raw = bytes(&self.exported[name]);
                environment::rule_of_shell(value, raw.as_deref(), source)
            };
            match rule {
                Some(rule) => found.rule(rule),
                None => found.compare(name, &mine, &yours),
            }
        }
        // Variables that only DeepSpeed exports.
        for (name, _) in self.exported.as_object().into_iter().flatten() {
            let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if is_name && !promise.contains_key(name) {
                found.unexplained(format!("only DeepSpeed exports {name}"));
            }
        }
    }
}

/// A variable of a worker: base64 in DeepSpeed's answer, text in the plan of remuda.
fn env(side: &Value, name: &str) -> Option<String> {
    let bytes = bytes(&side["env"][name])?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Bytes of a value: an object with base64, or text.
fn bytes(value: &Value) -> Option<Vec<u8>> {
    match (value.as_str(), value["base64"].as_str()) {
        (_, Some(encoded)) => Some(BASE64.decode(encoded).expect("base64")),
        (Some(text), None) => Some(text.as_bytes().to_vec()),
        (None, None) => None,
    }
}

fn words(argv: &Value) -> Vec<Vec<u8>> {
    let words = argv.as_array().expect("a list").iter();
    words.map(|word| bytes(word).unwrap_or_default()).collect()
}

fn shown(words: &[Vec<u8>]) -> Vec<String> {
    words.iter().map(|word| word.escape_ascii().to_string()).collect()
}
