//! Goal: every operation gives what its plain definition gives, bit for bit, wherever ranks run.
//! Method: ranks as threads, sharing memory or pretending to be nodes that talk over TCP; numbers
//! whose sums depend on the order in every bit; sizes from nothing to several rounds.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use remuda::runtime::{Cause, CollectiveError, Element, Group, InitOptions, Operation, ReduceOp};

/// More elements than any round has.
const LARGE: usize = 300_001;
const SIZES: [usize; 5] = [0, 1, 7, 1023, 5000];
const OPS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];

/// Numbers of a type, made from anything.
trait Sample: Element {
    fn sample(seed: u64) -> Self;
    fn plain(op: ReduceOp, left: Self, right: Self) -> Self;
    fn mean(sum: Self, ranks: usize) -> Self;
}

macro_rules! sample {
    ($type:ident, $sample:expr, $add:expr, $mul:expr, $mean:expr) => {
        impl Sample for $type {
            fn sample(seed: u64) -> Self {
                let sample: fn(u64) -> $type = $sample;
                sample(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 13)
            }

            fn plain(op: ReduceOp, left: Self, right: Self) -> Self {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => $add(left, right),
                    ReduceOp::Prod => $mul(left, right),
                    ReduceOp::Min => {
                        if right < left {
                            right
                        } else {
                            left
                        }
                    }
                    ReduceOp::Max => {
                        if left < right {
                            right
                        } else {
                            left
                        }
                    }
                }
            }

            fn mean(sum: Self, ranks: usize) -> Self {
                let mean: fn($type, usize) -> $type = $mean;
                mean(sum, ranks)
            }
        }
    };
}

macro_rules! sample_float {
    ($type:ident) => {
        sample!(
            $type,
            |bits| {
                let scale = (((bits % 20) as i32) - 10) as $type;
                ((bits % 9973) as $type - 5000.0) * scale.exp2()
            },
            |l, r| l + r,
            |l, r| l * r,
            |sum, ranks| sum * (1.0 / ranks as $type)
        );
    };
}

macro_rules! sample_integer {
    ($type:ident) => {
        sample!(
            $type,
            |bits| bits as $type,
            $type::wrapping_add,
            $type::wrapping_mul,
            |sum, ranks| (i128::from(sum) / ranks as i128) as $type
        );
    };
}

sample_float!(f32);
sample_float!(f64);
sample_integer!(i32);
sample_integer!(i64);
sample_integer!(u8);

fn values<T: Sample>(rank: usize, count: usize) -> Vec<T> {
    (0..count).map(|at| T::sample((rank * 1_000_003 + at + 1) as u64)).collect()
}

/// The definition: split after the largest power of two below, left before right.
fn tree<T: Sample>(op: ReduceOp, ranks: &[T]) -> T {
    if let [one] = ranks {
        *one
    } else {
        let middle = ranks.len().next_power_of_two() / 2;
        let (left, right) = ranks.split_at(middle);
        T::plain(op, tree(op, left), tree(op, right))
    }
}

fn reduced<T: Sample>(op: ReduceOp, world: usize, count: usize) -> Vec<T> {
    let all: Vec<Vec<T>> = (0..world).map(|rank| values(rank, count)).collect();
    let column = |at: usize| all.iter().map(|values| values[at]).collect::<Vec<T>>();
    let reduced = (0..count).map(|at| tree(op, &column(at)));
    match op {
        ReduceOp::Avg => reduced.map(|sum| T::mean(sum, world)).collect(),
        _ => reduced.collect(),
    }
}

/// Runs `f` on every rank, in threads, and returns what each returned.
fn on_ranks<V: Send>(groups: Vec<Group>, f: impl Fn(&Group) -> V + Sync) -> Vec<V> {
    thread::scope(|scope| {
        let f = &f;
        let ranks: Vec<_> =
            groups.into_iter().map(|group| scope.spawn(move || f(&group))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

/// The same bits; floats are compared as bytes, so that NaN equals itself and -0 does not equal 0.
#[track_caller]
fn assert_bits<T: Element>(found: &[T], expect: &[T], what: &dyn Debug) {
    let (found, expect): (&[u8], &[u8]) =
        (bytemuck::cast_slice(found), bytemuck::cast_slice(expect));
    assert!(found == expect, "{what:?}");
}

#[track_caller]
fn check_reductions<T: Sample>(groups: Vec<Group>, sizes: &[usize]) {
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
fn check_scatter<T: Sample>(groups: Vec<Group>, parts: &[usize]) {
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
fn check_broadcast<T: Sample>(groups: Vec<Group>, sizes: &[usize]) {
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
fn check_messages<T: Sample>(groups: Vec<Group>, sizes: &[usize]) {
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
    }
    check_reductions::<f32>(Group::threads_on(&[2, 1]).unwrap(), &[LARGE]);
}

#[test]
fn gathering_and_scattering() {
    for world in [1, 2, 3, 4, 9] {
        check_scatter::<f32>(Group::threads(world).unwrap(), &[0, 1, 1023]);
        check_scatter::<u8>(Group::threads(world).unwrap(), &[0, 1, 1023]);
    }
    for nodes in [&[1, 1][..], &[2, 2], &[1, 2, 3]] {
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
    let options = InitOptions { timeout: Duration::from_millis(200) };
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
fn arguments_that_cannot_work_are_refused() {
    let group = Group::single().unwrap();
    let problem = |outcome: Result<(), CollectiveError>| match outcome {
        Err(CollectiveError { cause: Cause::Argument(problem), .. }) => problem,
        other => panic!("{other:?}"),
    };
    assert_eq!(problem(group.broadcast(&mut [0u8], 1)), "there is no rank 1 among 1");
    assert_eq!(problem(group.send(&[0u8], 0)), "a rank sends nothing to itself");
    let parts = problem(group.all_gather(&[0u8], &mut [0u8; 3]));
    assert_eq!(parts, "3 elements are not 1 times 1 elements");
    group.barrier().unwrap();
}
