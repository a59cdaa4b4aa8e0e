//! Launches of the kernels, with their arguments in the order of their sources.

use crate::cuda::device::{
    Device, DeviceAddress, DeviceError, DeviceMatrix, Epilogue, KernelArgument, KernelCall, Matmul,
    StreamId,
};
use crate::cuda::kernels::{
    Activation, ElementType, Kernel, KernelLaunch, KernelProgram, RowParts,
};
use crate::train::nn::device::rows::DeviceRows;

/// A stream of a device, to which operations are submitted.
#[derive(Clone, Copy)]
pub(super) struct Operations<'d> {
    pub(super) device: &'d dyn Device,
    pub(super) stream: StreamId,
}

/// Weight and bias of a layer in the memory of a device, or their gradients.
#[derive(Clone, Copy)]
pub(super) struct LayerAddresses {
    pub(super) weight: DeviceAddress,
    pub(super) bias: Option<DeviceAddress>,
}

/// Sums of the parts of rows, which are added.
#[derive(Clone, Copy)]
pub(super) struct PartialSums {
    pub(super) parts: u32,
    /// Numbers from the begin of a part to that of the next one.
    pub(super) stride: u32,
    pub(super) columns: u32,
}

pub(super) fn address(at: DeviceAddress) -> KernelArgument {
    KernelArgument::Address(at)
}

impl Operations<'_> {
    pub(super) fn launch(
        self,
        kernel: (KernelProgram, Kernel),
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<(), DeviceError> {
        self.device.launch(self.stream, kernel, size, arguments)
    }

    fn call(self, call: &KernelCall) -> Result<(), DeviceError> {
        self.launch(call.kernel, call.size, &call.arguments)
    }

    /// `y = x · weightᵀ`, where the weight is outputs × inputs.
    pub(super) fn linear(
        self,
        x: &DeviceRows,
        weight: DeviceAddress,
        y: &DeviceRows,
    ) -> Result<(), DeviceError> {
        self.linear_then(x, weight, y, Epilogue::None)
    }

    /// `y = x · weightᵀ + bias`, if there is one.
    pub(super) fn layer(
        self,
        x: &DeviceRows,
        layer: LayerAddresses,
        y: &DeviceRows,
    ) -> Result<(), DeviceError> {
        let epilogue = layer.bias.map_or(Epilogue::None, |bias| Epilogue::Bias { bias });
        self.linear_then(x, layer.weight, y, epilogue)
    }

    /// `y = x · weightᵀ`, after an epilogue.
    pub(super) fn linear_then(
        self,
        x: &DeviceRows,
        weight: DeviceAddress,
        y: &DeviceRows,
        epilogue: Epilogue,
    ) -> Result<(), DeviceError> {
        let weight = DeviceMatrix::new(weight, y.width, x.width, x.element);
        let product = Matmul::new(x.matrix(), weight, y.matrix()).transpose_b();
        self.device.matmul(self.stream, &product.then(epilogue))
    }

    /// `dx = dy · weight`.
    pub(super) fn linear_backward(
        self,
        dy: &DeviceRows,
        weight: DeviceAddress,
        dx: &DeviceRows,
    ) -> Result<(), DeviceError> {
        self.linear_backward_then(dy, weight, dx, Epilogue::None)
    }

    /// `dx = dy · weight`, after an epilogue.
    pub(super) fn linear_backward_then(
        self,
        dy: &DeviceRows,
        weight: DeviceAddress,
        dx: &DeviceRows,
        epilogue: Epilogue,
    ) -> Result<(), DeviceError> {
        let weight = DeviceMatrix::new(weight, dy.width, dx.width, dy.element);
        let product = Matmul::new(dy.matrix(), weight, dx.matrix());
        self.device.matmul(self.stream, &product.then(epilogue))
    }

    /// Adds `dyᵀ · x` to the gradient of a weight, in f32.
    pub(super) fn weight_backward(
        self,
        dy: &DeviceRows,
        x: &DeviceRows,
        gradient: DeviceAddress,
    ) -> Result<(), DeviceError> {
        let gradient = DeviceMatrix::new(gradient, dy.width, x.width, ElementType::F32);
        let product = Matmul::new(dy.matrix(), x.matrix(), gradient).transpose_a().add();
        self.device.matmul(self.stream, &product)
    }

    /// The gradients of a layer: adds that of its weight, and writes that of its bias, if it has one. `partial` has
    /// room for [`partial_sums`] numbers.
    pub(super) fn layer_backward(
        self,
        dy: &DeviceRows,
        x: &DeviceRows,
        gradient: LayerAddresses,
        partial: DeviceAddress,
    ) -> Result<(), DeviceError> {
        self.weight_backward(dy, x, gradient.weight)?;
        gradient.bias.map_or(Ok(()), |bias| self.bias_backward(dy, partial, bias))
    }

    /// `x = f(x + bias)`. The bias has a value for each column, with the padding.
    pub(super) fn bias_activation(
        self,
        x: &DeviceRows,
        bias: DeviceAddress,
        function: Activation,
    ) -> Result<(), DeviceError> {
        self.call(&KernelCall::bias_activation(function, x.matrix(), bias, Some(x.address())))
    }

    /// `y = f(x)`.
    pub(super) fn activation(
        self,
        x: &DeviceRows,
        function: Activation,
        y: &DeviceRows,
    ) -> Result<(), DeviceError> {
        self.call(&KernelCall::activation(function, x.matrix(), y.address()))
    }

    /// `dy = dy · f'(x)`. For ReLU, `x` may also be the output of the function.
    pub(super) fn activation_backward(
        self,
        x: &DeviceRows,
        function: Activation,
        dy: &DeviceRows,
    ) -> Result<(), DeviceError> {
        self.call(&KernelCall::activation_backward(function, x.matrix(), dy.address()))
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
        let [logits_address, targets, losses, loss_scale] =
            [logits.address(), targets, losses, loss_scale].map(address);
        let (vocabulary, stride) =
            (KernelArgument::int(logits.width), KernelArgument::int(logits.stride));
        let arguments = [logits_address, targets, losses, loss_scale, share, vocabulary, stride];
        self.launch(kernel, size, &arguments)
    }

    /// Writes the sums of the columns of `dy` to the gradient of a bias, in f32. `partial` has room for
    /// [`partial_sums`] numbers.
    fn bias_backward(
        self,
        dy: &DeviceRows,
        partial: DeviceAddress,
        gradient: DeviceAddress,
    ) -> Result<(), DeviceError> {
        let program = KernelProgram::Fold(dy.element);
        let RowParts { parts, rows_of_part } = RowParts::of_bias(dy.rows);
        let size = KernelLaunch::bias_backward(dy.rows, dy.stride, dy.element);
        let [dy_address, sums] = [dy.address(), partial].map(address);
        let arguments = [
            dy_address,
            sums,
            KernelArgument::int(dy.rows),
            KernelArgument::int(rows_of_part),
            KernelArgument::int(dy.stride),
        ];
        self.launch((program, Kernel::BiasBackward), size, &arguments)?;
        let sums = PartialSums { parts, stride: dy.stride, columns: dy.width };
        self.fold(dy.element, (partial, gradient), sums)
    }

    /// Sums columns of parts of rows, in f32.
    pub(super) fn fold(
        self,
        element: ElementType,
        (partial, sums): (DeviceAddress, DeviceAddress),
        PartialSums { parts, stride, columns }: PartialSums,
    ) -> Result<(), DeviceError> {
        let kernel = (KernelProgram::Fold(element), Kernel::Fold);
        let arguments = [
            address(partial),
            address(sums),
            KernelArgument::int(parts),
            KernelArgument::int(stride),
            KernelArgument::int(columns),
        ];
        self.launch(kernel, KernelLaunch::fold(columns), &arguments)
    }
}

/// Number of sums of parts that [`Operations::layer_backward`] needs room for.
pub(super) fn partial_sums(dy: &DeviceRows) -> usize {
    RowParts::of_bias(dy.rows).parts as usize * dy.stride as usize
}
