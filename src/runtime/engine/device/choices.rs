//! [`GroupChoices`]: ranks of a group use the same algorithms for products.

use crate::cuda::cublaslt::ShareChoices;
use crate::runtime::comm::group::Group;
use crate::runtime::error::Result;

/// What rank 0 of a group chooses. It has a group of its own, so that it can be exchanged at any time.
pub struct GroupChoices(Group);

impl GroupChoices {
    /// Makes the group; all ranks call it.
    ///
    /// # Errors
    /// If the group has failed.
    pub fn new(group: &Group) -> Result<Self> {
        let own = group.split(0, group.rank())?;
        Ok(Self(own.expect("every rank has the same color")))
    }
}

impl ShareChoices for GroupChoices {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn share(&self, bytes: &mut [u8]) -> std::result::Result<(), String> {
        self.0.broadcast(bytes, 0).map_err(|error| error.to_string())
    }
}
