//! Messages in flight: started sends and receives run together, in order for each pair of ranks.

use std::sync::Barrier;
use std::time::Duration;

use remuda::runtime::{Error, Group, InitOptions, ReduceOp};

use crate::collectives::sample::on_ranks;
use crate::support::proof::{Random, proof_cases};

/// One node, and simulated nodes that use TCP.
fn placements(world: usize) -> [Vec<Group>; 3] {
    let alone = vec![1; world];
    let pair = [world - 1, 1];
    [
        Group::threads(world).expect("threads form a group"),
        Group::threads_on(&alone).expect("simulated nodes form a group"),
        Group::threads_on(&pair).expect("simulated nodes form a group"),
    ]
}

/// Numbers of a message, different for every sender, receiver and position.
fn numbers(from: usize, to: usize, number: usize, len: usize) -> Vec<i64> {
    (0..len).map(|at| (((from * 31 + to) * 31 + number) * 1_000_003 + at) as i64).collect()
}

#[test]
fn messages_in_a_cycle_are_in_flight_together() {
    // From no element to several chunks of the staging area.
    for len in [0, 1, 1000, 300_000] {
        for groups in placements(3) {
            on_ranks(groups, |group| {
                let (rank, world) = (group.rank(), group.world_size());
                let (next, last) = ((rank + 1) % world, (rank + world - 1) % world);
                let send = group.start_send(numbers(rank, next, 0, len), next);
                let recv = group.start_recv(vec![0i64; len], last);
                assert_eq!(recv.wait().expect("a message"), numbers(last, rank, 0, len));
                assert_eq!(send.wait().expect("a receiver"), numbers(rank, next, 0, len));
            });
        }
    }
}

#[test]
fn messages_match_blocking_ones_and_buffers_in_the_segment() {
    for groups in placements(2) {
        on_ranks(groups, |group| {
            let mut buffer = group.alloc::<i32>(5000).expect("memory");
            if group.rank() == 0 {
                buffer.fill(15);
                group.start_send(buffer, 1).wait().expect("a receiver");
                let mut values = [0u8; 3];
                group.recv(&mut values, 1).expect("a message");
                assert_eq!(values, [7; 3]);
            } else {
                group.recv(&mut buffer, 0).expect("a message");
                assert!(buffer.iter().all(|value| *value == 15), "{buffer:?}");
                group.start_send(vec![7u8; 3], 0).wait().expect("a receiver");
            }
        });
    }
}

#[test]
fn messages_between_other_operations_keep_their_place() {
    for groups in placements(3) {
        on_ranks(groups, |group| {
            let (rank, world) = (group.rank(), group.world_size());
            let mut works = Vec::new();
            for round in 0..20 {
                let to = (rank + 1 + round % 2) % world;
                let from = (rank + world - 1 - round % 2) % world;
                works.push((
                    group.start_exchange(vec![(to, vec![round as i64])], vec![(from, vec![0])]),
                    group.start_all_gather(vec![rank as u8], vec![0; world]),
                ));
            }
            for (round, (exchange, gather)) in works.into_iter().enumerate() {
                assert_eq!(exchange.wait().expect("a message").1, [[round as i64]]);
                assert_eq!(gather.wait().expect("all ranks").1, [0, 1, 2]);
            }
            let mut sum = [1];
            group.all_reduce(&mut sum, ReduceOp::Sum).expect("all ranks");
            assert_eq!(sum, [3]);
        });
    }
}

#[test]
fn messages_to_oneself_are_copied() -> Result<(), Error> {
    let group = Group::single()?;
    let (values, buffers) = group
        .start_exchange(
            vec![(0, vec![1u8, 2]), (0, vec![3, 4])],
            vec![(0, vec![0; 2]), (0, vec![0; 2])],
        )
        .wait()?;
    assert_eq!(values, buffers);
    let group = Group::single()?;
    let error = group.start_exchange(vec![(0, vec![1u8])], vec![(0, vec![0; 2])]).wait();
    assert_eq!(
        error.expect_err("lengths differ").to_string(),
        "exchange (operation 1, 3 bytes) failed on rank 0: this rank sends 1 × u8 to itself, \
         but receives 2 × u8"
    );
    Ok(())
}

#[test]
fn messages_that_differ_fail() {
    for groups in placements(2) {
        let is_one_node = groups[0].placement().nodes() == 1;
        let errors = on_ranks(groups, |group| {
            let outcome = if group.rank() == 0 {
                group.start_send(vec![1.0f32; 4], 1).wait().map(drop)
            } else {
                group.start_recv(vec![0.0f64; 4], 0).wait().map(drop)
            };
            outcome.err().map(|error| error.to_string())
        });
        let expect = "recv (operation 1, 32 bytes) failed on rank 1: this rank called recv(4 × f64), \
                      but rank 0 called send(4 × f32)";
        assert_eq!(errors[1].as_deref(), Some(expect));
        // A send to another node ends when the kernel has the data.
        let expect = "send (operation 1, 16 bytes) failed on rank 0: this rank called send(4 × f32), but \
                      rank 1 called recv(4 × f64)";
        assert!(errors[0].as_deref() == Some(expect) || !is_one_node, "{errors:?}");
    }
}

#[test]
fn messages_without_a_partner_name_it_at_the_deadline() {
    let options = InitOptions { timeout: Duration::from_millis(300), ..InitOptions::default() };
    for groups in [Group::threads_with(3, &options), Group::threads_on_with(&[1, 1, 1], &options)] {
        // A rank that leaves before the deadline would be the cause.
        let all_have_failed = Barrier::new(3);
        let errors = on_ranks(groups.expect("threads form a group"), |group| {
            let recv = match group.rank() {
                0 => Some(group.start_recv(vec![0u8], 2)),
                1 => Some(group.start_recv(vec![0u8], 0)),
                _ => None,
            };
            let error = recv.map(|recv| recv.wait().expect_err("no rank sends").to_string());
            all_have_failed.wait();
            error.unwrap_or_default()
        });
        let found =
            errors.iter().any(|error| error.contains("the deadline passed while waiting for rank"));
        assert!(found, "{errors:?}");
    }
}

#[test]
fn messages_end_when_the_group_is_aborted() {
    for groups in placements(2) {
        let errors = on_ranks(groups, |group| {
            if group.rank() == 0 {
                let recv = group.start_recv(vec![0u8], 1);
                recv.wait().expect_err("the peer aborts").to_string()
            } else {
                group.abort("no data");
                String::new()
            }
        });
        assert!(errors[0].contains("rank 1 aborted the group: no data"), "{errors:?}");
    }
}

#[test]
fn messages_are_checked_before_they_start() -> Result<(), Error> {
    let group = Group::single()?;
    let error = group.start_send(vec![0u8], 0).wait().expect_err("a send to itself");
    let expect = "send failed on rank 0: a rank cannot send to itself or receive from itself; use `send_recv`";
    assert_eq!(error.to_string(), expect);
    let error = group.start_recv(vec![0u8], 3).wait().expect_err("no such rank");
    assert_eq!(error.to_string(), "recv failed on rank 0: rank 3 is not in a group of size 1");
    group.barrier()?;
    Ok(())
}

#[test]
fn prove_messages_in_flight() {
    let mut random = Random::from_seed();
    for _ in 0..proof_cases(40) {
        let world = 2 + random.below(3);
        // Lengths of the messages of every pair, in order; both sides start them in orders of their own.
        let mut lens = vec![vec![Vec::new(); world]; world];
        for (from, to) in (0..world).flat_map(|from| (0..world).map(move |to| (from, to))) {
            for _ in 0..random.below(4) {
                lens[from][to].push([0, 1, 17, 4096, 70_000][random.below(5)]);
            }
        }
        let groups = placements(world).into_iter().nth(random.below(3));
        let seeds: Vec<u64> = (0..world).map(|_| random.below(1 << 30) as u64).collect();
        on_ranks(groups.expect("three placements"), |group| {
            check_messages(group, &lens, Random::new(seeds[group.rank()]));
        });
    }
}

/// Messages of one direction with one rank that are not started yet.
struct Unstarted<'a> {
    is_send: bool,
    peer: usize,
    number: usize,
    lens: &'a [usize],
}

/// Starts all messages of this rank, `lens[from][to]`, in random order, and checks what arrives.
fn check_messages(group: &Group, lens: &[Vec<Vec<usize>>], mut random: Random) {
    let rank = group.rank();
    let queue = |is_send, peer: usize| {
        let (from, to) = if is_send { (rank, peer) } else { (peer, rank) };
        Unstarted { is_send, peer, number: 0, lens: &lens[from][to] }
    };
    let mut queues: Vec<_> =
        (0..lens.len()).flat_map(|peer| [queue(true, peer), queue(false, peer)]).collect();
    queues.retain(|queue| !queue.lens.is_empty());
    let (mut sends, mut recvs) = (Vec::new(), Vec::new());
    while !queues.is_empty() {
        let at = random.below(queues.len());
        let Unstarted { is_send, peer, number, lens } = &mut queues[at];
        let len = lens[*number];
        if *is_send {
            let values = vec![(*peer, numbers(rank, *peer, *number, len))];
            sends.push(group.start_exchange::<i64, _, Vec<i64>>(values, Vec::new()));
        } else {
            let buffer = vec![(*peer, vec![0; len])];
            let work = group.start_exchange::<i64, Vec<i64>, _>(Vec::new(), buffer);
            recvs.push((numbers(*peer, rank, *number, len), work));
        }
        *number += 1;
        if *number == lens.len() {
            queues.swap_remove(at);
        }
    }
    for (expect, work) in recvs {
        assert_eq!(work.wait().expect("a message").1, [expect]);
    }
    for work in sends {
        work.wait().expect("a receiver");
    }
}
