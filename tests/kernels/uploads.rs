//! Large copies through pinned memory, which emulated devices read as late as events allow.

use std::sync::Arc;

use remuda::cuda::device::{Device, StreamId, UploadRing};
use remuda::runtime::Group;
use remuda::runtime::engine::{Engine, EngineConfig, EngineError, Precision, Sharding};
use remuda::train::{DeviceMlp, Samples};

use super::emulated_streams::{EmulatedStreams, Order};
use super::stages::Faulty;
use super::training::{adam, config, emulated, samples_of};
use crate::support::proof::has;

/// Bytes of a copy that a driver does not keep in the stream.
const LARGE: usize = (64 << 10) + 1;
const COPIES: usize = 20;
/// Copies before longer ones.
const GROWS_AFTER: usize = 3;
/// Most parts of a ring.
const PARTS_MAX: usize = 8;

/// Copies of more than the ring takes at once arrive in parts, whose pinned memory has a limit.
#[test]
fn copies_larger_than_a_part_of_the_ring_arrive() {
    if !has("compiler", "copies_larger_than_a_part_of_the_ring_arrive") {
        return;
    }
    let part = 4 << 20;
    let bytes: Vec<u8> = (0..3 * part + LARGE).map(|at| (at % 251) as u8).collect();
    for order in [Order::Early, Order::Late] {
        let device = EmulatedStreams::new(order);
        let stream = device.create_stream().expect("a stream");
        let memory = device.alloc(bytes.len()).expect("memory");
        let mut ring = UploadRing::new(Arc::new(device.clone()));
        ring.upload(stream, &bytes, memory.address()).expect("it is submitted");
        let mut found = vec![0; bytes.len()];
        device.download(stream, memory.address(), &mut found).expect("the device works");
        assert!(found == bytes, "{order:?}");
        assert!(device.pinned_bytes().iter().all(|bytes| *bytes <= part), "{order:?}");
    }
}

/// Whether copies, one after the other, bring the bytes that they were given.
fn copies_are_right(device: &Arc<dyn Device>) -> bool {
    let stream = device.create_stream().expect("a stream");
    let mut ring = UploadRing::new(device.clone());
    let memory: Vec<_> = (0..COPIES).map(|_| device.alloc(3 * LARGE).expect("memory")).collect();
    // One value is used for all copies, as that of a batch that is made again.
    let mut bytes = vec![0; 3 * LARGE];
    for (number, memory) in memory.iter().enumerate() {
        bytes.fill(number as u8);
        // The first ones are shorter, so that the ring has to grow.
        let len = if number < GROWS_AFTER { LARGE } else { 3 * LARGE - number };
        ring.upload(stream, &bytes[..len], memory.address()).expect("it is submitted");
    }
    let mut found = [0; 1];
    memory.iter().enumerate().all(|(number, memory)| {
        device.download(stream, memory.address(), &mut found).expect("the device works");
        found == [number as u8]
    })
}

#[test]
fn pinned_memory_is_not_written_before_it_was_copied() {
    if !has("compiler", "pinned_memory_is_not_written_before_it_was_copied") {
        return;
    }
    let orders = || [Order::Early, Order::Late].into_iter().chain((0..8).map(Order::Random));
    for order in orders() {
        let device = EmulatedStreams::new(order);
        assert!(copies_are_right(&(Arc::new(device.clone()) as Arc<dyn Device>)), "{order:?}");
        let parts = device.pinned();
        assert!((2..=GROWS_AFTER + PARTS_MAX).contains(&parts), "{order:?}: {parts} parts");
        // A host that pins no memory, or too little.
        for parts in [0, 2] {
            let device = EmulatedStreams::new(order).with_pinned(parts);
            assert!(copies_are_right(&(Arc::new(device.clone()) as Arc<dyn Device>)), "{order:?}");
            assert!(device.pinned() <= parts);
        }
    }
    let impatient = |order| -> Arc<dyn Device> {
        Arc::new(Faulty::impatient(Arc::new(EmulatedStreams::new(order))))
    };
    assert!(copies_are_right(&impatient(Order::Early)));
    assert!(!copies_are_right(&impatient(Order::Late)), "memory is written too early");
}

#[test]
fn small_copies_need_no_pinned_memory() {
    if !has("compiler", "small_copies_need_no_pinned_memory") {
        return;
    }
    let device = EmulatedStreams::new(Order::Late);
    let stream: StreamId = device.create_stream().expect("a stream");
    let memory = device.alloc(LARGE).expect("memory");
    let mut ring = UploadRing::new(Arc::new(device.clone()));
    ring.upload(stream, &vec![7; LARGE - 1], memory.address()).expect("it is submitted");
    assert_eq!(device.pinned(), 0);
    ring.upload(stream, &vec![7; LARGE], memory.address()).expect("it is submitted");
    assert_eq!(device.pinned(), 1);
}

/// Features of a model whose batches are large.
const SIZES: [usize; 3] = [1024, 24, 5];
const SAMPLES: usize = 20;

fn samples(step: usize, lane: usize) -> Samples<f32> {
    let value = |at: usize| ((at * 7 + step * 31 + lane * 17) % 13) as f32 / 13.0 - 0.5;
    let classes = (0..SAMPLES).map(|sample| ((sample * sample + step + lane) % 5) as u8);
    Samples { inputs: (0..SAMPLES * SIZES[0]).map(value).collect(), classes: classes.collect() }
}

/// Features of a model with two units of more than 64 KiB in each of two parts.
const UNITS: [usize; 4] = [300, 140, 300, 5];

/// Outcomes and digest of two ranks that exchange weights and gradients in the memory of the host. The device of rank 0
/// is `first`.
fn exchanged(sharding: Sharding, first: &Arc<dyn Device>, order: Order) -> String {
    let mut config = EngineConfig { sharding, ..config(1, adam(), Precision::F32) };
    // All reductions are in flight together: those that end are copied back one after the other.
    config.plan.reduce_max = usize::MAX;
    let of_ranks = Group::on_threads(2, |group| {
        let device = match group.rank() {
            0 => first.clone(),
            _ => emulated(order),
        };
        let run = || -> Result<String, EngineError> {
            let model = DeviceMlp::new(device.clone(), &UNITS, Precision::F32.into());
            let mut engine = Engine::on_device(group, device.clone(), model, config.clone())?;
            let mut step = |step| engine.train_batch(|lane| samples_of(UNITS[0], step, lane));
            let outcomes = [step(0)?, step(1)?];
            Ok(format!("{outcomes:?} {}", engine.digest()?))
        };
        Ok(run().unwrap_or_else(|error| error.to_string()))
    });
    of_ranks.expect("all ranks end").swap_remove(0)
}

#[test]
fn exchanged_units_are_copied_through_pinned_memory() {
    if !has("compiler", "exchanged_units_are_copied_through_pinned_memory") {
        return;
    }
    for sharding in [Sharding::None, Sharding::Optimizer, Sharding::Parameters] {
        let pageable: Arc<dyn Device> = Arc::new(EmulatedStreams::new(Order::Early).with_pinned(0));
        let expected = exchanged(sharding, &pageable, Order::Early);
        for order in [Order::Early, Order::Late, Order::Lagging(1), Order::Random(3)] {
            let device = EmulatedStreams::new(order);
            let on: Arc<dyn Device> = Arc::new(device.clone());
            assert_eq!(exchanged(sharding, &on, order), expected, "{sharding}, {order:?}");
            assert!(0 < device.pinned(), "{sharding}, {order:?}");
        }
        // Without the wait for the event behind a copy, its pinned memory is written too early.
        let late = Arc::new(EmulatedStreams::new(Order::Late));
        let impatient: Arc<dyn Device> = Arc::new(Faulty::impatient(late));
        assert_ne!(exchanged(sharding, &impatient, Order::Late), expected, "{sharding}");
    }
}

/// Digest after some steps that are read one step later.
fn trained(device: &Arc<dyn Device>) -> String {
    let of_ranks = Group::on_threads(1, |group| {
        let model = DeviceMlp::new(device.clone(), &SIZES, Precision::F32.into());
        let config = config(3, adam(), Precision::F32);
        let mut engine =
            Engine::on_device(group, device.clone(), model, config).expect("an engine");
        for step in 0..3 {
            engine.submit_batch(|lane| samples(step, lane)).expect("a step");
        }
        engine.outcome().expect("the last step");
        Ok(engine.digest().expect("the digest"))
    });
    of_ranks.expect("it ends").swap_remove(0)
}

#[test]
fn large_batches_have_the_same_bits_through_pinned_memory() {
    if !has("compiler", "large_batches_have_the_same_bits_through_pinned_memory") {
        return;
    }
    let digest = |device: EmulatedStreams| trained(&(Arc::new(device) as Arc<dyn Device>));
    let expected = digest(EmulatedStreams::new(Order::Early).with_pinned(0));
    for order in [Order::Early, Order::Late, Order::Random(5), Order::Lagging(0)] {
        let device = EmulatedStreams::new(order);
        assert_eq!(digest(device.clone()), expected, "{order:?}");
        assert!(0 < device.pinned(), "{order:?}");
    }
    let late = Arc::new(EmulatedStreams::new(Order::Late));
    let impatient: Arc<dyn Device> = Arc::new(Faulty::impatient(late));
    assert_ne!(trained(&impatient), expected, "batches are overwritten");
}
