//! `remuda run` inside an allocation: one step of Slurm starts the agents.

use std::fs;

use rustix::process::Signal;

use crate::faces::torchrun::free_port;
use crate::slurm::cluster::{NODES, Slurm, can_run};
use crate::ssh::cluster::Cluster;
use crate::support::launch::{Launch, Outcome, face};
use crate::support::process::Process;
use crate::support::varying_nodes::{members, wait_for_workers, worker_until};
use crate::support::wait_for;

/// A job without hosts on its line.
pub(super) fn job() -> Launch {
    Launch::new().options(["--no_python", "--no_local_rank", "--accelerator", "cpu"])
}

#[track_caller]
fn lines(outcome: &Outcome) -> Vec<String> {
    let strip = |line: &str| line.split_once("│ ").map_or(line, |(_, rest)| rest).to_owned();
    let mut lines: Vec<_> = outcome.stdout_text().lines().map(strip).collect();
    lines.sort();
    lines
}

#[test]
fn step_starts_the_agents_of_all_nodes() {
    if !can_run("step_starts_the_agents_of_all_nodes") {
        return;
    }
    let slurm = Slurm::start();
    let script =
        "echo $RANK of $WORLD_SIZE on $SLURMD_NODENAME ${SLURM_PROCID-no} ${SLURM_NTASKS-no}";
    let launch = slurm.allocate(job().sh(script), &["-N4", "--ntasks-per-node=2"]);
    let outcome = launch.end().code(0);
    let line = |rank: usize| format!("{rank} of 8 on node{:02} no no", rank / 2 + 1);
    assert_eq!(lines(&outcome), (0..2 * NODES).map(line).collect::<Vec<_>>());
    outcome.says("8 workers on 4 nodes (allocation of Slurm job 1)");
}

#[test]
fn failure_ends_the_job_with_the_status_of_the_cause() {
    if !can_run("failure_ends_the_job_with_the_status_of_the_cause") {
        return;
    }
    let slurm = Slurm::start();
    let launch = job().sh("[ $RANK = 1 ] && exit 7; sleep 1000");
    let outcome = slurm.allocate(launch, &["-N2"]).end().code(7);
    outcome.says("error[R101]: rank 1 (node02) exited with code 7");
    // A part of the allocation, in another order.
    let launch = job().options(["--include", "node03@node02"]).sh("echo $RANK $SLURMD_NODENAME");
    let outcome = slurm.allocate(launch, &["-N4"]).end().code(0);
    let shown = lines(&outcome);
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(
        shown.iter().all(|line| line.contains("node02") || line.contains("node03")),
        "{shown:?}"
    );
}

#[test]
fn scancel_asks_the_workers_of_all_nodes_to_stop() {
    if !can_run("scancel_asks_the_workers_of_all_nodes_to_stop") {
        return;
    }
    let slurm = Slurm::start();
    // Slurm signals every process of the step, also the children of the shell.
    let script = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 1; done";
    let running = slurm.allocate(job().sh(script), &["-N2", "-J", "asked"]).start();
    running.wait_for_lines("up", 2);
    slurm.ask("scancel", &["--name=asked"]);
    let outcome = running.end();
    assert_eq!(lines(&outcome), ["asked", "asked", "up", "up"], "{outcome:?}");
    assert_eq!(outcome.record()["cause"]["kind"], "interrupted");
    assert_eq!(outcome.record()["cause"]["signal"], Signal::TERM.as_raw());
    outcome.says("error[R106]: the job was stopped by SIGTERM");
}

#[test]
fn node_that_is_lost_is_started_again() {
    if !can_run("node_that_is_lost_is_started_again") {
        return;
    }
    let slurm = Slurm::start();
    let launch = job().options(["--max_restarts", "1"]);
    let script =
        "echo up $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 1000";
    let running = slurm.allocate(launch.sh(script), &["-N2"]).start();
    running.wait_for_lines("up 0", 2);
    let nodes = running.processes();
    let node = nodes.iter().find(|process| process.command.ends_with("remuda node "));
    let node = node.or_else(|| nodes.iter().find(|process| process.command.contains(" node")));
    node.expect("a process on a node").signal(Signal::KILL);
    let outcome = running.end().code(0);
    assert_eq!(lines(&outcome), ["up 0", "up 0", "up 1", "up 1"]);
    outcome.says("restart 1 of 1");
}

#[test]
fn spare_node_of_an_allocation_takes_the_place_of_a_lost_one() {
    if !can_run("spare_node_of_an_allocation_takes_the_place_of_a_lost_one") {
        return;
    }
    let slurm = Slurm::start();
    let end = slurm.dir().join("end");
    let launch = job().options(["--spares", "1", "--grace", "2s"]).sh(&worker_until(&end));
    let running = slurm.allocate(launch, &["-N3"]).start();
    wait_for_workers(&running, 0, 2);
    let is_second =
        |process: &Process| process.name == "remuda-agent" && process.command.contains("node=1 ");
    let agents = running.processes();
    agents.iter().find(|process| is_second(process)).expect("an agent").signal(Signal::KILL);
    wait_for_workers(&running, 1, 2);
    fs::write(&end, "").expect("a file");
    let outcome = running.end().code(0).says("2 workers on 2 nodes and 1 spare");
    let members = members(&outcome);
    assert_eq!(members[0], "     Nodes  2 workers on 2 nodes; 1 spare node ready", "{members:?}");
}

#[test]
fn step_that_cannot_start_is_explained() {
    if !can_run("step_that_cannot_start_is_explained") {
        return;
    }
    let slurm = Slurm::start();
    let launch = job().options(["--launcher", "slurm", "--launcher_args=--qos=x --no-such-option"]);
    let outcome = slurm.allocate(launch.program(["true"]), &["-N2"]).end().code(69);
    outcome
        .says("error[R107]: 2 of 2 hosts cannot be reached; nothing was started")
        .says("the agent was not started:\n    node[01-02]: `srun` exited with code")
        .says("unrecognized option '--no-such-option'");
    let launch = job().options(["--agent_path", "/nowhere/remuda"]).program(["true"]);
    let outcome = slurm.allocate(launch, &["-N2"]).end().code(69);
    outcome.says("execve(): /nowhere/remuda: No such file or directory");
}

#[test]
fn killed_launcher_leaves_no_worker_on_a_node() {
    if !can_run("killed_launcher_leaves_no_worker_on_a_node") {
        return;
    }
    let slurm = Slurm::start();
    let pid_file = slurm.dir().join("pid");
    let launch = slurm.allocate(job().sh("echo up; sleep 1000"), &["-N2"]);
    let running = launch.under(&format!("echo $$ > {}", pid_file.display())).start();
    running.wait_for_lines("up", 2);
    let pid = fs::read_to_string(&pid_file).expect("the shell wrote it");
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().expect("a pid")).expect("a pid");
    crate::support::process::signal_to(pid, Signal::KILL);
    wait_for("the end of all workers", || {
        let left = running.processes();
        left.iter().all(|process| !process.command.contains("sleep")).then_some(())
    });
    running.end();
}

#[test]
fn tasks_of_a_step_are_nodes_of_one_job() {
    if !can_run("tasks_of_a_step_are_nodes_of_one_job") {
        return;
    }
    let slurm = Slurm::start();
    let launch = job().options(["-n", "2", "--master_addr", "127.0.0.1"]);
    let launch =
        launch.sh("echo $RANK of $WORLD_SIZE in group $GROUP_RANK, devices $CUDA_VISIBLE_DEVICES");
    let launch = slurm.allocate(launch, &["-N2", "-n3", "srun", "-n3"]);
    let outcome = launch.end().code(0);
    // Two tasks of the first node share its devices.
    let devices = ["0,1", "2,3", "0,1"];
    let line =
        |rank: usize| format!("{rank} of 6 in group {}, devices {}", rank / 2, devices[rank / 2]);
    assert_eq!(lines(&outcome), (0..6).map(line).collect::<Vec<_>>());
    let outcome =
        outcome.says("task 0 of 3 of Slurm step 1.0: each task is a node with 2 workers (-n)");
    drop(outcome.does_not_say("the lines differ"));
}

/// A node of an allocation has one task unless something else was typed: no limit for the workers.
#[test]
fn workers_are_counted_by_the_line_of_nodes_without_gpus() {
    if !can_run("workers_are_counted_by_the_line_of_nodes_without_gpus") {
        return;
    }
    let slurm = Slurm::start();
    for allocation in [&["-N2"][..], &["-N2", "srun", "-N1", "-n1"]] {
        let launch = job().options(["-n", "3"]).sh("echo $RANK of $WORLD_SIZE");
        let outcome = slurm.allocate(launch, allocation).end().code(0);
        let world = if allocation.len() == 1 { 6 } else { 3 };
        let line = |rank: usize| format!("{rank} of {world}");
        assert_eq!(lines(&outcome), (0..world).map(line).collect::<Vec<_>>());
    }
}

#[test]
fn sbatch_runs_a_line_as_a_batch_job() {
    if !can_run("sbatch_runs_a_line_as_a_batch_job") {
        return;
    }
    let slurm = Slurm::start();
    let script = slurm.dir().join("work.sh");
    fs::write(&script, "#!/bin/sh\necho $RANK of $WORLD_SIZE on $SLURMD_NODENAME \"$1\"\n")
        .expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).expect("a mode");
    let line = [
        "--no_python",
        "--no_local_rank",
        "--accelerator",
        "cpu",
        "--run_dir",
        "runs",
        "./work.sh",
    ];
    let launch = face("sbatch").options(["-N", "2", "--time", "1h", "--"]).options(line);
    let launch =
        launch.option("it's").cwd(slurm.dir()).env("SLURM_CONF", slurm.dir().join("slurm.conf"));
    let outcome = launch.end().code(0);
    assert!(outcome.stdout_text().starts_with("Slurm job 1: work on 2 nodes\n  output  "));
    let log = slurm.dir().join("work-1.log");
    let read = || fs::read_to_string(&log).ok().filter(|text| text.contains("Finished"));
    let text = wait_for("the end of the batch job", read);
    for rank in 0..2 {
        assert!(text.contains(&format!("{rank} of 2 on node{:02} it's", rank + 1)), "{text}");
    }
}

#[test]
fn error_of_sbatch_names_the_command_that_shows_what_exists() {
    if !can_run("error_of_sbatch_names_the_command_that_shows_what_exists") {
        return;
    }
    let slurm = Slurm::start();
    let submit = |options: &[&str]| {
        let launch = face("sbatch").options(options.iter().copied()).options(["--", "--no_python"]);
        let launch = launch.env("SLURM_CONF", slurm.dir().join("slurm.conf"));
        launch.program(["/bin/true"]).end().code(69).stderr
    };
    let error = |why: &str, help: &str| {
        format!(
            "error[M012]: `sbatch` did not queue the job: it failed (exit status: 1): sbatch: error: {why}\nhelp: {help}\n"
        )
    };
    let (partition, gpus) = (submit(&["-p", "gpu"]), submit(&["--gpus", "1"]));
    assert_eq!(
        partition,
        error(
            "Batch job submission failed: Invalid partition name specified",
            "`sinfo -o '%P %a %l %D %G'` lists the partitions, their state, time limit, number of nodes and GPUs"
        )
    );
    assert_eq!(
        gpus,
        error(
            "Invalid generic resource (gres) specification",
            "`--gpus N` needs nodes with GPUs (GRES) in Slurm; `sinfo -o '%P %D %G'` lists them"
        )
    );
}

/// Variables as Slurm sets them; the nodes do not exist.
#[test]
fn nodes_with_different_numbers_of_gpus_are_named_by_the_user() {
    let launch = || {
        let names = [("JOB_ID", "17"), ("JOB_NODELIST", "n[1-2]"), ("NNODES", "2")];
        let gpus = [("GPUS", "12"), ("GPUS_ON_NODE", "8")];
        names
            .into_iter()
            .chain(gpus)
            .fold(face("run"), |launch, (name, value)| launch.env(&format!("SLURM_{name}"), value))
    };
    let outcome = launch().program(["x.py"]).end().code(2);
    outcome
        .says("the 2 nodes have 12 GPUs, this one has 8: the numbers differ\n")
        .says("help: name the nodes and their GPUs: `--launcher slurm -H n1:8,n2:4`\n");
    let launch = launch().env("SLURM_GPUS", "16");
    let launch = launch.options(["--dry-run", "--no_python"]).program(["/bin/true"]);
    let outcome = launch.end().code(0);
    assert!(outcome.stdout_text().contains("world size 16"), "{outcome:?}");
}

/// `salloc` sets no variable of one component there but those with its number.
#[test]
fn heterogeneous_job_runs_on_its_first_component() {
    if !can_run("heterogeneous_job_runs_on_its_first_component") {
        return;
    }
    let slurm = Slurm::start();
    let script = "echo $RANK of $WORLD_SIZE on $SLURMD_NODENAME";
    let note = |used: &str| format!("note: the Slurm job has 2 components; {used} are used\n");
    let first = ["-N2", "--nodelist=node01,node02", "--ntasks-per-node=2", ":", "-N1"];
    for launcher in ["auto", "slurm"] {
        let launch = slurm.allocate(job().options(["--launcher", launcher]).sh(script), &first);
        let outcome = launch.end().code(0);
        let line = |rank: usize| format!("{rank} of 4 on node{:02}", rank / 2 + 1);
        assert_eq!(lines(&outcome), (0..4).map(line).collect::<Vec<_>>());
        let outcome = outcome.says("4 workers on 2 nodes (allocation of Slurm job ");
        drop(outcome.says(&note("the nodes of the first one")).does_not_say("has no hosts here"));
    }
    // A step of the second component, whose tasks are nodes.
    let second = ["-N1", ":", "-N2", "srun", "--het-group=1", "-N2"];
    let outcome = slurm.allocate(job().sh("echo $RANK of $WORLD_SIZE"), &second).end().code(0);
    assert_eq!(lines(&outcome), ["0 of 2", "1 of 2"]);
}

#[test]
fn line_of_torchrun_uses_the_hosts_of_an_allocation() {
    if !can_run("line_of_torchrun_uses_the_hosts_of_an_allocation") {
        return;
    }
    let slurm = Slurm::start();
    let options = ["--nnodes", "2", "--nproc-per-node", "2", "--no-python"];
    let script = "echo $RANK of $WORLD_SIZE on $SLURMD_NODENAME";
    let launch = slurm.allocate(face("torchrun").options(options).sh(script), &["-N2"]);
    let line = |rank: usize| format!("{rank} of 4 on node{:02}", rank / 2 + 1);
    assert_eq!(lines(&launch.end().code(0)), (0..4).map(line).collect::<Vec<_>>());
    // The same for accelerate, and for an explicit launcher.
    let options = ["launch", "--multi_gpu", "--num_machines=2", "--num_processes=4"];
    let launch = face("accelerate").options(options).options(["--launcher=slurm", "--no_python"]);
    let launch = launch.env("HF_HOME", "/nonexistent").sh(script);
    // Nodes of the allocation before may not be free yet.
    let options = ["-N2", "--nodelist=node01,node02"];
    let outcome = slurm.allocate(launch, &options).end().code(0);
    assert_eq!(lines(&outcome), (0..4).map(line).collect::<Vec<_>>());
}

#[test]
fn named_hosts_of_the_allocation_need_no_ssh() {
    if !can_run("named_hosts_of_the_allocation_need_no_ssh") {
        return;
    }
    let slurm = Slurm::start();
    let launch = job().options(["-H", "node01:2,node03:1"]);
    let launch = launch.sh("echo $RANK of $WORLD_SIZE on $SLURMD_NODENAME");
    let outcome = slurm.allocate(launch, &["-N3"]).end().code(0);
    assert_eq!(lines(&outcome), ["0 of 3 on node01", "1 of 3 on node01", "2 of 3 on node03"]);
    outcome.says("note: the hosts are nodes of Slurm job 1, so `srun` starts the agents there");
}

#[test]
fn machines_have_the_numbers_of_their_tasks() {
    if !can_run("machines_have_the_numbers_of_their_tasks") {
        return;
    }
    let slurm = Slurm::start();
    let port = free_port().to_string();
    let machines = ["launch", "--cpu", "--num_machines=2", "--num_processes=2", "--no_python"];
    let launch = face("accelerate").options(machines).options(["--main_process_ip", "127.0.0.1"]);
    let launch = launch.options(["--main_process_port", &port]).env("HF_HOME", "/nonexistent");
    // Rank 1 fails after rank 0 has said its place.
    let said = launch.dir().join("said").display().to_string();
    let launch = launch.sh(&format!(
        "echo $RANK of $WORLD_SIZE on $SLURMD_NODENAME; [ $RANK = 0 ] && exec touch {said}; \
         while [ ! -e {said} ]; do sleep 0.05; done; exit 1"
    ));
    let outcome = slurm.allocate(launch, &["-N2", "srun"]).end().code(1);
    assert_eq!(lines(&outcome), ["0 of 2 on node01", "1 of 2 on node02"]);
    let count = |text: &str| outcome.stderr.matches(text).count();
    let note = "note: without `--machine_rank`, each of the 2 tasks of Slurm step 1.0 has the number of its task\n";
    assert_eq!(count(note), 1, "{outcome:#?}");
    // Both tasks have one screen.
    assert_eq!(count("error[R101]: rank 1 (node02) exited with code 1"), 1, "{outcome:#?}");
    assert_eq!(count("Ended  the job exited with status 1; node 0 shows the cause"), 1);
}

#[test]
fn tasks_meet_at_the_address_that_slurm_has() {
    if !can_run("tasks_meet_at_the_address_that_slurm_has") {
        return;
    }
    let slurm = Slurm::start();
    let check = |launch: Launch| {
        let options = ["-N2", "--nodelist=node02,node03", "srun"];
        let launch = launch.sh("echo $RANK of $WORLD_SIZE at $MASTER_ADDR");
        let outcome = slurm.allocate(launch, &options).end().code(0);
        assert_eq!(lines(&outcome), ["0 of 2 at 127.0.0.3", "1 of 2 at 127.0.0.3"]);
        let note = "note: the name `node02` does not resolve here: the nodes meet at its address in Slurm, 127.0.0.3 \
                    (NodeAddr)\n";
        assert_eq!(outcome.stderr.matches(note).count(), 1, "{outcome:#?}");
    };
    check(face("torchrun").options(["--nnodes", "2", "--no-python"]));
    // The name in the usual batch script of torchrun.
    let endpoint = format!("node02:{}", free_port());
    let launch =
        face("torchrun").options(["--nnodes", "2", "--no-python", "--rdzv_backend", "c10d"]);
    check(launch.options(["--rdzv_endpoint", &endpoint]));
    check(job().options(["-n", "1"]));
}

#[test]
fn ssh_connects_to_the_addresses_that_slurm_has() {
    const TEST: &str = "ssh_connects_to_the_addresses_that_slurm_has";
    if !can_run(TEST) || !crate::ssh::cluster::can_run(TEST) {
        return;
    }
    let slurm = Slurm::start();
    // Their sshds listen where Slurm has its nodes.
    let (cluster, launch) = Cluster::new(&[("node01", 1), ("node02", 1)]);
    cluster.forget_addresses();
    let launch = launch.options(["--launcher", "ssh"]).sh("echo $RANK of $WORLD_SIZE");
    let outcome = slurm.allocate(launch, &["-N2"]).end().code(0);
    assert_eq!(lines(&outcome), ["0 of 2", "1 of 2"]);
    outcome.says(
        "note: the names of the hosts do not resolve here: ssh connects to their addresses in Slurm (NodeAddr)\n",
    );
}
