//! [`FlashAttention`]: attention by kernels that keep no score in memory.

use std::f32::consts::LOG2_E;

use crate::cuda::device::{DeviceAddress, DeviceError, KernelArgument};
use crate::cuda::kernels::{AttentionShape, HalfType, Kernel, KernelLaunch, KernelProgram};
use crate::train::nn::device::operations::{Operations, address};
use crate::train::nn::device::rows::DeviceRows;

/// Shape of a layer, and the type in which it computes.
#[derive(Clone, Copy)]
pub(super) struct FlashAttention {
    pub(super) shape: AttentionShape,
    pub(super) half: HalfType,
}

/// What the backward pass of attention reads.
#[derive(Clone, Copy)]
pub(super) struct AttentionGradients<'a> {
    pub(super) qkv: &'a DeviceRows,
    pub(super) out: &'a DeviceRows,
    /// Gradient of the output.
    pub(super) dout: &'a DeviceRows,
    /// Logarithms of the sums, of the forward pass.
    pub(super) lse: DeviceAddress,
}

impl FlashAttention {
    fn kernel(self, kernel: Kernel) -> (KernelProgram, Kernel) {
        (KernelProgram::Attention(self.shape.width, self.half), kernel)
    }

    /// 1 / √features.
    fn root(self) -> f32 {
        1.0 / (self.shape.width.features() as f32).sqrt()
    }

    /// Length, heads, and the factor of the scores.
    fn sizes(self) -> [KernelArgument; 3] {
        let scale = KernelArgument::F32(LOG2_E * self.root());
        [KernelArgument::int(self.shape.length), KernelArgument::int(self.shape.heads), scale]
    }

    /// Computes the output from queries, keys and values.
    pub(super) fn forward(
        self,
        on: Operations<'_>,
        qkv: &DeviceRows,
        out: &DeviceRows,
        lse: DeviceAddress,
    ) -> Result<(), DeviceError> {
        let memory = [qkv.address(), out.address(), lse].map(address);
        let arguments = [&memory[..], &self.sizes()].concat();
        on.launch(self.kernel(Kernel::AttentionForward), self.shape.forward(), &arguments)
    }

    /// Computes the gradients of queries, keys and values; `delta` has room for a number for each head of each token.
    pub(super) fn backward(
        self,
        on: Operations<'_>,
        AttentionGradients { qkv, out, dout, lse }: AttentionGradients<'_>,
        delta: DeviceAddress,
        dqkv: &DeviceRows,
    ) -> Result<(), DeviceError> {
        let rows = self.shape.rows();
        let memory = [out.address(), dout.address(), delta].map(address);
        let [length, heads, _] = self.sizes();
        let arguments = [&memory[..], &[length, heads, KernelArgument::U64(u64::from(rows))]];
        let size = KernelLaunch::warp_for_each_row(rows);
        on.launch(self.kernel(Kernel::AttentionDelta), size, &arguments.concat())?;
        let memory = [qkv.address(), dout.address(), lse, delta, dqkv.address()].map(address);
        let root = [KernelArgument::F32(self.root())];
        let arguments = [&memory[..], &self.sizes(), &root].concat();
        on.launch(self.kernel(Kernel::AttentionBackwardKv), self.shape.backward_kv(), &arguments)?;
        on.launch(self.kernel(Kernel::AttentionBackwardQ), self.shape.backward_q(), &arguments)
    }
}
