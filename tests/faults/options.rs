//! Options: exit statuses before a start, arguments, environment, input, run records.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use remuda::base::clock;
use remuda::os::calendar::utc_stamp;

use crate::support::launch::{Launch, REMUDA, Running, command, hosts, python, workers};
use crate::support::process::Role;
use crate::support::wait_for;

/// Nothing may start: the program would leave a file.
#[track_caller]
fn check_refused(launch: Launch, code: i32, says: &str) {
    launch.end().code(code).says(says);
}

#[test]
fn missing_program_is_refused_before_the_start() {
    check_refused(workers(2).program(["no-such-program"]), 127, "`no-such-program` is not in PATH");
    check_refused(workers(2).program(["./no/such"]), 127, "program `./no/such` does not exist");
    check_refused(workers(2).program(["/etc/passwd"]), 126, "`/etc/passwd` cannot be executed");
    check_refused(workers(2).program(["/"]), 126, "program `/` cannot be executed");
    let hosts = hosts(&[("n0", 1), ("n1", 1)]).program(["no-such-program"]);
    check_refused(hosts, 127, "2 of 2 nodes cannot take part; nothing was started");
}

#[test]
fn script_without_an_interpreter_is_126() {
    let launch = workers(2);
    let script = launch.dir().join("script");
    fs::write(&script, "echo no interpreter\n").expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
    let outcome = launch.program([script]).end().code(126).says("a script needs `#!`");
    assert_eq!(outcome.record()["cause"]["kind"], "worker_not_started");
}

#[test]
fn missing_script_is_66() {
    let outcome = crate::support::launch::python(2).program(["no_such.py"]).end();
    outcome.code(66).says("cannot read script `no_such.py`: no such file or directory");
}

/// A port with a listener.
fn taken_port() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    (listener, port.to_string())
}

#[test]
fn master_port_in_use_is_refused_before_the_start() {
    let (_listener, port) = taken_port();
    let launch = hosts(&[("n0", 1), ("n1", 1)]).options(["--master_port", &port]);
    let outcome = launch.sh("echo started").end().code(78);
    assert_eq!(outcome.stdout_text(), "");
    let screen = outcome.says(&format!(
        "1 of 2 nodes cannot take part; nothing was started\n  \
        n0: port {port} of rank 0 is in use\nhelp: choose another port (`--master_port`, `--main_process_port` of \
        accelerate); `ss -ltnp 'sport = :{port}'` on this node shows the process that uses it\n"
    ));
    assert!(screen.runs().is_empty(), "a job that never began left a record");
}

#[test]
fn port_of_another_job_is_said_to_be_that() {
    let (listener, port) = taken_port();
    drop(listener);
    let line = || workers(1).options(["--master_port", &port]).sh("echo up; exec sleep 1000");
    let first = line().start();
    first.wait_for_lines("up", 1);
    line().end().code(78).says(&format!(
        "localhost: port {port} of rank 0 is in use: another job of remuda keeps it for its rank 0\n\
         help: choose another port (`--master_port`, `--main_process_port` of accelerate)\n"
    ));
    first.signal(rustix::process::Signal::TERM);
    first.end().code(143);
}

#[test]
fn run_record_exists_only_for_started_jobs() {
    let runs = |launch: Launch, code| launch.end().code(code).runs();
    assert!(runs(workers(2).program(["no-such-program"]), 127).is_empty());
    let script = python(1).program(["no-such-script.py"]);
    assert!(runs(script, 66).is_empty());
    let kept = runs(workers(1).sh("exit 3"), 3);
    assert_eq!((kept.len(), kept.last().map(String::as_str)), (2, Some("latest")), "{kept:?}");
}

#[test]
fn master_port_is_the_same_on_every_node() {
    let (listener, port) = taken_port();
    drop(listener);
    let launch = hosts(&[("n0", 1), ("n1", 1)]).options(["--master_port", &port, "--prefix", ""]);
    let outcome = launch.sh("echo $MASTER_ADDR:$MASTER_PORT").end().code(0);
    assert_eq!(outcome.stdout_text(), format!("127.0.0.1:{port}\n").repeat(2));
}

/// Of two simultaneous jobs, only one gets the default port; the job of another test may have it.
#[test]
fn master_port_other_than_the_default_is_noted() {
    let start = |launch: Launch| {
        let job = launch.sh("echo port $MASTER_PORT; exec sleep 1000").start();
        job.wait_for_lines("port ", 1);
        job
    };
    let end = |job: Running| {
        job.signal(rustix::process::Signal::TERM);
        let outcome = job.end().code(143);
        let line = outcome.stdout_text().trim_end().to_owned();
        (line.trim_start_matches("port ").to_owned(), outcome.port_notes.clone())
    };
    let jobs = [start(workers(1)), start(workers(1)), start(workers(1).option("--quiet"))];
    let [one, other, quiet] = jobs.map(end);
    assert!(one.0 != other.0 && other.0 != quiet.0 && quiet.0 != one.0, "{one:?} {other:?}");
    assert_eq!(quiet.1, "");
    for (port, notes) in [one, other] {
        let note = format!("note: port 29500 is in use on localhost; MASTER_PORT is {port}\n");
        assert_eq!(notes, if port == "29500" { String::new() } else { note });
    }
}

#[test]
fn statuses_of_workers_pass_through() {
    for code in [1, 2, 75, 125, 126, 255] {
        let outcome = workers(1).sh(&format!("exit {code}")).end().code(code);
        assert_eq!(outcome.record()["exit_of"], "worker");
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Every word in hexadecimal digits, from every node.
#[test]
fn arguments_arrive_byte_for_byte_on_every_node() {
    let odd: [&[u8]; 13] = [
        b"two words",
        b" \t ",
        b"'single' \"double\"",
        b"$HOME ${HOME} `id` $(id) !!",
        b"line\nbreak\n",
        b"",
        b"\\",
        b"\xff\xfe\x80",
        b"--num_gpus",
        b"--",
        b"a;b&c|d>e<f*?[x]{y}~#%",
        b"--flag=a,b;c&d|e>f*?[x]{y}~!#%",
        b"I'm 6' tall, 72\"",
    ];
    let words = odd.map(|word| OsString::from_vec(word.to_vec()));
    let script = "for word; do printf %s \"$word\" | od -An -v -tx1 | tr -d ' \\n'; echo .; done";
    let launch = hosts(&[("n0", 1), ("n1", 1)]).options(["--prefix", "{rank} "]);
    let outcome = launch.sh(script).program(["sh"]).program(words).end().code(0);
    for rank in 0..2 {
        let start = format!("{rank} ");
        let heard: Vec<&str> =
            outcome.stdout_text().lines().filter_map(|line| line.strip_prefix(&*start)).collect();
        let said: Vec<String> = odd.iter().map(|word| hexadecimal(word) + ".").collect();
        assert_eq!(heard, said, "on node {rank}");
    }
}

/// Arguments and variables over the kernel's limit for their total size.
#[test]
fn oversized_environment_is_refused_before_the_start() {
    let launch = workers(2);
    let dir = fs::canonicalize(launch.dir()).expect("there");
    let value = "x".repeat(100_000);
    let lines = (0..70).fold(String::new(), |text, number| text + &format!("V{number}={value}\n"));
    fs::write(dir.join(".deepspeed_env"), lines).expect("a file");
    let outcome = launch.env("HOME", &dir).cwd(&dir).sh("exit 0").end().code(71);
    assert!(outcome.runs().is_empty(), "{outcome:#?}");
    let outcome = outcome.says("error[M008]: arguments and variables of a worker are 7");
    outcome.says("help: raise it with `ulimit -s`, or let the script read a file\n");
}

/// `--no_ssh`: every node gets the same command line and starts its own workers.
fn alone(node: usize) -> Launch {
    let launch = hosts(&[("n0", 2), ("n1", 3)]).options(["--no_ssh", "--node_rank"]);
    let port = TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr()).expect("a port");
    let launch = launch.option(node.to_string()).options(["--master_addr", "127.0.0.1"]);
    launch.option("--master_port").option(port.port().to_string())
}

#[test]
fn no_ssh_nodes_know_their_ranks() {
    let script = "echo $RANK $LOCAL_RANK $WORLD_SIZE $CROSS_RANK $LOCAL_SIZE $MASTER_ADDR";
    let said = |node| {
        let outcome = alone(node).options(["--prefix", "{rank}:"]).sh(script).end().code(0);
        let mut lines: Vec<_> = outcome.stdout_text().lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(said(0), ["0:0 0 5 0 2 127.0.0.1", "1:1 1 5 0 2 127.0.0.1"]);
    let second = ["2:2 0 5 1 3 127.0.0.1", "3:3 1 5 1 3 127.0.0.1", "4:4 2 5 1 3 127.0.0.1"];
    assert_eq!(said(1), second);
}

#[test]
fn no_ssh_failure_names_the_global_rank() {
    let script = "[ $RANK = 3 ] && exit 9; exec sleep 1000";
    let outcome = alone(1).sh(script).end().code(9).says("rank 3 (n1) exited with code 9");
    assert_eq!(outcome.record()["cause"]["rank"], 3);
    let reader = alone(1).options(["--stdin", "4"]).stdin(Stdio::piped()).options(["--prefix", ""]);
    let mut job = reader.sh("echo $RANK:$(cat)").start();
    job.take_stdin().write_all(b"hello").expect("rank 4 reads");
    let outcome = job.end().code(0);
    assert!(outcome.stdout_text().contains("4:hello"), "{outcome:#?}");
}

#[test]
fn environment_arrives_byte_for_byte() {
    let value = OsString::from_vec(b"a b\n\xff'\"$".to_vec());
    let mut given = OsString::from("GIVEN=");
    given.push(&value);
    let launch = workers(1).env("PASSED", value.clone()).option("--env").option(given);
    let script = "printf '%s|%s|%s' \"$GIVEN\" \"$PASSED\" \"${EMPTY-unset}\"";
    let outcome = launch.options(["--env", "PASSED", "--env", "EMPTY="]).sh(script).end().code(0);
    let value = value.into_vec();
    assert_eq!(outcome.stdout, [&value[..], b"|", &value, b"|"].concat());
    let unknown = workers(1).options(["--env", "NOT_SET_ANYWHERE"]).sh("exit 0").end().code(2);
    unknown.says("`--env NOT_SET_ANYWHERE`: the variable is not set here");
}

/// What every rank reads, as `rank:text`.
#[track_caller]
fn check_stdin(count: usize, option: &[&str], expect: &[&str]) {
    let launch = workers(count).options(option.iter().copied()).stdin(Stdio::piped());
    let mut job = launch.options(["--prefix", ""]).sh("echo $RANK:$(cat)").start();
    // A job that reads nothing may have ended by now.
    let _ = job.take_stdin().write_all(b"hello");
    let outcome = job.end().code(0);
    let mut lines: Vec<_> = outcome.stdout_text().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, expect);
}

#[test]
fn stdin_is_forwarded_to_the_selected_ranks() {
    check_stdin(1, &[], &["0:hello"]);
    check_stdin(1, &["--stdin", "none"], &["0:"]);
    check_stdin(3, &[], &["0:", "1:", "2:"]);
    check_stdin(3, &["--stdin", "1"], &["0:", "1:hello", "2:"]);
    check_stdin(3, &["--stdin", "all"], &["0:hello", "1:hello", "2:hello"]);
    workers(2).options(["--stdin", "2"]).sh("exit 0").end().code(2).says("ranks are 0 to 1");
}

#[test]
fn closed_stdin_is_end_of_file() {
    workers(1).under("exec <&-").sh("read line; echo $?").end().code(0);
    workers(2).under("exec <&- >&- 2>&-").sh("exit 6").end().code(6);
    hosts(&[("n0", 1), ("n1", 1)]).sh("[ ! -t 0 ] && ! read line").end().code(0);
}

/// Input without a reader stays in the pipe, not in the memory of the launcher.
#[test]
fn stdin_without_readers_stays_in_the_pipe() {
    let mut job = workers(1).stdin(Stdio::piped()).sh("echo ready; exec sleep 1000").start();
    job.wait_for_lines("ready", 1);
    let mut stdin = job.take_stdin();
    let writer = std::thread::spawn(move || {
        let piece = vec![b'x'; 1 << 20];
        (0..64).map_while(|_| stdin.write_all(&piece).ok()).count()
    });
    // The link works and is idle once a state was shown.
    job.signal(rustix::process::Signal::QUIT);
    job.wait_for_error("State");
    job.signal(rustix::process::Signal::TERM);
    let outcome = job.end().code(143);
    let written = writer.join().expect("it ends when the pipe has no reader");
    assert!(written < 8, "{written} MiB were taken, {outcome:#?}");
}

#[test]
fn stdin_reaches_a_slow_reader_whole() {
    let launch = workers(2).options(["--stdin", "all"]).stdin(Stdio::piped());
    let mut job = launch.sh("[ $RANK = 1 ] && head -c 10 >/dev/null && exit; cat | wc -c").start();
    job.take_stdin().write_all(&vec![b'x'; 5_000_000]).expect("it reads");
    let outcome = job.end().code(0);
    assert!(outcome.stdout_text().contains("5000000"), "{outcome:#?}");
}

/// A directory with the name and the record of a run that ended with 0, so many seconds ago.
fn add_run(runs: &Path, seconds_ago: u64, job: &str) -> PathBuf {
    let started = clock::wall().saturating_sub(Duration::from_secs(seconds_ago));
    let run = runs.join(format!("{}-{job}", utc_stamp(started)));
    fs::create_dir_all(&run).expect("a directory");
    let record = "{\n  \"state\": \"ended\",\n  \"exit\": 0\n}\n";
    fs::write(run.join("run.json"), record).expect("a record");
    run
}

/// What lies where run directories are made, without `latest` and hidden files.
fn run_names(runs: &Path) -> Vec<String> {
    let entries = fs::read_dir(runs).expect("there").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> =
        names.filter(|name| name != "latest" && !name.starts_with('.')).collect();
    names.sort();
    names
}

#[test]
fn run_directories_are_private_and_the_newest_hundred_are_kept() {
    let launch = workers(1);
    let runs = launch.run_dir();
    // As earlier versions named them: the year 1970.
    for number in 0..110 {
        fs::create_dir_all(runs.join(format!("{number:011}-old"))).expect("a directory");
    }
    fs::create_dir_all(runs.join("not-ours")).expect("a directory");
    let kept: Vec<_> = (1..=99).map(|hour| add_run(&runs, hour * 3600, "kept")).collect();
    let oldest = add_run(&runs, 100 * 3600, "oldest");
    let outcome = launch.sh("echo kept").end().code(0);
    assert_eq!(outcome.run_file("rank0.stdout"), b"kept\n");
    let names = run_names(&outcome.dir().join("runs"));
    assert_eq!(names.len(), 101, "a hundred runs and what is not a run: {names:?}");
    assert!(!oldest.exists() && kept.iter().all(|run| run.exists()), "{names:?}");
    assert!(names.iter().all(|name| !name.ends_with("-old")), "{names:?}");
    let latest = outcome.dir().join("runs/latest");
    let mode = fs::metadata(latest).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn run_directory_is_named_by_its_time() {
    let stamp = || utc_stamp(clock::wall());
    let before = stamp();
    let outcome = workers(1).sh("exit 0").end().code(0);
    let names = run_names(&outcome.dir().join("runs"));
    let [name] = &names[..] else { panic!("one run: {names:?}") };
    let job = outcome.record()["job"].as_str().expect("text").to_owned();
    let time = name.strip_suffix(&format!("-{job}")).expect("the job stands last");
    assert!(*before <= *time && *time <= *stamp(), "{name}");
    let latest = fs::read_link(outcome.dir().join("runs/latest")).expect("a link");
    assert_eq!(latest.to_str(), Some(&**name));
}

#[test]
fn small_commands_do_not_evict_the_runs_of_jobs() {
    let launch = workers(1);
    let runs = launch.run_dir();
    let tools: Vec<_> =
        (1..=60).map(|hour| add_run(&runs.join("tools"), hour * 3600, "tool")).collect();
    let jobs: Vec<_> = (61..=160).map(|hour| add_run(&runs, hour * 3600, "job")).collect();
    let mut ssh = command(REMUDA);
    ssh.args(["ssh", "--launcher", "local", "-H", "n1:1", "--run_dir"]).arg(&runs);
    let ended = ssh.args(["--", "true"]).output().expect("it starts");
    assert!(ended.status.success(), "{ended:?}");
    assert!(jobs.iter().all(|run| run.exists()), "{:?}", run_names(&runs));
    let left = run_names(&runs.join("tools"));
    assert_eq!(left.len(), 50, "{left:?}");
    assert!(tools[48].exists() && !tools[49].exists(), "{left:?}");
    assert!(!runs.join("latest").exists(), "`latest` is a job");
    drop(launch.sh("exit 0").end().code(0));
}

#[test]
fn run_directory_of_a_running_job_is_kept() {
    let job = workers(1).sh("echo ready; exec sleep 1000").start();
    job.wait_for_lines("ready", 1);
    let runs = job.dir().join("runs");
    let latest = fs::read_link(runs.join("latest")).expect("a link");
    for number in 0..110 {
        fs::create_dir_all(runs.join(format!("9{number:010}-newer"))).expect("a directory");
    }
    workers(1).option("--run_dir").option(&runs).sh("exit 0").end().code(0);
    assert!(runs.join(&latest).exists(), "{} is gone", latest.display());
    let text = fs::read_to_string(runs.join(&latest).join("run.json")).expect("a record");
    assert!(text.contains("\"state\": \"running\""), "its launcher lives: {text}");
    job.signal(rustix::process::Signal::TERM);
    let outcome = job.end().code(143);
    assert!(outcome.dir().join("runs").join(latest).join("run.json").exists());
}

/// A user who wants to look into a running worker finds its process.
#[test]
fn run_record_of_a_running_job_has_the_pids_of_its_workers() {
    let job = workers(2).sh("echo $RANK $$; exec sleep 1000").start();
    let record = job.dir().join("runs/latest/run.json");
    let record = wait_for("the workers in run.json", || {
        let record: serde_json::Value = serde_json::from_slice(&fs::read(&record).ok()?).ok()?;
        (!record["workers"].as_array()?.is_empty()).then_some(record)
    });
    assert_eq!((&record["state"], &record["exit"]), (&"running".into(), &serde_json::Value::Null));
    let of_record = record["workers"].as_array().expect("workers").iter();
    let mut of_record: Vec<String> =
        of_record.map(|worker| format!("{} {}", worker["rank"], worker["pid"])).collect();
    of_record.sort_unstable();
    job.wait_for_lines(&of_record[0], 1);
    job.wait_for_lines(&of_record[1], 1);
    assert_eq!(record["workers"][0]["code"], serde_json::Value::Null);
    job.signal(rustix::process::Signal::TERM);
    drop(job.end().code(143));
}

#[test]
fn run_record_of_a_killed_launcher_becomes_lost() {
    let job = workers(1).sh("echo ready; exec sleep 1000").start();
    job.wait_for_lines("ready", 1);
    let runs = job.dir().join("runs");
    let killed = fs::canonicalize(runs.join("latest")).expect("a link");
    job.signal(rustix::process::Signal::KILL);
    let _outcome = job.end().killed_by(rustix::process::Signal::KILL);
    let record = || -> serde_json::Value {
        let text = fs::read(killed.join("run.json")).expect("a record");
        serde_json::from_slice(&text).expect("JSON")
    };
    assert_eq!(record()["state"], "running");
    let lost = remuda::report::SavedRun::read(&killed).expect("a record");
    assert_eq!(lost.state(), remuda::report::record::RunState::Lost);
    workers(1).option("--run_dir").option(&runs).sh("exit 0").end().code(0);
    assert_eq!((&record()["state"], &record()["exit"]), (&"lost".into(), &serde_json::Value::Null));
}

#[test]
fn run_record_has_command_and_directory() {
    let launch = workers(1).options(["--env", "MY_TOKEN=secret"]);
    let dir = fs::canonicalize(launch.dir()).expect("there");
    let outcome = launch.cwd(&dir).sh("exit 0").end().code(0);
    let record = outcome.record();
    assert_eq!((&record["version"], &record["state"]), (&4.into(), &"ended".into()));
    assert_eq!(record["remuda"], env!("CARGO_PKG_VERSION"));
    assert_eq!(record["cwd"], dir.to_str().expect("text"));
    let words: Vec<_> = record["command"].as_array().expect("words").iter().collect();
    assert_eq!(words[1], "run");
    assert!(words.iter().any(|word| **word == "MY_TOKEN=***"), "{words:?}");
    assert!(!record.to_string().contains("secret"), "{record}");
    assert_eq!(words[words.len() - 3..], ["sh", "-c", "exit 0"]);
}

#[test]
fn run_directory_that_cannot_be_created_is_73() {
    let launch = workers(1).options(["--run_dir", "/proc/none"]);
    launch.sh("exit 0").end().code(73).says("cannot create the run directory");
}

#[test]
fn log_directory_has_all_output() {
    let launch = workers(2);
    let logs = launch.dir().join("logs");
    let script = "echo out $RANK; echo err $RANK >&2";
    let _outcome = launch.option("--log_dir").option(&logs).sh(script).end().code(0);
    for rank in ["0", "1"] {
        let read = |stream| fs::read_to_string(logs.join(format!("latest/rank{rank}.{stream}")));
        assert_eq!(read("stdout").expect("kept"), format!("out {rank}\n"));
        assert_eq!(read("stderr").expect("kept"), format!("err {rank}\n"));
    }
}

#[test]
fn log_directory_keeps_every_job_apart() {
    let first = workers(2);
    let logs = first.dir().join("logs");
    let run = |launch: Launch, text: &str| {
        let launch = launch.option("--log_dir").option(&logs);
        launch.sh(&format!("echo {text} $RANK")).end().code(0)
    };
    let first = run(first, "first");
    let kept = fs::canonicalize(logs.join("latest")).expect("a link");
    let _second = run(workers(1), "second");
    let read = |dir: &Path, rank: u32| fs::read_to_string(dir.join(format!("rank{rank}.stdout")));
    assert_eq!(read(&kept, 0).expect("kept"), "first 0\n");
    assert_eq!(read(&kept, 1).expect("kept"), "first 1\n");
    let latest = fs::canonicalize(logs.join("latest")).expect("a link");
    assert_eq!(read(&latest, 0).expect("kept"), "second 0\n");
    assert!(read(&latest, 1).is_err(), "the second job had one worker");
    assert_eq!(run_names(&logs).len(), 2);
    // Named like the directory of the run.
    assert_eq!(run_names(&first.dir().join("runs")), [name_of(&kept)]);
    let refused = workers(1).option("--log_dir").option(&logs).program(["no-such-program"]);
    refused.end().code(127);
    assert_eq!(run_names(&logs).len(), 2, "a job that never began leaves nothing");
}

fn name_of(path: &Path) -> String {
    path.file_name().expect("it has one").to_string_lossy().into_owned()
}

/// Creates a named pipe.
fn fifo(launch: &Launch) -> PathBuf {
    let path = launch.dir().join("fifo");
    assert!(command("mkfifo").arg(&path).status().expect("mkfifo").success());
    path
}

#[test]
fn fifo_as_a_script_is_refused() {
    let launch = python(1);
    let path = fifo(&launch);
    let outcome = launch.program([&path]).end().code(66);
    outcome.says("cannot read script `").says("fifo`: it is not a regular file: it is a pipe\n");
    let launch = python(1);
    let path = fifo(&launch);
    let outcome = launch.option("--dry-run").program([&path]).end().code(0);
    outcome.says("fifo` is not a regular file; the job would not start\n");
}

#[test]
fn fifo_as_another_input_is_refused() {
    for (option, said) in [
        ("--venv_script", "fifo`: it is not a regular file: it is a pipe"),
        ("--ssh_config", "fifo`: it is not a regular file: it is a pipe"),
        ("-H", "fifo` is not a regular file: it is a pipe that no process writes to"),
    ] {
        let launch = workers(1);
        let path = fifo(&launch);
        let launch = match option {
            "--ssh_config" => launch.options(["--launcher", "ssh"]),
            _ => launch,
        };
        launch.option(option).option(path).sh("exit 0").end().code(66).says(said);
    }
}

#[test]
fn fifo_with_a_writer_is_a_hostfile() {
    let launch = Launch::new();
    let path = fifo(&launch);
    let writes = format!("echo 'n1 slots=2' > {} &", path.display());
    let launch = launch.options(["--launcher", "local", "--accelerator", "cpu", "--no_python"]);
    let launch = launch.under(&format!("{writes} :")).option("-H").option(path);
    let outcome = launch.option("--no_local_rank").sh("echo rank $RANK").end().code(0);
    assert_eq!(outcome.stdout_text().matches("rank ").count(), 2, "{outcome:#?}");
}

#[test]
fn workers_run_in_the_working_directory_of_the_launcher() {
    let launch = workers(1);
    let dir = fs::canonicalize(launch.dir()).expect("there");
    let outcome = launch.cwd(&dir).sh("pwd").end().code(0);
    assert_eq!(outcome.stdout_text().trim_end(), dir.to_string_lossy());
}

#[test]
fn descriptors_are_checked_before_anything_starts() {
    let outcome = workers(8).under("ulimit -n 64").sh("exit 0").end().code(71);
    outcome
        .says("the job needs 96 open files on this node, the hard limit is 64")
        .says("help: raise");
    let many: Vec<(String, usize)> = (0..40).map(|node| (format!("n{node}"), 1)).collect();
    let many: Vec<(&str, usize)> = many.iter().map(|(host, slots)| (&**host, *slots)).collect();
    let outcome = hosts(&many).under("ulimit -n 64").sh("exit 0").end().code(71);
    outcome.says(
        "the job needs 144 open files here, the hard limit is 64; raise `nofile` in \
         /etc/security/limits.conf, or with `docker run --ulimit nofile=N`",
    );
}

#[test]
fn soft_limit_of_descriptors_is_raised() {
    workers(8).under("ulimit -Sn 64").sh("exit 0").end().code(0);
}

#[test]
fn limited_address_space_holds_the_memory_of_the_workers() {
    workers(2).under("ulimit -v 4000000").sh("exit 0").end().code(0);
}

#[test]
fn limit_of_file_sizes_is_named() {
    let outcome = workers(2).under("ulimit -f 100").sh("exit 0").end().code(71);
    let outcome = outcome.says("cannot create shared memory: file too large");
    drop(
        outcome.says("help: `ulimit -f` is smaller than the memory that workers share: raise it\n"),
    );
}

#[test]
fn workers_are_the_only_children_of_the_shim() {
    let job = workers(3).sh("echo ready; exec sleep 1000").start();
    job.wait_for_lines("ready", 3);
    let shim = job.the(Role::Shim);
    let workers = job.wait_for_role(Role::Worker, 3);
    assert!(workers.iter().all(|worker| worker.parent == shim.pid.as_raw_pid()), "{workers:?}");
    job.signal(rustix::process::Signal::TERM);
    job.end().code(143);
}

/// A stack that no address space holds: the system refuses every thread of the workers.
#[test]
fn worker_without_threads_reports_an_error() {
    let launch = workers(2).options(["--quiet", "--env", "RUST_MIN_STACK=140737488355328"]);
    let outcome = launch.program([REMUDA, "train-worker", "--steps", "2"]).end().code(71);
    outcome.says("error[M011]: cannot start the watchdog thread: ").does_not_say("panicked");
}

/// The end of an allocation is known from a variable; no `squeue` is in PATH that would extend it.
#[test]
fn workers_are_asked_to_stop_before_slurm_ends_the_job() {
    let end = remuda::base::clock::wall().as_secs() + 6;
    let script = "trap 'echo asked; exit 0' TERM; echo ready; while :; do /bin/sleep 0.1; done";
    let launch = workers(1).options(["--grace", "2s"]).program(["/bin/sh", "-c", script]);
    let launch = launch.env("SLURM_JOB_ID", "17").env("SLURM_JOB_END_TIME", end.to_string());
    let outcome = launch.env("PATH", "/nonexistent").end().code(143);
    assert_eq!(outcome.stdout_text(), "ready\nasked\n");
    assert_eq!(outcome.record()["cause"]["kind"], "allocation_ended");
    outcome.says("Slurm job 17 ends in ").says(
        "error[R106]: the job was stopped by SIGTERM, because Slurm job 17 would have ended ",
    );
}

/// The file was examined, so the file is executed, and not the program of PATH with this name.
#[test]
fn executable_without_a_directory_is_that_of_this_directory() {
    let launch = Launch::new().options(["--accelerator", "cpu", "-n", "1"]);
    let directory = launch.dir().join("with date");
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::copy("/bin/echo", directory.join("date")).expect("a copy");
    let outcome = launch.cwd(&directory).program(["date", "hi"]).end().code(0);
    assert_eq!(outcome.stdout_text(), "hi\n");
    outcome.says("`date` is an executable: run without Python");
}
