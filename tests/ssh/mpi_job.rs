//! `remuda pod` as the launcher of an `MPIJob`: its hostfile names hosts with sshds, which come up when
//! they come up.

use std::fs;
use std::path::PathBuf;

use crate::cluster::{Cluster, can_run};
use crate::support::launch::Launch;
use crate::support::proof::has;

/// Its environment is the operator's; ssh knows the hosts by the system's configuration, as in its images.
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
    // A Job of its own has an index, which says nothing about its hosts.
    let launch = launch.env("JOB_COMPLETION_INDEX", "0");
    let log = cluster.dir().join("termination-log");
    fs::write(&log, "").expect("a file of the keeper's");
    Some((cluster, launch.env("REMUDA_TERMINATION_LOG", &log), log))
}

#[test]
fn the_launcher_of_an_mpi_job_starts_it_on_its_hosts_once_they_are_there() {
    let test = "the_launcher_of_an_mpi_job_starts_it_on_its_hosts_once_they_are_there";
    let Some((cluster, launch, log)) = launcher(test) else { return };
    let config = cluster.dir().join("ssh_config");
    let complete = fs::read_to_string(&config).expect("written before");
    cluster.configure_client("Host pi-worker-1\n  HostName pi-worker-1.invalid\nHost *");
    let job = launch.sh("echo $RANK/$WORLD_SIZE; [ $RANK = 3 ] && exit 7; sleep 1000").start();
    job.wait_for_error("pi-worker-1 │ not there yet after 1");
    // In place: the launcher has the file itself before its eyes.
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
fn hosts_of_an_mpi_job_that_do_not_come_are_named_when_the_wait_is_over() {
    let test = "hosts_of_an_mpi_job_that_do_not_come_are_named_when_the_wait_is_over";
    let Some((cluster, launch, _)) = launcher(test) else { return };
    cluster.configure_client("Host pi-worker-1\n  HostName pi-worker-1.invalid\nHost *");
    let outcome = launch.option("--join_timeout=1s").sh("true").end().code(69);
    let outcome = outcome.says("error[R107]: 1 of 2 hosts cannot be reached; nothing was started");
    outcome.says("the name does not resolve:\n    pi-worker-1: ssh: Could not resolve hostname");
}
