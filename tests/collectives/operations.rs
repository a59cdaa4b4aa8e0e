//! Results of every operation, on slices and on buffers in shared memory.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use remuda::runtime::{Bf16, F16, Group, InitOptions, ReduceOp, ReduceOrder};

use crate::collectives::sample::{
    LARGE, OPS, SIZES, Sample, assert_bits, on_ranks, reduced, values,
};

/// Group of threads on simulated nodes with the settings of real machines: several streams for each
/// connection, and overlapping rounds.
pub(crate) fn as_machines(nodes: &[usize], streams: u8) -> Vec<Group> {
    let streams = NonZero::new(streams);
    let options = InitOptions { streams, overlap: Some(true), ..InitOptions::default() };
    Group::threads_on_with(nodes, &options).unwrap()
}

/// On any rank, because the placement determines which rank reduces which data.
#[test]
fn min_and_max_propagate_nan_from_any_rank() {
    for nan_rank in 0..3 {
        for op in [ReduceOp::Min, ReduceOp::Max] {
            let found = on_ranks(Group::threads_on(&[2, 1]).unwrap(), |group| {
                let is_nan = group.rank() == nan_rank;
                let mut values = [if is_nan { f32::NAN } else { group.rank() as f32 }, 1.0];
                group.all_reduce(&mut values, op).unwrap();
                values
            });
            for [nan, one] in found {
                assert!(nan.is_nan() && (one - 1.0).abs() < f32::EPSILON, "{op} {nan_rank}: {nan}");
            }
        }
    }
}

#[track_caller]
pub(crate) fn check_reductions<T: Sample>(groups: Vec<Group>, sizes: &[usize]) {
    let world = groups.len();
    let expected: Vec<Vec<Vec<T>>> = sizes
        .iter()
        .map(|count| OPS.iter().map(|op| reduced(*op, world, *count)).collect())
        .collect();
    on_ranks(groups, |group| {
        for (count, expected) in sizes.iter().zip(&expected) {
            for (op, expected) in OPS.iter().zip(expected) {
                let what = (T::DTYPE, op, world, group.rank(), count);
                let mut plain = values::<T>(group.rank(), *count);
                let mut buffer = group.alloc::<T>(*count).unwrap();
                buffer.copy_from_slice(&plain);
                group.all_reduce(&mut plain, *op).unwrap();
                assert_bits(&plain, expected, &what);
                group.all_reduce(&mut buffer, *op).unwrap();
                assert_bits(&buffer, expected, &what);
            }
        }
    });
}

#[track_caller]
pub(crate) fn check_scatter<T: Sample>(groups: Vec<Group>, parts: &[usize]) {
    let world = groups.len();
    on_ranks(groups, |group| {
        for part in parts {
            let what = (T::DTYPE, world, group.rank(), part);
            let mine = group.rank() * part..(group.rank() + 1) * part;
            let all = values::<T>(group.rank(), world * part);
            let mut ours = vec![T::sample(0); *part];
            group.reduce_scatter(&all, &mut ours, ReduceOp::Sum).unwrap();
            assert_bits(&ours, &reduced::<T>(ReduceOp::Sum, world, world * part)[mine], &what);
            let mut gathered = vec![T::sample(0); world * part];
            group.all_gather(&values::<T>(group.rank(), *part), &mut gathered).unwrap();
            let expect: Vec<T> = (0..world).flat_map(|rank| values(rank, *part)).collect();
            assert_bits(&gathered, &expect, &what);
        }
    });
}

#[track_caller]
pub(crate) fn check_broadcast<T: Sample>(groups: Vec<Group>, sizes: &[usize]) {
    let world = groups.len();
    on_ranks(groups, |group| {
        for count in sizes {
            for root in 0..world {
                let what = (T::DTYPE, world, group.rank(), root, count);
                let mut plain = values::<T>(group.rank(), *count);
                let mut buffer = group.alloc::<T>(*count).unwrap();
                buffer.copy_from_slice(&plain);
                group.broadcast(&mut plain, root).unwrap();
                assert_bits(&plain, &values::<T>(root, *count), &what);
                group.broadcast(&mut buffer, root).unwrap();
                assert_bits(&buffer, &values::<T>(root, *count), &what);
            }
        }
    });
}

/// Every rank in turn sends to its right neighbour, so that ranks cannot deadlock in a cycle.
#[track_caller]
pub(crate) fn check_messages<T: Sample>(groups: Vec<Group>, sizes: &[usize]) {
    let world = groups.len();
    on_ranks(groups, |group| {
        let rank = group.rank();
        for count in sizes {
            for turn in 0..world {
                let next = (turn + 1) % world;
                if rank == turn {
                    group.send(&values::<T>(rank, *count), next).unwrap();
                }
                if rank == next {
                    let mut received = vec![T::sample(0); *count];
                    group.recv(&mut received, turn).unwrap();
                    assert_bits(&received, &values::<T>(turn, *count), &(world, turn, count));
                }
            }
        }
    });
}

#[test]
fn reductions_on_one_node_match_the_definition() {
    for world in 1..=9 {
        check_reductions::<f32>(Group::threads(world).unwrap(), &SIZES);
        check_reductions::<f64>(Group::threads(world).unwrap(), &SIZES);
        check_reductions::<i32>(Group::threads(world).unwrap(), &SIZES);
        check_reductions::<i64>(Group::threads(world).unwrap(), &SIZES);
        check_reductions::<u8>(Group::threads(world).unwrap(), &SIZES);
        check_reductions::<F16>(Group::threads(world).unwrap(), &SIZES);
        check_reductions::<Bf16>(Group::threads(world).unwrap(), &SIZES);
    }
}

#[test]
fn large_reductions_on_one_node_match_the_definition() {
    for world in [2, 3, 5] {
        check_reductions::<f32>(Group::threads(world).unwrap(), &[LARGE]);
    }
    check_reductions::<u8>(Group::threads(2).unwrap(), &[1_200_001]);
}

#[test]
fn reductions_over_tcp_match_the_definition() {
    for nodes in [&[1, 1][..], &[1, 1, 1], &[2, 2], &[3, 1], &[1, 2, 3], &[4, 4, 1]] {
        check_reductions::<f32>(Group::threads_on(nodes).unwrap(), &SIZES);
        check_reductions::<i64>(Group::threads_on(nodes).unwrap(), &SIZES);
        check_reductions::<F16>(Group::threads_on(nodes).unwrap(), &SIZES);
    }
    check_reductions::<f32>(Group::threads_on(&[2, 1]).unwrap(), &[LARGE]);
}

/// Several rounds are in progress at once, and each message is sent on several streams.
#[test]
fn operations_in_many_rounds_over_many_streams_are_exact() {
    for (nodes, streams) in [(&[1, 1][..], 3), (&[2, 1], 16), (&[1, 3, 2], 2)] {
        let groups = || as_machines(nodes, streams);
        check_reductions::<f32>(groups(), &[1_100_003]);
        check_reductions::<Bf16>(groups(), &[1_700_001]);
        check_scatter::<i32>(groups(), &[300_007]);
        check_broadcast::<u8>(groups(), &[2_500_009]);
        check_messages::<f64>(groups(), &[0, 1, 200_001]);
    }
}

/// Checks that several slices, also empty ones, have the same result as a single slice.
#[track_caller]
fn check_grouped(groups: Vec<Group>, count: usize) {
    let world = groups.len();
    let expected = reduced::<f32>(ReduceOp::Sum, world, count);
    on_ranks(groups, |group| {
        let what = (world, group.rank(), count);
        let split = |values: &mut Vec<f32>, call: &dyn Fn(&mut [&mut [f32]])| {
            let (first, rest) = values.split_at_mut(count / 3);
            let (second, third) = rest.split_at_mut(count / 2);
            call(&mut [first, &mut [], second, third]);
        };
        let mut summed = values::<f32>(group.rank(), count);
        split(&mut summed, &|slices| group.all_reduce(slices, ReduceOp::Sum).unwrap());
        assert_bits(&summed, &expected, &what);
        let mut copied = values::<f32>(group.rank(), count);
        split(&mut copied, &|slices| group.broadcast(slices, world - 1).unwrap());
        assert_bits(&copied, &values::<f32>(world - 1, count), &what);
        let mut reduced = values::<f32>(group.rank(), count);
        split(&mut reduced, &|slices| group.reduce(slices, ReduceOp::Sum, 0).unwrap());
        let is_root = group.rank() == 0;
        let expected = if is_root { expected.clone() } else { values(group.rank(), count) };
        assert_bits(&reduced, &expected, &what);
    });
}

#[test]
fn several_slices_are_one_operation() {
    for count in [0, 1, 7, 1023, 5000, 300_001] {
        check_grouped(Group::threads(3).unwrap(), count);
        check_grouped(as_machines(&[1, 2], 2), count);
    }
}

/// Integers have the same sum in any order; float sums have the same bits on all ranks, and are close to
/// the canonical ones.
#[test]
fn reductions_in_any_order_are_equal_on_all_ranks() {
    let options = InitOptions { order: ReduceOrder::Any, ..InitOptions::default() };
    for nodes in [&[1, 1][..], &[1, 1, 1], &[3, 1, 2, 2]] {
        let groups = || Group::threads_on_with(nodes, &options).unwrap();
        check_reductions::<i64>(groups(), &[0, 1, 7, 5000, 270_001]);
        let count = 30_011;
        let world = nodes.iter().sum();
        let expected = reduced::<f32>(ReduceOp::Avg, world, count);
        let sums = on_ranks(groups(), |group| {
            let mut plain = values::<f32>(group.rank(), count);
            group.all_reduce(&mut plain, ReduceOp::Avg).unwrap();
            plain
        });
        for sum in &sums {
            assert_bits(sum, &sums[0], &nodes);
            for (sum, expected) in sum.iter().zip(&expected) {
                assert!(
                    (sum - expected).abs() <= 1e-4 * expected.abs().max(1.0),
                    "{sum} {expected}"
                );
            }
        }
    }
}

#[test]
fn reduce_scatter_and_all_gather_match_the_definition() {
    for world in [1, 2, 3, 4, 9] {
        check_scatter::<f32>(Group::threads(world).unwrap(), &[0, 1, 1023]);
        check_scatter::<u8>(Group::threads(world).unwrap(), &[0, 1, 1023]);
    }
    for nodes in [&[1, 1][..], &[2, 2], &[1, 2, 3]] {
        check_scatter::<Bf16>(Group::threads_on(nodes).unwrap(), &[0, 1, 1023, 70_001]);
        check_scatter::<f64>(Group::threads_on(nodes).unwrap(), &[0, 1, 1023, 70_001]);
    }
}

#[test]
fn broadcasts_match_the_definition() {
    for world in 1..=9 {
        check_broadcast::<f32>(Group::threads(world).unwrap(), &SIZES);
    }
    for nodes in [&[1, 1][..], &[2, 2], &[1, 2, 3]] {
        check_broadcast::<i32>(Group::threads_on(nodes).unwrap(), &SIZES);
    }
    check_broadcast::<f32>(Group::threads_on(&[2, 1]).unwrap(), &[LARGE]);
}

#[test]
fn messages_arrive_unchanged() {
    for world in 2..=4 {
        check_messages::<f32>(Group::threads(world).unwrap(), &SIZES);
    }
    for nodes in [&[1, 1][..], &[2, 2], &[1, 2]] {
        check_messages::<f64>(Group::threads_on(nodes).unwrap(), &SIZES);
        check_messages::<f32>(Group::threads_on(nodes).unwrap(), &[LARGE]);
    }
}

/// Every rank sends to its right neighbour and receives from the left one, all at once.
#[track_caller]
pub(crate) fn check_ring<T: Sample>(groups: Vec<Group>, sizes: &[usize]) {
    let world = groups.len();
    on_ranks(groups, |group| {
        let (rank, left) = (group.rank(), (group.rank() + world - 1) % world);
        for count in sizes {
            // Messages of a ring have different lengths.
            let mut received = vec![T::sample(0); count + left];
            let ours = values::<T>(rank, count + rank);
            group.send_recv(&ours, (rank + 1) % world, &mut received, left).unwrap();
            assert_bits(&received, &values::<T>(left, count + left), &(world, rank, count));
            let mut buffer = group.alloc::<T>(count + rank).unwrap();
            buffer.copy_from_slice(&ours);
            received.fill(T::sample(0));
            group.send_recv(&buffer, (rank + 1) % world, &mut received, left).unwrap();
            assert_bits(&received, &values::<T>(left, count + left), &(world, rank, count));
        }
    });
}

/// Part `r` of every rank is sent to rank `r`; also with parts of different lengths.
#[track_caller]
pub(crate) fn check_all_to_all<T: Sample>(groups: Vec<Group>, parts: &[usize]) {
    let world = groups.len();
    let len = |from: usize, to: usize| (from * 7 + to * 3) % 11;
    on_ranks(groups, |group| {
        let rank = group.rank();
        for part in parts {
            let mut output = vec![T::sample(0); world * part];
            group.all_to_all(&values::<T>(rank, world * part), &mut output).unwrap();
            let mine = |from| values::<T>(from, world * part)[rank * part..][..*part].to_vec();
            let expect: Vec<T> = (0..world).flat_map(mine).collect();
            assert_bits(&output, &expect, &(world, rank, part));
            let send_counts: Vec<usize> = (0..world).map(|to| part * len(rank, to)).collect();
            let recv_counts: Vec<usize> = (0..world).map(|from| part * len(from, rank)).collect();
            let input: Vec<T> = send_counts.iter().flat_map(|len| values(rank, *len)).collect();
            let mut output = vec![T::sample(0); recv_counts.iter().sum()];
            group.all_to_all_v(&input, &send_counts, &mut output, &recv_counts).unwrap();
            let expect =
                recv_counts.iter().enumerate().flat_map(|(from, len)| values::<T>(from, *len));
            assert_bits(&output, &expect.collect::<Vec<T>>(), &(world, rank, part));
        }
    });
}

/// Gather, scatter and reduce with every rank as the root; the data of other ranks does not change.
#[track_caller]
pub(crate) fn check_rooted<T: Sample>(groups: Vec<Group>, parts: &[usize]) {
    let world = groups.len();
    on_ranks(groups, |group| {
        let rank = group.rank();
        for (part, root) in parts.iter().flat_map(|part| (0..world).map(move |root| (*part, root)))
        {
            let what = (T::DTYPE, world, rank, part, root);
            let ours = values::<T>(rank, part);
            let gathered: Vec<T> = (0..world).flat_map(|from| values(from, part)).collect();
            let mut all = vec![T::sample(0); if rank == root { world * part } else { 0 }];
            group.gather(&ours, &mut all, root).unwrap();
            assert_bits(&all, if rank == root { &gathered } else { &[] }, &what);
            let mut scattered = vec![T::sample(0); part];
            group.scatter(&all, &mut scattered, root).unwrap();
            assert_bits(&scattered, &ours, &what);
            let sum = if rank == root { reduced(ReduceOp::Sum, world, part) } else { ours.clone() };
            let mut buffer = group.alloc::<T>(part).unwrap();
            buffer.copy_from_slice(&ours);
            let mut plain = ours.clone();
            group.reduce(&mut plain, ReduceOp::Sum, root).unwrap();
            assert_bits(&plain, &sum, &what);
            group.reduce(&mut buffer, ReduceOp::Sum, root).unwrap();
            assert_bits(&buffer, &sum, &what);
        }
    });
}

#[test]
fn messages_around_a_ring_arrive_unchanged() {
    for world in 1..=9 {
        check_ring::<f32>(Group::threads(world).unwrap(), &SIZES);
    }
    check_ring::<u8>(Group::threads(3).unwrap(), &[1_200_001]);
    for nodes in [&[1, 1][..], &[2, 2], &[1, 2], &[1, 1, 1], &[3, 1, 2]] {
        check_ring::<f64>(Group::threads_on(nodes).unwrap(), &SIZES);
        check_ring::<i32>(Group::threads_on(nodes).unwrap(), &[LARGE]);
    }
}

#[test]
fn all_to_all_matches_the_definition() {
    for world in 1..=9 {
        check_all_to_all::<i32>(Group::threads(world).unwrap(), &[0, 1, 1023]);
    }
    check_all_to_all::<f64>(Group::threads(3).unwrap(), &[70_001]);
    for nodes in [&[1, 1][..], &[2, 2], &[1, 2, 3]] {
        check_all_to_all::<u8>(Group::threads_on(nodes).unwrap(), &[0, 1, 1023, 70_001]);
    }
}

#[test]
fn gather_scatter_and_reduce_match_the_definition() {
    for world in 1..=9 {
        check_rooted::<f32>(Group::threads(world).unwrap(), &[0, 1, 1023]);
    }
    check_rooted::<f64>(Group::threads(3).unwrap(), &[70_001]);
    for nodes in [&[1, 1][..], &[2, 2], &[1, 2, 3]] {
        check_rooted::<f32>(Group::threads_on(nodes).unwrap(), &[0, 1, 1023, 70_001]);
    }
}

/// Every rank exchanges messages with the ranks at distances 1, 3 and 4.
#[test]
fn exchange_transfers_several_messages_at_once() {
    for groups in [Group::threads(6).unwrap(), Group::threads_on(&[2, 1, 3]).unwrap()] {
        on_ranks(groups, |group| {
            let rank = group.rank();
            let peers_at = |step: &usize| ((rank + step) % 6, (rank + 6 - step) % 6);
            let ours = values::<f32>(rank, 200_000);
            let mut buffers = vec![vec![0.0f32; 200_000]; 3];
            let peers: Vec<_> = [1, 4, 3].iter().map(peers_at).collect();
            let sends: Vec<_> = peers.iter().map(|(to, _)| (*to, &ours[..])).collect();
            let recvs =
                peers.iter().zip(&mut buffers).map(|((_, from), buffer)| (*from, &mut buffer[..]));
            group.exchange(&sends, recvs.collect()).unwrap();
            for ((_, from), buffer) in peers.iter().zip(&buffers) {
                assert_bits(buffer, &values::<f32>(*from, 200_000), &(rank, from));
            }
        });
    }
}

#[test]
fn started_operations_return_their_memory_with_the_result() {
    for groups in [Group::threads(3).unwrap(), Group::threads_on(&[1, 2]).unwrap()] {
        on_ranks(groups, |group| {
            let rank = group.rank() as i32;
            let next = (group.rank() + 1) % 3;
            let reduce = group.start_reduce(vec![rank; 3], ReduceOp::Max, 1);
            let broadcast = group.start_broadcast(vec![rank; 2], 2);
            let all_gather = group.start_all_gather(vec![rank], vec![0; 3]);
            let scatter = group.start_reduce_scatter(vec![rank; 3], vec![0], ReduceOp::Sum);
            let gather = group.start_gather(vec![rank], vec![0; 3], 0);
            let root_scatter = group.start_scatter(vec![5, 6, 7], vec![0], 0);
            let transpose = group.start_all_to_all(vec![rank; 3], vec![0; 3]);
            let ring = group.start_send_recv(vec![rank], next, vec![0], (group.rank() + 2) % 3);
            group.start_barrier().wait().unwrap();
            assert_eq!(reduce.wait().unwrap(), [if rank == 1 { 2 } else { rank }; 3]);
            assert_eq!(broadcast.wait().unwrap(), [2, 2]);
            assert_eq!(all_gather.wait().unwrap().1, [0, 1, 2]);
            assert_eq!(scatter.wait().unwrap().1, [3]);
            assert_eq!(gather.wait().unwrap().1, if rank == 0 { [0, 1, 2] } else { [0; 3] });
            assert_eq!(root_scatter.wait().unwrap().1, [5 + rank]);
            assert_eq!(transpose.wait().unwrap().1, [0, 1, 2]);
            assert_eq!(ring.wait().unwrap().1, [(rank + 2) % 3]);
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn reductions_have_the_same_bits_for_every_placement(
        nodes in proptest::collection::vec(1usize..4, 1..5),
        count in 0usize..3000,
    ) {
        check_reductions::<f32>(Group::threads_on(&nodes).unwrap(), &[count]);
    }
}

#[test]
fn barrier_waits_for_all_ranks() {
    for groups in [Group::threads(5).unwrap(), Group::threads_on(&[2, 3]).unwrap()] {
        let arrivals = AtomicUsize::new(0);
        on_ranks(groups, |group| {
            for round in 1..50 {
                arrivals.fetch_add(1, Ordering::SeqCst);
                group.barrier().unwrap();
                assert!(round * 5 <= arrivals.load(Ordering::SeqCst));
            }
        });
    }
}

#[test]
fn started_operations_run_in_order_and_return_buffers() {
    on_ranks(Group::threads_on(&[2, 1]).unwrap(), |group| {
        let work: Vec<_> = (1..4)
            .map(|step| {
                let mut buffer = group.alloc::<i32>(1000).unwrap();
                buffer.fill(step);
                group.start_all_reduce(buffer, 10..1000, ReduceOp::Sum)
            })
            .collect();
        // A blocking operation waits for those that were started before it.
        let mut after = [1i32];
        group.all_reduce(&mut after, ReduceOp::Sum).unwrap();
        assert_eq!(after, [3]);
        for (step, mut work) in (1..4).zip(work) {
            assert!(work.is_completed());
            let buffer = work.wait().unwrap();
            assert_eq!((buffer[0], buffer[10], buffer[999]), (step, 3 * step, 3 * step));
        }
    });
}
