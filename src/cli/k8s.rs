//! `remuda k8s manifest`: the objects of Kubernetes that start a job of pods, and `remuda k8s
//! containerfile`, an image for them. Nothing is contacted.

use std::ffi::OsString;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{CommandFactory, Parser};

use super::check;
use super::error::CliError;
use super::hostfile::{self, Trust};
use super::line::{BadValue, whole};
use super::lower;
use super::pod;
use super::pod_codes as codes;
use crate::base::Status;
use crate::plan::{Controller, Wanted, manifest, show_yaml};
use crate::pool::{ReadOptions, SelectorArgs, select};
use crate::report::diagnostic::show_all;
use crate::report::{Terminal, print, print_error};

/// Behind the list of options.
const HELP_END: &str = "\
The pods share a secret. Without --with_key it is to be made once, beside what is printed:

  (umask 077; head -c 32 /dev/urandom > key)
  kubectl create secret generic NAME-key --from-file=key

The image holds the program and remuda, and needs no ssh, no root and no writable root: see
`remuda k8s containerfile`.

Checkpoints need a volume that all pods share: `--volume CLAIM:PATH`. A pod that is lost, evicted or killed is replaced by its controller, comes back as the same node, and all
workers start anew (--max_restarts); what `remuda pod --help` says of signals, exit statuses and
the termination log holds.

The pods of a LeaderWorkerSet are started anew also after a job that ended well: delete it then. A
runtime of the Trainer is what a TrainJob refers to; its `trainer`, if it has one, may change image,
words and number of nodes.

Exit statuses 2, 65, 66, 77, 78, 126 and 127 end the Job at once, for another start would end like
them; 99 is that of pods that were stopped because of another one, and is not counted.";

/// What whoever builds an image begins with.
const CONTAINERFILE: &str = include_str!("../../examples/Containerfile");

/// Print and check what starts jobs on Kubernetes; nothing is contacted.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda k8s", bin_name = "remuda k8s", version)]
struct K8sFace {
    #[command(subcommand)]
    command: K8sCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum K8sCommand {
    /// Print the objects that start `remuda pod` in every pod of a job.
    #[command(after_help = HELP_END, rename_all = "snake_case")]
    Manifest(Box<ManifestArgs>),
    /// Print a Containerfile of an image for these pods, to be changed.
    Containerfile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// An Indexed Job and a headless Service: nothing but Kubernetes is needed
    Job,
    /// A `JobSet`
    Jobset,
    /// A `LeaderWorkerSet`, which runs until it is deleted
    Lws,
    /// A `ClusterTrainingRuntime` of Kubeflow's Trainer
    Trainer,
    /// A Job of Volcano
    Volcano,
}

#[derive(Clone, Debug, clap::Args)]
#[command(rename_all = "snake_case")]
struct ManifestArgs {
    /// Who starts the pods
    #[arg(long, value_enum, default_value = "job")]
    kind: Kind,
    /// Name of the job
    #[arg(long, default_value = "train")]
    name: String,
    /// Namespace [default: that of `kubectl`]
    #[arg(long)]
    namespace: Option<String>,
    /// Image that holds the program and remuda
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Pods
    #[arg(long, value_name = "N", value_parser = parse_count, required_unless_present = "hostfile")]
    nodes: Option<u32>,
    /// Workers of each pod, each with a GPU
    #[arg(long, value_name = "N", value_parser = parse_count, conflicts_with = "cpus")]
    gpus: Option<u32>,
    /// Workers of each pod, without GPUs
    #[arg(long, value_name = "N", value_parser = parse_count)]
    cpus: Option<u32>,
    /// Take pods and workers from a hostfile: a pod for each host
    #[arg(short = 'H', long, value_name = "FILE", conflicts_with = "nodes")]
    hostfile: Option<PathBuf>,
    /// Secret with an entry `key` [default: NAME-key]
    #[arg(long, value_name = "NAME")]
    secret: Option<String>,
    /// Make a new key and print it in a Secret
    #[arg(long)]
    with_key: bool,
    /// Port of rank 0; the two behind it are ours
    #[arg(long, value_name = "PORT", default_value = "29500", value_parser = parse_port)]
    master_port: u16,
    /// Port of /livez, /readyz and /metrics
    #[arg(long, value_name = "PORT", default_value = "8080", value_parser = parse_port)]
    status_port: u16,
    /// Seconds between SIGTERM and SIGKILL
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = parse_count)]
    grace: u32,
    /// Size of /dev/shm, of which 64 MiB are too little
    #[arg(long, value_name = "SIZE", default_value = "8Gi")]
    shm: String,
    /// A further resource of each pod, such as `rdma/hca_shared=1`
    #[arg(long, value_name = "NAME=N", value_parser = parse_resource)]
    resource: Option<(String, u32)>,
    /// A claim on a volume, and where it is mounted, such as `data:/data`; may be given several times
    #[arg(long, value_name = "CLAIM:PATH", value_parser = parse_volume)]
    volume: Vec<(String, String)>,
    /// How often workers are started anew after a failure, or the loss of a pod
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse_number)]
    max_restarts: u32,
    /// Script and arguments, or further options of `remuda pod` before them
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    words: Vec<String>,
}

fn parse_count(text: &str) -> Result<u32, BadValue> {
    whole(text, 1..=1 << 17).map(|count| count as u32)
}

fn parse_number(text: &str) -> Result<u32, BadValue> {
    whole(text, 0..=1 << 17).map(|count| count as u32)
}

/// Two more follow.
fn parse_port(text: &str) -> Result<u16, BadValue> {
    whole(text, 1..=65_533).map(|port| port as u16)
}

fn parse_resource(text: &str) -> Result<(String, u32), BadValue> {
    let (name, number) = text.split_once('=').ok_or_else(|| BadValue::new("expected NAME=N"))?;
    Ok((name.to_owned(), parse_count(number)?))
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

/// Returns the definition of the command.
pub(super) fn definition() -> clap::Command {
    K8sFace::command()
}

/// Parses and prints.
pub(super) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (face, _) = super::parse::<K8sFace>(words)?;
    let args = match face.command {
        K8sCommand::Manifest(args) => *args,
        K8sCommand::Containerfile => {
            print(CONTAINERFILE).map_err(CliError::output)?;
            return Ok(Status::Success);
        }
    };
    let wanted = wanted(args)?;
    let objects = manifest(&wanted).map_err(|error| {
        CliError::new(Status::Usage, codes::BAD_OBJECT, error.to_string())
            .help("give another `--name`: it begins the names of all pods")
    })?;
    print(&show_yaml(&objects)).map_err(CliError::output)?;
    Ok(Status::Success)
}

fn wanted(args: ManifestArgs) -> Result<Wanted, CliError> {
    let (nodes, slots) = match &args.hostfile {
        Some(file) => of_hostfile(file)?,
        None => (args.nodes.unwrap_or(1), args.gpus.or(args.cpus).unwrap_or(1)),
    };
    let key = args.with_key.then(lower::random_bytes::<32>).transpose()?;
    let mut words = Vec::new();
    if args.cpus.is_some() {
        words.extend(["--accelerator", "cpu"].map(str::to_owned));
    }
    if 0 < args.max_restarts {
        words.push(format!("--max_restarts={}", args.max_restarts));
    }
    words.extend(args.words);
    check_words(&words)?;
    check_ports(args.master_port, args.status_port)?;
    Ok(Wanted {
        controller: match args.kind {
            Kind::Job => Controller::Job,
            Kind::Jobset => Controller::JobSet,
            Kind::Lws => Controller::LeaderWorkerSet,
            Kind::Trainer => Controller::Trainer,
            Kind::Volcano => Controller::Volcano,
        },
        secret: args.secret.unwrap_or_else(|| format!("{}-key", args.name)),
        name: args.name,
        namespace: args.namespace,
        image: args.image,
        nodes,
        slots,
        gpus: args.cpus.is_none(),
        key: key.map(|key| STANDARD.encode(key)),
        port: args.master_port,
        status_port: args.status_port,
        grace_s: args.grace,
        shm: args.shm,
        resource: args.resource,
        volumes: args.volume,
        restarts_max: args.max_restarts,
        words,
    })
}

/// What every pod would refuse is refused here. Kubernetes may put words of its own in the place of some.
fn check_words(words: &[String]) -> Result<(), CliError> {
    if words.iter().any(|word| word.contains("$(")) {
        return Ok(());
    }
    let words = words.iter().map(OsString::from).collect();
    let (args, typed) = super::to_run(pod::parse(words)?)?;
    check::program(&args.program, &typed)?;
    check::watch(&args.watch, &typed)?;
    let set = [
        ("master_port", args.pod.master_port.is_some()),
        ("status_addr", args.pod.status_addr.is_some()),
        ("nodes", args.pod.nodes.is_some()),
        ("num_gpus", args.pod.num_gpus.is_some()),
    ];
    let Some((name, _)) = set.into_iter().find(|(_, is_set)| *is_set) else { return Ok(()) };
    let ours = match name {
        "status_addr" => "status_port",
        "num_gpus" => "gpus",
        same => same,
    };
    let message = format!("`--{name}` of the pods would differ from what the manifest itself says");
    Err(CliError::usage(codes::CLASH, message)
        .help(format!("give `--{ours}` to `remuda k8s manifest`, before the `--`")))
}

/// Probes need a port that the job leaves them.
fn check_ports(master: u16, status: u16) -> Result<(), CliError> {
    if !(master..=master + 2).contains(&status) {
        return Ok(());
    }
    let message =
        format!("port {status} is that of the probes, and the job has {master} to {}", master + 2);
    Err(CliError::usage(codes::CLASH, message)
        .help("give another `--master_port`, or another `--status_port`"))
}

/// Hosts, and slots of each: pods of one job are all alike.
fn of_hostfile(file: &std::path::Path) -> Result<(u32, u32), CliError> {
    let paint = Terminal::look().paint;
    let loaded = hostfile::load(file, Trust::Owner, ReadOptions::default());
    let loaded = loaded
        .map_err(|error| CliError::Screen { status: error.status(), text: error.screen(paint) })?;
    print_error(&show_all([&loaded.findings], paint));
    let pool = loaded.hostfile.pool();
    let selected = select(&pool, &SelectorArgs::default());
    let selected =
        selected.map_err(|findings| CliError::Findings { status: Status::Usage, findings })?;
    let (nodes, _) = selected.pool.into_parts();
    let mut sizes = nodes.iter().map(|(_, slots)| slots.len() as u32);
    let first = sizes.next().unwrap_or(0);
    if let Some(other) = sizes.find(|other| *other != first) {
        let message = format!("hosts of {first} and of {other} slots cannot be pods of one job");
        return Err(CliError::new(Status::Config, codes::UNEVEN, message)
            .help("pods are all alike: give `--nodes N` and `--gpus N`"));
    }
    Ok((nodes.len() as u32, first))
}
