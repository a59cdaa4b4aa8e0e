//! Launches of the optimizers.

use crate::cuda::device::{DeviceAddress, DeviceError, KernelArgument};
use crate::cuda::kernels::{Kernel, KernelLaunch, KernelProgram};
use crate::runtime::engine::device::decision::DecisionMemory;
use crate::runtime::engine::device::queue::{DeviceFloats, DeviceQueue};
use crate::runtime::engine::device::unit::UnitMemory;
use crate::runtime::optim::OptimizerStep;
use crate::runtime::optim::update::{LionNumbers, Rule, SgdNumbers};

impl DecisionMemory {
    /// Updates this rank's part of a unit, if the decision on the step says so. `step` is that of the optimizer; what
    /// depends on the gradient is on the device.
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
        let decided = Address(self.step());
        let decay = [Address(unit.decay_ends.address()), I32(unit.decay_ranges as i32)];
        let (l2, shrink, count) = (F32(step.l2), F32(step.shrink), U64(unit.len as u64));
        let (kernel, arguments) = match step.rule {
            Rule::Adam(_) => {
                let memory = [parameters, moment(0), moment(1), gradients, copy, decided];
                let numbers = [Address(self.adam())];
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
