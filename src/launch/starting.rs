//! From links to workers that run.

use std::time::Instant;

use super::dispatcher::{Dispatcher, SILENCE_WARNING};
use super::node::Way;
use super::{orders, recording, voice};
use crate::base::{NodeRank, Rank};
use crate::os::code;
use crate::report::summary::step;
use crate::wire::ToAgent;

impl Dispatcher<'_> {
    /// Asks a node whether it can start.
    pub(super) fn prepare(&self, node: NodeRank) {
        let prepare = orders::prepare(self.plan, self.options, &self.plan.nodes[node.index()]);
        self.nodes[node.index()].tell(&ToAgent::Prepare(Box::new(prepare)));
    }

    pub(super) fn start_workers(&mut self) {
        self.begin_epoch();
        self.pulse.set_epoch(self.job.epoch().0);
        self.pulse.set_counts(self.job.running(), self.nodes_here());
        if let Way::Dial(gate, ..) = self.caller.way {
            gate.begun(self.job.epoch(), self.job.uncharged());
        }
        if !self.has_begun {
            self.reporter.say(self.options.announcement.as_str());
            self.begin_record();
        }
        let port = voice::port(self.plan, self.found.first().and_then(Option::as_ref));
        if let (true, Some(line)) = (self.options.talks, port) {
            self.reporter.say(line);
        }
        let starts = orders::starts(self.plan, self.options, &self.found, self.job.epoch());
        let roster = orders::roster(self.plan, self.job.epoch());
        for (node, start) in self.nodes.iter().zip(starts) {
            if let Some(start) = start {
                node.tell_encoded(&roster);
                node.tell(&ToAgent::Start(start));
            }
        }
        let ranks = (0..).map(Rank).zip(&self.history.workers);
        let readers = ranks.filter(|(_, worker)| self.options.stdin.includes(worker.rank));
        self.stdin.start(readers.map(|(rank, _)| rank));
        // While the nodes start them: reading lines, files and plans is over.
        code::unmap_what_was_needed();
    }

    /// From now on the job is one to be kept.
    fn begin_record(&mut self) {
        self.has_begun = true;
        let Some(run_dir) = &self.options.run_dir else {
            return;
        };
        run_dir.begin(recording::begun(self.plan, self.options, self.started.1).to_json());
        if self.options.tell_record {
            self.reporter.say(step("Record", &run_dir.path().display().to_string()));
        }
    }

    /// Says whom we wait for before anything can start, not more often than somebody would read.
    pub(super) fn say_waiting(&mut self, now: Instant) {
        if now < self.waiting_at || self.job.is_stopping() {
            return;
        }
        self.waiting_at = now + SILENCE_WARNING;
        let hosts: Vec<_> = self.unanswered().map(|node| node.host.as_str()).collect();
        if !hosts.is_empty() {
            self.reporter.say(voice::waiting(&hosts, now - self.caller.asked));
        }
    }

    /// Nodes of a kind say the same: once is enough.
    pub(super) fn say_notes(&mut self, node: NodeRank, notes: &[String]) {
        for note in notes {
            if self.noted.insert(note.clone()) {
                let host = &self.plan.nodes[node.index()].host;
                self.reporter.say(format!("note: {host}: {note}\n"));
            }
        }
    }
}
