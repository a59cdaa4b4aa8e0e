//! Options of `remuda k8s`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::cli::args::values::{parse_duration, parse_slots, parse_timeout};
use crate::cli::line::{BadValue, parse_whole};
use crate::plan::{Controller, Quantity};
use crate::pool::SlotCount;

/// Text after the list of options in the help.
const HELP_FOOTER: &str = "\
The pods share a secret. Without --with_key it must exist before the job, in its namespace:

  head -c 32 /dev/urandom | kubectl create secret generic NAME-key --from-file=key=/dev/stdin

A pod that requests no cpu or memory is evicted first if its node is full. --resource sets limit
and request (QoS class Guaranteed), --request a smaller request; --cpus N is the number of workers
and reserves nothing. Each worker of --gpus has one --gpu_resource:

  remuda k8s manifest --image IMAGE --nodes 4 --gpus 8 --resource cpu=64,memory=512Gi \\
      --resource rdma/hca=8 --toleration nvidia.com/gpu:NoSchedule -- train.py

With a resource for RDMA (a name with rdma, hca, roce, infiniband or efa in it) pods may lock
memory (IPC_LOCK). --queue is a queue of Kueue, which starts the job, or of Volcano.

The image contains the program and remuda. It needs no ssh, no root user and no writable root file
system: see `remuda k8s containerfile`.

Checkpoints need a volume that all pods share: `--volume CLAIM:PATH`. If a pod is lost, evicted or
killed, its controller replaces it, the new pod is the same node, and all workers are restarted
(--max_restarts). `remuda pod --help` describes signals, exit statuses and the termination log.

A LeaderWorkerSet restarts its pods even after a successful job. When the job has ended, type
`kubectl delete leaderworkerset NAME`. A TrainJob refers to a runtime of the Trainer; its `trainer`,
if it has one, can change image, arguments and number of nodes. The launcher of an MPIJob and the
master of a PyTorchJob are node 0; an MPIJob needs no ssh, but an operator that supports
`runLauncherAsWorker`.

With exit status 2, 65, 66, 77, 78, 126 or 127 the Job fails at once, because a retry would fail in
the same way. Pods that are stopped because another pod failed exit with 99, which is not counted.";

/// Print manifests and a Containerfile for jobs on Kubernetes; no cluster is contacted.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda k8s", bin_name = "remuda k8s", version)]
pub(super) struct K8sCli {
    #[command(subcommand)]
    pub(super) command: K8sCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub(super) enum K8sCommand {
    /// Print the objects that start `remuda pod` in every pod of a job.
    #[command(after_help = HELP_FOOTER, rename_all = "snake_case")]
    Manifest(Box<ManifestArgs>),
    /// Print a Containerfile for an image of these pods, as a template.
    Containerfile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    /// An Indexed Job and a headless Service, which need only Kubernetes
    Job,
    /// A `JobSet`
    Jobset,
    /// A `LeaderWorkerSet`, which runs until it is deleted
    Lws,
    /// A `ClusterTrainingRuntime` of Kubeflow's Trainer
    Trainer,
    /// A Job of Volcano
    Volcano,
    /// An `MPIJob` of Kubeflow, v2beta1, whose launcher is node 0
    Mpijob,
    /// A `PyTorchJob` of Kubeflow, v1
    Pytorchjob,
}

impl Kind {
    pub(super) fn controller(self) -> Controller {
        match self {
            Self::Job => Controller::Job,
            Self::Jobset => Controller::JobSet,
            Self::Lws => Controller::LeaderWorkerSet,
            Self::Trainer => Controller::Trainer,
            Self::Volcano => Controller::Volcano,
            Self::Mpijob => Controller::MpiJob,
            Self::Pytorchjob => Controller::PyTorchJob,
        }
    }
}

/// Options of `remuda k8s manifest`.
#[derive(Clone, Debug, clap::Args)]
#[command(rename_all = "snake_case")]
pub(super) struct ManifestArgs {
    /// Controller that starts the pods
    #[arg(long, value_enum, default_value = "job")]
    pub(super) kind: Kind,
    /// Name of the job
    #[arg(long, default_value = "train")]
    pub(super) name: String,
    /// Namespace [default: that of `kubectl`]
    #[arg(long)]
    pub(super) namespace: Option<String>,
    /// Image that contains the program and remuda
    #[arg(long, value_name = "IMAGE")]
    pub(super) image: String,
    /// Number of pods
    #[arg(long, value_name = "N", value_parser = parse_count, required_unless_present = "hostfile")]
    pub(super) nodes: Option<u32>,
    /// Workers of each pod, each with a GPU [default: 1, without --cpus]
    #[arg(long, value_name = "N", value_parser = parse_count, conflicts_with = "cpus")]
    pub(super) gpus: Option<u32>,
    /// Workers of each pod, without GPUs
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(super) cpus: Option<u32>,
    /// Take pods and workers from a hostfile or a list, `n1:8,n2:8`: a pod for each host
    #[arg(short = 'H', long, value_name = "FILE", conflicts_with = "nodes")]
    pub(super) hostfile: Option<PathBuf>,
    /// Workers of each host for which the hostfile or the list gives no number
    #[arg(long, value_name = "N", value_parser = parse_slots, requires = "hostfile")]
    pub(super) slots: Option<SlotCount>,
    /// Secret with an entry `key` [default: NAME-key]
    #[arg(long, value_name = "NAME")]
    pub(super) secret: Option<String>,
    /// Create a new key and print it in a Secret
    #[arg(long)]
    pub(super) with_key: bool,
    /// Port of rank 0; remuda uses the next two ports, too
    #[arg(long, value_name = "PORT", default_value = "29500", value_parser = parse_port)]
    pub(super) master_port: u16,
    /// Port of /livez, /readyz and /metrics
    #[arg(long, value_name = "PORT", default_value = "8080", value_parser = parse_port)]
    pub(super) status_port: u16,
    /// Seconds between SIGTERM and SIGKILL
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = parse_count)]
    pub(super) grace: u32,
    /// Restart all workers after a failure or the loss of a pod, at most N times
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse_number)]
    pub(super) max_restarts: u32,
    /// Resources of each pod.
    #[command(flatten)]
    pub(super) resources: ResourceArgs,
    /// Where and when pods run.
    #[command(flatten)]
    pub(super) placement: PlacementArgs,
    /// Script and arguments, or further options of `remuda pod` before them
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    pub(super) words: Vec<String>,
}

/// Resources of each pod.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Resources of each pod", rename_all = "snake_case")]
pub(super) struct ResourceArgs {
    /// Limit, and request unless --request is smaller: `cpu=8`, `memory=64Gi`, `rdma/hca=1` (repeatable,
    /// or with commas)
    #[arg(long, value_name = "NAME=QUANTITY")]
    pub(super) resource: Vec<String>,
    /// Request that is smaller than the limit: `cpu=500m` (repeatable, or with commas)
    #[arg(long, value_name = "NAME=QUANTITY")]
    pub(super) request: Vec<String>,
    /// Resource of each worker of --gpus, such as `amd.com/gpu`, `gpu.intel.com/i915` or
    /// `gpu.intel.com/xe` [default: nvidia.com/gpu]
    #[arg(long, value_name = "NAME")]
    pub(super) gpu_resource: Option<String>,
    /// Size of /dev/shm; the default of containers, 64 MiB, is too small
    #[arg(long, value_name = "QUANTITY", default_value = "8Gi", value_parser = parse_quantity)]
    pub(super) shm: Quantity,
    /// Claim on a volume, and its mount path, such as `data:/data` (repeatable)
    #[arg(long, value_name = "CLAIM:PATH", value_parser = parse_volume)]
    pub(super) volume: Vec<(String, String)>,
}

/// Where, when and under which account pods run.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Placement and lifetime", rename_all = "snake_case")]
pub(super) struct PlacementArgs {
    /// Taint that the pods tolerate, such as `nvidia.com/gpu:NoSchedule` (repeatable)
    #[arg(long, value_name = "KEY[=VALUE][:EFFECT]")]
    pub(super) toleration: Vec<String>,
    /// Label that nodes must have (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) node_selector: Vec<String>,
    /// Prefer nodes with the same value of this label, such as that of a rack or a zone
    #[arg(long, value_name = "KEY")]
    pub(super) topology_key: Option<String>,
    /// Queue of Kueue, which starts the job, or of Volcano
    #[arg(long, value_name = "NAME")]
    pub(super) queue: Option<String>,
    /// Priority class of the pods
    #[arg(long, value_name = "NAME")]
    pub(super) priority_class: Option<String>,
    /// Service account of the pods, which get its token [default: no token]
    #[arg(long, value_name = "NAME")]
    pub(super) service_account: Option<String>,
    /// Secret for pulling the image (repeatable)
    #[arg(long, value_name = "NAME")]
    pub(super) image_pull_secret: Vec<String>,
    /// Label of the job and its pods (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) label: Vec<String>,
    /// Annotation of the job and its pods (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) annotation: Vec<String>,
    /// Delete the job this long after its end
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) ttl: Option<Duration>,
    /// Stop the job after this time
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub(super) deadline: Option<Duration>,
}

fn parse_count(text: &str) -> Result<u32, BadValue> {
    parse_whole(text, 1..=1 << 17).map(|count| count as u32)
}

fn parse_number(text: &str) -> Result<u32, BadValue> {
    parse_whole(text, 0..=1 << 17).map(|count| count as u32)
}

/// Parses a port; the next two ports must be valid, too.
fn parse_port(text: &str) -> Result<u16, BadValue> {
    parse_whole(text, 1..=65_533).map(|port| port as u16)
}

fn parse_quantity(text: &str) -> Result<Quantity, BadValue> {
    Quantity::parse(text).map_err(|error| BadValue::new(error.to_string()).help(error.help()))
}

fn parse_volume(text: &str) -> Result<(String, String), BadValue> {
    let parts = text.split_once(':').filter(|(claim, path)| {
        let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        !claim.is_empty() && claim.chars().all(is_letter) && path.starts_with('/')
    });
    let (claim, path) = parts
        .filter(|(_, path)| !path.contains(':') && 1 < path.len())
        .ok_or_else(|| BadValue::new("expected CLAIM:PATH, such as data:/data"))?;
    Ok((claim.to_owned(), path.to_owned()))
}
