//! Lines of several nodes, one on each: which node is the first, and how the nodes are called.

use std::io::Write;

use rustix::process::Signal;

use super::torchrun::{free_port, torchrun};
use crate::support::launch::{Launch, Outcome, face};
use crate::support::proof::has;
use crate::support::scratch::Scratch;

/// Lines of standard output, sorted.
#[track_caller]
fn lines(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> = outcome.stdout_text().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The results of two lines, of which the second is started when the first is node 0.
fn two(line: impl Fn() -> Launch) -> (Outcome, Outcome) {
    let first = line().start();
    first.wait_for_error("Waiting");
    let second = line().end();
    (first.end(), second)
}

/// A batch script that expands `--node_rank=$SLURM_NODEID` itself gives every node the number 0.
#[test]
fn endpoint_outranks_the_number_that_all_lines_have() {
    let endpoint = format!("127.0.0.1:{}", free_port());
    let options =
        ["--nnodes=2", "--node_rank=0", "--rdzv_backend=c10d", "--rdzv_endpoint", &endpoint];
    let (first, second) = two(|| torchrun(&options, "echo $RANK of $WORLD_SIZE"));
    assert_eq!(lines(&first.code(0)), ["0 of 2", "1 of 2"]);
    let _outcome = second.code(0);
}

/// As in Hugging Face's own batch scripts, which give all machines one file of settings.
#[test]
fn machines_with_the_same_settings_meet_at_the_endpoint() {
    let port = free_port().to_string();
    let line = || {
        let options = ["launch", "--multi_gpu", "--num_machines=2", "--num_processes=2"];
        let endpoint = ["--main_process_ip=127.0.0.1", "--main_process_port", &port];
        let launch = face("accelerate").options(options).options(endpoint);
        let launch = launch.options(["--rdzv_backend=c10d", "--machine_rank=0", "--no_python"]);
        launch.env("HF_HOME", "/nonexistent").sh("echo $RANK of $WORLD_SIZE")
    };
    let (first, second) = two(line);
    assert_eq!(lines(&first.code(0)), ["0 of 2", "1 of 2"]);
    let _outcome = second.code(0);
}

/// Both lines of one machine have the number 0.
#[test]
fn second_node_0_on_a_machine_shows_the_number_to_type() {
    let port = free_port().to_string();
    let address = ["--master-addr=127.0.0.1", "--master-port", &port];
    let line = || torchrun(&["--nnodes=2", "--node-rank=0"], "true").options(address);
    let first = line().start();
    first.wait_for_error("Waiting");
    let listens =
        format!("it listens on port {} of `127.0.0.1`", port.parse::<u16>().expect("a port") + 1);
    line().end().code(78).says(&format!(
        "error[R110]: node 0 of this job (run id `none`) runs already: {listens}\n\
         help: for another node of it type `--node-rank 1`; for another job set another `--master-port` on all of \
         its nodes\n"
    ));
    let machines = ["launch", "--num_machines=2", "--num_processes=2", "--machine_rank=0"];
    let address = ["--main_process_ip=127.0.0.1", "--main_process_port", &port, "--no_python"];
    let launch = face("accelerate").options(machines).options(address);
    launch.env("HF_HOME", "/nonexistent").sh("true").end().code(78).says(&format!(
        "error[R110]: node 0 of this job (run id `none`) runs already: {listens}\n\
         help: for another node of it type `--machine_rank 1`; for another job set another \
         `--main_process_port` on all of its nodes\n"
    ));
    first.signal(Signal::INT);
    first.end().code(130);
}

/// A program that is not remuda uses the port of the endpoint.
#[test]
fn other_program_at_the_endpoint_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = (&stream).write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        }
    });
    let endpoint = format!("127.0.0.1:{port}");
    let options = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-conf=join_timeout=2"];
    let outcome = torchrun(&options, "true").options(["--rdzv-endpoint", &endpoint]).end().code(69);
    let other = "a program that is not remuda listens there and sent `SSH-2.0-OpenSSH_9.2`";
    let outcome = outcome.says(&format!("   Waiting  for node 0 ({endpoint}), "));
    let outcome = outcome.says(&format!("(--rdzv-conf join_timeout=SECONDS): {other}\n"));
    drop(outcome.says(&format!(
        "error[R108]: node 0 ({endpoint}) did not answer: {other}; nothing was started\n\
         help: start node 0 with remuda, as all other nodes, or give the job another port; on the machine of node 0, \
         `ss -ltnp 'sport = :{port}'` shows the program\n"
    )));
}

#[test]
fn nodes_are_called_by_the_names_of_their_machines() {
    if !has("netns", "nodes_are_called_by_the_names_of_their_machines") {
        return;
    }
    let endpoint = format!("127.0.0.1:{}", free_port());
    let template = "--log-line-prefix-template=${hostname}:${rank} ";
    let options = ["--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint", &endpoint, "--tee=3"];
    let met = Scratch::new("torchrun", "nodes-met");
    let met = met.path("met").display().to_string();
    // Rank 1 fails after both lines are on the screen: later lines of other ranks would not be shown.
    let script = format!(
        "echo here; if [ $RANK = 0 ]; then exec sleep 60; fi; \
         while [ ! -e {met} ]; do sleep 0.01; done; exit 7"
    );
    // Each command has a machine's name of its own.
    let on = |machine: &str| {
        let rename = format!("echo {machine} >/proc/sys/kernel/hostname; exec \"$@\"");
        let launch = torchrun(&options, &script).option(template);
        launch.through(&["unshare", "--uts", "sh", "-c", &rename, "sh"])
    };
    let first = on("alpha").start();
    first.wait_for_error("Waiting");
    let second = on("beta").start();
    first.wait_for_lines("here", 2);
    std::fs::write(&met, "").expect("a file");
    let second = second.end();
    let outcome = first.end().code(7).says("error[R101]: rank 1 (beta) exited with code 7");
    assert_eq!(lines(&outcome), ["alpha:0 here", "beta:1 here"]);
    let _outcome = second.code(7);
}
