//! Groups that their members make alone.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::time::Duration;

use remuda::runtime::{Cause, Error, Group, InitOptions, ReduceOp};

use crate::collectives::sample::on_ranks;
use crate::support::proof::{Random, proof_cases};

fn options(timeout_ms: u64) -> InitOptions {
    InitOptions { timeout: Duration::from_millis(timeout_ms), ..InitOptions::default() }
}

/// Groups of four ranks on one node, on two, and on four.
fn placements() -> Vec<Vec<Group>> {
    let mut groups = vec![Group::threads_with(4, &options(60_000)).unwrap()];
    let nodes = [&[3, 1][..], &[1, 1, 1, 1]];
    groups.extend(nodes.map(|nodes| Group::threads_on_with(nodes, &options(60_000)).unwrap()));
    groups
}

fn sum(group: &Group, value: usize) -> i64 {
    let mut sum = [value as i64];
    group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    sum[0]
}

#[track_caller]
fn text(outcome: Result<Group, Error>) -> String {
    outcome.expect_err("the call fails").to_string()
}

#[test]
fn members_form_a_group_in_the_order_of_the_list() {
    for groups in placements() {
        on_ranks(groups, |group| {
            let rank = group.rank();
            if rank == 1 {
                return;
            }
            let list = [3, 0, 2];
            let new = group.of(&list, "three").unwrap();
            assert_eq!((new.world_size(), list[new.rank()]), (3, rank));
            assert_eq!(sum(&new, rank), 5);
            let one = group.of(&[rank], "one").unwrap();
            assert_eq!((one.world_size(), sum(&one, rank)), (1, rank as i64));
            // A subgroup of a subgroup, with the ranks of the subgroup.
            if rank != 0 {
                let pair = new.of(&[2, 0], "pair").unwrap();
                assert_eq!((pair.rank(), sum(&pair, rank)), (usize::from(rank == 3), 5));
            }
        });
    }
}

#[test]
fn list_and_name_can_be_used_again() {
    for groups in placements() {
        on_ranks(groups, |group| {
            if group.rank() == 0 {
                return;
            }
            for round in 0..30 {
                let new = group.of(&[1, 2, 3], "again").unwrap();
                assert_eq!(sum(&new, round), 3 * round as i64);
            }
        });
    }
}

#[test]
fn group_works_while_its_members_meet() {
    for groups in placements() {
        let start = Barrier::new(3);
        on_ranks(groups, |group| {
            if group.rank() == 3 {
                (0..50).for_each(|_| assert_eq!(sum(group, 1), 4));
                assert_eq!(sum(&group.of(&[0, 1, 2, 3], "late").unwrap(), 1), 4);
                return;
            }
            std::thread::scope(|scope| {
                let meeting = scope.spawn(|| {
                    start.wait();
                    sum(&group.of(&[0, 1, 2, 3], "late").unwrap(), 1)
                });
                // Rank 3 comes to the meeting only after these operations.
                (0..50).for_each(|_| assert_eq!(sum(group, 1), 4));
                assert_eq!(meeting.join().unwrap(), 4);
            });
        });
    }
}

#[test]
fn invalid_lists_and_names_are_refused_at_once() {
    for groups in placements() {
        on_ranks(groups, |group| {
            if group.rank() != 1 {
                return;
            }
            let long = "n".repeat(129);
            let cases: [(&[usize], &str, &str); 6] = [
                (&[], "g", "the list of ranks is empty"),
                (&[1], "", "the name of the group is empty"),
                (&[1], &long, "the name of the group has 129 bytes, more than 128"),
                (&[1, 4], "g", "rank 4 is not in a group of size 4"),
                (&[0, 1, 0], "g", "rank 0 is more than once in the list for the group `g`"),
                (&[2, 3], "g", "rank 1 is not among [2, 3], which it passed for the group `g`"),
            ];
            for (ranks, name, expect) in cases {
                let expect = format!("creating a group failed on rank 1: {expect}");
                assert_eq!(text(group.of(ranks, name)), expect);
            }
        });
    }
}

#[test]
fn deadline_names_missing_members() {
    for groups in placements() {
        let has_failed = Barrier::new(4);
        on_ranks(groups, |group| {
            if group.rank() < 2 {
                let found = group.of_with(&[0, 1, 2, 3], "four", &options(200));
                let expect = format!(
                    "creating a group failed on rank {}: the deadline passed while waiting for ranks 2, 3, after \
                     200 ms",
                    group.rank()
                );
                assert_eq!(text(found), expect);
            }
            has_failed.wait();
            // The group works, and the call can be repeated.
            assert_eq!(sum(group, 1), 4);
            assert_eq!(sum(&group.of(&[0, 1, 2, 3], "four").unwrap(), 1), 4);
        });
    }
}

#[test]
fn different_lists_for_one_name_are_both_named() {
    for groups in placements() {
        let has_failed = Barrier::new(4);
        on_ranks(groups, |group| {
            let lists: [&[usize]; 2] = [&[0, 1], &[1, 0, 2]];
            if let Some(list) = lists.get(group.rank()) {
                let other = 1 - group.rank();
                let expect = format!(
                    "creating a group failed on rank {}: rank {} passed {list:?} for the group `g`, but rank \
                     {other} passed {:?}",
                    group.rank(),
                    group.rank(),
                    lists[other]
                );
                assert_eq!(text(group.of(list, "g")), expect);
            }
            has_failed.wait();
            if group.rank() < 2 {
                // Each of the two in turn comes before the other has replaced its list.
                let is_late = group.rank() == usize::from(group.placement().nodes() == 1);
                std::thread::sleep(Duration::from_millis(if is_late { 50 } else { 0 }));
                assert_eq!(sum(&group.of(&[0, 1], "g").unwrap(), 1), 2);
            } else {
                // The same name for other ranks is no conflict.
                assert_eq!(sum(&group.of(&[2, 3], "g").unwrap(), 1), 2);
            }
        });
    }
}

#[test]
fn name_cannot_be_used_by_two_threads_of_a_rank_at_once() {
    for groups in placements() {
        on_ranks(groups, |group| {
            if group.rank() == 0 {
                let other = group.clone();
                let waiting =
                    std::thread::spawn(move || text(other.of_with(&[0, 3], "g", &options(1000))));
                std::thread::sleep(Duration::from_millis(200));
                assert_eq!(
                    text(group.of(&[0, 2], "g")),
                    "creating a group failed on rank 0: another thread of this rank makes a group `g` of [0, 3] at \
                     the same time as this one of [0, 2]"
                );
                assert_eq!(
                    waiting.join().unwrap(),
                    "creating a group failed on rank 0: the deadline passed while waiting for rank 3, after 1.0 s"
                );
            }
            group.barrier().unwrap();
        });
    }
}

#[test]
fn abort_of_the_group_ends_the_meeting_and_the_new_group() {
    for groups in placements() {
        let (is_made, is_over) = (Barrier::new(4), Barrier::new(4));
        on_ranks(groups, |group| {
            let new = (group.rank() != 3).then(|| group.of(&[0, 1, 2], "three").unwrap());
            is_made.wait();
            if group.rank() == 3 {
                std::thread::sleep(Duration::from_millis(100));
                group.abort("test");
                // Its exit is no part of this test.
                is_over.wait();
                return;
            }
            let found = text(group.of(&[0, 1, 2, 3], "four"));
            let expect = "failed on rank R: rank 3 aborted the group: test";
            let expect = expect.replace('R', &group.rank().to_string());
            assert_eq!(found, format!("creating a group {expect}"));
            let new = new.expect("ranks 0 to 2 have it").barrier().unwrap_err();
            assert!(matches!(new.cause, Cause::Aborted { .. }), "{new}");
            is_over.wait();
        });
    }
}

#[test]
fn failure_of_the_new_group_leaves_the_group_working() {
    for groups in placements() {
        on_ranks(groups, |group| {
            if group.rank() < 2 {
                let new = group.of(&[0, 1], "two").unwrap();
                if group.rank() == 0 {
                    new.abort("test");
                }
                let error = new.barrier().unwrap_err();
                assert!(matches!(error.cause, Cause::Aborted { .. }), "{error}");
            }
            assert_eq!(sum(group, 1), 4);
        });
    }
}

/// Random groups with common ranks: every rank makes its own in a random order, each in a thread.
#[test]
fn prove_groups_of() {
    let mut random = Random::from_seed();
    for case in 0..proof_cases(12) {
        let nodes: Vec<usize> = (0..=random.below(3)).map(|_| 1 + random.below(3)).collect();
        let world: usize = nodes.iter().sum();
        let groups = if nodes.len() == 1 {
            Group::threads_with(world, &options(60_000)).unwrap()
        } else {
            Group::threads_on_with(&nodes, &options(60_000)).unwrap()
        };
        let lists: Vec<(Vec<usize>, usize)> = (0..=random.below(8))
            .map(|_| {
                let mut ranks = BTreeSet::from([random.below(world)]);
                ranks.extend(
                    (0..random.below(world)).map(|_| random.below(world)).collect::<Vec<_>>(),
                );
                let mut ranks: Vec<usize> = ranks.into_iter().collect();
                (1..ranks.len()).for_each(|at| ranks.swap(at, random.below(at + 1)));
                (ranks, 1 + random.below(3))
            })
            .collect();
        let delays: Vec<u64> = (0..world * lists.len()).map(|_| random.below(3) as u64).collect();
        on_ranks(groups, |group| {
            std::thread::scope(|scope| {
                for (number, (ranks, uses)) in lists.iter().enumerate() {
                    if !ranks.contains(&group.rank()) {
                        continue;
                    }
                    let delay = delays[number * world + group.rank()];
                    scope.spawn(move || {
                        std::thread::sleep(Duration::from_millis(delay));
                        for step in 0..*uses {
                            let new = group.of(ranks, &format!("g{number}")).unwrap();
                            assert_eq!(ranks[new.rank()], group.rank(), "case {case}");
                            let expect =
                                ranks.iter().map(|rank| (rank + 1) * (step + 1)).sum::<usize>();
                            let found = sum(&new, (group.rank() + 1) * (step + 1));
                            assert_eq!(found, expect as i64, "case {case}: {ranks:?}");
                        }
                    });
                }
                assert_eq!(sum(group, 1), world as i64, "case {case}");
            });
        });
    }
}
