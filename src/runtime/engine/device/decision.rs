//! [`DecisionMemory`]: the decision on a step, which kernels make. The host reads it later.

use crate::cuda::device::{
    DeviceAddress, DeviceError, DeviceMemory, EventId, KernelArgument, StreamId,
};
use crate::cuda::kernels::{
    DeviceAdam, DeviceLossScale, DeviceStep, Kernel, KernelLaunch, KernelProgram,
};
use crate::runtime::engine::device::queue::DeviceQueue;
use crate::runtime::engine::device::squares::FoldedSums;
use crate::runtime::engine::outcome::StepSettings;
use crate::runtime::optim::{LossScale, LossScaling, Optimizer};

use KernelArgument::{Address, F64, U32, U64};

/// Numbers of a step in the memory of a device.
pub(super) struct DecisionMemory {
    /// A [`DeviceStep`]; its number of updates is that of all steps.
    step: Box<dyn DeviceMemory>,
    /// A [`DeviceAdam`].
    adam: Box<dyn DeviceMemory>,
    /// A [`DeviceLossScale`].
    scale: Box<dyn DeviceMemory>,
    /// Factor of the losses, f32: that scale.
    loss_scale: Box<dyn DeviceMemory>,
    scaling: LossScaling,
    /// Stream of the copies to the host. It has nothing else to wait for, so that the computations of the next step go
    /// on while the host reads.
    pub(super) reads: StreamId,
    /// Recorded behind the decision; the copies wait for it.
    decided: EventId,
}

impl DecisionMemory {
    pub(super) fn new(on: &DeviceQueue, scaling: LossScaling) -> Result<Self, DeviceError> {
        Ok(Self {
            step: on.alloc(size_of::<DeviceStep>())?,
            adam: on.alloc(size_of::<DeviceAdam>())?,
            scale: on.alloc(size_of::<DeviceLossScale>())?,
            loss_scale: on.alloc(size_of::<f32>())?,
            scaling,
            reads: on.device.create_stream()?,
            decided: on.device.create_event()?,
        })
    }

    /// Address of the factor of the losses.
    pub(super) fn loss_scale(&self) -> DeviceAddress {
        self.loss_scale.address()
    }

    /// Address of the decision.
    pub(super) fn step(&self) -> DeviceAddress {
        self.step.address()
    }

    /// Address of the numbers of Adam.
    pub(super) fn adam(&self) -> DeviceAddress {
        self.adam.address()
    }

    /// Sets what steps change.
    pub(super) fn resume(
        &self,
        on: &DeviceQueue,
        updates: u64,
        loss_scale: LossScale,
    ) -> Result<(), DeviceError> {
        let upload =
            |bytes: &[u8], to: &dyn DeviceMemory| on.device.upload(on.stream, bytes, to.address());
        let step = DeviceStep { applied: updates, ..DeviceStep::default() };
        upload(bytemuck::bytes_of(&step), &*self.step)?;
        let state = match loss_scale {
            LossScale::Constant { scale } => {
                DeviceLossScale { scale, ..DeviceLossScale::default() }
            }
            LossScale::Dynamic { scale, clean_steps, hysteresis_left } => {
                DeviceLossScale { scale, clean_steps, hysteresis_left, is_stuck: 0 }
            }
        };
        upload(bytemuck::bytes_of(&state), &*self.scale)?;
        upload(bytemuck::bytes_of(&(state.scale as f32)), &*self.loss_scale)
    }

    /// Submits the decision on a step, and the loss scale of the next one.
    pub(super) fn decide(
        &self,
        on: &DeviceQueue,
        sums: FoldedSums,
        settings: &StepSettings,
    ) -> Result<(), DeviceError> {
        let launch = |kernel, size, arguments: &[KernelArgument]| {
            let program = KernelProgram::Optimizer(on.element);
            on.device.launch(on.stream, (program, kernel), size, arguments)
        };
        let [step, adam, scale, loss_scale] =
            [&self.step, &self.adam, &self.scale, &self.loss_scale].map(|m| Address(m.address()));
        let size = KernelLaunch::decide_step(sums.count as u32);
        let norm_max = F64(settings.clip.unwrap_or(f64::INFINITY));
        let sums = [Address(sums.address), U64(sums.count as u64)];
        launch(Kernel::DecideStep, size, &[&sums[..], &[norm_max, loss_scale, step]].concat())?;
        if let Optimizer::Adam(options) = settings.optimizer {
            let [beta1, beta2] = options.betas;
            let numbers = [beta1, beta2, options.epsilon, settings.rate].map(F64);
            let has_correction = U32(u32::from(options.bias_correction));
            let arguments = [&[step, adam], &numbers[..], &[has_correction]].concat();
            launch(Kernel::PrepareAdam, KernelLaunch::one_thread(), &arguments)?;
        }
        if let LossScaling::Dynamic(dynamic) = self.scaling {
            let memory = [step, scale, loss_scale];
            let hysteresis = [dynamic.hysteresis, u32::from(dynamic.consecutive_hysteresis)];
            let settings = [U64(dynamic.window), U32(hysteresis[0]), U32(hysteresis[1])];
            let arguments = [&memory[..], &settings, &[F64(dynamic.scale_min)]].concat();
            launch(Kernel::UpdateLossScale, KernelLaunch::one_thread(), &arguments)?;
        }
        on.device.record(on.stream, self.decided)?;
        on.device.wait(self.reads, self.decided)
    }

    /// Returns the last decision, for which the host waits, but for nothing that was submitted after it.
    pub(super) fn read(&self, on: &DeviceQueue) -> Result<DeviceStep, DeviceError> {
        let mut step = DeviceStep::default();
        on.download_from(self.reads, self.step(), bytemuck::bytes_of_mut(&mut step))?;
        Ok(step)
    }
}
