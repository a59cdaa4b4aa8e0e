//! Hosts, their slots and their ranks before a plan is made: for `hostfile check` and `show`.

use std::fmt::Write as _;

use serde::Serialize;

use crate::base::{Slot, UserName};
use crate::pool::Pool;

/// Version of the JSON document; it increases when a field changes its meaning.
pub const WORLD_VERSION: u32 = 1;

/// Formats a table with a line for each node, and the size of the world. Its columns are those of a plan.
pub fn show_world(pool: &Pool) -> String {
    let mut rows = vec![["node", "host", "ranks", "slots"].map(str::to_owned)];
    let mut rank = 0;
    for (node, (host, slots)) in pool.nodes().iter().enumerate() {
        let ranks = show_ranges((rank..).take(slots.len()));
        rank += slots.len();
        let slots = show_ranges(slots.iter().map(|slot| slot.index()));
        let with_user = pool.users().get(host).map(|user| format!("{user}@{host}"));
        let host = with_user.unwrap_or_else(|| host.to_string());
        rows.push([node.to_string(), host, ranks, slots]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (a, b, c) = (width(0), width(1), width(2));
    let mut out = String::new();
    for [node, host, ranks, slots] in &rows {
        writeln!(out, "{node:<a$}  {host:<b$}  {ranks:<c$}  {slots}")
            .expect("writing to a String cannot fail");
    }
    writeln!(out, "\nworld size {rank}").expect("writing to a String cannot fail");
    out
}

/// Formats numbers as `0-3,5`.
pub(super) fn show_ranges(numbers: impl Iterator<Item = usize>) -> String {
    let numbers: Vec<usize> = numbers.collect();
    let runs = numbers.chunk_by(|left, right| left + 1 == *right).map(|run| match run {
        [only] => only.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    runs.collect::<Vec<_>>().join(",")
}

#[derive(Serialize)]
struct WorldDocument<'a> {
    version: u32,
    world_size: usize,
    hosts: Vec<HostDocument<'a>>,
}

#[derive(Serialize)]
pub(super) struct HostDocument<'a> {
    name: &'a str,
    /// Login name for the host, if the file gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    node_rank: usize,
    slots: &'a [Slot],
    first_rank: usize,
}

/// Formats the same facts as JSON; ends with a line end.
pub fn world_json(pool: &Pool) -> String {
    let (world_size, hosts) = (pool.slot_count(), host_documents(pool));
    let document = WorldDocument { version: WORLD_VERSION, world_size, hosts };
    serde_json::to_string_pretty(&document).expect("keys are strings") + "\n"
}

/// All hosts with their node rank and the rank of their first worker.
pub(super) fn host_documents(pool: &Pool) -> Vec<HostDocument<'_>> {
    let mut rank = 0;
    let mut hosts = Vec::with_capacity(pool.nodes().len());
    for (node_rank, (host, slots)) in pool.nodes().iter().enumerate() {
        let user = pool.users().get(host).map(UserName::as_str);
        hosts.push(HostDocument { name: host.as_str(), user, node_rank, slots, first_rank: rank });
        rank += slots.len();
    }
    hosts
}

/// Formats hosts with unknown slots as JSON; ends with a line end.
pub fn names_json<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let host = |(node_rank, name)| serde_json::json!({"name": name, "node_rank": node_rank});
    let hosts: Vec<_> = names.enumerate().map(host).collect();
    let document =
        serde_json::json!({"version": WORLD_VERSION, "world_size": null, "hosts": hosts});
    serde_json::to_string_pretty(&document).expect("keys are strings") + "\n"
}
