//! Output of workers: complete, in order, escaped, bounded in memory, and without blocking them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::launch::{Launch, Outcome, command, hosts, workers};
use crate::support::process::Role;
use crate::support::proof::{proof_cases, skip};
use crate::support::terminal::Recording;
use crate::support::{terminal, wait_for};

#[test]
fn lines_of_many_workers_stay_whole() {
    const LINES: usize = 20_000;
    let script = format!("seq -f \"rank $RANK line %.0f and some more words\" {LINES}");
    let outcome = hosts(&[("n0", 4), ("n1", 4)]).sh(&script).end().code(0);
    let mut next = [1; 8];
    for line in outcome.stdout_text().lines() {
        let (label, text) = line.split_once(" │ ").unwrap_or_else(|| panic!("torn: {line}"));
        let (host, rank) = label.trim_end().split_once(':').expect("host:rank");
        let rank: usize = rank.parse().expect("a rank");
        assert_eq!(host, if rank < 4 { "n0" } else { "n1" });
        assert_eq!(text, format!("rank {rank} line {} and some more words", next[rank]));
        next[rank] += 1;
    }
    assert_eq!(next, [LINES + 1; 8], "every line came");
}

#[test]
fn standard_error_stays_standard_error() {
    let outcome = workers(2).sh("echo out; echo err >&2").end().code(0);
    assert_eq!(sorted(&outcome), ["localhost:0 │ out", "localhost:1 │ out"]);
    let outcome = outcome.says("localhost:0 │ err\n").says("localhost:1 │ err\n");
    outcome.does_not_say("out\n");
}

fn sorted(outcome: &Outcome) -> Vec<&str> {
    let mut lines: Vec<_> = outcome.stdout_text().lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn line_over_the_limit_is_continued() {
    let script = "[ $RANK = 1 ] && exit 0; head -c 200000 /dev/zero | tr '\\0' x; echo; echo end";
    let outcome = workers(2).sh(script).end().code(0);
    let lines: Vec<_> = outcome.stdout_text().lines().collect();
    assert_eq!(lines.len(), 5);
    assert!(lines[..3].iter().all(|line| line.ends_with("x⏎")), "{lines:?}");
    assert_eq!(outcome.stdout_text().matches('x').count(), 200_000);
    assert_eq!(lines[4], "localhost:0 │ end");
}

#[test]
fn progress_bar_keeps_its_last_state() {
    let script = "printf '1%%\\r2%%\\r3%%\\n'; printf 'unended'";
    let outcome = workers(2).options(["--prefix", "{rank} "]).sh(script).end().code(0);
    assert_eq!(sorted(&outcome), ["0 3%", "0 unended", "1 3%", "1 unended"]);
    let outcome = workers(1).sh(script).end().code(0);
    assert_eq!(outcome.stdout, b"1%\r2%\r3%\nunended", "a single worker is not touched");
}

#[test]
fn prefix_is_formatted_as_requested() {
    let check = |prefix: &str, expect: [&str; 2]| {
        let launch = hosts(&[("n0", 1), ("n1", 1)]).options(["--prefix", prefix]);
        let outcome = launch.sh("echo hi").end().code(0);
        assert_eq!(sorted(&outcome), expect, "for `{prefix}`");
    };
    check("", ["hi", "hi"]);
    check("{host}.{rank}.{local_rank}.{stream}> ", ["n0.0.0.stdout> hi", "n1.1.0.stdout> hi"]);
}

/// Asserts that the log files are complete.
#[track_caller]
fn assert_all_kept(logs: &std::path::Path, ranks: usize, expect: &[u8]) {
    for rank in 0..ranks {
        let kept = fs::read(logs.join(format!("rank{rank}.stdout"))).expect("kept");
        assert!(kept == expect, "rank {rank}: {} of {} bytes", kept.len(), expect.len());
    }
}

fn numbers(count: usize) -> Vec<u8> {
    (1..=count).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

/// A number that stands before a text on standard error.
#[track_caller]
fn number_before(outcome: &Outcome, text: &str) -> usize {
    let before = outcome.stderr.split(text).next().expect("the text before");
    let number = before.rsplit(|c: char| !c.is_ascii_digit()).next().expect("a number");
    number.parse().unwrap_or_else(|_| panic!("no number before `{text}` in {outcome:#?}"))
}

#[test]
fn blocked_screen_drops_lines_and_counts_them() {
    const LINES: usize = 1_000_000;
    let (screen, theirs) = std::io::pipe().expect("a pipe");
    let launch = workers(2).stdout(OwnedFd::from(theirs));
    let logs = launch.dir().join("logs");
    let launch = launch.option("--log_dir").option(&logs).sh(&format!("seq {LINES}"));
    let outcome = launch.end().code(0);
    assert_all_kept(&logs.join("latest"), 2, &numbers(LINES));
    let shown = BufReader::new(screen).split(b'\n').count();
    let lost = number_before(&outcome, " lines not shown");
    // The last one shown may have been cut.
    assert!((0..=1).contains(&(shown + lost - 2 * LINES)), "{shown} + {lost}");
}

#[test]
fn blocked_terminal_does_not_block_workers() {
    const LINES: usize = 1_000_000;
    let (screen, theirs) = terminal::open();
    let launch = workers(2).stdout(theirs);
    let logs = launch.dir().join("logs");
    let launch = launch.option("--log_dir").option(&logs).sh(&format!("seq {LINES}"));
    let outcome = launch.end().code(0).says(" lines not shown: the terminal did not accept output");
    assert_all_kept(&logs.join("latest"), 2, &numbers(LINES));
    drop((outcome, screen));
}

/// A named pipe without a reader: opening it blocks, as a file server does that is down.
#[test]
fn hanging_log_disk_blocks_neither_screen_nor_workers() {
    const LINES: usize = 2_000_000;
    let launch = workers(2);
    let (logs, flag) = (launch.dir().join("logs"), launch.dir().join("flag"));
    let launch = launch.option("--log_dir").option(&logs).option("--prefix").option("");
    let script = format!("until [ -e \"$FLAG\" ]; do sleep 0.01; done; seq {LINES}");
    let job = launch.env("FLAG", &flag).sh(&script).start();
    let files = wait_for("the directory of the job", || fs::canonicalize(logs.join("latest")).ok());
    let made = command("mkfifo").arg(files.join("rank0.stdout")).status().expect("mkfifo");
    assert!(made.success());
    fs::write(flag, "").expect("a flag");
    let outcome = job.end().code(0);
    assert_eq!(outcome.stdout_text().lines().count(), 2 * LINES);
    let outcome = outcome.says("warning: cannot write log files (disk not responding)");
    outcome.says(" bytes are missing in the log files: the disk did not respond");
}

/// The run record is on a disk that stops responding before the job ends.
#[test]
fn hanging_record_disk_does_not_block_the_end() {
    let launch = workers(2).options(["--max_restarts", "1"]);
    let flag = launch.dir().join("flag");
    let script = "echo ready; until [ -e \"$FLAG\" ]; do sleep 0.01; done; exit 3";
    let job = launch.env("FLAG", &flag).sh(script).start();
    job.wait_for_lines("ready", 2);
    let latest = job.dir().join("runs/latest");
    let made = command("mkfifo").arg(latest.join(".run.json")).status().expect("mkfifo");
    assert!(made.success());
    fs::write(flag, "").expect("a flag");
    let outcome =
        job.end().code(3).says("warning: cannot write run.json: the disk does not respond\n");
    // The record of the time when the disk still answered.
    assert_eq!(outcome.record()["state"], "running");
}

/// A file server that never answers: a directory that an option names is refused after a timeout; a
/// job without a run directory runs without a record and reports that.
#[test]
fn hanging_disk_is_reported_before_the_start() {
    const NAME: &str = "hanging_disk_is_reported_before_the_start";
    for (option, said) in [
        ("--run_dir", "cannot create the run directory: `"),
        ("--log_dir", "`--log_dir`: cannot create directory `"),
        ("--enable_each_rank_log", "`--enable_each_rank_log`: cannot create `"),
    ] {
        let Some((launch, disk)) = beside_a_disk_that_hangs(NAME, workers(1)) else { return };
        let outcome = launch.option(option).option(disk.join("made")).sh("echo ran").end().code(73);
        assert_eq!(outcome.stdout_text(), "", "{option}: {outcome:#?}");
        outcome.says(said).says("the disk does not respond");
    }
}

/// The same for the files that `train` reads and writes.
#[test]
fn hanging_disk_is_reported_by_train() {
    const NAME: &str = "hanging_disk_is_reported_by_train";
    for (option, code, said) in [
        (
            "--checkpoint_dir",
            73,
            "error[T006]: cannot write `DISK/kept`: the disk does not respond\n",
        ),
        ("--metrics", 73, "error[T006]: cannot write `DISK/kept`: the disk does not respond\n"),
        ("--plot", 73, "error[T006]: cannot write `DISK/kept`: the disk does not respond\n"),
        (
            "--resume",
            66,
            "error[T004]: cannot read checkpoint `DISK/kept`: the disk does not respond\n",
        ),
        ("--data", 66, "error[T001]: cannot read `DISK/kept`: the disk does not respond\n"),
    ] {
        let train = Launch::new().command("train").options(["--num_gpus", "1", "--steps", "1"]);
        let Some((launch, disk)) = beside_a_disk_that_hangs(NAME, train) else { return };
        let outcome = launch.option(option).option(disk.join("kept")).end().code(code);
        assert_eq!(outcome.stdout_text(), "", "{option}: {outcome:#?}");
        let screen = outcome.stderr.replace(&*disk.to_string_lossy(), "DISK");
        assert!(screen.starts_with(said), "{option}: {outcome:#?}");
        assert_eq!(screen.matches("error[").count(), 1, "{option}: {outcome:#?}");
        let is_of_hanging =
            screen.contains("help: its file system does not respond; use a directory");
        assert_eq!(is_of_hanging, option == "--checkpoint_dir", "{option}: {outcome:#?}");
    }
}

/// A launch in a mount namespace with a file system that has no server; `None` where namespaces are
/// not available.
fn beside_a_disk_that_hangs(name: &str, launch: Launch) -> Option<(Launch, std::path::PathBuf)> {
    let disk = launch.dir().join("disk");
    fs::create_dir(&disk).expect("a directory");
    // The kernel waits for an answer as long as the descriptor is open.
    let mount = format!(
        "exec 9<>/dev/fuse && mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 none {} \
         && exec \"$@\"",
        disk.display()
    );
    let apart = ["unshare", "--map-root-user", "--mount", "sh", "-c", &mount, "sh"];
    let made = command(apart[0]).args(&apart[1..]).arg("true").stderr(Stdio::null()).status();
    if !made.is_ok_and(|status| status.success()) {
        skip("a file system without a server", name);
        return None;
    }
    Some((launch.through(&apart), disk))
}

#[test]
fn full_log_disk_is_reported_once() {
    const NAME: &str = "full_log_disk_is_reported_once";
    let launch = workers(2);
    let logs = launch.dir().join("logs");
    fs::create_dir(&logs).expect("a directory");
    let mount = format!("mount -t tmpfs -o size=64k none {} && exec \"$@\"", logs.display());
    let apart = ["unshare", "--map-root-user", "--mount", "sh", "-c", &mount, "sh"];
    let made = command(apart[0]).args(&apart[1..]).arg("true").status();
    if !made.is_ok_and(|status| status.success()) {
        return skip("mount namespaces", NAME);
    }
    let launch = launch.option("--log_dir").option(&logs).through(&apart);
    let outcome = launch.sh("seq 200000; echo said >&2").end().code(0).says("said");
    assert_eq!(outcome.stdout_text().lines().count(), 400_000);
    assert_eq!(outcome.stderr.matches("No space left on device").count(), 1, "{outcome:#?}");
}

#[test]
fn closed_stdout_does_not_end_the_job() {
    let (screen, theirs) = std::io::pipe().expect("a pipe");
    let script = "echo first; seq 200000; echo $RANK >&2; exit 5";
    let job = workers(1).stdout(OwnedFd::from(theirs)).sh(script).start();
    let mut first = String::new();
    BufReader::with_capacity(1, &screen).read_line(&mut first).expect("a line");
    assert_eq!(first, "first\n");
    drop(screen);
    let outcome = job.end().code(5).does_not_say("not shown");
    assert_eq!(outcome.run_file("rank0.stdout"), [b"first\n", &numbers(200_000)[..]].concat());
}

/// Both outputs are one pipe, as after `2>&1`.
#[test]
fn last_line_without_an_end_is_ended() {
    let outcome = workers(1).under("exec 2>&1").sh("printf 'last words'").end().code(0);
    let text = outcome.stdout_text();
    assert!(text.contains("\nlast words\n  Finished  1 worker in "), "{text}");
}

#[test]
fn full_disk_of_standard_output_is_reported_once() {
    let full = File::options().write(true).open("/dev/full").expect("a device");
    let outcome = workers(1).stdout(full).sh("seq 100000").end().code(74);
    let reports = outcome.stderr.matches("cannot write standard output: no space left on device; ");
    assert_eq!(reports.count(), 1, "{}", outcome.stderr);
    outcome.does_not_say("Finished");
}

#[test]
fn long_output_keeps_its_head_and_tail() {
    let outcome = workers(1).sh("seq 3000000").stdout(Stdio::null()).end().code(0);
    let (kept, all) = (outcome.run_file("rank0.stdout"), numbers(3_000_000));
    let left_out = all.len() - (16 << 20);
    let note = format!("\n[{left_out} bytes left out]\n");
    let (head, tail) = (&all[..1 << 20], &all[all.len() - (15 << 20)..]);
    assert!(kept == [head, note.as_bytes(), tail].concat(), "{} bytes", kept.len());
}

/// The text that a terminal shows for a launch, without the line ends that the terminal adds.
fn on_a_terminal(launch: Launch) -> String {
    let (screen, theirs) = terminal::open();
    let job = launch.stdout(theirs.try_clone().expect("a copy")).stderr(theirs).start();
    let recording = Recording::start(screen);
    job.end().code(0);
    recording.end()
}

const ESCAPES: &str = "printf '\\033[2Jclear \\033]0;title\\007 \\033[31mred\\033[0m \\303\\266\\n'; \
     printf '\\033[1A\\rerror[R101]: not ours\\n'";

#[test]
fn escape_sequences_of_several_workers_are_escaped() {
    let two = |name: &str, value: &str| {
        let launch = workers(2).option("--quiet").env("TERM", "xterm").env(name, value);
        on_a_terminal(launch.sh(&format!("[ $RANK = 1 ] && exit; {ESCAPES}")))
    };
    assert_eq!(
        two("NO_COLOR", "1"),
        "localhost:0 │ \\x1b[2Jclear \\x1b]0;title\\x07 \x1b[31mred\x1b[0m ö\n\
         localhost:0 │ error[R101]: not ours\n"
    );
    assert_eq!(
        two("TERM", "xterm"),
        "\x1b[36mlocalhost:0 │ \x1b[0m\\x1b[2Jclear \\x1b]0;title\\x07 \x1b[31mred\x1b[0m ö\n\
         \x1b[36mlocalhost:0 │ \x1b[0merror[R101]: not ours\n"
    );
}

/// The worker writes to a pipe, so that it cannot ask the terminal.
#[test]
fn single_worker_gets_terminal_size() {
    let script = "echo ${COLUMNS-none} ${LINES-none} ${TQDM_NCOLS-none}";
    let shown = |workers: Launch| on_a_terminal(workers.option("--quiet").sh(script));
    assert_eq!(shown(workers(1)), "80 24 79\n");
    assert_eq!(shown(workers(1).env("COLUMNS", "50")), "50 24 79\n");
    let launch = workers(2).option("--prefix").option("").env("NO_COLOR", "1");
    assert_eq!(shown(launch), "none none none\n".repeat(2));
}

/// A single worker has the terminal for itself, as under any other launcher.
#[test]
fn escape_sequences_of_a_single_worker_pass() {
    let shown = on_a_terminal(workers(1).option("--quiet").sh(ESCAPES));
    assert_eq!(
        shown,
        "\x1b[2Jclear \x1b]0;title\x07 \x1b[31mred\x1b[0m ö\n\x1b[1A\rerror[R101]: not ours\n"
    );
}

#[test]
fn pipe_receives_bytes_unchanged() {
    let outcome = workers(1).sh("printf '\\033[2J\\377\\r\\000\\n'").end().code(0);
    assert_eq!(outcome.stdout, b"\x1b[2J\xff\r\0\n");
    let outcome = workers(2).options(["--prefix", ""]).sh("printf '\\033[2J\\377\\000\\n'").end();
    assert_eq!(outcome.code(0).stdout, b"\x1b[2J\xff\0\n\x1b[2J\xff\0\n");
}

/// A character is written in two pieces; the second follows after the first was read.
#[test]
fn character_split_across_writes_is_whole() {
    let (screen, theirs) = terminal::open();
    let launch = workers(1).option("--quiet").stdin(Stdio::piped());
    let script = "printf 'a\\303'; read go; printf '\\266b\\n'";
    let mut job = launch.stdout(theirs).sh(script).start();
    let mut shown = [0; 1];
    rustix::io::read(&screen, &mut shown).expect("the first piece");
    drop(job.take_stdin());
    let mut line = String::new();
    BufReader::new(File::from(screen)).read_line(&mut line).expect("the rest");
    assert_eq!((shown[0], line.trim_end()), (b'a', "öb"));
    job.end().code(0);
}

/// One worker writes 100 MB for each case and never ends the line.
#[test]
fn prove_endless_line() {
    const PIECE: usize = 100_000_000;
    let bytes = proof_cases(1) * PIECE;
    let (screen, theirs) = std::io::pipe().expect("a pipe");
    let script =
        format!("[ $RANK = 1 ] && exit 0; head -c {bytes} /dev/zero | tr '\\0' x; read go; exit 0");
    let launch = workers(2).stdout(OwnedFd::from(theirs)).stdin(Stdio::piped());
    let mut job = launch.options(["--stdin", "0"]).sh(&script).start();
    let mut reader = BufReader::with_capacity(1 << 20, screen);
    let (mut shown, mut marks) = (0, 0);
    // Less than a line's limit may still wait for its end.
    while shown < bytes - 65_536 {
        let piece = reader.fill_buf().expect("readable");
        assert!(!piece.is_empty(), "ended early: {}", job.stderr());
        shown += memchr::memchr_iter(b'x', piece).count();
        marks += memchr::memchr_iter(b'\n', piece).count();
        let length = piece.len();
        reader.consume(length);
    }
    for (role, mib_max) in [(Role::Launcher, 48), (Role::Agent, 16), (Role::Shim, 8)] {
        let peak = job.the(role).memory_kib("VmHWM");
        assert!(peak < mib_max << 10, "{role:?} took {peak} KiB");
    }
    drop(job.take_stdin());
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).expect("readable");
    job.end().code(0);
    shown += memchr::memchr_iter(b'x', &rest).count();
    marks += memchr::memchr_iter(b'\n', &rest).count();
    assert_eq!((shown, marks), (bytes, bytes.div_ceil(65_536)));
}

/// The last output of a worker is in the pipe when the worker exits, and the pipe stays open.
#[test]
fn last_output_is_read_with_a_held_pipe_and_blocked_screen() {
    let (screen, theirs) = std::io::pipe().expect("a pipe");
    let launch = workers(1).stdout(OwnedFd::from(theirs)).stdin(Stdio::piped());
    let script = "echo ready >&2; read go; seq 2000000; echo last words";
    let mut job = launch.sh(script).start();
    job.wait_for_error("ready");
    let worker = job.the(Role::Worker);
    let held = File::options().write(true).open(format!("/proc/{}/fd/1", worker.pid));
    drop(job.take_stdin());
    let outcome = job.end().code(0);
    assert!(outcome.run_file("rank0.stdout").ends_with(b"2000000\nlast words\n"));
    drop((held, screen));
}

/// Hundreds of thousands of steps: memory stays bounded, and the lease and the screen are not
/// affected.
#[test]
fn flood_of_steps_keeps_memory_and_lease() {
    let launch = hosts(&[("n0", 2), ("n1", 1)]).options(["--lease", "10s", "--stdin", "all"]);
    let mut job = launch.stdin(Stdio::piped()).misbehave("flood-of-notes").start();
    job.wait_for_lines("flooding", 1);
    job.signal(Signal::QUIT);
    job.wait_for_error("State  rank 2");
    job.wait_for_lines("flooded", 3);
    let roles = [(Role::Launcher, 1, 32), (Role::Agent, 2, 16)];
    for (role, count, mib_max) in roles {
        for process in job.wait_for_role(role, count) {
            let peak = process.memory_kib("VmHWM");
            assert!(peak < mib_max << 10, "{role:?} took {peak} KiB");
        }
    }
    drop(job.take_stdin());
    job.end().code(0);
}

#[test]
fn hidden_output_is_kept_in_files() {
    let launch = workers(2);
    let flag = launch.dir().join("flag");
    let script = "if [ $RANK = 0 ]; then until [ -e \"$FLAG\" ]; do sleep 0.01; done; exit 3; fi; \
         trap 'echo afterwards; exit 0' TERM; : >\"$FLAG\"; while :; do sleep 0.01; done";
    let outcome = launch.env("FLAG", flag).sh(script).end().code(3);
    assert_eq!(outcome.stdout, b"");
    assert_eq!(outcome.run_file("rank1.stdout"), b"afterwards\n");
}

#[test]
fn blocked_reader_is_notified_of_dropped_lines() {
    let (screen, theirs) = std::io::pipe().expect("a pipe");
    let launch = workers(2).stdout(OwnedFd::from(theirs)).options(["--stdin", "all"]);
    let script = "seq 1000000; read go; echo going on; read go; exit 0";
    let mut job = launch.stdin(Stdio::piped()).sh(script).start();
    let mut stdin = job.take_stdin();
    let all_written = |rank: usize| {
        let log = job.dir().join(format!("runs/latest/rank{rank}.stdout"));
        fs::metadata(log).is_ok_and(|log| 6_888_896 <= log.len()).then_some(())
    };
    wait_for("both workers to have written everything", || all_written(0).and(all_written(1)));
    let reader = std::thread::spawn(move || BufReader::new(screen).split(b'\n').count());
    std::io::Write::write_all(&mut stdin, b"\n").expect("they read");
    job.wait_for_error(" lines not shown: the terminal did not accept output");
    drop(stdin);
    job.end().code(0);
    assert!(reader.join().expect("reads to the end") < 2_000_000);
}

#[test]
fn output_after_the_launcher_exits_is_harmless() {
    let launch = workers(1).options(["--grace", "300ms"]);
    let done = launch.dir().join("done");
    let script = "trap '' TERM; echo ready; until [ -e \"$DONE\" ]; do seq 1000; : >\"$DONE.wrote\"; done; \
         : >\"$DONE.end\"";
    let job = launch.options(["--grace", "1h"]).env("DONE", &done).sh(script).start();
    job.wait_for_lines("ready", 1);
    job.signal(Signal::KILL);
    wait_for("the launcher's death", || {
        job.processes().iter().all(|p| p.role != Role::Launcher).then_some(())
    });
    let wrote = done.with_extension("wrote");
    let _ = fs::remove_file(&wrote);
    wait_for("output into the void", || wrote.exists().then_some(()));
    fs::write(&done, "").expect("a flag");
    wait_for("the worker's own end", || done.with_extension("end").exists().then_some(()));
    job.end().killed_by(Signal::KILL);
}
