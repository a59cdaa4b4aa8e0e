//! [`PartState`]: what a rank keeps to update its part of a unit, on its device or in the memory of the host.

use std::ops::Range;

use crate::cuda::device::{DeviceAddress, DeviceError, DeviceMemory};
use crate::cuda::kernels::ElementType;
use crate::runtime::engine::device::queue::{DeviceFloats, DeviceQueue};
use crate::runtime::engine::shards::optimizer_state::UnitState;
use crate::runtime::optim::DecayRange;

/// State of the optimizer for this rank's part of a unit.
pub(super) enum PartState {
    /// On the device, which updates the weights.
    Device(UnitMemory),
    /// In the memory of the host, whose processor updates them.
    Host(UnitState),
}

/// Master weights and optimizer state on a device.
pub(super) struct UnitMemory {
    /// Elements of the part.
    pub(super) len: usize,
    /// Weights in full precision: memory of this rank, or a range of the weights that passes read.
    pub(super) master: DeviceAddress,
    /// Weights in the type in which the model computes, to which the master is rounded; null if that is f32.
    pub(super) narrow: DeviceAddress,
    /// Moments, in the order of the optimizer.
    pub(super) moments: Vec<DeviceFloats>,
    /// Ends of the ranges that decay or do not, by turns.
    pub(super) decay_ends: Box<dyn DeviceMemory>,
    pub(super) decay_ranges: u32,
    /// Memory of this rank for the part.
    _held: Vec<Box<dyn DeviceMemory>>,
}

/// Ends of ranges: those with even numbers decay, the others do not.
fn decay_ends(ranges: &[DecayRange]) -> Vec<u64> {
    let mut ends = Vec::new();
    for DecayRange { range, decays } in ranges {
        // The first range is that of parameters that decay, and may be empty.
        if ends.is_empty() && !decays {
            ends.push(0);
        }
        let last_decays = ends.len() % 2 == 1;
        if !ends.is_empty() && last_decays == *decays {
            ends.pop();
        }
        ends.push(range.end as u64);
    }
    ends
}

impl UnitMemory {
    /// Allocates the memory of a part, with moments of zero. `stored` is the address of the part in the weights, if it
    /// is always on the device.
    pub(super) fn new(
        on: &DeviceQueue,
        own: &Range<usize>,
        stored: Option<DeviceAddress>,
        decay: &[DecayRange],
        moments: usize,
    ) -> Result<Self, DeviceError> {
        let mut held = Vec::new();
        let mut hold = |bytes: usize| -> Result<DeviceAddress, DeviceError> {
            let memory = on.alloc(own.len() * bytes)?;
            let address = memory.address();
            held.push(memory);
            Ok(address)
        };
        let bytes = on.element.bytes();
        let weights = match stored {
            Some(part) => part,
            None => hold(bytes)?,
        };
        let (master, narrow) = match on.element {
            ElementType::F32 => (weights, DeviceAddress::NULL),
            ElementType::Half(_) => (hold(size_of::<f32>())?, weights),
        };
        let moments: Vec<_> =
            (0..moments).map(|_| on.floats(own.len())).collect::<Result<_, _>>()?;
        for moment in &moments {
            on.clear(moment.address(), moment.len())?;
        }
        let ends = decay_ends(decay);
        let decay_ends = on.alloc(ends.len() * size_of::<u64>())?;
        if !ends.is_empty() {
            on.device.upload(on.stream, bytemuck::cast_slice(&ends), decay_ends.address())?;
        }
        let decay_ranges = ends.len() as u32;
        Ok(Self { len: own.len(), master, narrow, moments, decay_ends, decay_ranges, _held: held })
    }

    /// The part in the type in which the model computes.
    fn weights(&self) -> DeviceAddress {
        if self.narrow == DeviceAddress::NULL { self.master } else { self.narrow }
    }
}

impl PartState {
    /// The part on the device in the type in which the model computes, if the device updates it.
    pub(super) fn weights(&self) -> Option<DeviceAddress> {
        match self {
            Self::Device(memory) => Some(memory.weights()),
            Self::Host(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_decay_by_turns() {
        let ends = |ranges: &[(usize, bool)]| {
            let mut begin = 0;
            let range = |(len, decays): &(usize, bool)| {
                let range = begin..begin + len;
                begin = range.end;
                DecayRange { range, decays: *decays }
            };
            decay_ends(&ranges.iter().map(range).collect::<Vec<_>>())
        };
        assert_eq!(ends(&[(6, true), (2, false), (4, false), (4, true)]), [6, 12, 16]);
        assert_eq!(ends(&[(5, false), (4, true)]), [0, 5, 9]);
        assert_eq!(ends(&[(4, true), (3, true)]), [7]);
        assert_eq!(ends(&[]), [0u64; 0]);
    }
}
