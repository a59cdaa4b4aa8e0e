//! Requests of the user while a job runs: stop it, print its state, suspend it.

use super::dispatcher::Dispatcher;
use super::pause::PauseScope;
use super::signals::UserRequest;
use super::voice;
use crate::base::{NodeRank, clock};
use crate::job::Event;
use crate::os::signals;
use crate::report::summary::{count, step};
use crate::wire::ToAgent;

impl Dispatcher<'_> {
    /// Handles a request that the launcher, or a process of remuda on a node, received.
    pub(super) fn wish(&mut self, request: UserRequest, at: Option<NodeRank>) -> Option<Event> {
        match request {
            UserRequest::Stop(signal) => Some(match at {
                None => {
                    self.reporter.expect_echo();
                    Event::Signal(signal)
                }
                Some(node) => Event::SignalAt(node, signal),
            }),
            UserRequest::Tell => {
                self.reporter.expect_echo();
                self.say_state();
                None
            }
            UserRequest::Suspend => {
                self.suspend();
                None
            }
            UserRequest::Forward(signal) => {
                self.tell_all(&ToAgent::Signal(signal));
                None
            }
        }
    }

    /// Handles Ctrl-Z: the workers are stopped, then the launcher.
    fn suspend(&mut self) {
        let nodes = (0..).map(NodeRank).zip(&self.nodes).filter(|(_, node)| !node.lost);
        let nodes = nodes.map(|(node, _)| PauseScope::Node(node));
        if !self.pause.ask(clock::now(), nodes.chain([PauseScope::Screen])) {
            return;
        }
        self.tell_all(&ToAgent::Pause);
        self.reporter
            .say(step("Paused", &format!("{}; `fg` resumes the job", self.count_workers())));
        let screen_idle = self.tell_rested.clone();
        self.reporter.rest(move || {
            let _ = screen_idle.send(());
        });
    }

    /// Suspends the launcher; returns when it is continued, and then the workers are continued too.
    pub(super) fn pause(&mut self) -> Event {
        let since = clock::now();
        signals::stop_self();
        let now = clock::now();
        self.pause.resumed(now - since);
        for node in &mut self.nodes {
            node.heard = node.heard.map(|_| now);
            node.put_off(now - since);
        }
        self.beat_at = now + self.options.beat;
        self.tell_all(&ToAgent::Resume);
        self.reporter.say(step("Running", &self.count_workers()));
        self.reporter.wake();
        Event::StoodStill(now - since)
    }

    /// Prints the state of every worker, or before the start the nodes that are not ready.
    fn say_state(&self) {
        let now = clock::now();
        if self.job.is_preparing() {
            for line in self.awaited().waiting(now - self.caller.asked) {
                self.reporter.say(line);
            }
            return;
        }
        for worker in &self.history.workers {
            self.reporter.say(voice::state(worker, now));
        }
        // Only the nodes know the state of the processes; the launcher does not wait for their
        // answers.
        self.tell_all(&ToAgent::Look);
    }

    fn count_workers(&self) -> String {
        count(self.history.workers.len(), "worker")
    }
}
