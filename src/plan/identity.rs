//! Who a pod is: from its environment and its name to a place in a job. Pure.
//!
//! Each platform has a convention of its own, and several may hold at once (a Trainer runs on a `JobSet`,
//! which runs on an Indexed Job). The first that matches speaks; whatever contradicts it is an error that
//! shows both.

use std::collections::BTreeMap;
use std::fmt;

use crate::base::env_vars;
use crate::pool::nodeset;

/// Nodes that a job of pods may have.
const NODES_MAX: u32 = 1 << 17;

/// What a process can know about itself without asking anybody.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The environment, as far as it is text.
    pub env: BTreeMap<String, String>,
    /// The name of the machine.
    pub hostname: String,
    /// Its full name, if `/etc/hosts` tells one.
    pub full_name: Option<String>,
}

/// Whose rules are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// `LWS_…`.
    LeaderWorkerSet,
    /// `PET_…`: Kubeflow's Trainer, and newer `PyTorchJob`s.
    Kubeflow,
    /// `RANK` and `WORLD_SIZE` of pods.
    PyTorchJob,
    /// `VC_…`.
    Volcano,
    /// `JOBSET_NAME` beside the index of a Job.
    JobSet,
    /// `JOB_COMPLETION_INDEX`.
    IndexedJob,
    /// `SKYPILOT_…`.
    SkyPilot,
    /// `DSTACK_…`.
    Dstack,
    /// `NOMAD_ALLOC_INDEX`.
    Nomad,
    /// `SLURM_NODEID`.
    Slurm,
    /// `NODE_RANK` and how many.
    Plain,
    /// A number at the end of the pod's name.
    StatefulSet,
}

/// A pod's place in its job, as far as anybody says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who says so.
    pub convention: Convention,
    /// Which node this is.
    pub rank: u32,
    /// How many there are.
    pub nodes: Option<u32>,
    /// Where node 0 is.
    pub master_addr: Option<String>,
    /// The port of rank 0.
    pub master_port: Option<u16>,
    /// Workers of each node.
    pub slots: Option<u32>,
    /// What the pods are called, without their number.
    pub base: Option<String>,
    /// The variables that were read, each with its value.
    pub read: Vec<(String, String)>,
}

/// Why nobody knows who this pod is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// No convention matches.
    #[error("nothing says which node this is")]
    Unknown,
    /// The launcher pod of an `MPIJob`, which is told hosts and reaches them by ssh.
    #[error("this is the launcher of an MPIJob, whose hosts are in `{0}`")]
    MpiLauncher(String),
    /// A value that means nothing.
    #[error("`{name}={value}` is not {expected}")]
    Malformed {
        /// The variable.
        name: String,
        /// What it holds.
        value: String,
        /// What it should.
        expected: &'static str,
    },
    /// Two conventions do not agree.
    #[error("{what}: {one} ({of_one}), but {other} ({of_other})")]
    Conflict {
        /// About what.
        what: &'static str,
        /// What the first says.
        one: String,
        /// Who that is.
        of_one: Convention,
        /// What another says.
        other: String,
        /// Who that is.
        of_other: Convention,
    },
}

impl fmt::Display for Convention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaderWorkerSet => "LeaderWorkerSet",
            Self::Kubeflow => "Kubeflow",
            Self::PyTorchJob => "PyTorchJob",
            Self::Volcano => "Volcano",
            Self::JobSet => "JobSet",
            Self::IndexedJob => "Indexed Job",
            Self::SkyPilot => "SkyPilot",
            Self::Dstack => "dstack",
            Self::Nomad => "Nomad",
            Self::Slurm => "Slurm",
            Self::Plain => env_vars::NODE_RANK,
            Self::StatefulSet => "StatefulSet",
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read: Vec<_> =
            self.read.iter().map(|(name, value)| format!("{name}={value}")).collect();
        write!(f, "node {} ({}: {})", self.rank, self.convention, read.join(" "))
    }
}

type Found = Result<Option<Identity>, IdentityError>;

/// All of them, the most telling first.
const CONVENTIONS: [fn(&Surroundings) -> Found; 11] = [
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

/// Who this pod is.
pub fn identify(around: &Surroundings) -> Result<Identity, IdentityError> {
    let mut found: Option<Identity> = None;
    for convention in CONVENTIONS {
        let Some(other) = convention(around)? else { continue };
        match &mut found {
            None => found = Some(other),
            Some(first) => {
                agree(first, &other)?;
                first.nodes = first.nodes.or(other.nodes);
                first.master_addr = first.master_addr.take().or(other.master_addr);
                first.master_port = first.master_port.or(other.master_port);
                first.slots = first.slots.or(other.slots);
                first.base = first.base.take().or(other.base);
                let new = other.read.into_iter().filter(|pair| !first.read.contains(pair));
                let new: Vec<_> = new.collect();
                first.read.extend(new);
            }
        }
    }
    if let Some(found) = found {
        return in_range(found);
    }
    for name in [env_vars::OMPI_MCA_ORTE_DEFAULT_HOSTFILE, env_vars::PRTE_MCA_PRTE_DEFAULT_HOSTFILE]
    {
        if let Some(file) = around.env.get(name) {
            return Err(IdentityError::MpiLauncher(file.clone()));
        }
    }
    stateful_set(around).ok_or(IdentityError::Unknown)
}

/// What two conventions both say must be the same.
fn agree(first: &Identity, other: &Identity) -> Result<(), IdentityError> {
    let conflict = |what, one: String, theirs: String| IdentityError::Conflict {
        what,
        one,
        of_one: first.convention,
        other: theirs,
        of_other: other.convention,
    };
    if first.rank != other.rank {
        let (one, theirs) = (format!("node {}", first.rank), format!("node {}", other.rank));
        return Err(conflict("which node this is", one, theirs));
    }
    match (first.nodes, other.nodes) {
        (Some(one), Some(theirs)) if one != theirs => {
            let (one, theirs) = (format!("{one} nodes"), format!("{theirs} nodes"));
            Err(conflict("how many nodes there are", one, theirs))
        }
        _ => Ok(()),
    }
}

fn in_range(found: Identity) -> Result<Identity, IdentityError> {
    let is_wrong = found.nodes.is_some_and(|nodes| nodes <= found.rank);
    if !is_wrong {
        return Ok(found);
    }
    let (name, value) = found.read.first().cloned().unwrap_or_default();
    Err(IdentityError::Malformed { name, value, expected: "less than the number of nodes" })
}

/// Reads variables and remembers which.
struct Reader<'a> {
    env: &'a BTreeMap<String, String>,
    read: Vec<(String, String)>,
}

impl<'a> Reader<'a> {
    fn of(around: &'a Surroundings) -> Self {
        Self { env: &around.env, read: Vec::new() }
    }

    fn text(&mut self, name: &str) -> Option<&'a str> {
        let value = self.env.get(name).filter(|value| !value.is_empty())?;
        self.read.push((name.to_owned(), value.clone()));
        Some(value)
    }

    fn number(&mut self, name: &str, expected: &'static str) -> Result<Option<u32>, IdentityError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.trim().parse().ok().filter(|number| *number <= NODES_MAX);
        number.map(Some).ok_or_else(|| malformed(name, text, expected))
    }

    fn rank(&mut self, name: &str) -> Result<Option<u32>, IdentityError> {
        self.number(name, "the number of a node")
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

    fn found(self, convention: Convention, rank: u32) -> Identity {
        Identity {
            convention,
            rank,
            nodes: None,
            master_addr: None,
            master_port: None,
            slots: None,
            base: None,
            read: self.read,
        }
    }
}

fn malformed(name: &str, value: &str, expected: &'static str) -> IdentityError {
    IdentityError::Malformed { name: name.to_owned(), value: value.to_owned(), expected }
}

fn leader_worker_set(around: &Surroundings) -> Found {
    let mut reader = Reader::of(around);
    let Some(rank) = reader.rank(env_vars::LWS_WORKER_INDEX)? else { return Ok(None) };
    let nodes = reader.count(env_vars::LWS_GROUP_SIZE)?;
    let master_addr = reader.text(env_vars::LWS_LEADER_ADDRESS).map(str::to_owned);
    let found = reader.found(Convention::LeaderWorkerSet, rank);
    Ok(Some(Identity { nodes, master_addr, ..found }))
}

/// `PET_NNODES` may be a range, of which nobody knows what it will be.
fn kubeflow(around: &Surroundings) -> Found {
    let mut reader = Reader::of(around);
    let Some(rank) = reader.rank(env_vars::PET_NODE_RANK)? else { return Ok(None) };
    let nodes = match around.env.get(env_vars::PET_NNODES).and_then(|nodes| nodes.split_once(':')) {
        Some((low, high)) if low == high => low.parse().ok(),
        Some(_) => None,
        None => reader.count(env_vars::PET_NNODES)?,
    };
    // `auto`, `gpu` and `cpu` leave it to the node.
    let slots = around.env.get(env_vars::PET_NPROC_PER_NODE).and_then(|slots| slots.parse().ok());
    let slots = slots.filter(|slots| 0 < *slots);
    let master_addr = reader.text(env_vars::PET_MASTER_ADDR).map(str::to_owned);
    let master_port = reader.port(env_vars::PET_MASTER_PORT)?;
    let found = reader.found(Convention::Kubeflow, rank);
    Ok(Some(Identity { nodes, master_addr, master_port, slots, ..found }))
}

/// Here `RANK` is a pod's. Below torchrun it is a process's, and `LOCAL_RANK` stands beside it.
fn pytorch_job(around: &Surroundings) -> Found {
    let env = &around.env;
    if env.contains_key(env_vars::LOCAL_RANK) || !env.contains_key(env_vars::MASTER_ADDR) {
        return Ok(None);
    }
    let mut reader = Reader::of(around);
    let Some(rank) = reader.rank(env_vars::RANK)? else { return Ok(None) };
    let Some(nodes) = reader.count(env_vars::WORLD_SIZE)? else { return Ok(None) };
    let master_addr = reader.text(env_vars::MASTER_ADDR).map(str::to_owned);
    let master_port = reader.port(env_vars::MASTER_PORT)?;
    let found = reader.found(Convention::PyTorchJob, rank);
    Ok(Some(Identity { nodes: Some(nodes), master_addr, master_port, ..found }))
}

/// Every task has a list of its hosts; ours is the one that has us at our index.
fn volcano(around: &Surroundings) -> Found {
    let mut reader = Reader::of(around);
    let rank = reader.rank(env_vars::VC_TASK_INDEX)?;
    let Some(rank) = (if rank.is_some() { rank } else { reader.rank(env_vars::VK_TASK_INDEX)? })
    else {
        return Ok(None);
    };
    let is_list = |name: &str| name.starts_with("VC_") && name.ends_with("_HOSTS");
    let lists: Vec<_> = around.env.iter().filter(|(name, _)| is_list(name)).collect();
    let has_us = |hosts: &str| {
        let own = hosts.split(',').nth(rank as usize).unwrap_or_default();
        own.split('.').next() == Some(around.hostname.as_str())
    };
    let ours = match lists[..] {
        [only] => Some(only),
        _ => lists.into_iter().find(|(_, hosts)| has_us(hosts)),
    };
    let Some((name, hosts)) = ours else {
        return Ok(Some(reader.found(Convention::Volcano, rank)));
    };
    reader.read.push((name.clone(), hosts.clone()));
    let nodes = hosts.split(',').count() as u32;
    let master_addr = hosts.split(',').next().map(str::to_owned);
    let found = reader.found(Convention::Volcano, rank);
    Ok(Some(Identity { nodes: Some(nodes), master_addr, ..found }))
}

/// Pods are called `JOBSET-JOB-INDEX-POD`. JobSet sets no variables; these are what templates commonly take
/// from its labels. Without them a pod is one of an Indexed Job, as in the manifest that we print.
fn job_set(around: &Surroundings) -> Found {
    let mut reader = Reader::of(around);
    let (Some(set), Some(job)) =
        (reader.text(env_vars::JOBSET_NAME), reader.text(env_vars::REPLICATED_JOB_NAME))
    else {
        return Ok(None);
    };
    let Some(rank) = reader.rank(env_vars::JOB_COMPLETION_INDEX)? else { return Ok(None) };
    let base = format!("{set}-{job}-0");
    let master_addr = Some(format!("{base}-0.{set}"));
    let found = reader.found(Convention::JobSet, rank);
    Ok(Some(Identity { master_addr, base: Some(base), ..found }))
}

/// Pods are called `JOB-INDEX`. How many there are nobody tells them.
fn indexed_job(around: &Surroundings) -> Found {
    let mut reader = Reader::of(around);
    let Some(rank) = reader.rank(env_vars::JOB_COMPLETION_INDEX)? else { return Ok(None) };
    let base = base_of(&around.hostname, rank);
    let master_addr = base.as_deref().and_then(|base| first_of(around, base));
    let found = reader.found(Convention::IndexedJob, rank);
    Ok(Some(Identity { master_addr, base, ..found }))
}

fn sky_pilot(around: &Surroundings) -> Found {
    let mut reader = Reader::of(around);
    let Some(rank) = reader.rank(env_vars::SKYPILOT_NODE_RANK)? else { return Ok(None) };
    let nodes = reader.count(env_vars::SKYPILOT_NUM_NODES)?;
    let slots = reader.number(env_vars::SKYPILOT_NUM_GPUS_PER_NODE, "a number of GPUs")?;
    let master_addr = around.env.get(env_vars::SKYPILOT_NODE_IPS).and_then(|ips| first_word(ips));
    let found = reader.found(Convention::SkyPilot, rank);
    let slots = slots.filter(|slots| 0 < *slots);
    Ok(Some(Identity { nodes, master_addr, slots, ..found }))
}

fn dstack(around: &Surroundings) -> Found {
    let mut reader = Reader::of(around);
    let Some(rank) = reader.rank(env_vars::DSTACK_NODE_RANK)? else { return Ok(None) };
    let nodes = reader.count(env_vars::DSTACK_NODES_NUM)?;
    let slots = reader.number(env_vars::DSTACK_GPUS_PER_NODE, "a number of GPUs")?;
    let master_addr = reader.text(env_vars::DSTACK_MASTER_NODE_IP).map(str::to_owned);
    let ips = around.env.get(env_vars::DSTACK_NODES_IPS);
    let master_addr = master_addr.or_else(|| ips.and_then(|ips| first_word(ips)));
    let found = reader.found(Convention::Dstack, rank);
    let slots = slots.filter(|slots| 0 < *slots);
    Ok(Some(Identity { nodes, master_addr, slots, ..found }))
}

fn nomad(around: &Surroundings) -> Found {
    let mut reader = Reader::of(around);
    let Some(rank) = reader.rank(env_vars::NOMAD_ALLOC_INDEX)? else { return Ok(None) };
    Ok(Some(reader.found(Convention::Nomad, rank)))
}

fn slurm(around: &Surroundings) -> Found {
    let mut reader = Reader::of(around);
    let Some(rank) = reader.rank(env_vars::SLURM_NODEID)? else { return Ok(None) };
    let nodes = reader.count(env_vars::SLURM_NNODES)?;
    let list = around
        .env
        .get(env_vars::SLURM_STEP_NODELIST)
        .or(around.env.get(env_vars::SLURM_JOB_NODELIST));
    let first = list.and_then(|list| nodeset::read_list(list, 0).ok()?.first()?.0.hosts().next());
    let first = first.map(|host| host.to_string());
    let found = reader.found(Convention::Slurm, rank);
    Ok(Some(Identity { nodes, master_addr: first, ..found }))
}

/// What scripts are used to set by hand.
fn plain(around: &Surroundings) -> Found {
    if around.env.contains_key(env_vars::LOCAL_RANK) {
        return Ok(None);
    }
    let mut reader = Reader::of(around);
    let Some(rank) = reader.rank(env_vars::NODE_RANK)? else { return Ok(None) };
    let nodes = reader.count(env_vars::NNODES)?;
    let nodes = if nodes.is_some() { nodes } else { reader.count(env_vars::WORLD_SIZE)? };
    let master_addr = reader.text(env_vars::MASTER_ADDR).map(str::to_owned);
    let master_port = reader.port(env_vars::MASTER_PORT)?;
    let found = reader.found(Convention::Plain, rank);
    Ok(Some(Identity { nodes, master_addr, master_port, ..found }))
}

/// Where nothing else is said: `NAME-3` is node 3 of the pods called `NAME`.
fn stateful_set(around: &Surroundings) -> Option<Identity> {
    around.env.get(env_vars::KUBERNETES_SERVICE_HOST)?;
    let (base, number) = around.hostname.rsplit_once('-')?;
    let rank = number.parse::<u32>().ok()?;
    let mut found = Reader::of(around).found(Convention::StatefulSet, rank);
    found.read.push(("hostname".to_owned(), around.hostname.clone()));
    let master_addr = first_of(around, base);
    Some(Identity { master_addr, base: Some(base.to_owned()), ..found })
}

fn base_of(hostname: &str, rank: u32) -> Option<String> {
    hostname.strip_suffix(&format!("-{rank}")).map(str::to_owned)
}

/// Pod 0 of the same name, in our own domain: without a domain no pod has a name.
fn first_of(around: &Surroundings, base: &str) -> Option<String> {
    let (own, domain) = around.full_name.as_deref()?.split_once('.')?;
    (own == around.hostname).then(|| format!("{base}-0.{domain}"))
}

fn first_word(text: &str) -> Option<String> {
    text.split([' ', ',', '\n']).find(|word| !word.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `NAME=VALUE` with blanks in between; `@` begins the host's full name.
    fn around(text: &str) -> Surroundings {
        let mut around = Surroundings::default();
        for word in text.split_ascii_whitespace() {
            if let Some(name) = word.strip_prefix('@') {
                around.hostname = name.split('.').next().unwrap_or_default().to_owned();
                around.full_name = name.contains('.').then(|| name.to_owned());
            } else {
                let (name, value) = word.split_once('=').expect("NAME=VALUE");
                around.env.insert(name.to_owned(), value.replace('|', "\n"));
            }
        }
        around
    }

    /// Convention, rank of nodes, address and port, slots.
    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = match identify(&around(text)) {
            Err(error) => format!("error: {error}"),
            Ok(found) => {
                let nodes = found.nodes.map_or("?".to_owned(), |nodes| nodes.to_string());
                let address = found.master_addr.unwrap_or("?".to_owned());
                let port = found.master_port.map_or(String::new(), |port| format!(":{port}"));
                let slots = found.slots.map_or(String::new(), |slots| format!(" x{slots}"));
                format!("{}: {} of {nodes} at {address}{port}{slots}", found.convention, found.rank)
            }
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn every_platform_says_it_in_its_own_way() {
        check(
            "JOB_COMPLETION_INDEX=2 @train-2.train.ns.svc.cluster.local",
            "Indexed Job: 2 of ? at train-0.train.ns.svc.cluster.local",
        );
        check("JOB_COMPLETION_INDEX=2 @train-2", "Indexed Job: 2 of ? at ?");
        check(
            "JOB_COMPLETION_INDEX=1 JOBSET_NAME=js REPLICATED_JOB_NAME=w @js-w-0-1.js.ns",
            "JobSet: 1 of ? at js-w-0-0.js",
        );
        check(
            "LWS_WORKER_INDEX=3 LWS_GROUP_SIZE=4 LWS_LEADER_ADDRESS=lws-0.lws.ns @lws-0-3",
            "LeaderWorkerSet: 3 of 4 at lws-0.lws.ns",
        );
        check(
            "PET_NODE_RANK=1 PET_NNODES=2 PET_NPROC_PER_NODE=8 PET_MASTER_ADDR=j-node-0-0.j \
             PET_MASTER_PORT=29500 JOB_COMPLETION_INDEX=1 @j-node-0-1",
            "Kubeflow: 1 of 2 at j-node-0-0.j:29500 x8",
        );
        check("PET_NODE_RANK=1 PET_NNODES=1:4 PET_NPROC_PER_NODE=auto", "Kubeflow: 1 of ? at ?");
        check(
            "RANK=1 WORLD_SIZE=3 MASTER_ADDR=job-master-0 MASTER_PORT=23456",
            "PyTorchJob: 1 of 3 at job-master-0:23456",
        );
        check(
            "VC_TASK_INDEX=1 VC_WORKER_NUM=2 VC_WORKER_HOSTS=j-worker-0.j,j-worker-1.j \
             VC_PS_HOSTS=j-ps-0.j @j-worker-1",
            "Volcano: 1 of 2 at j-worker-0.j",
        );
        check("VK_TASK_INDEX=0 VC_W_HOSTS=a.j,b.j @a", "Volcano: 0 of 2 at a.j");
        check(
            "SKYPILOT_NODE_RANK=0 SKYPILOT_NUM_NODES=2 SKYPILOT_NODE_IPS=10.0.0.1|10.0.0.2 \
             SKYPILOT_NUM_GPUS_PER_NODE=8",
            "SkyPilot: 0 of 2 at 10.0.0.1 x8",
        );
        check(
            "DSTACK_NODE_RANK=1 DSTACK_NODES_NUM=2 DSTACK_NODES_IPS=10.1.0.1|10.1.0.2 \
             DSTACK_GPUS_PER_NODE=0",
            "dstack: 1 of 2 at 10.1.0.1",
        );
        check("NOMAD_ALLOC_INDEX=4", "Nomad: 4 of ? at ?");
        check(
            "SLURM_NODEID=1 SLURM_NNODES=3 SLURM_JOB_NODELIST=gpu[07-09]",
            "Slurm: 1 of 3 at gpu07",
        );
        check("NODE_RANK=1 NNODES=2 MASTER_ADDR=10.0.0.1", "NODE_RANK: 1 of 2 at 10.0.0.1");
        check("NODE_RANK=1 WORLD_SIZE=2", "NODE_RANK: 1 of 2 at ?");
        check(
            "KUBERNETES_SERVICE_HOST=10.9.0.1 @web-3.web.ns.svc",
            "StatefulSet: 3 of ? at web-0.web.ns.svc",
        );
    }

    #[test]
    fn what_is_not_said_is_not_guessed() {
        check("", "error: nothing says which node this is");
        check("@web-3", "error: nothing says which node this is");
        check("KUBERNETES_SERVICE_HOST=1 @web", "error: nothing says which node this is");
        // A process of torchrun is no pod.
        check(
            "RANK=5 LOCAL_RANK=1 WORLD_SIZE=8 MASTER_ADDR=a",
            "error: nothing says which node this is",
        );
        check(
            "JOB_COMPLETION_INDEX=x",
            "error: `JOB_COMPLETION_INDEX=x` is not the number of a node",
        );
        check(
            "LWS_WORKER_INDEX=0 LWS_GROUP_SIZE=0",
            "error: `LWS_GROUP_SIZE=0` is not a number of nodes",
        );
        check(
            "LWS_WORKER_INDEX=4 LWS_GROUP_SIZE=4",
            "error: `LWS_WORKER_INDEX=4` is not less than the number of nodes",
        );
        check("PET_NODE_RANK=0 PET_MASTER_PORT=0", "error: `PET_MASTER_PORT=0` is not a port");
        check(
            "OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile",
            "error: this is the launcher of an MPIJob, whose hosts are in `/etc/mpi/hostfile`",
        );
    }

    #[test]
    fn two_that_contradict_each_other_are_both_shown() {
        check(
            "PET_NODE_RANK=1 JOB_COMPLETION_INDEX=2",
            "error: which node this is: node 1 (Kubeflow), but node 2 (Indexed Job)",
        );
        check(
            "PET_NODE_RANK=1 PET_NNODES=2 RANK=1 WORLD_SIZE=16 MASTER_ADDR=a",
            "error: how many nodes there are: 2 nodes (Kubeflow), but 16 nodes (PyTorchJob)",
        );
        check(
            "SLURM_NODEID=0 NODE_RANK=1",
            "error: which node this is: node 0 (Slurm), but node 1 (NODE_RANK)",
        );
    }

    #[test]
    fn it_is_said_what_was_read() {
        let found = identify(&around("LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=2")).expect("a pod");
        let text = "node 1 (LeaderWorkerSet: LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=2)";
        assert_eq!(found.to_string(), text);
    }
}
