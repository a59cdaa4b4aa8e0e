//! Joining: nodes form one job, or each screen shows why not.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use crate::pods::nodes::Nodes;
use crate::support::launch::{Launch, Outcome};
use crate::support::process::Role;

fn lines(outcome: &Outcome) -> Vec<&str> {
    let mut lines: Vec<_> = outcome.stdout_text().lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn nodes_started_one_by_one_form_one_job() {
    let nodes = Nodes::new(&[1, 2, 1]);
    let say = "echo $RANK/$WORLD_SIZE on $NODE_RANK at $MASTER_ADDR:$MASTER_PORT";
    // The nodes may start in any order.
    let others = [2, 1].map(|rank| nodes.node(rank).sh(say).start());
    others[0].wait_for_error("Joining");
    let first = nodes.node(0).sh(say).start();
    let first = first.end().code(0).says("Waiting  for the other nodes to connect to 127.0.0.1:");
    let first = first.says(" (master port + 1), up to ");
    let port = nodes.port;
    let expect = [
        format!("127.0.0.1:0 │ 0/4 on 0 at 127.0.0.1:{port}"),
        format!("127.0.0.2:1 │ 1/4 on 1 at 127.0.0.1:{port}"),
        format!("127.0.0.2:2 │ 2/4 on 1 at 127.0.0.1:{port}"),
        format!("127.0.0.3:3 │ 3/4 on 2 at 127.0.0.1:{port}"),
    ];
    assert_eq!(lines(&first), expect);
    for other in others {
        let other = other.end().code(0).says("; node 0 (127.0.0.1:");
        let other = other.says("     Ended  the job exited with status 0\n");
        assert_eq!(other.stdout_text(), "", "node 0 shows what workers write");
        assert_eq!(other.runs(), Vec::<String>::new(), "and keeps the record");
    }
}

#[test]
fn node_without_a_key_runs_alone() {
    let nodes = Nodes::new(&[1, 1]);
    let alone = nodes.bare(1).options(["--no_python", "--no_local_rank"]);
    alone.sh("echo rank $RANK").end().code(0).says(
        "      Node  1 of 2, rank 1 of 2; not connected to the other nodes (see --key_file)\n",
    );
}

#[test]
fn node_with_a_different_key_is_rejected_without_a_reply() {
    let nodes = Nodes::new(&[1, 1]);
    let first = nodes.node(0).sh("true").start();
    first.wait_for_error("Waiting");
    let other = nodes.write_key("other", b"another secret, as long as the first");
    let stranger = nodes.node_with_key(1, &other).sh("true").end();
    stranger.code(77).says("error[R108]: node 0 (127.0.0.1:").says(
        ") closed 10 connections without a reply: it has a different key; nothing was started\n\
         help: give every node the same key file (in pods: the same Secret); this node's key has the \
         fingerprint ",
    );
    first.wait_for_error(
        "note: rejected connection from 127.0.0.1: as node 1: the peer has a different key; the key of this \
         node has the fingerprint ",
    );
    nodes.node(1).sh("true").end().code(0);
    first.end().code(0);
}

#[test]
fn node_with_a_different_plan_is_refused() {
    let nodes = Nodes::new(&[1, 1, 1]);
    let first = nodes.node(0).sh("true").start();
    first.wait_for_error("Waiting");
    let third = nodes.node(2).sh("true").start();
    third.wait_for_error("Joined");
    let difference = "\
        node 1 (127.0.0.2) was started with another line than node 0";
    let lines = "  node 0 has  program: sh -c true\n  node 1 has  program: sh -c false\n";
    let help = "help: start every node with the same command line, hosts and remuda; only the number of the node differs\n";
    let refused = nodes.node(1).sh("false").end().code(78);
    drop(refused.says(&format!("error[R108]: {difference}; nothing was started\n{lines}{help}")));
    // It does not wait for node 2, which could change nothing.
    let screen = "\
error[R107]: 1 of 3 hosts cannot take part; nothing was started
  was started with another line:
    127.0.0.2: its line differs from that of node 0
      node 0 has  program: sh -c true
      node 1 has  program: sh -c false
  help: start every node with the same command line and hosts
";
    drop(first.end().code(78).says(screen));
    third.end().code(78).says(screen);
}

#[test]
fn different_environment_is_shown_without_its_values() {
    let nodes = Nodes::new(&[1, 1]);
    let first = nodes.node(0).option("--env=TOKEN=hunter2").sh("true").start();
    first.wait_for_error("Waiting");
    let second = nodes.node(1).option("--env=TOKEN=hunter3").sh("true").end().code(78);
    let second = second.says("  node 0 has  variable TOKEN=… (fingerprint of the value: ");
    drop(second.says("  node 1 has  variable TOKEN=… (fingerprint of the value: "));
    let first =
        first.end().code(78).says("node 1 has  variable TOKEN=… (fingerprint of the value: ");
    assert!(!format!("{first:?}").contains("hunter3"), "{first:#?}");
}

#[test]
fn node_reports_its_own_errors_before_it_waits() {
    let nodes = Nodes::new(&[1, 1]);
    let bare = |rank| nodes.bare(rank).option("--key_file").option(nodes.dir().join("key"));
    let screen = "\
error[R100]: 1 of 2 nodes cannot take part; nothing was started
  127.0.0.1: cannot read script `no_such.py`: no such file or directory
";
    bare(0).option("--join_timeout=1s").program(["no_such.py"]).end().code(66).says(screen);
    let screen = "\
error[R100]: this node cannot take part; nothing was started here
  127.0.0.2: cannot read script `no_such.py`: no such file or directory
";
    bare(1).option("--join_timeout=1s").program(["no_such.py"]).end().code(66).says(screen);
    let held = std::net::TcpListener::bind(("127.0.0.1", nodes.port + 2)).expect("free");
    nodes.node(0).option("--join_timeout=1s").sh("true").end().code(71).says(&format!(
        "  127.0.0.1: the store cannot listen on 127.0.0.1:{}: address already in use\n",
        nodes.port + 2
    ));
    drop(held);
}

#[test]
fn node_of_another_job_is_refused() {
    let nodes = Nodes::new(&[1, 1]);
    let first = nodes.node(0).option("--job_id=llama").sh("true").start();
    first.wait_for_error("job llama");
    let why = "node 1 (127.0.0.2) belongs to job `alpaca`, node 0 to job `llama`";
    let other = nodes.node(1).option("--job_id=alpaca").sh("true").end();
    other.code(78).says(&format!("error[R108]: {why}; nothing was started\n"));
    first.wait_for_error(&format!("warning: {why}\n"));
    nodes.node(1).option("--job_id=llama").sh("true").end().code(0);
    first.end().code(0);
}

#[test]
fn missing_node_is_named_on_every_screen() {
    let nodes = Nodes::new(&[1, 1, 1]);
    let second = nodes.node(1).sh("true").start();
    let first = nodes.node(0).option("--join_timeout=3s").sh("true").end().code(69);
    let screen = "\
error[R107]: 1 of 3 hosts did not join; nothing was started
  did not join:
    127.0.0.3: node 2 did not join within 3.0 s (--join_timeout)
  help: start every node with the same command line; only the number of the node differs, where the line has one
";
    drop(first.says(screen));
    second.end().code(69).says(screen);
}

#[test]
fn every_missing_node_is_named() {
    let nodes = Nodes::new(&[1, 1, 1]);
    let alone = nodes.node(0).option("--join_timeout=1s").sh("true").end().code(69);
    alone.says(
        "\
error[R107]: 2 of 3 hosts did not join; nothing was started
  did not join:
    127.0.0.2: node 1 did not join within 1.0 s (--join_timeout)
    127.0.0.3: node 2 did not join within 1.0 s (--join_timeout)
",
    );
}

#[test]
fn missing_node_0_is_reported_with_the_last_reason() {
    let nodes = Nodes::new(&[1, 1]);
    let alone = nodes.node(1).option("--join_timeout=1s").sh("true").end().code(69);
    let port = nodes.port + 1;
    alone.says(&format!(
        "error[R108]: node 0 (127.0.0.1:{port}) did not answer: connection refused; nothing was \
         started\nhelp: check that node 0 runs, at the address and port of this line; its \
         screen lists the nodes that it waits for\n"
    ));
    let alone = nodes.node(1).options(["--join_timeout=1s", "--master_addr=no.such.host.invalid"]);
    alone
        .sh("true")
        .end()
        .code(69)
        .says("did not answer: the name `no.such.host.invalid` does not resolve: ");
}

#[test]
fn second_process_of_a_node_is_refused() {
    let nodes = Nodes::new(&[1, 1]);
    let first = nodes.node(0).sh("sleep 600").start();
    let second = nodes.node(1).sh("sleep 600").start();
    second.wait_for_role(Role::Worker, 1);
    let again = nodes.node(1).option("--join_timeout=1s").sh("sleep 600").end();
    again
        .code(78)
        .says("node 1 (127.0.0.2) has already joined, from 127.0.0.1; nothing was started");
    first.signal(Signal::TERM);
    first.end().code(143).says(
        "note: rejected connection from 127.0.0.1: node 1 (127.0.0.2) has already joined, from 127.0.0.1\n",
    );
    second.end().code(143).says("error[R106]: the job was stopped by SIGTERM");
}

#[test]
fn node_connects_from_the_chosen_address() {
    let nodes = Nodes::new(&[1, 1]);
    let chosen = |rank, at: &str| nodes.node(rank).option(format!("--local_addr={at}"));
    let script = "echo at $REMUDA_LOCAL_ADDR; sleep 600";
    let first = nodes.node(0).sh(script).start();
    let second = chosen(1, "127.0.0.7").sh(script).start();
    first.wait_for_lines("at 127.0.0.7", 1);
    let again = nodes.node(1).option("--join_timeout=1s").sh(script).end();
    drop(again.code(78).says("node 1 (127.0.0.2) has already joined, from 127.0.0.7;"));
    first.signal(Signal::TERM);
    first.end().code(143);
    second.end().code(143);
    let strange = chosen(1, "192.0.2.1").sh(script).end().code(78);
    strange.says(
        "error[P012]: `192.0.2.1` is neither an address nor an interface of this node\nhelp: ",
    );
    let without =
        nodes.bare(0).options(["--no_python", "--local_addr=lo"]).sh(script).end().code(2);
    without.says("`--local_addr` needs `--key_file`");
}

#[test]
fn waiting_node_can_be_stopped() {
    let nodes = Nodes::new(&[1, 1, 1]);
    let first = nodes.node(0).sh("true").start();
    let second = nodes.node(1).sh("true").start();
    second.wait_for_error("Joined");
    let others = Nodes::new(&[1, 1]);
    let third = others.node(1).sh("true").start();
    third.wait_for_error("Joining");
    third.signal(Signal::INT);
    let stopped = format!(
        "error[R106]: SIGINT stopped this node while it waited for node 0 (127.0.0.1:{}); nothing was started\n",
        others.port + 1
    );
    third.end().code(130).says(&stopped);
    first.signal(Signal::INT);
    first.end().code(130);
    second.end().code(130);
}

#[test]
fn port_in_use_is_reported_before_the_wait() {
    let nodes = Nodes::new(&[1, 1]);
    let held = std::net::TcpListener::bind(("127.0.0.1", nodes.port + 1)).expect("free");
    nodes.node(0).sh("true").end().code(78).says(&format!(
        "error[R110]: port {} of `127.0.0.1` is in use\nhelp: set another `--master_port` on all nodes; \
         remuda also uses the two ports after it\n",
        nodes.port + 1
    ));
    drop(held);
    let elsewhere = nodes.node(0).option("--master_addr=192.0.2.1").sh("true").end().code(78);
    elsewhere.says("error[R110]: `192.0.2.1` is not an address of this node\n");
}

#[test]
fn second_node_0_of_a_job_shows_the_number_to_type() {
    let nodes = Nodes::new(&[1, 1, 1]);
    let first = nodes.node(0).sh("true").start();
    first.wait_for_error("Waiting");
    let second = nodes.node(0).sh("true").end().code(78);
    let key = nodes.dir().join("key");
    second.says(&format!(
        "error[R110]: node 0 of this job (key of `{}`) runs already: it listens on port {} of `127.0.0.1`\n\
         help: for another node of it type `--node_rank N` with a number from 1 to 2; for another job set another \
         `--master_port` on all of its nodes\n",
        key.display(),
        nodes.port + 1
    ));
    first.signal(Signal::INT);
    let first = first.end().code(130);
    first.says("note: rejected connection from 127.0.0.1: a process of this job looked for node 0 and did not join: was another one started as node 0?\n");
}

#[test]
fn key_file_that_is_not_secret_is_refused() {
    #[track_caller]
    fn check(launch: Launch, code: i32, screen: &str) {
        launch.sh("true").end().code(code).says(screen);
    }
    let nodes = Nodes::new(&[1, 1]);
    let key = |name: &str, bytes: &[u8]| nodes.write_key(name, bytes);
    let make_one = "help: create one key and copy it to every node: `(umask 077; head -c 32 \
                    /dev/urandom > key)`\n";
    let missing = nodes.dir().join("missing");
    let text =
        format!("error[K001]: cannot read the key file `{}`: no such file", missing.display());
    check(nodes.node_with_key(1, &missing), 66, &text);
    let short = key("short", b"secret");
    let text = format!(
        "error[K002]: the key file `{}`: the key has 6 bytes, at least 16 are needed\n{make_one}",
        short.display()
    );
    check(nodes.node_with_key(0, &short), 65, &text);
    let long = key("long", &vec![b'x'; 70_000]);
    check(nodes.node_with_key(0, &long), 65, "at most 65536 are read\n");
    let open = key("open", &[b'x'; 32]);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o620)).expect("permissions can be set");
    let text = format!(
        "error[K003]: the key file `{0}` is writable by other users\nhelp: type `chmod go-w {0}`, or create a \
         new key\n",
        open.display()
    );
    check(nodes.node_with_key(0, &open), 77, &text);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).expect("permissions can be set");
    let readable = format!("warning[K005]: other users can read the key file `{}`", open.display());
    let lone = nodes.node_with_key(1, &open).option("--join_timeout=0.1s");
    check(lone, 69, &readable);
    check(
        nodes.node(0).option("--master_port=65534"),
        2,
        "expected at most 65533 with several nodes",
    );
    check(nodes.node(0).option("--job_id=a/b"), 2, "expected letters, digits");
    let without = nodes.bare(0).options(["--no_python", "--job_id=a"]);
    check(without, 2, "`--job_id` needs `--key_file`");
    let ssh = Launch::new().options(["--accelerator", "cpu", "--no_python", "--key_file", "key"]);
    check(ssh, 2, "`--key_file` needs `--no_ssh`");
}

#[test]
fn key_descriptor_is_not_inherited_by_workers() {
    let nodes = Nodes::new(&[1, 1]);
    let key = nodes.dir().join("key");
    let hold = format!("exec 7<'{}'", key.display());
    let descriptor = std::path::Path::new("/dev/fd/7");
    let look = "test -e /dev/fd/7 && echo leaked; true";
    let second = nodes.node_with_key(1, descriptor).under(&hold).sh(look).start();
    let first = nodes.node_with_key(0, descriptor).under(&hold).sh(look).end().code(0);
    assert_eq!(first.stdout_text(), "");
    second.end().code(0);
}

#[test]
fn train_runs_on_nodes_that_join() {
    let nodes = Nodes::new(&[1, 1]);
    let train = |rank| {
        let launch = nodes.bare(rank).command("train").option("--key_file");
        let launch = launch.option(nodes.dir().join("key"));
        launch.options(["--model", "mlp", "--steps", "3"])
    };
    let second = train(1).start();
    let first = train(0).end().code(0);
    assert!(first.stdout_text().contains("step"), "{first:#?}");
    second.end().code(0);
}
