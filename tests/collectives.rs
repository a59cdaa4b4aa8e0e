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

/// Every rank gives to its right neighbour and takes from the left one, all at once.
#[track_caller]
fn check_ring<T: Sample>(groups: Vec<Group>, sizes: &[usize]) {
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
fn check_all_to_all<T: Sample>(groups: Vec<Group>, parts: &[usize]) {
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
fn check_rooted<T: Sample>(groups: Vec<Group>, parts: &[usize]) {
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
