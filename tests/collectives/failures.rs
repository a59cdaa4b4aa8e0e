//! Ranks that call different things, that do not come, that give up.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use remuda::runtime::{Cause, CollectiveError, Departure, Group, InitOptions, Operation, ReduceOp};

use crate::sample::on_ranks;

/// What every rank's error says, without the numbers that differ.
fn causes(
    groups: Vec<Group>,
    f: impl Fn(&Group) -> Result<(), CollectiveError> + Sync,
) -> Vec<Cause> {
    on_ranks(groups, |group| f(group).expect_err("it cannot succeed").cause)
}

#[test]
fn ranks_that_call_different_things_are_told() {
    for groups in [Group::threads(2).unwrap(), Group::threads_on(&[1, 1]).unwrap()] {
        let causes = causes(groups, |group| match group.rank() {
            0 => group.all_reduce(&mut [0.0f32; 10], ReduceOp::Sum),
            _ => group.all_reduce(&mut [0.0f32; 11], ReduceOp::Sum),
        });
        for (rank, cause) in causes.into_iter().enumerate() {
            let Cause::Mismatch { ours, peer, theirs } = cause else { panic!("{cause:?}") };
            assert_eq!((ours.count, theirs.count), (10 + rank as u64, 11 - rank as u64));
            assert_eq!(peer.index(), 1 - rank);
        }
    }
}

#[test]
fn different_operations_are_told() {
    for groups in [Group::threads(3).unwrap(), Group::threads_on(&[1, 2]).unwrap()] {
        let causes = causes(groups, |group| match group.rank() {
            0 => group.barrier(),
            _ => group.broadcast(&mut [0u8; 3], 1),
        });
        assert!(causes.iter().any(|cause| matches!(
            cause,
            Cause::Mismatch { ours, .. } if ours.op == Operation::Broadcast
        )));
        // Whoever did not see it was told by one who did.
        assert!(
            causes
                .iter()
                .all(|cause| matches!(cause, Cause::Mismatch { .. } | Cause::Aborted { .. }))
        );
    }
}

#[test]
fn a_message_of_another_length_is_told() {
    for groups in [Group::threads(2).unwrap(), Group::threads_on(&[1, 1]).unwrap()] {
        let causes = causes(groups, |group| match group.rank() {
            0 => group.send(&[0i64; 3], 1).and_then(|()| group.barrier()),
            _ => group.recv(&mut [0i64; 4], 0),
        });
        assert!(matches!(causes[1], Cause::Mismatch { .. }), "{:?}", causes[1]);
        assert!(!matches!(causes[0], Cause::Deadline { .. }), "{:?}", causes[0]);
    }
}

#[test]
fn who_does_not_come_is_named() {
    let options = InitOptions { timeout: Duration::from_millis(200), ..InitOptions::default() };
    let groups = Group::threads_with(3, &options).unwrap();
    let mut causes = on_ranks(groups, |group| match group.rank() {
        1 => None,
        _ => group.barrier().err().map(|error| error.cause),
    });
    let deadline = |cause: &Cause| match cause {
        Cause::Deadline { waiting_for } => waiting_for.iter().any(|rank| rank.index() == 1),
        // The other one was faster and said why.
        Cause::Aborted { reason, .. } => reason.contains("waiting for rank 1"),
        _ => false,
    };
    for cause in causes.drain(..).flatten() {
        assert!(deadline(&cause), "{cause:?}");
    }
}

/// Between nodes most ranks wait for one that waits itself.
#[test]
fn who_does_not_come_is_named_on_every_node() {
    let options = InitOptions { timeout: Duration::from_secs(2), ..InitOptions::default() };
    for nodes in [&[2, 2][..], &[1, 1, 1, 1]] {
        let groups = Group::threads_on_with(nodes, &options).unwrap();
        let told = AtomicUsize::new(0);
        let causes = on_ranks(groups, |group| {
            if group.rank() == 1 {
                // It computes until all others have given up.
                while told.load(Ordering::Relaxed) < 3 {
                    std::thread::sleep(Duration::from_millis(10));
                }
                return None;
            }
            let cause = group.all_reduce(&mut [1.0f32; 3000], ReduceOp::Sum).err();
            told.fetch_add(1, Ordering::Relaxed);
            cause.map(|error| error.cause)
        });
        for cause in causes.into_iter().flatten() {
            let is_true = match &cause {
                Cause::Deadline { waiting_for } => waiting_for.iter().map(|rank| rank.0).eq([1]),
                Cause::Aborted { reason, .. } => reason.ends_with("waiting for rank 1"),
                _ => false,
            };
            assert!(is_true, "{nodes:?}: {cause:?}");
        }
    }
}

#[test]
fn who_drops_its_group_is_not_waited_for() {
    let groups = Group::threads(3).unwrap();
    let causes: Vec<_> = std::thread::scope(|scope| {
        let run = |group: Group| match group.rank() {
            1 => None,
            _ => group.barrier().err().map(|error| error.cause),
        };
        let threads: Vec<_> =
            groups.into_iter().map(|group| scope.spawn(move || run(group))).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(causes.len(), 2);
    for cause in causes {
        let Cause::PeerLost { rank, how, .. } = cause else { panic!("{cause:?}") };
        assert_eq!((rank.index(), how), (1, Departure::Left));
    }
}

#[test]
fn a_thread_that_returns_early_is_not_waited_for() {
    let ended = Group::on_threads_with(3, &InitOptions::default(), |group| {
        if group.rank() != 1 {
            group.barrier()?;
        }
        Ok(())
    });
    let error = ended.expect_err("rank 1 does not come").to_string();
    assert!(error.contains("rank 1 on host `"), "{error}");
    assert!(error.contains("` dropped the group before it took part"), "{error}");
}

#[test]
fn after_a_failure_every_call_says_what_failed_first() {
    let told = on_ranks(Group::threads(2).unwrap(), |group| {
        let len = 3 + group.rank();
        group.all_reduce(&mut vec![0u8; len], ReduceOp::Sum).expect_err("they differ");
        group.barrier().expect_err("it is over").to_string()
    });
    let expect = "barrier (operation 2, 0 bytes) failed on rank 0: the group had failed before, at \
                  all_reduce: ";
    assert!(told[0].starts_with(expect), "{told:?}");
}

#[test]
fn a_deadline_may_be_as_long_as_one_likes() {
    let options = InitOptions { timeout: Duration::MAX, ..InitOptions::default() };
    let groups = Group::threads_with(2, &options).unwrap();
    on_ranks(groups, |group| group.barrier().unwrap());
}

#[test]
fn an_abort_ends_what_is_under_way_everywhere() {
    for groups in [Group::threads(3).unwrap(), Group::threads_on(&[1, 2]).unwrap()] {
        let causes = causes(groups, |group| {
            if group.rank() == 2 {
                group.abort("enough");
            }
            group.barrier()
        });
        for cause in causes {
            let Cause::Aborted { by, reason } = cause else { panic!("{cause:?}") };
            assert_eq!((by.index(), reason.as_str()), (2, "enough"));
        }
    }
}

#[test]
fn a_buffer_of_another_group_is_refused() {
    let (ours, theirs) = (Group::single().unwrap(), Group::single().unwrap());
    let mut buffer = theirs.alloc::<f32>(3000).unwrap();
    let error = ours.all_reduce(&mut buffer, ReduceOp::Sum).expect_err("it lies elsewhere");
    assert_eq!(error.cause, Cause::Argument("the buffer belongs to another group".to_owned()));
}

#[test]
fn a_range_outside_of_its_buffer_is_refused() {
    let group = Group::single().unwrap();
    let buffer = group.alloc::<f32>(100).unwrap();
    let error = group.start_all_reduce(buffer, 50..101, ReduceOp::Sum).wait();
    let error = error.expect_err("there are 100");
    assert_eq!(error.cause, Cause::Argument("elements 50..101 of a buffer of 100".to_owned()));
}

#[test]
fn arguments_that_cannot_work_are_refused() {
    let group = Group::single().unwrap();
    let problem = |outcome: Result<(), CollectiveError>| match outcome {
        Err(CollectiveError { cause: Cause::Argument(problem), .. }) => problem,
        other => panic!("{other:?}"),
    };
    assert_eq!(problem(group.broadcast(&mut [0u8], 1)), "there is no rank 1 among 1");
    let to_itself = "a rank sends nothing to itself, but with `send_recv`";
    assert_eq!(problem(group.send(&[0u8], 0)), to_itself);
    let twice = problem(group.exchange(&[(0, &[0u8][..]), (0, &[])], Vec::new()));
    assert_eq!(twice, "two messages between us and rank 0 in one direction");
    let counts = problem(group.all_to_all_v(&[0u8; 2], &[1], &mut [0], &[1]));
    assert_eq!(counts, "1 counts do not share 2 elements between 1 ranks");
    assert_eq!(problem(group.reduce(&mut [0u8], ReduceOp::Sum, 3)), "there is no rank 3 among 1");
    assert_eq!(
        problem(
            group
                .start_barrier()
                .wait()
                .and_then(|()| { group.start_all_gather(vec![0u8], vec![0; 2]).wait().map(drop) })
        ),
        "2 elements are not 1 times 1 elements"
    );
    let parts = problem(group.all_gather(&[0u8], &mut [0u8; 3]));
    assert_eq!(parts, "3 elements are not 1 times 1 elements");
    group.barrier().unwrap();
}
