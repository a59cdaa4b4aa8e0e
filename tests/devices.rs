//! Operations in flight on device memory. They need GPUs: without one the tests are skipped.
//!
//! Ranks are threads of one process. Every backend runs with a GPU for each rank; ranks that share GPUs run
//! through host memory, and through NCCL if `NCCL_MULTI_RANK_GPU_ENABLE=1` (NCCL 2.30 or newer).

use remuda::base::env_vars;
use remuda::runtime::device::{DeviceBackend, DeviceGroup, cudarc, device_count, open_device};
use remuda::runtime::tree::Lanes;
use remuda::runtime::{
    Collectives, DdpOptions, DistributedDataParallel, DividedReduction, Error, GradientCollectives,
    GradientMemory, Gradients, Group, HostMemory, Layout, Lend, Operation, Traffic,
};

use crate::support::proof::skip;

const LEN: usize = 1000;

/// The backends of a test, each with its number of ranks; `None` without a GPU.
fn layouts(test: &str) -> Option<Vec<(DeviceBackend, usize)>> {
    let Ok(devices @ 1..) = device_count() else {
        skip("gpu", test);
        return None;
    };
    let (nccl, staged) = (DeviceBackend::Nccl, DeviceBackend::Staged);
    let mut layouts = vec![(nccl, devices), (staged, devices), (staged, 3), (staged, 4)];
    let shares = env_vars::get_text(env_vars::NCCL_MULTI_RANK_GPU_ENABLE).as_deref() == Some("1");
    layouts.extend(shares.then_some([(nccl, 2), (nccl, 3)]).into_iter().flatten());
    Some(layouts)
}

/// Device group of a rank; rank `r` uses GPU `r`, or shares one if there are fewer GPUs than ranks.
fn open(group: &Group, backend: DeviceBackend) -> Result<DeviceGroup, Error> {
    let context = open_device(group.local_rank() % device_count()?)?;
    DeviceGroup::new(group, &context, backend)
}

/// Ranges of one memory are reduced and gathered while others are in flight.
#[test]
fn ranges_in_flight_on_devices_match_the_definition() {
    let test = "ranges_in_flight_on_devices_match_the_definition";
    for (backend, devices) in layouts(test).into_iter().flatten() {
        let results = Group::on_threads(devices, |group| in_flight(group, backend));
        let results = results.expect("every rank succeeds");
        let ranks = (1..=devices).map(|rank| rank as f32);
        let sum: f32 = ranks.clone().sum();
        let gathered = ranks.flat_map(|rank| vec![rank; LEN]);
        let reduced = [sum, sum / devices as f32].map(|value| vec![value; LEN]).concat();
        let expected: Vec<f32> = reduced.into_iter().chain(gathered).collect();
        assert!(results.iter().all(|result| *result == expected), "{backend:?}");
    }
}

fn in_flight(group: &Group, backend: DeviceBackend) -> Result<Vec<f32>, Error> {
    operate(&open(group, backend)?, group.rank(), group.world_size())
}

/// A sum, a mean and a gathering, all in flight at once; returns their results.
fn operate(devices: &DeviceGroup, rank: usize, world: usize) -> Result<Vec<f32>, Error> {
    let mut memory = Collectives::<f32>::alloc_shared(devices, (3 + world) * LEN)?;
    let values = vec![(rank + 1) as f32; 3 * LEN];
    let stream = memory.stream().clone();
    stream.memcpy_htod(&values, &mut memory.view_mut(&(0..3 * LEN))).map_err(failed)?;
    let [first, second, third, all] =
        [0..LEN, LEN..2 * LEN, 2 * LEN..3 * LEN, 3 * LEN..(3 + world) * LEN]
            .map(|range| memory.lend(&range));
    let mean = DividedReduction::mean_of(world as u64);
    let sum = devices.submit_all_reduce(first, DividedReduction::SUM, |_| {});
    let mean = devices.submit_all_reduce(second, mean, |_| {});
    let gathered = devices.submit_all_gather(third, all);
    let (third, all) = gathered.wait()?;
    for lent in [sum.wait()?, mean.wait()?, third, all] {
        memory.restore(lent);
    }
    let mut result = vec![0.0; (3 + world) * LEN];
    stream.memcpy_dtoh(&memory.view_mut(&(0..result.len())), &mut result).map_err(failed)?;
    stream.synchronize().map_err(failed)?;
    result.drain(2 * LEN..3 * LEN);
    Ok(result)
}

/// A thousand times all operations of the test before, through NCCL, take no memory of the devices.
#[test]
fn thousand_operations_on_devices_leak_no_memory() {
    let test = "thousand_operations_on_devices_leak_no_memory";
    let Some((backend, devices)) = layouts(test).into_iter().flatten().next() else { return };
    let taken = Group::on_threads(devices, |group| {
        let context = open_device(group.local_rank())?;
        let devices = DeviceGroup::new(group, &context, backend)?;
        let free = || {
            context.bind_to_thread().map_err(failed)?;
            cudarc::driver::result::mem_get_info().map(|(free, _)| free).map_err(failed)
        };
        let mut before = 0;
        for round in 0..1100 {
            operate(&devices, group.rank(), group.world_size())?;
            // The first ones load kernels and fill the pools of the driver.
            if round == 100 {
                before = free()?;
            }
        }
        Ok(before.saturating_sub(free()?))
    });
    let taken = taken.expect("every rank succeeds");
    assert!(taken.iter().all(|bytes| *bytes < 8 << 20), "bytes that were taken: {taken:?}");
}

/// Parts are reduced and gathered in place, also the pieces of three lanes of every rank, and counted.
#[test]
fn sharded_operations_on_devices_match_the_definition() {
    let test = "sharded_operations_on_devices_match_the_definition";
    for (backend, devices) in layouts(test).into_iter().flatten() {
        let results = Group::on_threads(devices, |group| shard(group, backend));
        for (rank, (result, traffic)) in results.expect("every rank succeeds").iter().enumerate() {
            let ranks = (1..=devices).map(|rank| rank as f32);
            let sum: f32 = ranks.clone().sum();
            let parts = ranks.map(|rank| rank + sum).collect::<Vec<_>>();
            let expected: Vec<f32> = parts.iter().flat_map(|value| vec![*value; LEN]).collect();
            assert_eq!(result[..devices * LEN], expected, "{backend:?}");
            assert_eq!(result[devices * LEN..], vec![3.0 * sum; LEN], "{backend:?}");
            let others = (4 * LEN * (devices - 1)) as u64;
            let lanes = Lanes { ranks: devices, each: 3 };
            let pieces = (lanes.pieces().len() - lanes.pieces_of(rank).len()) as u64;
            let mut plan = Traffic::default();
            plan.record(Operation::ReduceScatter, others);
            plan.record(Operation::AllGather, others);
            plan.record(Operation::ReduceScatterOfPieces, pieces * (4 * LEN) as u64);
            assert_eq!(*traffic, plan, "{backend:?}");
        }
    }
}

/// Sums a memory of the rank's number in place, adds the number to the own part, gathers, and sums pieces.
fn shard(group: &Group, backend: DeviceBackend) -> Result<(Vec<f32>, Traffic), Error> {
    let devices = open(group, backend)?;
    let (rank, world, number) = (group.rank(), group.world_size(), (group.rank() + 1) as f32);
    let lanes = Lanes { ranks: world, each: 3 };
    let pieces = lanes.pieces_of(rank);
    let all = world * LEN;
    let mut memory = Collectives::<f32>::alloc_shared(&devices, (1 + pieces.len()) * all + LEN)?;
    let stream = memory.stream().clone();
    stream.memcpy_htod(&vec![number; all], &mut memory.view_mut(&(0..all))).map_err(failed)?;
    let data = memory.lend(&(0..all));
    let sum = DividedReduction::SUM;
    let data = devices.submit_reduce_scatter_in_place(data, sum).wait()?;
    memory.restore(data);
    let own = rank * LEN..(rank + 1) * LEN;
    let mut ours = vec![0.0; LEN];
    stream.memcpy_dtoh(&memory.view_mut(&own), &mut ours).map_err(failed)?;
    stream.synchronize().map_err(failed)?;
    for value in &mut ours {
        *value += number;
    }
    stream.memcpy_htod(&ours, &mut memory.view_mut(&own)).map_err(failed)?;
    let data = memory.lend(&(0..all));
    let gathered = devices.submit_all_gather_in_place(data);
    let mut lent = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let range = (1 + at) * all..(2 + at) * all;
        let values = vec![piece.len() as f32 * number; all];
        stream.memcpy_htod(&values, &mut memory.view_mut(&range)).map_err(failed)?;
        lent.push(memory.lend(&range));
    }
    let end = (1 + pieces.len()) * all;
    let output = memory.lend(&(end..end + LEN));
    let summed = devices.submit_reduce_scatter_of_pieces(lent, output, 3, sum);
    memory.restore(gathered.wait()?);
    let (lent, output) = summed.wait()?;
    for lent in lent.into_iter().chain([output]) {
        memory.restore(lent);
    }
    let mut result = vec![0.0; end + LEN];
    stream.memcpy_dtoh(&memory.view_mut(&(0..end + LEN)), &mut result).map_err(failed)?;
    stream.synchronize().map_err(failed)?;
    result.drain(all..end);
    Ok((result, devices.traffic()))
}

/// The mean gradients of several micro-batches on devices have the bits of those on CPUs.
#[test]
fn gradients_on_devices_have_the_bits_of_cpus() {
    for (backend, ranks) in
        layouts("gradients_on_devices_have_the_bits_of_cpus").into_iter().flatten()
    {
        let expected = Group::on_threads(ranks, |group| {
            mean_gradients(
                group,
                |gradient, values| gradient.flat().copy_from_slice(values),
                |mean| Ok(HostMemory::slice_mut(mean, &(0..LEN)).to_vec()),
            )
        });
        let expected = expected.expect("every rank succeeds");
        let found = Group::on_threads(ranks, |group| {
            let devices = open(group, backend)?.in_canonical_order()?;
            let stream = devices.stream().context().default_stream();
            let write = |gradient: &mut Gradients<'_, f32, DeviceGroup>, values: &[f32]| {
                let written = match gradient.memory() {
                    GradientMemory::Scratch(memory) => stream.memcpy_htod(values, memory),
                    GradientMemory::Buffer(memory) => {
                        stream.memcpy_htod(values, &mut memory.view_mut(&(0..LEN)))
                    }
                };
                written.expect("the memory has room");
            };
            mean_gradients(&devices, write, |mean| {
                let mut values = vec![0.0; LEN];
                stream.memcpy_dtoh(&mean.view_mut(&(0..LEN)), &mut values).map_err(failed)?;
                stream.synchronize().map_err(failed)?;
                Ok(values)
            })
        });
        let found = found.expect("every rank succeeds");
        let bits = |all: &[Vec<f32>]| -> Vec<u32> {
            all.iter().flatten().map(|value| value.to_bits()).collect()
        };
        assert_eq!(bits(&found), bits(&expected), "{backend:?}");
    }
}

/// The mean gradients of two steps of three micro-batches, of which `write` writes one and `read` reads the mean.
fn mean_gradients<C: GradientCollectives<f32>>(
    collectives: &C,
    write: impl Fn(&mut Gradients<'_, f32, C>, &[f32]),
    read: impl Fn(&mut C::Buffer) -> Result<Vec<f32>, Error>,
) -> Result<Vec<f32>, Error> {
    let layout = Layout::new([("weight", LEN - 7), ("bias", 7)]);
    let options = DdpOptions { accumulate: 3, first_bucket_bytes: 64, bucket_bytes: 1000 };
    let mut ddp = DistributedDataParallel::new(collectives, &layout, options)?;
    let mut means = Vec::new();
    for step in 0..2 {
        for micro_batch in 0..options.accumulate {
            let lane = collectives.as_ref().rank() * options.accumulate + micro_batch;
            let value = |at: usize| 1.0 / (1 + at * 7 + lane * 1009 + step * 13) as f32;
            let values: Vec<f32> = (0..LEN).map(value).collect();
            ddp.micro_batch(|gradient| write(gradient, &values))?;
        }
        means.extend(read(ddp.finish_step()?)?);
    }
    Ok(means)
}

fn failed(error: cudarc::driver::DriverError) -> Error {
    Error::Device(format!("{error:?}"))
}
