//! `--device auto`: whether workers have GPUs that they can use.

use crate::cli::command::train::values::DeviceArg;
use crate::cli::resolve;
#[cfg(feature = "nccl")]
use crate::cuda::cublaslt::CublasLt;
#[cfg(feature = "nccl")]
use crate::cuda::driver::OLDEST_ARCHITECTURE;
#[cfg(feature = "nccl")]
use crate::cuda::nvrtc::{Architecture, Compiler};
#[cfg(feature = "nccl")]
use crate::inventory::{GpuCapability, oldest_gpu};
use crate::report::print_error;
use crate::report::text::show_count;
use crate::runtime::{CollectiveError, Group, ReduceOp};

/// Note for GPUs that are used without being asked for.
const NOTE: &str = "training on GPUs was not tried on one yet; `--device cpu` trains on processors";

/// Where workers compute, and what the user should know about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeviceChoice {
    pub(super) device: DeviceArg,
    pub(super) note: Option<String>,
}

/// Decides where workers of this machine compute, of which there should be so many.
pub(super) fn choose_here(wanted: Option<usize>) -> DeviceChoice {
    choose(resolve::visible_gpus(), wanted, problem_of_gpus)
}

/// GPUs if there are enough and nothing prevents their use.
fn choose(
    visible: usize,
    wanted: Option<usize>,
    problem: impl FnOnce() -> Option<String>,
) -> DeviceChoice {
    let cpu = |why: String| DeviceChoice {
        device: DeviceArg::Cpu,
        note: Some(format!("{why}; the workers compute on processors")),
    };
    match wanted {
        _ if visible == 0 => DeviceChoice { device: DeviceArg::Cpu, note: None },
        Some(wanted) if visible < wanted => {
            let gpus = show_count(visible, "GPU");
            cpu(format!("this machine has {gpus} for {}", show_count(wanted, "worker")))
        }
        _ => match problem() {
            Some(why) => cpu(why),
            None => DeviceChoice { device: DeviceArg::Cuda, note: Some(NOTE.to_owned()) },
        },
    }
}

/// Why a training cannot use the GPUs of this machine.
#[cfg(feature = "nccl")]
fn problem_of_gpus() -> Option<String> {
    let libraries = || -> Result<(), String> {
        Compiler::open().map_err(|error| error.to_string())?;
        CublasLt::open().map(drop).map_err(|error| error.to_string())
    };
    let oldest = libraries().and_then(|()| {
        oldest_gpu().map_err(|why| format!("the driver of the GPUs does not answer: {why}"))
    });
    match oldest {
        Err(why) => Some(why),
        Ok(oldest) => oldest.as_ref().and_then(problem_of_architecture),
    }
}

#[cfg(feature = "nccl")]
fn problem_of_architecture(gpu: &GpuCapability) -> Option<String> {
    let GpuCapability { name, version: (major, minor) } = gpu;
    let Architecture { major: least, minor: and } = OLDEST_ARCHITECTURE;
    (*major < least).then(|| {
        format!("{name} has compute capability {major}.{minor}, and training needs {least}.{and}")
    })
}

#[cfg(not(feature = "nccl"))]
fn problem_of_gpus() -> Option<String> {
    Some("this build of remuda has no support for GPUs (feature `nccl`)".to_owned())
}

/// Decides where the workers of a job compute that decide by themselves: on GPUs if every one has a GPU that it can
/// use. If only some have one, or have one that they cannot use, one worker says so.
///
/// # Errors
/// If the workers cannot exchange what they have.
pub(super) fn agree(group: &Group) -> Result<DeviceArg, CollectiveError> {
    let DeviceChoice { device, note } = choose_here(None);
    let is_usable = device == DeviceArg::Cuda;
    // A GPU that cannot be used is what the user should know first.
    let reason = note.filter(|_| !is_usable);
    let mut usable = [i32::from(is_usable)];
    group.all_reduce(&mut usable, ReduceOp::Sum)?;
    let mut speaker = [if reason.is_some() { group.rank() as i32 } else { i32::MAX }];
    group.all_reduce(&mut speaker, ReduceOp::Min)?;
    let (usable, workers) = (usable[0] as usize, group.world_size());
    let note = of_workers(usable, workers, speaker[0] != i32::MAX);
    if speaker[0] == group.rank() as i32 {
        let reason = reason.unwrap_or_default();
        print_error(&format!("note: rank {}: {reason}\n", group.rank()));
    } else if group.rank() == 0
        && let Some(note) = note
    {
        print_error(&format!("note: {note}\n"));
    }
    Ok(if usable == workers { DeviceArg::Cuda } else { DeviceArg::Cpu })
}

/// What rank 0 says if some workers have a GPU that they can use, and no worker gives another reason.
fn of_workers(usable: usize, workers: usize, has_reason: bool) -> Option<String> {
    let are_some = (1..workers).contains(&usable) && !has_reason;
    are_some.then(|| format!("{usable} of {workers} workers have a GPU; all compute on processors"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(visible: usize, wanted: Option<usize>, problem: Option<&str>, expected: &str) {
        let DeviceChoice { device, note } = choose(visible, wanted, || problem.map(str::to_owned));
        assert_eq!(format!("{device:?} {}", note.unwrap_or_default()), expected);
    }

    #[test]
    fn gpus_are_used_if_there_are_enough_that_can_be_used() {
        let cuda = format!("Cuda {NOTE}");
        check(0, None, Some("it is not asked"), "Cpu ");
        check(2, None, None, &cuda);
        check(2, Some(2), None, &cuda);
        let few = "Cpu this machine has 2 GPUs for 4 workers; the workers compute on processors";
        check(2, Some(4), None, few);
        let missing = "Cpu cannot find NVRTC; the workers compute on processors";
        check(2, None, Some("cannot find NVRTC"), missing);
    }

    #[test]
    fn workers_use_gpus_only_together() {
        assert_eq!(of_workers(0, 4, false), None);
        assert_eq!(of_workers(4, 4, false), None);
        assert_eq!(of_workers(3, 4, true), None, "another worker gives the reason");
        let some = "3 of 4 workers have a GPU; all compute on processors";
        assert_eq!(of_workers(3, 4, false).as_deref(), Some(some));
    }

    #[cfg(feature = "nccl")]
    #[test]
    fn old_gpu_is_a_reason() {
        let why = "Tesla T4 has compute capability 7.5, and training needs 8.0";
        let problem = |name: &str, version| {
            problem_of_architecture(&GpuCapability { name: name.to_owned(), version })
        };
        assert_eq!(problem("Tesla T4", (7, 5)).as_deref(), Some(why));
        assert_eq!(problem("NVIDIA A100", (8, 0)), None);
        assert_eq!(problem("NVIDIA B200", (10, 0)), None);
    }
}
