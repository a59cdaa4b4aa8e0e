//! [`UploadRing`]: large copies to a device, through pinned memory of the host.

use std::sync::Arc;

use crate::cuda::device::error::DeviceError;
use crate::cuda::device::interface::Device;
use crate::cuda::device::types::{DeviceAddress, EventId, PinnedId, StreamId};

/// Largest copy that a driver keeps in the stream itself, in bytes.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Most copies in flight: two batches of tokens, with their order and where each token begins.
const SLOTS_MAX: usize = 8;
/// Largest part of a copy that goes through one slot: units of a model can be large, and pinned memory is scarce.
const SLOT_BYTES_MAX: usize = 4 << 20;

/// Pinned memory for copies to a device, each of which goes through the part that was used the longest time ago.
///
/// A driver may wait for a stream before it copies more than 64 KiB of pageable memory. It never waits for a copy of
/// pinned memory, which must stay as it is until the device has executed the copy: an event tells when.
pub struct UploadRing {
    device: Arc<dyn Device>,
    slots: Vec<UploadSlot>,
    /// The slot that was used the longest time ago.
    oldest: usize,
    /// Whether the host has refused to pin memory.
    is_refused: bool,
}

#[derive(Clone, Copy)]
struct UploadSlot {
    pinned: PinnedId,
    bytes: usize,
    /// Recorded behind the copy.
    copied: EventId,
}

impl UploadRing {
    /// Creates a ring without memory, which the first copies allocate.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self { device, slots: Vec::new(), oldest: 0, is_refused: false }
    }

    /// Copies bytes from the host; `from` may be reused when this returns. It does not wait for the stream, unless as
    /// many copies as the ring has slots are in flight, or the host does not pin memory. Copies of more than 4 MiB go in
    /// parts.
    ///
    /// # Errors
    /// If the device fails.
    pub fn upload(
        &mut self,
        stream: StreamId,
        from: &[u8],
        to: DeviceAddress,
    ) -> Result<(), DeviceError> {
        let mut parts = from.chunks(SLOT_BYTES_MAX).enumerate();
        parts.try_for_each(|(number, part)| {
            self.upload_part(stream, part, to.offset(number * SLOT_BYTES_MAX))
        })
    }

    fn upload_part(
        &mut self,
        stream: StreamId,
        from: &[u8],
        to: DeviceAddress,
    ) -> Result<(), DeviceError> {
        if from.len() <= SMALL_BYTES_MAX {
            return self.device.upload(stream, from, to);
        }
        let Some(UploadSlot { pinned, copied, .. }) = self.slot(from.len())? else {
            return self.device.upload(stream, from, to);
        };
        self.device.upload_pinned(stream, pinned, from, to)?;
        self.device.record(stream, copied)
    }

    /// A slot that no copy uses, if there is one.
    fn slot(&mut self, bytes: usize) -> Result<Option<UploadSlot>, DeviceError> {
        if self.slots.iter().any(|slot| slot.bytes < bytes) {
            // The device keeps the smaller ones.
            (self.slots, self.oldest) = (Vec::new(), 0);
        }
        if let Some(slot) = self.slots.get(self.oldest).copied()
            && self.device.is_complete(slot.copied)?
        {
            self.oldest = (self.oldest + 1) % self.slots.len();
            return Ok(Some(slot));
        }
        if self.is_refused || self.slots.len() == SLOTS_MAX {
            return Ok(None);
        }
        // Twice as much as before at least, so that all that the device keeps is at most twice as much.
        let bytes = bytes.next_power_of_two();
        let Some(pinned) = self.device.create_pinned(bytes)? else {
            self.is_refused = true;
            return Ok(None);
        };
        let slot = UploadSlot { pinned, bytes, copied: self.device.create_event()? };
        // Behind the newest one, which is before the oldest.
        self.slots.insert(self.oldest, slot);
        self.oldest = (self.oldest + 1) % self.slots.len();
        Ok(Some(slot))
    }
}
