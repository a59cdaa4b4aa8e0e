//! `--bind_cores_to_rank`: a case is a machine, a list of cores and a number of workers. A part begins
//! with a letter: `C` cores, `N` the cores of a memory node, `L` the list, `W` workers.

use remuda::cli::run::{ParsedRun, parse};
use remuda::plan::{CoreShare, NumaMemory, Topology, share_cores};
use serde_json::{Value, json};

use crate::conformance::reference::Reference;
use crate::conformance::rules::Verdict;
use crate::support::proof::Random;

/// Lists, good ones and others.
const LISTS: &[&str] = &[
    "0", "0-1", "0,2-4", "1-3,5", "2-7", "0,2,4,6", "0-3,4-7", " 1", "+1", "1_0", "01-3", "4-2",
    "0,0", "3,1", "", "a", "0,,1", "1-2-3", "-1", "0-", "0 -1",
];
/// Processors that may be used; DeepSpeed does not check them.
const USABLE: std::ops::Range<u32> = 0..64;

struct Machine {
    cores: u32,
    memory: Vec<(u32, Vec<u32>)>,
    list: Option<String>,
    workers: usize,
}

pub(crate) fn generate(random: &mut Random) -> Vec<Vec<u8>> {
    let cores = 1 + random.below(12) as u32;
    let half = cores / 2;
    let spread = |from: u32, to: u32| (from..to).map(|core| core.to_string()).collect::<Vec<_>>();
    let nodes = match random.below(6) {
        0 => vec![],
        1 => vec![(0, cores)],
        2 => vec![(0, half), (half, cores)],
        3 => vec![(0, half), (half, cores), (0, 0), (0, 0)],
        4 => vec![(0, half), (0, half), (half, cores), (half, cores)],
        _ => vec![(0, half), (0, half), (half, cores), (0, 0)],
    };
    let mut case = vec![format!("C{cores}")];
    case.extend(nodes.into_iter().map(|(from, to)| format!("N{}", spread(from, to).join(","))));
    if random.below(2) == 0 {
        case.push(format!("L{}", LISTS[random.below(LISTS.len())]));
    }
    case.push(format!("W{}", 1 + random.below(6)));
    case.into_iter().map(String::into_bytes).collect()
}

impl Machine {
    /// `None` if shrinking has made the case invalid.
    fn new(case: &[Vec<u8>]) -> Option<Self> {
        let mut machine = Self { cores: 0, memory: Vec::new(), list: None, workers: 0 };
        for part in case {
            let text = std::str::from_utf8(part).ok()?;
            match text.split_at_checked(1)? {
                ("C", count) => machine.cores = count.parse().ok()?,
                ("N", "") => machine.memory.push((machine.memory.len() as u32, Vec::new())),
                ("N", cores) => {
                    let cores: Result<Vec<u32>, _> = cores.split(',').map(str::parse).collect();
                    machine.memory.push((machine.memory.len() as u32, cores.ok()?));
                }
                ("L", list) => machine.list = Some(list.to_owned()),
                ("W", count) => machine.workers = count.parse().ok()?,
                _ => return None,
            }
        }
        (0 < machine.workers).then_some(machine)
    }

    /// What `numactl --hardware` prints.
    fn hardware(&self) -> String {
        let node = |(number, cores): &(u32, Vec<u32>)| {
            let cores = cores.iter().fold(String::new(), |text, core| text + &format!(" {core}"));
            format!("node {number} cpus:{cores}\n")
        };
        let nodes: String = self.memory.iter().map(node).collect();
        format!("available: {} nodes\n{nodes}", self.memory.len())
    }
}

/// Both sides bind every worker of a node.
pub(crate) fn compare(reference: &mut Reference, case: &[Vec<u8>]) -> Verdict {
    let Some(machine) = Machine::new(case) else { return Verdict::Same };
    let theirs = reference.ask(&json!({
        "kind": "bind",
        "cores": machine.cores,
        "hardware": machine.hardware(),
        "list": machine.list,
        "workers": machine.workers,
    }));
    match (bind(&machine), theirs) {
        (Ok(ours), Ok(theirs)) => {
            let theirs = commands(&machine, &theirs["numactl"]);
            if ours == theirs {
                return Verdict::Same;
            }
            Verdict::Unexplained(format!("remuda {ours:?}, DeepSpeed {theirs:?}"))
        }
        (Err(ours), Err(theirs)) => {
            let is_few = ours.contains("cannot be shared by");
            if is_few == theirs.text.contains("At least one core") {
                Verdict::Refused
            } else {
                Verdict::Unexplained(format!("remuda: {ours}, DeepSpeed: {}", theirs.text))
            }
        }
        (ours, theirs) => Verdict::Unexplained(format!("remuda {ours:?}, DeepSpeed {theirs:?}")),
    }
}

/// Commands without the name of the program; binding memory to the only node has no effect and is
/// left out.
fn commands(machine: &Machine, answer: &Value) -> Vec<String> {
    let commands = answer.as_array().expect("a list").iter();
    let text = |command: &Value| {
        let words = command.as_array().expect("a command").iter().skip(1);
        let words: Vec<&str> = words.map(|word| word.as_str().expect("text")).collect();
        let words = words.join(" ");
        match machine.memory.len() {
            1 => words.trim_start_matches("-m 0 ").to_owned(),
            _ => words,
        }
    };
    commands.map(text).collect()
}

fn bind(machine: &Machine) -> Result<Vec<String>, String> {
    let list = machine.list.as_ref().map(|list| read_list(list)).transpose()?;
    let topology = Topology {
        cores: (0..machine.cores).map(|core| vec![core]).collect(),
        memory: machine.memory.clone(),
    };
    let usable: Vec<u32> = USABLE.collect();
    let shares = share_cores(&topology, &usable, list.as_deref(), machine.workers);
    let shares = shares.map_err(|error| error.to_string())?;
    Ok(shares.into_iter().map(command).collect())
}

/// Parses a list as the command line does.
fn read_list(list: &str) -> Result<Vec<u32>, String> {
    let line = vec![format!("--bind_core_list={list}").into(), "train.py".into()];
    match parse("remuda run", line) {
        Ok(ParsedRun::Run(args, _)) => {
            let list = args.workers.bind_core_list.expect("it was given");
            Ok(list.0.into_iter().flatten().collect())
        }
        Ok(ParsedRun::Text(_)) => Err("help".to_owned()),
        Err(refused) => Err(refused.findings.diagnostics[0].message.clone()),
    }
}

/// Formats a share as options of numactl.
fn command(share: CoreShare) -> String {
    let runs = share.cpus.chunk_by(|left, right| left + 1 == *right);
    let runs: Vec<String> = runs
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            [only] => only.to_string(),
            [] => String::new(),
        })
        .collect();
    let cores = runs.join(",");
    match share.memory {
        None => format!("-C {cores}"),
        Some(NumaMemory::Prefer(node)) => format!("-p {node} -C {cores}"),
        Some(NumaMemory::Bind(nodes)) => {
            let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
            format!("-m {} -C {cores}", nodes.join(","))
        }
    }
}
