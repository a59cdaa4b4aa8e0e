//! Faulty worker for tests; the first argument selects the fault.

use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use remuda::base::env_vars;
use remuda::os::process::fork::{ForkSide, exit_now, fork};
use remuda::runtime::contract::{Note, encode_frame};
use remuda::runtime::{CollectiveError, Error, Group, InitOptions, ReduceOp};

/// Time that is longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("fork-chain") => {
            start_chain();
            print_word("ready");
            sleep(FOR_EVER);
        }
        Some("leave-fork-chain") => start_chain(),
        Some("zombie") => {
            make_zombie();
            print_word("ready");
            sleep(FOR_EVER);
        }
        Some("leave-early") => return leave_early(),
        Some("sum-for-ever") => return sum_for_ever(),
        Some("give-up") => return give_up(),
        Some("wait-in-vain") => return wait_in_vain(),
        Some("flood-of-notes") => return flood_of_notes(),
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

/// Sends 201,000 step notes to the agent, prints `flooded`, and waits for a line on standard input.
fn flood_of_notes() -> ExitCode {
    let number = env_vars::get_text(env_vars::REMUDA_RANK_FD);
    let fd = number.and_then(|number| number.parse().ok());
    let Some(fd) = fd else { return ExitCode::FAILURE };
    // SAFETY: this process has inherited the descriptor from the agent, and uses it only here.
    let mut agent = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let flood = std::thread::spawn(move || {
        let note =
            |step| encode_frame(&Note::Step { step, steps: None, loss: None, tokens_per_s: None });
        for first in (1u64..).step_by(1000) {
            let notes: Vec<u8> = (first..first + 1000).flat_map(note).collect();
            if agent.write_all(&notes).is_err() || first == 200_001 {
                break;
            }
            if first == 20_001 {
                print_word("flooding");
            }
        }
    });
    let result = flood.join();
    print_word("flooded");
    let _ = std::io::stdin().read_line(&mut String::new());
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every rank reduces once; then rank 0 exits, and the others continue.
fn leave_early() -> ExitCode {
    exit_code(Group::from_env().and_then(|group| {
        sum(&group)?;
        if group.rank() != 0 {
            sum(&group)?;
        }
        Ok(())
    }))
}

/// Rank 1 aborts the group, and exits only later.
fn give_up() -> ExitCode {
    exit_code(Group::from_env().and_then(|group| {
        sum(&group)?;
        if group.rank() == 1 {
            group.abort("the loss is not a number");
            sleep(FOR_EVER);
        }
        Ok(sum(&group)?)
    }))
}

/// Rank 2 hangs, and rank 1 waits for it for a second and then hangs too; rank 0 exits. No rank prints anything.
fn wait_in_vain() -> ExitCode {
    let seconds = if env_vars::get_text(env_vars::RANK).as_deref() == Some("1") { 1 } else { 600 };
    let options = InitOptions { timeout: Duration::from_secs(seconds), ..InitOptions::default() };
    let Ok(group) = Group::init(&options) else { return ExitCode::from(2) };
    let is_first = sum(&group).is_ok();
    if is_first && (group.rank() == 2 || sum(&group).is_err() && group.rank() == 1) {
        sleep(FOR_EVER);
    }
    ExitCode::FAILURE
}

/// Every rank reduces without end, with a short time limit.
fn sum_for_ever() -> ExitCode {
    let options = InitOptions { timeout: Duration::from_secs(3), ..InitOptions::default() };
    exit_code(Group::init(&options).and_then(|group| {
        sum(&group)?;
        print_word("summing");
        loop {
            sum(&group)?;
            sleep(Duration::from_millis(10));
        }
    }))
}

fn sum(group: &Group) -> Result<(), CollectiveError> {
    group.all_reduce(&mut [1.0f32], ReduceOp::Sum)
}

fn exit_code(result: Result<(), Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts a chain of processes, each of which leaves its session and exits as soon as it has forked
/// the next one.
fn start_chain() {
    if !matches!(fork(), Ok(ForkSide::Child)) {
        return;
    }
    loop {
        match fork() {
            Ok(ForkSide::Parent(_)) => exit_now(0),
            Ok(ForkSide::Child) => {
                let _ = rustix::process::setsid();
            }
            Err(_) => exit_now(1),
        }
    }
}

/// Creates a child that has exited and is never reaped.
fn make_zombie() {
    if matches!(fork(), Ok(ForkSide::Child)) {
        exit_now(0);
    }
}

fn print_word(word: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{word}").and_then(|()| stdout.flush());
}
