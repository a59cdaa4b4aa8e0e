//! Ranks on emulated devices that are connected: what they exchange stays on the devices, beside the computations.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use remuda::cuda::device::Device;
use remuda::runtime::engine::{
    Engine, EngineConfig, Exchange, PlanOptions, Precision, Prefetch, Sharding, StatePlace,
};
use remuda::runtime::{Group, InitOptions};
use remuda::train::{DeviceMlp, TrainEvent, train_on};
use serde_json::Value;

use super::emulated_streams::{EmulatedStreams, Executed, ExecutedKind, Order};
use super::saved::Dir;
use super::stages::{self, NewDevice, WIDE, on_ranks, staged};
use super::trainer::{mlp, options};
use super::training::{emulated, samples_of};
use crate::support::proof::has;

/// A new emulated device that can be connected with others.
fn connected(order: Order) -> Arc<dyn Device> {
    Arc::new(EmulatedStreams::connected(order))
}

#[test]
fn stages_on_connected_devices_change_no_bit() {
    if has("compiler", "stages_on_connected_devices_change_no_bit") {
        stages::check(&|| connected(Order::Random(4)));
    }
}

/// Settings, and on how many ranks, with how many micro-batches each.
type Case<'a> = ([usize; 2], &'a dyn Fn(&mut EngineConfig));

#[test]
fn settings_on_connected_devices_change_no_bit() {
    if !has("compiler", "settings_on_connected_devices_change_no_bit") {
        return;
    }
    let cases: [Case<'_>; 8] = [
        ([4, 1], &|config| config.shard_group = Some(2)),
        ([2, 2], &|config| config.persistent_len_max = 1700),
        ([2, 2], &|config| config.plan.prefetch = Prefetch::Elements(0)),
        ([2, 2], &|config| config.gradient_rounding = Some(Precision::Bf16)),
        ([2, 2], &|config| config.no_sync = true),
        ([2, 2], &|config| config.offload.optimizer = StatePlace::Host),
        ([2, 2], &|config| config.offload.parameters = Some(std::env::temp_dir())),
        // Every rank reduces the sums of its subtrees, in the memory of the host.
        ([3, 3], &|_| ()),
    ];
    for ([ranks, accumulate], adjust) in cases {
        let mut config = staged(Sharding::Parameters, accumulate, Precision::Bf16);
        adjust(&mut config);
        let expected = on_ranks(ranks, &config, &|| emulated(Order::Early));
        for order in [Order::Early, Order::Late, Order::Random(7)] {
            let found = on_ranks(ranks, &config, &|| connected(order));
            assert_eq!(found, expected, "{order:?}: {config:?}");
        }
    }
}

/// The library needs no copy of its own: all memory that ranks exchange was prepared for the communicator that uses it,
/// and is released in the end.
#[test]
fn memory_that_ranks_exchange_is_prepared() {
    if !has("compiler", "memory_that_ranks_exchange_is_prepared") {
        return;
    }
    for (sharding, ranks, shard_group) in [
        (Sharding::None, 2, None),
        (Sharding::Optimizer, 2, None),
        (Sharding::Gradients, 3, None),
        (Sharding::Parameters, 2, None),
        (Sharding::Parameters, 4, Some(2)),
    ] {
        for exchange in [Exchange::Devices, Exchange::AnyOrder] {
            let mut config = staged(sharding, 1, Precision::Bf16);
            config.shard_group = shard_group;
            config.exchange = exchange;
            let devices = Mutex::new(Vec::new());
            let new = || -> Arc<dyn Device> {
                let device = EmulatedStreams::connected(Order::Early);
                devices.lock().expect("no rank panics").push(device.clone());
                Arc::new(device)
            };
            on_ranks(ranks, &config, &new);
            for device in devices.into_inner().expect("no rank panics") {
                let found = (device.unregistered_exchanges(), device.registered_ranges());
                assert_eq!(found, (0, 0), "{sharding}, {ranks} ranks, {exchange:?}");
                assert_ne!(device.exchanges(), 0);
            }
        }
    }
}

/// Nodes with two or four ranks each sum their own data first; others do not.
#[test]
fn nodes_with_connected_devices_change_no_bit() {
    if !has("compiler", "nodes_with_connected_devices_change_no_bit") {
        return;
    }
    for (sharding, nodes, shard_group) in [
        (Sharding::None, &[2, 2][..], None),
        (Sharding::Optimizer, &[2, 2], None),
        (Sharding::Gradients, &[2, 2, 2], None),
        (Sharding::Parameters, &[4, 4], None),
        (Sharding::Parameters, &[4, 4], Some(4)),
        (Sharding::Optimizer, &[3, 1], None),
        (Sharding::Optimizer, &[1, 2], None),
    ] {
        let mut config = staged(sharding, 1, Precision::Bf16);
        config.shard_group = shard_group;
        config.exchange = Exchange::Host;
        let expected = stages::on_nodes(nodes, &config, &|| connected(Order::Early));
        config.exchange = Exchange::Devices;
        let found = stages::on_nodes(nodes, &config, &|| connected(Order::Random(3)));
        assert_eq!(found, expected, "{sharding}, nodes of {nodes:?} ranks");
    }
}

/// The emulated library adds in another order than the canonical one, which shows for three ranks.
#[test]
fn sums_of_the_library_have_its_own_order() {
    if !has("compiler", "sums_of_the_library_have_its_own_order") {
        return;
    }
    for sharding in [Sharding::None, Sharding::Optimizer] {
        let with = |ranks, exchange| {
            let mut config = staged(sharding, 1, Precision::F32);
            config.exchange = exchange;
            on_ranks(ranks, &config, &|| connected(Order::Late))
        };
        assert_eq!(with(2, Exchange::AnyOrder), with(2, Exchange::Devices), "two numbers");
        assert_ne!(with(3, Exchange::AnyOrder), with(3, Exchange::Devices));
        assert_eq!(with(3, Exchange::Host), with(3, Exchange::Devices));
    }
}

/// The last line of the first screen of a training.
fn path_on_screen(
    ranks: usize,
    adjust: impl Fn(&mut EngineConfig) + Sync,
    new: NewDevice,
) -> String {
    let started = Group::on_threads(ranks, |group| {
        let mut options = options(mlp(), Precision::F32);
        adjust(&mut options.engine);
        let mut screen = String::new();
        let mut on_event = |event: &TrainEvent| {
            if let TrainEvent::Started(start) = event {
                screen = start.to_string();
            }
        };
        let device = Arc::new(new(Order::Early));
        train_on(group, device, &options, &|| true, &mut on_event).expect("the run is stopped");
        Ok(screen)
    });
    let of_rank_0 = started.expect("all ranks end").swap_remove(0);
    of_rank_0.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn first_screen_says_how_gradients_are_exchanged() {
    if !has("compiler", "first_screen_says_how_gradients_are_exchanged") {
        return;
    }
    let alone = path_on_screen(1, |_| (), EmulatedStreams::connected);
    assert!(alone.ends_with("of memory"), "{alone}");
    let any = |config: &mut EngineConfig| config.exchange = Exchange::AnyOrder;
    let thirds = |config: &mut EngineConfig| config.accumulate = 3;
    let found = [
        path_on_screen(2, |_| (), EmulatedStreams::connected),
        path_on_screen(2, any, EmulatedStreams::connected),
        path_on_screen(2, any, EmulatedStreams::new),
        path_on_screen(3, thirds, EmulatedStreams::connected),
    ];
    let expected = [
        "NCCL 2.18.3, canonical order",
        "NCCL 2.18.3, NCCL's order",
        "through the memory of the host, because rank 0 has no NCCL",
        "through the memory of the host, because the number of micro-batches of a worker is no power of two",
    ];
    assert_eq!(found, expected.map(|path| format!("gradients between GPUs: {path}")));
}

/// The event behind the first reduction of stage 3. Passes have waited for units that were gathered after it.
const FIRST_REDUCED: u32 = 26;

#[test]
fn every_wait_of_an_exchange_is_needed() {
    if !has("compiler", "every_wait_of_an_exchange_is_needed") {
        return;
    }
    for (sharding, implied) in [
        (Sharding::None, &[][..]),
        (Sharding::Optimizer, &[]),
        (Sharding::Parameters, &[FIRST_REDUCED]),
    ] {
        let config = staged(sharding, 1, Precision::F32);
        stages::check_waits(&config, EmulatedStreams::connected, implied);
    }
}

#[test]
fn memory_of_connected_devices_is_as_forecast() {
    if has("compiler", "memory_of_connected_devices_is_as_forecast") {
        stages::check_memory(EmulatedStreams::connected, Exchange::Devices);
        stages::check_memory(EmulatedStreams::connected, Exchange::AnyOrder);
    }
}

#[test]
fn failed_device_is_an_error_on_connected_ranks() {
    if has("compiler", "failed_device_is_an_error_on_connected_ranks") {
        stages::check_memory_error(EmulatedStreams::connected, [0, 12, 29]);
    }
}

/// Trains a step, or steps until one fails; returns why.
fn train_until(group: &Group, steps: usize, sharding: Sharding) -> String {
    let device = connected(Order::Random(2));
    let config = staged(sharding, 1, Precision::F32);
    let model = DeviceMlp::new(device.clone(), &WIDE, Precision::F32.into());
    let mut engine = Engine::on_device(group, device, model, config).expect("an engine");
    let mut step = |step| engine.train_batch(|lane| samples_of(WIDE[0], step, lane));
    (0..steps).find_map(|at| step(at).err()).map_or_else(String::new, |error| error.to_string())
}

#[test]
fn rank_that_hangs_and_its_exchange_are_named() {
    if !has("compiler", "rank_that_hangs_and_its_exchange_are_named") {
        return;
    }
    for (sharding, has_dir) in
        [(Sharding::None, true), (Sharding::Parameters, true), (Sharding::Optimizer, false)]
    {
        let dir = Dir::new("device-records");
        if has_dir {
            fs::create_dir(&dir.0).expect("a new directory");
        }
        let timeout = Duration::from_secs(3);
        let run_dir = Some(dir.0.clone());
        let options = InitOptions { timeout, run_dir, ..InitOptions::default() };
        let [waiting, hanging] =
            Group::threads_with(2, &options).expect("threads can meet").try_into().expect("two");
        let (end, hang) = mpsc::channel();
        let error = std::thread::scope(|scope| {
            scope.spawn(move || {
                let error = train_until(&hanging, 1, sharding);
                hang.recv().expect("the other rank ends");
                error
            });
            let error = train_until(&waiting, 3, sharding);
            end.send(()).expect("the rank hangs");
            error
        });
        assert!(error.contains("deadline passed while waiting for rank 1"), "{error}");
        assert!(error.contains("waits for other ranks"), "{error}");
        if has_dir {
            check_records(&dir.0, &error);
        } else {
            assert!(!dir.0.exists() && !error.contains("records of"), "{error}");
        }
    }
}

/// Checks the file that the error names: numbers of exchanges without a gap, and what became of each.
#[track_caller]
fn check_records(dir: &Path, error: &str) {
    let file = dir.join("rank0.exchanges.jsonl");
    assert!(error.ends_with(&format!("\nrecords of this rank: {}", file.display())), "{error}");
    let text = fs::read_to_string(file).expect("the records were written");
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let states: Vec<&str> =
        records.iter().map(|record| record["state"].as_str().expect("a state")).collect();
    let ended = states.iter().take_while(|state| **state == "ended").count();
    assert!(0 < ended && states[ended] == "begun", "one waits: {states:?}");
    assert!(states[ended + 1..].iter().all(|state| *state == "queued"), "{states:?}");
    for (at, record) in records.iter().enumerate() {
        assert_eq!((&record["rank"], &record["restarts"]), (&0.into(), &0.into()));
        assert_eq!(record["number"], at + 1);
        assert!(record["bytes"].as_u64() > Some(0), "{record}");
        assert!(record["submitted_ms"].as_u64() <= record["written_ms"].as_u64(), "{record}");
        let of_unit = record["unit"].as_u64().is_some();
        assert_eq!(of_unit, record["what"] != "squares", "{record}");
    }
    let waiting = records[ended]["number"].to_string();
    assert!(error.contains(&format!("\n  {waiting}: ")), "{error}");
}

/// Streams of an engine on connected devices.
const COMPUTATIONS: usize = 0;
const EXCHANGE: usize = 2;
/// Units of the model.
const UNITS: usize = 3;

/// What rank 0 executes while it submits the backward pass of a step.
fn executed_in_backward(order: Order) -> Vec<Executed> {
    let of_ranks = Group::on_threads(2, |group| {
        let device = EmulatedStreams::connected(order);
        let mut config = staged(Sharding::Optimizer, 1, Precision::F32);
        config.plan = PlanOptions { reduce_max: usize::MAX, ..config.plan };
        let on: Arc<dyn Device> = Arc::new(device.clone());
        let model = DeviceMlp::new(on.clone(), &WIDE, config.precision.into());
        let mut engine = Engine::on_device(group, on, model, config).expect("an engine");
        let batch = samples_of(WIDE[0], 0, engine.lane());
        // The weights were exchanged before.
        engine.forward(&batch).expect("a pass");
        // Rank 1 is ahead: its first gradient is there when rank 0 exchanges its own.
        if group.rank() == 0 {
            group.barrier()?;
        }
        let before = device.executed().len();
        engine.backward(&batch).expect("a pass");
        let executed = device.executed().split_off(before);
        if group.rank() == 1 {
            group.barrier()?;
        }
        // A rank that waits in its step lets the devices of the others go on.
        group.barrier()?;
        engine.step().expect("a step");
        Ok(executed)
    });
    of_ranks.expect("all ranks end").swap_remove(0)
}

/// Places in a history.
fn places(history: &[Executed], wanted: Executed) -> Vec<usize> {
    let found = history.iter().enumerate().filter(|(_, executed)| **executed == wanted);
    found.map(|(place, _)| place).collect()
}

/// The backward pass of a unit and the exchange of the one before wait for each other in no direction.
#[test]
fn exchange_runs_beside_the_backward_pass() {
    if !has("compiler", "exchange_runs_beside_the_backward_pass") {
        return;
    }
    // If the exchange is late, all passes are executed before it.
    let history = executed_in_backward(Order::Lagging(EXCHANGE));
    let closed = places(&history, (COMPUTATIONS, ExecutedKind::Record));
    assert_eq!(closed.len(), UNITS, "the gradients of all units are complete: {history:?}");
    assert!(history.iter().all(|(stream, _)| *stream != EXCHANGE), "{history:?}");
    // If it is early, that of a unit is sent before the pass of the next unit begins.
    let history = executed_in_backward(Order::Early);
    let closed = places(&history, (COMPUTATIONS, ExecutedKind::Record));
    let computed = places(&history, (COMPUTATIONS, ExecutedKind::Computation));
    let sent = places(&history, (EXCHANGE, ExecutedKind::Sent));
    for unit in &closed[..UNITS - 1] {
        let next = |places: &[usize]| places.iter().copied().find(|place| unit < place);
        assert!(next(&sent) < next(&computed), "unit at {unit}: {history:?}");
    }
}
