//! Launches of the optimizers.

use crate::cuda::device::{DeviceAddress, DeviceError, DeviceMemory, KernelArgument};
use crate::cuda::kernels::{DeviceAdam, DeviceStep, Kernel, KernelLaunch, KernelProgram};
use crate::runtime::engine::device::queue::{DeviceFloats, DeviceQueue};
use crate::runtime::engine::device::unit::UnitMemory;
use crate::runtime::optim::OptimizerStep;
use crate::runtime::optim::update::{AdamNumbers, LionNumbers, Rule, SgdNumbers};

/// Numbers of a step in the memory of a device.
pub(super) struct StepMemory {
    step: Box<dyn DeviceMemory>,
    adam: Box<dyn DeviceMemory>,
}

impl StepMemory {
    pub(super) fn new(on: &DeviceQueue) -> Result<Self, DeviceError> {
        let step = on.device.alloc(size_of::<DeviceStep>())?;
        Ok(Self { step, adam: on.device.alloc(size_of::<DeviceAdam>())? })
    }

    /// Copies the numbers of a step.
    pub(super) fn upload(&self, on: &DeviceQueue, step: &OptimizerStep) -> Result<(), DeviceError> {
        let is_first = matches!(step.rule, Rule::Sgd(SgdNumbers { is_first: true, .. }));
        let applied = if is_first { 1 } else { 2 };
        let decided = DeviceStep { norm: 0.0, applied, factor: step.factor, is_finite: 1 };
        on.device.upload(on.stream, bytemuck::bytes_of(&decided), self.step.address())?;
        let Rule::Adam(AdamNumbers {
            one_minus_beta1,
            beta2,
            one_minus_beta2,
            correction2_root,
            epsilon,
            step_size,
        }) = step.rule
        else {
            return Ok(());
        };
        let adam = DeviceAdam {
            one_minus_beta1,
            beta2,
            one_minus_beta2,
            correction2_root,
            epsilon,
            step_size,
        };
        on.device.upload(on.stream, bytemuck::bytes_of(&adam), self.adam.address())
    }

    /// Updates this rank's part of a unit.
    pub(super) fn update(
        &self,
        on: &DeviceQueue,
        unit: &UnitMemory,
        gradient: DeviceAddress,
        step: &OptimizerStep,
    ) -> Result<(), DeviceError> {
        use KernelArgument::{Address, F32, I32, U32, U64};
        if unit.len == 0 {
            return Ok(());
        }
        let moment = |number: usize| {
            Address(unit.moments.get(number).map_or(DeviceAddress::NULL, DeviceFloats::address))
        };
        let [parameters, gradients, copy] = [unit.master, gradient, unit.narrow].map(Address);
        let decided = Address(self.step.address());
        let decay = [Address(unit.decay_ends.address()), I32(unit.decay_ranges as i32)];
        let (l2, shrink, count) = (F32(step.l2), F32(step.shrink), U64(unit.len as u64));
        let (kernel, arguments) = match step.rule {
            Rule::Adam(_) => {
                let memory = [parameters, moment(0), moment(1), gradients, copy, decided];
                let numbers = [Address(self.adam.address())];
                (Kernel::Adam, [&memory[..], &numbers, &decay, &[l2, shrink, count]].concat())
            }
            Rule::Sgd(SgdNumbers { momentum, one_minus_dampening, nesterov, rate, .. }) => {
                let memory = [parameters, moment(0), gradients, copy, decided];
                let momentum = [l2, F32(momentum.unwrap_or(0.0)), F32(one_minus_dampening)];
                let rest = [U32(u32::from(nesterov)), F32(rate), count];
                (Kernel::Sgd, [&memory[..], &decay, &momentum, &rest].concat())
            }
            Rule::Lion(LionNumbers { betas, one_minus_betas, rate }) => {
                let memory = [parameters, moment(0), gradients, copy, decided];
                let first = [shrink, F32(betas[0]), F32(one_minus_betas[0])];
                let second = [F32(betas[1]), F32(one_minus_betas[1]), F32(rate), count];
                (Kernel::Lion, [&memory[..], &decay, &first, &second].concat())
            }
        };
        let size = KernelLaunch::elementwise(unit.len as u64, on.element);
        let program = KernelProgram::Optimizer(on.element);
        on.device.launch(on.stream, (program, kernel), size, &arguments)
    }
}
