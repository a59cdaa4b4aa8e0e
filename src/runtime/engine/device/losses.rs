//! [`KeptLosses`]: the losses of a step in the memory of a device, until the host reads them.

use crate::cuda::device::{DeviceError, StreamId};
use crate::runtime::engine::device::model::DeviceLosses;
use crate::runtime::engine::device::queue::{DeviceFloats, DeviceQueue};

/// Losses of the micro-batches of two steps: while the host reads those of one, the next one is computed.
pub(super) struct KeptLosses {
    steps: [LossesOfStep; 2],
    /// Which of them is that of the step in progress.
    current: usize,
}

/// Losses of the micro-batches of a step.
#[derive(Default)]
struct LossesOfStep {
    /// Room for equally many losses of every micro-batch.
    memory: Option<DeviceFloats>,
    /// Number of losses of every micro-batch so far.
    counts: Vec<usize>,
}

impl KeptLosses {
    pub(super) fn new() -> Self {
        Self { steps: Default::default(), current: 0 }
    }

    /// Copies the losses of a micro-batch, of which a step has `accumulate`.
    pub(super) fn keep(
        &mut self,
        on: &DeviceQueue,
        losses: DeviceLosses,
        [micro_batch, accumulate]: [usize; 2],
    ) -> Result<(), DeviceError> {
        let step = &mut self.steps[self.current];
        step.counts.truncate(micro_batch);
        let room = step.memory.as_ref().map_or(0, |memory| memory.len() / accumulate);
        if room < losses.count {
            let memory = on.floats(losses.count * accumulate)?;
            if let Some(before) = &step.memory {
                for (index, count) in step.counts.iter().enumerate() {
                    on.copy(before.at(index * room), memory.at(index * losses.count), *count)?;
                }
            }
            step.memory = Some(memory);
        }
        let memory = step.memory.as_ref().expect("it was allocated");
        let at = memory.at(micro_batch * (memory.len() / accumulate));
        step.counts.push(losses.count);
        on.copy(losses.address, at, losses.count)
    }

    /// The step has ended: the losses that follow are those of another one.
    pub(super) fn end_step(&mut self) {
        self.current = 1 - self.current;
        self.steps[self.current].counts.clear();
    }

    /// Returns the mean of every micro-batch of the step that has ended last. The host waits for `stream`.
    pub(super) fn read_ended(
        &self,
        on: &DeviceQueue,
        stream: StreamId,
    ) -> Result<Vec<f32>, DeviceError> {
        let LossesOfStep { memory: Some(memory), counts } = &self.steps[1 - self.current] else {
            return Ok(Vec::new());
        };
        let mut losses = vec![0.0f32; memory.len()];
        on.download_from(stream, memory.address(), bytemuck::cast_slice_mut(&mut losses))?;
        let room = losses.len() / counts.len().max(1);
        let of_batches = losses.chunks(room).zip(counts);
        Ok(of_batches.map(|(losses, count)| DeviceLosses::mean(&losses[..*count])).collect())
    }
}
