//! A plan as a table (`--dry-run`) and as a JSON document (`--dry-run --json`).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use regex::bytes::Regex;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::base::shell::{quoted, quoted_line};
use crate::base::{HostName, Slot};
use crate::plan::{
    EnvValue, LaunchPlan, MASTER_PORT, MasterAddr, NodePlan, RendezvousPort, WorkerPlan,
};
use crate::pool::nodeset;
use crate::report::documents::plan_settings::{ElasticSettings, OptionDocument, PlanSettings};
use crate::report::documents::world::show_ranges;
use crate::report::text::{Align, show_columns, show_count};

/// Version of the JSON document; it increases when a field changes its meaning.
pub const PLAN_VERSION: u32 = 1;

/// Most nodes with a row of their own; if there are more, neighbours with the same slots share one.
const NODE_ROWS_MAX: usize = 64;

/// Size of the write buffer of a document.
const WRITE_BYTES: usize = 64 << 10;

/// The text in place of a secret.
pub(super) const MASK: &str = "***";

/// Whether values are shown of variables with names that look like those of secrets.
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

    /// Returns `NAME=VALUE`, with `***` for the value of a secret.
    pub fn mask(self, name: &OsStr, text: &str) -> String {
        if self.hides(name) { format!("{}={MASK}", name.display()) } else { text.to_owned() }
    }
}

/// Whether the name of a variable indicates a secret value.
pub fn is_secret(name: &OsStr) -> bool {
    static MARKS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("(?i-u)KEY|TOKEN|SECRET|PASS|CRED").expect("the pattern is well formed")
    });
    MARKS.is_match(name.as_bytes())
}

/// Formats a table of the nodes and the command of rank 0; the other workers differ only in their
/// ranks.
pub fn show_plan(plan: &LaunchPlan, settings: &PlanSettings, secrets: Secrets) -> String {
    let mut out = show_columns(&rows(plan), [Align::Left; 4]);
    let port = match plan.master_port {
        RendezvousPort::Given(port) => format!("port {port}"),
        RendezvousPort::Usual => format!("port {MASTER_PORT} or a free port"),
        RendezvousPort::Free => "a free port".to_owned(),
    };
    let address = match &plan.master_addr {
        MasterAddr::Given(address) => address.escape_debug().to_string(),
        MasterAddr::AskNode0 => "an address of node 0".to_owned(),
    };
    push_line(
        &mut out,
        &format!("\nworld size {}, rank 0 listens on {address}, {port}", plan.world_size),
    );
    if let Some(elastic) = &settings.elastic {
        push_line(&mut out, &show_elastic(elastic));
    }
    show_options(&mut out, &settings.options);
    if let Some(first) = plan.nodes.iter().find_map(|node| node.workers.first()) {
        let rank = first.rank;
        let command = settings.program.as_ref().map_or_else(
            || format!("command of rank {rank}: {}", quoted_line(first.argv())),
            |program| format!("every worker runs {program}; --json shows the command"),
        );
        push_line(&mut out, &command);
        show_environment(&mut out, plan, first, secrets);
    }
    push_line(&mut out, "nothing was started");
    out
}

/// Formats the plan of a command that runs once on every host: the hosts, its line, and the variables that the
/// user sets.
pub fn show_command(plan: &LaunchPlan, settings: &PlanSettings, secrets: Secrets) -> String {
    let hosts = plan.nodes.iter().map(|node| node.host.as_str());
    let number = show_count(plan.nodes.len(), "host");
    let mut out = format!("{number}: {}\n", nodeset::fold(hosts));
    show_options(&mut out, &settings.options);
    if let Some(first) = plan.nodes.iter().find_map(|node| node.workers.first()) {
        push_line(&mut out, &format!("command on every host: {}", quoted_line(first.argv())));
        show_variables(&mut out, plan, first, secrets, |name| plan.origins.contains_key(name));
    }
    push_line(&mut out, "nothing was started");
    out
}

/// Formats how many nodes take part, and which stand ready: `workers run on 2 to 4 nodes (above: 4)`.
fn show_elastic(elastic: &ElasticSettings) -> String {
    let ElasticSettings { min_nodes, max_nodes, spares } = elastic;
    let nodes = if min_nodes == max_nodes {
        format!("workers run on {}", show_count(*max_nodes, "node"))
    } else {
        format!("workers run on {min_nodes} to {max_nodes} nodes; this plan has {max_nodes}")
    };
    if spares.is_empty() {
        return nodes;
    }
    format!("{nodes}; ready as spares: {}", nodeset::fold(spares.iter().map(HostName::as_str)))
}

fn show_options(out: &mut String, options: &[OptionDocument]) {
    if options.is_empty() {
        return;
    }
    push_line(out, "options that are not on the command line, with the source of each:");
    let width = options.iter().map(|option| option.origin.chars().count()).max().unwrap_or(0);
    for OptionDocument { option, value, origin } in options {
        // An escaped text alone does not fill the column.
        let origin = origin.escape_debug().to_string();
        let value = value.as_ref().map_or_else(String::new, |value| format!(" {}", quoted(value)));
        push_line(out, &format!("  {origin:width$}  --{option}{value}"));
    }
}

fn show_environment(out: &mut String, plan: &LaunchPlan, worker: &WorkerPlan, secrets: Secrets) {
    push_line(
        out,
        &format!("environment of rank {}, with the source of each variable:", worker.rank),
    );
    show_variables(out, plan, worker, secrets, |_| true);
}

/// Formats the variables of a worker, with the source of each.
fn show_variables(
    out: &mut String,
    plan: &LaunchPlan,
    worker: &WorkerPlan,
    secrets: Secrets,
    is_shown: impl Fn(&OsStr) -> bool,
) {
    let shown: Vec<_> = worker.env().filter(|(name, _)| is_shown(name)).collect();
    let origins: Vec<String> = shown.iter().map(|(name, _)| origin(plan, name)).collect();
    let width = origins.iter().map(|origin| origin.chars().count()).max().unwrap_or(0);
    for ((name, value), origin) in shown.into_iter().zip(origins) {
        let shown = match &*value {
            _ if secrets.hides(name) => MASK.to_owned(),
            EnvValue::MasterPort if plan.master_port == RendezvousPort::Free => {
                "(a free port of node 0)".to_owned()
            }
            value => show_value(value),
        };
        let name = name.to_string_lossy();
        push_line(out, &format!("  {origin:width$}  {}={shown}", name.escape_debug()));
    }
}

/// Source of a variable: `--env`, `.deepspeed_env:3`, `propagated`, `remuda`.
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
        EnvValue::IfUnset(value) => format!("{} (if unset)", quoted(value)),
        EnvValue::IfNoGpu(value) => {
            format!("{} (if unset, on a node without a GPU)", quoted(value))
        }
    }
}

fn push_line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

type Row = [String; 4];

fn rows(plan: &LaunchPlan) -> Vec<Row> {
    let title = ["node", "host", "ranks", "slots"].map(str::to_owned);
    let are_alike = |one: &NodePlan, next: &NodePlan| one.slots == next.slots;
    let nodes = if plan.nodes.len() <= NODE_ROWS_MAX {
        plan.nodes.chunks(1).map(row).collect::<Vec<_>>()
    } else {
        plan.nodes.chunk_by(are_alike).map(row).collect()
    };
    std::iter::once(title).chain(nodes).collect()
}

/// The row of one node, or of several neighbours with the same slots.
fn row(nodes: &[NodePlan]) -> Row {
    let [first, .., last] = nodes else {
        return nodes.first().map_or_else(Row::default, |node| {
            let slots = show_slots(&node.slots);
            [node.node_rank.to_string(), node.host.to_string(), ranks(nodes), slots]
        });
    };
    let node_ranks = format!("{}-{}", first.node_rank, last.node_rank);
    let hosts = nodeset::fold(nodes.iter().map(|node| node.host.as_str()));
    [node_ranks, hosts, ranks(nodes), format!("{} each", show_slots(&first.slots))]
}

/// The range of ranks of neighbours, which is contiguous.
fn ranks(nodes: &[NodePlan]) -> String {
    let mut workers = nodes.iter().flat_map(|node| &node.workers);
    match (workers.next(), workers.next_back()) {
        (Some(first), Some(last)) => format!("{}-{}", first.rank, last.rank),
        (Some(only), None) => only.rank.to_string(),
        (None, _) => "-".to_owned(),
    }
}

fn show_slots(slots: &[Slot]) -> String {
    show_ranges(slots.iter().map(|slot| slot.index()))
}

/// Writes the plan as a JSON document: the same plan gives the same bytes. Ends with a newline.
///
/// Workers are written one at a time, because the text of a large job would need much memory.
pub fn write_plan_json(
    out: impl io::Write,
    plan: &LaunchPlan,
    settings: &PlanSettings,
    secrets: Secrets,
) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(WRITE_BYTES, out);
    let hidden = &secret_names(plan, secrets);
    let document = PlanDocument {
        version: PLAN_VERSION,
        master_addr: match &plan.master_addr {
            MasterAddr::Given(address) => Some(address),
            MasterAddr::AskNode0 => None,
        },
        master_port: plan.master_port.given(),
        world_size: plan.world_size,
        nodes: List(|| plan.nodes.iter().map(|node| node_document(node, hidden))),
        origins: OriginsDocument(plan),
        settings,
    };
    serde_json::to_writer_pretty(&mut out, &document)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// The variables whose values are hidden: the names are the same for every worker.
fn secret_names(plan: &LaunchPlan, secrets: Secrets) -> HashSet<&OsStr> {
    let first = plan.nodes.iter().find_map(|node| node.workers.first());
    let names = first.into_iter().flat_map(WorkerPlan::env).map(|(name, _)| name);
    names.filter(|name| secrets.hides(name)).collect()
}

#[derive(serde::Serialize)]
struct PlanDocument<'a, N: Serialize> {
    version: u32,
    master_addr: Option<&'a str>,
    master_port: Option<u16>,
    world_size: u32,
    nodes: N,
    origins: OriginsDocument<'a>,
    settings: &'a PlanSettings,
}

#[derive(serde::Serialize)]
struct NodeDocument<'a, W: Serialize> {
    node_rank: u32,
    host: &'a str,
    slots: Vec<u32>,
    workers: W,
}

#[derive(serde::Serialize)]
struct WorkerDocument<'a, A: Serialize> {
    rank: u32,
    local_rank: u32,
    slot: u32,
    argv: A,
    env: EnvDocument<'a>,
}

fn node_document<'a>(node: &'a NodePlan, hidden: &'a HashSet<&'a OsStr>) -> impl Serialize {
    NodeDocument {
        node_rank: node.node_rank.0,
        host: node.host.as_str(),
        slots: node.slots.iter().map(|slot| slot.0).collect(),
        workers: List(move || {
            node.workers.iter().map(move |worker| worker_document(worker, hidden))
        }),
    }
}

fn worker_document<'a>(worker: &'a WorkerPlan, hidden: &'a HashSet<&'a OsStr>) -> impl Serialize {
    WorkerDocument {
        rank: worker.rank.0,
        local_rank: worker.local_rank.0,
        slot: worker.slot.0,
        argv: List(|| worker.argv().map(Text)),
        env: EnvDocument { worker, hidden },
    }
}

/// A list whose items are made while it is written.
struct List<F>(F);

impl<I, F> Serialize for List<F>
where
    I: Iterator<Item: Serialize>,
    F: Fn() -> I,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// The source of each variable; a variable that is not listed is remuda's own.
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

/// A string, or `{"base64": …}` if the bytes are not UTF-8.
pub(super) struct Text<T>(pub(super) T);

impl<T: AsRef<OsStr>> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.as_ref();
        if let Some(text) = text.to_str() {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("base64", &BASE64.encode(text.as_bytes()))?;
        map.end()
    }
}

/// An object of variables, sorted by name; unknown values are null.
struct EnvDocument<'a> {
    worker: &'a WorkerPlan,
    hidden: &'a HashSet<&'a OsStr>,
}

impl Serialize for EnvDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.worker.env() {
            let shown = match value.as_ref() {
                EnvValue::Known(_) if self.hidden.contains(name) => Some(Text(OsStr::new(MASK))),
                EnvValue::Known(value) => Some(Text(value.as_os_str())),
                EnvValue::MasterAddr
                | EnvValue::MasterPort
                | EnvValue::JobId
                | EnvValue::ErrorFile
                | EnvValue::ThreadShare
                | EnvValue::IfUnset(_)
                | EnvValue::IfNoGpu(_) => None,
            };
            map.serialize_entry(&name.to_string_lossy(), &shown)?;
        }
        map.end()
    }
}
