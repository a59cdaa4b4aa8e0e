//! Tests of torch's own elastic agent and launcher, as assertions about remuda. Those are the tests below
//! `test/distributed/launcher` and `test/distributed/elastic` of which a user sees the result; tests here that
//! follow one name it; those about error files are in `error_files`. Workers are programs of the shell or of Python, without torch, and agents are command
//! lines that meet at one endpoint.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use super::torchrun::{free_port, torchrun};
use crate::support::launch::{Launch, Outcome, Running, face};
use crate::support::process::Role;
use crate::support::scratch::Scratch;
use crate::support::wait_for;

/// The lines on standard output, sorted.
#[track_caller]
fn lines(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> = outcome.stdout_text().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// A line of torchrun whose workers run this text of Python in the directory of the launch.
pub(super) fn python(options: &[&str], text: &str) -> Launch {
    let launch = face("torchrun").options(options);
    let dir = launch.dir().to_owned();
    let script = dir.join("worker.py");
    fs::write(&script, text).expect("a script");
    launch.cwd(dir).program([script])
}

/// A line of torchrun whose workers run a line of `sh` in the directory of the launch.
pub(super) fn shell(options: &[&str], script: &str) -> Launch {
    let launch = torchrun(options, script);
    let dir = launch.dir().to_owned();
    launch.cwd(dir)
}

/// Command lines that meet at one endpoint. Their workers run in one directory.
struct Agents {
    place: Scratch,
    endpoint: String,
}

impl Agents {
    fn new(name: &str) -> Self {
        let place = Scratch::new("torchrun", &format!("upstream-{name}"));
        Self { place, endpoint: format!("--rdzv-endpoint=127.0.0.1:{}", free_port()) }
    }

    fn here(&self, launch: Launch) -> Launch {
        launch.options(["--rdzv-backend=c10d", &self.endpoint]).cwd(self.place.path(""))
    }

    fn start(&self, options: &[&str], script: &str) -> Running {
        self.here(torchrun(options, script)).start()
    }

    /// Starts two agents with the same line; the first is node 0.
    fn start_two(&self, options: &[&str], script: &str) -> [Running; 2] {
        let first = self.start(options, script);
        first.wait_for_error("Waiting");
        [first, self.start(options, script)]
    }
}

/// Names of the files in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The log directory of the only attempt: below one with the name of the job.
#[track_caller]
fn only_attempt(logs: &Path) -> PathBuf {
    let names = names(logs);
    assert_eq!(names.len(), 1, "{names:?}");
    logs.join(&names[0]).join("attempt_0")
}

/// `test_launch_user_script_python`, `…_caffe2_bc`, `test_launch_standalone`, `test_launch_run_path`,
/// `test_launch_elastic`, `test_launch_with_env`.
#[test]
fn each_form_of_a_line_runs_every_rank_once() {
    let text = "import os, sys\n\
                for name in 'LOCAL_RANK RANK GROUP_RANK ROLE_RANK ROLE_NAME LOCAL_WORLD_SIZE WORLD_SIZE \
                ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS \
                TORCHELASTIC_RUN_ID OMP_NUM_THREADS TEST_SENTINEL_PARENT TORCHELASTIC_ERROR_FILE'.split():\n    \
                os.environ[name]\n\
                open(f'{sys.argv[1]}.{os.environ[\"RANK\"]}', 'x').close()\n";
    let check = |form: &str| {
        let options = ["--nproc-per-node=4", "--monitor-interval=1", "--start-method=spawn"];
        let launch = python(&options, text).options(form.split_whitespace());
        let launch = launch.env("TEST_SENTINEL_PARENT", "FOOBAR").program(["touched"]);
        let outcome = launch.end().code(0);
        let mut found = names(outcome.dir());
        found.retain(|name| name.starts_with("touched"));
        assert_eq!(found, ["touched.0", "touched.1", "touched.2", "touched.3"], "{form}");
    };
    check("--nnodes=1 --rdzv-id=2718");
    check(&format!("--master-addr=localhost --master-port={} --node-rank=0", free_port()));
    check("--nnodes=1 --standalone");
    check("--run-path");
    let conf = "join_timeout=5,last_call_timeout=0,timeout=5";
    let endpoint = format!("--rdzv-backend=c10d --rdzv-endpoint=localhost:{}", free_port());
    check(&format!("--nnodes=1:2 {endpoint} --rdzv-conf={conf} --rdzv-id=2718"));
}

/// `test_launch_with_env_vars`, `test_launch_user_script_bash`, `test_launch_user_script_default_nproc`.
#[test]
fn variables_alone_start_the_workers_of_a_shell_script() {
    let launch = |more: &[(&str, &str)]| {
        let set = [
            ("PET_NNODES", "1"),
            ("PET_RDZV_ID", "2718"),
            ("PET_MONITOR_INTERVAL", "1"),
            ("PET_START_METHOD", "spawn"),
            ("PET_NO_PYTHON", "1"),
        ];
        let launch = face("torchrun").sh("echo $RANK of $WORLD_SIZE in $TORCHELASTIC_RUN_ID");
        let set = set.iter().chain(more);
        set.fold(launch, |launch, (name, value)| launch.env(name, value)).end()
    };
    let workers = ("PET_NPROC_PER_NODE", "4");
    let refused = launch(&[workers, ("PET_MODULE", "1")]).code(2);
    assert_eq!(refused.stdout_text(), "");
    refused.says("`--module` and `--no-python` cannot be combined");
    let started = launch(&[workers, ("PET_MODULE", "0")]).code(0);
    let expect = [0, 1, 2, 3].map(|rank| format!("{rank} of 4 in 2718"));
    assert_eq!(lines(&started), expect);
    assert_eq!(lines(&launch(&[]).code(0)), ["0 of 1 in 2718"]);
}

/// `test_nproc_launch_auto_configurations`, `…_number_…`, `…_gpu_…`, `…_xpu_…`. Devices are counted without
/// torch; the variable says how many Intel GPUs there are.
#[test]
fn workers_are_counted_by_number_and_by_device() {
    let cpus = remuda::inventory::usable_cpus();
    let line = |workers: &str, xpus: &str| {
        let launch = torchrun(&["--nproc-per-node", workers], "echo started");
        launch.env("CUDA_VISIBLE_DEVICES", "").env("ZE_AFFINITY_MASK", xpus)
    };
    for (workers, xpus, expect) in [
        ("4", "", 4),
        ("auto", "", cpus),
        ("cpu", "0,1,2", cpus),
        ("auto", "0,1,2", 3),
        ("xpu", "0,1,2", 3),
    ] {
        let outcome = line(workers, xpus).options(["--dry-run", "--json"]).end().code(0);
        let plan: Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
        assert_eq!(plan["world_size"], expect, "{workers}, Intel GPUs {xpus:?}");
    }
    for none in ["gpu", "xpu"] {
        let refused = line(none, "").end().code(2);
        assert_eq!(refused.stdout_text(), "");
        refused.says(&format!("error[C006]: `--nproc-per-node` cannot be `{none}`"));
    }
}

/// `test_nproc_launch_unknown_configurations`, `test_min_max_nodes_parse`, `test_from_str_bad_input`,
/// `test_shutdown_timeout_validation_negative`, `test_parse_rendezvous_raises_error_…`,
/// `test_parse_rendezvous_endpoint_raises_error_…`. A comma too many in `--rdzv-conf` is accepted on purpose.
#[test]
fn values_that_torch_refuses_start_nothing() {
    let streams: &[&str] = &["0:1,", "11", "0:1,1", "1,0:1"];
    let conf = [
        "a=dummy1,=  ,c=dummy2",
        "a=dummy1, = ,c=dummy2",
        "a=dummy1,  =,c=dummy2",
        "b=dummy1,a,c=dummy2",
        "b=dummy1,c=dummy2,a",
        "b=dummy1,a=,c=dummy2",
        "  a ",
    ];
    let hosts = ["~", "dummy.com :123", "~:123", ":123"];
    let ports = ["", "abc", "-123", "-", "65536", "70000"].map(|port| format!("dummy.com:{port}"));
    let endpoints: Vec<&str> = hosts.into_iter().chain(ports.iter().map(String::as_str)).collect();
    let refused: [(&str, &[&str]); 7] = [
        ("--nproc-per-node", &["unknown"]),
        ("--nnodes", &["2:20:30"]),
        ("--tee", streams),
        ("--redirects", streams),
        ("--shutdown-timeout", &["-5"]),
        ("--rdzv-conf", &conf),
        ("--rdzv-endpoint", &endpoints),
    ];
    for (flag, values) in refused {
        for value in values {
            let outcome = torchrun(&[&format!("{flag}={value}")], "echo started").end().code(2);
            assert_eq!(outcome.stdout_text(), "", "{flag}={value}");
            outcome.says(&format!("error[C006]: `{flag}` cannot be `{value}`\n"));
        }
    }
}

/// Each rank sends its number to rank 0, at the address that the launcher gave to both, and shows the sum.
const SUM: &str = r#"
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(address)
    open("listens", "w").close()
    peers = [server.accept()[0].makefile("rw") for _ in range(size - 1)]
    total = sum(int(peer.readline()) for peer in peers)
    for peer in peers:
        print(total, file=peer, flush=True)
else:
    while not os.path.exists("listens"):
        time.sleep(0.01)
    peer = socket.create_connection(address).makefile("rw")
    print(rank, file=peer, flush=True)
    total = int(peer.readline())
print(total)
"#;

/// `test_simple_dist_sum`, `test_launch_dist_sum_with_static_rdzv`, `test_init_method_tcp_with_torchelastic`,
/// `test_init_method_env_with_torchelastic`.
#[test]
fn ranks_add_up_at_the_address_of_rank_0() {
    let check = |rendezvous: &str| {
        let launch = python(&["--nproc-per-node=4"], SUM).options(rendezvous.split_whitespace());
        assert_eq!(lines(&launch.end().code(0)), ["6"; 4], "{rendezvous}");
    };
    check("");
    check("--standalone");
    check(&format!("--master-addr=localhost --master-port={} --node-rank=0", free_port()));
    check(&format!("--rdzv-backend=static --rdzv-endpoint=127.0.0.1:{}", free_port()));
    check(&format!("--rdzv-backend=c10d --rdzv-endpoint=localhost:{}", free_port()));
}

/// `test_run_distributed_sum_homogeneous`, `test_run_with_custom_log_lines`, `test_torch_rpc`: the first node
/// shows the lines of both, with the ranks in the job.
#[test]
fn two_agents_add_up_and_show_the_ranks_of_the_job() {
    let agents = Agents::new("sum");
    agents.place.write("sum.py", SUM);
    let template = "--log-line-prefix-template=[${role_name}-${local_rank}:${rank}]:";
    let options = ["--nnodes=2", "--nproc-per-node=4", "--tee=3", "--role=sum", template];
    let script = agents.place.path("sum.py");
    let line = || agents.here(face("torchrun").options(options).program([&script])).start();
    let first = line();
    first.wait_for_error("Waiting");
    let (second, first) = (line().end().code(0), first.end().code(0));
    let expect =
        (0..4).flat_map(|local| [local, local + 4].map(|rank| format!("[sum-{local}:{rank}]:28")));
    assert_eq!(lines(&first), expect.collect::<Vec<_>>());
    assert_eq!(second.stdout_text(), "");
}

/// `test_run_distributed_sum_heterogeneous`, `test_assign_worker_ranks`. Nodes of different sizes are the hosts
/// of one line, or agents with different numbers of workers.
#[test]
fn ranks_are_counted_through_nodes_of_different_sizes() {
    let hosts = ["-H", "a:1,b:2,c:3", "--launcher=local"];
    let launch = python(&hosts, SUM);
    assert_eq!(lines(&launch.end().code(0)), ["15"; 6]);
    let script = "echo $GROUP_RANK.$LOCAL_RANK.$RANK of $LOCAL_WORLD_SIZE";
    let ranks =
        ["0.0.0 of 1", "1.0.1 of 2", "1.1.2 of 2", "2.0.3 of 3", "2.1.4 of 3", "2.2.5 of 3"];
    assert_eq!(lines(&shell(&hosts, script).end().code(0)), ranks);

    let agents = Agents::new("sizes");
    let start = |workers: &str| agents.here(python(&["--nnodes=3", workers], SUM)).start();
    let first = start("--nproc-per-node=1");
    first.wait_for_error("Waiting");
    let others = ["--nproc-per-node=2", "--nproc-per-node=3"].map(start);
    assert_eq!(lines(&first.end().code(0)), ["15"; 6]);
    for other in others {
        other.end().code(0);
    }
}

/// Waits until all ranks of an attempt on two nodes with one worker each have shown their places.
#[track_caller]
fn wait_for_attempt(first: &Running, attempt: u32) {
    for rank in 0..2 {
        first.wait_for_error(&format!("{rank} of 2, attempt {attempt}\n"));
    }
}

/// `test_double_agent_fault_tolerance`: a killed agent is replaced by one that starts later, or by one that
/// started before, when there was no place for it.
#[test]
fn killed_agent_of_a_fixed_number_is_replaced() {
    for waits in [false, true] {
        let agents = Agents::new(if waits { "spare" } else { "replaced" });
        let script = "echo \"$RANK of $WORLD_SIZE, attempt $TORCHELASTIC_RESTART_COUNT\" >&2; \
                      while [ ! -e end ]; do sleep 0.05; done";
        let options = ["--nnodes=2", "--max-restarts=2"];
        let [first, second] = agents.start_two(&options, script);
        wait_for_attempt(&first, 0);
        let start = || agents.start(&options, script);
        let spare = waits.then(start);
        if let Some(spare) = &spare {
            spare.wait_for_error("Joining");
        }
        second.signal(Signal::KILL);
        let third = spare.unwrap_or_else(start);
        wait_for_attempt(&first, 1);
        agents.place.write("end", "");
        first.end().code(0).says("restart 1 of 2").says("Finished  2 workers");
        third.end().code(0);
        second.end().killed_by(Signal::KILL);
    }
}

/// `test_launch_shutdown`: nothing of a job is left at its endpoint, so the next one has the same.
#[test]
fn endpoint_serves_one_job_after_another() {
    let agents = Agents::new("endpoint");
    for job in 0..3 {
        let options = ["--nnodes=2", "--rdzv-id=same"];
        let [first, second] = agents.start_two(&options, "echo $RANK of $WORLD_SIZE");
        assert_eq!(lines(&first.end().code(0)), ["0 of 2", "1 of 2"], "job {job}");
        second.end().code(0);
    }
}

/// `test_matches_machine_hostname_…`, and the tests of `is_host`: the setting outranks the order of starts.
#[test]
fn setting_says_which_agent_is_node_0() {
    let agents = Agents::new("is-host");
    let line = |is_host: &str| {
        let options = ["--nnodes=2", "--rdzv-conf", &format!("is_host={is_host}")];
        agents.here(torchrun(&options, "echo $AGENT is $GROUP_RANK")).env("AGENT", is_host).start()
    };
    let joins = line("false");
    joins.wait_for_error("Waiting");
    let node_0 = line("true").end().code(0);
    assert_eq!(lines(&node_0), ["false is 1", "true is 0"]);
    joins.end().code(0).says("Joined  as node 1");
}

/// `test_workers_drift_success`, `test_workers_drift_fail`: an agent without workers stays until the job ends,
/// without a limit of time as torch's barrier has.
#[test]
fn agent_whose_workers_have_ended_waits_for_the_others() {
    for leaver in 0..2 {
        let agents = Agents::new(&format!("drift{leaver}"));
        let script = format!(
            "[ $RANK = {leaver} ] && {{ touch left; exit 0; }}; while [ ! -e end ]; do sleep 0.05; done"
        );
        let pair = agents.start_two(&["--nnodes=2"], &script);
        wait_for("the end of a worker", || {
            let works = |agent: &Running| agent.processes().iter().any(|of| of.name == "sh");
            let is_over = agents.place.path("left").exists() && !works(&pair[leaver]);
            is_over.then_some(())
        });
        pair[leaver].wait_for_role(Role::Launcher, 1);
        agents.place.write("end", "");
        let [first, second] = pair.map(|agent| agent.end().code(0));
        first.says("Finished  2 workers");
        second.says("Ended  the job exited with status 0");
    }
}

/// `test_no_exit_barrier_on_failure`: no agent waits for workers that sleep.
#[test]
fn failure_on_one_node_ends_the_sleepers_of_all_nodes() {
    let agents = Agents::new("sleepers");
    let script = "touch up.$RANK; [ $RANK = 3 ] || exec sleep 100000; \
                  while [ $(ls up.* | wc -l) -lt 4 ]; do sleep 0.01; done; exit 9";
    let pair = agents.start_two(&["--nnodes=2", "--nproc-per-node=2"], script);
    for outcome in pair.map(|agent| agent.end().code(9)) {
        outcome
            .says("error[R101]: rank 3 (node-1) exited with code 9")
            .says("; 3 other workers were stopped");
    }
}

/// `test_run_bipolar_function`, `test_run_max_retries_exceeded`: as many attempts as restarts and one more.
/// `test_rank_restart_after_failure`: a success ends them.
#[test]
fn failures_use_up_the_restarts_and_a_success_none() {
    let meet = "touch $TORCHELASTIC_RESTART_COUNT.$RANK; \
                while [ $(ls $TORCHELASTIC_RESTART_COUNT.* | wc -l) -lt $WORLD_SIZE ]; do sleep 0.01; done";
    let attempts = |options: &[&str], then: &str, status| {
        let outcome = shell(options, &format!("{meet}; {then}")).end().code(status);
        let mut attempts = names(outcome.dir());
        attempts.retain(|name| name.starts_with(|first: char| first.is_ascii_digit()));
        (attempts.join(" "), outcome)
    };
    let options = ["--nproc-per-node=4", "--max-restarts=2"];
    let (found, outcome) = attempts(&options, "[ $RANK = 0 ] || [ $RANK = 2 ] || exit 6", 6);
    assert_eq!(found, "0.0 0.1 0.2 0.3 1.0 1.1 1.2 1.3 2.0 2.1 2.2 2.3");
    outcome.says("after 2 restarts");
    // Four dollars are two in an argument of torchrun.
    let once = "[ $RANK.$TORCHELASTIC_RESTART_COUNT != 1.0 ] || kill -KILL $$$$";
    let (found, outcome) = attempts(&["--nproc-per-node=2", "--max-restarts=3"], once, 0);
    assert_eq!(found, "0.0 0.1 1.0 1.1");
    outcome.says("rank 1 (localhost) was killed by signal 9 (SIGKILL)").says("restart 1 of 3");
}

/// `test_binary_exit`: the code stays, and only the redirected rank has files. `test_binary_signal`,
/// `test_process_failure_signal`: the name of the signal is shown.
#[test]
fn codes_above_128_and_signals_are_told_apart() {
    let script = "[ $RANK = 0 ] || exit 0; echo \"exit 138 from $RANK\" >&2; exit 138";
    let options = ["--nproc-per-node=2", "-r", "0:3", "--log-dir=logs"];
    let outcome = shell(&options, script).end().code(138);
    let attempt = only_attempt(&outcome.dir().join("logs"));
    let file = |name: &str| fs::read_to_string(attempt.join(name)).ok();
    assert_eq!(file("0/stderr.log").as_deref(), Some("exit 138 from 0\n"));
    assert_eq!(file("0/stdout.log").as_deref(), Some(""));
    assert_eq!((file("1/stderr.log"), file("1/stdout.log")), (None, None));
    outcome.says("rank 0 (localhost) exited with code 138").does_not_say("signal");
    let outcome = shell(&[], "ulimit -c 0; kill -SEGV $$$$").end().code(139);
    outcome.says("rank 0 (localhost) was killed by signal 11 (SIGSEGV)");
}

/// Streams of two ranks and of a process that each starts, by screen and file.
#[track_caller]
fn streams(options: &[&str]) -> Vec<String> {
    let script = "echo out; sh -c 'echo child'; echo err >&2";
    let launch = shell(&["--nproc-per-node=2", "--log-dir=logs"], script).options(options);
    let outcome = launch.end().code(0);
    let screens = [outcome.stdout_text(), &outcome.stderr].map(|screen| {
        let worker = |line: &&str| matches!(line.rsplit(':').next(), Some("out" | "child" | "err"));
        let mut lines: Vec<&str> = screen.lines().filter(worker).collect();
        lines.sort_unstable();
        format!("screen: {}", lines.join(" "))
    });
    let attempt = only_attempt(&outcome.dir().join("logs"));
    let files = ["0/stdout", "0/stderr", "1/stdout", "1/stderr"].into_iter().filter_map(|name| {
        let text = fs::read_to_string(attempt.join(format!("{name}.log"))).ok()?;
        Some(format!("{name}: {}", text.lines().collect::<Vec<_>>().join(" ")))
    });
    screens.into_iter().chain(files).filter(|stream| stream != "screen: ").collect()
}

/// `test_function` and `test_binary` with each `Std`, `test_binary_redirect_and_tee`, `test_redirect_stdout`,
/// `test_redirect_stderr`, `test_redirect_both`.
#[test]
fn redirects_and_tee_divide_streams_between_files_and_screen() {
    let (out, err) = ("screen: child child out out", "screen: err err");
    let (out_0, out_1) = ("0/stdout: out child", "1/stdout: out child");
    let (err_0, err_1) = ("0/stderr: err", "1/stderr: err");
    assert_eq!(streams(&["-r", "1"]), [err, out_0, out_1]);
    assert_eq!(streams(&["-r", "2"]), [out, err_0, err_1]);
    assert_eq!(streams(&["-r", "3"]), [out_0, err_0, out_1, err_1]);
    // Rank 0: only a file for standard error, both for standard output. Rank 1: both for standard error.
    let mixed = streams(&["-r", "0:2,1:0", "-t", "0:1,1:2"]);
    let out = "screen: [default0]:child [default0]:out child out";
    assert_eq!(mixed, [out, "screen: [default1]:err", out_0, err_0, err_1]);
}

/// `test_tail`, `test_tail_write_to_dst_file`: no line of any worker is lost. `test_redirect_large_buffer_py`,
/// `…_c`: nor of a large file.
#[test]
fn every_line_of_many_workers_is_shown_and_kept() {
    let run = |options: &[&str], last: u32| {
        let options = [&["--nproc-per-node=8", "--log-dir=logs"][..], options].concat();
        let outcome = shell(&options, &format!("exec seq {last}")).end().code(0);
        let attempt = only_attempt(&outcome.dir().join("logs"));
        for rank in 0..8 {
            let kept = fs::read_to_string(attempt.join(format!("{rank}/stdout.log")));
            let numbers = (1..=last).map(|line| line.to_string());
            assert!(kept.expect("a file").lines().eq(numbers), "the file of rank {rank} differs");
        }
        outcome
    };
    let outcome = run(&["--tee=1", "--role=writer"], 1000);
    let expect =
        (0..8).flat_map(|rank| (1..=1000).map(move |line| format!("[writer{rank}]:{line}")));
    let mut expect: Vec<String> = expect.collect();
    expect.sort();
    assert!(lines(&outcome) == expect, "{outcome:#?}");
    assert_eq!(run(&["--redirects=1"], 50_000).stdout_text(), "");
}

/// `test_capture_logs_using_default_logs_specs`: the variable sets the prefix, and the option outranks it.
#[test]
fn variable_sets_the_prefix_of_lines() {
    let creating = |options: &[&str]| {
        let options = [&["--nproc-per-node=2", "--redirect=3", "--tee=3"][..], options].concat();
        let launch = shell(&options, "echo creating $RANK");
        launch.env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[rank${rank}]: ").end().code(0)
    };
    assert_eq!(lines(&creating(&[])), ["[rank0]: creating 0", "[rank1]: creating 1"]);
    let typed = creating(&["--log-line-prefix-template", "<${local_rank}>"]);
    assert_eq!(lines(&typed), ["<0>creating 0", "<1>creating 1"]);
}

/// `test_invalid_log_dir`. A directory is made where there is none, as torchrun does now, and one that is in
/// use gets another directory for each job.
#[test]
fn log_directory_is_made_and_may_not_be_a_file() {
    let launch = || shell(&["-r=1", "--rdzv-id=j"], "echo started; echo kept >&2");
    let first = launch().option("--log-dir=new/logs").end().code(0);
    let logs = first.dir().join("new/logs");
    let again = launch().option("--log-dir").option(&logs).end().code(0);
    assert_eq!((first.stdout_text(), again.stdout_text()), ("", ""));
    let jobs = names(&logs);
    assert_eq!(jobs.len(), 2, "{jobs:?}");
    for job in jobs {
        assert!(job.starts_with("j_"), "{job}");
        let file = logs.join(job).join("attempt_0/0/stdout.log");
        assert_eq!(fs::read_to_string(file).expect("a file"), "started\n");
    }
    let refused = launch();
    fs::write(refused.dir().join("file"), "").expect("a file");
    let refused = refused.option("--log-dir=file").end().code(73);
    refused.says("cannot create directory `file`: a file has this name").does_not_say("kept");
}

/// `test_no_zombie_process_binary`, `test_launch_agent_sets_signals_env_var`. As torch's, the signals reach the
/// workers; on purpose those of `--signals-to-handle` beyond the usual ones do not end the job.
#[test]
fn signal_to_the_agent_reaches_its_workers_and_ends_the_job() {
    let script = "for name in TERM INT HUP; do trap \"echo got $name; exit 0\" $name; done; \
                  trap 'echo got USR1' USR1; echo \"up $TORCHELASTIC_SIGNALS_TO_HANDLE\"; \
                  while :; do sleep 0.05; done";
    let options = ["--nproc-per-node=2", "--signals-to-handle=SIGTERM,SIGUSR1,SIGUSR2"];
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP")] {
        let running = shell(&options, script).start();
        running.wait_for_lines("up SIGTERM,SIGUSR1,SIGUSR2", 2);
        running.signal(Signal::USR1);
        running.wait_for_lines("got USR1", 2);
        running.signal(signal);
        let outcome = running.end().code(128 + signal.as_raw());
        let got = outcome.stdout_text().matches(&format!("got {name}\n")).count();
        assert_eq!(got, 2, "{outcome:#?}");
        outcome.says(&format!("error[R106]: the job was stopped by SIG{name}"));
    }
}

/// `test_launch_config_env_var_shutdown_timeout`, `…_explicit_overrides_env`, `test_shutdown_timeout_zero`. If
/// the day of the variable counted, the second job would not end.
#[test]
fn variable_sets_the_grace_and_the_option_outranks_it() {
    let check = |options: &[&str], variable: &str| {
        let launch = shell(options, "trap '' TERM; echo up; while :; do sleep 0.05; done");
        let running = launch.env("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", variable).start();
        running.wait_for_lines("up", 1);
        running.signal(Signal::TERM);
        running.end().code(143).says("Killing  rank 0\n");
    };
    check(&[], "0");
    check(&["--shutdown-timeout=0"], "86400");
}

/// `test_run_check_nccl_async_error_handling_env`, `…_env_default`, and the tests of the file timer and of the
/// health check: variables that are set stay, and remuda sets no file timer.
#[test]
fn variables_of_the_environment_are_kept() {
    const NCCL: &str = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
    const TIMER: &str = "TORCHELASTIC_TIMER_FILE";
    const HEALTH: &str = "TORCHELASTIC_HEALTH_CHECK_PORT";
    let shown = || shell(&[], &format!("echo ${{{NCCL}--}} ${{{TIMER}--}} ${{{HEALTH}--}}"));
    let unset = shown().under(&format!("unset {NCCL} {TIMER} {HEALTH}")).end().code(0);
    assert_eq!(lines(&unset), ["1 - -"]);
    let set = shown().env(NCCL, "0").env(TIMER, "/timer").env(HEALTH, "12345").end().code(0);
    assert_eq!(lines(&set), ["0 /timer 12345"]);
}
