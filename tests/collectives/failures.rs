//! Failures: ranks that call different operations, do not call at all, or abort the group.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use remuda::runtime::{
    Cause, CollectiveError, Collectives as _, Departure, DividedReduction, Group, InitOptions,
    Operation, ReduceOp, SharedBuffer,
};

use crate::collectives::sample::on_ranks;

/// Cause of the error on every rank; the other fields differ between ranks.
fn causes(
    groups: Vec<Group>,
    f: impl Fn(&Group) -> Result<(), CollectiveError> + Sync,
) -> Vec<Cause> {
    on_ranks(groups, |group| f(group).expect_err("the operation fails").cause)
}

/// Whether two ranks called different operations, as this rank or another one has found.
fn is_mismatch(cause: &Cause) -> bool {
    match cause {
        Cause::Mismatch { .. } => true,
        Cause::FailedFirst { cause, .. } => is_mismatch(cause),
        _ => false,
    }
}

/// The ranks for which this rank waited until the deadline, or another one whose deadline passed first.
fn late_ranks(cause: &Cause) -> Vec<u32> {
    match cause {
        Cause::Deadline { waiting_for, .. } => waiting_for.iter().map(|rank| rank.0).collect(),
        Cause::FailedFirst { cause, .. } => late_ranks(cause),
        _ => Vec::new(),
    }
}

/// A rank whose own operation was not late is told which rank was, and so is the late rank itself.
#[test]
fn failure_of_another_rank_is_told_with_its_cause() {
    let options = InitOptions { timeout: Duration::from_secs(2), ..InitOptions::default() };
    // Between nodes a rank waits for the others one after the other.
    for (groups, late) in [
        (Group::threads_with(3, &options), "ranks 1, 2"),
        (Group::threads_on_with(&[1, 1, 1], &options), "rank 1"),
    ] {
        let has_failed = std::sync::Barrier::new(3);
        let texts = on_ranks(groups.expect("threads form a group"), |group| {
            let own = (group.rank() == 0).then(|| group.barrier().expect_err("no rank comes"));
            has_failed.wait();
            let error = own.unwrap_or_else(|| {
                let mut data = [0.0f32; 3];
                group.all_reduce(&mut data, ReduceOp::Sum).expect_err("rank 0 has failed")
            });
            assert_eq!(late_ranks(&error.cause)[0], 1);
            error.to_string()
        });
        let text = format!("the deadline passed while waiting for {late}, after 2.0 s");
        let first = format!("barrier (operation 1, 0 bytes) failed on rank 0: {text}");
        let told = |rank| {
            format!(
                "all_reduce (operation 1, 12 bytes) failed on rank {rank}: rank 0 failed first, in barrier: \
                 {text}"
            )
        };
        assert_eq!(texts, [first, told(1), told(2)]);
    }
}

#[test]
fn calls_with_different_counts_are_a_mismatch() {
    for groups in [Group::threads(2).unwrap(), Group::threads_on(&[1, 1]).unwrap()] {
        let causes = causes(groups, |group| match group.rank() {
            0 => group.all_reduce(&mut [0.0f32; 10], ReduceOp::Sum),
            _ => group.all_reduce(&mut [0.0f32; 11], ReduceOp::Sum),
        });
        for (rank, cause) in causes.into_iter().enumerate() {
            let Cause::Mismatch { own_call, peer, peer_call, .. } = cause else {
                panic!("{cause:?}")
            };
            assert_eq!((own_call.count, peer_call.count), (10 + rank as u64, 11 - rank as u64));
            assert_eq!(peer.index(), 1 - rank);
        }
    }
}

#[test]
fn different_operations_are_a_mismatch() {
    for groups in [Group::threads(3).unwrap(), Group::threads_on(&[1, 2]).unwrap()] {
        let causes = causes(groups, |group| match group.rank() {
            0 => group.barrier(),
            _ => group.broadcast(&mut [0u8; 3], 1),
        });
        assert!(causes.iter().any(|cause| matches!(
            cause,
            Cause::Mismatch { own_call, .. } if own_call.op == Operation::Broadcast
        )));
        // A rank that did not detect the mismatch learns it from a rank that did.
        assert!(causes.iter().all(is_mismatch), "{causes:?}");
    }
}

#[test]
fn mismatch_counts_the_ranks_that_agree() {
    for groups in [Group::threads(4).unwrap(), Group::threads_on(&[1, 3]).unwrap()] {
        let causes = causes(groups, |group| match group.rank() {
            0 => group.barrier(),
            _ => group.broadcast(&mut [0u8; 3], 1),
        });
        let barrier = "rank 0 called barrier()";
        for (rank, cause) in causes.into_iter().enumerate() {
            let text = cause.to_string();
            let broadcast =
                |who: &str| format!("{who} and 2 others called broadcast(3 × u8, from rank 1)");
            // The deviating rank, or one of the others, may have found it first.
            let of_others = format!("{}, but {barrier}", broadcast("this rank"));
            let told = |by: &str| {
                let calls = format!("{}, but {barrier}", broadcast(by));
                format!("{by} failed first, in broadcast: {calls}")
            };
            let by_deviating =
                format!("rank 0 failed first, in barrier: {barrier}, but {}", broadcast("rank 1"));
            let own = format!("this rank called barrier(), but {}", broadcast("rank 1"));
            let known = match rank {
                0 => vec![
                    own.clone(),
                    own.replace("rank 1 and", "rank 2 and"),
                    own.replace("rank 1 and", "rank 3 and"),
                ],
                _ => [told("rank 1"), told("rank 2"), told("rank 3"), of_others, by_deviating]
                    .to_vec(),
            };
            assert!(known.contains(&text), "rank {rank}: {text}");
        }
    }
}

#[test]
fn barrier_does_not_satisfy_a_monitored_barrier() {
    for groups in [Group::threads(2).unwrap(), Group::threads_on(&[1, 1]).unwrap()] {
        let texts = on_ranks(groups, |group| {
            let error = match group.rank() {
                0 => group.monitored_barrier(None),
                _ => group.barrier(),
            };
            error.expect_err("the calls differ").to_string()
        });
        let [monitored, plain] = ["monitored_barrier", "barrier"];
        let text = |rank, own, other| {
            let head = format!("{own} (operation 1, 0 bytes) failed on rank {rank}: ");
            format!("{head}this rank called {own}(), but rank {} called {other}()", 1 - rank)
        };
        assert_eq!(texts, [text(0, monitored, plain), text(1, plain, monitored)]);
    }
}

/// The other operations of the group keep their deadline.
#[test]
fn monitored_barrier_has_a_deadline_of_its_own() {
    for groups in [Group::threads(2).unwrap(), Group::threads_on(&[1, 1]).unwrap()] {
        let has_failed = std::sync::Barrier::new(2);
        let texts = on_ranks(groups, |group| {
            group.monitored_barrier(Some(Duration::from_secs(60))).expect("both call it");
            let own = (group.rank() == 0).then(|| {
                let limit = Some(Duration::from_millis(50));
                group.monitored_barrier(limit).expect_err("rank 1 is late").to_string()
            });
            has_failed.wait();
            let later =
                || group.monitored_barrier(None).expect_err("rank 0 has failed").to_string();
            own.unwrap_or_else(later)
        });
        let late = "the deadline passed while waiting for rank 1, after 50 ms";
        let failed =
            |rank| format!("monitored_barrier (operation 2, 0 bytes) failed on rank {rank}: ");
        let told = format!("rank 0 failed first, in monitored_barrier: {late}");
        assert_eq!(texts, [failed(0) + late, failed(1) + &told]);
    }
}

/// Messages that were started move together; the error is that of the one that cannot.
#[test]
fn failed_message_is_named_by_its_own_operation() {
    let options = InitOptions { timeout: Duration::from_millis(200), ..InitOptions::default() };
    for nodes in [&[2][..], &[1, 1]] {
        let has_failed = std::sync::Barrier::new(2);
        let groups = Group::threads_on_with(nodes, &options).unwrap();
        let texts = on_ranks(groups, |group| {
            let own = (group.rank() == 0).then(|| {
                let recv = group.start_recv(vec![0u8; 5], 1);
                let to_itself = group.start_exchange(vec![(0, vec![1u8])], vec![(0, vec![0])]);
                to_itself.wait().expect("no other rank takes part in it");
                recv.wait().expect_err("rank 1 sends nothing").to_string()
            });
            has_failed.wait();
            own.unwrap_or_else(|| group.barrier().expect_err("rank 0 has failed").to_string())
        });
        let late = "the deadline passed while waiting for rank 1, after 200 ms";
        let first = format!("recv (operation 1, 5 bytes) failed on rank 0: {late}");
        let told =
            "barrier (operation 1, 0 bytes) failed on rank 1: rank 0 failed first, in recv: ";
        assert_eq!(texts, [first, format!("{told}{late}")]);
    }
}

#[test]
fn all_to_all_of_uneven_parts_tells_its_bytes() {
    let options = InitOptions { timeout: Duration::from_millis(50), ..InitOptions::default() };
    let texts = on_ranks(Group::threads_with(2, &options).unwrap(), |group| match group.rank() {
        0 => group.all_to_all_v(&[0i32; 5], &[2, 3], &mut [0; 3], &[2, 1]).err(),
        _ => None,
    });
    let text = texts[0].as_ref().expect("rank 1 does not come").to_string();
    assert!(text.starts_with("all_to_all (operation 1, 20 bytes) failed on rank 0: "), "{text}");
}

#[test]
fn message_of_a_different_length_is_a_mismatch() {
    for groups in [Group::threads(2).unwrap(), Group::threads_on(&[1, 1]).unwrap()] {
        let causes = causes(groups, |group| match group.rank() {
            0 => group.send(&[0i64; 3], 1).and_then(|()| group.barrier()),
            _ => group.recv(&mut [0i64; 4], 0),
        });
        // Each rank sees its own call first, whichever has found the difference.
        for (rank, cause) in causes.into_iter().enumerate() {
            let Cause::Mismatch { own_call, peer, peer_call, .. } = cause else {
                panic!("{cause:?}")
            };
            assert_eq!((own_call.count, peer_call.count), (3 + rank as u64, 4 - rank as u64));
            assert_eq!(peer.index(), 1 - rank);
        }
    }
}

#[test]
fn deadline_names_the_late_rank() {
    let options = InitOptions { timeout: Duration::from_millis(200), ..InitOptions::default() };
    let groups = Group::threads_with(3, &options).unwrap();
    let mut causes = on_ranks(groups, |group| match group.rank() {
        1 => None,
        _ => group.barrier().err().map(|error| error.cause),
    });
    for cause in causes.drain(..).flatten() {
        assert_eq!(late_ranks(&cause), [1], "{cause:?}");
    }
}

/// Between nodes most ranks wait for a rank that itself waits.
#[test]
fn deadline_names_the_late_rank_on_every_node() {
    let options = InitOptions { timeout: Duration::from_secs(2), ..InitOptions::default() };
    for nodes in [&[2, 2][..], &[1, 1, 1, 1]] {
        let groups = Group::threads_on_with(nodes, &options).unwrap();
        let failures = AtomicUsize::new(0);
        let causes = on_ranks(groups, |group| {
            if group.rank() == 1 {
                // It computes until all other ranks have failed.
                while failures.load(Ordering::Relaxed) < 3 {
                    std::thread::sleep(Duration::from_millis(10));
                }
                return None;
            }
            let cause = group.all_reduce(&mut [1.0f32; 3000], ReduceOp::Sum).err();
            failures.fetch_add(1, Ordering::Relaxed);
            cause.map(|error| error.cause)
        });
        for cause in causes.into_iter().flatten() {
            assert_eq!(late_ranks(&cause), [1], "{nodes:?}: {cause:?}");
        }
    }
}

#[test]
fn rank_that_drops_its_group_is_reported_as_lost() {
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
fn thread_that_returns_early_fails_the_others() {
    let outcome = Group::on_threads_with(3, &InitOptions::default(), |group| {
        if group.rank() != 1 {
            group.barrier()?;
        }
        Ok(())
    });
    let error = outcome.expect_err("rank 1 returns early").to_string();
    assert!(error.contains("rank 1 on host `"), "{error}");
    assert!(error.contains("` dropped the group before it took part"), "{error}");
}

#[test]
fn call_after_a_failure_names_the_failed_operation() {
    let errors = on_ranks(Group::threads(2).unwrap(), |group| {
        let len = 3 + group.rank();
        group.all_reduce(&mut vec![0u8; len], ReduceOp::Sum).expect_err("the counts differ");
        group.barrier().expect_err("the group has failed").to_string()
    });
    let expect = "barrier (operation 2, 0 bytes) failed on rank 0: the group failed earlier, in \
                  all_reduce: ";
    assert!(errors[0].starts_with(expect), "{errors:?}");
}

#[test]
fn timeout_of_any_length_is_accepted() {
    let options = InitOptions { timeout: Duration::MAX, ..InitOptions::default() };
    let groups = Group::threads_with(2, &options).unwrap();
    on_ranks(groups, |group| group.barrier().unwrap());
}

#[test]
fn abort_ends_running_operations_on_every_rank() {
    for groups in [Group::threads(3).unwrap(), Group::threads_on(&[1, 2]).unwrap()] {
        let causes = causes(groups, |group| {
            if group.rank() == 2 {
                group.abort("test");
            }
            group.barrier()
        });
        for cause in causes {
            let Cause::Aborted { by, reason } = cause else { panic!("{cause:?}") };
            assert_eq!((by.index(), reason.as_str()), (2, "test"));
        }
    }
}

#[test]
fn panic_in_an_event_fails_its_operation_alone() {
    let group = Group::single().unwrap();
    let mut memory: SharedBuffer<f32> = group.alloc_shared(4).unwrap();
    let lent = remuda::runtime::Lend::lend(&mut memory, &(0..4));
    let work = group.submit_all_reduce(lent, DividedReduction::SUM, |_| panic!("of the caller"));
    let Err(error) = work.wait() else { panic!("the event has panicked") };
    let problem = "the operation panicked on the communication thread";
    assert_eq!(error.cause, Cause::System(problem.to_owned()));
    group.barrier().expect("later operations run");
}

#[test]
fn buffer_of_another_group_is_rejected() {
    let (group, other) = (Group::single().unwrap(), Group::single().unwrap());
    let mut buffer = other.alloc::<f32>(3000).unwrap();
    let error = group.all_reduce(&mut buffer, ReduceOp::Sum).expect_err("a different segment");
    assert_eq!(error.cause, Cause::Argument("the buffer belongs to another group".to_owned()));
}

#[test]
fn range_outside_of_its_buffer_is_rejected() {
    let group = Group::single().unwrap();
    let buffer = group.alloc::<f32>(100).unwrap();
    let error = group.start_all_reduce(buffer, 50..101, ReduceOp::Sum).wait();
    let error = error.expect_err("the buffer has 100 elements");
    let problem = "range 50..101 is outside a buffer of 100 elements";
    assert_eq!(error.cause, Cause::Argument(problem.to_owned()));
}

#[test]
fn invalid_arguments_are_rejected() {
    let group = Group::single().unwrap();
    let problem = |outcome: Result<(), CollectiveError>| match outcome {
        Err(CollectiveError { cause: Cause::Argument(problem), .. }) => problem,
        other => panic!("{other:?}"),
    };
    let no_rank_1 = "rank 1 is not in a group of size 1";
    assert_eq!(problem(group.broadcast(&mut [0u8], 1)), no_rank_1);
    let to_itself = "a rank cannot send to itself or receive from itself; use `send_recv`";
    assert_eq!(problem(group.send(&[0u8], 0)), to_itself);
    let twice = problem(group.exchange(&[(0, &[0u8][..]), (0, &[])], Vec::new()));
    assert_eq!(twice, "two messages in one direction between this rank and rank 0");
    let counts = problem(group.all_to_all_v(&[0u8; 2], &[1], &mut [0], &[1]));
    assert_eq!(counts, "expected 1 counts whose sum is 2, got 1 counts");
    let no_rank_3 = "rank 3 is not in a group of size 1";
    assert_eq!(problem(group.reduce(&mut [0u8], ReduceOp::Sum, 3)), no_rank_3);
    assert_eq!(
        problem(
            group
                .start_barrier()
                .wait()
                .and_then(|()| { group.start_all_gather(vec![0u8], vec![0; 2]).wait().map(drop) })
        ),
        "expected 1 × 1 elements, got 2"
    );
    let parts = problem(group.all_gather(&[0u8], &mut [0u8; 3]));
    assert_eq!(parts, "expected 1 × 1 elements, got 3");
    group.barrier().unwrap();
}
