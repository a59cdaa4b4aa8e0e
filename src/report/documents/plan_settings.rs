//! Settings of a job beside its workers, in the JSON document of `--dry-run --json`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::base::HostName;
use crate::plan::NumaBinding;

/// Settings of a job beside its workers.
#[derive(Clone, Debug, Serialize)]
pub struct PlanSettings {
    /// The node that the line starts; `None`: all nodes, or the node gets its number later.
    pub node: Option<u32>,
    /// Largest number of restarts.
    pub max_restarts: u32,
    /// Time between the request to stop and SIGKILL, in milliseconds.
    pub grace_ms: u64,
    /// Where the streams of workers go, if the launcher has options for it.
    pub streams: Option<StreamSettings>,
    /// Which processors near its GPU a worker gets; `None`: it is not bound.
    pub numa_binding: Option<NumaBinding>,
    /// The program in words, for people, where the workers are this executable.
    #[serde(skip)]
    pub program: Option<String>,
    /// How many nodes have workers, if that may change; `None`: all nodes, always.
    pub elastic: Option<ElasticSettings>,
    /// Options that are from files and variables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<OptionDocument>,
}

/// How many nodes of a job have workers. The plan is that of the largest number.
#[derive(Clone, Debug, Serialize)]
pub struct ElasticSettings {
    /// Smallest number of nodes with which workers run.
    pub min_nodes: usize,
    /// Largest number of nodes on which workers run.
    pub max_nodes: usize,
    /// Nodes that stand ready without workers, from the last host on.
    pub spares: Vec<HostName>,
}

/// An option that is not on the command line.
#[derive(Clone, Debug, Serialize)]
pub struct OptionDocument {
    /// Its name, without dashes.
    pub option: String,
    /// Its value, if it takes one.
    pub value: Option<String>,
    /// Where the value is: `FILE:LINE`, or the name of a variable.
    pub origin: String,
}

/// Where the streams of workers go.
#[derive(Clone, Debug, Serialize)]
pub struct StreamSettings {
    /// Directory of the files; `None`: that of the run.
    pub log_dir: Option<String>,
    /// Streams that go to files only.
    pub redirects: StreamSetDocument,
    /// Streams that go to files and to the screen.
    pub tee: StreamSetDocument,
    /// Prefix of the lines of `tee`.
    pub tee_prefix: String,
    /// Local ranks whose output the screen shows; `None`: all.
    pub shown_local_ranks: Option<BTreeSet<u32>>,
    /// Texts of the lines that are copied to `filtered_stdout.log`.
    pub stdout_filters: Vec<String>,
    /// Texts of the lines that are copied to `filtered_stderr.log`.
    pub stderr_filters: Vec<String>,
}

/// A set of streams: a name such as `both`, or names by local rank.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum StreamSetDocument {
    /// The same streams of every worker.
    Every(&'static str),
    /// Streams by local rank; no stream of others.
    Some(BTreeMap<u32, &'static str>),
}
