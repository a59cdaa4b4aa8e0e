//! Lines of torchrun and of `torch.distributed.launch`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;

use crate::support::launch::{Launch, Outcome, REMUDA, Running, command, face};
use crate::support::wait_for;

/// A line of torchrun whose workers run a line of `sh`.
pub(super) fn torchrun(options: &[&str], script: &str) -> Launch {
    face("torchrun").options(options).option("--no-python").sh(script)
}

/// Values of variables in the workers, sorted by rank.
#[track_caller]
fn values(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> = outcome.stdout_text().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Prints these variables, `-` for one that is not set.
fn print(names: &str) -> String {
    let names = names.split(' ').map(|name| format!("${{{name}--}}"));
    format!("echo {}", names.collect::<Vec<_>>().join(" "))
}

#[test]
fn workers_have_the_variables_of_torchrun() {
    let names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK \
                 ROLE_WORLD_SIZE ROLE_NAME TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS \
                 TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_SIGNALS_TO_HANDLE \
                 OMP_NUM_THREADS TORCH_NCCL_ASYNC_ERROR_HANDLING MASTER_ADDR CUDA_VISIBLE_DEVICES";
    let options =
        ["--nproc-per-node=2", "--role", "trainer", "--rdzv_id=job7", "--max-restarts", "3"];
    let outcome = torchrun(&options, &print(names)).env("CUDA_VISIBLE_DEVICES", "5").end().code(0);
    let line = |rank| {
        format!(
            "{rank} {rank} 2 2 0 1 {rank} 2 trainer 0 3 job7 False SIGTERM,SIGINT,SIGHUP,SIGQUIT 1 1 \
             127.0.0.1 5"
        )
    };
    assert_eq!(values(&outcome), [line(0), line(1)]);
}

#[test]
fn threads_are_those_of_the_environment_or_of_a_single_worker() {
    let threads = |options: &[&str], set: Option<&str>| {
        let launch = torchrun(options, &print("OMP_NUM_THREADS"));
        let launch = match set {
            Some(set) => launch.env("OMP_NUM_THREADS", set),
            None => launch.under("unset OMP_NUM_THREADS"),
        };
        values(&launch.end().code(0)).pop()
    };
    assert_eq!(threads(&["--nproc-per-node", "2"], None).as_deref(), Some("1"));
    assert_eq!(threads(&["--nproc-per-node", "2"], Some("7")).as_deref(), Some("7"));
    assert_eq!(threads(&[], None).as_deref(), Some("-"));
}

#[test]
fn variables_set_options_and_the_line_outranks_them() {
    let launch = || torchrun(&[], &print("WORLD_SIZE ROLE_NAME"));
    let launch = launch().env("PET_NPROC_PER_NODE", "2").env("PET_ROLE", "of-variable");
    assert_eq!(values(&launch.end().code(0)), ["2 of-variable", "2 of-variable"]);
    let launch = torchrun(&["--role", "typed"], &print("ROLE_NAME")).env("PET_ROLE", "of-variable");
    assert_eq!(values(&launch.end().code(0)), ["typed"]);
    let bad = torchrun(&[], "true").env("PET_NNODES", "x").end().code(2);
    assert_eq!(
        bad.stderr,
        "error[M001]: PET_NNODES is `x`: expected a whole number\n\
         help: correct the variable, or give `--nnodes`\n"
    );
    let bad = torchrun(&[], "true").env("PET_STANDALONE", "true").end().code(2);
    bad.says(
        "PET_STANDALONE is `true`: expected 0 or 1\nhelp: a switch is on with 1, off with 0\n",
    );
}

#[test]
fn node_that_meets_no_other_one_has_a_run_id_of_its_own() {
    let ids = |options: &[&str]| {
        let outcome = torchrun(options, &print("TORCHELASTIC_RUN_ID REMUDA_JOB")).end().code(0);
        let shown = values(&outcome).concat();
        let (run_id, job) = shown.split_once(' ').expect("two names");
        (run_id.to_owned(), job.to_owned())
    };
    for options in [&[][..], &["--standalone"], &["--standalone", "--nnodes=2"]] {
        let (run_id, job) = ids(options);
        assert_eq!(run_id, job, "{options:?}");
    }
    let port = free_port().to_string();
    assert_eq!(ids(&["--rdzv-id=a"]).0, "a");
    assert_eq!(ids(&["--standalone", "--rdzv-id=a"]).0, "a");
    assert_eq!(ids(&["--master-port", &port]).0, "none");
}

#[test]
fn typing_errors_of_a_rendezvous_are_shown() {
    let options = ["--rdzv-conf", "join_timout=3,read_timeout=60"];
    drop(torchrun(&options, "true").end().code(0).says(
        "warning: the key `join_timout` of `--rdzv-conf` has no effect\n\
         help: did you mean `join_timeout`? keys with an effect: `join_timeout`, `timeout`, \
         `last_call_timeout`, `newcomers`, `is_host`\n",
    ));
    let outcome = torchrun(&["--rdzv-backend=c10"], "true").end().code(2);
    drop(outcome.says("help: did you mean `c10d`?\n"));
}

#[test]
fn local_rank_is_replaced_in_arguments() {
    let script = "echo \"$@\"";
    let launch = torchrun(&["--nproc-per-node", "2"], script);
    let launch = launch.program(["sh", "--out=${local_rank}.log", "$local_rank_", "$$HOME", "$"]);
    let lines = ["--out=0.log $local_rank_ $HOME $", "--out=1.log $local_rank_ $HOME $"];
    assert_eq!(values(&launch.end().code(0)), lines);
}

/// A line of `sh` that waits until both workers of a job have come here.
fn meet(directory: &Path) -> String {
    let file =
        |rank: &str| format!("{}/met.$TORCHELASTIC_RESTART_COUNT.{rank}", directory.display());
    let (own, first, second) = (file("$RANK"), file("0"), file("1"));
    format!("touch {own}; while ! [ -e {first} -a -e {second} ]; do sleep 0.02; done;")
}

/// The files below a directory, with their contents.
pub(super) fn files(directory: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).expect("a directory") {
            let path: PathBuf = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).expect("below").to_string_lossy().into_owned();
            // The second part of the first directory is the name of the job.
            let (first, rest) = name.split_once('/').expect("in a directory");
            let id = first.rsplit_once('_').expect("ID_NAME").0;
            found.push((format!("{id}/{rest}"), fs::read_to_string(&path).expect("readable")));
        }
    }
    found.sort();
    found
}

#[test]
fn log_files_have_the_layout_of_torchrun() {
    let options =
        ["--nproc-per-node=2", "--rdzv-id=j", "-r", "0:1", "-t", "0:2,1:3", "--max-restarts=1"];
    let launch = face("torchrun").options(options).option("--no-python");
    // After a failure the screen shows only the failed rank: no rank fails before all lines are shown.
    let shown = launch.dir().join("shown");
    let script = format!(
        "echo out $RANK; echo err $RANK >&2; while [ ! -e {} ]; do sleep 0.02; done; \
         [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 1",
        shown.display()
    );
    let launch = launch.sh(&script);
    let logs = launch.dir().join("logs");
    let job = launch.option("--log-dir").option(&logs).start();
    job.wait_for_lines("[default1]:out 1", 1);
    for rank in 0..2 {
        job.wait_for_error(&format!("[default{rank}]:err {rank}\n"));
    }
    fs::write(shown, "").expect("a file");
    let outcome = job.end().code(0);
    let expected: Vec<_> = (0..2)
        .flat_map(|attempt| {
            let file = move |rank, stream: &str, text: &str| {
                (format!("j/attempt_{attempt}/{rank}/{stream}.log"), format!("{text} {rank}\n"))
            };
            (0..2).flat_map(move |rank| [file(rank, "stderr", "err"), file(rank, "stdout", "out")])
        })
        .collect();
    assert_eq!(files(&logs), expected);
    let shown = values(&outcome);
    assert_eq!(shown, ["[default1]:out 1", "[default1]:out 1"], "that of rank 0 is redirected");
    outcome.says("[default0]:err 0\n").says("[default1]:err 1\n");
}

#[test]
fn lines_with_a_text_are_copied_to_one_file_of_the_node() {
    let options = ["--nproc-per-node=2", "--rdzv-id=j", "-t", "0:3,1:3", "--max-restarts=1"];
    let launch = face("torchrun").options(options).option("--no-python");
    let script = format!(
        "echo apple $RANK; echo pear; echo 'a,b' >&2; {} [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 1",
        meet(launch.dir())
    );
    let filters = ["--duplicate-stdout-filters=apple,x", "--duplicate-stderr-filters=,,"];
    let launch = launch.options(filters).sh(&script);
    let logs = launch.dir().join("logs");
    let _outcome = launch.option("--log-dir").option(&logs).end().code(0);
    let copied: Vec<_> = files(&logs)
        .into_iter()
        .filter(|(name, _)| name.contains("filtered"))
        .map(|(name, text)| {
            let mut lines: Vec<&str> = text.lines().collect();
            lines.sort_unstable();
            (name, lines.join(" "))
        })
        .collect();
    let expected = (0..2).flat_map(|attempt| {
        let file = |stream| format!("j/attempt_{attempt}/filtered_{stream}.log");
        [
            (file("stderr"), "[default0]:a,b [default1]:a,b".to_owned()),
            (file("stdout"), "[default0]:apple 0 [default1]:apple 1".to_owned()),
        ]
    });
    assert_eq!(copied, expected.collect::<Vec<_>>());
}

#[test]
fn prefix_names_the_node_where_several_are_shown() {
    let endpoint = format!("127.0.0.1:{}", free_port());
    let options = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=j", "-t", "3"];
    let line = |launch: Launch| {
        let launch = launch.options(options).options(["--rdzv-endpoint", &endpoint]);
        launch.options(["--duplicate-stdout-filters=apple", "--no-python"]).sh("echo apple $RANK")
    };
    let launch = face("torchrun");
    let logs = launch.dir().join("logs");
    let first = line(launch.option("--log-dir").option(&logs)).start();
    first.wait_for_error("Waiting");
    let second = line(face("torchrun").option("--log-dir").option(&logs)).end();
    let first = first.end().code(0);
    assert_eq!(values(&first), ["[node-0:default0]:apple 0", "[node-1:default0]:apple 1"]);
    let _outcome = second.code(0);
    let copied: Vec<_> =
        files(&logs).into_iter().filter(|(name, _)| name.contains("filtered_stdout")).collect();
    let file = |node| format!("j/node_{node}/attempt_0/filtered_stdout.log");
    let line = |rank| format!("[default0]:apple {rank}\n");
    assert_eq!(copied, [(file(0), line(0)), (file(1), line(1))], "files belong to a node");
}

#[test]
fn streams_without_output_have_empty_files() {
    let launch = torchrun(&["-r", "3", "--local_ranks_filter", "0", "--rdzv-id=j"], "true");
    let logs = launch.dir().join("logs");
    let _outcome = launch.option("--log-dir").option(&logs).end().code(0);
    let names: Vec<_> = files(&logs).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["j/attempt_0/0/stderr.log", "j/attempt_0/0/stdout.log"]);
}

#[test]
fn local_ranks_that_do_not_exist_are_a_warning() {
    for (option, given) in
        [("--redirects", "0:1,5:1"), ("--tee", "2:3"), ("--local-ranks-filter", "0,2")]
    {
        let launch = torchrun(&["--nproc-per-node", "2", option, given], "true");
        let logs = launch.dir().join("logs");
        let rank = if option == "--redirects" { 5 } else { 2 };
        let _outcome = launch.option("--log-dir").option(&logs).end().code(0).says(&format!(
            "warning: local rank {rank} of `{option}` does not exist: a node has 2 workers, with local ranks 0 to 1\n"
        ));
    }
}

#[test]
fn options_of_the_launcher_behind_the_script_are_noted() {
    let launch = face("torchrun").option("--no-python").program(["echo", "--nproc-per-node", "2"]);
    let outcome = launch.end().code(0);
    assert_eq!(values(&outcome), ["--nproc-per-node 2"]);
    let _outcome = outcome.says(
        "note: `--nproc-per-node` stands behind the script, so it is an argument of the script; options of the \
         launcher stand before it\n",
    );
}

#[test]
fn only_filtered_local_ranks_are_shown() {
    let options = ["--nproc-per-node", "3", "--local-ranks-filter", "0,2"];
    let outcome = torchrun(&options, "echo $RANK").end().code(0);
    assert_eq!(values(&outcome), ["0", "2"]);
}

#[test]
fn prefix_of_tee_is_a_template() {
    let template = "${role_name}/${rank}@${local_rank} ";
    let options = ["--tee", "3", "--role", "r", "--log-line-prefix-template", template];
    let outcome = torchrun(&options, "echo x").end().code(0);
    assert_eq!(values(&outcome), ["r/0@0 x"]);
}

#[test]
fn jobs_at_the_same_time_have_ports_of_their_own() {
    let script = "echo port $MASTER_PORT; while [ ! -e go ]; do sleep 0.05; done";
    let start = || {
        let launch = torchrun(&["--standalone"], script);
        let dir = launch.dir().to_owned();
        (launch.cwd(dir).start(), ())
    };
    let jobs = [start().0, start().0];
    for job in &jobs {
        job.wait_for_lines("port", 1);
        fs::write(job.dir().join("go"), "").expect("a file");
    }
    let ports = jobs.map(|job| job.end().code(0).stdout_text().to_owned());
    assert_ne!(ports[0], ports[1]);
}

#[test]
fn given_port_and_address_are_those_of_the_workers() {
    let print = print("MASTER_ADDR MASTER_PORT");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port().to_string();
    drop(listener);
    let outcome = torchrun(&["--master_port", &port], &print).end().code(0);
    assert_eq!(values(&outcome), [format!("127.0.0.1 {port}")]);
    let endpoint = format!("localhost:{port}");
    let outcome = torchrun(&["--rdzv-endpoint", &endpoint], &print).end().code(0);
    assert_eq!(values(&outcome), [format!("localhost {port}")]);
}

/// A line of one of two nodes, with this address of the first.
fn of_two(launch: Launch, options: &[&str], place: &Path) -> Launch {
    let go = place.join("go");
    let script = format!(
        "echo $RANK of $WORLD_SIZE; {} [ $RANK = 0 ] || {{ while ! [ -e {} ]; do sleep 0.02; done; exit 5; }}",
        meet(place),
        go.display()
    );
    launch.options(["--nnodes", "2"]).options(options).option("--no-python").sh(&script)
}

/// The first node shows the output of both workers; both end with the status of the one that fails then.
#[track_caller]
fn check_one_job(first: Running, second: Running, place: &Path) {
    first.wait_for_lines(" of 2", 2);
    fs::write(place.join("go"), "").expect("a file");
    let first = first.end().code(5);
    second.end().code(5);
    let mut shown = values(&first);
    shown.dedup();
    assert_eq!(shown, ["0 of 2", "1 of 2"], "node 0 shows all output");
}

#[test]
fn nodes_with_a_key_are_one_job() {
    let launch = face("torchrun");
    let place = launch.dir().to_owned();
    let key = place.join("key");
    fs::write(&key, "a secret of more than 16 bytes").expect("a file");
    let port = free_port().to_string();
    let line = |launch: Launch, node: &str| {
        let options = ["--master-addr", "127.0.0.1", "--master-port", &port, "--node-rank", node];
        of_two(launch.option("--key-file").option(key.clone()), &options, &place).start()
    };
    let second = line(face("torchrun"), "1");
    check_one_job(line(launch, "0"), second, &place);
}

#[test]
fn nodes_without_a_key_are_one_job() {
    let launch = face("torchrun");
    let place = launch.dir().to_owned();
    let port = free_port().to_string();
    let line = |launch: Launch, node: &str| {
        let options = ["--master-addr", "127.0.0.1", "--master-port", &port, "--node-rank", node];
        of_two(launch, &options, &place).start()
    };
    let second = line(face("torchrun"), "1");
    check_one_job(line(launch, "0"), second, &place);
}

#[test]
fn nodes_of_a_rendezvous_get_their_numbers_there() {
    let launch = face("torchrun");
    let place = launch.dir().to_owned();
    let endpoint = format!("127.0.0.1:{}", free_port());
    let options = ["--rdzv-backend", "c10d", "--rdzv-id", "job7", "--rdzv-endpoint", &endpoint];
    let first = of_two(launch, &options, &place).start();
    let second = of_two(face("torchrun"), &options, &place).start();
    // Either process may be the first node, which shows all output.
    wait_for("the output of both workers", || {
        let shown = first.stdout() + &second.stdout();
        ["0 of 2", "1 of 2"].iter().all(|line| shown.contains(line)).then_some(())
    });
    fs::write(place.join("go"), "").expect("a file");
    let (first, second) = (first.end().code(5), second.end().code(5));
    let screens = [&first, &second].map(|outcome| outcome.stderr.clone());
    let noted = screens.iter().filter(|screen| screen.contains("no key in common"));
    assert_eq!(noted.count(), 0, "all nodes are on this machine: {screens:?}");
    let joined = screens.iter().filter(|screen| screen.contains("Joined  as node 1; node 0 ("));
    assert_eq!(joined.count(), 1, "{screens:?}");
    let mut shown = [values(&first), values(&second)].concat();
    shown.sort();
    shown.dedup();
    assert_eq!(shown, ["0 of 2", "1 of 2"]);
}

#[test]
fn rendezvous_restarts_all_nodes_with_the_same_numbers() {
    let endpoint = format!("127.0.0.1:{}", free_port());
    let line = || {
        let options = ["--nnodes=3", "--max-restarts=1", "--rdzv-backend=c10d", "--rdzv-id=again"];
        let names = "GROUP_RANK RANK WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RESTART_COUNT";
        let script = format!("{}; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3", print(names));
        torchrun(&options, &script).options(["--rdzv-endpoint", &endpoint]).start()
    };
    let nodes = [line(), line(), line()].map(|node| node.end().code(0));
    let restarts =
        "   Restart  attempt 2 (attempt 1 was the first start); node 0 shows the cause\n";
    let told = nodes.iter().filter(|node| node.stderr.contains(restarts));
    assert_eq!(told.count(), 2, "{nodes:#?}");
    let mut lines: Vec<_> = nodes.iter().flat_map(values).collect();
    lines.retain(|line| line.ends_with('1'));
    lines.sort();
    let port = lines[0].split(' ').nth(4).expect("a port").to_owned();
    let line = |node| format!("{node} {node} 3 127.0.0.1 {port} 1");
    assert_eq!(lines, [line(0), line(1), line(2)], "all have the port that node 0 chose");
}

/// The address is reserved for documents, and no machine has it.
#[test]
fn nodes_on_several_machines_are_told_of_a_key() {
    let options = ["--nnodes=2", "--master-addr=192.0.2.1", "--master-port=29600"];
    let outcome = torchrun(&options, "true").end();
    outcome.says(
        "note: the nodes have no key in common: every process that reaches port 24601 (for master port 29600) of \
         192.0.2.1 can join the job, read its output and stop it; every node executes its own command line only\n\
         help: `(umask 077; head -c 32 /dev/urandom > key)` makes a key; copy it to every node, and add `--key-file \
         key` to each line\n",
    );
}

#[test]
fn node_with_a_number_that_the_job_does_not_have_is_rejected() {
    let port = free_port().to_string();
    let line = |nodes: &str, number: &str| {
        let options = ["--master-addr=127.0.0.1", "--master-port", &port];
        let launch = torchrun(&["--nnodes", nodes, "--node-rank", number], "true");
        launch.options(options).start()
    };
    let first = line("2", "0");
    first.wait_for_error("Waiting");
    let other = line("3", "2");
    first.wait_for_error(
        "note: rejected connection from 127.0.0.1: node 2 is not expected: this job has 2 nodes\n",
    );
    other.end().code(77);
    first.signal(Signal::TERM);
    first.end().code(143);
}

#[test]
fn node_of_another_rendezvous_is_rejected() {
    let endpoint = format!("127.0.0.1:{}", free_port());
    let line = |id: &str| {
        let options = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint", &endpoint];
        torchrun(&options, "true").options(["--rdzv-id", id]).start()
    };
    let first = line("a");
    first.wait_for_error("Waiting");
    let outcome = line("b").end().code(77);
    first.wait_for_error(
        "note: rejected connection from 127.0.0.1: the peer has another run id than this job (`a`), or a key file\n",
    );
    outcome
        .says(": its run id, its number of nodes or its key file differs; nothing was started\n")
        .says("start every node with remuda, the same `--rdzv-id` (here `b`) and number of nodes, and give all or none");
    first.signal(Signal::TERM);
    first.end().code(143);
}

/// A port that is free, as is the one for agents of a static rendezvous at it. It lies below the ports that the kernel gives to other sockets: it could
/// give one to another test before the job listens there.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 10_240;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("a range");
    let given: u32 =
        range.split_whitespace().next().and_then(|low| low.parse().ok()).expect("a port");
    let places = given.saturating_sub(FIRST).max(4000) / 4;
    let start = std::process::id() + CALLS.fetch_add(1, Ordering::Relaxed);
    let listen = |port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    let ports = (0..places).map(|place| (FIRST + 4 * ((start + place) % places)) as u16);
    let mut free = ports.filter(|port| listen(*port) && listen(agent_port(*port)));
    free.next().expect("two free ports")
}

/// The port at which node 0 of a static rendezvous accepts agents.
pub(super) fn agent_port(master_port: u16) -> u16 {
    master_port - 4999
}

#[test]
fn hosts_of_one_command_have_the_workers_of_the_line() {
    let launch = face("torchrun").options(["-H", "localhost", "--nproc-per-node", "3"]);
    let outcome = launch.option("--no-python").sh(&print("RANK WORLD_SIZE")).end().code(0);
    assert_eq!(values(&outcome), ["0 3", "1 3", "2 3"]);
    let launch = face("torchrun").options(["-H", "localhost:2", "--no-python"]);
    let outcome = launch.sh(&print("RANK WORLD_SIZE")).end().code(0);
    assert_eq!(values(&outcome), ["0 2", "1 2"]);
    let launch = face("torchrun").options(["-H", "n1,n2", "--launcher", "local", "--no-python"]);
    let outcome = launch.sh(&print("LOCAL_WORLD_SIZE WORLD_SIZE")).end().code(0);
    assert_eq!(values(&outcome), ["1 2", "1 2"]);
}

#[test]
fn status_is_that_of_the_cause() {
    torchrun(&["--nproc-per-node=2"], "[ $RANK = 0 ] && sleep 1000; exit 7").end().code(7);
    let running =
        torchrun(&["--shutdown-timeout", "0.2"], "trap '' TERM; echo up; sleep 1000 & wait; wait");
    let running = running.start();
    running.wait_for_lines("up", 1);
    running.signal(Signal::TERM);
    running.end().code(143);
}

/// A script of Python that prints its arguments and how it was started.
fn script(launch: &Launch) -> PathBuf {
    let path = launch.dir().join("show.py");
    fs::write(&path, "import sys\nprint(__name__, sys.argv[1:])\n").expect("a script");
    path
}

#[test]
fn scripts_get_the_arguments_of_their_launcher() {
    let shown = |command, options: &[&str]| {
        let launch = face(command).options(options);
        let script = script(&launch);
        let outcome = launch.program([script.as_os_str(), "a".as_ref()]).end().code(0);
        values(&outcome)
    };
    assert_eq!(shown("torchrun", &[]), ["__main__ ['a']"]);
    assert_eq!(shown("torchrun", &["--run-path"]), ["__main__ ['a']"]);
    let legacy = "torch.distributed.launch";
    let ranks = ["__main__ ['--local-rank=0', 'a']", "__main__ ['--local-rank=1', 'a']"];
    assert_eq!(shown(legacy, &["--nproc_per_node=2"]), ranks);
    assert_eq!(shown(legacy, &["--use_env"]), ["__main__ ['a']"]);
}

/// torchrun gives every script to Python.
#[test]
fn script_of_a_shell_shows_the_words_that_run_it() {
    let check = |options: &[&str], status, text: &str| {
        let launch = face("torchrun").options(options);
        let dir = launch.dir().to_owned();
        fs::write(dir.join("run.sh"), "#!/bin/sh\nif true; then echo ran; fi\n").expect("a script");
        launch.cwd(&dir).program(["run.sh"]).end().code(status).says(text);
    };
    check(
        &["--nproc_per_node", "1"],
        1,
        "note: `run.sh` is a script of sh, but runs with Python: `--no_python sh run.sh` runs it with sh\n",
    );
    check(
        &["--no_python"],
        127,
        "for the file in the working directory: `chmod +x run.sh`, then `./run.sh`\n",
    );
}

#[test]
fn module_is_run_with_m() {
    let launch = face("torchrun").options(["-m"]);
    let dir = launch.dir().to_owned();
    script(&launch);
    let outcome = launch.cwd(dir).program(["show", "x"]).end().code(0);
    assert_eq!(values(&outcome), ["__main__ ['x']"]);
}

#[test]
fn program_called_torchrun_reads_lines_of_torchrun() {
    let launch = face("torchrun");
    let link = launch.dir().join("torchrun");
    std::os::unix::fs::symlink(REMUDA, &link).expect("a link");
    let mut words = command(&link);
    words.args(["--nproc_per_node", "2", "--no_python", "sh", "-c", "echo $WORLD_SIZE"]);
    let output = words.env("REMUDA_RUN_DIR", launch.run_dir()).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\n2\n");
}

#[test]
fn hosts_may_be_fewer_than_the_largest_number() {
    let launch =
        face("torchrun").options(["-H", "n1,n2", "--launcher", "local", "--nnodes", "1:2"]);
    let launch = launch.options(["--nproc-per-node", "1"]);
    let outcome = launch.option("--no-python").program(["true"]).end().code(0);
    assert!(
        outcome
            .stderr
            .contains("     Nodes  2 workers on 2 nodes: n1, n2 (minimum 1, maximum 2)\n"),
        "{outcome:#?}"
    );
}

/// A refused line shows what is wrong and what to type.
#[track_caller]
fn check_refused(options: &[&str], screen: &str) {
    let outcome = face("torchrun").options(options).program(["x.py"]).end().code(2);
    assert_eq!(outcome.stderr, screen);
}

#[test]
fn refused_values_are_underlined() {
    check_refused(
        &["--nproc-per-node", "0"],
        "error[C006]: `--nproc-per-node` cannot be `0`\n --> command line:1:34\n  |\n\
         1 | remuda torchrun --nproc-per-node 0 -- x.py\n  |                                  ^ \
         expected a number from 1 to 1024\n",
    );
    check_refused(
        &["--nnodes=1:4"],
        "error[C007]: a varying number of nodes needs a c10d rendezvous, or -H hosts\n --> command \
         line:1:26\n  |\n1 | remuda torchrun --nnodes=1:4 -- x.py\n  |                          ^^^ a varying \
         number\n  |\nhelp: type on every node: `remuda torchrun --nnodes=1:4 --rdzv-backend c10d \
         --rdzv-endpoint HOST:29400 x.py`\n",
    );
    check_refused(
        &["--tee", "5"],
        "error[C006]: `--tee` cannot be `5`\n --> command line:1:23\n  |\n\
         1 | remuda torchrun --tee 5 -- x.py\n  |                       ^ expected 0, 1, 2, 3, or \
         RANK:NUMBER pairs\n  |\nhelp: 0 is no stream, 1 stdout, 2 stderr, 3 both; `0:3,1:1` sets those of \
         local ranks 0 and 1\n",
    );
    check_refused(
        &["--rdzv-backend", "etcd"],
        "error[C006]: `--rdzv-backend` cannot be `etcd`\n --> command line:1:32\n  |\n\
         1 | remuda torchrun --rdzv-backend etcd -- x.py\n  |                                ^^^^ remuda does \
         not use etcd\n  |\nhelp: no server is needed, HOST is the first node: type `remuda torchrun \
         --rdzv-backend c10d --rdzv-endpoint HOST:29400 x.py` on every node\n",
    );
}

#[test]
fn line_in_the_place_of_etcd_keeps_what_is_not_of_etcd() {
    let etcd = ["--rdzv-backend=etcd-v2", "--rdzv-endpoint", "etcd.example:2379"];
    let others = ["--rdzv-conf", "protocol=https", "--nnodes", "2", "--nproc-per-node=4"];
    let options = [&etcd[..], &others].concat();
    face("torchrun").options(options).program(["x.py", "--lr", "1"]).end().code(2).says(
        "type `remuda torchrun --nnodes 2 --nproc-per-node=4 --rdzv-backend c10d --rdzv-endpoint \
         HOST:29400 x.py --lr 1` on every node",
    );
}

#[test]
fn null_device_in_the_place_of_logs_turns_files_off() {
    let options =
        ["--nproc-per-node=2", "--log-dir=/dev/null", "-t", "3", "-r", "3", "--no-python"];
    let options = [&options[..], &["--local-ranks-filter=1"]].concat();
    let outcome = face("torchrun").options(options).sh("echo $RANK").end().code(0);
    assert_eq!(values(&outcome), ["0", "1"]);
}

#[test]
fn program_of_the_older_launcher_needs_use_env() {
    let launch = face("torch.distributed.launch").options(["--no-python"]);
    launch
        .program(["hostname"])
        .end()
        .code(2)
        .says("error[C010]: `--no-python` needs `--use-env`\n");
    let launch = face("torch.distributed.launch").options(["--no-python", "--use-env"]);
    launch.sh("echo $LOCAL_RANK").end().code(0);
}

#[test]
fn launcher_of_agents_needs_hosts() {
    let options = ["-H", "n1,n2", "--launcher", "local", "--nproc-per-node=1", "--no-python"];
    let outcome = face("torchrun").options(options).sh("echo $RANK $WORLD_SIZE").end().code(0);
    assert_eq!(values(&outcome), ["0 2", "1 2"]);
    let check = |options: &[&str], says: &str| {
        face("torchrun").options(options).program(["x.py"]).end().code(2).says(says);
    };
    check(&["--launcher", "local"], "`--launcher` needs `--hostfile`");
    check(&["-H", "n1,n2", "--launcher", "slum"], "did you mean `slurm`?");
}

#[test]
fn nodes_that_cannot_meet_are_refused() {
    check_refused(
        &["--nnodes", "2"],
        "error[C010]: the address of the first node is not given\n --> command line:1:26\n  |\n\
         1 | remuda torchrun --nnodes 2 -- x.py\n  |                          ^ several nodes\n  |\n\
         help: give `--master-addr HOST --node-rank N` on every node, or `-H n1,n2` on one\n",
    );
}

#[test]
fn options_without_an_equivalent_are_refused() {
    let check = |options: &[&str], says: &str| {
        face("torchrun").options(options).program(["x.py"]).end().code(2).says(says);
    };
    check(&["--numa-binding", "x"], "expected `node`, `socket`, `exclusive` or `core-complex`");
    check(&["--print-completion", "zsh"], "`remuda completion SHELL` prints the completion script");
    check(&["--logs-specs", "x"], "it names a class in Python");
    check(&["--start-method", "thread"], "expected `spawn`, `fork` or `forkserver`");
    check(&["--monitor-interval", "0"], "expected a number of seconds above 0");
    check(&["--node-rank="], "expected a whole number");
    check(&["--master-addr", "a b"], "this is no address");
    check(&["--signals-to-handle", "SIGFOO"], "`SIGFOO` is no signal");
    check(&["--module", "--no-python"], "`--module` and `--no-python` cannot be combined");
    check(
        &["--virtual-local-rank", "--nproc-per-node=2", "--rdzv-conf=a"],
        "expected KEY=VALUE pairs",
    );
}

#[test]
fn workers_without_gpus_cannot_be_bound_near_them() {
    let options = ["--numa-binding", "exclusive", "--nproc-per-node=2"];
    let outcome = torchrun(&options, "true").env("CUDA_VISIBLE_DEVICES", "").end().code(78);
    assert_eq!(
        outcome.stderr,
        "error[R100]: the job cannot start\n  localhost: --numa-binding: visible GPUs: 0, workers: 2\n\
         help: give each worker a GPU, or leave --numa-binding out\n"
    );
}

#[test]
fn virtual_local_rank_gives_each_worker_one_device() {
    let names = print("RANK LOCAL_RANK CUDA_VISIBLE_DEVICES");
    let options = ["--virtual-local-rank", "--nproc-per-node", "2"];
    let outcome = torchrun(&options, &names).env("CUDA_VISIBLE_DEVICES", "4,6").end().code(0);
    assert_eq!(values(&outcome), ["0 0 4", "1 0 6"]);
    let few = torchrun(&options, &names).env("CUDA_VISIBLE_DEVICES", "4").end().code(2);
    few.says("CUDA_VISIBLE_DEVICES has 1 devices for 2 workers");
}

#[test]
fn lines_of_torchrun_behind_run_are_shown_with_remuda() {
    let help = |options: &[&str], help: &str| {
        let outcome = face("run").options(options).program([] as [&str; 0]).end().code(2);
        outcome.says(help);
    };
    help(
        &["torchrun", "--nproc_per_node", "2", "x.py"],
        "help: type `remuda torchrun --nproc_per_node 2 x.py --`\n",
    );
    let module = ["python3", "-m", "torch.distributed.launch", "x.py"];
    help(&module, "help: type `remuda torch.distributed.launch x.py --`\n");
}

#[test]
fn lines_of_unknown_launchers_say_what_to_type() {
    let said = |command: &'static str, options: &[&str]| {
        face(command).options(options).program(["./worker"]).end().code(2).stderr.clone()
    };
    assert_eq!(
        said("mpirun", &["-np", "4"]),
        "error[C012]: there is no command `mpirun`\n --> command line:1:8\n  |\n\
         1 | remuda mpirun -np 4 -- ./worker\n  |        ^^^^^^ unknown\n  |\n\
         help: type `remuda run -n 4 ./worker`\n"
    );
    // The nearest command would be `doctor`.
    assert_eq!(
        said("docker", &["run"]),
        "error[C012]: there is no command `docker`\n --> command line:1:8\n  |\n\
         1 | remuda docker run -- ./worker\n  |        ^^^^^^ unknown\n  |\n\
         help: type `docker run … remuda run SCRIPT`: the container starts remuda\n"
    );
    let launch = face("torchrun");
    let link = launch.dir().join("horovodrun");
    std::os::unix::fs::symlink(REMUDA, &link).expect("a link");
    let output = command(&link).args(["-np", "2", "python", "x.py"]).output().expect("it starts");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error[C012]: this is remuda, and it does not read lines of horovodrun\n \
         --> command line:1:1\n  |\n1 | horovodrun -np 2 python x.py\n  | ^^^^^^^^^^\n  |\n\
         help: type `remuda run -n 2 --no_local_rank x.py`\n"
    );
}

#[test]
fn options_of_ssh_are_accepted_with_hosts() {
    let options = ["--dry-run", "-H", "n1,n2", "--nproc-per-node=1", "--ssh_port=2200"];
    let outcome = torchrun(&options, "exit 3").options(["--ssh-config", "none"]).end().code(0);
    assert!(outcome.stdout_text().contains("n2"), "{outcome:#?}");
}

#[test]
fn empty_local_address_is_none() {
    let options = ["--dry-run", "--nnodes=2", "--rdzv-endpoint=localhost:29400", "--local-addr="];
    let outcome = torchrun(&options, "true").end().code(0);
    assert!(outcome.stdout_text().contains("29400"), "{outcome:#?}");
}

#[test]
fn standalone_line_says_that_it_is_one_node() {
    let outcome = torchrun(&["--standalone", "--nnodes", "2"], "true").end().code(0);
    outcome.says("note: `--standalone` is this node alone; `--nnodes 2` has no effect\n");
}

#[test]
fn line_of_several_nodes_without_their_number_is_noted() {
    let note = |options: &[&str], option: &str| {
        torchrun(options, "true").end().code(0).says(&format!(
            "warning: the job is this node alone, and `{option}` has no effect; for a job of several nodes, type \
             `--nnodes N` on each\n"
        ));
    };
    note(&["--node-rank=1", "--master-addr=127.0.0.1"], "--node-rank 1");
    let endpoint = ["--rdzv-backend=c10d", "--rdzv-endpoint=10.9.8.7:29500"];
    note(&endpoint, "--rdzv-endpoint 10.9.8.7:29500");
    let of_variable = torchrun(&[], "true").env("PET_NODE_RANK", "1").end().code(0);
    drop(
        of_variable
            .says("warning: the job is this node alone, and `PET_NODE_RANK=1` has no effect; "),
    );
    let of_variable = torchrun(&[], "true").env("PET_RDZV_ENDPOINT", "10.9.8.7:29555");
    of_variable.options(["--dry-run"]).end().code(0).says(
        "warning: the job is this node alone, and `PET_RDZV_ENDPOINT=10.9.8.7:29555` does not make it wait for \
         others; for a job of several nodes, type `--nnodes N` on each\n",
    );
    let (port_0, here) = ("--rdzv-endpoint=n1:0", "--rdzv-endpoint=localhost:29400");
    for quiet in [&["--nnodes=1"][..], &[port_0], &[here], &["--node-rank=0"]] {
        let options = [&["--rdzv-backend=c10d"], quiet].concat();
        let outcome = torchrun(&options, "true").end().code(0);
        assert!(!outcome.stderr.contains("alone"), "{quiet:?}: {outcome:#?}");
    }
}

#[test]
fn options_of_one_node_have_no_effect_with_hosts() {
    let check = |options: &[&str], names: &str| {
        let launch = torchrun(&["-H", "localhost", "--nproc-per-node=1"], "true").options(options);
        let note = format!("note: {names} no effect with `-H`: one command starts all nodes\n");
        launch.end().code(0).says(&note);
    };
    check(&["--node-rank", "1"], "`--node-rank` has");
    let endpoint = ["--rdzv-backend=c10d", "--rdzv-endpoint=n1", "--node_rank=0"];
    check(&endpoint, "`--node_rank` and `--rdzv-endpoint` have");
}
