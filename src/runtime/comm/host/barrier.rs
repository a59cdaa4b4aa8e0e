//! Barriers, which also compare the calls of all ranks.

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::dtype::element::Element;

impl HostBackend {
    /// Waits until all ranks have called it.
    pub(crate) fn barrier(&mut self) -> Result<(), CollectiveError> {
        self.run::<u8>(OperationCall::new(Operation::Barrier, 0), Self::sync_round::<u8>)
    }

    /// Waits until all ranks have made this call; fails if a rank has made a different call.
    pub(crate) fn sync_round<T: Element>(
        &mut self,
        call: OperationCall,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let nothing = self.staging::<T>().part(&(0..0));
        let round = self.begin_round(call, &nothing, deadline)?;
        let Some(inter_node) = &mut self.inter_node else { return Ok(()) };
        inter_node.sync_nodes(round.fingerprint, &self.node, deadline)?;
        self.local_barrier(deadline)
    }
}
