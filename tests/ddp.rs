//! Data-parallel training: equal bits to accumulation on one rank, and overlap with the backward pass.
//!
//! Ranks are threads; the bits of the sums of their gradients depend on the order of the additions.

use std::ops::Range;
use std::thread;

use remuda::runtime::{
    Cause, CollectiveError, DdpEvent, DdpOptions, DistributedDataParallel, Error, GradientElement,
    Group, Layout,
};

/// Tensors with sizes that are not multiples of any block.
fn layout() -> Layout {
    Layout::new([("embedding", 3000), ("weight", 1111), ("bias", 7), ("head", 501)])
}

/// Writes the gradient of a lane: numbers of very different size, so that every order of additions rounds
/// differently.
fn write_gradient<T: GradientElement>(
    lane: usize,
    step: usize,
    range: &Range<usize>,
    out: &mut [T],
) {
    for (value, at) in out.iter_mut().zip(range.clone()) {
        let mixed = (lane * 7919 + step * 104_729 + at + 1) as u64;
        let bits = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let magnitude = f64::from((bits % 24) as i32 - 12).exp2();
        *value = T::from_f64(magnitude * (bits % 10_007) as f64 - 5000.0 * magnitude);
    }
}

/// Runs `f` on every rank, each on a thread.
fn on_ranks<V: Send>(groups: Vec<Group>, f: impl Fn(Group) -> V + Sync) -> Vec<V> {
    thread::scope(|scope| {
        let ranks: Vec<_> = groups.into_iter().map(|group| scope.spawn(|| f(group))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

/// Returns the bits of the mean gradients of two steps.
fn train<T: GradientElement>(group: &Group, options: DdpOptions) -> Result<Vec<u64>, Error> {
    let layout = layout();
    let mut ddp = DistributedDataParallel::<T>::new(group, &layout, options)?;
    let mut bits = Vec::new();
    for step in 0..2 {
        for micro_batch in 0..options.accumulate {
            let lane = group.rank() * options.accumulate + micro_batch;
            ddp.micro_batch(|grads| {
                for (_, range) in layout.tensors().rev() {
                    write_gradient(lane, step, &range, grads.range(range.clone()));
                    grads.ready(range);
                }
            })?;
        }
        bits.extend(ddp.reduce()?.iter().map(|value| value.to_f64().to_bits()));
    }
    Ok(bits)
}

#[track_caller]
fn check<T: GradientElement>(groups: Vec<Group>, options: DdpOptions, expect: &[u64]) {
    let world = groups.len();
    for (rank, bits) in
        on_ranks(groups, |group| train::<T>(&group, options)).into_iter().enumerate()
    {
        let bits = bits.expect("training succeeds");
        assert!(bits == expect, "rank {rank} of {world} with {options:?} differs");
    }
}

/// Ranks per node: over TCP, and mixed with shared memory.
fn placements(world: usize) -> &'static [&'static [usize]] {
    match world {
        2 => &[&[1, 1]],
        3 => &[&[1, 1, 1], &[1, 2]],
        4 => &[&[2, 2], &[1, 3]],
        _ => &[],
    }
}

fn check_all<T: GradientElement>() {
    let large = DdpOptions::default();
    let small = DdpOptions { first_bucket_bytes: 64, bucket_bytes: 2048, ..large };
    for world in 1..=4 {
        for accumulate in [1, 2, 4] {
            let alone = DdpOptions { accumulate: world * accumulate, ..large };
            let expect = train::<T>(&Group::single().unwrap(), alone).unwrap();
            for options in [large, small] {
                let options = DdpOptions { accumulate, ..options };
                check::<T>(Group::threads(world).unwrap(), options, &expect);
                for nodes in placements(world) {
                    check::<T>(Group::threads_on(nodes).unwrap(), options, &expect);
                }
            }
        }
    }
}

#[test]
fn ddp_gives_the_same_bits_as_accumulation() {
    check_all::<f32>();
    check_all::<f64>();
}

#[test]
fn ddp_reduces_a_bucket_during_backward() {
    let options = DdpOptions { first_bucket_bytes: 1, bucket_bytes: 1, ..DdpOptions::default() };
    let events = on_ranks(Group::threads(2).unwrap(), |group| {
        let layout = layout();
        let mut ddp = DistributedDataParallel::<f32>::new(&group, &layout, options)?;
        ddp.micro_batch(|grads| {
            grads.ready(layout.range("head"));
            // The backward pass continues only after the gradient of the head is reduced; a runtime that
            // reduces after the backward pass would loop here forever.
            while !grads.is_reduced(0) {
                thread::yield_now();
            }
            grads.ready(layout.range("embedding"));
        })?;
        ddp.reduce()?;
        Ok::<_, Error>(ddp.events())
    });
    for events in events {
        let events = events.unwrap();
        let at = |event| events.iter().position(|other| *other == event).expect("an event");
        assert!(at(DdpEvent::GradReady { bucket: 0 }) < at(DdpEvent::ReduceStarted { bucket: 0 }));
        assert!(at(DdpEvent::ReduceDone { bucket: 0 }) < at(DdpEvent::GradReady { bucket: 3 }));
    }
}

#[test]
fn ddp_adds_unsynced_gradients_to_the_next_step() {
    let means = on_ranks(Group::threads(2).unwrap(), |group| {
        let layout = Layout::new([("weight", 4)]);
        let mut ddp = DistributedDataParallel::<f32>::new(&group, &layout, DdpOptions::default())?;
        let rank = group.rank() as f32;
        ddp.no_sync(|grads| grads.flat().fill(rank))?;
        ddp.no_sync(|grads| grads.flat().fill(10.0))?;
        ddp.micro_batch(|grads| grads.flat().fill(100.0))?;
        let first = ddp.reduce()?[0];
        ddp.micro_batch(|grads| grads.flat().fill(1.0))?;
        Ok::<_, Error>((first, ddp.reduce()?[0]))
    });
    for mean in means {
        assert_eq!(mean.unwrap(), (f32::midpoint(110.0, 111.0), 1.0));
    }
}

#[test]
fn ddp_rejects_different_layouts() {
    let outcomes = on_ranks(Group::threads(2).unwrap(), |group| {
        let layout = Layout::new([("weight", 4 + group.rank())]);
        DistributedDataParallel::<f32>::new(&group, &layout, DdpOptions::default()).map(drop)
    });
    for outcome in outcomes {
        assert!(matches!(outcome, Err(Error::BadArgument(_))), "{outcome:?}");
    }
}

#[test]
fn ddp_broadcasts_parameters_of_rank_0() {
    let outcomes = on_ranks(Group::threads(3).unwrap(), |group| {
        let ddp = DistributedDataParallel::<f64>::new(&group, &layout(), DdpOptions::default())?;
        let mut params = vec![group.rank() as f64 + 1.0; 4619];
        ddp.broadcast_params(&mut params)?;
        Ok::<_, Error>(params)
    });
    for params in outcomes {
        assert_eq!(params.unwrap(), vec![1.0; 4619]);
    }
}

#[test]
#[should_panic(expected = "which are marked as ready")]
fn ddp_panics_on_access_to_a_ready_gradient() {
    let layout = layout();
    let group = Group::single().unwrap();
    let mut ddp =
        DistributedDataParallel::<f32>::new(&group, &layout, DdpOptions::default()).unwrap();
    let _: Result<(), CollectiveError> = ddp.micro_batch(|grads| {
        grads.ready(layout.range("head"));
        grads.flat()[0] = 1.0;
    });
}

#[test]
fn ddp_rejects_calls_out_of_order() {
    #[track_caller]
    fn check(outcome: Result<(), CollectiveError>, expect: &str) {
        let error = outcome.expect_err("a rejected call");
        assert_eq!(error.cause, Cause::Argument(expect.to_owned()));
    }
    let group = Group::single().unwrap();
    let options = DdpOptions { accumulate: 2, ..DdpOptions::default() };
    let mut ddp = DistributedDataParallel::<f32>::new(&group, &layout(), options).unwrap();
    ddp.micro_batch(|grads| grads.flat().fill(1.0)).unwrap();
    check(ddp.reduce().map(drop), "`reduce` was called after 1 of 2 micro-batches");
    ddp.micro_batch(|grads| grads.flat().fill(3.0)).unwrap();
    let mut is_called = false;
    check(ddp.micro_batch(|_| is_called = true), "call `reduce` after 2 micro-batches");
    assert!(!is_called);
    // The step goes on as if the rejected calls had not been made.
    assert_eq!(ddp.reduce().unwrap().to_vec(), vec![2.0; 4619]);
}

#[test]
fn ddp_step_fails_on_all_ranks_if_one_panics() {
    let outcomes = thread::scope(|scope| {
        let ranks: Vec<_> = Group::threads(2)
            .unwrap()
            .into_iter()
            .map(|group| {
                scope.spawn(move || {
                    let layout = layout();
                    let options = DdpOptions { first_bucket_bytes: 1, ..DdpOptions::default() };
                    let mut ddp = DistributedDataParallel::<f32>::new(&group, &layout, options)?;
                    ddp.micro_batch(|grads| {
                        grads.ready(layout.range("head"));
                        assert!(group.rank() == 0, "this rank panics");
                    })?;
                    ddp.reduce().map(drop)?;
                    Ok::<_, Error>(())
                })
            })
            .collect();
        ranks.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    assert!(outcomes[1].is_err(), "rank 1 panics");
    let error = outcomes[0].as_ref().expect("no panic").as_ref().expect_err("a failed step");
    assert!(error.to_string().ends_with("rank 1 aborted the group: it panicked"), "{error}");
}
