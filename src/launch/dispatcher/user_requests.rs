//! Requests of the user while a job runs: stop it, print its state, suspend it.

use crate::base::{NodeRank, Rank, clock};
use crate::job::Event;
use crate::launch::dispatcher::Dispatcher;
use crate::launch::screen::messages;
use crate::launch::user::input;
use crate::launch::user::signals::UserRequest;
use crate::os::process::signals;
use crate::report::text::{show_count, show_step};
use crate::wire::ToAgent;

impl Dispatcher<'_> {
    /// Handles a request that the launcher, or a process of remuda on a node, received.
    pub(super) fn on_user_request(
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
                if !self.history.forwarded_signals.contains(&signal) {
                    self.history.forwarded_signals.push(signal);
                }
                self.nodes.send_to_all(&ToAgent::Signal(signal));
                None
            }
        }
    }

    /// Sends standard input to the workers that read it.
    pub(super) fn forward_stdin(&mut self, bytes: &[u8]) {
        if bytes.contains(&b'\n') && input::is_terminal() {
            self.reporter.end_prompt();
        }
        for rank in self.user.stdin.readers() {
            let node = self.history.workers[rank.index()].node;
            self.nodes.send(node, &ToAgent::Stdin { rank, bytes: bytes.to_vec() });
        }
    }

    /// Handles Ctrl-Z: the workers are stopped, then the launcher.
    fn suspend(&mut self) {
        let table = &self.nodes.table;
        let nodes = table.all().filter(|node| !table.is_lost(*node));
        let Some(on_screen_idle) = self.user.begin_pause(clock::now(), nodes) else { return };
        self.nodes.send_to_all(&ToAgent::Pause);
        self.reporter.expect_echo();
        self.reporter.print_answer(show_step(
            "Paused",
            &format!("{}; `fg` resumes the job", self.count_workers()),
        ));
        self.reporter.release_terminal(on_screen_idle);
    }

    /// Suspends the launcher; returns when it is continued, and then the workers are continued too.
    pub(super) fn suspend_launcher(&mut self) -> Event {
        let since = clock::now();
        signals::stop_self();
        let now = clock::now();
        let suspended = self.user.on_continued(since, now);
        self.nodes.table.on_resumed(now, suspended);
        self.nodes.send_to_all(&ToAgent::Resume);
        self.reporter.print_answer(show_step("Running", &self.count_workers()));
        self.reporter.resume_terminal();
        Event::Suspended(suspended)
    }

    /// Prints the state of every worker, or before the start the nodes that are not ready.
    fn report_state(&self) {
        let now = clock::now();
        if self.job.is_preparing() {
            let waited = now - self.nodes.table.asked_at();
            for line in self.pending_nodes().show_waiting(waited, self.join_limit_text().as_deref())
            {
                self.reporter.print_answer(line);
            }
            return;
        }
        let workers = || (0..).map(Rank).zip(&self.history.workers);
        for (place, worker) in workers() {
            let progress = self.nodes.traffic().progress.of(place);
            let line = messages::state(worker, progress.show(), now);
            if worker.is_running() {
                self.reporter.print_state(place, line);
            } else {
                self.reporter.print_answer(line + "\n");
            }
        }
        if workers().any(|(_, worker)| worker.is_running()) {
            self.reporter.print_answer(messages::stack_hint(self.options));
        }
        // Only the nodes know the state of the processes; the launcher does not wait for their
        // answers.
        self.nodes.send_to_all(&ToAgent::ReportSuspended);
    }

    fn count_workers(&self) -> String {
        show_count(self.history.workers.len(), "worker")
    }
}
