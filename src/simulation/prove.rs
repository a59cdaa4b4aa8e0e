//! The proof: runs of many seeds, and the mistakes that the checks catch.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use super::incidents::{Check, Ending, Violation};
use super::mistakes::Mistake;
use super::scenario::InjectedKind;
use super::world::Simulation;
use crate::base::env_vars;
use crate::launch::scale::proof::proof_cases;
use crate::report::print_error;

/// Runs of a normal test run.
const FEW: usize = 3_000;

/// Result of a run.
struct Outcome {
    violation: Option<Violation>,
    endings: Vec<Ending>,
    faults: [u32; InjectedKind::COUNT],
    restarts: u32,
    events: u64,
}

/// Runs a seed.
fn run(seed: u64, mistake: Option<Mistake>) -> Outcome {
    let mut world = Simulation::new(seed, mistake, false);
    world.run();
    let truth = &world.truth;
    let mut endings = truth.endings.clone();
    if truth.verdict.is_none() {
        endings.push(Ending::LauncherGone);
    }
    Outcome {
        violation: truth.violation.clone(),
        endings,
        faults: truth.faults,
        restarts: truth.restarts,
        events: world.agenda.count(),
    }
}

/// Runs a seed again and returns its story.
fn story(seed: u64, mistake: Option<Mistake>) -> String {
    let mut world = Simulation::new(seed, mistake, true);
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    let end = match (&world.truth.violation, ended) {
        (Some(Violation { check, text }), _) => format!("BROKEN: {check:?}: {text}"),
        (None, Err(_)) => "BROKEN: a panic".to_owned(),
        (None, Ok(())) => "no check failed".to_owned(),
    };
    let scenario = &world.scenario;
    format!(
        "PROVE_SEED={seed} PROVE_COUNT=1\n{:?}, workers {:?}, lease {} s, grace {:?}, restarts {}, \
         {:?}{}\n{:?}\n{}\n{end}\n",
        scenario.reach,
        scenario.workers,
        scenario.lease / 1_000_000,
        scenario.policy.grace,
        scenario.policy.restarts_max,
        scenario.policy.failure,
        if scenario.is_group { ", a group" } else { "" },
        scenario.policy.elastic,
        world.story.text()
    )
}

/// Counts of many runs.
#[derive(Default)]
struct Coverage {
    runs: u64,
    endings: [u64; Ending::ALL.len()],
    faults: [u64; InjectedKind::COUNT],
    by_faults: [u64; 5],
    restarts: u64,
    events: u64,
}

impl Coverage {
    fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        for ending in &outcome.endings {
            self.endings[Ending::ALL.iter().position(|it| it == ending).expect("one of all")] += 1;
        }
        for (sum, count) in self.faults.iter_mut().zip(outcome.faults) {
            *sum += u64::from(count);
        }
        self.by_faults[(outcome.faults.iter().sum::<u32>() as usize).min(4)] += 1;
        self.restarts += u64::from(outcome.restarts);
        self.events += outcome.events;
    }

    fn join(&mut self, other: &Self) {
        let add = |sums: &mut [u64], counts: &[u64]| {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        };
        self.runs += other.runs;
        add(&mut self.endings, &other.endings);
        add(&mut self.faults, &other.faults);
        add(&mut self.by_faults, &other.by_faults);
        self.restarts += other.restarts;
        self.events += other.events;
    }

    fn show(&self) -> String {
        let mut text =
            format!("{} runs, {} events, {} restarts\n", self.runs, self.events, self.restarts);
        for (ending, count) in Ending::ALL.iter().zip(self.endings) {
            let _ = writeln!(text, "{count:>9}  epochs ended with {ending:?}");
        }
        for (number, count) in self.by_faults.iter().enumerate() {
            let _ = writeln!(text, "{count:>9}  runs with {number} faults");
        }
        for (kind, count) in self.faults.iter().enumerate() {
            let _ = writeln!(text, "{count:>9}  {}", InjectedKind::name(kind));
        }
        text
    }
}

/// Runs seeds on all processors; returns the counts, or the first seed that failed.
fn run_all(first: u64, count: u64) -> Result<Coverage, u64> {
    let (next, failed) = (AtomicU64::new(first), AtomicU64::new(u64::MAX));
    let work = || {
        let mut coverage = Coverage::default();
        while failed.load(Ordering::Relaxed) == u64::MAX {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if first + count <= seed {
                break;
            }
            let outcome = catch_unwind(|| run(seed, None));
            match outcome {
                Ok(outcome) if outcome.violation.is_none() => coverage.add(&outcome),
                _ => {
                    failed.fetch_min(seed, Ordering::Relaxed);
                }
            }
        }
        coverage
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut sum = Coverage::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            sum.join(&thread.join().expect("runs are caught"));
        }
    });
    match failed.load(Ordering::Relaxed) {
        u64::MAX => Ok(sum),
        seed => Err(seed),
    }
}

#[test]
fn prove_simulate() {
    let first = env_vars::get_text("PROVE_SEED");
    let first = first.map_or(1, |seed| seed.parse().expect("PROVE_SEED is a number"));
    let count = proof_cases(FEW) as u64;
    let coverage = run_all(first, count).unwrap_or_else(|seed| panic!("{}", story(seed, None)));
    if count == 1 {
        print_error(&story(first, None));
    } else if count != FEW as u64 {
        print_error(&coverage.show());
    }
    if FEW as u64 <= count {
        let missing = Ending::ALL.iter().zip(coverage.endings).filter(|(_, count)| *count == 0);
        let missing: Vec<_> = missing.map(|(ending, _)| ending).collect();
        assert!(missing.is_empty(), "no epoch ended so: {missing:?}");
        let unhit = (0..InjectedKind::COUNT).filter(|kind| coverage.faults[*kind] == 0);
        let unhit: Vec<_> = unhit.map(InjectedKind::name).collect();
        assert!(unhit.is_empty(), "no run had such a fault: {unhit:?}");
    }
}

#[track_caller]
fn assert_caught(mistake: Mistake, seed: u64, check: Check) {
    let outcome = run(seed, Some(mistake));
    let found = outcome.violation.map(|violation| violation.check);
    assert_eq!(found, Some(check), "{mistake:?}\n{}", story(seed, Some(mistake)));
    assert!(run(seed, None).violation.is_none(), "{}", story(seed, None));
}

#[test]
fn simulation_of_a_seed_repeats() {
    for seed in 0..20 {
        assert_eq!(story(seed, None), story(seed, None));
    }
}

#[test]
fn agent_that_ignores_its_lease_is_caught() {
    assert_caught(Mistake::AgentIgnoresLease, 4661, Check::Liveness);
}

#[test]
fn agent_that_ignores_the_lock_of_its_node_is_caught() {
    assert_caught(Mistake::AgentIgnoresLock, 405, Check::OneEpoch);
}

#[test]
fn launcher_that_accepts_old_links_is_caught() {
    assert_caught(Mistake::LauncherAcceptsOldLinks, 97, Check::ExitStatus);
}

#[test]
fn job_that_names_the_last_failure_is_caught() {
    assert_caught(Mistake::JobNamesLastFailure, 182, Check::Cause);
}

#[test]
fn signal_that_counts_as_success_is_caught() {
    assert_caught(Mistake::SignalIsSuccess, 5, Check::EndsOnce);
}

#[test]
fn launcher_that_loses_the_end_of_a_node_is_caught() {
    assert_caught(Mistake::IdleIsLost, 2, Check::Liveness);
}

#[test]
fn launcher_that_never_gives_up_a_node_is_caught() {
    assert_caught(Mistake::LauncherIgnoresLease, 114, Check::Liveness);
}

#[test]
fn agent_that_ignores_its_window_is_caught() {
    assert_caught(Mistake::AgentIgnoresWindow, 335, Check::BoundedQueues);
}

#[test]
fn agent_that_answers_twice_is_caught() {
    assert_caught(Mistake::AgentAnswersTwice, 1, Check::Protocol);
}

#[test]
fn job_that_starts_below_its_smallest_number_is_caught() {
    assert_caught(Mistake::JobStartsBelowMin, 8, Check::Members);
}

#[test]
fn lost_node_that_stays_a_member_is_caught() {
    assert_caught(Mistake::LostNodeStaysMember, 65, Check::Members);
}

#[test]
fn spare_whose_loss_is_a_failure_is_caught() {
    assert_caught(Mistake::LossOfSpareIsFailure, 109, Check::Members);
}

#[test]
fn arrival_that_is_charged_is_caught() {
    assert_caught(Mistake::ArrivalIsCharged, 94, Check::Charge);
}

#[test]
fn launcher_that_greets_only_once_is_caught() {
    assert_caught(Mistake::LauncherGreetsOnce, 468, Check::Liveness);
}

#[test]
fn refused_restart_that_counts_as_success_is_caught() {
    assert_caught(Mistake::RefusalIsSuccess, 25, Check::ExitStatus);
}
