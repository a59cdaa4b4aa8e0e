//! Pipeline of an operation on device data through host memory, in chunks: while one chunk is
//! processed, the next one is copied to the host and the previous one back to the device.

use std::ops::Range;

/// Copies between a device and slots of the host. All of them may be in progress at once; the host
/// may access a slot from when it is filled until the copy back begins.
pub(crate) trait Copier {
    type Error;

    /// Host memory of one chunk.
    type Slot;

    fn slots(&self) -> usize;

    /// Starts to fill a slot with ranges of this rank's input, one after the other.
    fn start_copy_to_host(
        &mut self,
        slot: usize,
        ranges: &[Range<usize>],
    ) -> Result<(), Self::Error>;

    fn is_filled(&mut self, slot: usize) -> Result<bool, Self::Error>;

    fn slot(&mut self, slot: usize) -> &mut Self::Slot;

    /// Starts to copy a slot's input or output to ranges of this rank's output.
    fn start_copy_to_device(
        &mut self,
        slot: usize,
        ranges: &[Range<usize>],
        is_in_place: bool,
    ) -> Result<(), Self::Error>;

    fn is_emptied(&mut self, slot: usize) -> Result<bool, Self::Error>;
}

/// One chunk of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkStep {
    /// Number of elements of every part.
    pub(crate) len: usize,
    /// Ranges of this rank's input.
    pub(crate) input_ranges: Vec<Range<usize>>,
    /// Ranges of this rank's output.
    pub(crate) output_ranges: Vec<Range<usize>>,
}

/// Part of a rank's memory that an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferSide {
    /// No memory.
    None,
    /// One part with this number of elements.
    Whole(usize),
    /// One part for every rank: number of parts, and elements of each.
    Parts(usize, usize),
}

impl BufferSide {
    /// Number of elements of a part.
    fn part(self) -> usize {
        match self {
            Self::None => 0,
            Self::Whole(len) | Self::Parts(_, len) => len,
        }
    }

    fn parts(self) -> usize {
        match self {
            Self::None | Self::Whole(_) => 1,
            Self::Parts(parts, _) => parts,
        }
    }

    /// Returns the range `chunk` of every part.
    fn ranges(self, chunk: &Range<usize>) -> Vec<Range<usize>> {
        let (start, end) = (chunk.start.min(self.part()), chunk.end.min(self.part()));
        if start == end {
            return Vec::new();
        }
        (0..self.parts()).map(|part| part * self.part()).map(|at| at + start..at + end).collect()
    }
}

/// Chunks of an operation that fit slots of `slot_len` elements. `parts` is the largest number of
/// parts that any rank has in a slot; if it is equal on all ranks, so is their number of chunks.
pub(crate) fn steps(
    input: BufferSide,
    output: BufferSide,
    parts: usize,
    slot_len: usize,
) -> impl Iterator<Item = ChunkStep> {
    let chunk = (slot_len / parts.max(1)).max(1);
    let len = input.part().max(output.part());
    let starts = (0..len).step_by(chunk);
    starts.map(move |start| {
        let range = start..(start + chunk).min(len);
        ChunkStep {
            len: range.len(),
            input_ranges: input.ranges(&range),
            output_ranges: output.ranges(&range),
        }
    })
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AwaitedCopy {
    /// The copy to the host, which follows the caller's own work.
    ToHost,
    /// The copy of a result to the device. It needs no other rank.
    ToDevice,
}

/// Runs all steps. `work` processes a chunk on the host between its two copies; `wait` returns when
/// the condition that it receives holds, or with an error.
pub(crate) fn run<C: Copier, E: From<C::Error>>(
    copier: &mut C,
    steps: &[ChunkStep],
    is_in_place: bool,
    mut wait: impl FnMut(AwaitedCopy, &mut dyn FnMut() -> Result<bool, E>) -> Result<(), E>,
    mut work: impl FnMut(&ChunkStep, &mut C::Slot) -> Result<(), E>,
) -> Result<(), E> {
    let slots = copier.slots();
    let ahead = slots - 1;
    for (slot, step) in steps.iter().take(ahead).enumerate() {
        copier.start_copy_to_host(slot, &step.input_ranges)?;
    }
    for (at, step) in steps.iter().enumerate() {
        let slot = at % slots;
        wait(AwaitedCopy::ToHost, &mut || Ok(copier.is_filled(slot)?))?;
        work(step, copier.slot(slot))?;
        copier.start_copy_to_device(slot, &step.output_ranges, is_in_place)?;
        // The slot of the previous chunk is probably empty by now: its copy back ran during `work`.
        if let Some(step) = steps.get(at + ahead) {
            let slot = (at + ahead) % slots;
            wait(AwaitedCopy::ToDevice, &mut || Ok(copier.is_emptied(slot)?))?;
            copier.start_copy_to_host(slot, &step.input_ranges)?;
        }
    }
    for slot in 0..slots {
        wait(AwaitedCopy::ToDevice, &mut || Ok(copier.is_emptied(slot)?))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::comm::shm::buffer::Buffer;
    use crate::runtime::{Error, Group, ReduceOp};

    /// Host memory of one chunk.
    struct Slot {
        input: Buffer<f32>,
        output: Buffer<f32>,
    }

    /// A device that does everything as late as possible: a copy takes place when its completion is
    /// queried for the second time.
    struct LazyDevice {
        given: Vec<f32>,
        taken: Vec<f32>,
        slots: Vec<Slot>,
        out: Vec<Option<Copy>>,
        back: Vec<Option<Copy>>,
        /// Copies in both directions, in the order in which they were started.
        order: Vec<String>,
    }

    /// A copy in progress.
    #[derive(Clone)]
    struct Copy {
        polls: u32,
        ranges: Vec<Range<usize>>,
        is_in_place: bool,
    }

    impl Copy {
        fn is_over(&mut self) -> bool {
            self.polls += 1;
            1 < self.polls
        }
    }

    const SLOT_LEN: usize = 6;

    impl LazyDevice {
        fn new(group: &Group, given: Vec<f32>, taken: usize) -> Result<Self, Error> {
            let slot = || {
                Ok::<_, Error>(Slot {
                    input: group.alloc(SLOT_LEN)?,
                    output: group.alloc(SLOT_LEN)?,
                })
            };
            Ok(Self {
                given,
                taken: vec![0.0; taken],
                slots: (0..3).map(|_| slot()).collect::<Result<_, _>>()?,
                out: vec![None; 3],
                back: vec![None; 3],
                order: Vec::new(),
            })
        }
    }

    impl Copier for LazyDevice {
        type Error = Error;
        type Slot = Slot;

        fn slots(&self) -> usize {
            3
        }

        fn start_copy_to_host(
            &mut self,
            slot: usize,
            ranges: &[Range<usize>],
        ) -> Result<(), Error> {
            assert!(self.out[slot].is_none() && self.back[slot].is_none(), "slot {slot} is in use");
            self.order.push(format!("out {slot}"));
            self.out[slot] = Some(Copy { polls: 0, ranges: ranges.to_vec(), is_in_place: true });
            Ok(())
        }

        fn is_filled(&mut self, slot: usize) -> Result<bool, Error> {
            let Some(copy) = &mut self.out[slot] else { return Ok(true) };
            if !copy.is_over() {
                return Ok(false);
            }
            let values = copy.ranges.iter().flat_map(|range| &self.given[range.clone()]);
            for (to, value) in self.slots[slot].input.iter_mut().zip(values) {
                *to = *value;
            }
            self.out[slot] = None;
            Ok(true)
        }

        fn slot(&mut self, slot: usize) -> &mut Slot {
            assert!(self.out[slot].is_none(), "slot {slot} is being filled");
            &mut self.slots[slot]
        }

        fn start_copy_to_device(
            &mut self,
            slot: usize,
            ranges: &[Range<usize>],
            is_in_place: bool,
        ) -> Result<(), Error> {
            self.order.push(format!("back {slot}"));
            self.back[slot] = Some(Copy { polls: 0, ranges: ranges.to_vec(), is_in_place });
            Ok(())
        }

        fn is_emptied(&mut self, slot: usize) -> Result<bool, Error> {
            let Some(copy) = &mut self.back[slot] else { return Ok(true) };
            if !copy.is_over() {
                return Ok(false);
            }
            let from = &self.slots[slot];
            let from = if copy.is_in_place { &from.input } else { &from.output };
            let mut at = 0;
            for range in &copy.ranges {
                self.taken[range.clone()].copy_from_slice(&from[at..at + range.len()]);
                at += range.len();
            }
            self.back[slot] = None;
            Ok(true)
        }
    }

    fn spin_until(
        _: AwaitedCopy,
        is_done: &mut dyn FnMut() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        while !is_done()? {}
        Ok(())
    }

    #[test]
    fn pipeline_overlaps_chunks_without_loss() -> Result<(), Error> {
        for len in [0, 1, 6, 7, 18, 24, 40] {
            let results = Group::on_threads(2, |group| {
                let given: Vec<f32> = (0..len).map(|i| (i * (group.rank() + 1)) as f32).collect();
                let mut device = LazyDevice::new(group, given, len)?;
                let side = BufferSide::Whole(len);
                let steps: Vec<_> = steps(side, side, 1, SLOT_LEN).collect();
                run(&mut device, &steps, true, spin_until, |step, slot| {
                    Ok::<_, Error>(group.all_reduce(&mut slot.input[..step.len], ReduceOp::Sum)?)
                })?;
                Ok((device.taken, device.order))
            })?;
            let expect: Vec<f32> = (0..len).map(|i| (i * 3) as f32).collect();
            for (taken, order) in &results {
                assert_eq!(*taken, expect, "{len} numbers");
                if 24 <= len {
                    let ahead = ["out 0", "out 1", "back 0", "out 2", "back 1", "out 0"];
                    assert_eq!(order[..ahead.len()], ahead);
                }
            }
        }
        Ok(())
    }

    #[test]
    fn pipeline_chunks_contain_parts_of_all_ranks() -> Result<(), Error> {
        let part = 5;
        let results = Group::on_threads(3, |group| {
            let given: Vec<f32> = (0..part).map(|i| (10 * group.rank() + i) as f32).collect();
            let mut device = LazyDevice::new(group, given, 3 * part)?;
            let (out, back) = (BufferSide::Whole(part), BufferSide::Parts(3, part));
            let steps: Vec<_> = steps(out, back, 3, SLOT_LEN).collect();
            assert_eq!(steps.len(), 3, "two of each part fit a slot");
            run(&mut device, &steps, false, spin_until, |step, slot| {
                let len = step.len;
                let Slot { input, output } = slot;
                Ok::<_, Error>(group.all_gather(&input[..len], &mut output[..3 * len])?)
            })?;
            Ok(device.taken)
        })?;
        let expect: Vec<f32> =
            (0..3).flat_map(|rank| (0..part).map(move |i| (10 * rank + i) as f32)).collect();
        assert_eq!(results, [expect.clone(), expect.clone(), expect]);
        Ok(())
    }

    fn shown(steps: impl Iterator<Item = ChunkStep>) -> Vec<String> {
        steps
            .map(|step| {
                format!("{}: {:?} to {:?}", step.len, step.input_ranges, step.output_ranges)
            })
            .collect()
    }

    #[test]
    fn pipeline_side_without_memory_has_no_ranges() {
        let all = shown(steps(BufferSide::None, BufferSide::Parts(2, 3), 2, 4));
        assert_eq!(all, ["2: [] to [0..2, 3..5]", "1: [] to [2..3, 5..6]"]);
        // A message of three elements, and one of five in the other direction.
        let all = shown(steps(BufferSide::Whole(3), BufferSide::Whole(5), 1, 4));
        assert_eq!(all, ["4: [0..3] to [0..4]", "1: [] to [4..5]"]);
    }
}
