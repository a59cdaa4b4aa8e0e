//! Every operation, with numbers that lie anywhere and in shared memory.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use remuda::runtime::{Bf16, F16, Group, InitOptions, ReduceOp, ReduceOrder};

use crate::sample::{LARGE, OPS, SIZES, Sample, assert_bits, on_ranks, reduced, values};

/// Threads on pretended nodes that talk as machines do: over so many streams, in rounds that overlap.
pub(crate) fn as_machines(nodes: &[usize], streams: u8) -> Vec<Group> {
    let streams = NonZero::new(streams);
    let options = InitOptions { streams, overlap: Some(true), ..InitOptions::default() };
    Group::threads_on_with(nodes, &options).unwrap()
}

/// Wherever it is: who folds what depends on the placement.
#[test]
fn what_is_no_number_stays_none() {
    for culprit in 0..3 {
        for op in [ReduceOp::Min, ReduceOp::Max] {
            let found = on_ranks(Group::threads_on(&[2, 1]).unwrap(), |group| {
                let is_culprit = group.rank() == culprit;
                let mut values = [if is_culprit { f32::NAN } else { group.rank() as f32 }, 1.0];
                group.all_reduce(&mut values, op).unwrap();
                values
            });
            for [none, one] in found {
                assert!(
                    none.is_nan() && (one - 1.0).abs() < f32::EPSILON,
                    "{op} {culprit}: {none}"
                );
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

/// Every rank sends to its right neighbour, in turn, so that nobody waits in a circle.
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
                    let mut taken = vec![T::sample(0); *count];
                    group.recv(&mut taken, turn).unwrap();
                    assert_bits(&taken, &values::<T>(turn, *count), &(world, turn, count));
                }
            }
        }
    });
}

#[test]
fn reductions_on_one_node() {
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
fn large_reductions_on_one_node() {
    for world in [2, 3, 5] {
        check_reductions::<f32>(Group::threads(world).unwrap(), &[LARGE]);
    }
    check_reductions::<u8>(Group::threads(2).unwrap(), &[1_200_001]);
}

#[test]
fn reductions_over_tcp() {
    for nodes in [&[1, 1][..], &[1, 1, 1], &[2, 2], &[3, 1], &[1, 2, 3], &[4, 4, 1]] {
        check_reductions::<f32>(Group::threads_on(nodes).unwrap(), &SIZES);
        check_reductions::<i64>(Group::threads_on(nodes).unwrap(), &SIZES);
        check_reductions::<F16>(Group::threads_on(nodes).unwrap(), &SIZES);
    }
    check_reductions::<f32>(Group::threads_on(&[2, 1]).unwrap(), &[LARGE]);
}

/// Several rounds are under way at once, and each message goes over several streams.
#[test]
fn reductions_in_many_rounds_over_many_streams() {
    for (nodes, streams) in [(&[1, 1][..], 3), (&[2, 1], 16), (&[1, 3, 2], 2)] {
        let groups = || as_machines(nodes, streams);
        check_reductions::<f32>(groups(), &[1_100_003]);
        check_reductions::<Bf16>(groups(), &[1_700_001]);
        check_scatter::<i32>(groups(), &[300_007]);
        check_broadcast::<u8>(groups(), &[2_500_009]);
        check_messages::<f64>(groups(), &[0, 1, 200_001]);
    }
}

/// Cut anywhere, also into nothing: the same as in one piece.
#[track_caller]
fn check_grouped(groups: Vec<Group>, count: usize) {
    let world = groups.len();
    let expected = reduced::<f32>(ReduceOp::Sum, world, count);
    on_ranks(groups, |group| {
        let what = (world, group.rank(), count);
        let cut = |values: &mut Vec<f32>, call: &dyn Fn(&mut [&mut [f32]])| {
            let (first, rest) = values.split_at_mut(count / 3);
            let (second, third) = rest.split_at_mut(count / 2);
            call(&mut [first, &mut [], second, third]);
        };
        let mut summed = values::<f32>(group.rank(), count);
        cut(&mut summed, &|slices| group.all_reduce(slices, ReduceOp::Sum).unwrap());
        assert_bits(&summed, &expected, &what);
        let mut given = values::<f32>(group.rank(), count);
        cut(&mut given, &|slices| group.broadcast(slices, world - 1).unwrap());
        assert_bits(&given, &values::<f32>(world - 1, count), &what);
        let mut taken = values::<f32>(group.rank(), count);
        cut(&mut taken, &|slices| group.reduce(slices, ReduceOp::Sum, 0).unwrap());
        let root = group.rank() == 0;
        let expected = if root { expected.clone() } else { values(group.rank(), count) };
        assert_bits(&taken, &expected, &what);
    });
}

#[test]
fn several_slices_are_one_operation() {
    for count in [0, 1, 7, 1023, 5000, 300_001] {
        check_grouped(Group::threads(3).unwrap(), count);
        check_grouped(as_machines(&[1, 2], 2), count);
    }
}

/// Whole numbers have the same sum in any order; all ranks see the same bits of others, which are near.
#[test]
fn reductions_in_any_order() {
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
fn gathering_and_scattering() {
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
fn broadcasting() {
    for world in 1..=9 {
        check_broadcast::<f32>(Group::threads(world).unwrap(), &SIZES);
    }
    for nodes in [&[1, 1][..], &[2, 2], &[1, 2, 3]] {
        check_broadcast::<i32>(Group::threads_on(nodes).unwrap(), &SIZES);
    }
    check_broadcast::<f32>(Group::threads_on(&[2, 1]).unwrap(), &[LARGE]);
}

#[test]
fn messages() {
    for world in 2..=4 {
        check_messages::<f32>(Group::threads(world).unwrap(), &SIZES);
    }
    for nodes in [&[1, 1][..], &[2, 2], &[1, 2]] {
        check_messages::<f64>(Group::threads_on(nodes).unwrap(), &SIZES);
        check_messages::<f32>(Group::threads_on(nodes).unwrap(), &[LARGE]);
    }
}

/// Every rank gives to its right neighbour and takes from the left one, all at once.
#[track_caller]
pub(crate) fn check_ring<T: Sample>(groups: Vec<Group>, sizes: &[usize]) {
    let world = groups.len();
    on_ranks(groups, |group| {
        let (rank, left) = (group.rank(), (group.rank() + world - 1) % world);
        for count in sizes {
            // Messages of a ring have different lengths.
            let mut taken = vec![T::sample(0); count + left];
            let ours = values::<T>(rank, count + rank);
            group.send_recv(&ours, (rank + 1) % world, &mut taken, left).unwrap();
            assert_bits(&taken, &values::<T>(left, count + left), &(world, rank, count));
            let mut buffer = group.alloc::<T>(count + rank).unwrap();
            buffer.copy_from_slice(&ours);
            taken.fill(T::sample(0));
            group.send_recv(&buffer, (rank + 1) % world, &mut taken, left).unwrap();
            assert_bits(&taken, &values::<T>(left, count + left), &(world, rank, count));
        }
    });
}

/// Part `r` of every rank goes to rank `r`; also with parts whose lengths all differ.
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
            let sent: Vec<usize> = (0..world).map(|to| part * len(rank, to)).collect();
            let taken: Vec<usize> = (0..world).map(|from| part * len(from, rank)).collect();
            let input: Vec<T> = sent.iter().flat_map(|len| values(rank, *len)).collect();
            let mut output = vec![T::sample(0); taken.iter().sum()];
            group.all_to_all_v(&input, &sent, &mut output, &taken).unwrap();
            let expect = taken.iter().enumerate().flat_map(|(from, len)| values::<T>(from, *len));
            assert_bits(&output, &expect.collect::<Vec<T>>(), &(world, rank, part));
        }
    });
}

/// To every root and back; the other ranks keep what they have.
#[track_caller]
pub(crate) fn check_rooted<T: Sample>(groups: Vec<Group>, parts: &[usize]) {
    let world = groups.len();
    on_ranks(groups, |group| {
        let rank = group.rank();
        for (part, root) in parts.iter().flat_map(|part| (0..world).map(move |root| (*part, root)))
        {
            let what = (T::DTYPE, world, rank, part, root);
            let ours = values::<T>(rank, part);
            let everybody: Vec<T> = (0..world).flat_map(|from| values(from, part)).collect();
            let mut all = vec![T::sample(0); if rank == root { world * part } else { 0 }];
            group.gather(&ours, &mut all, root).unwrap();
            assert_bits(&all, if rank == root { &everybody } else { &[] }, &what);
            let mut back = vec![T::sample(0); part];
            group.scatter(&all, &mut back, root).unwrap();
            assert_bits(&back, &ours, &what);
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
fn rings() {
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
fn parts_for_everybody() {
    for world in 1..=9 {
        check_all_to_all::<i32>(Group::threads(world).unwrap(), &[0, 1, 1023]);
    }
    check_all_to_all::<f64>(Group::threads(3).unwrap(), &[70_001]);
    for nodes in [&[1, 1][..], &[2, 2], &[1, 2, 3]] {
        check_all_to_all::<u8>(Group::threads_on(nodes).unwrap(), &[0, 1, 1023, 70_001]);
    }
}

#[test]
fn to_a_root_and_back() {
    for world in 1..=9 {
        check_rooted::<f32>(Group::threads(world).unwrap(), &[0, 1, 1023]);
    }
    check_rooted::<f64>(Group::threads(3).unwrap(), &[70_001]);
    for nodes in [&[1, 1][..], &[2, 2], &[1, 2, 3]] {
        check_rooted::<f32>(Group::threads_on(nodes).unwrap(), &[0, 1, 1023, 70_001]);
    }
}

/// Everybody gives to everybody whose distance is a square, whatever lies in between.
#[test]
fn messages_to_several_at_once() {
    for groups in [Group::threads(6).unwrap(), Group::threads_on(&[2, 1, 3]).unwrap()] {
        on_ranks(groups, |group| {
            let rank = group.rank();
            let near = |step: &usize| ((rank + step) % 6, (rank + 6 - step) % 6);
            let ours = values::<f32>(rank, 200_000);
            let mut rooms = vec![vec![0.0f32; 200_000]; 3];
            let peers: Vec<_> = [1, 4, 3].iter().map(near).collect();
            let sends: Vec<_> = peers.iter().map(|(to, _)| (*to, &ours[..])).collect();
            let recvs =
                peers.iter().zip(&mut rooms).map(|((_, from), room)| (*from, &mut room[..]));
            group.exchange(&sends, recvs.collect()).unwrap();
            for ((_, from), room) in peers.iter().zip(&rooms) {
                assert_bits(room, &values::<f32>(*from, 200_000), &(rank, from));
            }
        });
    }
}

#[test]
fn every_started_operation_gives_what_it_was_given() {
    for groups in [Group::threads(3).unwrap(), Group::threads_on(&[1, 2]).unwrap()] {
        on_ranks(groups, |group| {
            let rank = group.rank() as i32;
            let next = (group.rank() + 1) % 3;
            let reduce = group.start_reduce(vec![rank; 3], ReduceOp::Max, 1);
            let broadcast = group.start_broadcast(vec![rank; 2], 2);
            let all_gather = group.start_all_gather(vec![rank], vec![0; 3]);
            let scatter = group.start_reduce_scatter(vec![rank; 3], vec![0], ReduceOp::Sum);
            let gather = group.start_gather(vec![rank], vec![0; 3], 0);
            let back = group.start_scatter(vec![5, 6, 7], vec![0], 0);
            let transpose = group.start_all_to_all(vec![rank; 3], vec![0; 3]);
            let ring = group.start_send_recv(vec![rank], next, vec![0], (group.rank() + 2) % 3);
            group.start_barrier().wait().unwrap();
            assert_eq!(reduce.wait().unwrap(), [if rank == 1 { 2 } else { rank }; 3]);
            assert_eq!(broadcast.wait().unwrap(), [2, 2]);
            assert_eq!(all_gather.wait().unwrap().1, [0, 1, 2]);
            assert_eq!(scatter.wait().unwrap().1, [3]);
            assert_eq!(gather.wait().unwrap().1, if rank == 0 { [0, 1, 2] } else { [0; 3] });
            assert_eq!(back.wait().unwrap().1, [5 + rank]);
            assert_eq!(transpose.wait().unwrap().1, [0, 1, 2]);
            assert_eq!(ring.wait().unwrap().1, [(rank + 2) % 3]);
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// The sum does not know where ranks run.
    #[test]
    fn any_placement_gives_the_same_bits(
        nodes in proptest::collection::vec(1usize..4, 1..5),
        count in 0usize..3000,
    ) {
        check_reductions::<f32>(Group::threads_on(&nodes).unwrap(), &[count]);
    }
}

#[test]
fn nobody_leaves_a_barrier_before_everybody_has_come() {
    for groups in [Group::threads(5).unwrap(), Group::threads_on(&[2, 3]).unwrap()] {
        let came = AtomicUsize::new(0);
        on_ranks(groups, |group| {
            for round in 1..50 {
                came.fetch_add(1, Ordering::SeqCst);
                group.barrier().unwrap();
                assert!(round * 5 <= came.load(Ordering::SeqCst));
            }
        });
    }
}

#[test]
fn started_operations_run_in_order_and_give_their_buffers_back() {
    on_ranks(Group::threads_on(&[2, 1]).unwrap(), |group| {
        let work: Vec<_> = (1..4)
            .map(|step| {
                let mut buffer = group.alloc::<i32>(1000).unwrap();
                buffer.fill(step);
                group.start_all_reduce(buffer, 10..1000, ReduceOp::Sum)
            })
            .collect();
        // Waits for those before it.
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
