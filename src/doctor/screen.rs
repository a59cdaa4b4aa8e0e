//! Screens and JSON document of the findings. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::codes;
use super::facts::{Clock, ClusterFacts, ExamOutcome, ExaminedNode, Finding, NodeFacts};
use super::judge::{CLOCK_OFF_US, torch_of};
use crate::base::{HostName, NodeRank, Severity, Status};
use crate::pool::nodeset::fold_set;
use crate::report::escape_control;
use crate::report::text::{show_count, show_duration};
use crate::wire::{CheckResult, Examination, GpuReport, Limit};

/// Version of the JSON document; it is raised when a field changes its meaning.
pub const DOCTOR_VERSION: u32 = 1;

/// Number of hosts of one finding that are shown with details.
const DETAILS_MAX: usize = 3;
/// Number of lines shown of one detail.
const LINES_MAX: usize = 16;
const GIB: f64 = (1u64 << 30) as f64;

/// Exit status of `remuda doctor`: 0 if there are no warnings and errors, 1 if there are, 2 if no
/// node could be examined.
pub fn status(cluster: &ClusterFacts, findings: &[Finding]) -> Status {
    if cluster.examined_nodes().next().is_none() {
        return Status::Usage;
    }
    let is_clean = findings.iter().all(|found| found.severity < Severity::Warning);
    if is_clean { Status::Success } else { Status::Findings }
}

/// Exit status of a job that these findings keep from starting; `None`: there is no error.
pub fn refusal(findings: &[Finding]) -> Option<Status> {
    let worst = findings.iter().find(|found| found.severity == Severity::Error)?;
    Some(match worst.code {
        codes::UNREACHABLE | codes::NO_REPORT => Status::Unreachable,
        codes::OTHER_BUILD => Status::Protocol,
        codes::CWD | codes::SCRIPT => Status::NoInput,
        codes::PROGRAM => Status::NotFound,
        _ => Status::Config,
    })
}

/// Hosts that a job could use: those without an error.
pub fn usable_hosts<'a>(
    cluster: &'a ClusterFacts,
    findings: &'a [Finding],
) -> impl Iterator<Item = &'a HostName> {
    let is_usable = |rank: NodeRank| {
        !findings.iter().any(|found| found.node == rank && found.severity == Severity::Error)
    };
    let nodes = (0..).map(NodeRank).zip(&cluster.nodes);
    nodes.filter(move |(rank, _)| is_usable(*rank)).map(|(_, node)| &node.host)
}

/// The screen of `remuda doctor`: table of the hosts, findings, and summary line.
pub fn show(cluster: &ClusterFacts, findings: &[Finding]) -> String {
    let mut out = table(cluster);
    if !findings.is_empty() {
        out.push('\n');
        out += &show_findings(cluster, findings);
    }
    out.push('\n');
    out += &summary(cluster, findings);
    out
}

fn summary(cluster: &ClusterFacts, findings: &[Finding]) -> String {
    let nodes = cluster.nodes.len();
    let usable = usable_hosts(cluster, findings).count();
    let slots: u32 = cluster.nodes.iter().map(|node| node.slots).sum();
    let warnings = findings.iter().filter(|found| found.severity == Severity::Warning);
    let mut warned: Vec<NodeRank> = warnings.map(|found| found.node).collect();
    warned.sort_unstable();
    warned.dedup();
    let all = format!("{}, {}", show_count(nodes, "host"), show_count(slots as usize, "slot"));
    match (nodes - usable, warned.len()) {
        (0, 0) => format!("{all}: no problems found\n"),
        (0, warned) => format!("{all}: no errors, warnings on {warned}\n"),
        (bad, 0) => format!("{all}: errors on {bad}, {usable} usable\n"),
        (bad, warned) => format!("{all}: errors on {bad}, {usable} usable, warnings on {warned}\n"),
    }
}

/// Key of a row of the table: the cells that its nodes share, and whether their clocks are off.
type RowKey = ([String; 5], bool);

/// Table of the hosts; hosts with equal cells share a row.
fn table(cluster: &ClusterFacts) -> String {
    const TITLES: [&str; 9] =
        ["host", "reached", "clock", "sshd", "GPUs", "cpus", "memory", "shm", "Python"];
    let mut order: Vec<(RowKey, Vec<&NodeFacts>)> = Vec::new();
    for node in &cluster.nodes {
        // A clock that is off must not be shown for nodes with correct clocks.
        let cells =
            (cells(node), examined_node(node).is_some_and(|examined| is_off(examined.clock)));
        match order.iter_mut().find(|(known, _)| *known == cells) {
            Some((_, nodes)) => nodes.push(node),
            None => order.push((cells, vec![node])),
        }
    }
    let mut rows = vec![TITLES.map(str::to_owned)];
    for ((cells, _), nodes) in order {
        let names = fold_set(nodes.iter().map(|node| node.host.as_str()));
        let names = if nodes.len() == 1 { names } else { format!("{names} ({})", nodes.len()) };
        let examined: Vec<&ExaminedNode> =
            nodes.iter().filter_map(|node| examined_node(node)).collect();
        let [sshd, gpus, cpus, shm, python] = cells;
        let (reached, clock) = (show_reached(&examined), show_clocks(&examined));
        let memory = show_memory(&examined);
        rows.push([names, reached, clock, sshd, gpus, cpus, memory, shm, python]);
    }
    // A column without values has no title.
    if rows[1..].iter().all(|row| row[TITLES.len() - 1].is_empty()) {
        rows[0][TITLES.len() - 1].clear();
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..TITLES.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    out
}

fn examined_node(node: &NodeFacts) -> Option<&ExaminedNode> {
    match &node.outcome {
        ExamOutcome::Examined(examined) => Some(examined),
        ExamOutcome::Unreachable(_)
        | ExamOutcome::NoReport(_)
        | ExamOutcome::OtherVersion { .. } => None,
    }
}

/// Cells that the nodes of a row share: sshd, GPUs, processors, shared memory, Python.
fn cells(node: &NodeFacts) -> [String; 5] {
    let Some(examined) = examined_node(node) else { return [""; 5].map(str::to_owned) };
    let report = &examined.report;
    let sshd =
        examined.session.server.as_deref().map_or_else(|| "-".to_owned(), first_word_escaped);
    let shm = report.compute.shm.as_ref();
    let shm = shm.map_or_else(|_| "none".to_owned(), |room| gib(room.total_bytes));
    [sshd, show_gpus(report), report.compute.cpus.to_string(), shm, show_python(examined)]
}

/// Versions of Python and torch; empty if they are unknown.
fn show_python(examined: &ExaminedNode) -> String {
    let python = examined.report.python.as_ref().and_then(|python| python.version.as_ref().ok());
    let version = python.map_or_else(String::new, |version| first_word_escaped(version));
    match torch_of(examined) {
        Some(torch) => format!("{version}, torch {}", first_word_escaped(torch)),
        None => version,
    }
}

fn first_word_escaped(text: &str) -> String {
    escape_control(text.split_whitespace().next().unwrap_or("-"))
}

/// Range of the free memory, which differs slightly from node to node.
fn show_memory(nodes: &[&ExaminedNode]) -> String {
    let free = nodes.iter().filter_map(|examined| examined.report.compute.memory_bytes);
    match (free.clone().min().map(gib), free.max().map(gib)) {
        (Some(least), Some(most)) if least == most => least,
        (Some(least), Some(most)) => format!("{least}-{most}"),
        _ => String::new(),
    }
}

/// A size in GiB, with one decimal below 10 GiB.
fn gib(bytes: u64) -> String {
    let gib = bytes as f64 / GIB;
    if gib < 10.0 { format!("{gib:.1} GiB") } else { format!("{gib:.0} GiB") }
}

fn show_gpus(report: &Examination) -> String {
    let gpus = &report.gpus;
    let first = gpus.devices.first();
    match (gpus.device_files, first) {
        (0, _) => "-".to_owned(),
        (files, None) => format!("{files}"),
        (_, Some(gpu)) => {
            let size = gib(gpu.memory_bytes);
            format!("{} × {} {size}", gpus.devices.len(), escape_control(&gpu.name))
        }
    }
}

/// Range of the times until nodes were reached, such as `120 ms` or `40 ms-1.2 s`; `no` if none
/// was.
fn show_reached(nodes: &[&ExaminedNode]) -> String {
    let times = nodes.iter().map(|examined| rounded(examined.connect_time));
    match (times.clone().min(), times.max()) {
        (Some(least), Some(most)) if least == most => show_duration(least),
        (Some(least), Some(most)) => format!("{}-{}", show_duration(least), show_duration(most)),
        _ => "no".to_owned(),
    }
}

/// A time rounded to 10 ms from 100 ms on; more digits of one measurement mean nothing.
fn rounded(time: Duration) -> Duration {
    let ms = time.as_millis() as u64;
    Duration::from_millis(if ms < 100 { ms } else { ms / 10 * 10 })
}

fn is_off(clock: Clock) -> bool {
    clock.ahead_us.unsigned_abs().saturating_sub(clock.error_us) > CLOCK_OFF_US
}

/// Difference of the clock that is furthest off; empty if no node was examined.
fn show_clocks(nodes: &[&ExaminedNode]) -> String {
    let worst = nodes
        .iter()
        .map(|examined| examined.clock)
        .max_by_key(|clock| clock.ahead_us.unsigned_abs().saturating_sub(clock.error_us));
    let Some(Clock { ahead_us, error_us }) = worst else { return String::new() };
    let off_us = ahead_us.unsigned_abs();
    if off_us <= error_us.max(1_000) {
        return "same".to_owned();
    }
    let sign = if 0 < ahead_us { "+" } else { "-" };
    format!("{sign}{}", show_duration(Duration::from_millis(off_us.div_ceil(1_000))))
}

/// Findings for a screen: equal ones are shown once, with the names of all their hosts.
pub fn show_findings(cluster: &ClusterFacts, findings: &[Finding]) -> String {
    let mut out = String::new();
    for group in group_findings(findings) {
        let first = group[0];
        let names = fold_set(group.iter().map(|found| cluster.host(found.node).as_str()));
        let names = match group.len() {
            1 => names,
            many => format!("{names} ({many})"),
        };
        let severity = severity_name(first.severity);
        let message = escape_control(&first.message);
        let colon = if is_predicate(&message) { "" } else { ":" };
        let _ = writeln!(out, "{severity}[{}]: {names}{colon} {message}", first.code);
        show_details(&mut out, cluster, &group);
        if let Some(help) = first.help.as_deref().filter(|help| !help.is_empty()) {
            let _ = writeln!(out, "  help: {}", escape_control(help));
        }
    }
    out
}

/// Whether a message is the predicate of a sentence about its hosts: `is the same machine as n1`.
fn is_predicate(message: &str) -> bool {
    message.starts_with("is ") || message.starts_with("cannot ")
}

fn show_details(out: &mut String, cluster: &ClusterFacts, group: &[&Finding]) {
    let detailed: Vec<(&HostName, &str)> = group
        .iter()
        .filter_map(|found| Some((cluster.host(found.node), found.detail.as_deref()?)))
        .filter(|(_, detail)| !detail.trim().is_empty())
        .collect();
    for (host, detail) in detailed.iter().take(DETAILS_MAX) {
        let mut lines = detail.lines();
        let _ = writeln!(out, "  {host}: {}", escape_control(lines.next().unwrap_or_default()));
        for line in lines.take(LINES_MAX) {
            let _ = writeln!(out, "    {}", escape_control(line));
        }
    }
    if DETAILS_MAX < detailed.len() {
        let _ = writeln!(out, "  … and {} more", detailed.len() - DETAILS_MAX);
    }
}

/// Groups equal findings, in the order of the first finding of each group.
fn group_findings(findings: &[Finding]) -> Vec<Vec<&Finding>> {
    let mut places: BTreeMap<(&str, Severity, &str, Option<&str>), usize> = BTreeMap::new();
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    for found in findings {
        let key = (found.code, found.severity, &*found.message, found.help.as_deref());
        let place = *places.entry(key).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(found),
            None => groups.push(vec![found]),
        }
    }
    groups
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    hosts: Vec<Value>,
    findings: Vec<FindingDocument<'a>>,
    usable: Vec<&'a str>,
}

#[derive(Serialize)]
struct FindingDocument<'a> {
    code: &'static str,
    severity: &'static str,
    message: &'a str,
    help: Option<&'a str>,
    hosts: Vec<&'a str>,
    details: BTreeMap<&'a str, &'a str>,
}

/// The JSON document of `remuda doctor`: facts about all nodes and findings; ends with a newline.
pub fn show_json(cluster: &ClusterFacts, findings: &[Finding]) -> String {
    let groups = group_findings(findings);
    let document = Document {
        version: DOCTOR_VERSION,
        hosts: cluster.nodes.iter().map(host_json).collect(),
        findings: groups.iter().map(|group| finding_document(cluster, group)).collect(),
        usable: usable_hosts(cluster, findings).map(HostName::as_str).collect(),
    };
    serde_json::to_string_pretty(&document).expect("keys are strings") + "\n"
}

fn finding_document<'a>(cluster: &'a ClusterFacts, group: &[&'a Finding]) -> FindingDocument<'a> {
    let first = group[0];
    let host = |found: &&'a Finding| cluster.host(found.node).as_str();
    let detail = |found: &&'a Finding| Some((host(found), found.detail.as_deref()?));
    FindingDocument {
        code: first.code,
        severity: severity_name(first.severity),
        message: &first.message,
        help: first.help.as_deref(),
        hosts: group.iter().map(host).collect(),
        details: group.iter().filter_map(detail).collect(),
    }
}

fn host_json(node: &NodeFacts) -> Value {
    let mut host = json!({"name": node.host.as_str(), "slots": node.slots});
    let more = match &node.outcome {
        ExamOutcome::Unreachable(fault) => json!({"state": "unreachable", "words": fault.detail}),
        ExamOutcome::NoReport(why) => json!({"state": "lost", "words": why}),
        ExamOutcome::OtherVersion { build } => json!({"state": "other version", "build": build}),
        ExamOutcome::Examined(examined) => examined_json(examined),
    };
    if let (Value::Object(host), Value::Object(more)) = (&mut host, more) {
        host.extend(more);
    }
    host
}

fn examined_json(examined: &ExaminedNode) -> Value {
    let millis = |time: Duration| time.as_millis() as u64;
    let ExaminedNode { session, connect_time: reached, build, clock, report, probes: _ } = examined;
    let machine = &report.machine;
    json!({
        "state": "examined",
        "reached_ms": millis(*reached),
        "login_ms": session.login.map(millis),
        "shell_ms": session.shell.map(millis),
        "sshd": session.server,
        "build": build,
        "clock": {"ahead_us": clock.ahead_us, "error_us": clock.error_us},
        "host_name": machine.host_name,
        "boot_id": machine.boot_id,
        "kernel": machine.kernel,
        "arch": machine.arch,
        "user": machine.user,
        "uid": machine.uid,
        "cwd": path_json(&report.cwd),
        "program": report.program.as_ref().map(path_json),
        "script": report.script.as_ref().map(path_json),
        "python": report.python.as_ref().and_then(|python| python.version.as_ref().ok()),
        "compute": compute_json(report),
        "gpus": gpus_json(report),
        "libraries": report.libraries.iter().map(|library| json!({
            "name": library.name, "version": library.version, "path": library.path,
        })).collect::<Vec<_>>(),
        "network": network_json(report),
    })
}

fn path_json(looked: &CheckResult) -> Value {
    looked.as_ref().err().map_or_else(
        || json!({"usable": true}),
        |problem| json!({"usable": false, "why": problem.message}),
    )
}

fn compute_json(report: &Examination) -> Value {
    let compute = &report.compute;
    let limit = |limit: Limit| json!({"soft": limit.soft, "hard": limit.hard});
    let shm = compute.shm.as_ref().ok();
    json!({
        "cpus": compute.cpus,
        "memory_bytes": compute.memory_bytes,
        "memory_limit_bytes": compute.memory_limit_bytes,
        "shm": shm.map(|room| json!({"total_bytes": room.total_bytes, "free_bytes": room.free_bytes})),
        "memlock_bytes": limit(compute.memlock),
        "open_files": limit(compute.nofile),
    })
}

fn gpus_json(report: &Examination) -> Value {
    let gpus = &report.gpus;
    let device = |gpu: &GpuReport| {
        let processes = gpu.processes.iter().map(|process| {
            json!({"pid": process.pid, "name": process.name, "memory_bytes": process.memory_bytes})
        });
        json!({
            "name": gpu.name,
            "uuid": gpu.uuid,
            "memory_bytes": gpu.memory_bytes,
            "mig": gpu.mig,
            "ecc_errors": gpu.ecc_errors,
            "processes": processes.collect::<Vec<_>>(),
        })
    };
    json!({
        "count": gpus.device_files,
        "driver": gpus.driver,
        "cuda": gpus.cuda,
        "silent": gpus.nvml_error,
        "xids": gpus.xids,
        "devices": gpus.devices.iter().map(device).collect::<Vec<_>>(),
    })
}

fn network_json(report: &Examination) -> Value {
    let network = &report.network;
    let interfaces = network.interfaces.iter().map(|nic| {
        json!({
            "name": nic.name,
            "speed_mbit": nic.speed_mbit,
            "mtu": nic.mtu,
            "between_nodes": nic.has_listener,
        })
    });
    let adapters = network
        .adapters
        .iter()
        .map(|adapter| json!({"name": adapter.name, "state": adapter.state, "rate": adapter.rate}));
    json!({
        "address": network.listener.as_ref().ok().map(|door| door.ip().to_string()),
        "interfaces": interfaces.collect::<Vec<_>>(),
        "infiniband": adapters.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::judge::testing;
    use super::*;
    use crate::doctor::judge::diagnose;
    use crate::transport::{Fault, FaultKind};
    use crate::wire::{LibraryReport, Python, TORCH};

    fn with_unreachable() -> ClusterFacts {
        let mut cluster = testing::cluster(5);
        for node in [2, 3] {
            let words = format!("ssh: connect to host n{} port 22: Connection refused", node + 1);
            cluster.nodes[node].outcome =
                ExamOutcome::Unreachable(Fault::new(FaultKind::Refused, words));
        }
        cluster
    }

    #[test]
    fn doctor_screen_folds_equal_rows_and_findings() {
        let cluster = with_unreachable();
        let expect = "\
host          reached  clock  sshd  GPUs  cpus  memory   shm
n[1-2,5] (3)  30 ms    same   -     -     64    256 GiB  64 GiB
n[3-4] (2)    no

error[D001]: n[3-4] (2) cannot be reached: connection refused
  n3: ssh: connect to host n3 port 22: Connection refused
  n4: ssh: connect to host n4 port 22: Connection refused
  help: check that its sshd runs and listens on this port (`--ssh_port`)

5 hosts, 5 slots: errors on 2, 3 usable
";
        assert_eq!(show(&cluster, &diagnose(&cluster)), expect);
    }

    #[test]
    fn doctor_without_findings_exits_with_0() {
        let cluster = testing::cluster(2);
        let findings = diagnose(&cluster);
        assert_eq!(status(&cluster, &findings), Status::Success);
        let screen = show(&cluster, &findings);
        assert!(screen.ends_with("\n\n2 hosts, 2 slots: no problems found\n"), "{screen}");
    }

    #[test]
    fn doctor_status_distinguishes_findings_from_no_examination() {
        let mut cluster = with_unreachable();
        assert_eq!(status(&cluster, &diagnose(&cluster)), Status::Findings);
        cluster.nodes.drain(..2);
        cluster.nodes.truncate(2);
        assert_eq!(status(&cluster, &diagnose(&cluster)), Status::Usage);
    }

    #[test]
    fn doctor_document_has_a_version_and_usable_hosts() {
        let cluster = with_unreachable();
        let text = show_json(&cluster, &diagnose(&cluster));
        let document: Value = serde_json::from_str(&text).expect("a document");
        assert_eq!(document["version"], DOCTOR_VERSION);
        assert_eq!(document["usable"], json!(["n1", "n2", "n5"]));
        assert_eq!(document["findings"][0]["hosts"], json!(["n3", "n4"]));
        assert_eq!(document["hosts"][2]["state"], "unreachable");
        assert_eq!(document["hosts"][0]["compute"]["cpus"], 64);
    }

    #[test]
    fn doctor_screen_shows_python_and_torch_of_each_host() {
        let mut cluster = testing::cluster(3);
        for (node, torch) in ["2.4.1", "2.4.1", "2.5.0"].iter().enumerate() {
            let report = &mut testing::examined_mut(&mut cluster, node).report;
            report.python = Some(Python { version: Ok("3.11.2".to_owned()) });
            report.libraries.push(LibraryReport {
                name: TORCH.to_owned(),
                version: Some((*torch).to_owned()),
                path: "torch".to_owned(),
            });
        }
        let expect = "\
host        reached  clock  sshd  GPUs  cpus  memory   shm     Python
n[1-2] (2)  30 ms    same   -     -     64    256 GiB  64 GiB  3.11.2, torch 2.4.1
n3          30 ms    same   -     -     64    256 GiB  64 GiB  3.11.2, torch 2.5.0

warning[D038]: n3: torch 2.5.0, most have torch 2.4.1
  help: give all nodes the same environment; `--json` shows the path of each torch

3 hosts, 3 slots: no errors, warnings on 1
";
        assert_eq!(show(&cluster, &diagnose(&cluster)), expect);
    }
}
