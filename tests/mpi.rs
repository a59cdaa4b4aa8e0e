//! Agents that a real Open MPI or MPICH starts, on this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use remuda::base::env_vars;
use rustix::process::Signal;

use crate::support::launch::{Launch, Outcome, face};
use crate::support::proof::{has, proof_cases, skip};
use crate::support::varying_nodes::worker_until;
use crate::support::wait_for;

/// A job whose agents this process manager starts.
fn job(manager: &str) -> Launch {
    let launch = Launch::new().options(["--no_python", "--no_local_rank", "--accelerator", "cpu"]);
    launch.options(["--launcher", manager, "-H", "localhost:2"])
}

#[track_caller]
fn lines(outcome: &Outcome) -> Vec<String> {
    let strip = |line: &str| line.split_once("│ ").map_or(line, |(_, rest)| rest).to_owned();
    let mut lines: Vec<_> = outcome.stdout_text().lines().map(strip).collect();
    lines.sort();
    lines
}

/// Workers have the ranks of the job, not the place of the process that MPI started.
#[track_caller]
fn check(job: impl Fn() -> Launch) {
    let names = "${OMPI_COMM_WORLD_RANK-no} ${PMI_RANK-no}";
    let outcome = job().sh(&format!("echo $RANK of $WORLD_SIZE {names}")).end().code(0);
    assert_eq!(lines(&outcome), ["0 of 2 no no", "1 of 2 no no"]);
    let outcome = job().sh("[ $RANK = 1 ] && exit 7; sleep 1000").end().code(7);
    outcome.says("error[R101]: rank 1 (localhost) exited with code 7");
}

#[test]
fn open_mpi_starts_agents() {
    if has("openmpi", "open_mpi_starts_agents") {
        check(|| job("openmpi"));
    }
}

#[test]
fn mpich_starts_agents() {
    if has("mpich", "mpich_starts_agents") {
        check(|| job("mpich"));
    }
}

#[test]
fn options_for_ssh_are_noted_beside_mpi() {
    if has("mpich", "options_for_ssh_are_noted_beside_mpi") {
        let launch = job("mpich").options(["--ssh_config=none", "--fanout", "2"]);
        let note = "note: --ssh_config, --fanout have no effect: MPICH starts the agents, not ssh\n\
                    help: `HYDRA_LAUNCHER_EXTRA_ARGS='-F none'` in the environment passes the file to the ssh that \
                    MPICH starts\n";
        launch.sh("true").end().code(0).says(note);
    }
    if has("openmpi", "options_for_ssh_are_noted_beside_mpi") {
        let launch = job("openmpi").options(["--ssh_config", "/my files/config"]);
        let note = "note: --ssh_config has no effect: Open MPI starts the agents, not ssh\n\
                    help: `--launcher_args='--mca plm_rsh_args \"-F '\\''/my files/config'\\''\"'` passes the file to \
                    the ssh that Open MPI starts\n";
        launch.sh("true").end().code(0).says(note);
    }
}

/// The ssh that the MPI starts reads the file that the help says.
#[test]
fn words_of_the_help_pass_a_file_to_ssh() {
    let check = |manager: &str, words: fn(&str) -> (&'static str, String)| {
        let launch = job_on(manager, "alias:1");
        let (config, used) = (launch.dir().join("config"), launch.dir().join("used"));
        let text = format!("Host alias\n ProxyCommand touch {}\n", used.display());
        fs::write(&config, text).expect("a file");
        let (place, value) = words(config.to_str().expect("text"));
        let launch = match place {
            "--launcher_args" => launch.option(format!("{place}={value}")),
            variable => launch.env(variable, value),
        };
        let outcome = launch.options(["--agent_timeout", "5s"]).program(["true"]).end().code(69);
        assert!(used.exists(), "{manager}: {outcome:#?}");
    };
    if has("openmpi", "words_of_the_help_pass_a_file_to_ssh") {
        check("openmpi", |file| ("--launcher_args", format!("--mca plm_rsh_args \"-F {file}\"")));
    }
    if has("mpich", "words_of_the_help_pass_a_file_to_ssh") {
        check("mpich", |file| ("HYDRA_LAUNCHER_EXTRA_ARGS", format!("-F {file}")));
    }
}

/// MPIs from PyPI. Open MPI 5 sometimes hangs by itself; its job then ends with `--agent_timeout`.
#[test]
fn prove_newer_mpis() {
    if !has("mpis", "prove_newer_mpis") {
        return;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("mpis");
    if !target.join(".complete").exists() {
        skip("mpis", "prove_newer_mpis");
        return;
    }
    let path = env_vars::get_text("PATH").expect("PATH is set");
    for _ in 0..proof_cases(1) {
        for (name, manager) in [("openmpi5", "openmpi"), ("mpich5", "mpich"), ("impi", "impi")] {
            let root = target.join(name);
            let job = || {
                let launch = job(manager).env("PATH", format!("{}/bin:{path}", root.display()));
                launch.env("LD_LIBRARY_PATH", root.join("lib")).env("I_MPI_ROOT", &root)
            };
            check(job);
        }
    }
}

/// The first attempt fails, and then an agent is killed.
#[test]
fn mpich_job_is_restarted() {
    if !has("mpich", "mpich_job_is_restarted") {
        return;
    }
    let restarts = ["--max_restarts", "2", "--grace", "300ms"];
    let script = "echo $RANK in attempt $TORCHELASTIC_RESTART_COUNT; \
                  case $TORCHELASTIC_RESTART_COUNT$RANK in 01) exit 7;; 2?) exit 0;; esac; \
                  exec sleep 1000";
    let running = job("mpich").options(restarts).sh(script).start();
    running.wait_for_lines("in attempt 1", 2);
    let agents = running.processes().into_iter().filter(|process| process.name == "remuda-agent");
    agents.for_each(|agent| agent.signal(Signal::KILL));
    let outcome = running.end().code(0);
    let attempts = lines(&outcome).into_iter().filter(|line| line.ends_with(" 2"));
    assert_eq!(attempts.collect::<Vec<_>>(), ["0 in attempt 2", "1 in attempt 2"]);
    let outcome = outcome.says("rank 1 (localhost) exited with code 7");
    drop(outcome.says("node localhost was lost: its remuda process was killed by signal 9 (SIGKILL); restart 2 of 2"));
}

/// A job whose agents an MPI starts on these hosts.
fn job_on(manager: &str, hosts: &str) -> Launch {
    let launch = Launch::new().options(["--no_python", "--no_local_rank", "--accelerator", "cpu"]);
    launch.options(["--launcher", manager, "-H", hosts])
}

/// Open MPI ends then, with a page of text, and MPICH does not.
#[test]
fn host_that_ssh_cannot_reach_is_named_alone() {
    for (manager, program) in [("openmpi", "mpirun.openmpi"), ("mpich", "mpiexec.mpich")] {
        if !has(manager, "host_that_ssh_cannot_reach_is_named_alone") {
            continue;
        }
        let outcome = job_on(manager, "localhost:1,n1.invalid:1").program(["true"]).end().code(69);
        let screen = &outcome.stderr;
        let begin = format!(
            "error[R107]: 1 of 2 hosts cannot be reached; nothing was started\n  the agent was not started:\n    \
             n1.invalid: `{program}` has not reached it\n      ssh: Could not resolve hostname n1"
        );
        assert!(screen.contains(&begin), "{screen}");
        let help = screen.lines().find(|line| line.starts_with("  help: ")).expect("a help");
        assert!(help.contains(program) && help.contains(" n1.invalid "), "{help}");
        let last = "help: to continue without it: --exclude n1.invalid\n";
        assert!(screen.ends_with(last) && screen.lines().count() == 6, "{screen}");
    }
}

/// Each host is tried once more alone, because another one may have ended the command for all.
#[test]
fn job_with_too_few_hosts_in_reach_ends_with_the_reasons() {
    let hosts = "n1.invalid:1,n2.invalid:1,n3.invalid:1";
    for (manager, program) in [("openmpi", "mpirun.openmpi"), ("mpich", "mpiexec.mpich")] {
        if !has(manager, "job_with_too_few_hosts_in_reach_ends_with_the_reasons") {
            continue;
        }
        for option in ["--min_nodes=2", "--spares=1"] {
            let outcome = job_on(manager, hosts).option(option).program(["true"]).end().code(69);
            let outcome = outcome
                .says("error[R107]: 3 of 3 hosts cannot be reached; nothing was started\n")
                .says(&format!("    n2.invalid: `{program}` has not reached it\n      ssh: Could"));
            drop(outcome.does_not_say("did not start it within"));
        }
    }
}

/// Open MPI ends for all hosts if it cannot reach one.
#[test]
fn job_that_can_do_without_a_host_starts_on_the_others() {
    for manager in ["openmpi", "mpich"] {
        if !has(manager, "job_that_can_do_without_a_host_starts_on_the_others") {
            continue;
        }
        let launch = job_on(manager, "localhost:2,n1.invalid:1").option("--min_nodes=1");
        let outcome = launch.sh("echo $RANK of $WORLD_SIZE").end().code(0);
        assert_eq!(lines(&outcome), ["0 of 2", "1 of 2"]);
        drop(
            outcome.says(
                "warning: the job runs without n1.invalid; remuda will connect to it again. ",
            ),
        );
    }
}

/// A command that hangs ends before the host is tried again.
#[test]
fn host_that_hangs_has_one_command_at_a_time() {
    if !has("mpich", "host_that_hangs_has_one_command_at_a_time") {
        return;
    }
    let launch = job_on("mpich", "localhost:1,n1.invalid:1").option("--min_nodes=1");
    let (ssh, log, end) =
        (launch.dir().join("ssh"), launch.dir().join("log"), launch.dir().join("end"));
    // MPICH leaves its ssh behind when it is ended.
    let wait = format!("while [ ! -e {} ]; do sleep 0.1; done", end.display());
    fs::write(&ssh, format!("#!/bin/sh\necho up >> {}\n{wait}\n", log.display())).expect("a file");
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("the file of this test");
    let launch = launch.option(format!("--launcher_args=-launcher-exec {}", ssh.display()));
    let launch = launch.options(["--agent_timeout", "2s"]).sh(&worker_until(&end));
    let running = launch.start();
    let attempts = || fs::read_to_string(&log).map_or(0, |text| text.lines().count());
    wait_for("a third command", || (3 <= attempts()).then_some(()));
    // The first one started the other host.
    let commands = || {
        let all = running.processes().into_iter();
        all.filter(|process| process.name == "mpiexec.mpich").count()
    };
    wait_for("the end of the second command", || (commands() <= 2).then_some(()));
    fs::write(&end, "").expect("a file");
    drop(running.end().code(0));
}

/// MPICH does not exit when ssh does not return.
#[test]
fn manager_that_starts_no_agent_in_time_is_quoted() {
    if !has("mpich", "manager_that_starts_no_agent_in_time_is_quoted") {
        return;
    }
    let launch = job_on("mpich", "n1.invalid:1");
    let ssh = launch.dir().join("ssh");
    fs::write(&ssh, "#!/bin/sh\necho 'the proxy is busy' >&2\nexec sleep 15\n").expect("a file");
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("the file of this test");
    let words = format!("-launcher-exec {}", ssh.display());
    let launch = launch.option(format!("--launcher_args={words}"));
    let outcome = launch.options(["--agent_timeout", "10s"]).program(["true"]).end().code(69);
    let outcome = outcome.says(
        "the agent was not started in time:\n    n1.invalid: `mpiexec.mpich` did not start it within \
         10 s (--agent_timeout)\n      the proxy is busy\n",
    );
    let outcome = outcome.says(&format!(
        "help: `mpiexec.mpich -hosts n1.invalid -ppn 1 -n 1 -disable-auto-cleanup {words} hostname` (`{words}` is \
         from --launcher_args) must print the name of the host; `--launcher ssh` starts the agents without MPICH; \
         `--agent_timeout TIME` waits longer\n"
    ));
    drop(outcome.does_not_say("--join_timeout").does_not_say("--node_rank"));
}

#[test]
fn missing_manager_error_names_its_package() {
    let outcome = job("pbs").program(["true"]).end().code(127);
    assert_eq!(
        outcome.stderr,
        "error[R107]: there is no `pbsdsh` in PATH; nothing was started\n\
         help: `pbsdsh` belongs to PBS: load its module or install it; `--launcher ssh` starts the \
         agents without it\n",
    );
}

#[test]
fn program_of_another_mpi_is_refused_before_the_start() {
    let launch = job("mvapich").program(["true"]);
    let bin = launch.dir().join("bin");
    std::fs::create_dir(&bin).expect("a directory");
    for program in ["mpiexec", "ompi_info"] {
        std::fs::write(bin.join(program), "").expect("a file");
    }
    let path = std::env::join_paths([bin.as_path(), Path::new("/nonexistent")]).expect("a path");
    let outcome = launch.env("PATH", path).end().code(127);
    let expect = format!(
        "error[R107]: `{}/mpiexec` belongs to Open MPI, and `--launcher mvapich` needs that of MVAPICH; nothing was \
         started\nhelp: type `--launcher openmpi`, or load the module of MVAPICH, so that its program is the first \
         in PATH; `--launcher ssh` starts the agents without MPI\n",
        bin.display()
    );
    assert_eq!(outcome.stderr, expect);
}

#[test]
fn manager_that_fails_is_quoted() {
    if !has("openmpi", "manager_that_fails_is_quoted") {
        return;
    }
    let launch = job("openmpi").option("--launcher_args=--no-such-option").program(["true"]);
    launch
        .end()
        .code(69)
        .says("the agent was not started:\n    localhost: `mpirun.openmpi` exited with code 1");
    let outcome = job("lsf").program(["true"]).end().code(127);
    outcome.says("error[R107]: there is no `blaunch` in PATH; nothing was started\n");
}

/// Processes of one command are the nodes of one job, and workers do not see the variables of MPI.
#[track_caller]
fn check_tasks(mpirun: &[&str]) {
    let launch = Launch::new().options(["--no_python", "--no_local_rank", "--accelerator", "cpu"]);
    let names = "${OMPI_COMM_WORLD_RANK-no} ${PMI_RANK-no}";
    let script = format!("echo $RANK of $WORLD_SIZE in group $GROUP_RANK {names}");
    // Open MPI gives its processes a terminal.
    let launch = launch.env("NO_COLOR", "1").options(["-n", "2"]).sh(&script).through(mpirun);
    let outcome = launch.end().code(0);
    let line = |rank: usize| format!("{rank} of 4 in group {} no no", rank / 2);
    assert_eq!(lines(&outcome), (0..4).map(line).collect::<Vec<_>>());
    let outcome = outcome.says("task 0 of 2 of mpirun: each task is a node with 2 workers (-n)");
    drop(outcome.does_not_say("the lines differ"));
}

const OPEN_MPI: [&str; 5] =
    ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "2"];

#[test]
fn tasks_of_open_mpi_are_nodes_of_one_job() {
    if has("openmpi", "tasks_of_open_mpi_are_nodes_of_one_job") {
        check_tasks(&OPEN_MPI);
    }
}

#[test]
fn failure_of_tasks_is_shown_by_node_0_alone() {
    for (manager, mpirun) in [("openmpi", &OPEN_MPI[..]), ("mpich", &["mpiexec.mpich", "-n", "2"])]
    {
        if !has(manager, "failure_of_tasks_is_shown_by_node_0_alone") {
            continue;
        }
        let launch =
            Launch::new().options(["--no_python", "--no_local_rank", "--accelerator", "cpu"]);
        let launch = launch.env("NO_COLOR", "1").sh("[ $RANK = 1 ] && exit 7; sleep 1000");
        let outcome = launch.through(mpirun).end().code(7);
        let count = |text: &str| outcome.stderr.matches(text).count();
        assert_eq!(count("error[R101]: rank 1 (node-1) exited with code 7"), 1, "{outcome:#?}");
        let other = "     Ended  the job exited with status 7; node 0 shows the cause\n";
        assert_eq!(count(other), 1, "{outcome:#?}");
    }
}

#[test]
fn tasks_have_the_key_of_their_line() {
    if !has("mpich", "tasks_have_the_key_of_their_line") {
        return;
    }
    let launch = Launch::new().options(["--no_python", "--no_local_rank", "--accelerator", "cpu"]);
    let key = launch.dir().join("key");
    fs::write(&key, [7; 32]).expect("the directory is writable");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is this test's own");
    let launch = launch.option("--key_file").option(key.to_str().expect("text"));
    let launch = launch.sh("echo $RANK of $WORLD_SIZE").through(&["mpiexec.mpich", "-n", "2"]);
    let outcome = launch.end().code(0);
    assert_eq!(lines(&outcome), ["0 of 2", "1 of 2"]);
    assert!(!outcome.stderr.contains("no key in common"), "{outcome:#?}");
}

#[test]
fn tasks_of_mpich_are_nodes_of_one_job() {
    if has("mpich", "tasks_of_mpich_are_nodes_of_one_job") {
        check_tasks(&["mpiexec.mpich", "-n", "2"]);
    }
}

/// Tasks of one host share its devices.
#[test]
fn tasks_of_a_host_have_devices_of_their_own() {
    for (manager, mpirun) in [("openmpi", &OPEN_MPI[..]), ("mpich", &["mpiexec.mpich", "-n", "2"])]
    {
        if !has(manager, "tasks_of_a_host_have_devices_of_their_own") {
            continue;
        }
        let devices = |accelerator: &str, variable: &str, visible: &str| {
            let launch = Launch::new().options(["--no_python", "--no_local_rank", "-n", "2"]);
            let launch = launch.options(["--accelerator", accelerator]).env(variable, visible);
            let launch = launch.env("NO_COLOR", "1").sh(&format!("echo $RANK: ${variable}"));
            lines(&launch.through(mpirun).end().code(0))
        };
        let found = devices("xpu", "ZE_AFFINITY_MASK", "7,5,4,2");
        assert_eq!(found, ["0: 7,5", "1: 7,5", "2: 4,2", "3: 4,2"]);
        // Two for each task: something has bound them.
        let found = devices("xpu", "ZE_AFFINITY_MASK", "3,1");
        assert_eq!(found, ["0: 3,1", "1: 3,1", "2: 3,1", "3: 3,1"]);
        let found = devices("cpu", "CUDA_VISIBLE_DEVICES", "0");
        assert_eq!(found, ["0: 0,1", "1: 0,1", "2: 2,3", "3: 2,3"]);
    }
}

/// Variables as Open MPI sets them for one of two processes on two hosts.
fn task_of_two_hosts(launch: Launch) -> Launch {
    let variables = [("RANK", "0"), ("SIZE", "2"), ("LOCAL_SIZE", "1")];
    variables
        .into_iter()
        .fold(launch, |launch, (name, value)| launch.env(&format!("OMPI_COMM_WORLD_{name}"), value))
}

#[test]
fn tasks_that_cannot_be_one_job_are_refused() {
    let launch = task_of_two_hosts(face("run")).options(["-H", "n1,n2"]).program(["x.py"]);
    launch
        .end()
        .code(2)
        .says("error[C007]: each of 2 tasks of mpirun would start this job\n")
        .says("help: type the line without `mpirun`; `--launcher openmpi` starts the agents with it\n");
    let launch = task_of_two_hosts(face("run")).program(["x.py"]);
    launch
        .end()
        .code(2)
        .says("error[C010]: the host of task 0 of mpirun is not known\n")
        .says("help: type `remuda run --launcher openmpi -H HOSTS` instead of `mpirun`, or give ");
}

#[test]
fn tasks_of_torchrun_say_that_each_is_a_job() {
    let launch = task_of_two_hosts(face("torchrun")).option("--no-python").sh("echo $WORLD_SIZE");
    let outcome = launch.end().code(0);
    assert_eq!(outcome.stdout_text(), "1\n");
    outcome.says(
        "note: this process is task 0 of 2 of mpirun, and starts a job of its own; with `--nnodes 2` the \
         tasks are the nodes of one job\n",
    );
}

/// Variables as Open MPI sets them for one of three processes on one host.
fn task_of_three(launch: Launch) -> Launch {
    let variables = [("RANK", "1"), ("SIZE", "3"), ("LOCAL_SIZE", "3")];
    variables
        .into_iter()
        .fold(launch, |launch, (name, value)| launch.env(&format!("OMPI_COMM_WORLD_{name}"), value))
}

#[test]
fn tasks_that_are_not_as_many_as_nodes_are_refused() {
    let launch = task_of_three(face("torchrun")).options(["--nnodes", "2"]).program(["x.py"]);
    assert_eq!(
        launch.end().code(2).stderr,
        "error[C006]: `--nnodes` is 2, and mpirun has 3 tasks\n --> command line:1:26\n  |\n\
         1 | remuda torchrun --nnodes 2 -- x.py\n  |                          ^ each task is a node\n  |\n\
         help: start 2 tasks: `mpirun -np 2 …`; or type `--nnodes 3`\n"
    );
    let address = ["--nnodes=2", "--master_addr=127.0.0.1"];
    let launch = task_of_three(face("torchrun")).options(address).program(["x.py"]);
    let help =
        "help: start 2 tasks: `mpirun -np 2 …`; or type `--nnodes 3`, or give `--node_rank N`\n";
    launch.end().code(2).says("error[C006]: `--nnodes` is 2, and mpirun has 3 tasks\n").says(help);
    let launch = task_of_three(face("accelerate")).options(["launch", "--num_machines=2"]);
    let launch = launch.options(["--num_processes=4", "--cpu"]).env("HF_HOME", "/nonexistent");
    assert_eq!(
        launch.program(["x.py"]).end().code(2).stderr,
        "error[C006]: `--num_machines` is 2, and mpirun has 3 tasks\n --> command line:1:41\n  |\n\
         1 | remuda accelerate launch --num_machines=2 --num_processes=4 --cpu -- x.py\n  \
         |                                         ^ each task is a node\n  |\n\
         help: start 2 tasks: `mpirun -np 2 …`; or type `--num_machines 3`\n"
    );
}

/// The host of task 0 is not known, but the line has its address.
#[test]
fn tasks_of_mpi_have_the_numbers_of_nodes() {
    let launch = task_of_two_hosts(face("torchrun")).options(["--nnodes=2", "--no-python"]);
    let launch = launch.options(["--master-addr=127.0.0.1", "--dry-run"]).program(["/bin/true"]);
    assert_eq!(
        launch.end().code(0).stderr,
        "note: without `--node-rank`, each of the 2 tasks of mpirun has the number of its task\n"
    );
}

#[test]
fn tasks_of_accelerate_say_that_each_is_a_job() {
    let options = ["launch", "--cpu", "--num_processes", "1", "--no_python"];
    let launch = task_of_two_hosts(face("accelerate")).options(options).sh("echo one");
    let outcome = launch.end().code(0);
    assert_eq!(outcome.stdout_text(), "one\n");
    outcome.says(
        "and starts a job of its own; with `--num_machines 2` the tasks are the nodes of one job\n",
    );
}
