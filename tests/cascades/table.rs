//! Recorded cascades, replayed through the selection of the cause: a job as a value, with recorded exits
//! and with the evidence that the real parsers find in recorded output.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use remuda::base::{NodeRank, Rank, WorkerExit, clock};
use remuda::job::{
    Effect, Event, Evidence, FailureCause, JobState, OnEarlyLoss, OnFailure, OnTerm, Policy,
    Verdict, WorkerEnd, parse_error_file,
};

use crate::cascades::words;

/// How one worker of a cascade ended, and what it left behind.
#[derive(Clone, Copy)]
struct Worker {
    exit: WorkerExit,
    at_ms: u64,
    was_stopped: bool,
    printed: Option<(&'static str, u64)>,
    recorded: Option<(&'static str, u64)>,
    went_on_ms: Option<u64>,
}

const fn worker(exit: WorkerExit, at_ms: u64) -> Worker {
    Worker { exit, at_ms, was_stopped: false, printed: None, recorded: None, went_on_ms: None }
}

/// Exits with a code.
const fn exits(code: u8, at_ms: u64) -> Worker {
    worker(WorkerExit::Code(code), at_ms)
}

/// Dies of a signal that remuda did not send.
const fn dies(signal: i32, at_ms: u64) -> Worker {
    worker(WorkerExit::Signal { signal, core: false }, at_ms)
}

/// Is stopped by remuda.
const fn stopped(at_ms: u64) -> Worker {
    let exit = WorkerExit::Signal { signal: 15, core: false };
    Worker { was_stopped: true, ..worker(exit, at_ms) }
}

impl Worker {
    /// Prints words that arrive then.
    const fn prints(self, text: &'static str, at_ms: u64) -> Self {
        Self { printed: Some((text, at_ms)), ..self }
    }

    /// Prints more at this time, a while after what it printed.
    const fn goes_on(self, at_ms: u64) -> Self {
        Self { went_on_ms: Some(at_ms), ..self }
    }

    /// Leaves an error file of torch that was written then.
    const fn records(self, message: &'static str, at_ms: u64) -> Self {
        Self { recorded: Some((message, at_ms)), ..self }
    }
}

/// The verdict on workers, by rank.
fn replay(workers: &[Worker]) -> Verdict {
    let start = clock::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let policy = Policy {
        grace: Duration::from_secs(10),
        failure: OnFailure::StopAll,
        silence_max: Duration::from_secs(36),
        restarts_max: 0,
        first_pause: Duration::from_secs(1),
        warning: None,
        on_term: OnTerm::EndJob,
        early_loss: OnEarlyLoss::EndJob,
        elastic: None,
        has_evidence: true,
    };
    let node = NodeRank(0);
    let mut job = JobState::new(policy, vec![node; workers.len()]);
    assert_eq!(job.step(start, Event::Ready(node)), [Effect::Start]);
    let mut ends: Vec<_> = (0..).map(Rank).zip(workers).collect();
    ends.sort_by_key(|(_, worker)| worker.at_ms);
    for (rank, worker) in ends {
        let sent = if worker.was_stopped { vec![15] } else { Vec::new() };
        let at = at(worker.at_ms);
        job.step(at, Event::Exited(WorkerEnd { rank, exit: worker.exit, at, signals_sent: sent }));
    }
    let end = at(60_000);
    let effects = job.step(end, Event::Idle { node, is_clean: true });
    let Some(Effect::CollectEvidence(asked)) = effects.first() else {
        panic!("evidence is asked for: {effects:?}");
    };
    let found =
        asked.iter().filter_map(|rank| Some((*rank, evidence(&workers[rank.index()], &at)?)));
    job.step(end, Event::Evidence(found.collect::<BTreeMap<_, _>>()));
    job.verdict().expect("all is over").clone()
}

fn evidence(worker: &Worker, at: &impl Fn(u64) -> Instant) -> Option<Evidence> {
    let file = worker.recorded.and_then(|(message, ms)| {
        let json = serde_json::json!({ "message": { "message": message } }).to_string();
        Some(Evidence::of_error_file(&parse_error_file(json.as_bytes())?, at(ms)))
    });
    let printed = worker.printed.and_then(|(text, ms)| {
        let found = Evidence::of_output(text.as_bytes(), |_| at(ms))?;
        Some(Evidence { later_output: worker.went_on_ms.map(at), ..found })
    });
    Evidence::merge(file, printed)
}

/// What is expected of a cascade.
#[derive(Debug, PartialEq, Eq)]
enum Expect {
    /// This rank failed, by itself or while it was being stopped.
    Rank(u32),
    /// The others waited for these ranks, or lost them.
    Missing(Vec<u32>),
}

fn named(verdict: &Verdict) -> Expect {
    match verdict.cause.as_ref().expect("there is a cause") {
        FailureCause::Worker(WorkerEnd { rank, .. }) | FailureCause::Exiting { rank, .. } => {
            Expect::Rank(rank.0)
        }
        FailureCause::MissingRanks { ranks, .. } => {
            Expect::Missing(ranks.iter().map(|rank| rank.0).collect())
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check(name: &str, workers: &[Worker], expect: &Expect, status: u8) {
    let verdict = replay(workers);
    assert_eq!(named(&verdict), *expect, "{name}: {verdict:#?}");
    assert_eq!(verdict.status.code(), status, "{name}: {verdict:#?}");
}

use Expect::{Missing, Rank as Named};

#[test]
fn cascade_of_gloo_names_its_origin() {
    let lost = |at| exits(1, at).prints(words::GLOO_CLOSED, at - 20);
    let reset = |at| exits(1, at).prints(words::GLOO_RESET, at - 20);
    let stopped_lost = |at| stopped(at).prints(words::GLOO_CLOSED, at - 20);
    check(
        "exception, leaves slowly, error file",
        &[
            lost(900),
            stopped_lost(1000),
            stopped(1010)
                .prints(words::OOM_TORCH, 50)
                .records("RuntimeError: CUDA out of memory.", 40),
        ],
        &Named(2),
        1,
    );
    check(
        "exception, leaves slowly, prefix of torch only",
        &[lost(900), stopped_lost(1000), stopped(1010).prints(words::OOM_TORCH, 50)],
        &Named(2),
        1,
    );
    check(
        "exception, leaves slowly, plain traceback only",
        &[lost(900), stopped_lost(1000), stopped(1010).prints(words::OOM, 50)],
        &Named(2),
        1,
    );
    check(
        "exception, leaves slowly, exits with 1 by itself after the others",
        &[lost(900), lost(910), exits(1, 3500).prints(words::OOM_TORCH, 50)],
        &Named(2),
        1,
    );
    check(
        "exception at rank 0, which serves the store",
        &[
            exits(1, 2000).prints(words::OOM_TORCH, 40),
            lost(300),
            exits(1, 250).prints(words::STORE_BROKEN_PIPE, 240),
        ],
        &Named(0),
        1,
    );
    check("os._exit(5) comes first", &[lost(900), reset(1000), exits(5, 600)], &Named(2), 5);
    check("os._exit(5) is seen last", &[lost(900), reset(910), exits(5, 1000)], &Named(2), 5);
    check("SIGKILL", &[lost(300), reset(310), dies(9, 250)], &Named(2), 137);
    check("SIGKILL is seen last", &[lost(300), reset(310), dies(9, 900)], &Named(2), 137);
    check(
        "SIGSEGV with faulthandler",
        &[lost(900), reset(910), dies(11, 300).prints(words::SEGFAULT, 250)],
        &Named(2),
        139,
    );
    check("abort without a word", &[lost(900), reset(910), dies(6, 300)], &Named(2), 134);
    check("sys.exit(3) without a traceback", &[lost(900), reset(950), exits(3, 700)], &Named(2), 3);
    check(
        "an exit that is still going on and printed nothing",
        &[lost(300), stopped_lost(400), stopped(410)],
        &Missing(vec![2]),
        1,
    );
}

#[test]
fn hang_outranks_timeouts_of_others() {
    let late = |at| exits(1, at).prints(words::GLOO_TIMED_OUT, at - 20);
    check("hang in a collective", &[late(3000), late(3050), stopped(3060)], &Missing(vec![2]), 1);
    check(
        "hang; the others time out, then lose each other",
        &[late(3000), exits(1, 3100).prints(words::GLOO_CLOSED, 3020), stopped(3110)],
        &Missing(vec![2]),
        1,
    );
    check(
        "hang; the one that hung ends with 0 when it is stopped",
        &[late(3000), late(3010), Worker { was_stopped: true, ..exits(0, 3100) }],
        &Missing(vec![2]),
        1,
    );
    let store = |at| exits(1, at).prints(words::STORE_TIMED_OUT, at - 20);
    check("hang in the store", &[store(2000), store(2010), stopped(2020)], &Missing(vec![2]), 1);
    check(
        "monitored barrier names the rank",
        &[
            stopped(2200).prints(words::MONITORED, 2010),
            exits(1, 2100).prints(words::MONITORED_OTHER, 2020),
            stopped(2210),
        ],
        &Missing(vec![2]),
        1,
    );
    check(
        "init_process_group without one rank",
        &[
            exits(1, 4000).prints(words::CLIENTS_MISSING, 3990),
            exits(1, 4010).prints(words::MESH_TIMED_OUT, 4000),
            stopped(4020),
        ],
        &Missing(vec![2]),
        1,
    );
    let watchdog = |at| dies(6, at).prints(words::NCCL_WATCHDOG, at - 900);
    check(
        "NCCL watchdog aborts the others",
        &[watchdog(601_000), watchdog(601_010), stopped(601_020)],
        &Missing(vec![2]),
        134,
    );
    check(
        "one rank times out before the others could say anything",
        &[late(3000), stopped(3010), stopped(3010), stopped(3010)],
        &Named(0),
        1,
    );
    let waits_for = |text| exits(1, 3000).prints(text, 2990);
    check(
        "two ranks that wait for each other",
        &[waits_for(words::RUNTIME_LATE), stopped(3010), waits_for(words::RUNTIME_LATE_FOR_0)],
        &Missing(vec![1]),
        1,
    );
    let runtime = exits(1, 3000).prints(words::RUNTIME_LATE, 2990);
    check(
        "deadline of the bundled runtime names the rank",
        &[runtime, stopped(3010), stopped(3010), stopped(3010)],
        &Missing(vec![2]),
        1,
    );
}

#[test]
fn cascade_of_nccl_names_its_origin() {
    let remote = |at| exits(1, at).prints(words::NCCL_REMOTE, at - 20);
    let system = |at| exits(1, at).prints(words::NCCL_SYSTEM, at - 20);
    let abort = |at| dies(6, at).prints(words::NCCL_ABORT, at - 20);
    check(
        "out of memory on one GPU, aborts elsewhere",
        &[abort(900), remote(950), stopped(1500).prints(words::OOM_TORCH, 100)],
        &Named(2),
        134,
    );
    check(
        "an abort of a peer is no violence of its own",
        &[abort(900), system(910), exits(1, 1000).prints(words::OOM_TORCH, 100)],
        &Named(2),
        1,
    );
    check("OOM kill", &[abort(900), remote(905), dies(9, 890)], &Named(2), 137);
    check(
        "illegal memory access aborts",
        &[remote(900), system(910), dies(6, 1200).prints(words::CUDA_ABORT, 700)],
        &Named(2),
        134,
    );
}

#[test]
fn cascade_of_frameworks_names_its_origin() {
    let lost = |at| exits(1, at).prints(words::GLOO_CLOSED, at - 20);
    let of = |words| exits(1, 2500).prints(words, 40);
    for (name, words) in [
        ("DeepSpeed", words::DEEPSPEED),
        ("accelerate", words::ACCELERATE),
        ("Hugging Face Trainer", words::TRAINER),
        ("DataLoader worker killed", words::LOADER_KILLED),
        ("DataLoader worker raises", words::LOADER_RAISES),
        ("mp.spawn child raises", words::SPAWN),
    ] {
        check(name, &[lost(900), lost(910), of(words)], &Named(2), 1);
    }
    let mpi = |at| exits(1, at).prints(words::MPI_LOST, at - 10);
    check("mpi4py", &[mpi(900), mpi(910), of(words::MPI_ABORT)], &Named(2), 1);
    let mpich = |at| exits(15, at).prints(words::MPICH_LOST, at - 10);
    check("MPICH", &[mpich(900), mpich(910), of(words::MPI_ABORT)], &Named(2), 1);
    let runtime = |at| exits(1, at).prints(words::RUNTIME_LOST, at - 10);
    check("bundled runtime", &[runtime(900), runtime(910), dies(9, 1000)], &Named(2), 137);
}

#[test]
fn loss_of_the_store_names_rank_0() {
    let store = |at| exits(1, at).prints(words::STORE_CLOSED, at - 20);
    check("rank 0 exits", &[exits(9, 1000), store(1300), store(1350)], &Named(0), 9);
    check("rank 0 is killed", &[dies(9, 1400), store(1300), store(1350)], &Named(0), 137);
    let pipe = |at| exits(1, at).prints(words::STORE_BROKEN_PIPE, at - 20);
    check(
        "rank 0 is killed while others write",
        &[dies(9, 1400), pipe(1300), store(1350)],
        &Named(0),
        137,
    );
}

#[test]
fn own_failures_compete_by_time() {
    let lost = |at| exits(1, at).prints(words::GLOO_CLOSED, at - 20);
    check(
        "two ranks fail by themselves; the one that exits later failed first",
        &[
            lost(2000),
            exits(1, 700).prints(words::BAD_BATCH, 650),
            exits(1, 900).prints(words::OOM_TORCH, 600),
        ],
        &Named(2),
        1,
    );
    check(
        "an error file knows the time better than what arrived",
        &[
            lost(2000),
            exits(1, 700)
                .prints(words::BAD_BATCH, 650)
                .records("AssertionError: bad batch on 1", 640),
            exits(1, 900)
                .prints(words::OOM_TORCH, 800)
                .records("RuntimeError: CUDA out of memory.", 600),
        ],
        &Named(2),
        1,
    );
    check(
        "a crash after an exception that was reported before",
        &[dies(11, 700), lost(2000), exits(1, 900).prints(words::OOM_TORCH, 600)],
        &Named(2),
        1,
    );
    check(
        "KeyboardInterrupt of one rank",
        &[lost(900), lost(910), exits(130, 500).prints(words::INTERRUPTED, 490)],
        &Named(2),
        130,
    );
    check(
        "an exit handler fails later, of a lost peer",
        &[lost(900), lost(910), exits(1, 3000).prints(words::OOM_THEN_CLEANUP, 50)],
        &Named(2),
        1,
    );
    check(
        "saving fails after a peer was lost",
        &[
            exits(1, 600).prints(words::SAVE_FAILED, 590),
            lost(910),
            exits(1, 3000).prints(words::OOM_TORCH, 50),
        ],
        &Named(2),
        1,
    );
    check(
        "a traceback that was logged and survived",
        &[stopped(900).prints(words::LOGGED, 10), stopped(900), exits(3, 700)],
        &Named(2),
        3,
    );
    check(
        "wrong arguments",
        &[stopped(900), stopped(900), exits(2, 700).prints(words::USAGE, 690)],
        &Named(2),
        2,
    );
    check(
        "all ranks lost a peer, and one of them noticed first",
        &[lost(900), lost(800), lost(910)],
        &Named(1),
        1,
    );
}

#[test]
fn logged_traceback_is_weaker_than_a_missing_rank() {
    let late = |at| exits(1, at).prints(words::GLOO_TIMED_OUT, at - 20);
    let plain_lost = |at| exits(1, at).prints(words::SAVE_FAILED, at - 20);
    let logged = |at| stopped(at).prints(words::LOGGED, 10);
    let hangs = stopped(9020);
    check("went on", &[late(9000), logged(9010).goes_on(1500), hangs], &Missing(vec![2]), 1);
    check("others mark exceptions", &[late(9000), logged(9010), hangs], &Missing(vec![2]), 1);
    check(
        "slow exit with 3, no rank marks exceptions",
        &[plain_lost(9000), logged(9010).goes_on(1500), hangs],
        &Missing(vec![2]),
        1,
    );
    check(
        "the rank that went on hangs",
        &[late(9000), late(9001), logged(9010).goes_on(1500)],
        &Missing(vec![2]),
        1,
    );
    check(
        "the rank that went on was exiting",
        &[plain_lost(9000), plain_lost(9001), logged(9010).goes_on(1500)],
        &Named(2),
        1,
    );
    check(
        "output after the stop, no rank marks exceptions",
        &[plain_lost(9000), logged(9010).goes_on(9005), hangs],
        &Named(1),
        1,
    );
    check(
        "many ranks were stopped before they could report anything",
        &[plain_lost(9000), logged(9010).goes_on(1500), hangs, hangs],
        &Named(0),
        1,
    );
}

/// A rank printed an exception without the rank of torch's hook, and closed its connections seconds later.
/// remuda stopped other ranks before they could report that.
#[test]
fn exception_just_before_a_loss_outranks_silent_ranks() {
    let lost = |at| exits(1, at).prints(words::GLOO_CLOSED, at - 20);
    let leaving = |at| stopped(at).prints(words::LOGGED, 7500);
    let silent = stopped(9020);
    check("one silent rank", &[lost(9000), silent, leaving(9010), lost(9001)], &Named(2), 1);
    check("two silent ranks", &[lost(9000), silent, leaving(9010), silent], &Named(2), 1);
    check("no silent rank", &[lost(9000), lost(9001), leaving(9010)], &Named(2), 1);
    let uploads = leaving(9010).goes_on(8700);
    check("it prints more", &[lost(9000), silent, uploads, lost(9001)], &Named(2), 1);
    check("it prints more, two are silent", &[lost(9000), silent, uploads, silent], &Named(2), 1);
    let earlier = stopped(9010).prints(words::LOGGED, 5000).goes_on(6500);
    check("another rank went on", &[lost(9000), earlier, leaving(9010), silent], &Named(2), 1);
    let old = stopped(9010).prints(words::LOGGED, 3000).goes_on(5000);
    check("long before", &[lost(9000), silent, old, lost(9001)], &Missing(vec![1]), 1);
}

#[test]
fn rank_that_exited_with_0_left_the_others() {
    let lost = |at| exits(1, at).prints(words::GLOO_CLOSED, at - 20);
    let late = |at| exits(1, at).prints(words::GLOO_TIMED_OUT, at - 20);
    let exited = Worker { was_stopped: true, ..exits(1, 910) };
    check("lost", &[exits(0, 100), lost(800), exited], &Missing(vec![0]), 1);
    check("late", &[exits(0, 100), late(800), stopped(910)], &Missing(vec![0]), 1);
    check("two", &[exits(0, 100), lost(800), exits(0, 200)], &Missing(vec![0, 2]), 1);
    check(
        "a failure of a rank's own",
        &[exits(0, 100), lost(800), exits(1, 900).prints(words::OOM_TORCH, 700)],
        &Named(2),
        1,
    );
}

proptest::proptest! {
    /// A rank that printed its own exception is named whatever the order in which ranks end, as long as
    /// all others report that they lost a peer.
    #[test]
    fn order_of_exits_does_not_matter(
        ends in proptest::collection::vec(100u64..10_000, 2..9),
        culprit in 0usize..8,
        is_stopped in proptest::bool::ANY,
    ) {
        let culprit = culprit % ends.len();
        let first = ends.iter().enumerate().filter(|(rank, _)| *rank != culprit).map(|(_, at)| *at).min();
        let workers: Vec<Worker> = ends.iter().enumerate().map(|(rank, at)| match rank == culprit {
            true if is_stopped => stopped(10_000.max(*at)).prints(words::OOM_TORCH, 50),
            true => exits(1, *at).prints(words::OOM_TORCH, 50),
            false if Some(*at) == first => exits(1, *at).prints(words::GLOO_CLOSED, *at - 10),
            false => stopped(*at).prints(words::GLOO_CLOSED, *at - 10),
        }).collect();
        let verdict = replay(&workers);
        proptest::prop_assert_eq!(named(&verdict), Named(culprit as u32));
        proptest::prop_assert_ne!(verdict.status.code(), 0);
    }
}
