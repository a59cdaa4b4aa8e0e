//! The agent's event loop: waits for one event, lets the state machine decide, and performs the
//! effects.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use super::executor::AgentExecutor;
use super::launcher_link::LauncherLink;
use super::shim::Shim;
use super::state::{AgentEvent, AgentState};
use crate::base::{Status, clock};

/// Serves the link until the agent is to exit, then stops the shim and what is left of its
/// processes.
pub(super) async fn serve(input: OwnedFd, output: OwnedFd, shim: Shim) -> io::Result<Status> {
    let state = AgentState::new(clock::now());
    let mut agent = EventLoop { state, executor: AgentExecutor::new(input, output, shim)? };
    // Sets the first timer.
    agent.handle(AgentEvent::Timer);
    let status = loop {
        if let Some(status) = agent.state.exit_status() {
            break status;
        }
        let event = agent.next_event().await;
        agent.handle(event);
    };
    agent.executor.finish();
    Ok(status)
}

struct EventLoop {
    state: AgentState,
    executor: AgentExecutor,
}

impl EventLoop {
    /// Applies an event and the answers to its effects.
    fn handle(&mut self, event: AgentEvent) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.state.step(clock::now(), event) {
                events.extend(self.executor.perform(effect));
            }
        }
    }

    /// Waits for the next event.
    async fn next_event(&mut self) -> AgentEvent {
        let executor = &mut self.executor;
        tokio::select! {
            event = next_message(executor.link.as_mut()) => event,
            packet = executor.shim.receive() => match packet {
                Some((message, fds)) => executor.on_shim_message(message, fds),
                None => AgentEvent::ShimExited,
            },
            Some(result) = executor.results.recv() => executor.on_task_result(result),
            () = tokio::time::sleep_until(executor.wake_at.into()) => AgentEvent::Timer,
            never = executor.tasks.propagate_panics() => match never {},
        }
    }
}

/// Receives the next message of the launcher; waits for ever if there is no link.
async fn next_message(link: Option<&mut LauncherLink>) -> AgentEvent {
    match link {
        Some(link) => link.next_event().await,
        None => std::future::pending().await,
    }
}
