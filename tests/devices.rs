//! Operations in flight on device memory. They need GPUs: without one the test is skipped.

use remuda::runtime::device::{DeviceBackend, DeviceGroup, cudarc, device_count, open_device};
use remuda::runtime::{Collectives, DividedReduction, Error, Group, Lend};

use crate::support::proof::skip;

const LEN: usize = 1000;

/// Ranges of one memory are reduced and gathered while others are in flight; every rank has a GPU.
#[test]
fn ranges_in_flight_on_devices_match_the_definition() {
    let Ok(devices @ 1..) = device_count() else {
        return skip("gpu", "ranges_in_flight_on_devices_match_the_definition");
    };
    for backend in [DeviceBackend::Nccl, DeviceBackend::Staged] {
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
    let context = open_device(group.local_rank())?;
    let devices = DeviceGroup::new(group, &context, backend)?;
    let world = group.world_size();
    let mut memory = Collectives::<f32>::alloc_shared(&devices, (3 + world) * LEN)?;
    let values = vec![(group.rank() + 1) as f32; 3 * LEN];
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

fn failed(error: cudarc::driver::DriverError) -> Error {
    Error::Device(format!("{error:?}"))
}
