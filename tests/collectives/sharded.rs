//! Operations with a part for every rank on memory of the group: in place, out of place, and of several lanes.

use remuda::runtime::tree::Lanes;
use remuda::runtime::{
    Bf16, Cause, CollectiveError, Collectives, DividedReduction, Error, F16, Group, HostMemory,
    Lend, Lent, Operation, ReduceOp, SharedBuffer, Traffic, Work,
};

use crate::collectives::operations::as_machines;
use crate::collectives::sample::{
    OPS, SIZES, Sample, assert_bits, on_ranks, reduced, tree, values,
};

/// Elements before and after a range that is lent, which no operation may change.
const MARGIN: usize = 3;

/// Memory of which all but the margins is lent, with these values.
fn lend<T: Sample>(group: &Group, values: &[T]) -> (SharedBuffer<T>, Lent<T>) {
    let mut buffer = group.alloc_shared(values.len() + 2 * MARGIN).unwrap();
    HostMemory::slice_mut(&mut buffer, &(0..values.len() + 2 * MARGIN)).fill(T::sample(99));
    let mut lent = Lend::lend(&mut buffer, &(MARGIN..MARGIN + values.len()));
    lent.copy_from_slice(values);
    (buffer, lent)
}

/// Takes a range back; returns its values.
fn restore<T: Sample>(mut buffer: SharedBuffer<T>, lent: Lent<T>) -> Vec<T> {
    let len = lent.len();
    Lend::restore(&mut buffer, lent);
    let all = HostMemory::slice_mut(&mut buffer, &(0..len + 2 * MARGIN));
    let margins = [all[..MARGIN].to_vec(), all[MARGIN + len..].to_vec()].concat();
    assert_bits(&margins, &[T::sample(99); 2 * MARGIN], &"elements beside the range");
    all[MARGIN..MARGIN + len].to_vec()
}

/// How a rank calls an operation.
#[derive(Clone, Copy, Debug)]
enum Form {
    InPlace,
    /// Input and output in memory of the group.
    Shared,
    /// Input and output in memory of the rank.
    Slices,
}

const FORMS: [Form; 3] = [Form::InPlace, Form::Shared, Form::Slices];

/// Part of this rank of the reduction.
fn scatter<T: Sample>(group: &Group, form: Form, all: &[T], op: ReduceOp) -> Vec<T> {
    let (rank, part) = (group.rank(), all.len() / group.world_size());
    let reduction = DividedReduction { op, divisor: 1 };
    match form {
        Form::InPlace => {
            let (buffer, data) = lend(group, all);
            let data = group.submit_reduce_scatter_in_place(data, reduction).wait().unwrap();
            restore(buffer, data)[rank * part..(rank + 1) * part].to_vec()
        }
        Form::Shared => {
            let (from, input) = lend(group, all);
            let (to, output) = lend(group, &vec![T::sample(5); part]);
            let work = group.submit_reduce_scatter(input, output, reduction);
            let (input, output) = work.wait().unwrap();
            assert_bits(&restore(from, input), all, &"the input does not change");
            restore(to, output)
        }
        Form::Slices => {
            let mut ours = vec![T::sample(5); part];
            group.reduce_scatter(all, &mut ours, op).unwrap();
            ours
        }
    }
}

/// Parts of all ranks.
fn gather<T: Sample>(group: &Group, form: Form, ours: &[T]) -> Vec<T> {
    let (rank, part) = (group.rank(), ours.len());
    let mut all = vec![T::sample(5); group.world_size() * part];
    match form {
        Form::InPlace => {
            all[rank * part..(rank + 1) * part].copy_from_slice(ours);
            let (buffer, data) = lend(group, &all);
            restore(buffer, group.submit_all_gather_in_place(data).wait().unwrap())
        }
        Form::Shared => {
            let ((from, input), (to, output)) = (lend(group, ours), lend(group, &all));
            let (input, output) = group.submit_all_gather(input, output).wait().unwrap();
            assert_bits(&restore(from, input), ours, &"the input does not change");
            restore(to, output)
        }
        Form::Slices => {
            group.all_gather(ours, &mut all).unwrap();
            all
        }
    }
}

/// Checks all forms, and all at once: every rank may call another one.
#[track_caller]
pub(crate) fn check_sharded<T: Sample>(groups: Vec<Group>, parts: &[usize], ops: &[ReduceOp]) {
    let world = groups.len();
    let expected: Vec<Vec<Vec<T>>> = parts
        .iter()
        .map(|part| ops.iter().map(|op| reduced(*op, world, world * part)).collect())
        .collect();
    on_ranks(groups, |group| {
        let rank = group.rank();
        let mixed = FORMS[rank % FORMS.len()];
        for (part, expected) in parts.iter().zip(&expected) {
            let all = values::<T>(rank, world * part);
            let gathered: Vec<T> = (0..world).flat_map(|rank| values(rank, *part)).collect();
            for form in [FORMS[0], FORMS[1], mixed] {
                let what = (T::DTYPE, world, rank, part, form);
                for (op, expected) in ops.iter().zip(expected) {
                    let mine = &expected[rank * part..(rank + 1) * part];
                    assert_bits(&scatter(group, form, &all, *op), mine, &(op, what));
                }
                assert_bits(&gather(group, form, &values::<T>(rank, *part)), &gathered, &what);
            }
        }
    });
}

#[test]
fn sharded_operations_on_one_node_match_the_definition() {
    for world in 1..=9 {
        check_sharded::<f32>(Group::threads(world).unwrap(), &SIZES, &OPS);
        check_sharded::<f64>(Group::threads(world).unwrap(), &[0, 1, 1023], &OPS);
        check_sharded::<i32>(Group::threads(world).unwrap(), &[0, 7, 5000], &OPS);
        check_sharded::<i64>(Group::threads(world).unwrap(), &[0, 1, 1023], &OPS);
        check_sharded::<u8>(Group::threads(world).unwrap(), &[1, 7, 5000], &OPS);
        check_sharded::<F16>(Group::threads(world).unwrap(), &[1, 1023], &OPS);
        check_sharded::<Bf16>(Group::threads(world).unwrap(), &[7, 5000], &OPS);
    }
}

/// More than fits a round of staged data, so that mixed forms need several.
#[test]
fn large_sharded_operations_on_one_node_match_the_definition() {
    for world in [2, 3, 5] {
        check_sharded::<f32>(Group::threads(world).unwrap(), &[100_003], &[ReduceOp::Sum]);
    }
    check_sharded::<Bf16>(Group::threads(4).unwrap(), &[150_001], &[ReduceOp::Avg]);
}

#[test]
fn sharded_operations_over_tcp_match_the_definition() {
    for nodes in [&[1, 1][..], &[1, 1, 1], &[2, 2], &[3, 1], &[1, 2, 3], &[4, 4, 1]] {
        check_sharded::<f32>(Group::threads_on(nodes).unwrap(), &[0, 1, 1023, 40_001], &OPS);
        check_sharded::<F16>(Group::threads_on(nodes).unwrap(), &[7, 40_001], &OPS);
        check_sharded::<i64>(as_machines(nodes, 2), &[0, 1, 70_001], &[ReduceOp::Sum]);
        check_sharded::<f32>(as_machines(nodes, 3), &[150_001], &[ReduceOp::Avg]);
    }
}

/// Ranks write to their memory as soon as an operation returns, while others may be late: no rank may still
/// read it then.
#[test]
fn sharded_memory_can_be_written_after_the_operation() {
    for groups in [Group::threads(4).unwrap(), as_machines(&[3, 1, 2], 2)] {
        let world = groups.len();
        on_ranks(groups, |group| {
            let rank = group.rank();
            for step in 0..150 {
                let part = [1, 3000, 200, 20_000][step % 4];
                let (mut buffer, mut data) = lend(group, &vec![0i64; world * part]);
                data.fill((step * (rank + 1)) as i64);
                let sum = DividedReduction::SUM;
                let mut data = group.submit_reduce_scatter_in_place(data, sum).wait().unwrap();
                let own = rank * part..(rank + 1) * part;
                let expect = (step * world * (world + 1) / 2) as i64;
                assert!(data[own.clone()].iter().all(|value| *value == expect), "step {step}");
                data.fill(-1);
                data[own].fill((step + 10 * rank) as i64);
                let mut data = group.submit_all_gather_in_place(data).wait().unwrap();
                for (other, part) in data.chunks(part).enumerate() {
                    let expect = (step + 10 * other) as i64;
                    assert!(part.iter().all(|value| *value == expect), "step {step}");
                }
                data.fill(-2);
                Lend::restore(&mut buffer, data);
            }
        });
    }
}

#[test]
fn sharded_operations_are_in_flight_together() {
    for groups in [Group::threads(3).unwrap(), as_machines(&[1, 2], 2)] {
        on_ranks(groups, |group| {
            let mut memory: SharedBuffer<f32> = group.alloc_shared(4 * 3000).unwrap();
            HostMemory::slice_mut(&mut memory, &(0..12_000))
                .copy_from_slice(&values(group.rank(), 12_000));
            let lent = [0..3000, 3000..6000, 6000..9000, 9000..12_000]
                .map(|range| Lend::lend(&mut memory, &range));
            let [first, second, third, fourth] = lent;
            let mean = DividedReduction::mean_of(3);
            let works: [Work<Lent<f32>>; 4] = [
                group.submit_reduce_scatter_in_place(first, mean),
                group.submit_all_gather_in_place(second),
                group.submit_all_reduce(third, DividedReduction::SUM, |_| {}),
                group.submit_broadcast(fourth, 1),
            ];
            for work in works {
                Lend::restore(&mut memory, work.wait().unwrap());
            }
            let found = HostMemory::slice_mut(&mut memory, &(0..12_000)).to_vec();
            let own = group.rank() * 1000..(group.rank() + 1) * 1000;
            let mean = reduced::<f32>(ReduceOp::Avg, 3, 12_000);
            assert_bits(&found[own.clone()], &mean[own], &"reduce-scatter");
            for part in 0..3 {
                let range = 3000 + part * 1000..4000 + part * 1000;
                let expect = &values::<f32>(part, 12_000)[range.clone()];
                assert_bits(&found[range], expect, &"all-gather");
            }
            let sum = reduced::<f32>(ReduceOp::Sum, 3, 12_000);
            assert_bits(&found[6000..9000], &sum[6000..9000], &"all-reduce");
            let root = values::<f32>(1, 12_000);
            assert_bits(&found[9000..], &root[9000..], &"broadcast");
        });
    }
}

/// Value of a lane at a position.
fn lane_value<T: Sample>(lane: usize, at: usize) -> T {
    T::sample((lane * 7919 + at * 31 + 1) as u64)
}

/// Pieces of a rank, made as [`Lanes::additions_of`] plans it.
fn pieces_of<T: Sample>(lanes: Lanes, rank: usize, len: usize) -> Vec<Vec<T>> {
    let mut sums: Vec<Vec<T>> = Vec::new();
    for (lane, additions) in lanes.additions_of(rank).into_iter().enumerate() {
        sums.push((0..len).map(|at| lane_value(rank * lanes.each + lane, at)).collect());
        for _ in 0..additions {
            let (newer, older) = (sums.pop().unwrap(), sums.pop().unwrap());
            let added = older.iter().zip(&newer);
            sums.push(
                added.map(|(older, newer)| T::reduce(ReduceOp::Sum, &[*older, *newer])).collect(),
            );
        }
    }
    sums
}

#[track_caller]
fn check_pieces<T: Sample>(groups: Vec<Group>, each: usize, part: usize, op: ReduceOp) {
    let lanes = Lanes { ranks: groups.len(), each };
    on_ranks(groups, |group| {
        let rank = group.rank();
        let expect: Vec<T> = (rank * part..(rank + 1) * part)
            .map(|at| {
                let all: Vec<T> = (0..lanes.count()).map(|lane| lane_value(lane, at)).collect();
                T::reduce(op, &all)
            })
            .collect();
        let pieces = pieces_of::<T>(lanes, rank, lanes.ranks * part);
        let (buffers, pieces): (Vec<_>, Vec<_>) =
            pieces.iter().map(|piece| lend(group, piece)).unzip();
        let (to, output) = lend(group, &vec![T::sample(5); part]);
        let reduction = DividedReduction { op, divisor: 1 };
        let work = group.submit_reduce_scatter_of_pieces(pieces, output, each, reduction);
        let (pieces, output) = work.wait().unwrap();
        assert_bits(&restore(to, output), &expect, &(T::DTYPE, lanes, rank, part));
        for (buffer, piece) in buffers.into_iter().zip(pieces) {
            restore(buffer, piece);
        }
    });
}

#[test]
fn pieces_of_lanes_have_the_bits_of_the_tree_over_all_lanes() {
    for world in 1..=5 {
        for each in 1..=12 {
            check_pieces::<f32>(Group::threads(world).unwrap(), each, 37, ReduceOp::Sum);
        }
    }
    for (nodes, each) in [(&[1, 1][..], 3), (&[2, 1], 6), (&[1, 3, 2], 7), (&[4, 3], 11)] {
        check_pieces::<f64>(Group::threads_on(nodes).unwrap(), each, 700, ReduceOp::Avg);
        check_pieces::<i32>(as_machines(nodes, 2), each, 5000, ReduceOp::Sum);
    }
    check_pieces::<f32>(Group::threads(3).unwrap(), 5, 50_000, ReduceOp::Sum);
}

fn problem<V>(outcome: Result<V, CollectiveError>) -> String {
    match outcome.map(drop) {
        Err(CollectiveError { cause: Cause::Argument(problem), .. }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sharded_operations_reject_wrong_lengths_on_every_rank() {
    on_ranks(Group::threads(3).unwrap(), |group| {
        let data = |len| lend(group, &vec![0.0f32; len]).1;
        let sum = DividedReduction::SUM;
        let expect = "expected 3 × 1 elements, got 5";
        assert_eq!(problem(group.submit_reduce_scatter_in_place(data(5), sum).wait()), expect);
        assert_eq!(problem(group.submit_all_gather_in_place(data(5)).wait()), expect);
        let pieces = |pieces: Vec<Lent<f32>>, lanes| {
            problem(group.submit_reduce_scatter_of_pieces(pieces, data(2), lanes, sum).wait())
        };
        let rank = group.rank();
        let expect = format!("expected 2 pieces of 3 lanes of rank {rank} of 3, got 1");
        assert_eq!(pieces(vec![data(6)], 3), expect);
        assert_eq!(pieces(vec![data(6), data(5)], 3), "expected 3 × 2 elements, got 5");
        assert_eq!(pieces(Vec::new(), 0), "a rank has at least one lane");
        group.barrier().unwrap();
    });
}

#[test]
fn sharded_memory_of_another_group_is_copied_or_rejected() {
    let (group, other) = (Group::single().unwrap(), Group::single().unwrap());
    let foreign = || lend(&other, &[2.0f32, 4.0]).1;
    let (_, own) = lend(&group, &[0.0f32; 2]);
    let work = group.submit_reduce_scatter(foreign(), own, DividedReduction::mean_of(2));
    assert_bits(&work.wait().unwrap().1, &[1.0, 2.0], &"out of place");
    let gathered = group.submit_all_gather(foreign(), lend(&group, &[0.0f32; 2]).1).wait();
    assert_bits(&gathered.unwrap().1, &[2.0, 4.0], &"out of place");
    let outcome = group.submit_all_gather_in_place(foreign()).wait();
    assert_eq!(problem(outcome), "the buffer belongs to another group");
}

#[test]
fn sharded_calls_with_different_counts_are_a_mismatch() {
    for groups in [Group::threads(2).unwrap(), Group::threads_on(&[1, 1]).unwrap()] {
        let causes = on_ranks(groups, |group| {
            let (_, data) = lend(group, &vec![0i32; 10_000 + 2 * group.rank()]);
            let work = group.submit_reduce_scatter_in_place(data, DividedReduction::SUM);
            work.wait().map(drop).expect_err("the counts differ").cause
        });
        let is_mismatch = |cause: &Cause| matches!(cause, Cause::Mismatch { .. });
        assert!(causes.iter().all(is_mismatch), "{causes:?}");
    }
}

/// Runs operations of every kind; returns what the formulas say that this rank receives in them.
fn run_every_kind(group: &Group) -> Result<Traffic, Error> {
    let (rank, world) = (group.rank(), group.world_size());
    let (next, left) = ((rank + 1) % world, (rank + world - 1) % world);
    let others = (world - 1) as u64;
    let mut plan = Traffic::default();
    let mut all = vec![1i64; 30 * world];
    let mut ours = vec![1i64; 30];
    // An all-reduce of a number of bytes that is not divisible by the number of ranks.
    group.all_reduce(&mut all[..1], ReduceOp::Sum)?;
    plan.record(Operation::AllReduce, 2 * (8 * others / world as u64));
    let (_, data) = lend(group, &all);
    let data = group.submit_reduce_scatter_in_place(data, DividedReduction::SUM).wait()?;
    plan.record(Operation::ReduceScatter, others * 240);
    group.submit_all_gather_in_place(data).wait()?;
    plan.record(Operation::AllGather, others * 240);
    group.all_gather(&ours, &mut all)?;
    plan.record(Operation::AllGather, others * 240);
    group.broadcast(&mut ours, 1)?;
    plan.record(Operation::Broadcast, if rank == 1 { 0 } else { 240 });
    group.gather(&ours, &mut all, 1)?;
    plan.record(Operation::Gather, if rank == 1 { others * 240 } else { 0 });
    group.all_to_all(&all.clone(), &mut all)?;
    plan.record(Operation::AllToAll, others * 240);
    group.send_recv(&[1i64; 5], next, &mut [0; 5], left)?;
    plan.record(Operation::SendRecv, 40);
    let send = group.start_send(vec![1i64; 6], next);
    let recv = group.start_recv(vec![0i64; 6], left);
    send.wait()?;
    recv.wait()?;
    plan.record(Operation::Send, 0);
    plan.record(Operation::Recv, 48);
    let lanes = Lanes { ranks: world, each: 3 };
    let pieces = pieces_of::<f32>(lanes, rank, world * 10);
    let lent: Vec<_> = pieces.iter().map(|piece| lend(group, piece).1).collect();
    let received = (lanes.pieces().len() - pieces.len()) as u64 * 40;
    let (_, output) = lend(group, &[0.0f32; 10]);
    group.submit_reduce_scatter_of_pieces(lent, output, 3, DividedReduction::SUM).wait()?;
    plan.record(Operation::ReduceScatterOfPieces, received);
    let part = group.split(0, rank)?.expect("all ranks are in one part");
    plan.record(Operation::Split, 0);
    part.barrier()?;
    group.barrier()?;
    plan.record(Operation::Barrier, 0);
    assert_eq!(part.traffic().total().calls, 1, "the traffic of a part is its own");
    Ok(plan)
}

#[test]
fn traffic_of_a_group_follows_the_formulas() {
    for groups in [Group::threads(3).unwrap(), as_machines(&[1, 2], 2)] {
        on_ranks(groups, |group| {
            group.barrier().unwrap();
            let before = group.traffic();
            let plan = run_every_kind(group).unwrap();
            assert_eq!(group.traffic() - before, plan);
            let data = lend(group, &[0.0f32; 4]).1;
            group.submit_all_gather_in_place(data).wait().map(drop).expect_err("4 is not 3 parts");
            assert_eq!(Collectives::<f32>::traffic(group) - before, plan);
        });
    }
}

/// The definition of a mean over lanes agrees with the tree of the samples.
#[test]
fn sum_of_two_pieces_is_the_tree_of_three_lanes() {
    let lanes = Lanes { ranks: 1, each: 3 };
    let all: Vec<f32> = (0..3).map(|lane| lane_value(lane, 0)).collect();
    let piece = pieces_of::<f32>(lanes, 0, 1).concat();
    assert_bits(&piece, &[tree(&all, &|l, r| l + r)], &"one rank has one piece");
}
