//! [`Tokens`]: the tokens of a batch on a device, and the embeddings.

use crate::cuda::device::{DeviceAddress, DeviceError, KernelArgument, StreamId, UploadRing};
use crate::cuda::kernels::{Kernel, KernelLaunch, KernelProgram};
use crate::train::nn::device::blocks::ShapeBlocks;
use crate::train::nn::device::operations::{Operations, address};
use crate::train::nn::device::rows::DeviceRows;
use crate::train::nn::gpt::Sequences;

/// Tokens of a batch, sorted for the gradient of their embeddings.
pub(super) struct Tokens {
    /// Input tokens.
    inputs: DeviceAddress,
    /// Target of each input token.
    targets: DeviceAddress,
    /// The positions of the input tokens, sorted by token.
    order: DeviceAddress,
    /// Where a token begins in `order`, for each token that occurs, and the end.
    starts: DeviceAddress,
    /// Number of different tokens of the last batch.
    runs: u32,
    /// Tokens of a sequence.
    length: u32,
    /// Number of sequences of a batch.
    sequences: u32,
}

impl Tokens {
    /// Takes memory for sequences of this length.
    pub(super) fn new(
        blocks: &mut ShapeBlocks<'_>,
        (sequences, length): (u32, u32),
    ) -> Result<Self, DeviceError> {
        let count = (sequences * length) as usize;
        Ok(Self {
            inputs: blocks.numbers(count)?,
            targets: blocks.numbers(count)?,
            order: blocks.numbers(count)?,
            starts: blocks.numbers(count + 1)?,
            runs: 0,
            length,
            sequences,
        })
    }

    /// Copies the tokens of a batch.
    pub(super) fn upload(
        &mut self,
        uploads: &mut UploadRing,
        stream: StreamId,
        batch: &Sequences,
    ) -> Result<(), DeviceError> {
        let (order, starts) = sort(&batch.inputs);
        self.runs = starts.len() as u32 - 1;
        let copies = [
            (&batch.inputs, self.inputs),
            (&batch.targets, self.targets),
            (&order, self.order),
            (&starts, self.starts),
        ];
        for (from, to) in copies {
            uploads.upload(stream, bytemuck::cast_slice(from), to)?;
        }
        Ok(())
    }

    /// Address of the targets.
    pub(super) fn targets(&self) -> DeviceAddress {
        self.targets
    }

    /// `out = tokens[input] + positions[place in the sequence]`.
    pub(super) fn embed(
        &self,
        on: Operations<'_>,
        [tokens, positions]: [DeviceAddress; 2],
        out: &DeviceRows,
    ) -> Result<(), DeviceError> {
        let kernel = (KernelProgram::Embedding(out.element), Kernel::Embed);
        let memory = [self.inputs, tokens, positions, out.address()].map(address);
        let sizes = [
            KernelArgument::int(out.rows),
            KernelArgument::int(self.length),
            KernelArgument::int(out.width),
        ];
        let size = KernelLaunch::elementwise(out.len(), out.element);
        on.launch(kernel, size, &[&memory[..], &sizes].concat())
    }

    /// Adds to the gradient of the tokens, and writes that of the positions, in f32.
    pub(super) fn embed_backward(
        &self,
        on: Operations<'_>,
        dout: &DeviceRows,
        [tokens, positions]: [DeviceAddress; 2],
    ) -> Result<(), DeviceError> {
        let (program, element) = (KernelProgram::Embedding(dout.element), dout.element);
        let memory = [dout.address(), positions].map(address);
        let sizes = [
            KernelArgument::int(self.sequences),
            KernelArgument::int(self.length),
            KernelArgument::int(dout.width),
        ];
        let elements = u64::from(self.length) * u64::from(dout.width);
        let size = KernelLaunch::elementwise(elements, element);
        let arguments = [&memory[..], &sizes].concat();
        on.launch((program, Kernel::EmbedBackwardPositions), size, &arguments)?;
        let memory = [dout.address(), self.inputs, self.order, self.starts, tokens];
        let size = KernelLaunch::embed_backward_tokens(self.runs, dout.width, element);
        let arguments = [&memory.map(address)[..], &[KernelArgument::int(dout.width)]].concat();
        on.launch((program, Kernel::EmbedBackwardTokens), size, &arguments)
    }
}

/// Returns the positions of tokens, sorted by token, those of one token in their order; and where each token that
/// occurs begins among them, and the end.
fn sort(tokens: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let mut order: Vec<u32> = (0..tokens.len() as u32).collect();
    order.sort_by_key(|at| tokens[*at as usize]);
    let token = |at: usize| tokens[order[at] as usize];
    let begins = (0..order.len()).filter(|at| *at == 0 || token(*at - 1) != token(*at));
    let starts = begins.map(|at| at as u32).chain([order.len() as u32]).collect();
    (order, starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_sorted_in_runs() {
        assert_eq!(sort(&[7, 2, 7, 0, 2, 7]), (vec![3, 1, 4, 0, 2, 5], vec![0, 1, 3, 6]));
        assert_eq!(sort(&[]), (vec![], vec![0]));
    }
}
