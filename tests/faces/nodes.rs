//! Lines of several nodes, one on each: which node is the first, and how the nodes are called.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use super::torchrun::{agent_port, free_port, torchrun};
use crate::support::launch::{Launch, Outcome, example, face};
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
    let port = free_port();
    let listens = format!("it listens on port {} of `127.0.0.1`", agent_port(port));
    let port = port.to_string();
    let address = ["--master-addr=127.0.0.1", "--master-port", &port];
    let line = || torchrun(&["--nnodes=2", "--node-rank=0"], "true").options(address);
    let first = line().start();
    first.wait_for_error("Waiting");
    line().end().code(78).says(&format!(
        "error[R110]: node 0 of this job runs already: {listens}\n\
         help: for another node of it type `--node-rank 1`; for another job set another `--master-port` on all of \
         its nodes\n"
    ));
    let machines = ["launch", "--num_machines=2", "--num_processes=2", "--machine_rank=0"];
    let address = ["--main_process_ip=127.0.0.1", "--main_process_port", &port, "--no_python"];
    let launch = face("accelerate").options(machines).options(address);
    launch.env("HF_HOME", "/nonexistent").sh("true").end().code(78).says(&format!(
        "error[R110]: node 0 of this job runs already: {listens}\n\
         help: for another node of it type `--machine_rank 1`; for another job set another \
         `--main_process_port` on all of its nodes\n"
    ));
    first.signal(Signal::INT);
    first.end().code(130);
}

/// The number of torchrun's and accelerate's lines is 0 by default.
#[test]
fn node_without_a_number_says_what_the_others_type() {
    let port = free_port().to_string();
    let check = |line: Launch, note: &str| {
        let running = line.start();
        running.wait_for_error("Waiting");
        running.signal(Signal::INT);
        running.end().code(130).says(note).says(" --rdzv_conf join_timeout=SECONDS)".trim_start());
    };
    let address = ["--master_addr=127.0.0.1", "--master_port", &port];
    check(
        torchrun(&["--nnodes=2"], "true").options(address),
        "note: `--node_rank` is not given, so it is 0; type `--node_rank 1` on the other one\n",
    );
    let machines = ["launch", "--cpu", "--num_machines=3", "--num_processes=3", "--no_python"];
    let address = ["--main_process_ip=127.0.0.1", "--main_process_port", &port];
    let launch = face("accelerate").options(machines).options(address).sh("true");
    check(
        launch.env("HF_HOME", "/nonexistent"),
        "note: `--machine_rank` is not given, so it is 0; type `--machine_rank 1` to `--machine_rank 2` on the others\n",
    );
}

/// Options that node 0 decides for all nodes; `--numa-binding` is a matter of each node.
#[test]
fn node_that_joins_names_its_options_without_effect() {
    let port = free_port().to_string();
    let address = ["--master_addr=127.0.0.1", "--master_port", &port];
    let line = |rank: &'static str| {
        torchrun(&["--nnodes=2", "--node_rank", rank], "true").options(address)
    };
    let first = line("0").options(["--max_restarts=1", "--tee=3"]).start();
    first.wait_for_error("Waiting");
    let second = line("1").options(["--max_restarts=1", "-t", "3", "--shutdown-timeout=5"]);
    let second = second.env("PET_LOG_DIR", "logs").end().code(0);
    let second = second.says(
        "note: `--max_restarts`, `PET_LOG_DIR`, `--tee` of this line have no effect: node 0 shows the output of all \
         nodes, keeps their logs, and restarts them\n",
    );
    assert!(!second.stderr.contains("shutdown"), "{second:?}");
    first.end().code(0).does_not_say("have no effect");
}

#[test]
fn node_that_joins_binds_its_own_workers() {
    let port = free_port().to_string();
    let address = ["--master_addr=127.0.0.1", "--master_port", &port];
    let line = |rank: &'static str| {
        torchrun(&["--nnodes=2", "--node_rank", rank], "true").options(address)
    };
    let first = line("0").start();
    first.wait_for_error("Waiting");
    let why = "--numa-binding";
    let second = line("1").option("--numa-binding=node").env("CUDA_VISIBLE_DEVICES", "").end();
    second.code(78).says(why);
    first.end().code(78).says(why);
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

/// A line of a node of a static rendezvous, which runs a script of its own directory, if that has one.
fn with_script(rank: u32, port: u16, script: Option<&str>) -> Launch {
    let launch = face("torchrun").options(["--nnodes=3", "--master-addr=127.0.0.1"]);
    let launch = launch.options([format!("--master-port={port}"), format!("--node-rank={rank}")]);
    let dir = launch.dir().to_owned();
    if let Some(script) = script {
        fs::write(dir.join("train.py"), script).expect("a file");
    }
    launch.cwd(dir).program(["train.py"])
}

/// What node 1 lacks, as the others show it.
const NO_SCRIPT: &str = "error[R100]: 1 of 3 nodes cannot take part; nothing was started\n  node-1: cannot read \
                         script `train.py`: no such file or directory\n";

#[test]
fn node_that_cannot_start_its_workers_ends_the_job() {
    let port = free_port();
    let first = with_script(0, port, Some("")).start();
    first.wait_for_error("Waiting");
    let third = with_script(2, port, Some("")).start();
    third.wait_for_error("Joined");
    drop(with_script(1, port, None).end().code(66).says(
        "error[R100]: this node cannot take part; nothing was started here\n  node-1: cannot read script \
         `train.py`: no such file or directory\n",
    ));
    drop(first.end().code(66).says(NO_SCRIPT));
    drop(third.end().code(66).says(NO_SCRIPT));
}

#[test]
fn node_that_cannot_start_its_workers_waits_for_node_0() {
    let port = free_port();
    let second = with_script(1, port, None).start();
    second.wait_for_error("error[R100]: this node cannot take part");
    drop(with_script(0, port, Some("")).end().code(66).says(NO_SCRIPT));
    drop(second.end().code(66).does_not_say("was not reported"));
}

#[test]
fn node_that_connects_late_receives_the_reason() {
    let port = free_port();
    let first = with_script(0, port, Some("")).start();
    first.wait_for_error("Waiting");
    with_script(1, port, None).end().code(66);
    first.wait_for_error(NO_SCRIPT);
    drop(with_script(2, port, Some("")).end().code(66).says(NO_SCRIPT));
    first.end().code(66);
}

#[test]
fn node_0_that_cannot_start_its_workers_tells_the_others() {
    let port = free_port();
    let first = with_script(0, port, None).start();
    let screen = NO_SCRIPT.replace("node-1", "node-0");
    first.wait_for_error(&screen);
    let others = [1, 2].map(|rank| with_script(rank, port, Some("")).start());
    for other in others {
        drop(other.end().code(66).says(&screen));
    }
    first.end().code(66);
}

#[test]
fn node_that_cannot_report_its_problem_says_so() {
    let line =
        with_script(1, free_port(), None).option("--rdzv-conf=join_timeout=1").end().code(66);
    drop(line.says("warning: this was not reported to node 0: node 0 (127.0.0.1:"));
}

#[test]
fn varying_job_goes_on_without_a_node_that_cannot_start() {
    let endpoint = format!("127.0.0.1:{}", free_port());
    let line = |script: Option<&str>| {
        let launch = face("torchrun").options(["--nnodes=1:2", "--rdzv-backend=c10d"]);
        let launch = launch.options(["--rdzv-endpoint", &endpoint]);
        let launch = launch.option("--rdzv-conf=last_call_timeout=600");
        let dir = launch.dir().to_owned();
        if let Some(script) = script {
            fs::write(dir.join("train.py"), script).expect("a file");
        }
        launch.cwd(dir).program(["train.py"])
    };
    let script = "import os; print(os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n";
    let first = line(Some(script)).start();
    first.wait_for_error("Waiting");
    line(None).end().code(66);
    first.wait_for_error("warning: node-1 cannot take part: cannot read script `train.py`: ");
    line(Some(script)).end().code(0);
    assert_eq!(lines(&first.end().code(0)), ["0 of 2", "1 of 2"]);
}

#[test]
fn node_0_checks_its_script_before_its_name_resolves() {
    let options = ["--nnodes=2", "--node-rank=0", "--master-addr=no-such-name.invalid"];
    let line = face("torchrun").options(options).option("--rdzv-conf=join_timeout=1");
    let outcome = line.program(["no_such.py"]).end().code(66);
    let outcome = outcome.says(
        "error[R100]: 1 of 2 nodes cannot take part; nothing was started\n  node-0: cannot read script \
         `no_such.py`: no such file or directory\n",
    );
    assert_eq!(outcome.runs(), Vec::<String>::new(), "nothing is kept");
}

#[test]
fn signal_ends_the_wait_for_the_name_of_node_0() {
    for (signal, code, name) in [(Signal::INT, 130, "SIGINT"), (Signal::TERM, 143, "SIGTERM")] {
        let options = ["--nnodes=2", "--node-rank=0", "--master-addr=no-such-name.invalid"];
        let job = torchrun(&options, "true").start();
        job.wait_for_error("Waiting  for the name of this node to resolve");
        job.signal(signal);
        drop(job.end().code(code).says(&format!(
            "error[R106]: {name} stopped this node while it waited for the name of node 0 \
             (`no-such-name.invalid`) to resolve; nothing was started\n"
        )));
    }
}

#[test]
fn jobs_with_neighbouring_ports_run_side_by_side() {
    let place = Scratch::new("torchrun", "stacked");
    let go = place.path("go");
    let port = free_port();
    let script = format!("echo $RANK; while [ ! -e {} ]; do sleep 0.05; done", go.display());
    let line = |port: u16, rank: u32| {
        let options = ["--nnodes=2", "--master-addr=127.0.0.1"];
        let launch = torchrun(&options, &script);
        launch.options([format!("--master-port={port}"), format!("--node-rank={rank}")]).start()
    };
    let jobs = [0, 1, 2].map(|next| [0, 1].map(|rank| line(port + next, rank)));
    for [first, _] in &jobs {
        first.wait_for_lines("", 2);
    }
    place.write("go", "");
    for [first, second] in jobs {
        assert_eq!(lines(&first.end().code(0)), ["0", "1"]);
        second.end().code(0);
    }
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

/// The agents of the other nodes connect to another port than the one of the line.
#[test]
fn waiting_node_shows_the_port_of_its_line() {
    let options = ["--nnodes=2", "--node-rank=1", "--master-addr=no.such.host.invalid"];
    let options = [&options[..], &["--master-port=29778", "--rdzv-conf=join_timeout=2"]].concat();
    let screen = torchrun(&options, "true").end().code(69).stderr;
    let why = screen.split(" does not resolve: ").nth(1).and_then(|rest| rest.lines().next());
    let why = why.unwrap_or_else(|| panic!("a reason: {screen}"));
    let (waited, job) = (after(&screen, "29778), "), after(&screen, "job "));
    let place = "no.such.host.invalid:24779";
    let unresolved = format!("the name `no.such.host.invalid` does not resolve: {why}");
    assert_eq!(
        screen,
        format!(
            "   Joining  job {job} at {place} (for master port 29778) as node 1 of 2 (node-1), within 2.0 s\n   \
             Waiting  for node 0 ({place}, for master port 29778), {waited} s so far, at most 2.0 s (--rdzv-conf \
             join_timeout=SECONDS): {unresolved}\n\
             help: correct the name in `--master-addr`, or type an address; it is looked up again until then\n\
             error[R108]: node 0 ({place}, for master port 29778) did not answer: {unresolved}; nothing was started\n\
             help: check that node 0 runs, at the address and port of this line; its screen lists the nodes that it \
             waits for\n"
        )
    );
}

/// What a worker prints about its place.
const PLACE: &str = "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $GROUP_RANK";

/// As under torchrun, where every node counts its own devices.
#[test]
fn nodes_may_start_different_numbers_of_workers() {
    let port = format!("--master-port={}", free_port());
    let line = |node: u32, workers: u32| {
        let options = ["--nnodes=3", "--master-addr=127.0.0.1", &port];
        let own = [format!("--node-rank={node}"), format!("--nproc-per-node={workers}")];
        torchrun(&options, PLACE).options(own)
    };
    let first = line(0, 1).start();
    first.wait_for_error("Waiting");
    let third = line(2, 1).start();
    third.wait_for_error("Joined");
    drop(line(1, 3).end().code(0));
    drop(third.end().code(0));
    let first = first.end().code(0);
    let expected = [
        "0 of 5, 0 of 1 on 0",
        "1 of 5, 0 of 3 on 1",
        "2 of 5, 1 of 3 on 1",
        "3 of 5, 2 of 3 on 1",
        "4 of 5, 0 of 1 on 2",
    ];
    assert_eq!(lines(&first), expected);
    drop(first.says(
        "note: every node executes its own line, and the lines differ\n  node 0 has  workers per node: 1\n  \
         node 1 has  workers per node: 3\n",
    )
    .says("     Nodes  5 workers: 1 on node-0, 3 on node-1, 1 on node-2\n"));
}

/// Workers of remuda's own runtime meet, whichever node has more of them.
#[test]
fn workers_of_different_nodes_meet() {
    let endpoint = format!("--rdzv-endpoint=127.0.0.1:{}", free_port());
    let line = |workers: u32| {
        let options = ["--nnodes=2", "--rdzv-backend=c10d", &endpoint];
        let own = format!("--nproc-per-node={workers}");
        let words = [example("all_reduce").into_os_string(), "1024".into(), "0.001".into()];
        face("torchrun").options(options).option(own).option("--no-python").program(words)
    };
    let first = line(1).start();
    first.wait_for_error("Waiting");
    drop(line(3).end().code(0));
    drop(first.end().code(0));
}

#[test]
fn newcomer_may_start_another_number_of_workers() {
    let endpoint = format!("--rdzv-endpoint=127.0.0.1:{}", free_port());
    let place = Scratch::new("torchrun", "newcomer");
    let go = place.path("go");
    let script = format!(
        "{PLACE}; [ $WORLD_SIZE = 4 ] && exit 0; while [ ! -e {} ]; do sleep 0.05; done",
        go.display()
    );
    let line = |workers: u32| {
        let options = ["--nnodes=1:2", "--rdzv-backend=c10d", &endpoint];
        let own = format!("--nproc-per-node={workers}");
        torchrun(&options, &script).option(own).option("--rdzv-conf=last_call_timeout=0")
    };
    let first = line(1).start();
    first.wait_for_lines("0 of 1", 1);
    drop(line(3).end().code(0));
    let outcome = first.end().code(0);
    let lines = lines(&outcome);
    for worker in ["0 of 4, 0 of 1 on 0", "3 of 4, 2 of 3 on 1"] {
        assert!(lines.contains(&worker.to_owned()), "{lines:?}");
    }
}

/// As torchrun's nodes, which may have a directory of their own for outputs.
#[track_caller]
fn check_own_arguments(options: &[&str]) {
    let line =
        |directory: &str| torchrun(options, &format!("echo $RANK of $WORLD_SIZE in {directory}"));
    let first = line("/scratch/a").start();
    first.wait_for_error("Waiting");
    let second = line("/scratch/b").end();
    let first = first.end().code(0);
    assert_eq!(lines(&first), ["0 of 2 in /scratch/a", "1 of 2 in /scratch/b"]);
    let note =
        "note: every node executes its own line, and the lines differ\n  node 0 has  program: ";
    let first = first.says(note).says(" has  program: ");
    assert_eq!(first.stderr.matches(note).count(), 1, "{}", first.stderr);
    let _outcome = second.code(0);
}

#[test]
fn nodes_with_different_arguments_run_their_own_lines() {
    let endpoint = format!("--rdzv-endpoint=127.0.0.1:{}", free_port());
    check_own_arguments(&["--nnodes=2", "--rdzv-backend=c10d", &endpoint]);
}

#[test]
fn nodes_with_a_key_run_their_own_lines_too() {
    let directory = Scratch::new("torchrun", "own-lines");
    let key = directory.path("key");
    fs::write(&key, [7; 32]).expect("a file");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a mode");
    let endpoint = format!("--rdzv-endpoint=127.0.0.1:{}", free_port());
    let key = format!("--key-file={}", key.display());
    check_own_arguments(&["--nnodes=2", "--rdzv-backend=c10d", &endpoint, &key]);
}

/// The first word behind a text.
fn after<'a>(screen: &'a str, text: &str) -> &'a str {
    let rest = screen.split_once(text).map_or("", |(_, rest)| rest);
    rest.split_whitespace().next().unwrap_or_default()
}
