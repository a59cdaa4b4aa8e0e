//! GPUs: counted by their device files; NVML is opened only when names or UUIDs are needed.

use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use crate::base::Slot;
use crate::base::order;

/// Number of GPUs that the driver offers: the files `nvidia0`, `nvidia1`, … of a directory, usually
/// `/dev`. Costs one directory listing; the driver library is not loaded.
///
/// The numbers of the files need not be dense (a container may have `nvidia3` alone); CUDA counts
/// from 0 anyway.
pub fn gpu_count(dev: &Path) -> u32 {
    let Ok(entries) = dev.read_dir() else { return 0 };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| is_gpu_file(name)).count() as u32
}

/// Whether a driver offers a GPU: a file `nvidia0`, `nvidia1`, … of NVIDIA's, or `kfd` of AMD's.
pub fn has_gpu(dev: &Path) -> bool {
    0 < gpu_count(dev) || dev.join("kfd").exists()
}

fn is_gpu_file(name: &str) -> bool {
    name.strip_prefix("nvidia").is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// GPUs that `CUDA_VISIBLE_DEVICES` selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisibleDevices {
    /// GPUs by number, in the order in which CUDA counts them.
    Slots(Vec<Slot>),
    /// GPUs by UUID (`GPU-…`, `MIG-…`), which only NVML can resolve; see [`slots_of`].
    Uuids(Vec<String>),
}

/// Parses `CUDA_VISIBLE_DEVICES` as CUDA does: unset means all GPUs, and the list ends at the first
/// entry that names no device, so that an empty value or `-1` hides all of them.
pub fn visible_devices(count: u32, variable: Option<&str>) -> VisibleDevices {
    let Some(variable) = variable else {
        return VisibleDevices::Slots((0..count).map(Slot).collect());
    };
    let entries = || variable.split(',').map(str::trim);
    let is_uuid = |entry: &str| entry.starts_with("GPU-") || entry.starts_with("MIG-");
    if entries().next().is_some_and(is_uuid) {
        return VisibleDevices::Uuids(
            entries().take_while(|entry| is_uuid(entry)).map(str::to_owned).collect(),
        );
    }
    let numbers = entries().map_while(|entry| entry.parse().ok().filter(|number| *number < count));
    VisibleDevices::Slots(numbers.map(Slot).collect())
}

/// One GPU, as NVML describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Number of the GPU in NVML's order, which is that of the PCI bus.
    pub slot: Slot,
    /// Name, such as `NVIDIA H200`.
    pub name: String,
    /// UUID, `GPU-…`; no UUID is a prefix of another.
    pub uuid: String,
    /// Total memory.
    pub memory_bytes: u64,
}

/// All GPUs as NVML describes them; `None` when NVML cannot be opened (no driver) or fails.
pub fn gpus() -> Option<Vec<Gpu>> {
    let nvml = Nvml::init().ok()?;
    (0..nvml.device_count().ok()?).map(|index| describe(&nvml, index).ok()).collect()
}

/// What a GPU can compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuCapability {
    /// Name, such as `NVIDIA H200`.
    pub name: String,
    /// Major and minor compute capability.
    pub version: (u32, u32),
}

/// The GPU of this machine with the least compute capability; `None` if there is no GPU.
///
/// # Errors
/// Why NVML does not say it.
pub fn oldest_gpu() -> Result<Option<GpuCapability>, String> {
    let found = |nvml: &Nvml, index| -> Result<GpuCapability, NvmlError> {
        let device = nvml.device_by_index(index)?;
        let capability = device.cuda_compute_capability()?;
        let number = |number: i32| u32::try_from(number).unwrap_or_default();
        let version = (number(capability.major), number(capability.minor));
        Ok(GpuCapability { name: device.name()?, version })
    };
    let all = || -> Result<Vec<_>, NvmlError> {
        let nvml = Nvml::init()?;
        (0..nvml.device_count()?).map(|index| found(&nvml, index)).collect()
    };
    let all = all().map_err(|error| error.to_string())?;
    Ok(all.into_iter().min_by_key(|gpu| gpu.version))
}

/// Memory of a GPU that nothing uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuRoom {
    /// Number of the GPU in NVML's order.
    pub slot: Slot,
    /// Name, such as `NVIDIA H200`.
    pub name: String,
    /// Bytes that are free.
    pub free_bytes: u64,
}

/// The free memory of all GPUs of this machine; empty when NVML cannot be opened or fails.
pub fn gpu_rooms() -> Vec<GpuRoom> {
    let room = |nvml: &Nvml, index| -> Result<GpuRoom, NvmlError> {
        let device = nvml.device_by_index(index)?;
        let (name, free_bytes) = (device.name()?, device.memory_info()?.free);
        Ok(GpuRoom { slot: Slot(index), name, free_bytes })
    };
    let rooms = || -> Result<Vec<GpuRoom>, NvmlError> {
        let nvml = Nvml::init()?;
        (0..nvml.device_count()?).map(|index| room(&nvml, index)).collect()
    };
    rooms().unwrap_or_default()
}

/// Names of the GPUs, and the version of their driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpusAndDriver {
    /// Names, such as `NVIDIA H200`.
    pub names: Vec<String>,
    /// Version, such as `550.40.07`.
    pub driver: String,
}

/// Returns the names of all GPUs and the version of their driver; nothing when NVML cannot be opened or
/// fails.
pub fn gpus_and_driver() -> GpusAndDriver {
    let read = || -> Result<GpusAndDriver, NvmlError> {
        let nvml = Nvml::init()?;
        let names = (0..nvml.device_count()?).map(|index| nvml.device_by_index(index)?.name());
        Ok(GpusAndDriver {
            names: names.collect::<Result<_, _>>()?,
            driver: nvml.sys_driver_version()?,
        })
    };
    read().unwrap_or_default()
}

fn describe(nvml: &Nvml, index: u32) -> Result<Gpu, NvmlError> {
    let device = nvml.device_by_index(index)?;
    Ok(Gpu {
        slot: Slot(index),
        name: device.name()?,
        uuid: device.uuid()?,
        memory_bytes: device.memory_info()?.total,
    })
}

/// The UUIDs of all GPUs, in the order of the PCI bus. They are read from the driver's files in
/// `/proc`, without a library; if the driver hides them there, NVML is opened.
pub fn gpu_uuids() -> Vec<String> {
    match uuids_in(Path::new("/proc/driver/nvidia/gpus")) {
        Some(uuids) => uuids,
        None => gpus().into_iter().flatten().map(|gpu| gpu.uuid).collect(),
    }
}

/// UUIDs in a directory like `/proc/driver/nvidia/gpus`; empty if it does not exist, `None` if one
/// of them is hidden.
pub(super) fn uuids_in(dir: &Path) -> Option<Vec<String>> {
    let entries = dir.read_dir().into_iter().flatten().flatten();
    let mut addresses: Vec<_> = entries.map(|entry| entry.path()).collect();
    order::sort(&mut addresses);
    addresses.iter().map(|address| uuid_in(&address.join("information"))).collect()
}

/// UUID in the line `GPU UUID:   GPU-…`; `None` where an old driver shows question marks instead,
/// as it does to unprivileged users.
fn uuid_in(information: &Path) -> Option<String> {
    let text = std::fs::read_to_string(information).ok()?;
    let uuid = text.lines().find_map(|line| line.strip_prefix("GPU UUID:"))?.trim();
    (!uuid.is_empty() && !uuid.contains('?')).then(|| uuid.to_owned())
}

/// The slots of GPUs that are given by UUID; a prefix of a UUID is enough, as in CUDA. `None` when
/// one of them does not exist, or is a partition of a GPU (MIG).
pub fn slots_of(uuids: &[String], gpus: &[Gpu]) -> Option<Vec<Slot>> {
    let slot_of = |uuid: &String| gpus.iter().find(|gpu| gpu.uuid.starts_with(uuid.as_str()));
    uuids.iter().map(|uuid| slot_of(uuid).map(|gpu| gpu.slot)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_files_have_numbers() {
        for (name, expect) in [
            ("nvidia0", true),
            ("nvidia12", true),
            ("nvidia", false),
            ("nvidiactl", false),
            ("nvidia-uvm", false),
            ("xnvidia0", false),
        ] {
            assert_eq!(is_gpu_file(name), expect, "for `{name}`");
        }
        assert_eq!(gpu_count(Path::new("/nowhere/at/all")), 0);
    }

    #[track_caller]
    fn check(variable: Option<&str>, slots: &[u32]) {
        let expect = VisibleDevices::Slots(slots.iter().copied().map(Slot).collect());
        assert_eq!(visible_devices(4, variable), expect, "for {variable:?}");
    }

    #[test]
    fn visible_devices_are_parsed_as_by_cuda() {
        check(None, &[0, 1, 2, 3]);
        check(Some("0,1"), &[0, 1]);
        check(Some("3, 1"), &[3, 1]);
        check(Some(""), &[]);
        check(Some("-1"), &[]);
        check(Some("NoDevFiles"), &[]);
        check(Some("0,9,1"), &[0]);
    }

    #[test]
    fn uuids_are_resolved_to_slots() {
        let gpu = |slot, uuid: &str| Gpu {
            slot: Slot(slot),
            name: "GPU".to_owned(),
            uuid: uuid.to_owned(),
            memory_bytes: 0,
        };
        let gpus = [gpu(0, "GPU-aa11"), gpu(1, "GPU-bb22")];
        let VisibleDevices::Uuids(uuids) = visible_devices(2, Some("GPU-bb,GPU-aa11")) else {
            panic!("these are UUIDs");
        };
        assert_eq!(slots_of(&uuids, &gpus), Some(vec![Slot(1), Slot(0)]));
        assert_eq!(slots_of(&["MIG-cc".to_owned()], &gpus), None);
    }

    #[test]
    fn uuids_are_read_from_driver_files_in_bus_order() {
        let dir = std::env::temp_dir().join(format!("remuda-gpus-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        assert_eq!(uuids_in(&dir), Some(Vec::new()), "no driver");
        let describe = |address: &str, uuid: &str| {
            let (dir, model) = (dir.join(address), "Model: \t\t NVIDIA H200");
            std::fs::create_dir_all(&dir).expect("a directory");
            let text =
                format!("{model}\nIRQ:   \t\t 17\nGPU UUID: \t {uuid}\nDevice Minor: \t 1\n");
            std::fs::write(dir.join("information"), text).expect("a file");
        };
        describe("0000:9b:00.0", "GPU-bb22");
        describe("0000:1a:00.0", "GPU-aa11");
        assert_eq!(uuids_in(&dir), Some(vec!["GPU-aa11".to_owned(), "GPU-bb22".to_owned()]));
        describe("0000:1a:00.0", "GPU-????????-????-????-????-????????????");
        assert_eq!(uuids_in(&dir), None);
        std::fs::remove_dir_all(dir).expect("the test has created it");
    }

    #[test]
    fn gpus_is_none_without_a_driver() {
        match gpus() {
            None => {}
            Some(found) => assert!(found.iter().all(|gpu| gpu.uuid.starts_with("GPU-"))),
        }
    }
}
