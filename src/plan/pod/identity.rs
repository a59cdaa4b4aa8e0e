//! Identity of a pod: its place in a job, read from its environment and its name. Pure.
//!
//! Each platform has its own convention, and several may apply at once (a Trainer runs on a
//! `JobSet`, which runs on an Indexed Job). The first that matches is used; if another one
//! contradicts it, the error shows both.

use crate::plan::pod::context::{IdentityError, PodContext, PodIdentity, PodRole};
use crate::plan::pod::conventions::{CONVENTIONS, is_mpi_worker, mpi_launcher, stateful_set};
use crate::plan::pod::mpi_job::MpiHostfile;

/// The role of this pod. A launcher that is a Job of its own has an index too, and is not a node
/// because of it.
pub fn identify(context: &PodContext) -> Result<PodRole, IdentityError> {
    match mpi_launcher(context)? {
        Some(launcher) => Ok(PodRole::Launcher(launcher)),
        None => identify_node(context).map(PodRole::Node),
    }
}

fn identify_node(context: &PodContext) -> Result<PodIdentity, IdentityError> {
    let mut found: Option<PodIdentity> = None;
    for convention in CONVENTIONS {
        let Some(other) = convention(context)? else { continue };
        match &mut found {
            None => found = Some(other),
            Some(first) => {
                check_agreement(first, &other)?;
                first.nodes = first.nodes.or(other.nodes);
                first.master_addr = first.master_addr.take().or(other.master_addr);
                first.master_port = first.master_port.or(other.master_port);
                first.slots = first.slots.or(other.slots);
                first.base = first.base.take().or(other.base);
                let new =
                    other.variables.into_iter().filter(|pair| !first.variables.contains(pair));
                let new: Vec<_> = new.collect();
                first.variables.extend(new);
            }
        }
    }
    if let Some(found) = found {
        return check_rank(found);
    }
    if let Some(MpiHostfile { path, text: Err(why), .. }) = &context.mpi_hostfile
        && !is_mpi_worker(context)
    {
        return Err(IdentityError::MpiHostfile(path.clone(), why.clone()));
    }
    stateful_set(context).ok_or(IdentityError::Unknown)
}

/// Checks that the values of two conventions are the same.
fn check_agreement(first: &PodIdentity, other: &PodIdentity) -> Result<(), IdentityError> {
    let conflict = |what, one: &str, second: &str| IdentityError::Conflict {
        what,
        one: first.with_source(one),
        other: other.with_source(second),
    };
    if first.rank != other.rank {
        let (one, second) = (format!("node {}", first.rank), format!("node {}", other.rank));
        return Err(conflict("two different numbers for this pod", &one, &second));
    }
    match (first.nodes, other.nodes) {
        (Some(one), Some(second)) if one != second => {
            let (one, second) = (format!("{one} nodes"), format!("{second} nodes"));
            Err(conflict("conflicting numbers of nodes", &one, &second))
        }
        _ => Ok(()),
    }
}

fn check_rank(found: PodIdentity) -> Result<PodIdentity, IdentityError> {
    let is_out_of_range = found.nodes.is_some_and(|nodes| nodes <= found.rank);
    if !is_out_of_range {
        return Ok(found);
    }
    let (name, value) = found.variables.first().cloned().unwrap_or_default();
    Err(IdentityError::Malformed { name, value, expected: "less than the number of nodes" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::pod::mpi_job;

    /// Reads `NAME=VALUE` words; `@` begins the host's full name, `<` the hostfile of MPI.
    fn context_of(text: &str) -> PodContext {
        let mut context = PodContext::default();
        for word in text.split_ascii_whitespace() {
            if let Some(name) = word.strip_prefix('@') {
                context.hostname = name.split('.').next().unwrap_or_default().to_owned();
                context.full_name = name.contains('.').then(|| name.to_owned());
            } else if let Some(hosts) = word.strip_prefix('<') {
                let (path, source) =
                    mpi_job::mpi_hostfile_path(&context.env).expect("a variable has the path");
                let exists = !hosts.is_empty();
                let text =
                    exists.then(|| hosts.replace('|', "\n")).ok_or("no such file".to_owned());
                context.mpi_hostfile = Some(MpiHostfile { path, source, text });
            } else {
                let (name, value) = word.split_once('=').expect("NAME=VALUE");
                context.env.insert(name.to_owned(), value.replace('|', "\n"));
            }
        }
        context
    }

    /// Compares convention, node rank, address and port, and slots.
    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = match identify(&context_of(text)) {
            Err(error) => format!("error: {error}"),
            Ok(PodRole::Launcher(launcher)) => format!("{launcher} of {}", launcher.hosts),
            Ok(PodRole::Node(found)) => {
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
    fn node_rank_is_read_from_every_platform() {
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
            "RANK=1 WORLD_SIZE=24 MASTER_ADDR=job-master-0 PET_NODE_RANK=1 PET_NNODES=3 \
             PET_NPROC_PER_NODE=8",
            "Kubeflow: 1 of 3 at job-master-0 x8",
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
    fn missing_or_invalid_node_rank_is_an_error() {
        check("", "error: the number of this pod is not set (--node_rank)");
        check("@web-3", "error: the number of this pod is not set (--node_rank)");
        check(
            "KUBERNETES_SERVICE_HOST=1 @web",
            "error: the number of this pod is not set (--node_rank)",
        );
        // A process of torchrun is not a pod.
        check(
            "RANK=5 LOCAL_RANK=1 WORLD_SIZE=8 MASTER_ADDR=a",
            "error: the number of this pod is not set (--node_rank)",
        );
        check("JOB_COMPLETION_INDEX=x", "error: `JOB_COMPLETION_INDEX=x` is not a node rank");
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
            "OMPI_MCA_orte_default_hostfile=/hosts <",
            "error: the hostfile of an MPIJob, `/hosts`, cannot be read: no such file",
        );
        check(
            "HYDRA_HOST_FILE=/hosts <a-0:2|a-1:3 @a-1",
            "error: `HYDRA_HOST_FILE=/hosts` is not a hostfile with equal slots on all hosts",
        );
    }

    /// A test for the operator of MPI jobs and for the Trainer, whose launcher is a Job of its own.
    #[test]
    fn mpi_hostfile_distinguishes_launcher_and_nodes() {
        const HOSTS: &str = "<pi-worker-0.pi:2|pi-worker-1.pi:2";
        let of_operator = |role: &str, name: &str, expect: &str| {
            check(&format!("K_MPI_JOB_ROLE={role} {HOSTS} @{name}"), expect);
        };
        of_operator("launcher", "pi-launcher", "launcher (MPIJob: K_MPI_JOB_ROLE=launcher) of 2");
        of_operator("worker", "pi-worker-1", "MPIJob: 1 of 2 at pi-worker-0.pi x2");
        check(
            "JOB_COMPLETION_INDEX=0 OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile \
             <t-node-0-0.t:8|t-node-0-1.t:8 @t-launcher-0-0.t",
            "launcher (MPIJob: OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile) of 2",
        );
        // Workers have no hostfile unless their template mounts it.
        check(
            "K_MPI_JOB_ROLE=worker KUBERNETES_SERVICE_HOST=10.9.0.1 < @pi-worker-1.pi.ml.svc",
            "MPIJob: 1 of ? at pi-worker-0.pi.ml.svc",
        );
        // Variables that an image sets although the job is not of MPI.
        check("HYDRA_HOST_FILE=/hosts < NODE_RANK=1 NNODES=2", "NODE_RANK: 1 of 2 at ?");
        check(
            &format!("K_MPI_JOB_ROLE=worker {HOSTS} NODE_RANK=0 @pi-worker-1"),
            "error: two different numbers for this pod: node 1 (MPIJob: K_MPI_JOB_ROLE=worker \
             hostname=pi-worker-1), but node 0 (NODE_RANK: NODE_RANK=0)",
        );
    }

    #[test]
    fn conflicting_conventions_are_both_shown() {
        check(
            "PET_NODE_RANK=1 JOB_COMPLETION_INDEX=2",
            "error: two different numbers for this pod: node 1 (Kubeflow: PET_NODE_RANK=1), but node 2 \
             (Indexed Job: JOB_COMPLETION_INDEX=2)",
        );
        check(
            "PET_NODE_RANK=1 PET_NNODES=2 RANK=1 WORLD_SIZE=16 MASTER_ADDR=a",
            "error: conflicting numbers of nodes: 2 nodes (Kubeflow: PET_NODE_RANK=1 PET_NNODES=2), but 16 \
             nodes (PyTorchJob: RANK=1 WORLD_SIZE=16 MASTER_ADDR=a)",
        );
        check(
            "SLURM_NODEID=0 NODE_RANK=1",
            "error: two different numbers for this pod: node 0 (Slurm: SLURM_NODEID=0), but node 1 \
             (NODE_RANK: NODE_RANK=1)",
        );
    }

    #[test]
    fn identity_shows_variables_it_was_read_from() {
        let found =
            identify_node(&context_of("LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=2")).expect("a pod");
        let text = "node 1 (LeaderWorkerSet: LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=2)";
        assert_eq!(found.to_string(), text);
    }
}
