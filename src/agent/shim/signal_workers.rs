//! Signals that the shim sends to workers on request of the agent, and the end of everything that it has started.

use super::message::{LEFTOVERS_MAX, TERMINATION_SIGNALS, describe};
use super::run::{AgentGone, ShimLoop, State};
use crate::os::process::process_tree::{self, KILL_LIMIT};
use crate::os::process::signals;

impl ShimLoop {
    /// Signals the process group of every running worker.
    pub(super) fn signal_workers(&mut self, signal: i32) {
        for worker in &mut self.workers {
            if let State::Alive(pid) = worker.state {
                signals::send_to_group(pid, signal);
                if TERMINATION_SIGNALS.contains(&signal) {
                    worker.signals_sent.push(signal);
                }
            }
        }
    }

    /// Kills all descendants until the kernel reports that no child is left.
    pub(super) fn kill_all(&mut self) -> Result<(), AgentGone> {
        for worker in &mut self.workers {
            worker.signals_sent.push(libc::SIGKILL);
        }
        let mut exits = Vec::new();
        let left = process_tree::kill_descendants(KILL_LIMIT, |pid, exit| exits.push((pid, exit)));
        for (pid, exit) in exits {
            self.on_child_exit(pid, exit)?;
        }
        self.report_empty(left.into_iter().take(LEFTOVERS_MAX).filter_map(describe).collect())
    }
}
