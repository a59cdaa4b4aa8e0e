//! What `remuda doctor --gpu` checks on a GPU: libraries, memory, the way to the other GPUs, kernels, products.

use std::time::Instant;

use crate::base::{Measured, clock};
use crate::cuda::cublaslt::{AlgorithmChoice, CublasLt};
use crate::cuda::device::{Device, DeviceAddress, DeviceError, StreamId};
use crate::cuda::driver::{CubinCache, CudaDevice};
use crate::cuda::kernels::HalfType;
use crate::cuda::nccl::NcclLibrary;
use crate::cuda::nvrtc::Compiler;
use crate::runtime::comm::device::{device_count, open_device};
use crate::runtime::data::random::RandomStream;
use crate::runtime::kernel_checks::{
    DeviceOperation, DeviceRunner, KERNEL_CHECKS, KernelBandwidth, TrafficShape, check_products,
    measure_bandwidths,
};

const LIBRARIES: &str = "libraries";
const MEMORY: &str = "memory";
const PEERS: &str = "peers";
const PRODUCTS: &str = "products";
const BANDWIDTHS: &str = "bandwidths";
/// Bytes that are copied, each way.
const COPIED_BYTES: usize = 256 << 20;
/// Timed copies, so that their time is more than that of a launch.
const COPIES: usize = 16;
/// Launches whose memory is larger than the caches of a GPU: activations of GPT-2 with 124 M parameters.
const TRAFFIC: TrafficShape = TrafficShape {
    batch: 64,
    length: 1024,
    heads: 12,
    vocabulary: 50_240,
    classified: 2048,
    parameters: 32 << 20,
    half: HalfType::Bf16,
};

/// Returns the names of all checks, in the order in which they should run.
pub fn check_names() -> Vec<&'static str> {
    let kernels = KERNEL_CHECKS.iter().map(|check| check.name);
    [LIBRARIES, MEMORY, PEERS].into_iter().chain(kernels).chain([PRODUCTS, BANDWIDTHS]).collect()
}

/// Runs a check on a GPU; returns what it measured.
///
/// # Errors
/// What is missing or wrong, in one line.
pub fn run_check(gpu: usize, name: &str) -> Result<Measured, String> {
    if name == LIBRARIES {
        return find_libraries(gpu).map(Measured::from);
    }
    let device = open(gpu)?;
    let done = |()| Measured::default();
    match name {
        MEMORY => check_memory(&device).map_err(|error| error.to_string())?,
        PEERS => check_peers(gpu, &device).map(Measured::from),
        PRODUCTS => check_products(&device).map(done).map_err(|error| error.to_string()),
        BANDWIDTHS => measure_kernels(&device).map_err(|error| error.to_string()),
        _ => {
            let check = KERNEL_CHECKS.iter().find(|check| check.name == name);
            let check = check.ok_or_else(|| format!("there is no check `{name}`"))?;
            let mut runner = DeviceRunner::new(&device).map_err(|error| error.to_string())?;
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
    let nccl = NcclLibrary::open().map_or_else(
        |error| format!("no NCCL, so gradients between GPUs go through the host: {error}"),
        |nccl| format!("NCCL {}", nccl.version()),
    );
    Ok(format!("{name}, NVRTC {}, cuBLASLt {}, {nccl}", compiler.version(), products.version()))
}

fn open(gpu: usize) -> Result<CudaDevice, String> {
    open_with(gpu, AlgorithmChoice::First)
}

/// Opens a GPU, with these algorithms of products.
///
/// # Errors
/// What is missing, in one line.
pub fn open_with(gpu: usize, choice: AlgorithmChoice) -> Result<CudaDevice, String> {
    let context = open_device(gpu).map_err(|error| error.to_string())?;
    CudaDevice::with_algorithms(context, CubinCache::of_user(), choice, None)
        .map_err(|error| error.to_string())
}

/// Words to copy.
fn random_words() -> Vec<u64> {
    let mut random = RandomStream::new(&[COPIED_BYTES as u64]);
    (0..COPIED_BYTES / 8).map(|_| random.bits()).collect()
}

/// Copies random bytes from every other GPU. Returns the way to each and its bandwidth.
fn check_peers(gpu: usize, device: &CudaDevice) -> Result<String, String> {
    let count = device_count().map_err(|error| error.to_string())?;
    let others: Vec<usize> = (0..count).filter(|other| *other != gpu).collect();
    if others.is_empty() {
        return Ok("there is no other GPU".to_owned());
    }
    let words = random_words();
    let found: Result<Vec<String>, String> = others
        .into_iter()
        .map(|other| {
            let peer = open(other)?;
            let copied = copy_from_peer(device, &peer, bytemuck::cast_slice(&words));
            let copied = copied.unwrap_or_else(|error| Err(error.to_string()));
            let (way, rate) = copied.map_err(|why| format!("GPU {other}: {why}"))?;
            Ok(format!("{rate:.0} GB/s from GPU {other} {way}"))
        })
        .collect();
    Ok(found?.join(", "))
}

/// Copies bytes from another GPU. Returns the way that they take and the bandwidth in GB/s, or what is wrong.
fn copy_from_peer(
    device: &CudaDevice,
    peer: &CudaDevice,
    sent: &[u8],
) -> Result<Result<(&'static str, f64), String>, DeviceError> {
    let (from, to) = (peer.alloc(COPIED_BYTES)?, device.alloc(COPIED_BYTES)?);
    let (of_peer, stream) = (peer.create_stream()?, device.create_stream()?);
    let mut word = [0; 8];
    peer.upload(of_peer, sent, from.address())?;
    // A download waits for what was submitted before.
    peer.download(of_peer, from.address(), &mut word)?;
    let way = if device.enable_peer(peer)? { "directly" } else { "through the host" };
    let copy = || device.copy_from_peer(stream, (peer, from.address()), to.address(), COPIED_BYTES);
    copy()?;
    let mut received = vec![0; COPIED_BYTES];
    device.download(stream, to.address(), &mut received)?;
    if received != sent {
        return Ok(Err(format!("bytes that were copied {way} differ from those that were sent")));
    }
    let start = clock::now();
    (0..COPIES).try_for_each(|_| copy())?;
    device.download(stream, to.address(), &mut word)?;
    Ok(Ok((way, rate(COPIES * COPIED_BYTES, start))))
}

/// Copies random bytes to the device, within it, and back. Returns the bandwidths, or what is wrong.
fn check_memory(device: &dyn Device) -> Result<Result<Measured, String>, DeviceError> {
    let words = random_words();
    let sent: &[u8] = bytemuck::cast_slice(&words);
    let (from, to) = (device.alloc(COPIED_BYTES)?, device.alloc(COPIED_BYTES)?);
    let (stream, mut word) = (device.create_stream()?, [0; 8]);
    let start = clock::now();
    device.upload(stream, sent, from.address())?;
    device.download(stream, from.address(), &mut word)?;
    let to_device = rate(COPIED_BYTES, start);
    let within = copy_rate(device, stream, [from.address(), to.address()])?;
    let (mut received, start) = (vec![0; COPIED_BYTES], clock::now());
    device.download(stream, to.address(), &mut received)?;
    let from_device = rate(COPIED_BYTES, start);
    if received != sent {
        return Ok(Err("copied bytes differ from those that were sent".to_owned()));
    }
    let message = format!(
        "{within:.0} GB/s within the GPU, {to_device:.1} GB/s to it, {from_device:.1} GB/s from it"
    );
    let figures = [("within", within), ("to_gpu", to_device), ("from_gpu", from_device)];
    let figures = figures.map(|(way, rate)| (format!("{way}_gb_per_s"), rate));
    Ok(Ok(Measured::of(message, figures)))
}

/// Bandwidth of copies within a device, in GB/s: every byte is read and written.
fn copy_rate(
    device: &dyn Device,
    stream: StreamId,
    [from, to]: [DeviceAddress; 2],
) -> Result<f64, DeviceError> {
    let copy = DeviceOperation::Copy { from, to, bytes: COPIED_BYTES };
    Ok(2.0 * COPIED_BYTES as f64 / copy.seconds(device, stream)? / 1e9)
}

/// Times the kernels that are limited by memory. Returns their bandwidths as shares of that of a copy.
fn measure_kernels(device: &dyn Device) -> Result<Measured, DeviceError> {
    let (from, to) = (device.alloc(COPIED_BYTES)?, device.alloc(COPIED_BYTES)?);
    let copied = copy_rate(device, device.create_stream()?, [from.address(), to.address()])?;
    drop((from, to));
    Ok(as_shares(copied, &measure_bandwidths(device, TRAFFIC)?))
}

/// The bandwidths of kernels as shares of that of a copy, which is in GB/s.
fn as_shares(copied: f64, kernels: &[KernelBandwidth]) -> Measured {
    let shares = kernels.iter().map(|of| {
        let share = of.bytes_per_second / (copied * 1e9);
        (of.kernel.name().to_owned(), share)
    });
    let shares: Vec<_> = shares.collect();
    let show = |(name, share): &(String, f64)| format!("{name} {:.0} %", 100.0 * share);
    let shown: Vec<_> = shares.iter().map(show).collect();
    Measured::of(format!("of {copied:.0} GB/s of a copy: {}", shown.join(", ")), shares)
}

/// Bandwidth in GB/s.
fn rate(bytes: usize, start: Instant) -> f64 {
    bytes as f64 / (clock::now() - start).as_secs_f64() / 1e9
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::cuda::kernels::Kernel;

    #[test]
    fn bandwidths_of_kernels_are_shares_of_a_copy() {
        let of = |kernel, bytes_per_second| KernelBandwidth { kernel, bytes: 1, bytes_per_second };
        let kernels = [of(Kernel::Adam, 3e12), of(Kernel::NormForward, 2.1e12)];
        let expected = "of 3000 GB/s of a copy: adam 100 %, norm_forward 70 %";
        let measured = as_shares(3000.0, &kernels);
        assert_eq!(measured.message, expected);
        assert!((measured.figures["norm_forward"] - 0.7).abs() < 1e-9, "{measured:?}");
    }

    #[test]
    fn checks_have_different_names() {
        let names = check_names();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        let error = run_check(1_000_000, LIBRARIES).expect_err("no machine has so many GPUs");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
