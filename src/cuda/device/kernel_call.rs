//! [`KernelCall`]: a launch of a kernel with its arguments.

use crate::cuda::device::types::{DeviceAddress, DeviceMatrix, KernelArgument};
use crate::cuda::kernels::{Activation, Kernel, KernelLaunch, KernelProgram};

/// Launch of a kernel, with its arguments in the order of its source.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelCall {
    /// Kernel and its program.
    pub kernel: (KernelProgram, Kernel),
    /// Size of the launch.
    pub size: KernelLaunch,
    /// Arguments, of which the kernel reads as many as it has.
    pub arguments: Vec<KernelArgument>,
}

/// Number of elements, with those between the rows.
fn count(matrix: DeviceMatrix) -> u64 {
    u64::from(matrix.rows) * u64::from(matrix.stride)
}

impl KernelCall {
    /// Returns the call for `x += bias`, and `y = f(x)`; `y` may be `x`, or without it nothing but the sum is written.
    /// The bias has a number for each column, and for the elements between two rows; `y` has the layout of `x`.
    pub fn bias_activation(
        function: Activation,
        x: DeviceMatrix,
        bias: DeviceAddress,
        y: Option<DeviceAddress>,
    ) -> Self {
        let addresses = [x.address, bias, y.unwrap_or(DeviceAddress::NULL)];
        let [x_address, bias, y] = addresses.map(KernelArgument::Address);
        Self {
            kernel: (KernelProgram::Activation(function, x.element), Kernel::BiasActivation),
            size: KernelLaunch::elementwise(count(x), x.element),
            arguments: vec![
                x_address,
                bias,
                y,
                KernelArgument::int(x.rows),
                KernelArgument::int(x.stride),
            ],
        }
    }

    /// Returns the call for `y = f(x)`; `y` has the layout of `x`.
    pub fn activation(function: Activation, x: DeviceMatrix, y: DeviceAddress) -> Self {
        let [x_address, y] = [x.address, y].map(KernelArgument::Address);
        Self {
            kernel: (KernelProgram::Activation(function, x.element), Kernel::ActivationForward),
            size: KernelLaunch::elementwise(count(x), x.element),
            arguments: vec![x_address, y, KernelArgument::U64(count(x))],
        }
    }

    /// Returns the call for `dy = dy · f'(x)`; `dy` has the layout of `x`. For ReLU, `x` may also be the output of the
    /// function.
    pub fn activation_backward(function: Activation, x: DeviceMatrix, dy: DeviceAddress) -> Self {
        let [x_address, dy] = [x.address, dy].map(KernelArgument::Address);
        Self {
            kernel: (KernelProgram::Activation(function, x.element), Kernel::ActivationBackward),
            size: KernelLaunch::elementwise(count(x), x.element),
            arguments: vec![x_address, dy, dy, KernelArgument::U64(count(x))],
        }
    }
}
