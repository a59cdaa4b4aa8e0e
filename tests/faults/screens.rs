//! Whole screens, byte for byte except pids, times, directories and names of jobs.

use std::process::Stdio;

use regex::Regex;
use rustix::process::Signal;

use crate::support::launch::{Launch, Outcome, hosts, python, workers};
use crate::support::process::Role;
use crate::support::wait_for;

/// Compares the standard error of a job with the expected screen.
#[track_caller]
fn check(outcome: &Outcome, expect: &str) {
    assert_eq!(redacted(outcome), expect, "\n{}", outcome.stderr);
}

#[track_caller]
fn check_end(launch: Launch, code: i32, expect: &str) {
    check(&launch.end().code(code), expect);
}

fn redacted(outcome: &Outcome) -> String {
    let rules = [
        (r"pid \d+", "pid PID"),
        // Another test may run out of memory at the same time.
        (r"  the kernel's OOM killer killed .* while this worker ran\n", ""),
        (r"(after|running for|last output|workers? in) [0-9.]+ m?s", "$1 TIME"),
        (r"\d{8}-\d{6}Z-[a-z2-9]{8}", "RUN"),
        (r"job [a-z2-9]{8}\n", "job JOB\n"),
        // An exit may be known before the last output is read.
        (r"(  Stopping .*\n)((?:\S+:\d+ +│ .*\n)+)", "$2$1"),
    ];
    let text = outcome.screen().replace(&*outcome.dir().to_string_lossy(), "DIR");
    rules.iter().fold(text, |text, (pattern, with)| {
        Regex::new(pattern).expect("a pattern").replace_all(&text, *with).into_owned()
    })
}

#[test]
fn success_names_launch_logs_and_end() {
    check_end(
        workers(2).sh("exit 0"),
        0,
        "    Launch  2 workers on 1 node (this machine, CPU slots), job JOB\n      Logs  DIR/runs/RUN\n\
         \x20 Finished  2 workers in TIME\n",
    );
    let launch = workers(1);
    let logs = launch.dir().join("logs");
    check_end(
        launch.option("--log_dir").option(logs).sh("exit 0"),
        0,
        "    Launch  1 worker on 1 node (this machine, CPU slots), job JOB\n      \
         Logs  DIR/logs/RUN; run.json in DIR/runs/RUN\n  Finished  1 worker in TIME\n",
    );
    check_end(workers(2).options(["--log_level", "warning"]).sh("exit 0"), 0, "");
    check_end(workers(2).option("--quiet").sh("exit 0"), 0, "");
}

#[test]
fn lines_of_other_ranks_after_a_failure_are_counted() {
    let launch = |ranks: usize, last: &str| {
        let launch = workers(ranks);
        let dir = launch.dir().to_owned();
        let script = format!(
            "[ $RANK = 1 ] && {{ until [ -e up ]; do sleep 0.01; done; exit 3; }}\n\
             trap '{last}; exit 0' TERM; [ $RANK = 0 ] && touch up; sleep 1000 & wait"
        );
        launch.cwd(dir).option("--quiet").sh(&script)
    };
    let screen = |others: &str, hidden: &str| {
        format!(
            "error[R101]: rank 1 (localhost) exited with code 3 after TIME; {others} stopped\n\
             \x20 host localhost   local rank 1   slot 1   pid PID\n\
             \x20 it wrote no output\n\
             \x20 {hidden}\n\
             \x20 log: DIR/runs/RUN\n"
        )
    };
    let one = "2 lines of rank 0 after the failure are not shown: DIR/runs/RUN/rank0.stdout";
    let end = launch(2, "echo saved; printf exits");
    check_end(end, 3, &screen("1 other worker was", one));
    let two = "1 line of rank 0 after the failure is not shown: DIR/runs/RUN/rank0.stderr";
    let end = launch(3, "[ $RANK = 0 ] && echo saved >&2");
    check_end(end, 3, &screen("2 other workers were", two));
    let end = launch(2, "echo saved; echo really >&2");
    let both = "2 lines of rank 0 after the failure are not shown: DIR/runs/RUN";
    check_end(end, 3, &screen("1 other worker was", both));
}

#[test]
fn exit_code_screen() {
    check_end(
        hosts(&[("n0", 1), ("n1", 1)])
            .sh("[ $RANK = 0 ] && exec sleep 1000; echo one >&2; echo two >&2; exit 3"),
        3,
        "    Launch  2 workers on 2 nodes (DIR/hostfile), job JOB\n      Logs  DIR/runs/RUN\n\
         n1:1 │ one\n\
         n1:1 │ two\n\
         \x20 Stopping  1 worker after a failure, grace 10 s\n\
         error[R101]: rank 1 (n1) exited with code 3 after TIME; 1 other worker was stopped\n\
         \x20 host n1   local rank 0   slot 0   pid PID\n\
         \x20 last lines of its stderr:\n\
         \x20   | one\n\
         \x20   | two\n\
         \x20 log: DIR/runs/RUN/rank1.stderr\n",
    );
}

#[test]
fn early_exit_is_named() {
    check_end(
        workers(2).misbehave("leave-early"),
        1,
        "    Launch  2 workers on 1 node (this machine, CPU slots), job JOB\n      Logs  DIR/runs/RUN\n\
         localhost:1 │ all_reduce (operation 2, 4 bytes) failed on rank 1: rank 0 on host `localhost` \
         exited with 0 before it took part\n\
         error[R101]: rank 0 (localhost) exited with code 0 after TIME, before the other ranks: rank 1 lost a \
         connection; 1 other worker failed too\n\
         \x20 host localhost   local rank 0   slot 0   pid PID\n\
         \x20 rank 1 (localhost) then failed; its last lines are below\n\
         \x20 last lines of rank 1's stderr:\n\
         \x20   | all_reduce (operation 2, 4 bytes) failed on rank 1: rank 0 on host `localhost` \
         exited with 0 before it took part\n\
         \x20 log: DIR/runs/RUN/rank1.stderr\n\
         help: collectives need all ranks: give each rank the same number of batches, or let a rank that has \
         none left wait for the others before it exits\n",
    );
}

/// Rank 0 waits in `init_process_group` for rank 1, which has exited before.
#[test]
fn rank_that_ended_before_it_joined_the_group_is_named() {
    let launch = workers(2);
    let pid = launch.dir().join("pid");
    let pid = pid.display();
    let script = format!(
        "[ $RANK = 1 ] && {{ echo $$ >{pid}.new; mv {pid}.new {pid}; exit 0; }}\n\
         until [ -e {pid} ]; do sleep 0.01; done; while [ -e /proc/$(cat {pid}) ]; do sleep 0.01; done\n\
         cat >&2 <<'END'\nTraceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    \
         dist.init_process_group(\"gloo\")\n  File \"/v/site-packages/torch/distributed/distributed_c10d.py\", line \
         2714, in init_process_group\n    store, rank, world_size = next(rendezvous_iterator)\n\
         torch.distributed.DistStoreError: wait timeout after 5000ms, keys: /default_pg/0//cpu//0/0\nEND\nexit 1"
    );
    check_end(
        launch.sh(&script),
        1,
        "    Launch  2 workers on 1 node (this machine, CPU slots), job JOB\n      Logs  DIR/runs/RUN\n\
         localhost:0 │ Traceback (most recent call last):\nlocalhost:0 │   File \"train.py\", line 3, in <module>\n\
         localhost:0 │     dist.init_process_group(\"gloo\")\n\
         localhost:0 │   File \"/v/site-packages/torch/distributed/distributed_c10d.py\", line 2714, in \
         init_process_group\nlocalhost:0 │     store, rank, world_size = next(rendezvous_iterator)\n\
         localhost:0 │ torch.distributed.DistStoreError: wait timeout after 5000ms, keys: /default_pg/0//cpu//0/0\n\
         error[R101]: rank 1 (localhost) exited with code 0 after TIME, before it joined the process group: rank 0 \
         timed out in `init_process_group`; 1 other worker failed too\n\
         \x20 host localhost   local rank 1   slot 1   pid PID\n\
         \x20 rank 0 (localhost) then failed: torch.distributed.DistStoreError: wait timeout after 5000ms, keys: \
         /default_pg/0//cpu//0/0\n\
         \x20 rank 0's traceback is above\n\
         \x20 log: DIR/runs/RUN/rank0.stderr\n\
         help: every rank must call `init_process_group` before it exits: see why rank 1 did not, for example a \
         condition such as `if rank == 0`\n",
    );
}

/// A program without remuda's runtime hangs until it is stopped.
#[test]
fn stopped_job_has_no_hint_about_early_exits() {
    let script = "[ $RANK = 0 ] && exit 0; echo ready; exec sleep 1000";
    let job = workers(3).option("--quiet").sh(script).start();
    job.wait_for_lines("ready", 2);
    wait_for("the launcher to know of rank 0's end", || {
        job.signal(Signal::QUIT);
        job.stderr().contains("rank 0 (localhost): exited with code 0").then_some(())
    });
    job.signal(Signal::TERM);
    let outcome = job.end().code(143);
    let screen = redacted(&outcome);
    let last = "error[R106]: the job was stopped by SIGTERM; 2 workers were stopped\n  log: DIR/runs/RUN\n";
    assert!(screen.ends_with(last), "the user knows why: {screen}");
}

/// A worker that failed for a reason of its own did not wait for those that had exited.
#[test]
fn early_exit_before_another_failure_is_no_hint() {
    let script = "[ $RANK = 1 ] && exit 0; echo ready; read go; echo full >&2; exit 3";
    let launch = workers(2).option("--quiet").options(["--stdin", "0"]);
    let mut job = launch.stdin(Stdio::piped()).sh(script).start();
    job.wait_for_lines("ready", 1);
    wait_for("the launcher to know of rank 1's end", || {
        job.signal(Signal::QUIT);
        job.stderr().contains("rank 1 (localhost): exited with code 0").then_some(())
    });
    drop(job.take_stdin());
    let screen = redacted(&job.end().code(3));
    assert!(screen.contains("error[R101]: rank 0 (localhost) exited with code 3"), "{screen}");
    assert!(!screen.contains("help: rank "), "{screen}");
}

#[test]
fn long_last_output_shows_its_end() {
    let outcome = workers(1).option("--quiet").sh("seq 1 100; exit 1").end().code(1);
    let shown: Vec<&str> =
        outcome.stderr.lines().filter_map(|line| line.strip_prefix("    | ")).collect();
    let expect: Vec<String> = (81..=100).map(|number: u32| number.to_string()).collect();
    assert_eq!(shown, expect, "twenty lines of standard output, since there is no standard error");
}

#[test]
fn python_that_is_not_first_in_path_is_named() {
    let launch = python(1).option("--no_local_rank");
    let (own, script) = (launch.dir().join("python"), launch.dir().join("train.py"));
    std::os::unix::fs::symlink("/usr/bin/python3", &own).expect("a link");
    std::fs::write(&script, "").expect("a script");
    check_end(
        launch.option("--python").option(own).program([script]),
        0,
        "    Launch  1 worker on 1 node (this machine, CPU slots), job JOB\n    \
         Python  DIR/python (--python)\n      Logs  DIR/runs/RUN\n  Finished  1 worker in TIME\n",
    );
}

#[test]
fn traceback_is_shown_whole() {
    let launch = python(1).options(["--quiet", "--no_local_rank"]);
    let script = launch.dir().join("deep.py");
    // What is printed later takes the traceback off the end of the screen.
    let text = "import atexit\natexit.register(lambda: print('x' * 4096, flush=True))\ndef f(n):\n    if n == 0:\n        \
                raise ValueError('deep')\n    f(n - 1) if n % 2 else f(n - 1)\nf(12)\n";
    std::fs::write(&script, text).expect("a script");
    let outcome = launch.program([script]).end().code(1).says("    | ValueError: deep\n");
    assert!(outcome.stderr.contains("    | Traceback (most recent call last):\n"), "{outcome:#?}");
}

/// As `sleep` and most programs that were not written for DeepSpeed.
#[test]
fn program_refusing_local_rank_gets_a_hint() {
    check_end(
        python(1).options(["--no_python"]).program(["sleep", "1"]),
        1,
        "    Launch  1 worker on 1 node (this machine, CPU slots), job JOB\n      Logs  DIR/runs/RUN\n\
         sleep: unrecognized option '--local_rank=0'\n\
         Try 'sleep --help' for more information.\n\
         error[R101]: rank 0 (localhost) exited with code 1 after TIME\n\
         \x20 host localhost   local rank 0   slot 0   pid PID\n\
         \x20 last lines of its stderr:\n\
         \x20   | sleep: unrecognized option '--local_rank=0'\n\
         \x20   | Try 'sleep --help' for more information.\n\
         \x20 log: DIR/runs/RUN/rank0.stderr\n\
         help: remuda passes `--local_rank=0`, as DeepSpeed does; `--no_local_rank` omits it\n",
    );
}

/// A script with argparse and an option of the launcher behind it: the usage names `--local_rank`, and
/// the refused word is another one.
#[test]
fn option_of_remuda_behind_the_script_is_named() {
    let launch = python(1).option("--quiet");
    let script = launch.dir().join("train.py");
    let text = "import argparse\nparser = argparse.ArgumentParser()\n\
                parser.add_argument('--local_rank')\nparser.parse_args()\n";
    std::fs::write(&script, text).expect("a script");
    let words = [script.as_os_str(), "--num_gpus".as_ref(), "2".as_ref()];
    let end = format!(" --quiet --num_gpus 2 -- {}`\n", script.display());
    let outcome = launch.program(words).end().code(2);
    let outcome = outcome.says(
        "help: `--num_gpus` is an option of remuda and must precede the script: `remuda run ",
    );
    assert!(outcome.stderr.ends_with(&end), "{outcome:#?}");
    assert!(!outcome.stderr.contains("--no_local_rank"), "{outcome:#?}");
}

/// As nanoGPT reads its arguments.
#[test]
fn script_refusing_local_rank_gets_a_hint() {
    let launch = python(1).option("--quiet");
    let script = launch.dir().join("train.py");
    let text = "import sys\nfor word in sys.argv[1:]:\n    key = word.split('=')[0][2:]\n    \
                raise ValueError(f'Unknown config key: {key}')\n";
    std::fs::write(&script, text).expect("a script");
    let outcome = launch.program([script]).end().code(1);
    let help =
        "help: remuda passes `--local_rank=0`, as DeepSpeed does; `--no_local_rank` omits it\n";
    assert!(outcome.stderr.ends_with(help), "{outcome:#?}");
}

#[test]
fn signal_screen() {
    check_end(
        workers(1).sh("ulimit -c 0; kill -KILL $$"),
        137,
        "    Launch  1 worker on 1 node (this machine, CPU slots), job JOB\n      Logs  DIR/runs/RUN\n\
         error[R101]: rank 0 (localhost) was killed by signal 9 (SIGKILL) after TIME\n\
         \x20 host localhost   local rank 0   slot 0   pid PID\n\
         \x20 it wrote no output\n\
         \x20 log: DIR/runs/RUN\n\
         help: if no user killed it, check `dmesg` on localhost for the OOM killer\n",
    );
}

#[test]
fn other_failures_are_counted() {
    // A barrier, so that all have started: all exit on the same event.
    let launch = workers(3).option("--quiet");
    let dir = launch.dir().join("here");
    std::fs::create_dir(&dir).expect("a directory");
    let script = "trap '' TERM; : >\"$HERE/$RANK\"; until [ -e \"$HERE/0\" ] && [ -e \"$HERE/1\" ] && \
         [ -e \"$HERE/2\" ]; do sleep 0.01; done; kill -KILL $$";
    let outcome = launch.env("HERE", dir).sh(script).end().code(137);
    let number = ["no other worker", "1 other worker", "2 other workers"]
        .iter()
        .position(|count| outcome.stderr.contains(count))
        .expect("a count");
    assert_eq!(number, 2, "{outcome:#?}");
}

#[test]
fn missing_program_screen() {
    check_end(
        hosts(&[("n0", 1), ("n1", 1)]).env("PATH", "/usr/bin:/bin").program(["no-such"]),
        127,
        "error[R100]: 2 of 2 nodes cannot take part; nothing was started\n\
         \x20 n[0-1]: program `no-such` is not in PATH\n\
         help: give its full path; PATH on that node is `/usr/bin:/bin`\n",
    );
}

#[test]
fn unknown_placeholder_screen() {
    check_end(
        workers(2).options(["--quiet", "--prefix", "[{rank} {foo}] "]).sh("echo started"),
        2,
        "error[C006]: `--prefix` has no placeholder `{foo}`\n \
         --> command line:1:83\n  \
         |\n\
         1 | remuda run ... --num_gpus 2 --no_python --no_local_rank --quiet --prefix '[{rank} {foo}] ' \
         -- sh -c 'echo started'\n  \
         |                                                                                   ^^^^^ unknown\n  \
         |\n\
         help: the placeholders are `{host}`, `{rank}`, `{local_rank}`, `{stream}`\n",
    );
}

#[test]
fn program_that_cannot_start_screen() {
    let launch = workers(2);
    let script = launch.dir().join("script");
    std::fs::write(&script, "echo no interpreter\n").expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("ours");
    let outcome = launch.option("--quiet").program([script]).end().code(126);
    let screen = redacted(&outcome);
    // The other worker may or may not have started before it was stopped.
    let last = "\n\x20 cannot execute `DIR/script`: exec format error\n\
                help: a script needs `#!` and its interpreter in the first line\n";
    assert!(screen.contains("could not start; ") && screen.ends_with(last), "{screen}");
}

#[test]
fn timeout_screen() {
    check_end(
        workers(2)
            .options(["--timeout", "3s", "--grace", "2"])
            .sh("[ $RANK = 0 ] && echo ready; exec sleep 1000"),
        124,
        "    Launch  2 workers on 1 node (this machine, CPU slots), job JOB\n      Logs  DIR/runs/RUN\n\
         \x20 Stopping  2 workers: --timeout reached, grace 2.0 s\n\
         error[R105]: the job did not end within 3.0 s (--timeout); 2 workers were stopped\n\
         \x20 still running: rank 0 (localhost), last output TIME ago\n\
         \x20 still running: rank 1 (localhost), no output\n\
         \x20 log: DIR/runs/RUN\n\
         help: if the job hangs again, press Ctrl-\\ to print the pids, then type on its host: `gdb -p \
         PID -batch -ex 'thread apply all bt'`; it shows where a rank waits\n",
    );
}

#[test]
fn timeout_names_running_workers() {
    let launch = workers(2).options(["--timeout", "5s", "--grace", "2"]);
    let job = launch.sh("[ $RANK = 0 ] && exit; echo stuck >&2; exec sleep 1000");
    let screen = redacted(&job.end().code(124));
    let error = "error[R105]: the job did not end within 5.0 s (--timeout); 1 worker was stopped\n\
                 \x20 still running: rank 1 (localhost), last output TIME ago\n\
                 \x20 last lines of its stderr:\n\
                 \x20   | stuck\n\
                 \x20 log: DIR/runs/RUN/rank1.stderr\n\
                 help: rank 0 (localhost) exited with 0 after TIME while other ranks were still running; \
                 collectives need all ranks\n\
                 help: if the job hangs again, ";
    assert!(screen.contains(error), "{screen}");
}

/// A `--venv_script` that does not return.
#[test]
fn timeout_before_the_start_names_pending_nodes() {
    let launch = hosts(&[("n1", 1), ("n2", 1)]).options(["--timeout", "300ms"]);
    let script = launch.dir().join("environment");
    std::fs::write(&script, "sleep 1000\n").expect("written");
    let launch = launch.option("--venv_script").option(script);
    check_end(
        launch.sh("echo ran"),
        124,
        "error[R105]: the job was not ready to start within 300 ms (--timeout); nothing was started\n\
         \x20 still preparing: n[1-2]\n\
         help: check that `. DIR/environment` returns; `--venv_script` or a file system there may hang\n",
    );
}

#[test]
fn screen_of_a_single_worker_names_no_others() {
    let outcome = workers(1).sh("exit 3").end().code(3);
    let outcome = outcome.says("error[R101]: rank 0 (localhost) exited with code 3 after ");
    assert!(!outcome.stderr.contains("other worker"), "{}", outcome.stderr);
}

#[test]
fn interrupt_screen() {
    let job = workers(2).sh("echo ready; exec sleep 1000").start();
    job.wait_for_lines("ready", 2);
    job.signal(Signal::INT);
    check(
        &job.end().code(130),
        "    Launch  2 workers on 1 node (this machine, CPU slots), job JOB\n      Logs  DIR/runs/RUN\n\
         \x20 Stopping  2 workers: SIGINT received, grace 10 s; send it again to kill them now\n\
         error[R106]: the job was stopped by SIGINT; 2 workers were stopped\n\
         \x20 log: DIR/runs/RUN\n",
    );
}

#[test]
fn lost_agent_screen() {
    let job = hosts(&[("n0", 1), ("n1", 2)]).sh("echo ready; exec sleep 1000").start();
    job.wait_for_lines("ready", 3);
    let agents = job.wait_for_role(Role::Agent, 2);
    let n1 = agents.iter().find(|agent| agent.command.contains("node=1")).expect("n1");
    n1.signal(Signal::KILL);
    check(
        &job.end().code(75),
        "    Launch  3 workers on 2 nodes (DIR/hostfile), job JOB\n      Logs  DIR/runs/RUN\n\
         \x20 Stopping  1 worker after a failure, grace 10 s\n\
         error[R103]: node n1 was lost: its remuda process was killed by signal 9 (SIGKILL); 1 other worker was stopped\n\
         \x20 lost with it: ranks 1-2\n\
         \x20 log: DIR/runs/RUN\n\
         help: if no user killed it, check `dmesg` on n1 for the OOM killer\nhelp: to continue without it: --exclude n1\n",
    );
}

#[test]
fn lost_shim_screen() {
    let job = workers(2).sh("echo ready; exec sleep 1000").start();
    job.wait_for_lines("ready", 2);
    job.the(Role::Shim).signal(Signal::KILL);
    check(
        &job.end().code(75),
        "    Launch  2 workers on 1 node (this machine, CPU slots), job JOB\n      Logs  DIR/runs/RUN\n\
         error[R103]: node localhost was lost: its `remuda-shim`, which starts the workers, was killed or \
         crashed; ranks 0-1 exited with it; no other worker had to be stopped\n\
         \x20 log: DIR/runs/RUN\n\
         help: if no user killed it, check `dmesg` on localhost for the OOM killer\n",
    );
}

#[test]
fn leftover_screen() {
    let launch = workers(1);
    let flag = launch.dir().join("flag");
    let script = "setsid sh -c ': >\"$FLAG\"; exec sleep 1000' >/dev/null 2>&1 & \
         until [ -e \"$FLAG\" ]; do sleep 0.01; done; sleep 0.05; exit 0";
    let outcome = launch.env("FLAG", flag).sh(script).end().code(0);
    let screen = redacted(&outcome);
    assert_eq!(
        screen.replace("(sleep)", "(sh)").replace("sleep (pid", "sh (pid"),
        "    Launch  1 worker on 1 node (this machine, CPU slots), job JOB\n      Logs  DIR/runs/RUN\n\
         \x20 Leftover  rank 0 left 1 process behind: sh (pid PID); stopping\n\
         \x20 Finished  1 worker in TIME\n",
    );
}

#[test]
fn state_of_all_workers_screen() {
    let job = hosts(&[("n0", 1), ("n1", 1)]).sh("echo ready; exec sleep 1000").start();
    job.wait_for_lines("ready", 2);
    job.signal(Signal::QUIT);
    job.wait_for_error("rank 1");
    job.signal(Signal::TERM);
    check(
        &job.end().code(143),
        "    Launch  2 workers on 2 nodes (DIR/hostfile), job JOB\n      Logs  DIR/runs/RUN\n\
         \x20    State  rank 0 (n0): pid PID, running for TIME, last output TIME ago\n\
         \x20    State  rank 1 (n1): pid PID, running for TIME, last output TIME ago\n\
         help: `gdb -p PID -batch -ex 'thread apply all bt'` on the host of a rank shows where it waits\n\
         \x20 Stopping  2 workers: SIGTERM received, grace 10 s; send it again to kill them now\n\
         error[R106]: the job was stopped by SIGTERM; 2 workers were stopped\n\
         \x20 log: DIR/runs/RUN\n",
    );
}

/// With `--quiet` neither steps nor warnings are printed; the answer to SIGQUIT is.
#[test]
fn quiet_job_prints_errors_only() {
    let script = "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 3; echo ready; sleep 60";
    let job = workers(2).options(["--quiet", "--max_restarts", "1"]).sh(script).start();
    job.wait_for_lines("ready", 2);
    job.signal(Signal::QUIT);
    job.wait_for_error("rank 1 (localhost): pid ");
    job.signal(Signal::TERM);
    job.end().code(143).does_not_say("Restart").does_not_say("Stopping").says("State");
}
