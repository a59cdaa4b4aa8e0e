//! How often the host waits for an emulated device in a step. A wait that is not listed here makes a test fail.

use std::sync::Arc;

use remuda::cuda::device::Device;
use remuda::runtime::Group;
use remuda::runtime::checkpoint::{CheckpointWriter, SavedState, WriterOptions};
use remuda::runtime::engine::{
    DeviceReplica, Engine, EngineConfig, EngineError, Precision, Sharding, StatePlace,
};
use remuda::runtime::optim::{DynamicScaling, LossScaling, Optimizer, SgdOptions};
use remuda::train::DeviceMlp;

use super::emulated_streams::{EmulatedStreams, Order};
use super::saved::Dir;
use super::stages::{WIDE, on_ranks, staged};
use super::training::{Open, STEPS, adam, config, emulated, samples_of};
use crate::support::proof::has;

/// Streams of an engine, in the order in which it creates them: computations, copies of weights and gradients, and the
/// copies of what was decided.
const COMPUTATIONS: usize = 0;
const STREAMS: usize = 3;
/// Steps until all memory was allocated.
const FIRST: usize = 2;
/// Copies of a decision: the step, and the losses. They wait for nothing that was submitted after the decision.
const READS: usize = 2;
/// Units of the model.
const UNITS: usize = 3;

fn engine(
    group: &Group,
    device: Arc<dyn Device>,
    config: &EngineConfig,
) -> Engine<DeviceReplica<DeviceMlp>> {
    let model = DeviceMlp::new(device.clone(), &WIDE, config.precision.into());
    Engine::on_device(group, device, model, config.clone()).expect("an engine")
}

fn scaled(config: EngineConfig) -> EngineConfig {
    let scaling = DynamicScaling { initial_power: 19, window: 2, ..DynamicScaling::default() };
    EngineConfig { loss_scaling: LossScaling::Dynamic(scaling), ..config }
}

/// Waits of the host for the streams of rank 0 in each of some steps.
fn waits_of_steps<const STREAMS: usize>(
    ranks: usize,
    config: &EngineConfig,
    new: impl Fn() -> EmulatedStreams + Sync,
) -> Vec<[usize; STREAMS]> {
    let of_ranks = Group::on_threads(ranks, |group| {
        let device = new();
        let mut engine = engine(group, Arc::new(device.clone()), config);
        let mut waits = Vec::new();
        for step in 0..FIRST + STEPS {
            let (before, memory) = (device.counts(), device.memory_changes());
            let read = engine.submit_batch(|lane| samples_of(WIDE[0], step, lane));
            let read = read.expect("a step").map(|outcome| outcome.step as usize);
            assert_eq!(read, step.checked_sub(1).map(|before| before + 1), "the step before");
            if step < FIRST {
                continue;
            }
            let after = device.counts();
            assert_eq!(device.memory_changes(), memory, "memory is kept");
            assert_eq!(after.len(), STREAMS);
            waits.push(std::array::from_fn(|stream| {
                let [before, after] = [&before, &after].map(|counts| counts[stream].host_waits);
                after - before
            }));
        }
        Ok(waits)
    });
    of_ranks.expect("all ranks end").swap_remove(0)
}

#[track_caller]
fn check_waits(ranks: usize, config: &EngineConfig, expected: [usize; STREAMS]) {
    for order in [Order::Early, Order::Late] {
        let found = waits_of_steps(ranks, config, || EmulatedStreams::new(order));
        assert_eq!(found, vec![expected; STEPS], "{ranks} ranks, {order:?}: {config:?}");
    }
}

/// With one rank, the host waits only for the decision on the step before.
#[test]
fn step_of_one_rank_does_not_wait() {
    if !has("compiler", "step_of_one_rank_does_not_wait") {
        return;
    }
    for sharding in Sharding::ALL {
        check_waits(1, &staged(sharding, 2, Precision::Bf16), [0, 0, READS]);
    }
    check_waits(1, &config(1, adam(), Precision::F32), [0, 0, READS]);
    check_waits(1, &scaled(config(3, adam(), Precision::F16)), [0, 0, READS]);
}

/// Ranks exchange gradients, sums of squares and weights in the memory of the host, for each of which it waits.
#[test]
fn steps_of_ranks_wait_for_what_is_exchanged() {
    if !has("compiler", "steps_of_ranks_wait_for_what_is_exchanged") {
        return;
    }
    let accumulate = 2;
    let sums = 1;
    for (sharding, expected) in [
        (Sharding::None, [0, UNITS, READS]),
        (Sharding::Optimizer, [sums, UNITS + UNITS, READS]),
        (Sharding::Gradients, [sums, accumulate * UNITS + UNITS, READS]),
        (Sharding::Parameters, [sums, accumulate * UNITS + UNITS, READS]),
    ] {
        check_waits(2, &staged(sharding, accumulate, Precision::Bf16), expected);
    }
}

/// What connected devices exchange, the host does not wait for: only for the decision on the step before.
#[test]
fn steps_of_connected_devices_do_not_wait() {
    if !has("compiler", "steps_of_connected_devices_do_not_wait") {
        return;
    }
    // Computations, copies, exchange, and the copies of what was decided.
    let expected = [0, 0, 0, READS];
    for sharding in Sharding::ALL {
        for (ranks, precision) in [(2, Precision::Bf16), (4, Precision::F32)] {
            for order in [Order::Early, Order::Late] {
                let config = staged(sharding, 2, precision);
                let found = waits_of_steps(ranks, &config, || EmulatedStreams::connected(order));
                assert_eq!(found, vec![expected; STEPS], "{ranks} ranks, {order:?}: {config:?}");
            }
        }
    }
}

/// The processor updates weights by the decision on this step, and by gradients.
#[test]
fn optimizer_of_the_host_waits_for_the_gradients() {
    if !has("compiler", "optimizer_of_the_host_waits_for_the_gradients") {
        return;
    }
    let mut config = staged(Sharding::None, 2, Precision::Bf16);
    config.offload.optimizer = StatePlace::Host;
    check_waits(1, &config, [UNITS, 0, READS + 1]);
}

/// On a device that executes nothing before the host waits for it, nothing of a step is executed when it was submitted.
#[test]
fn host_submits_a_step_while_the_one_before_runs() {
    if !has("compiler", "host_submits_a_step_while_the_one_before_runs") {
        return;
    }
    let config = &scaled(config(2, adam(), Precision::F16));
    let trained = Group::on_threads(1, |group| {
        let device = EmulatedStreams::new(Order::Late);
        let mut engine = engine(group, Arc::new(device.clone()), config);
        for step in 0..FIRST + STEPS {
            let before = device.counts()[COMPUTATIONS];
            engine.submit_batch(|lane| samples_of(WIDE[0], step, lane)).expect("a step");
            let after = device.counts()[COMPUTATIONS];
            assert!(before.submitted < after.submitted);
            if FIRST <= step {
                assert!(after.executed < before.submitted, "step {step}: {after:?}, {before:?}");
            }
        }
        let last = engine.outcome().expect("the last step").map(|outcome| outcome.step as usize);
        assert_eq!((last, engine.outcome().expect("no step")), (Some(FIRST + STEPS), None));
        Ok(())
    });
    trained.expect("it ends");
}

#[test]
fn state_is_saved_once_the_outcome_was_read() {
    if !has("compiler", "state_is_saved_once_the_outcome_was_read") {
        return;
    }
    let dir = Dir::new("device-unread");
    let trained = Group::on_threads(1, |group| {
        let device = EmulatedStreams::new(Order::Late);
        let mut engine = engine(group, Arc::new(device), &config(1, adam(), Precision::F32));
        let mut writer =
            CheckpointWriter::new(group, &dir.0, WriterOptions::default()).expect("a writer");
        engine.submit_batch(|lane| samples_of(WIDE[0], 0, lane)).expect("a step");
        assert_eq!((engine.global_steps(), engine.counters().steps), (1, 0));
        let error = engine.save_checkpoint(&mut writer, SavedState::default()).err();
        assert_eq!(
            error.map(|error| error.to_string()).as_deref(),
            Some(
                "save_checkpoint was called before the outcome of the last step was read; call \
                 `outcome`"
            )
        );
        engine.outcome().expect("the step");
        engine.save_checkpoint(&mut writer, SavedState::default()).expect("it is copied");
        assert!(writer.finish().into_iter().all(|outcome| outcome.is_ok()), "it is saved");
        Ok(())
    });
    trained.expect("it ends");
}

/// Outcomes of all steps, and the digest after them, where the outcomes are read later.
fn read_later(ranks: usize, config: &EngineConfig, open: &dyn Open) -> String {
    let of_ranks = Group::on_threads(ranks, |group| {
        let run = || -> Result<String, EngineError> {
            let mut engine = engine(group, open(), config);
            let mut outcomes = Vec::new();
            for step in 0..STEPS {
                outcomes.extend(engine.submit_batch(|lane| samples_of(WIDE[0], step, lane))?);
            }
            outcomes.extend(engine.outcome()?);
            Ok(format!("{outcomes:?} {}", engine.digest()?))
        };
        Ok(run().unwrap_or_else(|error| error.to_string()))
    });
    of_ranks.expect("all ranks end").swap_remove(0)
}

/// Checks that steps whose outcome is read after the next one have the bits of those for which the host waits.
pub(super) fn check_read_later(opens: &[&dyn Open]) {
    let momentum = Optimizer::Sgd(SgdOptions { momentum: 0.9, ..SgdOptions::default() });
    for (sharding, ranks) in [
        (Sharding::None, 1),
        (Sharding::None, 2),
        (Sharding::Optimizer, 2),
        (Sharding::Parameters, 4),
    ] {
        for (precision, optimizer) in [(Precision::F16, adam()), (Precision::F32, momentum)] {
            let mut config = scaled(staged(sharding, 4 / ranks, precision));
            config.optimizer = optimizer;
            if precision == Precision::F32 {
                config.loss_scaling = LossScaling::None;
            }
            let expected = on_ranks(ranks, &config, opens[0]);
            for (number, open) in opens.iter().enumerate() {
                let found = read_later(ranks, &config, *open);
                assert_eq!(found, expected, "device {number}: {config:?}");
            }
        }
    }
}

#[test]
fn steps_that_are_read_later_have_the_same_bits() {
    if !has("compiler", "steps_that_are_read_later_have_the_same_bits") {
        return;
    }
    check_read_later(&[
        &|| emulated(Order::Early),
        &|| emulated(Order::Late),
        &|| emulated(Order::Random(11)),
        &|| emulated(Order::Lagging(COMPUTATIONS)),
        &|| emulated(Order::Lagging(1)),
        &|| emulated(Order::Lagging(2)),
    ]);
}

/// The kernels fold the sums of more than 1024 blocks in levels, and the host folds those of two ranks.
#[test]
fn sums_of_many_blocks_have_the_same_bits() {
    if !has("compiler", "sums_of_many_blocks_have_the_same_bits") {
        return;
    }
    let sizes = [1024, 1100, 5];
    let trained = |ranks, sharding| {
        let sgd = Optimizer::Sgd(SgdOptions::default());
        let config = EngineConfig { sharding, ..config(2 / ranks, sgd, Precision::F32) };
        let of_ranks = Group::on_threads(ranks, |group| {
            let device = emulated(Order::Early);
            let model = DeviceMlp::new(device.clone(), &sizes, config.precision.into());
            let mut engine =
                Engine::on_device(group, device, model, config.clone()).expect("an engine");
            let outcome = engine.train_batch(|lane| samples_of(sizes[0], 0, lane));
            Ok(outcome.expect("a step"))
        });
        of_ranks.expect("all ranks end").swap_remove(0)
    };
    assert_eq!(trained(1, Sharding::None), trained(2, Sharding::Optimizer));
}
