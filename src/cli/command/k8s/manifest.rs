//! Converts options to Kubernetes objects, and prints notes about the remaining steps.

use std::ffi::OsString;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{CommandFactory, ValueEnum};

use crate::base::{Diagnostic, Status};
use crate::cli::args::check;
use crate::cli::codes::pod as codes;
use crate::cli::command::k8s::args::{K8sCli, K8sCommand, Kind, ManifestArgs, PlacementArgs};
use crate::cli::command::k8s::values::{self, values};
use crate::cli::command::parse::{into_args, parse};
use crate::cli::command::pod;
use crate::cli::error::CliError;
use crate::cli::line::codes::{CANNOT_COMBINE, UNKNOWN_OPTION};
use crate::cli::line::{ArgvSpan, CommandLine, Flags};
use crate::cli::random;
use crate::cli::resolve::hostfile;
use crate::cli::resolve::trust::Trust;
use crate::plan::{
    ManifestError, ManifestSpec, PodAccess, Quantity, Resources, Scheduling, manifest, show_yaml,
};
use crate::pool::{HostSource, ReadOptions, SelectorArgs, SlotCount, nearest, select};
use crate::report::diagnostic::show_all;
use crate::report::{Terminal, print, print_error};

/// The Containerfile that `remuda k8s containerfile` prints.
const CONTAINERFILE: &str = include_str!("../../../../examples/Containerfile");
/// Name of the resource of NVIDIA's GPUs.
const NVIDIA: &str = "nvidia.com/gpu";

/// Returns the definition of `remuda k8s` with its commands.
pub(in crate::cli) fn definition() -> clap::Command {
    K8sCli::command()
}

/// Parses the command line, and prints the objects.
pub(in crate::cli) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (cli, typed) = parse::<K8sCli>(words)?;
    match cli.command {
        K8sCommand::Manifest(args) => print_manifest(*args, &typed),
        K8sCommand::Containerfile => {
            print(CONTAINERFILE).map_err(CliError::output)?;
            Ok(Status::Success)
        }
    }
}

fn print_manifest(args: ManifestArgs, typed: &CommandLine) -> Result<Status, CliError> {
    let wanted = manifest_spec(args, typed)?;
    let objects = manifest(&wanted).map_err(|error| {
        let help = match error {
            ManifestError::Name(_) | ManifestError::NameTooLong(_) => {
                "use another `--name`: the names of all pods start with it"
            }
            ManifestError::Secret(_) => "use another `--secret`",
        };
        CliError::new(Status::Usage, codes::BAD_OBJECT_NAME, error.to_string()).help(help)
    })?;
    print_error(&notes(&wanted));
    print(&show_yaml(&objects)).map_err(CliError::output)?;
    Ok(Status::Success)
}

/// Notes about what the user has to do besides applying the manifest.
fn notes(wanted: &ManifestSpec) -> String {
    let secret = wanted.key.is_none().then(|| secret_note(wanted));
    let missing = ["cpu", "memory"].into_iter().filter(|name| !wanted.resources.has(name));
    let missing: Vec<_> = missing.collect();
    let unreserved = (!missing.is_empty()).then(|| {
        format!(
            "note: the pods reserve no {}, and a full node evicts such pods first: give `--resource \
             cpu=N,memory=SIZE`\n",
            missing.join(" and no ")
        )
    });
    secret.into_iter().chain(unreserved).collect()
}

fn secret_note(wanted: &ManifestSpec) -> String {
    let (secret, namespace) = (&wanted.secret, wanted.namespace.as_ref());
    let namespace = namespace.map_or(String::new(), |name| format!(" --namespace={name}"));
    format!(
        "note: the pods need a Secret `{secret}` with an entry `key`; if it is missing, create it:\n  head \
         -c 32 /dev/urandom | kubectl create secret generic {secret} --from-file=key=/dev/stdin\
         {namespace}\n"
    )
}

fn manifest_spec(args: ManifestArgs, typed: &CommandLine) -> Result<ManifestSpec, CliError> {
    let (nodes, slots) = match &args.hostfile {
        Some(file) => pods_of_hostfile(file, args.slots, typed)?,
        None => (args.nodes.unwrap_or(1), args.gpus.or(args.cpus).unwrap_or(1)),
    };
    let key = args.with_key.then(random::random_bytes::<32>).transpose()?;
    check_kind(args.kind, &args.placement, typed)?;
    let (resources, accelerator) = resources(&args, slots, typed)?;
    check_unknown_option(&args, typed)?;
    let words = pod_args(&args)?;
    check_ports(args.master_port, args.status_port)?;
    let placement = &args.placement;
    Ok(ManifestSpec {
        controller: args.kind.controller(),
        secret: args.secret.unwrap_or_else(|| format!("{}-key", args.name)),
        name: args.name,
        namespace: args.namespace,
        image: args.image,
        nodes,
        slots,
        accelerator,
        key: key.map(|key| STANDARD.encode(key)),
        port: args.master_port,
        status_port: args.status_port,
        grace_s: args.grace,
        shm: args.resources.shm,
        resources,
        volumes: args.resources.volume,
        scheduling: scheduling(placement, typed)?,
        access: PodAccess {
            service_account: values(typed, "service_account", &placement.service_account)
                .pop()
                .map(values::object_name)
                .transpose()?,
            image_pull_secrets: values(typed, "image_pull_secret", &placement.image_pull_secret)
                .into_iter()
                .map(values::object_name)
                .collect::<Result<_, _>>()?,
        },
        labels: values::labels(&values(typed, "label", &placement.label))?,
        annotations: values::annotations(&values(typed, "annotation", &placement.annotation))?,
        ttl_s: placement.ttl.map(seconds),
        deadline_s: placement.deadline.map(seconds),
        restarts_max: args.max_restarts,
        words,
    })
}

/// Converts to whole seconds, rounded up.
fn seconds(time: std::time::Duration) -> u64 {
    time.as_millis().div_ceil(1000) as u64
}

/// Returns the resources of a pod: each worker has one GPU, unless workers have none. The kind of
/// GPU follows from its resource.
fn resources(
    args: &ManifestArgs,
    slots: u32,
    typed: &CommandLine,
) -> Result<(Resources, Option<&'static str>), CliError> {
    let mut resources = Resources::default();
    let given = &args.resources;
    let device = values(typed, "gpu_resource", &given.gpu_resource).pop();
    let device = device.map_or_else(|| Ok(NVIDIA.to_owned()), values::device)?;
    let mut accelerator = None;
    if args.cpus.is_none() {
        let added = resources.add_limit(&device, Quantity::whole(slots));
        added.expect("a device is counted in whole numbers");
        accelerator = accelerator_of(&device);
    } else if let (Some(device), Some(cpus)) =
        (typed.value_span("gpu_resource"), typed.value_span("cpus"))
    {
        let refused = typed.refuse(&[device, cpus], |spans| {
            let message = "`--gpu_resource` and `--cpus` contradict each other";
            Diagnostic::error(CANNOT_COMBINE, spans[0], message)
                .label("workers have a GPU")
                .related(spans[1], "workers have none")
                .help("give `--gpus N`, or leave `--gpu_resource` out")
        });
        return Err(refused.into());
    }
    let limits = values(typed, "resource", &given.resource);
    let requests = values(typed, "request", &given.request);
    Ok((values::resources(resources, &limits, &requests)?, accelerator))
}

/// Returns the value of `--accelerator` for the devices of a resource; NVIDIA's GPUs are detected
/// without the option.
fn accelerator_of(resource: &str) -> Option<&'static str> {
    let domain = resource.split('/').next()?;
    let known = [
        ("amd.com", "rocm"),
        ("gpu.intel.com", "xpu"),
        ("habana.ai", "hpu"),
        ("huawei.com", "npu"),
        ("cambricon.com", "mlu"),
    ];
    known.into_iter().find(|(name, _)| *name == domain).map(|(_, kind)| kind)
}

fn scheduling(args: &PlacementArgs, typed: &CommandLine) -> Result<Scheduling, CliError> {
    let one =
        |flag, text: &Option<String>, read: fn(values::Value<'_>) -> Result<String, CliError>| {
            values(typed, flag, text).pop().map(read).transpose()
        };
    Ok(Scheduling {
        tolerations: values::tolerations(&values(typed, "toleration", &args.toleration))?,
        node_selector: values::labels(&values(typed, "node_selector", &args.node_selector))?,
        topology_key: one("topology_key", &args.topology_key, values::key)?,
        priority_class: one("priority_class", &args.priority_class, values::object_name)?,
        queue: one("queue", &args.queue, values::queue_name)?,
    })
}

/// Refuses options that the controller does not support; they are never left out silently.
fn check_kind(kind: Kind, args: &PlacementArgs, typed: &CommandLine) -> Result<(), CliError> {
    let support = kind.controller().support();
    let unsupported = [
        ("queue", args.queue.is_some() && !support.queue),
        ("ttl", args.ttl.is_some() && !support.ttl),
        ("deadline", args.deadline.is_some() && !support.deadline),
    ];
    let Some((flag, _)) = unsupported.into_iter().find(|(_, is_given)| *is_given) else {
        return Ok(());
    };
    let name = kind.to_possible_value().expect("every kind has a name");
    let name = name.get_name();
    let place = |flag| typed.value_or_end(flag);
    let refused = typed.refuse(&[place(flag), place("kind")], |spans| {
        let message = format!("`--kind {name}` has no `--{flag}`");
        let help = match kind {
            Kind::Trainer => "it is a field of the TrainJob that refers to this runtime",
            Kind::Lws => {
                "a LeaderWorkerSet runs until it is deleted: leave it out, or use `--kind jobset`"
            }
            Kind::Volcano => "give `--timeout TIME` to the pods, after the `--`",
            Kind::Job | Kind::Jobset | Kind::Mpijob | Kind::Pytorchjob => "leave it out",
        };
        Diagnostic::error(CANNOT_COMBINE, spans[0], message)
            .label("not supported by the controller")
            .related(spans[1], "the controller")
            .help(help)
    });
    Err(refused.into())
}

fn pod_args(args: &ManifestArgs) -> Result<Vec<String>, CliError> {
    let mut words = Vec::new();
    if args.cpus.is_some() {
        words.extend(["--accelerator", "cpu"].map(str::to_owned));
    }
    if 0 < args.max_restarts {
        words.push(format!("--max_restarts={}", args.max_restarts));
    }
    words.extend(args.words.iter().cloned());
    check_pod_args(&words)?;
    Ok(words)
}

/// Refuses an option before the `--` that `remuda pod` does not have: it was meant for the
/// manifest.
fn check_unknown_option(args: &ManifestArgs, typed: &CommandLine) -> Result<(), CliError> {
    let Some(first) = args.words.first().and_then(|word| word.strip_prefix("--")) else {
        return Ok(());
    };
    let at = typed.words.len() - args.words.len();
    let is_behind = at.checked_sub(1).is_some_and(|before| typed.words[before] == "--");
    let name = first.split('=').next().unwrap_or_default().replace('-', "_");
    if is_behind || Flags::of(&mut pod::definition()).longs().any(|long| long == name) {
        return Ok(());
    }
    let mut own = definition();
    let own = own.find_subcommand_mut("manifest").expect("it has this command");
    let own = Flags::of(own);
    let Some(near) = nearest(&name, own.longs()) else { return Ok(()) };
    let place = ArgvSpan { word: at, start: 0, end: name.len() + 2 };
    let refused = typed.refuse(&[place], |spans| {
        let message = format!("there is no option `--{name}`");
        Diagnostic::error(UNKNOWN_OPTION, spans[0], message)
            .label("unknown")
            .help(format!("did you mean `--{near}`?"))
    });
    Err(refused.into())
}

/// Refuses words that every pod would refuse. Words with `$(` are not checked: Kubernetes may
/// replace them by values of its own.
fn check_pod_args(words: &[String]) -> Result<(), CliError> {
    if words.iter().any(|word| word.contains("$(")) {
        return Ok(());
    }
    let words = words.iter().map(OsString::from).collect();
    let (args, typed) = into_args(pod::parse(words)?)?;
    check::program(&args.program, &typed)?;
    check::watch(&args.watch, &typed)?;
    let set = [
        ("master_port", args.pod.master_port.is_some()),
        ("status_addr", args.pod.status_addr.is_some()),
        ("nodes", args.pod.nodes.is_some()),
        ("num_gpus", args.pod.num_gpus.is_some()),
    ];
    let Some((name, _)) = set.into_iter().find(|(_, is_set)| *is_set) else { return Ok(()) };
    let own = match name {
        "status_addr" => "status_port",
        "num_gpus" => "gpus",
        same => same,
    };
    let message = format!("`--{name}` of the pods would differ from the manifest");
    Err(CliError::usage(codes::MANIFEST_CONFLICT, message)
        .help(format!("give `--{own}` to `remuda k8s manifest`, before the `--`")))
}

/// Checks that the port of the probes is not one of the three ports of the job.
fn check_ports(master: u16, status: u16) -> Result<(), CliError> {
    if !(master..=master + 2).contains(&status) {
        return Ok(());
    }
    let message = format!(
        "port {status} of the probes is one of the job's ports, {master} to {}",
        master + 2
    );
    Err(CliError::usage(codes::MANIFEST_CONFLICT, message)
        .help("use another `--master_port` or `--status_port`"))
}

/// Returns the number of hosts and of slots of each host: all pods of a job are equal.
fn pods_of_hostfile(
    file: &std::path::Path,
    slots: Option<SlotCount>,
    typed: &CommandLine,
) -> Result<(u32, u32), CliError> {
    let paint = Terminal::detect().paint;
    let slots_option = hostfile::slots_option(&typed.program);
    let options = ReadOptions { slots, slots_option, ..ReadOptions::default() };
    let loaded = hostfile::load_value(file, Trust::Owner, options, None);
    let loaded = loaded.map_err(|error| {
        let error = error.named_as(typed);
        CliError::Screen { status: error.status(), text: error.screen(paint) }
    })?;
    print_error(&show_all([&loaded.findings], paint));
    let pool = loaded.hostfile.pool();
    let source = HostSource::Hostfile(loaded.findings.source.name);
    let selected = select(&pool, &source, &SelectorArgs::default());
    let selected =
        selected.map_err(|findings| CliError::Findings { status: Status::Usage, findings })?;
    let (nodes, _) = selected.pool.into_parts();
    let mut sizes = nodes.iter().map(|(_, slots)| slots.len() as u32);
    let first = sizes.next().unwrap_or(0);
    if let Some(other) = sizes.find(|other| *other != first) {
        let message = format!("hosts of {first} and of {other} slots cannot be pods of one job");
        return Err(CliError::new(Status::Config, codes::UNEVEN_SLOTS, message)
            .help("all pods have the same number of workers: use `--nodes N` and `--gpus N`"));
    }
    Ok((nodes.len() as u32, first))
}
