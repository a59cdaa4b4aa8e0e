//! `remuda launch`: one node of a job, called as DeepSpeed's launcher of a node is.

use std::fs;
use std::net::TcpListener;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE as BASE64;
use rustix::process::Signal;

use crate::support::launch::{Launch, Outcome, Running};
use crate::support::process::Role;

const WORLD: &str = r#"{"n0": [0, 1], "n1": [0, 2, 5]}"#;

/// One node of [`WORLD`], with the options that DeepSpeed's runner gives.
fn node(rank: &str, port: u16) -> Launch {
    let launch = Launch::new().command("launch").options(["--accelerator", "cpu"]);
    let launch = launch.option(format!("--world_info={}", BASE64.encode(WORLD)));
    let launch = launch.option(format!("--node_rank={rank}"));
    launch.option("--master_addr=127.0.0.1").option(format!("--master_port={port}"))
}

/// A port that was free a moment ago.
fn port() -> u16 {
    let held = TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr());
    held.expect("a port").port()
}

fn lines(outcome: &Outcome) -> Vec<&str> {
    let mut lines: Vec<_> = outcome.stdout_text().lines().collect();
    lines.sort_unstable();
    lines
}

/// Every other rank sends its number to rank 0, which prints the numbers received.
const MEET: &str = r"
import os, socket, time
rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
place = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))
if rank == 0:
    heard = []
    listener = socket.create_server(place)
    while len(heard) < world - 1:
        with listener.accept()[0] as peer:
            heard.append(int(peer.makefile().readline()))
    print('met', sorted(heard))
else:
    while True:
        try:
            with socket.create_connection(place) as peer:
                peer.sendall(b'%d\n' % rank)
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
";

fn met(rank: &str, port: u16) -> Running {
    let launch = node(rank, port);
    let script = launch.dir().join("meet.py");
    fs::write(&script, MEET).expect("a script");
    launch.program([script]).start()
}

#[test]
fn launched_nodes_connect_to_each_other() {
    let port = port();
    let second = met("1", port);
    let first = met("0", port);
    let outcome = first.end().code(0);
    assert!(outcome.stdout_text().contains("met [1, 2, 3, 4]"), "{outcome:#?}");
    second.end().code(0);
}

#[test]
fn launched_node_gets_the_variables_of_deepspeed() {
    let script = "import os, sys\nnames = 'RANK LOCAL_RANK WORLD_SIZE LOCAL_SIZE CROSS_RANK CROSS_SIZE \
                  CUDA_VISIBLE_DEVICES MASTER_ADDR MASTER_PORT'\n\
                  print(*[os.environ[name] for name in names.split()], *sys.argv[1:])\n";
    let port = port();
    let launch = node("1", port).options(["--prefix", ""]);
    let path = launch.dir().join("tell.py");
    fs::write(&path, script).expect("a script");
    let outcome = launch.program([path]).program(["--lr"]).end().code(0);
    let expect = |rank: u32, local: u32| {
        format!("{rank} {local} 5 3 1 2 0,2,5 127.0.0.1 {port} --local_rank={local} --lr")
    };
    assert_eq!(lines(&outcome), [expect(2, 0), expect(3, 1), expect(4, 2)]);
}

#[test]
fn launched_node_exits_with_its_failure() {
    let launch = node("1", port()).options(["--no_python", "--no_local_rank"]);
    let outcome = launch.sh("[ $RANK = 3 ] && exit 9; exec sleep 1000").end().code(9);
    outcome.says("rank 3 (n1) exited with code 9").says("Node  1 of 2, ranks 2-4 of 5");
}

/// `--save_pid PID`: the runner reads the launcher's pid from a file with its own pid in its name.
#[test]
fn save_pid_writes_the_file_of_the_runner() {
    let runner = std::process::id().to_string();
    let launch = node("0", port()).options(["--no_python", "--no_local_rank"]);
    let launch = launch.options(["--save_pid", &runner]);
    let job = launch.sh("echo ready; exec sleep 1000").start();
    job.wait_for_lines("ready", 2);
    let file = format!("/tmp/{runner}.deepspeed");
    assert_eq!(fs::read_to_string(&file).ok(), Some(job.pid().as_raw_pid().to_string()));
    assert_eq!(job.wait_for_role(Role::Worker, 2).len(), 2);
    job.signal(Signal::TERM);
    job.end().code(143);
    assert!(!fs::exists(&file).expect("it can be looked at"), "{file} is left");
}

#[test]
fn launched_single_node_needs_no_rank_and_no_address() {
    let world = BASE64.encode(r#"{"localhost": [0]}"#);
    let launch = Launch::new().command("launch").options(["--accelerator", "cpu", "--world_info"]);
    let outcome = launch.option(world).options(["--no_python", "--no_local_rank"]);
    let outcome = outcome
        .sh("echo $RANK/$WORLD_SIZE")
        .end()
        .code(0)
        .does_not_say("not connected to the other nodes");
    assert_eq!(outcome.stdout_text(), "0/1\n");
}

/// Without a rank, the hostname of this machine selects the node.
#[test]
fn launched_node_is_found_by_its_hostname() {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("it has one");
    let world = format!(r#"{{"elsewhere": [0], "{}": [0, 1]}}"#, name.trim());
    let launch = Launch::new().command("launch").options(["--accelerator", "cpu", "--no_python"]);
    let launch = launch.option(format!("--world_info={}", BASE64.encode(world)));
    let launch = launch.options(["--no_local_rank", "--prefix", "", "--master_addr=127.0.0.1"]);
    let outcome = launch.sh("echo $RANK of $WORLD_SIZE").end().code(0);
    assert_eq!(lines(&outcome), ["1 of 3", "2 of 3"]);
}

/// B76: neither a rank nor a hostname determines the node.
#[test]
fn launched_host_outside_the_world_is_refused() {
    let world = BASE64.encode(WORLD);
    let launch = Launch::new().command("launch").options(["--world_info", &world]);
    let launch = launch.options(["--no_python", "--no_local_rank"]);
    let outcome = launch.sh("exit 0").end().code(2);
    let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("it has one");
    outcome
        .says(&format!("error[W003]: this host (`{}`) is not in `--world_info`\n", name.trim()))
        .says("^ expected `--node_rank`\n")
        .says("help: `--node_rank 0` is `n0`, `--node_rank 1` is `n1`\n");
}
