//! The status line: drawn on terminals only, never in the way of a line, gone at the end. The
//! terminal is real; the bytes that it received are replayed on a simulated screen.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::launch::{Launch, REMUDA, Running, workers};
use crate::support::terminal::{self, Recording, play};

/// A job with both outputs on one terminal of this width.
fn on_a_terminal(launch: Launch, columns: u16) -> (Running, Recording) {
    let (screen, theirs) = terminal::open();
    terminal::set_width(&theirs, columns);
    let launch = launch.env("TERM", "xterm").env("NO_COLOR", "1").option("--stdin").option("all");
    let stdout = theirs.try_clone().expect("a copy");
    let job = launch.stdin(Stdio::piped()).stdout(stdout).stderr(theirs).start();
    (job, Recording::start(screen))
}

/// The final screen without the first and last lines of remuda.
fn last_screen(sent: &str) -> Vec<String> {
    const OWN: [&str; 4] = ["Launch  ", "Logs  ", "note: port ", "Finished  "];
    let lines = play(sent, |_| ()).into_iter();
    lines.filter(|line| !OWN.iter().any(|own| line.contains(own))).collect()
}

/// A trainer that never ends, as a worker: it reports steps and sometimes prints a line.
fn trainer(launch: Launch) -> Launch {
    let tiny = "train-worker --model mlp --width 16 --layers 1 --batch_size 2 --steps 100000000 \
                --eval_every 50";
    launch.program([REMUDA]).program(tiny.split_whitespace())
}

#[test]
fn status_line_is_below_the_lines_and_erased_at_the_end() {
    let (job, recording) = on_a_terminal(trainer(workers(2)), 80);
    recording.wait_for("   Running  step ");
    recording.wait_for("steps/s  ");
    job.signal(Signal::TERM);
    job.end().code(143);
    let sent = recording.end();
    let mut drawn = 0;
    let lines = play(&sent, |frame| {
        assert!(frame.chars().count() < 80, "{frame}");
        let is_status = frame.starts_with("   Running  step ") && frame.contains("  loss ");
        assert!(is_status, "not a status line: {frame}");
        drawn += 1;
    });
    assert!(0 < drawn);
    for line in lines.iter().filter(|line| line.contains('│')) {
        let whole = line.starts_with("localhost:0 │ ") && line.matches('│').count() == 1;
        assert!(whole, "torn: {line}");
    }
    assert!(lines.iter().all(|line| !line.contains("Running")), "{lines:#?}");
    assert!(lines.len() < drawn + 1000, "no line is drawn over and over");
    let (_, stopping) = sent.split_once("Stopping").expect("it says so");
    assert!(!stopping.contains("Running"), "a job that is being stopped: {stopping}");
}

/// The number behind the last `step ` of a text.
fn last_step(text: &str) -> Option<u64> {
    let (_, number) = text.rsplit_once("step ")?;
    number.split_once('/')?.0.trim().parse().ok()
}

/// The worker writes lines as fast as it can, and steps are forwarded at intervals: the newest step
/// stays below the lines, and never an older step below a newer line. The notes of all steps together fit
/// the socket of the worker: if the agent is late, none of them is dropped.
#[test]
fn status_line_keeps_the_newest_step() {
    let tiny = "train-worker --model mlp --width 128 --layers 2 --batch_size 64 --steps 200 \
                --eval_every 1";
    let launch = workers(2).program([REMUDA]).program(tiny.split_whitespace());
    let (job, recording) = on_a_terminal(launch, 120);
    job.end().code(0);
    let sent = recording.end();
    let (_, running) = sent.split_once("   Running").expect("it is told");
    let (running, after) = running.split_once("step 200/200").expect("the last step is told");
    assert!(!after.contains("Running"), "{after}");
    let (mut drawn, mut newest) = (0, 0);
    for piece in running.split("\r\x1b[K").skip(1) {
        let (lines, status) = piece.rsplit_once('\n').unwrap_or(("", piece));
        newest = newest.max(last_step(lines).unwrap_or(0));
        // The last piece ends with the line of the last step.
        if status.contains('│') {
            continue;
        }
        assert!(status.starts_with("   Running  step "), "driven away: {piece:?}");
        assert!(newest <= last_step(status).expect("a number"), "an old step: {piece:?}");
        drawn += 1;
    }
    assert!(1 < drawn, "{sent}");
}

const TWO_BARS: &str = "printf \"\\r$RANK: 10%%\" >&2; read go; printf \"\\r$RANK: 20%%\" >&2; \
     [ $RANK = 1 ] && echo a line; read go; printf \"\\r$RANK: done\\n\" >&2";

#[test]
fn progress_bar_of_the_lowest_rank_is_drawn() {
    let (mut job, recording) = on_a_terminal(workers(2).sh(TWO_BARS), 80);
    let mut stdin = job.take_stdin();
    let mut go = || std::io::Write::write_all(&mut stdin, b"\n").expect("they read");
    recording.wait_for("localhost:0 │ 0: 10%");
    go();
    recording.wait_for("localhost:1 │ a line");
    recording.wait_for("localhost:0 │ 0: 20%");
    go();
    job.end().code(0);
    let sent = recording.end();
    let (_, after) = sent.split_once("0: done").expect("it ends");
    assert!(!after.contains("0: 20%"), "an old bar below the finished one: {after}");
    let mut lines = last_screen(&sent);
    assert_eq!(lines.pop().as_deref(), Some(""), "{lines:#?}");
    lines.sort();
    assert_eq!(lines, ["localhost:0 │ 0: done", "localhost:1 │ 1: done", "localhost:1 │ a line"]);
}

#[test]
fn progress_bar_is_cut_to_the_terminal() {
    let script =
        "printf '\\r漢字漢字漢字漢字 and much more than fits'; read go; printf '\\r\\033[Kend\\n'";
    let launch = workers(2).options(["--prefix", "{rank} "]);
    let (mut job, recording) = on_a_terminal(launch.sh(script), 12);
    recording.wait_for("0 漢字漢字…");
    drop(job.take_stdin());
    job.end().code(0);
    assert!(!recording.end().contains("and"));
}

/// The failure screen is the last text on the screen, also after progress bars.
#[test]
fn failure_ends_the_status_line() {
    let script = "printf '\\r50%%'; read go; [ $RANK = 1 ] && exit 7; exec sleep 1000";
    let (mut job, recording) = on_a_terminal(workers(2).sh(script), 80);
    recording.wait_for("localhost:0 │ 50%");
    drop(job.take_stdin());
    job.end().code(7);
    let lines = last_screen(&recording.end());
    let screen = lines.iter().position(|line| line.starts_with("error[R101]: rank 1"));
    let (before, after) = lines.split_at(screen.expect("the last screen"));
    assert!(after.iter().all(|line| !line.contains("│ 50%")), "{lines:#?}");
    assert!(before.iter().all(|line| !line.contains("50%  Stopping")), "{lines:#?}");
}

/// A single worker has the terminal for itself: its prompt keeps its line.
#[test]
fn prompt_is_not_overwritten() {
    let script = "printf 'name? '; read name; echo \"hello $name\"";
    let (mut job, recording) = on_a_terminal(workers(1).sh(script), 80);
    recording.wait_for("name? ");
    std::io::Write::write_all(&mut job.take_stdin(), b"remuda\n").expect("it reads");
    job.end().code(0);
    assert_eq!(last_screen(&recording.end()), ["name? hello remuda", ""]);
}

/// Checks that standard error receives no status line, with this standard output and terminal.
#[track_caller]
fn check_no_status(launch: Launch, term: &str, stdout: Option<OwnedFd>) {
    let (screen, theirs) = terminal::open();
    let stdout = stdout.unwrap_or_else(|| theirs.try_clone().expect("a copy"));
    let script = "printf '\\r1%%\\r2%%\\r' >&2; printf '3%%\\n' >&2";
    let job =
        launch.env("TERM", term).env("NO_COLOR", "1").stdout(stdout).stderr(theirs).sh(script);
    let job = job.start();
    let recording = Recording::start(screen);
    job.end().code(0);
    let sent = recording.end();
    assert!(!sent.contains('\x1b') && !sent.contains('\r'), "{sent:?}");
    let bars = sent.lines().filter(|line| line.contains('%')).count();
    assert!((2..=4).contains(&bars), "a first state or none, and the last one: {sent:?}");
}

#[test]
fn status_line_needs_a_terminal() {
    check_no_status(workers(2), "dumb", None);
    check_no_status(workers(2).option("--quiet"), "xterm", None);
    // The reader of the pipe may write to the same terminal.
    let (reader, pipe) = std::io::pipe().expect("a pipe");
    check_no_status(workers(2), "xterm", Some(pipe.into()));
    drop(reader);
}

#[test]
fn status_line_is_drawn_with_stdout_in_a_file() {
    let (screen, theirs) = terminal::open();
    let launch = trainer(workers(2));
    let path = launch.dir().join("stdout");
    let file = File::create(&path).expect("a file");
    let job = launch.env("TERM", "xterm").stdout(file).stderr(theirs).start();
    let recording = Recording::start(screen);
    recording.wait_for("Running");
    job.signal(Signal::TERM);
    let outcome = job.end().code(143);
    let kept = std::fs::read_to_string(path).expect("text");
    assert!(kept.starts_with("localhost:0 │ mlp of 1 layer"), "{kept}");
    assert!(!kept.contains('\x1b') && !kept.contains('\r') && !kept.contains("Running"));
    assert!(!play(&recording.end(), |_| ()).concat().contains("Running"));
    drop(outcome);
}

#[test]
fn messages_of_remuda_have_colors_on_a_terminal() {
    let shown = |colours: (&str, &str), launch: Launch| {
        let (screen, theirs) = terminal::open();
        let launch = launch.env("TERM", "xterm").env(colours.0, colours.1);
        let job = launch.stdout(Stdio::null()).stderr(theirs).sh("exit 3").start();
        let recording = Recording::start(screen);
        job.end().code(3);
        recording.end()
    };
    let launch = || workers(1);
    assert!(
        shown(("LANG", "C"), launch()).contains("\x1b[1m\x1b[91merror[R101]\x1b[0m\x1b[1m: rank 0")
    );
    assert!(shown(("LANG", "C"), launch()).contains("\x1b[1m\x1b[32m    Launch\x1b[0m  1 worker"));
    assert!(!shown(("NO_COLOR", "1"), launch()).contains('\x1b'));
}

/// Two bars as tqdm draws them: it moves down to the second one, and returns.
const NESTED: &str = "bar() { printf \"\\r$1$2\" >&2; }; inner() { printf \"\\n\\r$1$2\\033[A\" >&2; }; \
     bar outer$RANK ' 0%%'; inner inner$RANK ' 0%%'; read go; \
     inner inner$RANK ' 9%%'; bar outer$RANK ' 50%%'; read go; \
     printf '\\r           \\r\\n\\r           \\r\\033[A' >&2; echo note$RANK >&2; \
     bar outer$RANK ' 60%%'; inner inner$RANK ' 0%%'; read go; \
     printf '\\n\\r           \\033[A' >&2; bar outer$RANK ' 100%%'; printf '\\n' >&2";

#[test]
fn nested_bars_stay_below_the_lines() {
    let (mut job, recording) = on_a_terminal(workers(2).sh(NESTED), 80);
    let mut stdin = job.take_stdin();
    let mut go = || std::io::Write::write_all(&mut stdin, b"\n").expect("they read");
    recording.wait_for("localhost:0 │ outer0 0%\r\nlocalhost:0 │ inner0 0%");
    go();
    recording.wait_for("localhost:0 │ outer0 50%\r\nlocalhost:0 │ inner0 9%");
    go();
    recording.wait_for("localhost:1 │ note1\r\n");
    recording.wait_for("localhost:0 │ outer0 60%\r\nlocalhost:0 │ inner0 0%");
    go();
    job.end().code(0);
    let mut lines = last_screen(&recording.end());
    lines.sort();
    assert_eq!(
        lines,
        [
            "",
            "localhost:0 │ note0",
            "localhost:0 │ outer0 100%",
            "localhost:1 │ note1",
            "localhost:1 │ outer1 100%"
        ]
    );
}

/// What tqdm wrote in a real run, as quickly as workers can write it.
#[test]
fn recorded_bars_of_many_workers_stay_few_lines() {
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/bars");
    for (name, notes) in [("nested", 2), ("trainer", 8), ("leave", 4)] {
        let script = format!("cat {vectors}/{name}.bytes >&2");
        let (job, recording) = on_a_terminal(workers(4).sh(&script), 80);
        job.end().code(0);
        let sent = recording.end();
        let lines = last_screen(&sent);
        assert_eq!(lines.len(), 4 * notes + 1, "{name}: {lines:#?}");
        assert!(!sent.contains("x1b"), "{name}: {sent:?}");
        let is_whole = |line: &String| line.is_empty() || line.matches('│').count() == 1;
        assert!(lines.iter().all(is_whole), "{name}: {lines:#?}");
    }
}

/// The same in a pipe: the first state of each rank, and what is final.
#[test]
fn recorded_bars_in_a_pipe_are_a_few_lines() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/bars/nested.bytes");
    let outcome = workers(2).sh(&format!("cat {path} >&2")).end().code(0);
    for rank in 0..2 {
        let prefix = format!("localhost:{rank} │ ");
        let lines: Vec<_> =
            outcome.stderr.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        let last: Vec<_> = lines[lines.len() - 2..].iter().map(|line| &line[..11]).collect();
        assert_eq!(last, ["note from t", "epoch: 100%"], "{outcome:#?}");
        assert!(lines.len() <= 3, "{outcome:#?}");
    }
    let outcome = workers(1).sh(&format!("cat {path} >&2")).end().code(0);
    let bytes = String::from_utf8(std::fs::read(path).expect("recorded")).expect("text");
    assert!(outcome.stderr.contains(&bytes), "a single worker is not touched");
}

#[test]
fn single_worker_has_the_terminal_byte_for_byte() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/bars/trainer.bytes");
    let (job, recording) = on_a_terminal(workers(1).sh(&format!("cat {path} >&2")), 80);
    job.end().code(0);
    let bytes = String::from_utf8(std::fs::read(path).expect("recorded")).expect("text");
    assert!(recording.end().contains(&bytes));
}

/// The prompt of one of several workers, which reads a terminal that echoes what is typed.
#[test]
fn prompt_of_one_worker_is_shown() {
    let (screen, theirs) = terminal::open();
    let typed = screen.try_clone().expect("a copy");
    let launch = workers(2).env("TERM", "xterm").env("NO_COLOR", "1").options(["--stdin", "1"]);
    let script = "[ $RANK = 0 ] && exit; printf '(Pdb) '; read answer; echo \"> $answer\"; \
         printf '(Pdb) '; read answer; echo \"> $answer\"";
    let copy = || theirs.try_clone().expect("a copy");
    let launch = launch.stdin(copy()).stdout(copy()).stderr(copy());
    // Only its controlling terminal is read by a program.
    let launch = launch.through(&["setsid", "--ctty", "--wait"]);
    let job = launch.sh(script).start();
    drop(theirs);
    let recording = Recording::start(screen);
    for (prompt, answer) in [("(Pdb) ", "first\n"), ("> first\r\nlocalhost:1 │ (Pdb) ", "second\n")]
    {
        recording.wait_for(&format!("localhost:1 │ {prompt}"));
        rustix::io::write(&typed, answer.as_bytes()).expect("it is read");
    }
    job.end().code(0);
    drop(typed);
    let lines = last_screen(&recording.end());
    assert_eq!(
        lines,
        [
            "localhost:1 │ (Pdb) first",
            "localhost:1 │ > first",
            "localhost:1 │ (Pdb) second",
            "localhost:1 │ > second",
            ""
        ]
    );
}

#[test]
fn debugger_without_input_gets_a_stdin_hint() {
    let script = "[ $RANK = 0 ] && exec sleep 1000; echo bdb.BdbQuit >&2; exit 1";
    let outcome = workers(2).sh(script).end().code(1);
    outcome.says("help: rank 1 has no standard input; `--stdin all` gives it to every rank, `--stdin 1` to rank 1 alone");
}

/// The terminal echoes the key of a signal in front of what remuda then writes.
#[test]
fn state_lines_start_in_the_first_column() {
    let (mut job, recording) = on_a_terminal(workers(2).sh("echo ready; read go; exit 0"), 80);
    recording.wait_for("localhost:1 │ ready");
    recording.wait_for("localhost:0 │ ready");
    job.signal(Signal::QUIT);
    recording.wait_for("\r\x1b[K     State  rank 0");
    drop(job.take_stdin());
    job.end().code(0);
    drop(recording.end());
}

#[test]
fn locale_without_unicode_has_ascii_marks() {
    let outcome = workers(2).env("LC_ALL", "C").sh("echo here").end().code(0);
    assert!(outcome.stdout_text().contains("localhost:1 | here\n"), "{outcome:#?}");
    let outcome = workers(2).env("LC_ALL", "C.UTF-8").env("LANG", "C").sh("echo here").end();
    assert!(outcome.code(0).stdout_text().contains("localhost:1 │ here\n"));
}

#[test]
fn color_option_outranks_the_environment() {
    let shown = |choice: &str, name: &str| {
        let launch = workers(1).options(["--color", choice]).env(name, "1");
        launch.sh("exit 3").end().code(3).stderr.contains("\x1b[")
    };
    assert!(shown("always", "NO_COLOR"));
    assert!(!shown("never", "FORCE_COLOR"));
    assert!(shown("auto", "FORCE_COLOR") && shown("auto", "CLICOLOR_FORCE"));
    assert!(!shown("auto", "NO_COLOR"));
}
