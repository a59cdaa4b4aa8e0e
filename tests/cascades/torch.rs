//! Real torch with gloo on three ranks of this machine.

use crate::cascades::plain::script;
use crate::support::launch::{Launch, Outcome, workers};
use crate::support::torch::python_with_torch;

/// Three ranks of the script in one of its modes; `None` where there is no torch.
fn cascade(test: &str, mode: &str) -> Option<Outcome> {
    let python = python_with_torch(test)?;
    let launch: Launch = workers(3).env("GLOO_SOCKET_IFNAME", "lo").env("OMP_NUM_THREADS", "1");
    let words = [python, script("gloo.py"), mode.into()];
    Some(launch.program(words).end())
}

/// An exception ends Python with 1. Sometimes a thread of torch aborts it while it exits.
fn ended_by_exception(outcome: Outcome) -> Outcome {
    const ABORTED: &str = "terminate called without an active exception";
    let is_aborted = outcome.status.code() == Some(134) && outcome.stderr.contains(ABORTED);
    outcome.code(if is_aborted { 134 } else { 1 })
}

const OOM: &str = "failed: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n";

#[test]
fn torch_slow_exit_is_named() {
    // The order in which the others exit is random.
    for _ in 0..3 {
        let Some(outcome) = cascade("torch_slow_exit_is_named", "slow") else {
            return;
        };
        let outcome =
            ended_by_exception(outcome).says(&format!("error[R101]: rank 2 (localhost) {OOM}"));
        let outcome = outcome.says("gloo.py:").says(" in fail\n");
        let cause = &outcome.record()["cause"];
        assert_eq!((&cause["rank"], &cause["evidence"]), (&2.into(), &"error_file".into()));
    }
}

#[test]
fn torch_exception_at_rank_0_is_named() {
    let Some(outcome) = cascade("torch_exception_at_rank_0_is_named", "raise") else { return };
    drop(ended_by_exception(outcome).says(&format!("error[R101]: rank 0 (localhost) {OOM}")));
}

#[test]
fn torch_rank_that_exits_is_named() {
    let Some(outcome) = cascade("torch_rank_that_exits_is_named", "exit") else { return };
    drop(outcome.code(5).says("error[R101]: rank 2 (localhost) exited with code 5 after "));
}

#[test]
fn torch_rank_that_is_killed_is_named() {
    let Some(outcome) = cascade("torch_rank_that_is_killed_is_named", "kill") else { return };
    drop(
        outcome.code(137).says("error[R101]: rank 2 (localhost) was killed by signal 9 (SIGKILL)"),
    );
}

#[test]
fn torch_rank_that_hangs_is_named() {
    for mode in ["hang", "barrier"] {
        let Some(outcome) = cascade("torch_rank_that_hangs_is_named", mode) else { return };
        let outcome =
            outcome.code(1).says("error[R101]: rank 2 (localhost) did not take part: rank");
        drop(outcome.says(" timed out waiting for a collective; "));
    }
}

#[test]
fn torch_rank_that_ends_before_it_joins_is_named() {
    let Some(outcome) = cascade("torch_rank_that_ends_before_it_joins_is_named", "early") else {
        return;
    };
    let outcome = outcome.code(1).says("error[R101]: rank 2 (localhost) exited with code 0 after ");
    drop(outcome.says(", before it joined the process group: rank"));
}

#[test]
fn torch_exception_of_a_data_loader_worker_is_named() {
    let Some(outcome) = cascade("torch_exception_of_a_data_loader_worker_is_named", "sample")
    else {
        return;
    };
    let title = "error[R101]: rank 2 (localhost) failed: IndexError: sample 3 is bad\n";
    drop(ended_by_exception(outcome).says(title).says(" in __getitem__\n"));
}

#[test]
fn torch_data_loader_that_is_killed_is_named() {
    let Some(outcome) = cascade("torch_data_loader_that_is_killed_is_named", "loader") else {
        return;
    };
    let outcome = ended_by_exception(outcome).says("error[R101]: rank 2 (localhost) failed: ");
    // torch may read from the killed process before it finds that the process has exited.
    let reset = "failed: ConnectionResetError: [Errno 104] Connection reset by peer\n";
    let killed = "failed: RuntimeError: DataLoader worker (pid";
    assert!([reset, killed].iter().any(|text| outcome.stderr.contains(text)), "{outcome:#?}");
}

/// No `@record`, so that only the traceback shows the failure. DeepSpeed compiles for minutes when it is first
/// used: `scripts/integrations` runs it.
fn framework(test: &str, mode: &str) {
    let Some(python) = python_with_torch(test) else { return };
    let launch = workers(3).env("GLOO_SOCKET_IFNAME", "lo").env("OMP_NUM_THREADS", "1");
    let launch = launch.env("DS_ACCELERATOR", "cpu").env("ACCELERATE_USE_CPU", "true");
    let launch = launch.env("HF_HUB_OFFLINE", "1").env("TOKENIZERS_PARALLELISM", "false");
    let out = launch.dir().join("out");
    let outcome = launch.program([python, script("frameworks.py"), mode.into(), out]).end();
    let outcome = ended_by_exception(outcome);
    let outcome =
        outcome.says("error[R101]: rank 2 (localhost) failed: ValueError: corrupt sample 3\n");
    drop(outcome.says("frameworks.py:").says(" in batch\n"));
}

#[test]
fn accelerate_rank_that_raises_is_named() {
    framework("accelerate_rank_that_raises_is_named", "accelerate");
}

#[test]
fn trainer_rank_that_raises_is_named() {
    framework("trainer_rank_that_raises_is_named", "trainer");
}
