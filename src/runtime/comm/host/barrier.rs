//! Barriers, which also compare the calls of all ranks.

use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::host::backend::Engine;
use crate::runtime::dtype::element::Element;

impl Engine {
    /// Waits until all ranks have called it.
    pub(crate) fn barrier(&mut self) -> Result<(), CollectiveError> {
        self.sync_calls::<u8>(OperationCall::new(Operation::Barrier, 0))
    }

    /// Waits until all ranks have made this call; fails if a rank has made a different call.
    pub(crate) fn sync_calls<T: Element>(
        &mut self,
        call: OperationCall,
    ) -> Result<(), CollectiveError> {
        self.run::<T>(call, |engine, call, deadline| {
            let nothing = engine.staging::<T>().part(&(0..0));
            let round = engine.begin_round(call, &nothing, deadline)?;
            let Some(inter_node) = &mut engine.inter_node else { return Ok(()) };
            inter_node.sync_nodes(round.fingerprint, &engine.node, deadline)?;
            engine.local_barrier(deadline)
        })
    }
}
