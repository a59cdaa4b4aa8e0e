//! How GPUs are: everything that NVML tells and a doctor wants to know.

use std::fs;

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
    /// The newest CUDA that it knows: `12.4`.
    pub cuda: Option<String>,
    /// In the order of the PCI bus; one that does not answer is why there is none.
    pub devices: Result<Vec<GpuState>, String>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuState {
    /// `NVIDIA H200`.
    pub name: String,
    /// `GPU-…`.
    pub uuid: String,
    /// All of its memory.
    pub memory_bytes: u64,
    /// Whether it is cut into parts (MIG).
    pub mig: bool,
    /// Memory errors since the driver was loaded that could not be corrected; `None`: not counted.
    pub ecc_errors: Option<u64>,
    /// Who computes on it.
    pub users: Vec<GpuUser>,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuUser {
    /// Its pid, as the driver counts.
    pub pid: u32,
    /// Its name, if it may be seen from here.
    pub name: Option<String>,
    /// Memory of the GPU that it holds.
    pub memory_bytes: Option<u64>,
}

/// Asks NVML; the error says why it does not answer.
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
    // What a GPU does not have, or does not let us see, is no fault of it.
    let users = device.running_compute_processes().unwrap_or_default();
    let mut users: Vec<GpuUser> = users.iter().map(user).collect();
    users.sort();
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
    fn a_machine_without_a_driver_says_why() {
        match gpu_states() {
            Err(why) => assert!(!why.is_empty()),
            Ok(found) => assert!(found.devices.is_ok(), "{found:?}"),
        }
    }
}
