//! The agent's view of the launcher: heartbeats, lease, pauses, and the loss of the launcher.

use std::time::{Duration, Instant};

use super::agent_state::{AgentState, SIGCONT, SIGSTOP, SIGTERM};
use super::event::AgentEffect;
use super::timers::Timer;
use crate::base::Status;
use crate::report::text::show_duration;
use crate::wire::FromAgent;

/// Time without a message of the launcher after which the agent prints a line.
const SILENCE_WARNING: Duration = Duration::from_secs(10);

impl AgentState {
    /// Handles the heartbeat timer, which was due at this time: sends a heartbeat, and checks the
    /// lease and the shim.
    pub(super) fn on_heartbeat_due(&mut self, now: Instant, due: Instant) {
        let late = now - due;
        self.timers.set(now + self.terms.heartbeat, Timer::Heartbeat);
        self.inspect_shim(late);
        let Some(launcher) = &mut self.launcher else {
            return;
        };
        // Time for which the agent itself was suspended does not count as silence of the launcher:
        // what was sent meanwhile is still to be read.
        launcher.last_message_at = now.min(launcher.last_message_at + late);
        let (silence, is_paused) = (now - launcher.last_message_at, launcher.is_paused);
        self.send(FromAgent::Heartbeat);
        let (Some(lease), false) = (self.terms.lease, is_paused) else {
            return;
        };
        if lease < silence {
            // Stop first, print second: the reader of stderr may not respond either.
            self.failure = Some(Status::LeaseLost);
            self.on_launcher_lost(now);
            let lease = show_duration(lease);
            self.push(AgentEffect::Print(format!(
                "lease expired: no message from the launcher for {lease} (--lease); stopping the \
                 workers"
            )));
        } else if SILENCE_WARNING < silence {
            let silence = silence.as_secs();
            self.push(AgentEffect::Print(format!("no message from the launcher for {silence} s")));
        }
    }

    /// Suspends the workers, because the launcher is about to be suspended; its silence does not
    /// end the lease.
    pub(super) fn pause(&mut self) {
        self.set_paused(true);
        self.signal_workers(SIGSTOP);
        self.send(FromAgent::Paused);
    }

    /// Continues the workers.
    pub(super) fn resume(&mut self) {
        self.set_paused(false);
        self.signal_workers(SIGCONT);
    }

    fn set_paused(&mut self, is_paused: bool) {
        if let Some(launcher) = &mut self.launcher {
            launcher.is_paused = is_paused;
        }
    }

    /// Stops the workers after a protocol error of the launcher, as after the loss of the launcher.
    pub(super) fn on_protocol_error(&mut self, now: Instant, why: &str) {
        self.failure = Some(Status::Protocol);
        self.on_launcher_lost(now);
        self.push(AgentEffect::Print(format!(
            "protocol error from the launcher: {why}; stopping the workers"
        )));
    }

    /// Handles the end of the link or of the lease: SIGTERM, grace period, SIGKILL, then the agent
    /// exits.
    pub(super) fn on_launcher_lost(&mut self, now: Instant) {
        let was_paused = self.launcher.take().is_some_and(|launcher| launcher.is_paused);
        self.push(AgentEffect::CloseLink);
        self.signal_workers(SIGTERM);
        if was_paused {
            // A suspended process cannot handle SIGTERM.
            self.signal_workers(SIGCONT);
        }
        self.timers.set(now + self.terms.grace, Timer::KillWorkers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::shim::{FromShim, ToShim};
    use crate::agent::state::agent_state::ShimPhase;
    use crate::agent::state::event::AgentEvent;
    use crate::agent::state::testing::{GRACE, HEARTBEAT, LEASE, TestAgent, signalled};
    use crate::base::{WorkerExit, clock};
    use crate::wire::ToAgent;

    const EMPTY: FromShim = FromShim::Empty { unkillable: Vec::new() };

    fn lines(effects: &[AgentEffect]) -> Vec<&str> {
        let lines = effects.iter().filter_map(|effect| match effect {
            AgentEffect::Print(text) => Some(text.as_str()),
            _ => None,
        });
        lines.collect()
    }

    fn is_lost(effects: &[AgentEffect]) -> bool {
        effects.contains(&AgentEffect::CloseLink)
    }

    #[test]
    fn expired_lease_terminates_then_kills_workers() {
        let mut agent = TestAgent::started(clock::now(), 1);
        let warned = agent.pass(LEASE);
        assert_eq!(lines(&warned).len(), warned.len());
        assert_eq!(lines(&warned)[0], "no message from the launcher for 12 s");
        let lost = agent.pass(HEARTBEAT);
        assert_eq!(lost[0], AgentEffect::CloseLink);
        assert_eq!(lost[1..3], signalled(SIGTERM));
        let text = "lease expired: no message from the launcher for 30 s (--lease); stopping the \
                    workers";
        assert_eq!(lines(&lost), [text]);
        assert_eq!(agent.pass(GRACE.saturating_sub(Duration::from_millis(1))), []);
        let killed = agent.pass(Duration::from_millis(1));
        assert_eq!(killed, [AgentEffect::SendToShim(ToShim::Kill)]);
        assert_eq!(agent.state.exit_status(), None);
        assert_eq!(agent.hear(EMPTY), [], "nothing is sent any more");
        assert_eq!(agent.state.exit_status(), Some(Status::LeaseLost));
    }

    #[test]
    fn any_message_of_the_launcher_renews_the_lease() {
        let mut agent = TestAgent::started(clock::now(), 1);
        for _ in 0..100 {
            assert!(!is_lost(&agent.pass(LEASE)));
            agent.say(ToAgent::Consumed(0));
        }
        assert!(is_lost(&agent.pass(LEASE + HEARTBEAT)));
    }

    #[test]
    fn agent_without_terms_has_no_lease() {
        let mut agent = TestAgent::new(clock::now());
        assert!(!is_lost(&agent.pass(100 * LEASE)));
    }

    #[test]
    fn paused_launcher_keeps_its_lease() {
        let mut agent = TestAgent::started(clock::now(), 1);
        let paused = agent.say(ToAgent::Pause);
        assert_eq!(paused[..2], signalled(SIGSTOP));
        assert_eq!(paused[2..], [agent.sent(FromAgent::Paused)]);
        assert_eq!(agent.pass(100 * LEASE), []);
        assert_eq!(agent.say(ToAgent::Resume), signalled(SIGCONT));
        assert!(!is_lost(&agent.pass(LEASE)), "the pause does not count");
        assert!(is_lost(&agent.pass(HEARTBEAT)));
    }

    /// The launcher's messages are still in the socket when the agent continues.
    #[test]
    fn time_in_which_the_agent_was_suspended_does_not_count() {
        let mut agent = TestAgent::started(clock::now(), 1);
        assert_eq!(agent.suspend(100 * LEASE), []);
        assert!(!is_lost(&agent.pass(LEASE.saturating_sub(HEARTBEAT))));
        assert!(is_lost(&agent.pass(2 * HEARTBEAT)));
    }

    #[test]
    fn lost_launcher_that_had_paused_continues_workers() {
        let mut agent = TestAgent::started(clock::now(), 1);
        agent.say(ToAgent::Pause);
        let lost = agent.step(AgentEvent::LinkEnded);
        assert_eq!(lost[1..3], signalled(SIGTERM));
        assert_eq!(lost[3..], signalled(SIGCONT));
    }

    #[test]
    fn agent_without_workers_exits_with_its_link() {
        let mut agent = TestAgent::ready(clock::now());
        agent.step(AgentEvent::LinkEnded);
        assert_eq!(agent.state.exit_status(), Some(Status::Success));
        assert_eq!(agent.step(AgentEvent::Timer), []);
    }

    #[test]
    fn lost_launcher_receives_nothing_about_its_workers() {
        let mut agent = TestAgent::started(clock::now(), 2);
        agent.step(AgentEvent::LinkEnded);
        let is_report = |effect: &AgentEffect| {
            matches!(effect, AgentEffect::Send { .. } | AgentEffect::ReportExit(_))
        };
        let exited = agent.exit(0, WorkerExit::Code(1));
        assert!(!exited.iter().any(is_report), "{exited:?}");
        assert!(exited.iter().any(|effect| matches!(effect, AgentEffect::Broadcast(_))));
        agent.hear(EMPTY);
        assert_eq!(agent.state.exit_status(), Some(Status::Success));
    }

    #[test]
    fn released_agent_exits_with_success() {
        let mut agent = TestAgent::started(clock::now(), 1);
        agent.say(ToAgent::Bye);
        assert_eq!(agent.state.exit_status(), Some(Status::Success));
    }

    #[test]
    fn protocol_error_ends_the_agent_like_a_lost_launcher() {
        let mut agent = TestAgent::started(clock::now(), 1);
        let effects = agent.step(AgentEvent::ProtocolError("too long".to_owned()));
        assert_eq!(effects[1..3], signalled(SIGTERM));
        assert_eq!(
            lines(&effects),
            ["protocol error from the launcher: too long; stopping the workers"]
        );
        agent.hear(EMPTY);
        assert_eq!(agent.state.exit_status(), Some(Status::Protocol));
    }

    /// One step of a launcher that breaks the protocol, of workers, or of time.
    fn random_step(agent: &mut TestAgent, step: u8, workers: &mut Vec<u32>) -> Vec<AgentEffect> {
        match step {
            0 => agent.say(ToAgent::Heartbeat { at_us: 1 }),
            1 => agent.say(ToAgent::Pause),
            2 => agent.say(ToAgent::Resume),
            3 => agent.say(ToAgent::Signal(15)),
            4 => agent.say(ToAgent::Kill),
            5 => agent.say(ToAgent::NextEpoch),
            6 => agent.say(ToAgent::ReportSuspended),
            7 => agent.step(AgentEvent::LinkEnded),
            8 => agent.step(AgentEvent::ProtocolError(String::new())),
            9 => agent.step(AgentEvent::ShimExited),
            10 => agent.pass(HEARTBEAT),
            11 => agent.suspend(LEASE),
            _ => match workers.pop() {
                Some(worker) => agent.exit(worker, WorkerExit::Code(step % 2)),
                None => agent.pass(Duration::from_millis(10)),
            },
        }
    }

    proptest::proptest! {
        /// Whatever happens: once its launcher is lost, an agent sends nothing, kills within the
        /// grace period, and exits when no process is left.
        #[test]
        fn agent_that_lost_its_launcher_exits(
            steps in proptest::collection::vec(0u8..16, 0..40),
        ) {
            let (mut agent, mut workers) = (TestAgent::started(clock::now(), 3), vec![0, 1, 2]);
            let mut has_lost = false;
            for step in steps {
                let effects = random_step(&mut agent, step, &mut workers);
                for effect in &effects {
                    let is_sent = matches!(effect, AgentEffect::Send { .. });
                    proptest::prop_assert!(!has_lost || !is_sent);
                    has_lost |= *effect == AgentEffect::CloseLink;
                }
                if agent.state.epoch.0 > 0 {
                    return Ok(());
                }
            }
            agent.step(AgentEvent::LinkEnded);
            let effects = agent.pass(GRACE + HEARTBEAT);
            if agent.state.shim == ShimPhase::Alive && agent.state.exit_status().is_none() && !has_lost {
                let kill = AgentEffect::SendToShim(ToShim::Kill);
                proptest::prop_assert!(effects.contains(&kill), "{effects:?}");
            }
            agent.hear(EMPTY);
            proptest::prop_assert!(agent.state.exit_status().is_some());
            proptest::prop_assert_eq!(agent.pass(LEASE), []);
        }
    }
}
