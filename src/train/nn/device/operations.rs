//! Launches of the kernels, with their arguments in the order of their sources.

use crate::cuda::device::{Device, DeviceAddress, DeviceError, KernelArgument, StreamId};
use crate::cuda::kernels::{Activation, Kernel, KernelLaunch, KernelProgram, RowParts};
use crate::train::nn::device::rows::DeviceRows;

/// A stream of a device, to which operations are submitted.
#[derive(Clone, Copy)]
pub(super) struct Operations<'d> {
    pub(super) device: &'d dyn Device,
    pub(super) stream: StreamId,
}

fn address(at: DeviceAddress) -> KernelArgument {
    KernelArgument::Address(at)
}

fn int(value: u32) -> KernelArgument {
    KernelArgument::I32(i32::try_from(value).expect("sizes of models fit an int"))
}

impl Operations<'_> {
    fn launch(
        self,
        kernel: (KernelProgram, Kernel),
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<(), DeviceError> {
        self.device.launch(self.stream, kernel, size, arguments)
    }

    /// `x = f(x + bias)`, where `bias` has a value for each column, with the padding.
    pub(super) fn bias_activation(
        self,
        x: &DeviceRows,
        bias: DeviceAddress,
        function: Activation,
    ) -> Result<(), DeviceError> {
        let kernel = (KernelProgram::Activation(function, x.element), Kernel::BiasActivation);
        let size = KernelLaunch::elementwise(x.len(), x.element);
        let x_address = address(x.address());
        let arguments = [x_address, address(bias), x_address, int(x.rows), int(x.stride)];
        self.launch(kernel, size, &arguments)
    }

    /// `dy = dy · f'(x)`, where `y = f(x)` is the output of the function, which suffices for ReLU.
    pub(super) fn relu_backward(self, y: &DeviceRows, dy: &DeviceRows) -> Result<(), DeviceError> {
        let program = KernelProgram::Activation(Activation::Relu, y.element);
        let size = KernelLaunch::elementwise(y.len(), y.element);
        let gradient = address(dy.address());
        let arguments = [address(y.address()), gradient, gradient, KernelArgument::U64(y.len())];
        self.launch((program, Kernel::ActivationBackward), size, &arguments)
    }

    /// Replaces logits by the gradients of the mean loss times `loss_scale`, and writes the loss of each row.
    pub(super) fn classify(
        self,
        logits: &DeviceRows,
        targets: DeviceAddress,
        losses: DeviceAddress,
        loss_scale: DeviceAddress,
    ) -> Result<(), DeviceError> {
        let kernel = (KernelProgram::Classifier(logits.element), Kernel::Classifier);
        let size = KernelLaunch::classifier(logits.rows, logits.stride, logits.element);
        let share = KernelArgument::F32(1.0 / logits.rows as f32);
        let memory = [logits.address(), targets, losses, loss_scale].map(address);
        let [logits_address, targets, losses, loss_scale] = memory;
        let sizes = [int(logits.width), int(logits.stride)];
        let arguments =
            [&[logits_address, targets, losses, loss_scale, share][..], &sizes].concat();
        self.launch(kernel, size, &arguments)
    }

    /// Writes the sums of the columns of `dy` to `gradient`, in f32. `partial` has room for the sums of the parts of
    /// the rows: [`partial_sums`] numbers.
    pub(super) fn bias_backward(
        self,
        dy: &DeviceRows,
        partial: DeviceAddress,
        gradient: DeviceAddress,
    ) -> Result<(), DeviceError> {
        let program = KernelProgram::Fold(dy.element);
        let RowParts { parts, rows_of_part } = RowParts::of_bias(dy.rows);
        let size = KernelLaunch::bias_backward(dy.rows, dy.stride, dy.element);
        let arguments = [
            address(dy.address()),
            address(partial),
            int(dy.rows),
            int(rows_of_part),
            int(dy.stride),
        ];
        self.launch((program, Kernel::BiasBackward), size, &arguments)?;
        let arguments =
            [address(partial), address(gradient), int(parts), int(dy.stride), int(dy.width)];
        self.launch((program, Kernel::Fold), KernelLaunch::fold(dy.width), &arguments)
    }
}

/// Number of sums of parts that [`Operations::bias_backward`] needs room for.
pub(super) fn partial_sums(dy: &DeviceRows) -> usize {
    RowParts::of_bias(dy.rows).parts as usize * dy.stride as usize
}
