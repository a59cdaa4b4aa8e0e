//! Subgroups that are split from a group.

use std::sync::Barrier;
use std::time::Duration;

use remuda::runtime::{Cause, Error, Group, InitOptions, ReduceOp};

use crate::collectives::sample::{assert_bits, on_ranks, reduced, tree, values};

/// Groups of six ranks on one node, on several nodes, and on uneven nodes.
fn placements() -> Vec<Vec<Group>> {
    // The timeout ends a hang.
    let options = InitOptions { timeout: Duration::from_secs(60), ..InitOptions::default() };
    let nodes = [&[2, 4][..], &[1, 1, 1, 1, 1, 1], &[3, 1, 2]];
    let mut groups = vec![Group::threads_with(6, &options).unwrap()];
    groups.extend(nodes.map(|nodes| Group::threads_on_with(nodes, &options).unwrap()));
    groups
}

/// Sum over the values of some ranks, in the order of the new group.
fn sum_of(members: &[usize], count: usize) -> Vec<f32> {
    let columns: Vec<Vec<f32>> = members.iter().map(|rank| values(*rank, count)).collect();
    let column = |at: usize| columns.iter().map(|column| column[at]).collect::<Vec<_>>();
    (0..count).map(|at| tree(&column(at), &|l, r| l + r)).collect()
}

#[test]
fn subgroups_run_operations_of_their_own() {
    for groups in placements() {
        on_ranks(groups, |group| {
            let rank = group.rank();
            // In reverse order, so that ranks are renumbered.
            let subgroup = group.split(rank % 2, 10 - rank).unwrap().unwrap();
            let members: Vec<usize> = (0..6).rev().filter(|r| r % 2 == rank % 2).collect();
            assert_eq!((subgroup.world_size(), members[subgroup.rank()]), (3, rank));
            for count in [1, 1000, 100_000] {
                let expect = sum_of(&members, count);
                let mut plain = values::<f32>(rank, count);
                subgroup.all_reduce(&mut plain, ReduceOp::Sum).unwrap();
                assert_bits(&plain, &expect, &(rank, count));
                // The subgroup can use a buffer of its parent group, and vice versa.
                let mut buffer = group.alloc::<f32>(count).unwrap();
                buffer.copy_from_slice(&values(rank, count));
                subgroup.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
                assert_bits(&buffer, &expect, &(rank, count));
                let mut buffer = subgroup.alloc::<f32>(count).unwrap();
                buffer.copy_from_slice(&values(rank, count));
                group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
                assert_bits(&buffer, &reduced(ReduceOp::Sum, 6, count), &(rank, count));
            }
            let mut ring = [0i64];
            let (next, left) = ((subgroup.rank() + 1) % 3, (subgroup.rank() + 2) % 3);
            subgroup.send_recv(&[rank as i64], next, &mut ring, left).unwrap();
            assert_eq!(ring, [members[left] as i64]);
        });
    }
}

#[test]
fn group_and_subgroups_run_operations_concurrently() {
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
fn subgroup_of_some_ranks_is_split_again() {
    for groups in placements() {
        on_ranks(groups, |group| {
            let rank = group.rank();
            let subgroup = group.split((rank != 0).then_some(7), rank).unwrap();
            let Some(subgroup) = subgroup else { return assert_eq!(rank, 0) };
            let pair = subgroup.split(subgroup.rank() / 2, 0).unwrap().unwrap();
            let mut sum = [rank as i64];
            pair.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            assert_eq!(sum, [[3, 3, 7, 7, 5][rank - 1]]);
        });
    }
}

/// The memory of a subgroup is freed after all ranks have left it.
#[test]
fn subgroups_can_be_created_any_number_of_times() {
    for groups in [Group::threads(3).unwrap(), Group::threads_on(&[2, 1]).unwrap()] {
        on_ranks(groups, |group| {
            for round in 0..40 {
                let subgroup = group.split(0, (group.rank() + round) % 3).unwrap().unwrap();
                let mut sum = [1u8];
                subgroup.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                assert_eq!(sum, [3]);
            }
        });
    }
}

#[test]
fn abort_of_a_group_aborts_its_subgroups() {
    for groups in placements() {
        let all_are_split = Barrier::new(6);
        let causes = on_ranks(groups, |group| {
            let subgroup = group.split(group.rank() % 2, 0).unwrap().unwrap();
            let inner = subgroup.split(0, 0).unwrap().unwrap();
            all_are_split.wait();
            if group.rank() == 5 {
                group.abort("test");
            }
            // Ranks of both subgroups wait for a rank that does not call.
            let outcome = if subgroup.rank() == 0 {
                inner.recv(&mut [0u8], 1)
            } else {
                loop {
                    if let Err(error) = group.barrier() {
                        break Err(error);
                    }
                }
            };
            outcome.expect_err("the group was aborted").cause
        });
        for cause in causes {
            let Cause::Aborted { by, reason } = cause else { panic!("{cause:?}") };
            assert_eq!((by.index(), reason.as_str()), (5, "test"));
        }
    }
}

#[test]
fn failure_of_a_subgroup_does_not_affect_other_groups() {
    for groups in placements() {
        on_ranks(groups, |group| {
            let subgroup = group.split(group.rank() % 2, group.rank()).unwrap().unwrap();
            if group.rank() % 2 == 0 {
                if group.rank() == 4 {
                    subgroup.abort("test");
                }
                let cause = subgroup.barrier().expect_err("the subgroup was aborted").cause;
                // Ranks are those of the job, as on the launcher's screen.
                let Cause::Aborted { by, reason } = cause else { panic!("{cause:?}") };
                assert_eq!((by.index(), reason.as_str()), (4, "test"));
            } else {
                subgroup.barrier().unwrap();
            }
            let mut count = [1];
            group.all_reduce(&mut count, ReduceOp::Sum).unwrap();
            assert_eq!(count, [6]);
        });
    }
}

#[test]
fn subgroup_has_its_own_timeout() {
    let options = InitOptions { timeout: Duration::from_millis(200), ..InitOptions::default() };
    on_ranks(Group::threads_on(&[2, 2]).unwrap(), |group| {
        let subgroup = group.split_with(group.rank() % 2, 0, &options).unwrap().unwrap();
        if group.rank() == 2 {
            let cause = subgroup.barrier().expect_err("the other rank does not call").cause;
            let Cause::Deadline { waiting_for, .. } = cause else { panic!("{cause:?}") };
            assert_eq!(waiting_for.iter().map(|rank| rank.index()).collect::<Vec<_>>(), [0]);
        }
        group.barrier().unwrap();
    });
}

#[test]
fn different_operation_during_a_split_is_a_mismatch() {
    for groups in [Group::threads(2).unwrap(), Group::threads_on(&[1, 1]).unwrap()] {
        on_ranks(groups, |group| {
            let error = match group.rank() {
                0 => group.split(0, 0).map(drop).expect_err("rank 1 calls a barrier"),
                _ => group.barrier().map_err(Error::from).expect_err("rank 0 calls a split"),
            };
            let text = error.to_string();
            assert!(text.contains("called split()") || text.contains("aborted"), "{text}");
        });
    }
}
