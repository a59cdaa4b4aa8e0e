//! Readers of a pod's rank and of its job's size, one for the convention of each platform. Pure.

use std::collections::BTreeMap;

use crate::base::env_vars;
use crate::plan::pod::context::{Convention, IdentityError, MpiLauncher, PodContext, PodIdentity};
use crate::plan::pod::mpi_job::{self, HostfileRole, MpiHostfile};
use crate::pool::nodeset;

/// Limit of the nodes of a job of pods.
const NODES_MAX: u32 = 1 << 17;

pub(crate) type Candidate = Result<Option<PodIdentity>, IdentityError>;

/// All conventions, the most specific first.
pub(crate) const CONVENTIONS: [fn(&PodContext) -> Candidate; 12] = [
    mpi_host,
    leader_worker_set,
    kubeflow,
    pytorch_job,
    volcano,
    job_set,
    indexed_job,
    sky_pilot,
    dstack,
    nomad,
    slurm,
    plain,
];

/// Whether the pod is a worker of an `MPIJob`. Such a pod has no hostfile unless its template
/// mounts it; its number is in its name.
pub(crate) fn is_mpi_worker(context: &PodContext) -> bool {
    context.env.get(env_vars::K_MPI_JOB_ROLE).is_some_and(|role| role == "worker")
}

/// The content of MPI's hostfile, if it exists and is readable.
fn read_mpi_hostfile(
    context: &PodContext,
) -> Result<Option<(HostfileRole, &MpiHostfile)>, IdentityError> {
    let Some(hostfile @ MpiHostfile { path, text: Ok(text), .. }) = &context.mpi_hostfile else {
        return Ok(None);
    };
    match mpi_job::read(path, text, &context.hostname) {
        Ok(hint) => Ok(Some((hint, hostfile))),
        Err(expected) => {
            let (name, value) = hostfile.source.clone();
            Err(IdentityError::Malformed { name, value, expected })
        }
    }
}

pub(crate) fn mpi_launcher(context: &PodContext) -> Result<Option<MpiLauncher>, IdentityError> {
    let Some((HostfileRole::Launcher(hosts), hostfile)) = read_mpi_hostfile(context)? else {
        return Ok(None);
    };
    if is_mpi_worker(context) {
        return Ok(None);
    }
    let MpiHostfile { path, source, .. } = hostfile.clone();
    Ok(Some(MpiLauncher { hostfile: path, hosts, source }))
}

fn mpi_host(context: &PodContext) -> Candidate {
    let Some((HostfileRole::Host(host), hostfile)) = read_mpi_hostfile(context)? else {
        return Ok(None);
    };
    let mut reader = Reader::of(context);
    reader.variables.push(hostfile.source.clone());
    reader.variables.push(("hostname".to_owned(), context.hostname.clone()));
    let found = reader.into_identity(Convention::MpiJob, host.rank);
    let (nodes, slots, master_addr) = (Some(host.nodes), Some(host.slots), Some(host.first));
    Ok(Some(PodIdentity { nodes, slots, master_addr, base: host.base, ..found }))
}

/// Reader of variables that records each one it reads.
struct Reader<'a> {
    env: &'a BTreeMap<String, String>,
    variables: Vec<(String, String)>,
}

impl<'a> Reader<'a> {
    fn of(context: &'a PodContext) -> Self {
        Self { env: &context.env, variables: Vec::new() }
    }

    fn text(&mut self, name: &str) -> Option<&'a str> {
        let value = self.env.get(name).filter(|value| !value.is_empty())?;
        self.variables.push((name.to_owned(), value.clone()));
        Some(value)
    }

    fn number(&mut self, name: &str, expected: &'static str) -> Result<Option<u32>, IdentityError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.trim().parse().ok().filter(|number| *number <= NODES_MAX);
        number.map(Some).ok_or_else(|| malformed(name, text, expected))
    }

    fn rank(&mut self, name: &str) -> Result<Option<u32>, IdentityError> {
        self.number(name, "a node rank")
    }

    fn count(&mut self, name: &str) -> Result<Option<u32>, IdentityError> {
        let Some(count) = self.number(name, "a number of nodes")? else { return Ok(None) };
        if count == 0 {
            return Err(malformed(name, "0", "a number of nodes"));
        }
        Ok(Some(count))
    }

    fn port(&mut self, name: &str) -> Result<Option<u16>, IdentityError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let port = text.trim().parse().ok().filter(|port| 0 < *port);
        port.map(Some).ok_or_else(|| malformed(name, text, "a port"))
    }

    fn into_identity(self, convention: Convention, rank: u32) -> PodIdentity {
        PodIdentity {
            convention,
            rank,
            nodes: None,
            master_addr: None,
            master_port: None,
            slots: None,
            base: None,
            variables: self.variables,
        }
    }
}

fn malformed(name: &str, value: &str, expected: &'static str) -> IdentityError {
    IdentityError::Malformed { name: name.to_owned(), value: value.to_owned(), expected }
}

fn leader_worker_set(context: &PodContext) -> Candidate {
    let mut reader = Reader::of(context);
    let Some(rank) = reader.rank(env_vars::LWS_WORKER_INDEX)? else { return Ok(None) };
    let nodes = reader.count(env_vars::LWS_GROUP_SIZE)?;
    let master_addr = reader.text(env_vars::LWS_LEADER_ADDRESS).map(str::to_owned);
    let found = reader.into_identity(Convention::LeaderWorkerSet, rank);
    Ok(Some(PodIdentity { nodes, master_addr, ..found }))
}

/// The convention of Kubeflow's Trainer. `PET_NNODES` may be a range, whose final number is
/// unknown.
fn kubeflow(context: &PodContext) -> Candidate {
    let mut reader = Reader::of(context);
    let Some(rank) = reader.rank(env_vars::PET_NODE_RANK)? else { return Ok(None) };
    let nodes = match context.env.get(env_vars::PET_NNODES).and_then(|nodes| nodes.split_once(':'))
    {
        Some((low, high)) if low == high => low.parse().ok(),
        Some(_) => None,
        None => reader.count(env_vars::PET_NNODES)?,
    };
    // With `auto`, `gpu` and `cpu` the node determines the number.
    let slots = context.env.get(env_vars::PET_NPROC_PER_NODE).and_then(|slots| slots.parse().ok());
    let slots = slots.filter(|slots| 0 < *slots);
    let master_addr = reader.text(env_vars::PET_MASTER_ADDR).map(str::to_owned);
    let master_port = reader.port(env_vars::PET_MASTER_PORT)?;
    let found = reader.into_identity(Convention::Kubeflow, rank);
    Ok(Some(PodIdentity { nodes, master_addr, master_port, slots, ..found }))
}

/// The convention of a `PyTorchJob`, where `RANK` is the number of a pod. Under torchrun it is the
/// number of a process, and `LOCAL_RANK` is set too.
fn pytorch_job(context: &PodContext) -> Candidate {
    let env = &context.env;
    if env.contains_key(env_vars::LOCAL_RANK) || !env.contains_key(env_vars::MASTER_ADDR) {
        return Ok(None);
    }
    let mut reader = Reader::of(context);
    let Some(rank) = reader.rank(env_vars::RANK)? else { return Ok(None) };
    let Some(mut nodes) = reader.count(env_vars::WORLD_SIZE)? else { return Ok(None) };
    // If `nprocPerNode` is a number, `WORLD_SIZE` counts processes (`setPodEnv` in
    // pkg/controller.v1/pytorch/envvar.go of Kubeflow's operator).
    let per_node = env.get(env_vars::PET_NPROC_PER_NODE).and_then(|text| text.parse::<u32>().ok());
    if let Some(per_node) = per_node.filter(|number| 0 < *number && nodes % number == 0) {
        nodes /= per_node;
    }
    let master_addr = reader.text(env_vars::MASTER_ADDR).map(str::to_owned);
    let master_port = reader.port(env_vars::MASTER_PORT)?;
    let found = reader.into_identity(Convention::PyTorchJob, rank);
    Ok(Some(PodIdentity { nodes: Some(nodes), master_addr, master_port, ..found }))
}

/// The convention of Volcano. Every task has a list of its hosts; the list of this pod's task has
/// this host at the pod's index.
fn volcano(context: &PodContext) -> Candidate {
    let mut reader = Reader::of(context);
    let rank = reader.rank(env_vars::VC_TASK_INDEX)?;
    let Some(rank) = (if rank.is_some() { rank } else { reader.rank(env_vars::VK_TASK_INDEX)? })
    else {
        return Ok(None);
    };
    let is_list = |name: &str| name.starts_with("VC_") && name.ends_with("_HOSTS");
    let lists: Vec<_> = context.env.iter().filter(|(name, _)| is_list(name)).collect();
    let has_this_host = |hosts: &str| {
        let own = hosts.split(',').nth(rank as usize).unwrap_or_default();
        own.split('.').next() == Some(context.hostname.as_str())
    };
    let list = match lists[..] {
        [only] => Some(only),
        _ => lists.into_iter().find(|(_, hosts)| has_this_host(hosts)),
    };
    let Some((name, hosts)) = list else {
        return Ok(Some(reader.into_identity(Convention::Volcano, rank)));
    };
    reader.variables.push((name.clone(), hosts.clone()));
    let nodes = hosts.split(',').count() as u32;
    let master_addr = hosts.split(',').next().map(str::to_owned);
    let found = reader.into_identity(Convention::Volcano, rank);
    Ok(Some(PodIdentity { nodes: Some(nodes), master_addr, ..found }))
}

/// The convention of a `JobSet`, whose pods are named `JOBSET-JOB-INDEX-POD`. JobSet sets no
/// variables; templates commonly set these from its labels. Without them a pod belongs to an
/// Indexed Job, as in the manifest that remuda prints.
fn job_set(context: &PodContext) -> Candidate {
    let mut reader = Reader::of(context);
    let (Some(set), Some(job)) =
        (reader.text(env_vars::JOBSET_NAME), reader.text(env_vars::REPLICATED_JOB_NAME))
    else {
        return Ok(None);
    };
    let Some(rank) = reader.rank(env_vars::JOB_COMPLETION_INDEX)? else { return Ok(None) };
    let base = format!("{set}-{job}-0");
    let master_addr = Some(format!("{base}-0.{set}"));
    let found = reader.into_identity(Convention::JobSet, rank);
    Ok(Some(PodIdentity { master_addr, base: Some(base), ..found }))
}

/// The convention of an Indexed Job, whose pods are named `JOB-INDEX`. Its pods get no variable
/// with the number of pods.
fn indexed_job(context: &PodContext) -> Candidate {
    let mut reader = Reader::of(context);
    let Some(rank) = reader.rank(env_vars::JOB_COMPLETION_INDEX)? else { return Ok(None) };
    let base = pod_base_name(&context.hostname, rank);
    let master_addr = base.as_deref().and_then(|base| first_pod_address(context, base));
    let found = reader.into_identity(Convention::IndexedJob, rank);
    Ok(Some(PodIdentity { master_addr, base, ..found }))
}

fn sky_pilot(context: &PodContext) -> Candidate {
    let mut reader = Reader::of(context);
    let Some(rank) = reader.rank(env_vars::SKYPILOT_NODE_RANK)? else { return Ok(None) };
    let nodes = reader.count(env_vars::SKYPILOT_NUM_NODES)?;
    let slots = reader.number(env_vars::SKYPILOT_NUM_GPUS_PER_NODE, "a number of GPUs")?;
    let master_addr = context.env.get(env_vars::SKYPILOT_NODE_IPS).and_then(|ips| first_word(ips));
    let found = reader.into_identity(Convention::SkyPilot, rank);
    let slots = slots.filter(|slots| 0 < *slots);
    Ok(Some(PodIdentity { nodes, master_addr, slots, ..found }))
}

fn dstack(context: &PodContext) -> Candidate {
    let mut reader = Reader::of(context);
    let Some(rank) = reader.rank(env_vars::DSTACK_NODE_RANK)? else { return Ok(None) };
    let nodes = reader.count(env_vars::DSTACK_NODES_NUM)?;
    let slots = reader.number(env_vars::DSTACK_GPUS_PER_NODE, "a number of GPUs")?;
    let master_addr = reader.text(env_vars::DSTACK_MASTER_NODE_IP).map(str::to_owned);
    let ips = context.env.get(env_vars::DSTACK_NODES_IPS);
    let master_addr = master_addr.or_else(|| ips.and_then(|ips| first_word(ips)));
    let found = reader.into_identity(Convention::Dstack, rank);
    let slots = slots.filter(|slots| 0 < *slots);
    Ok(Some(PodIdentity { nodes, master_addr, slots, ..found }))
}

fn nomad(context: &PodContext) -> Candidate {
    let mut reader = Reader::of(context);
    let Some(rank) = reader.rank(env_vars::NOMAD_ALLOC_INDEX)? else { return Ok(None) };
    Ok(Some(reader.into_identity(Convention::Nomad, rank)))
}

fn slurm(context: &PodContext) -> Candidate {
    let mut reader = Reader::of(context);
    let Some(rank) = reader.rank(env_vars::SLURM_NODEID)? else { return Ok(None) };
    let nodes = reader.count(env_vars::SLURM_NNODES)?;
    let list = context
        .env
        .get(env_vars::SLURM_STEP_NODELIST)
        .or(context.env.get(env_vars::SLURM_JOB_NODELIST));
    let first = list.and_then(|list| nodeset::read_list(list, 0).ok()?.first()?.0.hosts().next());
    let first = first.map(|host| host.to_string());
    let found = reader.into_identity(Convention::Slurm, rank);
    Ok(Some(PodIdentity { nodes, master_addr: first, ..found }))
}

/// The convention of scripts that set the variables themselves.
fn plain(context: &PodContext) -> Candidate {
    if context.env.contains_key(env_vars::LOCAL_RANK) {
        return Ok(None);
    }
    let mut reader = Reader::of(context);
    let Some(rank) = reader.rank(env_vars::NODE_RANK)? else { return Ok(None) };
    let nodes = reader.count(env_vars::NNODES)?;
    let nodes = if nodes.is_some() { nodes } else { reader.count(env_vars::WORLD_SIZE)? };
    let master_addr = reader.text(env_vars::MASTER_ADDR).map(str::to_owned);
    let master_port = reader.port(env_vars::MASTER_PORT)?;
    let found = reader.into_identity(Convention::Plain, rank);
    Ok(Some(PodIdentity { nodes, master_addr, master_port, ..found }))
}

/// The convention without any variable: `NAME-3` is node 3 of the pods named `NAME`.
pub(crate) fn stateful_set(context: &PodContext) -> Option<PodIdentity> {
    context.env.get(env_vars::KUBERNETES_SERVICE_HOST)?;
    let (base, number) = context.hostname.rsplit_once('-')?;
    let rank = number.parse::<u32>().ok()?;
    let is_mpi = is_mpi_worker(context);
    let convention = if is_mpi { Convention::MpiJob } else { Convention::StatefulSet };
    let mut found = Reader::of(context).into_identity(convention, rank);
    found.variables.push(("hostname".to_owned(), context.hostname.clone()));
    let master_addr = first_pod_address(context, base);
    Some(PodIdentity { master_addr, base: Some(base.to_owned()), ..found })
}

fn pod_base_name(hostname: &str, rank: u32) -> Option<String> {
    hostname.strip_suffix(&format!("-{rank}")).map(str::to_owned)
}

/// The name of pod 0 in the domain of this pod: without a domain a pod has no DNS name.
fn first_pod_address(context: &PodContext, base: &str) -> Option<String> {
    let (own, domain) = context.full_name.as_deref()?.split_once('.')?;
    (own == context.hostname).then(|| format!("{base}-0.{domain}"))
}

fn first_word(text: &str) -> Option<String> {
    text.split([' ', ',', '\n']).find(|word| !word.is_empty()).map(str::to_owned)
}
