//! Layer norms on a device.

use crate::cuda::device::{DeviceAddress, DeviceError, KernelArgument};
use crate::cuda::kernels::{Kernel, KernelLaunch, KernelProgram, RowParts};
use crate::train::nn::device::blocks::ShapeBlocks;
use crate::train::nn::device::operations::{LayerAddresses, Operations, PartialSums, address};
use crate::train::nn::device::rows::DeviceRows;

/// Output of a layer norm, and the statistics that its backward pass reads.
pub(super) struct NormRows {
    /// Output.
    pub(super) y: DeviceRows,
    /// Mean of each row, f32.
    means: DeviceAddress,
    /// Scale of each row, f32.
    scales: DeviceAddress,
}

impl NormRows {
    /// Takes the memory for an output of this width.
    pub(super) fn new(blocks: &mut ShapeBlocks<'_>, width: usize) -> Result<Self, DeviceError> {
        let y = blocks.rows(width)?;
        let rows = y.rows as usize;
        Ok(Self { y, means: blocks.numbers(rows)?, scales: blocks.numbers(rows)? })
    }
}

/// Number of sums of parts that [`Operations::norm_backward`] needs room for.
pub(super) fn norm_partial_sums(x: &DeviceRows) -> usize {
    RowParts::of_norm(x.rows).parts as usize * 2 * x.width as usize
}

impl Operations<'_> {
    /// `y = norm(x)`.
    pub(super) fn norm(
        self,
        x: &DeviceRows,
        layer: LayerAddresses,
        into: &NormRows,
    ) -> Result<(), DeviceError> {
        let kernel = (KernelProgram::Norm(x.element), Kernel::NormForward);
        let bias = layer.bias.unwrap_or(DeviceAddress::NULL);
        let memory = [x.address(), layer.weight, bias, into.y.address()];
        let statistics = [into.means, into.scales];
        let sizes = [KernelArgument::int(x.rows), KernelArgument::int(x.width)];
        let arguments = [&memory.map(address)[..], &statistics.map(address), &sizes].concat();
        self.launch(kernel, KernelLaunch::warp_for_each_row(x.rows), &arguments)
    }

    /// `residual = x + update`, and `y = norm(residual)`.
    pub(super) fn residual_norm(
        self,
        (x, update): (&DeviceRows, &DeviceRows),
        layer: LayerAddresses,
        residual: &DeviceRows,
        into: &NormRows,
    ) -> Result<(), DeviceError> {
        let kernel = (KernelProgram::Norm(x.element), Kernel::ResidualNormForward);
        let bias = layer.bias.unwrap_or(DeviceAddress::NULL);
        let inputs = [x.address(), update.address(), layer.weight, bias];
        let outputs = [residual.address(), into.y.address(), into.means, into.scales];
        let sizes = [KernelArgument::int(x.rows), KernelArgument::int(x.width)];
        let arguments = [&inputs.map(address)[..], &outputs.map(address), &sizes].concat();
        self.launch(kernel, KernelLaunch::warp_for_each_row(x.rows), &arguments)
    }

    /// Adds the gradient of the input of a norm to `dx`, or with `is_first` writes it there; writes the gradients of
    /// its weight and bias, in f32. `partial` has room for [`norm_partial_sums`] numbers.
    pub(super) fn norm_backward(
        self,
        (dy, x): (&DeviceRows, &DeviceRows),
        norm: &NormRows,
        (weight, gradient): (DeviceAddress, LayerAddresses),
        (dx, is_first): (&DeviceRows, bool),
        partial: DeviceAddress,
    ) -> Result<(), DeviceError> {
        let kernel = (KernelProgram::Norm(x.element), Kernel::NormBackward);
        let RowParts { parts, rows_of_part } = RowParts::of_norm(x.rows);
        let skip = if is_first { DeviceAddress::NULL } else { dx.address() };
        let inputs = [dy.address(), x.address(), weight, norm.means, norm.scales];
        let outputs = [skip, dx.address(), partial];
        let sizes = [
            KernelArgument::int(x.rows),
            KernelArgument::int(rows_of_part),
            KernelArgument::int(x.width),
        ];
        let arguments = [&inputs.map(address)[..], &outputs.map(address), &sizes].concat();
        self.launch(kernel, KernelLaunch::norm_backward(x.rows, x.width), &arguments)?;
        let sizes = PartialSums { parts, stride: 2 * x.width, columns: x.width };
        self.fold(x.element, (partial, gradient.weight), sizes)?;
        let Some(bias) = gradient.bias else { return Ok(()) };
        self.fold(x.element, (partial.offset(x.width as usize * size_of::<f32>()), bias), sizes)
    }
}
