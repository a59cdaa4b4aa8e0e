//! Lines for which one launcher or both make no plan. A reason of remuda is accepted only if the case
//! has it.

use std::process::Output;

use remuda::cli::run::RunArgs;
use serde_json::json;

use super::devices::{self, number};
use super::environment::{Line, read};
use super::parsed::ParsedByBoth;
use super::{Command, Differences, besides, compare_both};
use crate::conformance::reference::{Reference, Refusal};
use crate::conformance::rules::{self, Rule, Verdict};

/// Slots of a host at most.
const SLOTS_MAX: i64 = 1024;

/// The codes of remuda's screen: `error[S009]: …`.
fn reasons(output: &Output) -> Vec<String> {
    let screen = String::from_utf8_lossy(&output.stderr);
    let reason = |line: &str| Some(line.strip_prefix("error[")?.split_once(']')?.0.to_owned());
    screen.lines().filter_map(reason).collect()
}

fn first_line(output: &Output) -> String {
    let screen = String::from_utf8_lossy(&output.stderr);
    screen.lines().find(|line| line.starts_with("error")).unwrap_or_default().to_owned()
}

/// A line that remuda refuses.
pub(super) struct OurRefusal<'a> {
    pub(super) command: &'a Command,
    pub(super) args: &'a RunArgs,
    pub(super) output: &'a Output,
    pub(super) gpus: usize,
    /// Whether the plan of DeepSpeed has no nodes.
    pub(super) has_no_deepspeed_nodes: bool,
    /// Whether DeepSpeed's launcher of each node refuses its line.
    pub(super) is_refused_by_nodes: bool,
}

impl OurRefusal<'_> {
    /// The row of COMPAT.md for a reason, if the case has what the row is about.
    fn rule(&self, reason: &str) -> Option<Rule> {
        let place = &self.args.cluster;
        let is_missing =
            |what: fn(&std::path::Path) -> bool| place.hostfile.as_deref().is_some_and(what);
        match reason {
            "C009" if self.args.workers.autotuning.is_some() => Some(rules::AUTOTUNING),
            "C006" if first_line(self.output).contains("`--launcher_args`") => {
                (!self.has_supported_words()).then_some(rules::LAUNCHER_WORDS)
            }
            "C011" if first_line(self.output).contains("the script is an empty word") => {
                let script = self.args.program.script_and_args.first()?;
                script.is_empty().then_some(rules::EMPTY_SCRIPT)
            }
            "C011" if first_line(self.output).contains(" not a script") => {
                let script = self.args.program.script_and_args.first()?;
                (!std::path::Path::new(script).exists()).then_some(rules::FIRST_WORD)
            }
            // DeepSpeed does not check the program before it needs it.
            "C007" if self.args.program.module && self.args.program.no_python => self.rule("C009"),
            "C010" => {
                let is_given = place.transport.node_rank.is_some_and(|rank| rank != -1);
                (is_given && !place.transport.no_ssh).then_some(rules::NODE_RANK)
            }
            "H010" => is_missing(|path| !path.exists()).then_some(rules::MISSING_HOSTFILE),
            "H024" => is_missing(std::path::Path::is_dir).then_some(rules::MISSING_HOSTFILE),
            "S007" if self.has_no_deepspeed_nodes => Some(rules::NOTHING_LEFT),
            "S001" | "S002" | "S007" => self.rule_of_hidden_devices(),
            "S009" => self.is_bad_number_of_nodes().then_some(rules::NUM_NODES),
            "S010" => self.is_bad_number_of_gpus().then_some(rules::NUM_GPUS),
            "E001" | "E002" | "E006" | "E007" => self.has_line(rules::ENV_SYNTAX),
            "E003" => self.has_line(rules::ENV_RESERVED),
            // pdsh drops an empty word.
            "M008" if first_line(self.output).contains("name of the program is empty") => {
                let script = self.args.program.script_and_args.first()?;
                script.is_empty().then_some(rules::QUOTING)
            }
            "M004" => self.too_many_gpus(),
            "M003" => {
                let mask = devices::mask(self.command, self.args)?;
                let is_beside = devices::is_beside(self.args);
                let rule = if is_beside { rules::HIDDEN_DEVICES } else { rules::VISIBLE_DEVICES };
                devices::left(&mask, self.gpus).is_empty().then_some(rule)
            }
            _ => None,
        }
    }

    /// Whether DeepSpeed would have the same reason at a later check.
    fn is_real(&self, reason: &str) -> bool {
        let (program, reach) = (&self.args.program, &self.args.cluster.transport);
        match reason {
            "C007" => program.module && program.no_python,
            "S008" => {
                let place = &self.args.cluster;
                let has =
                    |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
                (has(&place.include) || has(&place.exclude))
                    && (has(&place.num_nodes) || has(&place.num_gpus))
            }
            "C010" => reach.no_ssh && reach.node_rank.is_none_or(|rank| rank == -1),
            _ => false,
        }
    }

    /// Whether all words for pdsh are supported: `-f N`, `-l USER`, `-S`, `-R ssh`.
    fn has_supported_words(&self) -> bool {
        let words = self.args.cluster.transport.launcher_args.as_ref();
        let words = words.map_or(&[][..], |words| &words.0);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut rest = &words[..];
        while let [first, more @ ..] = rest {
            rest = match (*first, more) {
                ("-S", more) | ("-R", ["ssh", more @ ..]) => more,
                ("-f", [number, more @ ..]) if number.parse::<u16>().is_ok() => more,
                ("-l", [name, more @ ..]) if !name.starts_with('-') => more,
                _ => return false,
            };
        }
        true
    }

    fn is_bad_number_of_nodes(&self) -> bool {
        let hosts = self.command.pool(self.args).map_or(1, |hosts| hosts.len()) as i64;
        let wanted = number(self.args.cluster.num_nodes.as_deref());
        wanted != -1 && !(1..=hosts).contains(&wanted)
    }

    fn is_bad_number_of_gpus(&self) -> bool {
        let text = self.args.cluster.num_gpus.as_deref();
        let wanted = if text.is_some_and(|text| 18 < text.len()) { i64::MAX } else { number(text) };
        let most = match self.command.pool(self.args) {
            None => SLOTS_MAX,
            Some(hosts) => {
                let count = number(self.args.cluster.num_nodes.as_deref());
                let count = usize::try_from(count).unwrap_or(hosts.len());
                hosts.iter().take(count).map(|(_, slots)| *slots as i64).min().unwrap_or(0)
            }
        };
        wanted != -1 && !(1..=most).contains(&wanted)
    }

    /// The row about more workers on this machine than GPUs.
    fn too_many_gpus(&self) -> Option<Rule> {
        let Some(hosts) = self.command.pool(self.args) else {
            let wanted = number(self.args.cluster.num_gpus.as_deref());
            let mask = devices::mask(self.command, self.args);
            let left = mask.map(|mask| devices::left(&mask, self.gpus).len());
            return match left {
                _ if self.gpus < usize::try_from(wanted).ok()? => Some(rules::NUM_GPUS),
                Some(left) if left < usize::try_from(wanted).ok()? => Some(rules::HIDDEN_DEVICES),
                _ => None,
            };
        };
        let slots: usize = hosts.iter().map(|(_, slots)| *slots).sum();
        (self.gpus < slots).then_some(rules::MORE_THAN_GPUS)
    }

    /// The row about a selected device that the variable hides.
    fn rule_of_hidden_devices(&self) -> Option<Rule> {
        let mask = devices::mask(self.command, self.args)?;
        let hides = devices::left(&mask, self.gpus).len() < self.gpus;
        (hides && devices::is_beside(self.args)).then_some(rules::HIDDEN_DEVICES)
    }

    fn has_line(&self, rule: Rule) -> Option<Rule> {
        let is_it = |line: &String| matches!(read(line), Line::Wrong(found) if found == rule);
        self.command.env_lines().iter().any(is_it).then_some(rule)
    }

    /// The rows for all reasons of remuda.
    fn rules(&self) -> Option<Vec<Rule>> {
        let reasons = reasons(self.output);
        let rules: Option<Vec<Rule>> = reasons.iter().map(|reason| self.rule(reason)).collect();
        rules.filter(|rules| !rules.is_empty())
    }
}

pub(super) fn explain_our_refusal(ours: &OurRefusal<'_>) -> Verdict {
    // DeepSpeed detects it on every node.
    if ours.is_refused_by_nodes && reasons(ours.output).iter().any(|reason| ours.is_real(reason)) {
        return Verdict::Refused;
    }
    match ours.rules() {
        Some(rules) => Verdict::by(rules),
        None => Verdict::Unexplained(format!("only remuda refuses: {}", first_line(ours.output))),
    }
}

pub(super) fn explain_their_refusal(
    reference: &mut Reference,
    command: &Command,
    read: &ParsedByBoth,
    refusal: &Refusal,
    gpus: usize,
) -> Verdict {
    let mut found = Differences::default();
    let says = |text: &str| refusal.text.contains(text);
    if devices::is_cpu(command) && command.env(devices::VARIABLE).is_some() {
        let rest = compare_both(reference, &command.without_env(devices::VARIABLE));
        return besides(rules::CPU_SLOTS, rest);
    }
    if let Some(mask) = devices::mask(command, &read.args)
        && !mask.is_empty()
        && !devices::is_beside(&read.args)
    {
        let entries: Vec<Result<usize, _>> =
            mask.split(',').map(|entry| entry.trim().parse()).collect();
        let has_name = entries.iter().any(Result::is_err);
        let is_beyond = entries.iter().flatten().any(|number| gpus <= *number);
        // For DeepSpeed the variable is an `--include`.
        let is_counted =
            read.args.cluster.num_nodes.is_some() || read.args.cluster.num_gpus.is_some();
        if says("invalid literal") && has_name
            || says("No slot") && is_beyond
            || says("with include/exclude") && is_counted
        {
            return Verdict::by([rules::VISIBLE_DEVICES]);
        }
    }
    if says("not enough values to unpack (expected 2, got 1)") {
        let lines = command.env_lines();
        let is_blank =
            |line: &String| !line.contains('=') && matches!(read_line(line), Line::Nothing);
        if lines.iter().any(is_blank) {
            return Verdict::by([rules::ENV_SYNTAX]);
        }
    }
    if reparsed(reference, &read.deepspeed_words).is_none()
        && refusal.text.starts_with("launch.py: error")
        && command.argv.iter().any(|word| word == "--")
    {
        return Verdict::by([rules::DOUBLE_DASH]);
    }
    let limits_of_managers = [
        "same number of devices per node",
        "same slot count on every host",
        "backend does not support limiting num nodes/gpus",
        "backend does not support worker include/exclusion",
    ];
    if limits_of_managers.into_iter().any(says) {
        return Verdict::by([rules::PROCESS_MANAGERS]);
    }
    found.unexplained(format!("only DeepSpeed refuses: {}", refusal.text));
    found.verdict()
}

fn read_line(line: &str) -> Line {
    read(line)
}

/// Script and arguments as DeepSpeed's second parser reads them. What looks like an option of its own
/// has an effect there.
pub(super) struct Reparsed {
    pub(super) words: Vec<Vec<u8>>,
    pub(super) is_module: bool,
    pub(super) has_python: bool,
    pub(super) has_local_rank: bool,
}

pub(super) fn reparsed(reference: &mut Reference, words: &[Vec<u8>]) -> Option<Reparsed> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    let words: Vec<String> = words.iter().map(|word| BASE64.encode(word)).collect();
    let answer = reference.ask(&json!({ "kind": "reparse", "words": words })).ok()?;
    let words = answer["words"].as_array().expect("a list").iter();
    let decode =
        |word: &serde_json::Value| BASE64.decode(word.as_str().expect("text")).expect("base64");
    Some(Reparsed {
        words: words.map(decode).collect(),
        is_module: answer["module"] == true,
        has_python: answer["no_python"] == false,
        has_local_rank: answer["no_local_rank"] == false,
    })
}

pub(super) fn compare_refusals(ours: &OurRefusal<'_>, refusal: &Refusal) -> Verdict {
    let reasons = reasons(ours.output);
    if reasons.iter().any(|reason| is_same(reason, refusal, ours)) {
        return Verdict::Refused;
    }
    // remuda may refuse for a reason of its own before it reaches that of DeepSpeed.
    match ours.rules() {
        Some(rules) => Verdict::by(rules),
        None if reasons.iter().any(|reason| ours.is_real(reason)) => Verdict::Refused,
        None => Verdict::Unexplained(format!(
            "remuda: {}, DeepSpeed: {}",
            first_line(ours.output),
            refusal.text
        )),
    }
}

/// Whether a reason of remuda is that of DeepSpeed.
fn is_same(reason: &str, refusal: &Refusal, ours: &OurRefusal<'_>) -> bool {
    let says = |text: &str| refusal.text.contains(text);
    match reason {
        "S001" | "S004" => says("not found in hostfile"),
        "S002" => says("No slot"),
        "S003" => says("invalid literal"),
        "S005" => says("too many values to unpack"),
        "S007" => says("list index out of range"),
        "S006" => {
            let has_both =
                ours.args.cluster.include.is_some() && ours.args.cluster.exclude.is_some();
            has_both && (says("mutually exclusive") || says("with include/exclude"))
        }
        reason if reason.starts_with('H') && says("contains a bad entry") => true,
        "H020" => says("Hostfile is empty"),
        "S008" => says("with include/exclude"),
        "S009" => says("no extra nodes available"),
        "C006" => says("--node_rank is not set correctly") && ours.args.cluster.transport.no_ssh,
        "C007" => says("'--no_python' flag") || says("mutually exclusive"),
        "C010" => {
            says("--node_rank is not set correctly")
                && ours.args.cluster.transport.node_rank.is_none_or(|rank| rank == -1)
        }
        "H003" => says("multiple entries"),
        "E001" => says("not enough values to unpack (expected 2, got 1)"),
        "S010" => says("out of memory") && ours.is_bad_number_of_gpus(),
        "M008" => {
            first_line(ours.output).contains("name of the program is empty")
                && says("No such file or directory")
        }
        _ => false,
    }
}
