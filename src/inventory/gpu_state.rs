//! State of the GPUs as NVML reports it, for `remuda doctor`.

use std::fs;

use crate::base::order;

use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};

/// All GPUs of a machine, and their driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpus {
    /// Version of the driver.
    pub driver: Option<String>,
    /// Newest CUDA version that the driver supports, such as `12.4`.
    pub cuda: Option<String>,
    /// GPUs in the order of the PCI bus, or the error of the first one that does not answer.
    pub devices: Result<Vec<GpuState>, String>,
}

/// State of one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuState {
    /// Name, such as `NVIDIA H200`.
    pub name: String,
    /// UUID, `GPU-…`.
    pub uuid: String,
    /// Total memory.
    pub memory_bytes: u64,
    /// Whether it is partitioned (MIG).
    pub mig: bool,
    /// Uncorrected memory errors since the driver was loaded; `None`: not counted.
    pub ecc_errors: Option<u64>,
    /// Processes that compute on it.
    pub users: Vec<GpuUser>,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuUser {
    /// Pid of the process, as the driver reports it.
    pub pid: u32,
    /// Name of the process, if it is visible in this pid namespace.
    pub name: Option<String>,
    /// GPU memory that it holds.
    pub memory_bytes: Option<u64>,
}

/// Queries NVML; the error is why NVML does not answer.
pub fn gpu_states() -> Result<Gpus, String> {
    let nvml = Nvml::init().map_err(|error| error.to_string())?;
    let cuda = nvml.sys_cuda_driver_version().ok();
    let cuda = cuda.map(|number| {
        let (major, minor) = (cuda_driver_version_major(number), cuda_driver_version_minor(number));
        format!("{major}.{minor}")
    });
    let count = nvml.device_count().map_err(|error| error.to_string())?;
    let state = |index| {
        let state = nvml.device_by_index(index).and_then(|device| describe(&device));
        state.map_err(|error| format!("GPU {index}: {error}"))
    };
    let devices = (0..count).map(state).collect();
    Ok(Gpus { driver: nvml.sys_driver_version().ok(), cuda, devices })
}

fn describe(device: &Device<'_>) -> Result<GpuState, NvmlError> {
    let ecc = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    // A GPU that does not support the query, or does not permit it, is not faulty.
    let users = device.running_compute_processes().unwrap_or_default();
    let mut users: Vec<GpuUser> = users.iter().map(user).collect();
    order::sort(&mut users);
    Ok(GpuState {
        name: device.name()?,
        uuid: device.uuid()?,
        memory_bytes: device.memory_info()?.total,
        mig: device.mig_mode().is_ok_and(|mode| mode.current != 0),
        ecc_errors: ecc.ok(),
        users,
    })
}

fn user(found: &ProcessInfo) -> GpuUser {
    let name = fs::read_to_string(format!("/proc/{}/comm", found.pid)).ok();
    let memory_bytes = match found.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    GpuUser { pid: found.pid, name: name.map(|name| name.trim().to_owned()), memory_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_states_without_a_driver_is_an_error() {
        match gpu_states() {
            Err(why) => assert!(!why.is_empty()),
            Ok(found) => assert!(found.devices.is_ok(), "{found:?}"),
        }
    }
}
