//! Inventory of this machine: GPUs, processors and memory, and how much of them this process may use
//! (layer L3).
//!
//! Functions that read the system and return data; they decide nothing and keep no state. A missing
//! library or file means "none" or "unknown", never a panic.

mod cgroup;
mod cpu;
mod gpu;
mod gpu_state;
mod kernel_log;
mod libraries;
mod memory;
mod network;
#[cfg(test)]
mod testing;
mod topology;

pub use cpu::{CpuQuota, cpu_quota, usable_cpus};
pub use gpu::{
    Gpu, GpuCapability, GpuRoom, GpusAndDriver, VisibleDevices, gpu_count, gpu_rooms, gpu_uuids,
    gpus, gpus_and_driver, has_gpu, oldest_gpu, slots_of, visible_devices,
};
pub use gpu_state::{GpuState, GpuUser, Gpus, gpu_states};
pub use kernel_log::{open_log_at_end, read_xids, xid_concerns, xid_is_of_device, xids};
pub use libraries::{FoundLibrary, libraries};
pub use memory::{available_memory, memory_limit, oom_kills};
pub use network::{IbPort, Nic, ib_ports, nics};
pub use topology::{numa_topology, topology};
