//! [`DeviceCommunicator`]: ranks whose devices exchange data without the host.

use crate::cuda::device::error::DeviceError;
use crate::cuda::device::types::DeviceAddress;
use crate::cuda::nccl::Version;

/// What ranks must know of each other's devices before they connect them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommunicatorOffer {
    /// UUID of the device.
    pub uuid: u128,
    /// Version of the library, which must be equal on all ranks.
    pub version: Version,
    /// Whether the library is configured to let ranks share a device.
    pub may_share: bool,
}

/// Memory of this rank that is sent to a peer, or received from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerMemory {
    /// Rank of the peer, which is not this one.
    pub peer: usize,
    /// Address of the first byte.
    pub at: DeviceAddress,
    /// Number of bytes.
    pub bytes: usize,
}

/// Ranks whose devices exchange data: NCCL, or what takes its place.
///
/// A communicator belongs to one stream. Its operations are executed there in the order in which they were submitted,
/// which must be the same on all ranks; an operation ends when the peers of this rank have executed theirs. Before the
/// next one is submitted, [`Self::is_submitted`] must have returned true. When a communicator is dropped, the operations
/// that were submitted are completed, for a limited time.
pub trait DeviceCommunicator: Send {
    /// Sends memory to peers and receives memory from peers, all at once. Between two ranks, the pieces are matched in
    /// their order.
    ///
    /// # Errors
    /// If the library refuses the call, as in the other methods.
    fn exchange(&mut self, sends: &[PeerMemory], recvs: &[PeerMemory]) -> Result<(), DeviceError>;

    /// Collects `bytes` bytes of every rank, in rank order. `from` may be the part of this rank in `to`.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    fn all_gather(
        &mut self,
        from: DeviceAddress,
        to: DeviceAddress,
        bytes: usize,
    ) -> Result<(), DeviceError>;

    /// Replaces `count` numbers, f32, by their sums over all ranks, in any order of the additions.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    fn all_reduce(&mut self, at: DeviceAddress, count: usize) -> Result<(), DeviceError>;

    /// Replaces part `rank` of the numbers at `at`, f32, by its sum over all ranks, in any order of the additions. Every
    /// rank has a part of `count` numbers.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    fn reduce_scatter(&mut self, at: DeviceAddress, count: usize) -> Result<(), DeviceError>;

    /// Lets the library prepare memory of [`Device::alloc_exchanged`](super::Device::alloc_exchanged), so that operations
    /// need no copy of their own; their results are the same. The memory is [released](Self::release) before it is freed.
    ///
    /// # Errors
    /// If the communicator has failed.
    fn register(&mut self, at: DeviceAddress, bytes: usize) -> Result<(), DeviceError>;

    /// Ends the preparation of memory that begins at an address, whose operations have ended.
    fn release(&mut self, at: DeviceAddress);

    /// Returns whether the last operation is in the stream. The first operation of a kind can take a while, because it
    /// connects ranks.
    ///
    /// # Errors
    /// If an operation of this rank or another one failed since it was submitted.
    fn is_submitted(&self) -> Result<bool, DeviceError>;

    /// What the library says about operations that do not end, to follow a message; it may ask the other ranks.
    fn status(&self) -> String {
        String::new()
    }

    /// Ends the operations in progress; the communicator cannot be used any more.
    fn abort(&mut self);
}
