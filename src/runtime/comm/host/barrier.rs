//! Barriers, which also compare the calls of all ranks.

use std::time::Duration;

use crate::base::clock;
use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::shm::cells::BufferLocation;
use crate::runtime::dtype::element::Dtype;

impl HostBackend {
    /// Waits until all ranks have called it.
    pub(crate) fn barrier(&mut self) -> Result<(), CollectiveError> {
        let call = OperationCall::new(Operation::Barrier, 0);
        self.run::<u8>(call, |host, call, deadline| host.sync_round(call, Dtype::U8, deadline))
    }

    /// Waits until all ranks have called it, for at most `timeout` if there is one.
    ///
    /// Two rounds: a rank that is late finds that the others have called it, even if one of them has given up since. Only
    /// a second round, which a rank begins after it has seen all others, tells it whether they succeed.
    pub(crate) fn monitored_barrier(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<(), CollectiveError> {
        let call = OperationCall::new(Operation::MonitoredBarrier, 0);
        self.run::<u8>(call, |host, call, deadline| {
            let until = timeout.map_or(deadline.until, |limit| clock::after(deadline.since, limit));
            host.sync_round(call, Dtype::U8, Deadline { until, ..deadline })?;
            host.sync_round(call, Dtype::U8, deadline)
        })
    }

    /// Waits until all ranks have made this call; fails if a rank has made a different call.
    pub(crate) fn sync_round(
        &mut self,
        call: OperationCall,
        dtype: Dtype,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let nothing = BufferLocation::Staged(self.staging::<u8>().offset());
        let (fingerprint, ()) = self.enter_round(call, dtype, nothing, deadline, |_, _| ())?;
        let Some(inter_node) = &mut self.inter_node else { return Ok(()) };
        inter_node.sync_nodes(fingerprint, &self.node, deadline)?;
        self.local_barrier(deadline)
    }
}
