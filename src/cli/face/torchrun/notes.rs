//! Notes on lines with options that have no effect: on one that starts one node, although it may be meant for
//! several, and on one that starts all nodes.

use super::args::TorchrunArgs;
use super::rendezvous::{CONF_KEYS, RendezvousConf};
use super::size::parse_nnodes;
use super::values::{Values, variable};
use crate::base::{env_vars, nearest};
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::cli::resolve::{self, ResolvedCluster};
use crate::cli::start::TorchrunStreams;
use crate::launch::LauncherFlag;
use crate::report::StreamSet;

/// Returns the notes on a line that starts this node alone; `flags` are the options of the launcher whose line
/// was typed.
pub(super) fn notes_of_one_node(
    args: &TorchrunArgs,
    values: Values<'_>,
    is_standalone: bool,
    flags: &[LauncherFlag],
) -> Result<Vec<String>, CliError> {
    let nodes = values.text("nnodes", args.size.nnodes.as_deref(), "1");
    let count = nodes.parse(parse_nnodes)?.max;
    let is_dropped = is_standalone && 1 < count;
    let note =
        || format!("note: `--standalone` is this node alone; `--nnodes {count}` has no effect\n");
    let option = nodes_option(flags);
    let tasks = resolve::separate_tasks_note(option);
    // One node is what the user wants if the line says so.
    let is_open = !is_standalone && !nodes.is_given();
    let unused = is_open.then(|| resolve::unused_nodes_note(option)).flatten();
    // A node whose line has no number of nodes would train alone, and so would every other one.
    let forgotten = || warning_of_forgotten_nodes((args, values), nodes.is_given(), option);
    let alone = (!is_standalone && count == 1).then(forgotten);
    Ok(tasks
        .into_iter()
        .chain(unused)
        .chain(is_dropped.then(note))
        .chain(alone.flatten())
        .collect())
}

/// Returns a warning if options say that there are several nodes, but not how many.
fn warning_of_forgotten_nodes(
    (args, values): (&TorchrunArgs, Values<'_>),
    is_counted: bool,
    nodes_option: &str,
) -> Option<String> {
    let rank = values.number("node-rank", args.rendezvous.node_rank.as_deref());
    let rank = rank.filter(|rank| !matches!(rank.text.as_str(), "0" | "-1"));
    let endpoint = values.optional("rdzv-endpoint", args.rendezvous.rdzv_endpoint.as_deref());
    // Port 0 is how one node gets a port of its own, and no other node reaches this one as `localhost`.
    let is_of_one = |text: &str| {
        let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
        text.ends_with(":0") || ["localhost", "127.0.0.1", "[::1]"].contains(&host)
    };
    let endpoint = endpoint.filter(|endpoint| !is_counted && !is_of_one(&endpoint.text));
    let backend = values.text("rdzv-backend", args.rendezvous.rdzv_backend.as_deref(), "static");
    let what = match (rank, endpoint) {
        (Some(rank), _) => no_effect(&rank.shown()),
        // The address is that of rank 0 then.
        (None, Some(endpoint)) if backend.text == "static" => {
            format!("`{}` does not make it wait for others", endpoint.shown())
        }
        (None, Some(endpoint)) => no_effect(&endpoint.shown()),
        (None, None) => return None,
    };
    Some(warning_of_one("node", &what, nodes_option))
}

/// Says that a setting is ignored.
pub(in crate::cli::face) fn no_effect(setting: &str) -> String {
    format!("`{setting}` has no effect")
}

/// Returns the warning about an option of one of several nodes, on a line that does not say how many there are; `noun`
/// is what the launcher calls a node, `what` what becomes of the option.
pub(in crate::cli::face) fn warning_of_one(noun: &str, what: &str, count_option: &str) -> String {
    format!(
        "warning: the job is this {noun} alone, and {what}; for a job of several {noun}s, type `{count_option} N` \
         on each\n"
    )
}

/// The option that sets the number of nodes, of the launcher with these options.
fn nodes_option(flags: &[LauncherFlag]) -> &'static str {
    let is_accelerate =
        |flag: &LauncherFlag| flag.spellings.iter().any(|name| name == "--num_machines");
    if flags.iter().any(is_accelerate) { "--num_machines" } else { "--nnodes" }
}

/// Returns a note on options of a single node in a line that starts all nodes.
pub(in crate::cli::face) fn note_of_hosts(typed: &CommandLine, options: &[&str]) -> Option<String> {
    let given = options.iter().filter(|option| typed.last(option).is_some());
    let names: Vec<String> =
        given.map(|option| format!("`{}`", typed.option_name(option))).collect();
    let have = match names.len() {
        0 => return None,
        1 => "has",
        _ => "have",
    };
    let names = names.join(" and ");
    Some(format!("note: {names} {have} no effect with `-H`: one command starts all nodes\n"))
}

/// Options whose values node 0 uses for all nodes.
const OF_NODE_0: [&str; 8] = [
    "max-restarts",
    "log-dir",
    "redirects",
    "tee",
    "log-line-prefix-template",
    "local-ranks-filter",
    "duplicate-stdout-filters",
    "duplicate-stderr-filters",
];

/// Returns the notes on a line that starts one of several nodes; `of_number` is that on its number.
pub(super) fn notes_of_one_of_several(
    of_number: Option<&String>,
    typed: &CommandLine,
    cluster: &ResolvedCluster,
) -> Vec<String> {
    let joins = cluster.joins_on_own_screen().then(|| note_of_joining(typed)).flatten();
    of_number.cloned().into_iter().chain(joins).collect()
}

/// Returns a note on the options of a line of another node than node 0 that have no effect there.
fn note_of_joining(typed: &CommandLine) -> Option<String> {
    let of_variable = |flag: &str| {
        let name = variable(flag);
        env_vars::get_text(&name).filter(|text| !text.is_empty()).map(|_| name)
    };
    let given = OF_NODE_0.iter();
    let given = given.filter_map(|flag| typed.given_name(flag).or_else(|| of_variable(flag)));
    let names: Vec<String> = given.map(|name| format!("`{name}`")).collect();
    let have = if names.len() == 1 { "has" } else { "have" };
    (!names.is_empty()).then(|| {
        format!(
            "note: {} of this line {have} no effect: node 0 shows the output of all nodes, keeps their logs, and \
             restarts them\n",
            names.join(", ")
        )
    })
}

/// Returns a warning about local ranks of `--redirects`, `--tee` or `--local-ranks-filter` that do not exist on a
/// node with this many workers.
pub(super) fn note_of_local_ranks(
    typed: &CommandLine,
    streams: &TorchrunStreams,
    workers: usize,
) -> Option<String> {
    let of_streams = |set: &StreamSet| match set {
        StreamSet::Every(_) => None,
        StreamSet::Some(of_rank) => of_rank.last_key_value().map(|(rank, _)| *rank),
    };
    let shown = streams.shown.as_ref().and_then(|ranks| ranks.last().copied());
    let largest = [
        ("redirects", of_streams(&streams.redirected)),
        ("tee", of_streams(&streams.tee)),
        ("local-ranks-filter", shown),
    ];
    let (flag, rank) = largest
        .into_iter()
        .filter_map(|(flag, rank)| Some((flag, rank?)))
        .find(|(_, rank)| workers <= *rank as usize)?;
    let have = match workers {
        1 => "a node has 1 worker, with local rank 0".to_owned(),
        _ => format!("a node has {workers} workers, with local ranks 0 to {}", workers - 1),
    };
    Some(format!(
        "warning: local rank {rank} of `{}` does not exist: {have}\n",
        typed.shown_name(flag)
    ))
}

/// Returns a warning about keys of `--rdzv-conf` that neither torch nor remuda reads: one may be a typing error.
pub(super) fn note_of_conf(typed: &CommandLine, conf: &RendezvousConf) -> Option<String> {
    let first = conf.unknown.first()?;
    let names: Vec<String> =
        conf.unknown.iter().map(|key| format!("`{}`", key.escape_debug())).collect();
    let (keys, have) = if names.len() == 1 { ("key", "has") } else { ("keys", "have") };
    let option = typed.shown_name("rdzv-conf");
    let known = CONF_KEYS.map(|key| format!("`{key}`")).join(", ");
    let near = nearest(first, CONF_KEYS).map(|near| format!("did you mean `{near}`? "));
    Some(format!(
        "warning: the {keys} {} of `{option}` {have} no effect\nhelp: {}keys with an effect: {known}\n",
        names.join(", "),
        near.unwrap_or_default()
    ))
}
