//! What `remuda doctor --gpu` checks on a GPU: libraries, memory, kernels, products.

use std::sync::Arc;
use std::time::Instant;

use crate::base::clock;
use crate::cuda::cublaslt::CublasLt;
use crate::cuda::device::{Device, DeviceError};
use crate::cuda::driver::{CubinCache, CudaDevice};
use crate::cuda::nvrtc::Compiler;
use crate::runtime::comm::device::{device_count, open_device};
use crate::runtime::data::random::RandomStream;
use crate::runtime::kernel_checks::{DeviceRunner, KERNEL_CHECKS, check_products};

const LIBRARIES: &str = "libraries";
const MEMORY: &str = "memory";
const PRODUCTS: &str = "products";
/// Bytes that are copied, each way.
const COPIED_BYTES: usize = 256 << 20;
/// Copies within the device, so that their time is more than that of a launch.
const COPIES: usize = 16;

/// Returns the names of all checks, in the order in which they should run.
pub fn check_names() -> Vec<&'static str> {
    let kernels = KERNEL_CHECKS.iter().map(|check| check.name);
    [LIBRARIES, MEMORY].into_iter().chain(kernels).chain([PRODUCTS]).collect()
}

/// Runs a check on a GPU; returns what it measured.
///
/// # Errors
/// What is missing or wrong, in one line.
pub fn run_check(gpu: usize, name: &str) -> Result<String, String> {
    if name == LIBRARIES {
        return find_libraries(gpu);
    }
    let device = open(gpu)?;
    let done = |()| String::new();
    match name {
        MEMORY => check_memory(&*device).map_err(|error| error.to_string())?,
        PRODUCTS => check_products(&*device).map(done).map_err(|error| error.to_string()),
        _ => {
            let check = KERNEL_CHECKS.iter().find(|check| check.name == name);
            let check = check.ok_or_else(|| format!("there is no check `{name}`"))?;
            let mut runner = DeviceRunner::new(&*device).map_err(|error| error.to_string())?;
            check.run(&mut runner).map(done).map_err(|error| error.to_string())
        }
    }
}

fn find_libraries(gpu: usize) -> Result<String, String> {
    let count = device_count().map_err(|error| error.to_string())?;
    if count <= gpu {
        return Err(format!("the driver has {count} GPUs, so there is no GPU {gpu}"));
    }
    let compiler = Compiler::open().map_err(|error| error.to_string())?;
    let products = CublasLt::open().map_err(|error| error.to_string())?;
    let name = open(gpu)?.name();
    Ok(format!("{name}, NVRTC {}, cuBLASLt {}", compiler.version(), products.version()))
}

fn open(gpu: usize) -> Result<Arc<dyn Device>, String> {
    let context = open_device(gpu).map_err(|error| error.to_string())?;
    let device = CudaDevice::new(context, CubinCache::of_user());
    Ok(Arc::new(device.map_err(|error| error.to_string())?))
}

/// Copies random bytes to the device, within it, and back. Returns the bandwidths, or what is wrong.
fn check_memory(device: &dyn Device) -> Result<Result<String, String>, DeviceError> {
    let mut random = RandomStream::new(&[COPIED_BYTES as u64]);
    let words: Vec<u64> = (0..COPIED_BYTES / 8).map(|_| random.bits()).collect();
    let sent: &[u8] = bytemuck::cast_slice(&words);
    let (from, to) = (device.alloc(COPIED_BYTES)?, device.alloc(COPIED_BYTES)?);
    let (stream, mut word) = (device.create_stream()?, [0; 8]);
    let start = clock::now();
    device.upload(stream, sent, from.address())?;
    device.download(stream, from.address(), &mut word)?;
    let to_device = rate(COPIED_BYTES, start);
    device.copy(stream, from.address(), to.address(), COPIED_BYTES)?;
    device.download(stream, from.address(), &mut word)?;
    let start = clock::now();
    for _ in 0..COPIES {
        device.copy(stream, from.address(), to.address(), COPIED_BYTES)?;
    }
    device.download(stream, to.address(), &mut word)?;
    // Every byte is read and written.
    let within = rate(2 * COPIES * COPIED_BYTES, start);
    let (mut received, start) = (vec![0; COPIED_BYTES], clock::now());
    device.download(stream, to.address(), &mut received)?;
    let from_device = rate(COPIED_BYTES, start);
    if received != sent {
        return Ok(Err("copied bytes differ from those that were sent".to_owned()));
    }
    Ok(Ok(format!(
        "{within:.0} GB/s within the GPU, {to_device:.1} GB/s to it, {from_device:.1} GB/s from it"
    )))
}

/// Bandwidth in GB/s.
fn rate(bytes: usize, start: Instant) -> f64 {
    bytes as f64 / (clock::now() - start).as_secs_f64() / 1e9
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn checks_have_different_names() {
        let names = check_names();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        let error = run_check(1_000_000, LIBRARIES).expect_err("no machine has so many GPUs");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
