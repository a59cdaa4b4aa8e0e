//! The agent's decisions as a state machine, [`AgentState::step`]: events in, effects out. It waits
//! for nothing and knows neither sockets nor processes nor the clock; the agent's event loop calls
//! it and performs the effects. Pure.
//!
//! ```text
//! Waiting ── Prepare, checks passed ──→ Ready ── Start ──→ Started ── Idle sent ─┐
//!    ↑                                                                 NextEpoch │
//!    └───────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Whatever the phase, the loss of the launcher ends the agent: SIGTERM for the workers, the grace
//! period, SIGKILL, exit.

mod agent_state;
mod event;
mod group_watch;
mod launcher_loss;
mod shim_failure;
mod shim_heartbeat;
mod start;
#[cfg(test)]
mod testing;
mod timers;
mod worker_exit;
mod workers;

pub use agent_state::AgentState;
pub use event::{
    AgentEffect, AgentEvent, ExitReport, PreflightRequest, ShimCheck, ShimStatus, StartRequest,
};
pub use group_watch::GroupCheck;
