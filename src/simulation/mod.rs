//! Simulation of a whole job in virtual time (tests only, layer L6): the real
//! [`JobState`](crate::job::JobState) and real agents ([`AgentState`](crate::agent::AgentState)), with their
//! frames, over a simulated network and beside simulated processes.
//!
//! A seed determines a run: its nodes, its options, the faults and every delay. No thread, no
//! socket and no clock takes part, so a failing seed fails again, and its story can be read line by
//! line. After every run the checks compare what the launcher says with what really happened.
//!
//! ```text
//! scenario ─→ world ─→ launcher ── network ── agent ── shim ── workers
//!                 └──→ faults                    every process may be suspended or killed
//!                 └──→ checks ─→ story of a failing seed
//! ```

mod agent;
mod checks;
mod clock;
mod connecting;
mod draw;
mod elastic_scenario;
mod epochs;
mod fault_draw;
mod fault_effects;
mod incidents;
mod launcher;
mod launcher_messages;
mod membership;
mod mistakes;
mod network;
mod output;
mod processes;
mod prove;
mod scenario;
mod shim;
mod story;
mod traffic;
mod words;
mod workers;
mod world;
