//! Real processes that behave as a cascade does, without torch.

use std::path::{Path, PathBuf};

use crate::support::launch::{Launch, Outcome, python, workers};

/// Where the scripts of these tests are.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cascades/scripts").join(name)
}

/// Three ranks of the script in one of its modes.
fn cascade(launch: Launch, mode: &str) -> Outcome {
    let dir = launch.dir().join("flags");
    std::fs::create_dir(&dir).expect("a directory");
    let words = ["python3".into(), script("cascade.py"), mode.into(), dir];
    launch.program(words).end()
}

#[test]
fn slow_exit_is_named_by_its_error_file() {
    let outcome = cascade(workers(3), "recorded").code(1);
    let title = "error[R101]: rank 2 (localhost) failed: RuntimeError: CUDA out of memory. Tried to allocate \
                 2.00 GiB\n";
    let outcome = outcome.says(title).says("cascade.py:").says(" in fail\n");
    let outcome = outcome.says("  remuda stopped it before it had exited; ");
    let outcome = outcome.says("  ranks 0, 1 then lost their connection to it\n");
    let last = outcome.stderr.find("error[R101]").expect("a last screen");
    let screen = &outcome.stderr[last..];
    assert!(screen.contains("    | RuntimeError: CUDA out of memory."), "{outcome:#?}");
    assert!(!screen.contains("Connection closed by peer"), "{outcome:#?}");
    let file: serde_json::Value =
        serde_json::from_slice(&outcome.run_file("rank2.error.json")).expect("JSON");
    let text = file["message"]["message"].as_str().expect("a message");
    assert_eq!(text, "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB");
    let cause = &outcome.record()["cause"];
    assert_eq!((&cause["rank"], &cause["evidence"]), (&2.into(), &"error_file".into()));
    assert_eq!(cause["exception"], text);
}

#[test]
fn slow_exit_is_named_by_its_traceback() {
    let outcome = cascade(workers(3), "printed").code(1);
    let outcome =
        outcome.says("error[R101]: rank 2 (localhost) failed: RuntimeError: CUDA out of memory.");
    assert_eq!(outcome.record()["cause"]["evidence"], "output");
}

/// Every rank refuses the same word, which is one mistake of the user. Each has printed it before one exits.
#[test]
fn refused_argument_is_one_failure_of_all_ranks() {
    let launch = workers(3);
    let flags = launch.dir().join("flags");
    std::fs::create_dir(&flags).expect("a directory");
    let script = "trap '' TERM; echo 'usage: t.py [-h]' >&2; echo 't.py: error: unrecognized arguments: --lrr' >&2; \
                  touch $FLAGS/$RANK; while [ $(ls $FLAGS | wc -l) -lt 3 ]; do sleep 0.01; done; exit 2";
    let outcome = launch.env("FLAGS", flags).sh(script).end().code(2);
    let screen = &outcome.stderr[outcome.stderr.find("error[").expect("an error")..];
    let words = "t.py: error: unrecognized arguments: --lrr";
    let first = screen.lines().next().unwrap_or_default();
    assert!(first.starts_with("error[R101]: rank ") && first.ends_with(words), "{outcome:#?}");
    assert!(screen.contains("; all 3 ranks failed the same way\n"), "{outcome:#?}");
    assert_eq!(outcome.record()["cause"]["exception"], words);
}

#[test]
fn malformed_error_file_leaves_the_traceback() {
    let outcome = cascade(workers(3), "malformed").code(1);
    drop(outcome.says("error[R101]: rank 2 (localhost) failed: RuntimeError: CUDA out of memory."));
}

#[test]
fn hanging_rank_outranks_timeouts_of_others() {
    let outcome = cascade(workers(3), "hang").code(1);
    let title = "error[R101]: rank 2 (localhost) did not take part: ranks 0, 1 timed out waiting for a \
                 collective; ";
    let outcome = outcome.says(title);
    let first = u32::from(!outcome.stderr.contains("the first to exit was rank 0 (localhost)"));
    // The screen may hold more output after the traceback, which is repeated then.
    let above = format!("rank {first} (localhost)\n  rank {first}'s traceback is above\n  log: /");
    let below = format!(
        "rank {first} (localhost); its last lines are below\n  last lines of rank {first}'s "
    );
    let is_found = [above, below].iter().any(|text| outcome.stderr.contains(text));
    assert!(is_found, "{outcome:#?}");
    let outcome = outcome.says(&format!("/rank{first}.stderr\n"));
    let help = "help: if the job hangs again, press Ctrl-\\ to print the pids, then type on localhost: \
                `py-spy dump --pid PID`; it shows where rank 2 waits";
    let cause = &outcome.says(help).record()["cause"];
    assert_eq!((&cause["kind"], &cause["rank"]), (&"worker_missing".into(), &2.into()));
    assert_eq!(cause["evidence"], "reports_of_others");
}

#[test]
fn rank_that_exited_with_0_before_the_others_is_named() {
    let outcome = cascade(workers(3), "left").code(1);
    let outcome = outcome.says("error[R101]: rank 2 (localhost) exited with code 0 after ");
    let outcome = outcome.says(", before the other ranks: ranks 0, 1 lost a connection; ");
    let outcome = outcome.says(" (localhost) then failed: RuntimeError: [third_party/gloo");
    let outcome = outcome.says("help: collectives need all ranks: ");
    let cause = &outcome.record()["cause"];
    assert_eq!((&cause["kind"], &cause["rank"]), (&"worker_missing".into(), &2.into()));
}

#[test]
fn message_of_a_rank_that_leaves_slowly_is_quoted() {
    let outcome = cascade(workers(3), "message").code(1);
    let title = "error[R101]: rank 2 (localhost) closed connections before exiting: ranks 0, 1 lost a connection; ";
    let outcome =
        outcome.says(title).says("  last line of its stderr: config: no data set `c4x`\n");
    let outcome = outcome
        .says(" was still running when remuda stopped the job, and had reported no exception");
    assert!(!outcome.stderr.contains("if the job hangs again"), "{outcome:#?}");
}

#[test]
fn traceback_of_an_error_file_is_shown() {
    let script = r#"printf '%s' '{"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack":
        "Traceback (most recent call last):\n  File \"a.py\", line 4, in f\nValueError: bad\n"}}}' \
        >"$TORCHELASTIC_ERROR_FILE"; exit 1"#;
    let outcome = workers(1).sh(script).end().code(1);
    let outcome = outcome.says("error[R101]: rank 0 (localhost) failed: ValueError: bad\n");
    let head = "  traceback in its error file:\n    | Traceback (most recent call last):\n";
    let outcome = outcome.says(head).says("    | ValueError: bad\n");
    assert!(!outcome.stderr.contains("it wrote no output"), "{outcome:#?}");
}

#[test]
fn killed_rank_is_named_with_its_signal() {
    let title = "error[R101]: rank 2 (localhost) was killed by signal 9 (SIGKILL) after ";
    drop(cascade(workers(3), "killed").code(137).says(title));
}

#[test]
fn exited_rank_is_named_with_its_code() {
    let title = "error[R101]: rank 2 (localhost) exited with code 5 after ";
    drop(cascade(workers(3), "exit").code(5).says(title));
}

#[test]
fn traceback_at_the_end_of_the_screen_is_not_repeated() {
    let launch = python(1).option("--no_local_rank");
    let script = launch.dir().join("short.py");
    std::fs::write(&script, "raise ValueError('short')\n").expect("a script");
    let outcome = launch.program([script]).end().code(1).says("  its traceback is above\n");
    let title = "error[R101]: rank 0 (localhost) failed: ValueError: short\n";
    let outcome = outcome.says(title);
    assert_eq!(outcome.stderr.matches("ValueError: short").count(), 2, "{outcome:#?}");
    assert_eq!(outcome.stderr.matches("Traceback").count(), 1, "{outcome:#?}");
}

/// Ends a job of Python workers with this script; every rank waits at its end for the others.
fn end_python(ranks: usize, name: &str, text: &str) -> Outcome {
    let launch = python(ranks).option("--no_local_rank");
    let script = launch.dir().join(name);
    std::fs::write(&script, text).expect("a script");
    launch.program([script]).end()
}

#[test]
fn syntax_error_is_named_with_its_line() {
    let outcome = end_python(1, "syn.py", "x = 1\ndef f(:\n    pass\n").code(1);
    let outcome = outcome.says("error[R101]: rank 0 (localhost) failed: SyntaxError: ");
    drop(outcome.says("syn.py:2\n"));
}

#[test]
fn missing_module_names_the_interpreter() {
    let outcome = end_python(1, "lacks.py", "import nosuchmod\n").code(1);
    let outcome = outcome.says("failed: ModuleNotFoundError: No module named 'nosuchmod'\n");
    let (help, option) = ("help: the interpreter is `", "`; `--python FILE` selects another\n");
    drop(outcome.says(help).says(option));
    let launch = python(1).options(["--no_local_rank", "--module"]);
    let outcome = launch.program(["nosuchmod"]).end().code(1);
    let title = "error[R101]: rank 0 (localhost) failed: No module named nosuchmod\n";
    drop(outcome.says(title).says(help));
}

#[test]
fn failure_of_all_ranks_is_reported_as_one() {
    // Workers that wait for each other fail before any of them is stopped.
    let text = "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: None)\n\
                rank, here = os.environ['RANK'], os.path.dirname(__file__)\n\
                open(f'{here}/at{rank}', 'w').close()\n\
                while not all(os.path.exists(f'{here}/at{other}') for other in (0, 1)):\n    \
                time.sleep(0.01)\nraise ValueError('no data')\n";
    let outcome = end_python(2, "same.py", text).code(1);
    let outcome = outcome.says("; all 2 ranks failed the same way\n");
    let outcome = outcome.says(" traceback is above\n");
    assert!(!outcome.stderr.contains("    | ValueError"), "{outcome:#?}");
}

#[test]
fn logged_traceback_is_not_the_failure() {
    let text = "import logging, sys\ntry:\n    {}['k']\nexcept KeyError:\n    logging.exception('handled')\n\
                sys.exit(9)\n";
    let outcome = end_python(1, "logs.py", text).code(9);
    let outcome = outcome.says("error[R101]: rank 0 (localhost) exited with code 9 after ");
    let outcome = outcome.says("  the last traceback it printed: KeyError: 'k', at ");
    assert_eq!(outcome.record()["cause"]["evidence"], "exit");
}

#[test]
fn last_attempt_names_the_record_of_all() {
    let outcome = workers(1).option("--max_restarts=1").sh("exit 3").end().code(3);
    let outcome = outcome.says("  after 1 restart; /");
    outcome.says("/run.json has the cause of each failure (`epochs`: epoch 0 is attempt 1)\n");
}

#[test]
fn root_exception_of_a_chain_is_shown() {
    let launch = python(1).option("--no_local_rank");
    let script = launch.dir().join("chain.py");
    let text = "try:\n    raise OSError('disk is full')\nexcept OSError as error:\n    raise RuntimeError('cannot save') from error\n";
    std::fs::write(&script, text).expect("a script");
    let outcome = launch.program([script]).end().code(1);
    let outcome =
        outcome.says("error[R101]: rank 0 (localhost) failed: RuntimeError: cannot save\n");
    drop(outcome.says("  caused by OSError: disk is full\n"));
    let text = "try:\n    open('/no/such')\nexcept FileNotFoundError:\n    raise RuntimeError('cannot load')\n";
    let outcome = end_python(1, "load.py", text).code(1);
    drop(
        outcome.says(
            "  caused by FileNotFoundError: [Errno 2] No such file or directory: '/no/such'\n",
        ),
    );
}

#[test]
fn traceback_that_scrolled_away_is_repeated() {
    let launch = python(1).option("--no_local_rank");
    let script = launch.dir().join("long.py");
    let text = "import atexit\natexit.register(lambda: print('x' * 4096, flush=True))\nraise ValueError('long')\n";
    std::fs::write(&script, text).expect("a script");
    let outcome = launch.program([script]).end().code(1).says("    | ValueError: long\n");
    assert_eq!(outcome.stderr.matches("Traceback").count(), 2, "{outcome:#?}");
}

#[test]
fn error_files_of_agents_are_removed() {
    let script = "dirname \"$TORCHELASTIC_ERROR_FILE\"; exit 3";
    let outcome = workers(1).sh(script).end().code(3);
    let directory = outcome.stdout_text().trim().to_owned();
    assert!(directory.contains("remuda-errors-"), "{directory}");
    assert!(!Path::new(&directory).exists(), "{directory}");
}

#[test]
fn error_file_is_kept_per_restart() {
    let script = "printf '{\"message\": {\"message\": \"E: epoch %s\"}}' $TORCHELASTIC_RESTART_COUNT \
                  >\"$TORCHELASTIC_ERROR_FILE\"; exit 1";
    let outcome = workers(1).option("--max_restarts=1").sh(script).end().code(1);
    let outcome = outcome.says("rank 0 (localhost) failed: E: epoch 0; restart 1 of 1 in ");
    let outcome = outcome.says("error[R101]: rank 0 (localhost) failed: E: epoch 1\n");
    for (file, epoch) in [("rank0.error.json", "epoch 0"), ("restart1/rank0.error.json", "epoch 1")]
    {
        let text = String::from_utf8(outcome.run_file(file)).expect("text");
        assert!(text.contains(epoch), "{file}: {text}");
    }
}

#[test]
fn error_file_chosen_by_the_user_is_not_replaced() {
    let launch = workers(1);
    let chosen = launch.dir().join("chosen.json");
    let launch =
        launch.option("--env").option(format!("TORCHELASTIC_ERROR_FILE={}", chosen.display()));
    let outcome = launch.sh("echo \"$TORCHELASTIC_ERROR_FILE\"; exit 1").end().code(1);
    assert_eq!(outcome.stdout_text().trim(), chosen.to_str().expect("text"));
}

#[test]
fn killed_process_of_a_worker_has_advice() {
    let outcome = workers(1).sh("exit 137").end().code(137);
    outcome.says(
        "help: code 137 is 128 + 9: SIGKILL ended a process in it; if no user killed it, check ",
    );
    let words = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ";
    let outcome = workers(1).sh(&format!("echo '{words}' >&2; exit 1")).end().code(1);
    let help = "help: SIGKILL ended a process of its DataLoader; if no user killed it, check ";
    drop(outcome.says(help).says("; fewer `num_workers` need less memory\n"));
    let words = "terminate called without an active exception";
    let outcome = workers(1).sh(&format!("echo '{words}' >&2; kill -ABRT $$")).end().code(134);
    drop(
        outcome.says(
            "help: the program ended while threads of torch were running, often after its own ",
        ),
    );
}

#[test]
fn traceback_behind_a_progress_bar_is_the_cause() {
    let text =
        "import sys\nsys.stderr.write('\\r 25%|##   | 4/16 [00:01<00:03]')\n{}['input_ids']\n";
    let outcome = end_python(1, "bar.py", text).code(1);
    let outcome = outcome.says("error[R101]: rank 0 (localhost) failed: KeyError: 'input_ids'\n");
    drop(outcome.says("bar.py:3\n"));
}

#[test]
fn first_exception_of_a_group_is_named() {
    let group = "  + Exception Group Traceback (most recent call last):\n  |   File \"a.py\", line 9, in main\n\
                 \u{20} | ExceptionGroup: in a TaskGroup (1 sub-exception)\n  +-+---------------- 1 ----------------\n\
                 \u{20}   | ValueError: shard 7 is corrupt\n    +------------------------------------\n";
    let outcome = workers(1).sh(&format!("cat >&2 <<'END'\n{group}END\nexit 1")).end().code(1);
    let outcome = outcome.says("failed: ExceptionGroup: in a TaskGroup (1 sub-exception)\n");
    let outcome = outcome.says("  caused by ValueError: shard 7 is corrupt\n");
    drop(outcome.says("  at a.py:9 in main\n"));
}
