//! A plan for people (`--dry-run`) and for programs (`--dry-run --json`).

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use regex::bytes::Regex;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::base::Slot;
use crate::base::shell::quoted;
use crate::plan::{EnvValue, LaunchPlan, MASTER_PORT, MasterAddr, NodePlan, WorkerPlan};

/// Version of the JSON document; a field that changes its meaning raises it.
pub const PLAN_VERSION: u32 = 1;

/// What stands in place of a secret.
pub(super) const MASK: &str = "***";

/// Whether values of variables whose name sounds like a secret are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrets {
    /// Replaced by `***`.
    Masked,
    /// Shown as they are (`--show_env`).
    Shown,
}

impl Secrets {
    fn hides(self, name: &OsStr) -> bool {
        self == Self::Masked && is_secret(name)
    }
}

/// Whether the name of a variable says that its value is nobody's business.
pub fn is_secret(name: &OsStr) -> bool {
    static MARKS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("(?i-u)KEY|TOKEN|SECRET|PASS|CRED").expect("the pattern is well formed")
    });
    MARKS.is_match(name.as_bytes())
}

/// A table of the nodes, and what rank 0 runs; the other workers differ in their ranks only.
pub fn show_plan(plan: &LaunchPlan, secrets: Secrets) -> String {
    let mut out = table(&rows(plan));
    let port = match plan.master_port {
        Some(port) => format!("port {port}"),
        None => format!("port {MASTER_PORT} or one that is free"),
    };
    let address = match &plan.master_addr {
        MasterAddr::Given(address) => address.escape_debug().to_string(),
        MasterAddr::AskNode0 => "an address of node 0".to_owned(),
    };
    line(
        &mut out,
        &format!("\nworld size {}, rank 0 listens on {address}, {port}", plan.world_size),
    );
    if let Some(first) = plan.nodes.iter().find_map(|node| node.workers.first()) {
        show_worker(&mut out, plan, first, secrets);
    }
    line(&mut out, "nothing was started");
    out
}

fn show_worker(out: &mut String, plan: &LaunchPlan, worker: &WorkerPlan, secrets: Secrets) {
    let command: Vec<String> = worker.argv.iter().map(quoted).collect();
    line(out, &format!("command of rank {}: {}", worker.rank, command.join(" ")));
    line(out, &format!("environment of rank {}, and who supplied it:", worker.rank));
    let origins: Vec<String> = worker.env.iter().map(|(name, _)| origin(plan, name)).collect();
    let width = origins.iter().map(|origin| origin.chars().count()).max().unwrap_or(0);
    for ((name, value), origin) in worker.env.iter().zip(origins) {
        let shown = if secrets.hides(name) { MASK.to_owned() } else { show_value(value) };
        let name = name.to_string_lossy();
        line(out, &format!("  {origin:width$}  {}={shown}", name.escape_debug()));
    }
}

/// `--env`, `.deepspeed_env:3`, `propagated`, `remuda`.
fn origin(plan: &LaunchPlan, name: &OsStr) -> String {
    let origin = plan.origins.get(name);
    origin.map_or("remuda".to_owned(), |origin| origin.to_string().escape_debug().to_string())
}

fn show_value(value: &EnvValue) -> String {
    match value {
        EnvValue::Known(value) => quoted(value),
        EnvValue::MasterAddr => "(an address of node 0)".to_owned(),
        EnvValue::MasterPort => format!("({MASTER_PORT}, or a free port of node 0)"),
        EnvValue::JobId => "(the name of the job)".to_owned(),
        EnvValue::ErrorFile => "(a private file on its node)".to_owned(),
        EnvValue::ThreadShare => "(CPUs of the node / its workers, if unset)".to_owned(),
        EnvValue::Unless(value) => format!("{} (if unset)", quoted(value)),
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("a String takes everything");
}

type Row = [String; 4];

fn rows(plan: &LaunchPlan) -> Vec<Row> {
    let title = ["node", "host", "ranks", "slots"].map(str::to_owned);
    let nodes = plan.nodes.iter().map(|node| {
        [node.node_rank.to_string(), node.host.to_string(), ranks(node), show_slots(&node.slots)]
    });
    std::iter::once(title).chain(nodes).collect()
}

fn table(rows: &[Row]) -> String {
    let mut widths = [0; 4];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    let mut out = String::new();
    for [node, host, ranks, slots] in rows {
        let [a, b, c, _] = widths;
        line(&mut out, &format!("{node:<a$}  {host:<b$}  {ranks:<c$}  {slots}"));
    }
    out
}

fn ranks(node: &NodePlan) -> String {
    match &node.workers[..] {
        [] => "-".to_owned(),
        [only] => only.rank.to_string(),
        [first, .., last] => format!("{}-{}", first.rank, last.rank),
    }
}

fn show_slots(slots: &[Slot]) -> String {
    slots.iter().map(Slot::to_string).collect::<Vec<_>>().join(",")
}

/// The plan as a document: the same plan gives the same bytes. Ends with a newline.
pub fn plan_json(plan: &LaunchPlan, secrets: Secrets) -> String {
    let document = PlanDocument {
        version: PLAN_VERSION,
        master_addr: match &plan.master_addr {
            MasterAddr::Given(address) => Some(address),
            MasterAddr::AskNode0 => None,
        },
        master_port: plan.master_port,
        world_size: plan.world_size,
        nodes: plan.nodes.iter().map(|node| node_document(node, secrets)).collect(),
        origins: OriginsDocument(plan),
    };
    let mut text = serde_json::to_string_pretty(&document).expect("keys are strings");
    text.push('\n');
    text
}

#[derive(serde::Serialize)]
struct PlanDocument<'a> {
    version: u32,
    master_addr: Option<&'a str>,
    master_port: Option<u16>,
    world_size: u32,
    nodes: Vec<NodeDocument<'a>>,
    origins: OriginsDocument<'a>,
}

#[derive(serde::Serialize)]
struct NodeDocument<'a> {
    node_rank: u32,
    host: &'a str,
    slots: Vec<u32>,
    workers: Vec<WorkerDocument<'a>>,
}

#[derive(serde::Serialize)]
struct WorkerDocument<'a> {
    rank: u32,
    local_rank: u32,
    slot: u32,
    argv: Vec<Text<'a>>,
    env: EnvDocument<'a>,
}

fn node_document(node: &NodePlan, secrets: Secrets) -> NodeDocument<'_> {
    NodeDocument {
        node_rank: node.node_rank.0,
        host: node.host.as_str(),
        slots: node.slots.iter().map(|slot| slot.0).collect(),
        workers: node.workers.iter().map(|worker| worker_document(worker, secrets)).collect(),
    }
}

fn worker_document(worker: &WorkerPlan, secrets: Secrets) -> WorkerDocument<'_> {
    WorkerDocument {
        rank: worker.rank.0,
        local_rank: worker.local_rank.0,
        slot: worker.slot.0,
        argv: worker.argv.iter().map(|argument| Text(argument)).collect(),
        env: EnvDocument { env: &worker.env, secrets },
    }
}

/// Who supplied a variable; what is not named is remuda's own.
struct OriginsDocument<'a>(&'a LaunchPlan);

impl Serialize for OriginsDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let origins = &self.0.origins;
        let mut map = serializer.serialize_map(Some(origins.len()))?;
        for (name, origin) in origins {
            map.serialize_entry(&name.to_string_lossy(), &origin.to_string())?;
        }
        map.end()
    }
}

/// A string, or `{"base64": …}` where the bytes are no UTF-8.
pub(super) struct Text<'a>(pub(super) &'a OsStr);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = self.0.to_str() {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("base64", &BASE64.encode(self.0.as_bytes()))?;
        map.end()
    }
}

/// An object, in the order of the names; what is not known yet is null.
struct EnvDocument<'a> {
    env: &'a [(OsString, EnvValue)],
    secrets: Secrets,
}

impl Serialize for EnvDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.env.len()))?;
        for (name, value) in self.env {
            let shown = match value {
                EnvValue::Known(_) if self.secrets.hides(name) => Some(Text(OsStr::new(MASK))),
                EnvValue::Known(value) => Some(Text(value)),
                EnvValue::MasterAddr
                | EnvValue::MasterPort
                | EnvValue::JobId
                | EnvValue::ErrorFile
                | EnvValue::ThreadShare
                | EnvValue::Unless(_) => None,
            };
            map.serialize_entry(&name.to_string_lossy(), &shown)?;
        }
        map.end()
    }
}
