//! Started and blocking operations on memory of the caller: the results of the blocking ones, for every element type.

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

/// [`run`] with operations that block.
fn run_blocking<T: Element>(group: &Group, number: fn(u8) -> T) -> Result<Vec<Vec<T>>, Error> {
    let (rank, world) = (group.rank() as u8, group.world_size());
    let own = |len: usize| (0..len as u8).map(|at| number(rank + at)).collect::<Vec<T>>();
    let zeros = |len: usize| vec![number(0); len];
    let (mut sum, mut max, mut cast) = (own(5), own(3), own(2));
    let (mut part, mut all) = (own(2), zeros(2 * world));
    let (mut whole, mut share) = (own(world), zeros(1));
    let (mut gathered, mut scattered) = (zeros(if rank == 1 { world } else { 0 }), zeros(1));
    let (mut sent, mut received) = (own(world), zeros(world));
    group.all_reduce_raw(memory(&mut sum), ReduceOp::Sum)?;
    group.reduce_raw(memory(&mut max), ReduceOp::Max, 1)?;
    group.broadcast_raw(memory(&mut cast), 2)?;
    group.all_gather_raw(memory(&mut part), memory(&mut all))?;
    group.reduce_scatter_raw(memory(&mut whole), memory(&mut share), ReduceOp::Sum)?;
    group.gather_raw(memory(&mut share), memory(&mut gathered), 1)?;
    group.scatter_raw(memory(&mut gathered), memory(&mut scattered), 1)?;
    let counts = vec![1; world];
    group.all_to_all_raw(memory(&mut sent), counts.clone(), memory(&mut received), counts)?;
    let mut passed = own(1);
    match rank {
        0 => group.send_raw(&memory(&mut passed), 2)?,
        2 => group.recv_raw(memory(&mut passed), 0)?,
        _ => {}
    }
    assert_eq!(passed[0], number(u8::from(rank == 1)));
    Ok(vec![sum, max, cast, all, share, gathered, scattered, received])
}

/// Reductions in memory of [`Group::alloc`] at an offset, on some ranks only: they give what other memory gives.
#[test]
fn shared_memory_of_the_caller_is_used_in_place() {
    const LEN: usize = 300_000;
    let groups = Group::threads(3).expect("threads form a group");
    let results = super::sample::on_ranks(groups, |group| {
        let rank = group.rank();
        let (mut shared, mut own) = (group.alloc::<f32>(LEN + 8).unwrap(), vec![0.0; LEN]);
        let values = if rank == 1 { &mut own[..] } else { &mut shared[8..] };
        for (at, value) in values.iter_mut().enumerate() {
            *value = (at * (rank + 1)) as f32;
        }
        let describe = |values: &mut [f32]| {
            // SAFETY: the slice is not used before the operations below have ended.
            unsafe { RawSlice::new(values.as_mut_ptr().cast(), values.len(), Dtype::F32) }.unwrap()
        };
        group.all_reduce_raw(describe(values), ReduceOp::Max).unwrap();
        group.start_broadcast_raw(describe(values), 0).wait().unwrap();
        let mut part = vec![0.0; LEN / 3];
        let (input, output) = (describe(values), describe(&mut part));
        group.reduce_scatter_raw(input, output, ReduceOp::Sum).unwrap();
        (values[LEN - 1], part[1])
    });
    for (rank, (last, second)) in results.into_iter().enumerate() {
        let first = (rank * LEN / 3) as f32;
        assert_eq!((last, second), (3.0 * (LEN - 1) as f32, 9.0 * (first + 1.0)));
    }
}

#[track_caller]
fn check<T: Element + PartialEq + std::fmt::Debug>(number: fn(u8) -> T) {
    check_results(run, number);
    check_results(run_blocking, number);
}

/// Every operation on a group, with the results of one rank.
type Operations<T> = fn(&Group, fn(u8) -> T) -> Result<Vec<Vec<T>>, Error>;

#[track_caller]
fn check_results<T: Element>(run: Operations<T>, number: fn(u8) -> T) {
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

/// Values around the memory of an operation, which it must not touch.
const MARGIN: usize = 3;

/// Memory of the caller between other values of the caller.
struct Framed<T>(Vec<T>);

impl<T: Element + PartialEq + std::fmt::Debug> Framed<T> {
    fn new(values: &[T], edge: T) -> Self {
        Self([&[edge; MARGIN], values, &[edge; MARGIN]].concat())
    }

    /// The values between the margins, which the test neither uses nor drops before the operation has
    /// returned them.
    fn memory(&mut self) -> RawSlice {
        let (start, count) = (self.0.as_mut_ptr().wrapping_add(MARGIN), self.0.len() - 2 * MARGIN);
        // SAFETY: see above; every call below is followed by a `wait` in the same scope.
        let memory = unsafe { RawSlice::new(start.cast(), count, T::DTYPE) };
        memory.expect("an element of a vector is aligned")
    }

    /// The values, after a check of the margins.
    #[track_caller]
    fn values(&self, edge: T) -> &[T] {
        let (values, end) = self.0[MARGIN..].split_at(self.0.len() - 2 * MARGIN);
        assert!(self.0[..MARGIN].iter().chain(end).all(|value| *value == edge), "{:?}", self.0);
        values
    }
}

/// Every rank sends to the next one and receives from the last one, by each kind of started message.
fn run_messages<T: Element + PartialEq + std::fmt::Debug>(
    group: &Group,
    len: usize,
    number: fn(u8) -> T,
) -> Result<(), Error> {
    let (rank, world, edge) = (group.rank(), group.world_size(), number(99));
    let (next, last) = ((rank + 1) % world, (rank + world - 1) % world);
    let numbers = |from: usize, salt: usize| -> Vec<T> {
        (0..len).map(|at| number(((from * 7 + salt + at) % 90) as u8)).collect()
    };
    let zeros = || Framed::new(&vec![number(0); len], edge);

    let (mut sent, mut received) = (Framed::new(&numbers(rank, 0), edge), zeros());
    let send = group.start_send_raw(sent.memory(), next);
    let returned = group.start_recv_raw(received.memory(), last).wait()?;
    assert_eq!((returned.count(), returned.dtype()), (len, T::DTYPE));
    assert_eq!(send.wait()?.count(), len);
    assert_eq!(received.values(edge), numbers(last, 0), "rank {rank}");
    assert_eq!(sent.values(edge), numbers(rank, 0), "memory that is sent is only read");

    // A message to the next rank, one to the last one, and one to this rank itself.
    let ranks = [next, last, rank];
    let mut values: Vec<_> =
        (1..).zip(ranks).map(|(salt, _)| Framed::new(&numbers(rank, salt), edge)).collect();
    let mut buffers = [zeros(), zeros(), zeros()];
    let sends = ranks.into_iter().zip(values.iter_mut().map(Framed::memory)).collect();
    let recvs = [last, next, rank].into_iter().zip(buffers.iter_mut().map(Framed::memory));
    let (values_back, buffers_back) = group.start_exchange_raw(sends, recvs.collect()).wait()?;
    assert_eq!((values_back.len(), buffers_back.len()), (3, 3));
    for (buffer, (from, salt)) in buffers.iter().zip([(last, 1), (next, 2), (rank, 3)]) {
        assert_eq!(buffer.values(edge), numbers(from, salt), "rank {rank} of {from}");
    }
    Ok(())
}

#[track_caller]
fn check_messages<T: Element + PartialEq + std::fmt::Debug>(number: fn(u8) -> T) {
    // No element, a few, and more than one chunk of the staging area.
    for len in [0, 5, 300_000] {
        for groups in [Group::threads(3), Group::threads_on(&[1, 2]), Group::threads_on(&[1; 3])] {
            super::sample::on_ranks(groups.expect("threads form a group"), |group| {
                run_messages(group, len, number).expect("all messages arrive");
            });
        }
    }
}

#[test]
fn caller_memory_is_sent_and_received() {
    check_messages::<f32>(f32::from);
    check_messages::<f64>(f64::from);
    check_messages::<i32>(i32::from);
    check_messages::<i64>(i64::from);
    check_messages::<u8>(|number| number);
    check_messages::<F16>(|number| F16::from_f32(f32::from(number)));
    check_messages::<Bf16>(|number| Bf16::from_f32(f32::from(number)));
}

#[test]
fn caller_memory_matches_messages_of_the_other_interfaces() {
    for groups in [Group::threads(2), Group::threads_on(&[1, 1])] {
        super::sample::on_ranks(groups.expect("threads form a group"), |group| {
            let mut values = vec![group.rank() as i64 + 1; 4];
            if group.rank() == 0 {
                group.start_send_raw(memory(&mut values), 1).wait().expect("a receiver");
                group.start_recv_raw(memory(&mut values), 1).wait().expect("a message");
                assert_eq!(values, [8; 4]);
            } else {
                group.recv(&mut values, 0).expect("a message");
                assert_eq!(values, [1; 4]);
                group.start_send(vec![8i64; 4], 0).wait().expect("a receiver");
            }
        });
    }
}

#[test]
fn messages_without_elements_need_no_memory() {
    for groups in [Group::threads(2), Group::threads_on(&[1, 1])] {
        super::sample::on_ranks(groups.expect("threads form a group"), |group| {
            // SAFETY: there are no elements.
            let nothing = || unsafe { RawSlice::new(std::ptr::null_mut(), 0, Dtype::F64) };
            let nothing = || nothing().expect("no elements need no memory");
            let peer = 1 - group.rank();
            let exchanged =
                group.start_exchange_raw(vec![(peer, nothing())], vec![(peer, nothing())]);
            exchanged.wait().expect("messages without elements are messages");
        });
    }
}

#[test]
fn messages_of_caller_memory_are_checked_before_they_start() {
    #[track_caller]
    fn check<T>(work: remuda::runtime::Work<T>, expect: &str) {
        let error = work.wait().err().expect("the call is wrong").to_string();
        assert_eq!(error, expect);
    }
    let group = Group::single().expect("a group of one rank");
    let mut values = vec![1u8; 2];
    let itself = "a rank cannot send to itself or receive from itself; use `send_recv`";
    check(
        group.start_send_raw(memory(&mut values), 0),
        &format!("send failed on rank 0: {itself}"),
    );
    check(
        group.start_recv_raw(memory(&mut values), 0),
        &format!("recv failed on rank 0: {itself}"),
    );
    check(
        group.start_recv_raw(memory(&mut values), 3),
        "recv failed on rank 0: rank 3 is not in a group of size 1",
    );
    check(
        group.start_exchange_raw(vec![(2, memory(&mut values))], Vec::new()),
        "exchange failed on rank 0: rank 2 is not in a group of size 1",
    );
    group.barrier().expect("the group is usable after rejected calls");
    let mut others = vec![0.0f32; 2];
    check(
        group.start_exchange_raw(vec![(0, memory(&mut values))], vec![(0, memory(&mut others))]),
        "exchange (operation 2, 10 bytes) failed on rank 0: this rank sends 2 × u8 to itself, but \
         receives 2 × f32",
    );
    assert_eq!(others, [0.0; 2]);
}

#[test]
fn messages_of_caller_memory_that_differ_name_both_calls() {
    #[track_caller]
    fn check(len: usize, expect: &str) {
        for groups in [Group::threads(2), Group::threads_on(&[1, 1])] {
            let errors = super::sample::on_ranks(groups.expect("threads form a group"), |group| {
                let mut floats = Framed::new(&[1.0f32; 4], -1.0);
                let mut doubles = Framed::new(&vec![0.0f64; len], -1.0);
                let outcome = if group.rank() == 0 {
                    group.start_send_raw(floats.memory(), 1).wait()
                } else {
                    group.start_recv_raw(doubles.memory(), 0).wait()
                };
                // A longer message does not leave the memory either.
                assert_eq!(doubles.values(-1.0).len(), len);
                assert_eq!(floats.values(-1.0), [1.0; 4]);
                outcome.err().map(|error| error.to_string())
            });
            assert_eq!(errors[1].as_deref(), Some(expect));
        }
    }
    check(
        4,
        "recv (operation 1, 32 bytes) failed on rank 1: this rank called recv(4 × f64), \
         but rank 0 called send(4 × f32)",
    );
    check(
        1,
        "recv (operation 1, 8 bytes) failed on rank 1: this rank called recv(1 × f64), \
         but rank 0 called send(4 × f32)",
    );
}
