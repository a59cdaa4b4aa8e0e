//! Started operations on memory of the caller: the results of the blocking ones, for every element type.

use remuda::runtime::{Bf16, Dtype, Element, Error, F16, Group, RawSlice, ReduceOp};

/// Description of a vector that the test neither uses nor drops before the operation has returned it.
fn memory<T: Element>(values: &mut Vec<T>) -> RawSlice {
    // SAFETY: see above; every call below is followed by a `wait` in the same scope.
    let memory = unsafe { RawSlice::new(values.as_mut_ptr().cast(), values.len(), T::DTYPE) };
    memory.expect("vectors are aligned")
}

/// Runs every operation on this rank, on `one` times small numbers; returns all results.
fn run<T: Element>(group: &Group, number: fn(u8) -> T) -> Result<Vec<Vec<T>>, Error> {
    let (rank, world) = (group.rank() as u8, group.world_size());
    let own = |len: usize| (0..len as u8).map(|at| number(rank + at)).collect::<Vec<T>>();
    let zeros = |len: usize| vec![number(0); len];
    let (mut sum, mut max, mut cast) = (own(5), own(3), own(2));
    let (mut part, mut all) = (own(2), zeros(2 * world));
    let (mut whole, mut share) = (own(world), zeros(1));
    let (mut gathered, mut scattered) = (zeros(if rank == 1 { world } else { 0 }), zeros(1));
    let (mut sent, mut received) = (own(world), zeros(world));
    let works = (
        group.start_all_reduce_raw(memory(&mut sum), ReduceOp::Sum),
        group.start_reduce_raw(memory(&mut max), ReduceOp::Max, 1),
        group.start_broadcast_raw(memory(&mut cast), 2),
        group.start_all_gather_raw(memory(&mut part), memory(&mut all)),
        group.start_reduce_scatter_raw(memory(&mut whole), memory(&mut share), ReduceOp::Sum),
    );
    works.0.wait()?;
    works.1.wait()?;
    works.2.wait()?;
    works.3.wait()?;
    works.4.wait()?;
    group.start_gather_raw(memory(&mut share), memory(&mut gathered), 1).wait()?;
    group.start_scatter_raw(memory(&mut gathered), memory(&mut scattered), 1).wait()?;
    let counts = vec![1; world];
    let exchanged = group.start_all_to_all_raw(
        memory(&mut sent),
        counts.clone(),
        memory(&mut received),
        counts,
    );
    exchanged.wait()?;
    Ok(vec![sum, max, cast, all, share, gathered, scattered, received])
}

#[track_caller]
fn check<T: Element + PartialEq + std::fmt::Debug>(number: fn(u8) -> T) {
    for groups in [Group::threads(3), Group::threads_on(&[1, 2])] {
        let results = super::sample::on_ranks(groups.expect("threads form a group"), |group| {
            run(group, number).expect("all operations succeed")
        });
        for (rank, results) in results.into_iter().enumerate() {
            let numbers = |values: &[u8]| values.iter().map(|value| number(*value)).collect();
            let r = rank as u8;
            let expect: [Vec<T>; 8] = [
                numbers(&[3, 6, 9, 12, 15]),
                if rank == 1 { numbers(&[2, 3, 4]) } else { numbers(&[r, r + 1, r + 2]) },
                numbers(&[2, 3]),
                numbers(&[0, 1, 1, 2, 2, 3]),
                numbers(&[3 + 3 * r]),
                if rank == 1 { numbers(&[3, 6, 9]) } else { Vec::new() },
                numbers(&[3 + 3 * r]),
                numbers(&[r, r + 1, r + 2]),
            ];
            assert_eq!(results, expect, "rank {rank}, {}", T::DTYPE);
        }
    }
}

#[test]
fn caller_memory_of_every_type_gets_the_results() {
    check::<f32>(f32::from);
    check::<f64>(f64::from);
    check::<i32>(i32::from);
    check::<i64>(i64::from);
    check::<u8>(|number| number);
    check::<F16>(|number| F16::from_f32(f32::from(number)));
    check::<Bf16>(|number| Bf16::from_f32(f32::from(number)));
}

#[test]
fn caller_memory_of_two_types_is_an_error() {
    let group = Group::single().expect("a group of one rank");
    let (mut input, mut output) = (vec![1.0f32; 2], vec![0i64; 2]);
    let error = group.start_all_gather_raw(memory(&mut input), memory(&mut output)).wait();
    assert_eq!(
        error.expect_err("types differ").to_string(),
        "all_gather failed on rank 0: the input has elements of type f32, the output of type i64"
    );
    group.start_barrier().wait().expect("the group is usable after a rejected call");
}

#[test]
fn caller_memory_must_be_aligned_and_not_null() {
    let mut bytes = [0u64; 2];
    let odd = bytes.as_mut_ptr().cast::<u8>().wrapping_add(1);
    // SAFETY: the memory is not used.
    let outcomes = unsafe {
        [
            RawSlice::new(std::ptr::null_mut(), 1, Dtype::U8),
            RawSlice::new(odd, 1, Dtype::F32),
            RawSlice::new(bytes.as_mut_ptr().cast(), usize::MAX / 2, Dtype::F64),
        ]
    };
    assert!(outcomes.iter().all(Option::is_none), "{outcomes:?}");
    // SAFETY: there are no elements.
    let empty = unsafe { RawSlice::new(std::ptr::null_mut(), 0, Dtype::F64) };
    assert_eq!(empty.expect("no elements need no memory").count(), 0);
}
