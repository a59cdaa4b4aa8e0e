//! `remuda pod` as the launcher of an `MPIJob`: its hostfile names hosts with sshds, which may
//! start late.

use std::fs;
use std::path::PathBuf;

use crate::ssh::cluster::{Cluster, can_run};
use crate::support::launch::Launch;
use crate::support::proof::has;

/// The environment is that of the operator; the system's ssh configuration names the hosts, as in its images.
fn launcher(test: &str) -> Option<(Cluster, Launch, PathBuf)> {
    if !can_run(test) || !has("netns", test) {
        return None;
    }
    let (cluster, of_run) = Cluster::new(&[("pi-worker-0", 2), ("pi-worker-1", 2)]);
    let config = cluster.dir().join("ssh_config");
    let mount = format!("mount --bind '{}' /etc/ssh/ssh_config", config.display());
    let launch = of_run.another().command("pod").through(&["unshare", "--mount"]).under(&mount);
    let launch = launch.options(["--accelerator", "cpu", "--no_python", "--no_local_rank"]);
    let launch = launch.env("K_MPI_JOB_ROLE", "launcher");
    let hostfile = cluster.dir().join("hostfile");
    let launch = launch.env("OMPI_MCA_orte_default_hostfile", &hostfile);
    // The launcher's own Job has an index, which does not describe the hosts.
    let launch = launch.env("JOB_COMPLETION_INDEX", "0");
    let log = cluster.dir().join("termination-log");
    fs::write(&log, "").expect("a file of the keeper's");
    Some((cluster, launch.env("REMUDA_TERMINATION_LOG", &log), log))
}

#[test]
fn mpi_job_launcher_waits_for_its_hosts() {
    let test = "mpi_job_launcher_waits_for_its_hosts";
    let Some((cluster, launch, log)) = launcher(test) else { return };
    let config = cluster.dir().join("ssh_config");
    let complete = fs::read_to_string(&config).expect("written before");
    cluster.configure_client("Host pi-worker-1\n  HostName pi-worker-1.invalid\nHost *");
    let job = launch.sh("echo $RANK/$WORLD_SIZE; [ $RANK = 3 ] && exit 7; sleep 1000").start();
    job.wait_for_error("pi-worker-1 │ not reachable yet after 1");
    // Written in place, because the launcher's mount shows this file.
    fs::write(&config, complete).expect("written");
    let outcome = job.end().code(7);
    assert!(outcome.stdout_text().contains("pi-worker-1:3 │ 3/4"), "{outcome:#?}");
    let outcome = outcome.says("       Pod  launcher (MPIJob: OMPI_MCA_orte_default_hostfile=");
    drop(outcome.says(" of 2 hosts, over ssh\n").says("rank 3 (pi-worker-1) exited with code 7"));
    let message = fs::read(log).expect("the keeper's file");
    let message: serde_json::Value = serde_json::from_slice(&message).expect("JSON");
    assert_eq!(message["status"], 7);
}

#[test]
fn missing_mpi_job_hosts_are_named_after_join_timeout() {
    let test = "missing_mpi_job_hosts_are_named_after_join_timeout";
    let Some((cluster, launch, _)) = launcher(test) else { return };
    cluster.configure_client("Host pi-worker-1\n  HostName pi-worker-1.invalid\nHost *");
    let outcome = launch.option("--join_timeout=1s").sh("true").end().code(69);
    let outcome = outcome.says("error[R107]: 1 of 2 hosts cannot be reached; nothing was started");
    outcome.says("the name does not resolve:\n    pi-worker-1: ssh: Could not resolve hostname");
}
