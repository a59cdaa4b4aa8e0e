//! Where the numbers of a call lie, and how a round gets at them.

use std::ops::Range;

use crate::runtime::cells::Place;
use crate::runtime::element::Element;
use crate::runtime::error::Cause;
use crate::runtime::shm::Segment;
use crate::runtime::shm_window::{Buffer, Window};

/// Where the numbers of a call lie.
#[doc(hidden)]
pub enum Memory<'a, T> {
    /// Anywhere; staged through the segment.
    Slice(&'a mut [T]),
    /// In the segment.
    Shared(SharedMemory<T>),
}

/// A range of a buffer of the segment.
#[doc(hidden)]
pub struct SharedMemory<T>(pub(crate) Window<T>);

impl<T: Element> Memory<'_, T> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Slice(values) => values.len(),
            Self::Shared(SharedMemory(window)) => window.len(),
        }
    }

    /// Fails for a buffer of a group that has nothing in common with the one of `segment`.
    pub(crate) fn check_home(&self, segment: &Segment) -> Result<(), Cause> {
        match self {
            Self::Shared(SharedMemory(window)) if !window.is_within(segment) => {
                Err(Cause::Argument("the buffer belongs to another group".to_owned()))
            }
            Self::Shared(_) | Self::Slice(_) => Ok(()),
        }
    }

    /// Where the numbers of a round lie: in our own window, or copied into `staging`.
    pub(crate) fn stage_in(&self, range: &Range<usize>, staging: &Window<T>) -> Place {
        match self {
            Self::Slice(values) => {
                staging.write(0, &values[range.clone()]);
                Place::Staged(staging.offset())
            }
            Self::Shared(SharedMemory(window)) => Place::Direct(window.part(range).offset()),
        }
    }

    /// Takes the result of a round over; in the segment it is in its place already.
    pub(crate) fn stage_out(&mut self, range: &Range<usize>, staging: &Window<T>) {
        match self {
            Self::Slice(values) => staging.read(0, &mut values[range.clone()]),
            Self::Shared(_) => {}
        }
    }

    /// Takes all of `source` over, from position `at` on.
    pub(crate) fn copy_from(&mut self, at: usize, source: &Window<T>) {
        match self {
            Self::Slice(values) => source.read(0, &mut values[at..at + source.len()]),
            Self::Shared(SharedMemory(window)) => {
                window.part(&(at..at + source.len())).copy_from(source);
            }
        }
    }

    pub(crate) fn write(&mut self, at: usize, block: &[T]) {
        match self {
            Self::Slice(values) => values[at..at + block.len()].copy_from_slice(block),
            Self::Shared(SharedMemory(window)) => window.write(at, block),
        }
    }
}

/// What is done to a sum before anybody sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Keep,
    Divide(u64),
}

impl Finish {
    pub(crate) fn apply<T: Element>(self, values: &mut [T]) {
        match self {
            Self::Keep => {}
            Self::Divide(parts) => T::divide(values, parts),
        }
    }
}

/// Memory that an operation can replace the contents of.
pub trait Region {
    /// What it consists of.
    type Element: Element;

    #[doc(hidden)]
    fn memory(&mut self) -> Memory<'_, Self::Element>;
}

impl<T: Element> Region for [T] {
    type Element = T;

    fn memory(&mut self) -> Memory<'_, T> {
        Memory::Slice(self)
    }
}

impl<T: Element, const N: usize> Region for [T; N] {
    type Element = T;

    fn memory(&mut self) -> Memory<'_, T> {
        Memory::Slice(self)
    }
}

impl<T: Element> Region for Vec<T> {
    type Element = T;

    fn memory(&mut self) -> Memory<'_, T> {
        Memory::Slice(self)
    }
}

impl<T: Element> Region for Buffer<T> {
    type Element = T;

    fn memory(&mut self) -> Memory<'_, T> {
        Memory::Shared(SharedMemory(self.window()))
    }
}
