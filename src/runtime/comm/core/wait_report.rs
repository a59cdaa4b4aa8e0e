//! Reports of long waits to other nodes.

use crate::base::Rank;
use crate::runtime::comm::core::deadline::Deadline;

/// Tells the other nodes for which ranks this one waits, so that a rank whose deadline has passed can
/// name the ranks at the end of the chain of waits.
pub(crate) trait WaitReport: Send {
    /// Publishes the ranks that this rank waits for, if it has waited for long and they have changed.
    fn publish(&self, deadline: Deadline, waiting_for: &dyn Fn() -> Vec<Rank>);

    /// Publishes that this rank no longer waits.
    fn clear(&self);

    /// Follows the reports of these ranks to the ranks that do not wait for other ranks.
    fn trace(&self, waiting_for: &[Rank]) -> Vec<Rank>;
}
