//! Kinds of accelerators.

use crate::base::env_vars;

/// What kind of device a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// Processor time; unlimited, never locked.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// A GPU where the node has one, else processor time: the launcher does not know the devices of other
    /// machines.
    GpuIfAny,
    /// An AMD GPU.
    Rocm,
    /// An Intel GPU.
    Xpu,
    /// An Ascend NPU.
    Npu,
    /// An Apple GPU.
    Mps,
    /// An Intel Gaudi.
    Hpu,
    /// A Cambricon MLU.
    Mlu,
    /// A Tecorigin SDAA.
    Sdaa,
    /// A Biren SUPA.
    Supa,
    /// A Kunlunxin XPU.
    Klxpu,
}

impl Accelerator {
    /// The variables that list the devices a program may use. For CPU slots and some others
    /// DeepSpeed sets the variable of CUDA; HIP reads both of its own.
    pub fn visible_devices(self) -> &'static [&'static str] {
        match self {
            Self::Cpu | Self::Cuda | Self::GpuIfAny | Self::Mps | Self::Hpu | Self::Klxpu => {
                &[env_vars::CUDA_VISIBLE_DEVICES]
            }
            Self::Rocm => &[env_vars::HIP_VISIBLE_DEVICES, env_vars::CUDA_VISIBLE_DEVICES],
            Self::Xpu => &[env_vars::ZE_AFFINITY_MASK],
            Self::Npu => &[env_vars::ASCEND_RT_VISIBLE_DEVICES],
            Self::Mlu => &[env_vars::MLU_VISIBLE_DEVICES],
            Self::Sdaa => &[env_vars::SDAA_VISIBLE_DEVICES],
            Self::Supa => &[env_vars::SUPA_VISIBLE_DEVICES],
        }
    }
}
