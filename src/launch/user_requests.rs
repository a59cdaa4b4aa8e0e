//! Requests of the user while a job runs: stop it, print its state, suspend it.

use crate::base::{NodeRank, Rank, clock};
use crate::job::Event;
use crate::launch::dispatcher::Dispatcher;
use crate::launch::pause::PauseScope;
use crate::launch::screen::messages;
use crate::launch::signals::UserRequest;
use crate::os::process::signals;
use crate::report::text::{show_count, show_step};
use crate::wire::ToAgent;

impl Dispatcher<'_> {
    /// Handles a request that the launcher, or a process of remuda on a node, received.
    pub(in crate::launch) fn on_user_request(
        &mut self,
        request: UserRequest,
        at: Option<NodeRank>,
    ) -> Option<Event> {
        match request {
            UserRequest::Stop(signal) => Some(match at {
                None => {
                    self.reporter.expect_echo();
                    Event::Signal(signal)
                }
                Some(node) => Event::NodeSignal(node, signal),
            }),
            UserRequest::ShowState => {
                self.reporter.expect_echo();
                self.report_state();
                None
            }
            UserRequest::Suspend => {
                self.suspend();
                None
            }
            UserRequest::Forward(signal) => {
                self.send_to_all(&ToAgent::Signal(signal));
                None
            }
        }
    }

    /// Handles Ctrl-Z: the workers are stopped, then the launcher.
    fn suspend(&mut self) {
        let nodes = (0..).map(NodeRank).zip(&self.nodes).filter(|(_, node)| !node.is_lost);
        let nodes = nodes.map(|(node, _)| PauseScope::Node(node));
        if !self.pause.start(clock::now(), nodes.chain([PauseScope::Screen])) {
            return;
        }
        self.send_to_all(&ToAgent::Pause);
        self.reporter.print_answer(show_step(
            "Paused",
            &format!("{}; `fg` resumes the job", self.count_workers()),
        ));
        let screen_idle = self.screen_idle_sender.clone();
        self.reporter.release_terminal(move || {
            let _ = screen_idle.send(());
        });
    }

    /// Suspends the launcher; returns when it is continued, and then the workers are continued too.
    pub(in crate::launch) fn suspend_launcher(&mut self) -> Event {
        let since = clock::now();
        signals::stop_self();
        let now = clock::now();
        self.pause.on_resumed(now - since);
        for node in &mut self.nodes {
            node.last_message_at = node.last_message_at.map(|_| now);
            node.postpone_deadline(now - since);
        }
        self.heartbeat_at = now + self.options.limits.heartbeat_interval;
        self.send_to_all(&ToAgent::Resume);
        self.reporter.print_answer(show_step("Running", &self.count_workers()));
        self.reporter.resume_terminal();
        Event::Suspended(now - since)
    }

    /// Prints the state of every worker, or before the start the nodes that are not ready.
    fn report_state(&self) {
        let now = clock::now();
        if self.job.is_preparing() {
            for line in
                self.pending_nodes().show_waiting(now - self.connect_context.prepare_started_at)
            {
                self.reporter.print_answer(line);
            }
            return;
        }
        let workers = || (0..).map(Rank).zip(&self.history.workers);
        for (place, worker) in workers() {
            let line = messages::state(worker, now);
            if worker.is_running() {
                self.reporter.print_state(place, line);
            } else {
                self.reporter.print_answer(line + "\n");
            }
        }
        if workers().any(|(_, worker)| worker.is_running()) {
            self.reporter.print_answer(messages::STACK_HINT);
        }
        // Only the nodes know the state of the processes; the launcher does not wait for their
        // answers.
        self.send_to_all(&ToAgent::ReportSuspended);
    }

    fn count_workers(&self) -> String {
        show_count(self.history.workers.len(), "worker")
    }
}
