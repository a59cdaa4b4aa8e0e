//! A process that is killed at any stage of a save leaves the earlier checkpoints as they are, and nothing that
//! the next save does not remove.

use std::fs;

use remuda::runtime::checkpoint::{LoadChoice, open_newest, verify_checkpoint};

use super::runs::names;
use super::worker::Workers;
use crate::checkpoint::test_dir::{TestDir, check_content};
use crate::support::checkpoints::save_all;

/// Kills a rank of three at a stage of the save of step 4; then `found` is the newest checkpoint.
#[track_caller]
fn check(rank: usize, stage: &str, found: u64) {
    let scratch = TestDir::new(&format!("killed-{rank}-{stage}"));
    let dir = scratch.path("run");
    let workers = Workers::start(&scratch, "save", &dir, 3, Some((rank, stage)), &[]);
    let results = workers.results();
    for (of, result) in results.iter().enumerate() {
        match result {
            None => assert_eq!(of, rank, "{stage}: only this rank was killed"),
            Some(error) => {
                let names = format!("rank {rank} on host `");
                assert!(error.contains(&names), "{stage}: rank {of}: {error}");
            }
        }
    }
    assert_eq!(results[rank], None, "{stage}");
    // Complete checkpoints, and no other.
    check_content(&dir, found);
    check_content(&dir.join("step-00000002"), 2);
    if dir.join("step-00000004").exists() {
        check_content(&dir.join("step-00000004"), 4);
    }
    let newest = open_newest(&dir, LoadChoice::NewestValid, 1).expect("there is one");
    assert!(newest.damaged.is_empty() && newest.reader.state().step == found);
    // The next run is not disturbed, and cleans up.
    save_all(2, &dir, &[6]);
    check_content(&dir, 6);
    let left: Vec<_> = names(&dir).into_iter().filter(|name| name.starts_with('.')).collect();
    assert_eq!(left, [""; 0], "{stage}");
}

#[test]
fn rank_0_can_be_killed_before_the_checkpoint_is_complete() {
    for stage in ["Begun", "Written", "Synced", "Indexed"] {
        check(0, stage, 2);
    }
}

#[test]
fn rank_0_can_be_killed_after_the_checkpoint_is_complete() {
    // `latest` still names the one before.
    check(0, "Renamed", 2);
    for stage in ["Named", "Pruned"] {
        check(0, stage, 4);
    }
}

#[test]
fn other_rank_can_be_killed_at_any_stage() {
    for stage in ["Begun", "Written", "Synced"] {
        check(1, stage, 2);
    }
}

/// A whole job is killed at a random moment of its saves.
#[test]
fn job_can_be_killed_at_any_moment() {
    let mut random = crate::support::proof::Random::from_seed();
    for case in 0..crate::support::proof::proof_cases(6) {
        let scratch = TestDir::new(&format!("killed-job-{case}"));
        let dir = scratch.path("run");
        save_all(2, &dir, &[1]);
        let workers = Workers::start(&scratch, "save", &dir, 2, None, &[]);
        let micros = random.below(60_000) as u64;
        std::thread::sleep(std::time::Duration::from_micros(micros));
        workers.kill();
        for name in names(&dir).iter().filter(|name| name.starts_with("step-")) {
            let damage = verify_checkpoint(&dir.join(name), 1).expect("it is complete");
            assert_eq!(damage, [], "{name} after {micros} µs");
            let step = name.trim_start_matches("step-").parse().expect("a number");
            check_content(&dir.join(name), step);
        }
        assert!(fs::read_to_string(dir.join("latest")).is_ok(), "{:?}", names(&dir));
        save_all(1, &dir, &[6]);
        assert!(!names(&dir).iter().any(|name| name.starts_with(".draft")), "{:?}", names(&dir));
    }
}
