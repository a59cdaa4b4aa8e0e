//! [`SquareSums`]: sums of the squares of this rank's gradients, and their sum, by which a step is decided.

use crate::cuda::device::{DeviceAddress, DeviceError, DeviceMemory, EventId, KernelArgument};
use crate::cuda::kernels::{Kernel, KernelLaunch, KernelProgram};
use crate::runtime::engine::device::queue::DeviceQueue;
use crate::runtime::parallel::zero::shard_ranges::ShardLayout;

/// Largest number of sums that the kernel of the decision adds itself. More of them are added by several
/// multiprocessors first.
const DECIDED_SUMS_MAX: usize = 1024;
/// Number of sums that `fold_squares` adds at a time.
const FOLDED: usize = 32;

/// Sums of the squares of the blocks of this rank's parts, or of all ranks', f64, in the order of the units.
pub(super) struct SquareSums {
    sums: Box<dyn DeviceMemory>,
    /// Sums of groups of them, if they are folded; the next level takes the memory of the one before.
    folded: Option<Box<dyn DeviceMemory>>,
    count: usize,
    /// Recorded behind the sums of this rank; their exchange waits for it.
    written: EventId,
    /// Recorded behind the exchange; the computations wait for it.
    gathered: EventId,
}

/// Sums in the memory of a device, f64.
#[derive(Clone, Copy)]
pub(super) struct FoldedSums {
    pub(super) address: DeviceAddress,
    pub(super) count: usize,
}

impl SquareSums {
    /// Allocates memory for the sums of `count` blocks.
    pub(super) fn new(on: &DeviceQueue, count: usize) -> Result<Self, DeviceError> {
        let bytes = |count: usize| count * size_of::<f64>();
        let is_folded = DECIDED_SUMS_MAX < count;
        let folded = is_folded.then(|| on.alloc(bytes(count.div_ceil(FOLDED)))).transpose()?;
        let [written, gathered] = [on.device.create_event()?, on.device.create_event()?];
        let sums = on.alloc_exchanged(bytes(count.max(1)))?;
        Ok(Self { sums, folded, count, written, gathered })
    }

    /// Address of the sum of a block.
    pub(super) fn at(&self, block: usize) -> DeviceAddress {
        self.sums.address().offset(block * size_of::<f64>())
    }

    /// Collects the sums of all ranks, each of which has those of its own parts, between their devices.
    pub(super) fn gather(&self, on: &DeviceQueue, layout: &ShardLayout) -> Result<(), DeviceError> {
        let exchange = on.exchange.as_ref().expect("devices exchange the sums");
        on.device.record(on.stream, self.written)?;
        on.device.wait(exchange.stream(), self.written)?;
        exchange.gather_sums(layout, self.sums.address())?;
        on.device.record(exchange.stream(), self.gathered)?;
        on.device.wait(on.stream, self.gathered)
    }

    /// Adds neighbours until they are few, in the order of the canonical tree.
    pub(super) fn fold(&self, on: &DeviceQueue) -> Result<FoldedSums, DeviceError> {
        let mut from = FoldedSums { address: self.sums.address(), count: self.count };
        let mut to = self.folded.as_ref().map_or(DeviceAddress::NULL, |memory| memory.address());
        while DECIDED_SUMS_MAX < from.count {
            let kernel = (KernelProgram::Optimizer(on.element), Kernel::FoldSquares);
            let arguments = [
                KernelArgument::Address(from.address),
                KernelArgument::Address(to),
                KernelArgument::U64(from.count as u64),
            ];
            let size = KernelLaunch::fold_squares(from.count as u32);
            on.device.launch(on.stream, kernel, size, &arguments)?;
            let folded = FoldedSums { address: to, count: from.count.div_ceil(FOLDED) };
            to = from.address;
            from = folded;
        }
        Ok(from)
    }

    /// Returns the sums of the blocks. The host waits for the computations.
    pub(super) fn download(&self, on: &DeviceQueue) -> Result<Vec<f64>, DeviceError> {
        let mut sums = vec![0.0f64; self.count];
        on.download(self.sums.address(), &mut sums)?;
        Ok(sums)
    }

    /// Replaces the sums by that of all ranks.
    pub(super) fn upload(&self, on: &DeviceQueue, sum: f64) -> Result<FoldedSums, DeviceError> {
        let address = self.sums.address();
        on.device.upload(on.stream, bytemuck::bytes_of(&sum), address)?;
        Ok(FoldedSums { address, count: 1 })
    }
}
