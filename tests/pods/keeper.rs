//! A pod as its supervisor sees it: process 1 of a namespace, any user, probes, and a termination
//! message.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::pods::nodes::Nodes;
use crate::support::cgroup::Group;
use crate::support::launch::{Launch, command};
use crate::support::process::Role;
use crate::support::proof::skip;
use crate::support::wait_for;

/// Command that makes its program process 1 of a namespace.
const NAMESPACE: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// One of two pods, its message in this file.
fn pod(nodes: &Nodes, rank: usize) -> (Launch, PathBuf) {
    let launch = Launch::new().command("pod").options(["--accelerator", "cpu", "--no_python"]);
    let launch = launch.options(["--no_local_rank", "--master_addr=127.0.0.1", "--nodes=2"]);
    let launch = launch.option(format!("--master_port={}", nodes.port));
    let launch = launch.env("JOB_COMPLETION_INDEX", rank.to_string());
    let launch = launch.env("REMUDA_KEY_FILE", nodes.dir().join("key"));
    let log = nodes.dir().join(format!("termination-{rank}"));
    fs::write(&log, "").expect("a file of the supervisor");
    (launch.env("REMUDA_TERMINATION_LOG", &log), log)
}

fn message(log: &PathBuf) -> serde_json::Value {
    let text = fs::read(log).expect("the file is there");
    assert!(text.len() <= 4096);
    serde_json::from_slice(&text).expect("it is JSON")
}

/// A refused start leaves its screen too, whether or not its node is known.
#[test]
fn refused_pod_writes_its_termination_log() {
    let nodes = Nodes::new(&[1, 1]);
    let (launch, log) = pod(&nodes, 1);
    let check = |launch: Launch, status: u8, screen: &str| {
        fs::write(&log, "").expect("a file of the supervisor");
        let outcome = launch.end().code(status.into());
        let message = message(&log);
        let text = message["text"].as_str().expect("a text");
        assert!(text.starts_with("error[") && outcome.stderr.contains(text), "{outcome:#?}");
        let text = text.replace(&*nodes.dir().to_string_lossy(), "DIR");
        assert!(text.starts_with(screen), "{text}");
        let fields = (&message["version"], &message["status"], &message["cause"]);
        assert_eq!(fields, (&1.into(), &status.into(), &Value::Null));
        (message["job"].clone(), message["node"].clone())
    };
    let typed = launch.another().command("pod").env("REMUDA_TERMINATION_LOG", &log);
    let screen = "error[C001]: there is no option `--nods`\n";
    let unknown = (Value::Null, Value::Null);
    assert_eq!(check(typed.options(["--nods", "2"]).program(["true"]), 2, screen), unknown);
    let screen = "\
error[K001]: cannot read the key file `DIR/nowhere`: no such file or directory
help: mount the same Secret in every pod, and give the path of its entry
";
    let typed = launch.option("--key_file").option(nodes.dir().join("nowhere"));
    assert_eq!(check(typed.sh("true"), 66, screen), unknown);
    let python = Launch::new().command("pod").options(["--accelerator", "cpu", "--nodes=2"]);
    let python = python.options(["--node_rank=1", "--job_id=a", "--master_addr=127.0.0.1"]);
    let python = python.option("--join_timeout=1s");
    let python = python.env("REMUDA_KEY_FILE", nodes.dir().join("key"));
    let python = python.env("REMUDA_TERMINATION_LOG", &log).program(["absent.py"]);
    let screen = "\
error[R100]: this node cannot take part; nothing was started here
  pod-1: cannot read script `absent.py`: no such file or directory
help: give the full path, or `cd` to its directory first; searched in `";
    assert_eq!(check(python, 66, screen), ("a".into(), 1.into()));
}

/// A pod that is refused at once, and leaves its message here.
fn refused(log: &std::path::Path) -> Launch {
    let launch = Launch::new().command("pod").env("REMUDA_TERMINATION_LOG", log);
    launch.under("umask 077").options(["--nods", "2"]).program(["true"])
}

#[test]
fn termination_log_is_created_in_an_existing_directory() {
    let nodes = Nodes::new(&[1]);
    let log = nodes.dir().join("made");
    refused(&log).end().code(2);
    assert_eq!(message(&log)["status"], 2);
    let mode = fs::metadata(&log).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "the kubelet is another user");
    refused(&nodes.dir().join("no/directory/log")).end().code(2);
    assert!(!nodes.dir().join("no").exists());
}

#[test]
fn termination_log_is_not_created_behind_a_link() {
    let nodes = Nodes::new(&[1]);
    let (link, target) = (nodes.dir().join("link"), nodes.dir().join("target"));
    symlink(&target, &link).expect("a link");
    refused(&link).end().code(2);
    assert!(!target.exists(), "there was nothing behind the link");
}

#[test]
fn termination_log_pipe_does_not_delay_the_exit() {
    let nodes = Nodes::new(&[1]);
    let pipe = nodes.dir().join("pipe");
    assert!(command("mkfifo").arg(&pipe).status().expect("it starts").success());
    refused(&pipe).end().code(2);
}

#[test]
fn every_pod_writes_the_cause_to_its_termination_log() {
    let nodes = Nodes::new(&[1, 1]);
    let script = "if [ $RANK = 1 ]; then echo it broke >&2; exit 7; fi; sleep 600";
    let ((second, log_1), (first, log_0)) = (pod(&nodes, 1), pod(&nodes, 0));
    let second = second.sh(script).start();
    first.option("--peer_exit=99").sh(script).end().code(99);
    second.end().code(7);
    for (log, node, status) in [(log_0, 0, 99), (log_1, 1, 7)] {
        let message = message(&log);
        assert_eq!(message["version"], 1);
        assert_eq!((&message["node"], &message["status"]), (&node.into(), &status.into()));
        assert_eq!(message["cause"], 1);
        let text = message["text"].as_str().expect("a text");
        assert!(text.starts_with("error[R101]: rank 1 (pod-1) exited with code 7"), "{text}");
    }
}

#[test]
fn probes_report_liveness_at_once_and_readiness_in_the_job() {
    let nodes = Nodes::new(&[1, 1]);
    // Next to the ports of the job, so that no other test has it.
    let port = nodes.port + 1;
    let address = format!("127.0.0.2:{port}");
    let second = pod(&nodes, 1).0.env("REMUDA_STATUS_ADDR", &address).sh("sleep 600").start();
    let ask = |path: &str| {
        let mut stream = wait_for("a status port", || TcpStream::connect(("127.0.0.2", port)).ok());
        write!(stream, "GET {path} HTTP/1.1\r\nHost: pod\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer
    };
    assert!(ask("/livez").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(ask("/readyz").starts_with("HTTP/1.1 503 "));
    let first = pod(&nodes, 0).0.sh("sleep 600").start();
    second.wait_for_role(Role::Worker, 1);
    assert!(ask("/readyz").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(ask("/quit").starts_with("HTTP/1.1 404 "));
    first.signal(Signal::TERM);
    first.end().code(143);
    second.end().code(143);
}

#[test]
fn wait_for_a_name_is_ended_by_sigterm() {
    let made = command(NAMESPACE[0]).args(&NAMESPACE[1..]).arg("true").status();
    if !made.is_ok_and(|status| status.success()) {
        return skip("pid namespaces", "wait_for_a_name_is_ended_by_sigterm");
    }
    let nodes = Nodes::new(&[1, 1]);
    let (launch, _) = pod(&nodes, 0);
    let job = launch.option("--master_addr=no.such.pod.invalid").through(&NAMESPACE).sh("true");
    let job = job.start();
    job.wait_for_error("Waiting  for the other nodes to connect to no.such.pod.invalid");
    // The child of `unshare`: the first process of a namespace is ended by no signal that it does not listen to.
    let init = job.wait_for_role(Role::Agent, 1).remove(0);
    init.signal(Signal::TERM);
    job.end().code(143);
}

/// OMP_NUM_THREADS of the only worker of a pod.
fn threads(launch: Launch) -> String {
    let launch = launch.options(["--accelerator", "cpu", "--no_python", "--no_local_rank"]);
    let launch = launch.options(["--isolated", "--nodes=1", "--node_rank=0", "--num_gpus=1"]);
    let outcome = launch.sh("echo $OMP_NUM_THREADS").end().code(0);
    outcome.stdout_text().trim().to_owned()
}

#[test]
fn workers_of_a_pod_have_threads_by_its_cpu_limit() {
    let test = "workers_of_a_pod_have_threads_by_its_cpu_limit";
    let Some(group) = Group::with_one_cpu() else { return skip("cgroup", test) };
    let unlimited = threads(Launch::new().command("pod"));
    if unlimited == "1" {
        return skip("two processors", test);
    }
    let enter = format!("echo $$ >'{}'", group.members().display());
    let pod = threads(Launch::new().command("pod").under(&enter));
    assert_eq!(pod, "1", "without a limit there are {unlimited}");
}
