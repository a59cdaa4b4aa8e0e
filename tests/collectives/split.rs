//! Groups of some ranks.

use std::sync::Barrier;
use std::time::Duration;

use remuda::runtime::{Cause, Error, Group, InitOptions, ReduceOp};

use crate::sample::{assert_bits, on_ranks, reduced, tree, values};

/// One node, several, uneven ones.
fn placements() -> Vec<Vec<Group>> {
    // A hang ends the test while somebody still looks.
    let options = InitOptions { timeout: Duration::from_secs(60), ..InitOptions::default() };
    let nodes = [&[2, 4][..], &[1, 1, 1, 1, 1, 1], &[3, 1, 2]];
    let mut groups = vec![Group::threads_with(6, &options).unwrap()];
    groups.extend(nodes.map(|nodes| Group::threads_on_with(nodes, &options).unwrap()));
    groups
}

/// The sum over some ranks' numbers, in the order of the new group.
fn sum_of(members: &[usize], count: usize) -> Vec<f32> {
    let columns: Vec<Vec<f32>> = members.iter().map(|rank| values(*rank, count)).collect();
    let column = |at: usize| columns.iter().map(|column| column[at]).collect::<Vec<_>>();
    (0..count).map(|at| tree(&column(at), &|l, r| l + r)).collect()
}

#[test]
fn parts_compute_for_themselves() {
    for groups in placements() {
        on_ranks(groups, |group| {
            let rank = group.rank();
            // Backwards, so that ranks change places.
            let part = group.split(rank % 2, 10 - rank).unwrap().unwrap();
            let members: Vec<usize> = (0..6).rev().filter(|r| r % 2 == rank % 2).collect();
            assert_eq!((part.world_size(), members[part.rank()]), (3, rank));
            for count in [1, 1000, 100_000] {
                let expect = sum_of(&members, count);
                let mut plain = values::<f32>(rank, count);
                part.all_reduce(&mut plain, ReduceOp::Sum).unwrap();
                assert_bits(&plain, &expect, &(rank, count));
                // A buffer of the whole group serves the part, and the other way round.
                let mut buffer = group.alloc::<f32>(count).unwrap();
                buffer.copy_from_slice(&values(rank, count));
                part.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
                assert_bits(&buffer, &expect, &(rank, count));
                let mut buffer = part.alloc::<f32>(count).unwrap();
                buffer.copy_from_slice(&values(rank, count));
                group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
                assert_bits(&buffer, &reduced(ReduceOp::Sum, 6, count), &(rank, count));
            }
            let mut ring = [0i64];
            let (next, left) = ((part.rank() + 1) % 3, (part.rank() + 2) % 3);
            part.send_recv(&[rank as i64], next, &mut ring, left).unwrap();
            assert_eq!(ring, [members[left] as i64]);
        });
    }
}

#[test]
fn both_groups_are_used_at_once() {
    for groups in placements() {
        on_ranks(groups, |group| {
            let row = group.split(group.rank() / 3, group.rank()).unwrap().unwrap();
            let column = group.split(group.rank() % 3, group.rank()).unwrap().unwrap();
            let work: Vec<_> = [group, &row, &column]
                .map(|group| {
                    let mut buffer = group.alloc::<i32>(70_000).unwrap();
                    buffer.fill(1);
                    group.start_all_reduce(buffer, 0..70_000, ReduceOp::Sum)
                })
                .into_iter()
                .collect();
            let sums: Vec<i32> =
                work.into_iter().map(|work| work.wait().unwrap()[69_999]).collect();
            assert_eq!(sums, [6, 3, 2]);
        });
    }
}

#[test]
fn a_part_can_be_split_and_some_ranks_stay_out() {
    for groups in placements() {
        on_ranks(groups, |group| {
            let rank = group.rank();
            let part = group.split((rank != 0).then_some(7), rank).unwrap();
            let Some(part) = part else { return assert_eq!(rank, 0) };
            let pair = part.split(part.rank() / 2, 0).unwrap().unwrap();
            let mut sum = [rank as i64];
            pair.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            assert_eq!(sum, [[3, 3, 7, 7, 5][rank - 1]]);
        });
    }
}

/// The memory of a part is given back once all have left it, so there can be any number of them.
#[test]
fn parts_come_and_go() {
    for groups in [Group::threads(3).unwrap(), Group::threads_on(&[2, 1]).unwrap()] {
        on_ranks(groups, |group| {
            for round in 0..40 {
                let part = group.split(0, (group.rank() + round) % 3).unwrap().unwrap();
                let mut sum = [1u8];
                part.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                assert_eq!(sum, [3]);
            }
        });
    }
}

#[test]
fn an_abort_of_the_whole_ends_its_parts() {
    for groups in placements() {
        let all_are_split = Barrier::new(6);
        let causes = on_ranks(groups, |group| {
            let part = group.split(group.rank() % 2, 0).unwrap().unwrap();
            let inner = part.split(0, 0).unwrap().unwrap();
            all_are_split.wait();
            if group.rank() == 5 {
                group.abort("enough");
            }
            // Ranks of both parts wait for one that never comes.
            let outcome = if part.rank() == 0 {
                inner.recv(&mut [0u8], 1)
            } else {
                loop {
                    if let Err(error) = group.barrier() {
                        break Err(error);
                    }
                }
            };
            outcome.expect_err("it cannot succeed").cause
        });
        for cause in causes {
            let Cause::Aborted { by, reason } = cause else { panic!("{cause:?}") };
            assert_eq!((by.index(), reason.as_str()), (5, "enough"));
        }
    }
}

#[test]
fn a_failure_of_a_part_leaves_the_others_alone() {
    for groups in placements() {
        on_ranks(groups, |group| {
            let part = group.split(group.rank() % 2, group.rank()).unwrap().unwrap();
            if group.rank() % 2 == 0 {
                if group.rank() == 4 {
                    part.abort("tired");
                }
                let cause = part.barrier().expect_err("it cannot succeed").cause;
                // Ranks are those of the job, as on the launcher's screen.
                let Cause::Aborted { by, reason } = cause else { panic!("{cause:?}") };
                assert_eq!((by.index(), reason.as_str()), (4, "tired"));
            } else {
                part.barrier().unwrap();
            }
            let mut count = [1];
            group.all_reduce(&mut count, ReduceOp::Sum).unwrap();
            assert_eq!(count, [6]);
        });
    }
}

#[test]
fn a_part_has_deadlines_of_its_own() {
    let options = InitOptions { timeout: Duration::from_millis(200), ..InitOptions::default() };
    on_ranks(Group::threads_on(&[2, 2]).unwrap(), |group| {
        let part = group.split_with(group.rank() % 2, 0, &options).unwrap().unwrap();
        if group.rank() == 2 {
            let cause = part.barrier().expect_err("nobody else comes").cause;
            let Cause::Deadline { waiting_for } = cause else { panic!("{cause:?}") };
            assert_eq!(waiting_for.iter().map(|rank| rank.index()).collect::<Vec<_>>(), [0]);
        }
        group.barrier().unwrap();
    });
}

#[test]
fn who_calls_something_else_than_split_is_told() {
    for groups in [Group::threads(2).unwrap(), Group::threads_on(&[1, 1]).unwrap()] {
        on_ranks(groups, |group| {
            let error = match group.rank() {
                0 => group.split(0, 0).map(drop).expect_err("it cannot succeed"),
                _ => group.barrier().map_err(Error::from).expect_err("it cannot succeed"),
            };
            let text = error.to_string();
            assert!(text.contains("split() as round 1") || text.contains("aborted"), "{text}");
        });
    }
}
