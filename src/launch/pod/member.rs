//! A member of a job whose nodes are started one by one, other than node 0: connects to node 0,
//! starts its agent, and stays in the foreground until node 0 has reported how the job ended.

use std::ffi::OsString;
use std::process;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::exit::signal_name;
use crate::base::{Epoch, NodeRank, Status, WorkerExit, clock};
use crate::job::{OnTerm, Requests};
use crate::launch::codes;
use crate::launch::node::join_limit::JoinLimit;
use crate::launch::node::nodes::LocalAgents;
use crate::launch::node::orphan_reaper::{self, OrphanReaper};
use crate::launch::options::{DialOptions, LaunchError};
use crate::launch::pod::member_options::{EarlierPart, MemberOptions};
use crate::launch::pod::own_line::OwnLine;
use crate::launch::pod::probes::{HealthState, start_probe_server};
use crate::launch::pod::unfit::refuse_to_join;
use crate::launch::screen::messages;
use crate::launch::user::signals::{Signals, UserRequest};
use crate::os::cpu::{malloc, text_pages};
use crate::os::process::{process_tree, signals};
use crate::os::tasks::{Tasks, sleep_until};
use crate::plan::LaunchPlan;
use crate::report::text::{
    Failure, ReportScreen, show_count, show_duration, show_failure, show_help, show_step,
};
use crate::report::{escape_control, print_message};
use crate::transport::dial::{
    AttachedMember, Dialer, JobOver, JoinFault, JoinWait, LinkFilter, MemberEvent,
};
use crate::transport::{AgentEnvironment, AgentHandle, Link, connect_local};

/// An agent that does not exit this long after its link has ended is no longer waited for.
const AGENT_EXIT_TIMEOUT: Duration = Duration::from_millis(500);
/// Time that stopping takes beside the grace.
const STOP_MARGIN: Duration = Duration::from_secs(5);
/// Interval at which process 1 reaps orphans.
const REAP_INTERVAL: Duration = Duration::from_secs(3);
/// What a second signal does, for messages about the first one.
const AGAIN: &str = "send it again to kill the workers now";

/// Takes part in the job of node 0. Returns the exit status of the job.
pub fn join(plan: &LaunchPlan, member: &MemberOptions) -> Result<Status, LaunchError> {
    if let Some(first) = member.dial.problems.first() {
        return refuse_to_join(plan, member, first);
    }
    malloc::use_one_arena();
    signals::reset_sigchld();
    let blocked_signals = signals::defer_requests();
    process_tree::become_subreaper();
    let reaper = OrphanReaper::new(&member.dial.job);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let status = runtime.block_on(async {
        let mut member_loop = MemberLoop {
            plan,
            member,
            node: member.node,
            reaper,
            signals: Signals::listen()?,
            stop_signals: Vec::new(),
            awaited: Awaited::Start,
            epoch: None,
            free_restarts: 0,
            health: Arc::default(),
            requests: Requests::default(),
            tasks: Tasks::default(),
        };
        drop(blocked_signals);
        member_loop.run().await
    });
    // The process does not wait for a name server that does not answer.
    runtime.shutdown_background();
    status
}

/// State of a member while it takes part in the job, over all its connections.
struct MemberLoop<'a> {
    plan: &'a LaunchPlan,
    member: &'a MemberOptions,
    /// Which node this is, as soon as it is known.
    node: Option<NodeRank>,
    reaper: OrphanReaper,
    signals: Signals,
    /// Signals received so far that request the end.
    stop_signals: Vec<i32>,
    /// The node 0 that this node waits for while it has no connection.
    awaited: Awaited,
    /// The last epoch that began.
    epoch: Option<Epoch>,
    /// Number of restarts that do not count against `--max_restarts`: no failure caused them.
    free_restarts: u32,
    /// State for the answers to probes.
    health: Arc<HealthState>,
    requests: Requests,
    tasks: Tasks,
}

/// The node 0 that a node without a connection waits for.
#[derive(Clone, Copy)]
enum Awaited {
    /// One that runs, or will be started for the first time or in the place of one that has left.
    Start,
    /// Another one after the loss of the first.
    Return,
}

/// How this node's part in the job ended.
enum MemberEnd {
    Over(JobOver),
    /// Node 0 was lost.
    LeaderLost,
    /// This node was asked to end, and another one will replace it.
    Replaced,
    /// Node 0 needs this node again, with another agent.
    Rejoin,
    /// The user stopped the wait.
    StoppedWaiting,
}

enum MemberLoopEvent {
    Connection(Option<MemberEvent>),
    UserRequest(UserRequest),
    Timeout,
    ReapOrphans,
}

impl MemberLoop<'_> {
    /// Runs the member. Node 0 or its processes here may be replaced: then this node joins once
    /// more.
    async fn run(&mut self) -> Result<Status, LaunchError> {
        let status_addr = self.member.supervisor.status_addr;
        start_probe_server(status_addr, &self.health, &mut self.tasks).await?;
        loop {
            if let Some(status) = self.run_connection().await? {
                return Ok(status);
            }
            self.health.set_ready(false);
        }
    }

    /// One connection, from the first attempt to its end. Returns the exit status, unless there is
    /// to be another connection.
    async fn run_connection(&mut self) -> Result<Option<Status>, LaunchError> {
        let Self { node, free_restarts, .. } = *self;
        let part = EarlierPart { node, next_epoch: self.first_unused_epoch(), free_restarts };
        let dialer = self.member.dialer(self.plan, part);
        self.say(&show_step("Joining", &self.describe_join(&dialer)));
        let leader_address = dialer.endpoint();
        let joined = {
            let limit = self.wait_limit();
            let report_wait = |why: &JoinWait, waited| {
                let waited = show_duration(waited);
                let limit = limit.show();
                let text = format!(
                    "for node 0 ({leader_address}), {waited} so far, at most {limit}: {why}"
                );
                let help = show_help(self.member.dial.wait_help.of(why));
                print_message(&(show_step("Waiting", &text) + &help), self.member.paint);
            };
            let join = dialer.join(limit.time, report_wait);
            tokio::select! {
                joined = join => Ok(joined),
                signal = self.signals.wait_for_stop() => Err(signal),
            }
        };
        let connection = match joined {
            Ok(Ok(connection)) => connection,
            Ok(Err(fault)) => return Ok(Some(self.report_not_joined(&fault))),
            Err(signal) => return Ok(Some(self.report_stopped_wait(signal, &leader_address))),
        };
        let node = connection.node;
        let text =
            format!("as node {node}; node 0 ({leader_address}) shows the output of the workers");
        self.say(&show_step("Joined", &text));
        self.node = Some(node);
        self.health.set_ready(true);
        let Link { reader, writer, agent, .. } =
            connect_local(&self.agent_args(node), self.network())?;
        let mut agent = Some(agent);
        let filter = self.member.own_line.as_ref().map(|options| {
            let own = OwnLine::new(self.plan.clone(), options.clone(), node);
            Box::new(own) as Box<dyn LinkFilter>
        });
        let mut attached = connection.attach(reader, writer, filter, &mut self.tasks);
        let part = self.run_attached(&mut attached, &mut agent).await;
        // With the connection the agent's link ends, and with the link the agent.
        drop(attached);
        if let Some(agent) = agent {
            self.wait_for_agent_exit(agent, matches!(part, MemberEnd::StoppedWaiting)).await;
        }
        if self.may_join_again(&part) {
            self.announce_next_connection(&part);
            return Ok(None);
        }
        Ok(Some(self.report_end(part)))
    }

    /// Says what this node waits for, and how long.
    fn announce_next_connection(&mut self, part: &MemberEnd) {
        let attempt = messages::attempt_explained(self.first_unused_epoch());
        self.awaited =
            if matches!(part, MemberEnd::LeaderLost) { Awaited::Return } else { Awaited::Start };
        let limit = self.wait_limit().show();
        let condition = match part {
            MemberEnd::LeaderLost | MemberEnd::Replaced => {
                format!(" if node 0 is started again within {limit}")
            }
            // Node 0 runs, and waits for this node.
            MemberEnd::Rejoin | MemberEnd::Over(_) | MemberEnd::StoppedWaiting => String::new(),
        };
        let text =
            format!("the connection to node 0 closed; reconnecting for {attempt}{condition}");
        self.say(&show_step("Lost", &text));
    }

    /// How long this node waits for node 0.
    fn wait_limit(&self) -> JoinLimit {
        match self.awaited {
            Awaited::Start => self.member.dial.join_limit,
            Awaited::Return => self.member.dial.return_limit,
        }
    }

    /// The first epoch in which this node has not taken part.
    fn first_unused_epoch(&self) -> Epoch {
        self.epoch.map_or(Epoch(0), Epoch::next)
    }

    /// Whether to join again: a lost node 0 may be replaced while restarts are left or nothing was
    /// started.
    fn may_join_again(&self, part: &MemberEnd) -> bool {
        match part {
            MemberEnd::Over(_) | MemberEnd::StoppedWaiting => false,
            MemberEnd::Rejoin | MemberEnd::Replaced => self.stop_signals.is_empty(),
            MemberEnd::LeaderLost => {
                let is_replaced = 0 < self.member.restarts_max && self.has_restarts_left();
                self.stop_signals.is_empty() && (self.epoch.is_none() || is_replaced)
            }
        }
    }

    fn describe_join(&self, dialer: &Dialer) -> String {
        let dial = &self.member.dial;
        let nodes = self.plan.nodes.len();
        let limit = show_duration(self.wait_limit().time);
        let typed_port = dial.typed_port().map(|typed| format!(" (for master port {typed})"));
        let leader_address = dialer.address_and_port() + &typed_port.unwrap_or_default();
        let own = match self.node {
            Some(node) => {
                format!("node {node} of {nodes} ({})", self.plan.nodes[node.index()].host)
            }
            None => format!("one of {nodes} nodes"),
        };
        format!("job {} at {leader_address} as {own}, within {limit}", dial.job)
    }

    fn network(&self) -> AgentEnvironment {
        let DialOptions { local_addr, is_task, .. } = self.member.dial;
        AgentEnvironment { local_addr, is_task, connection: None }
    }

    fn agent_args(&self, node: NodeRank) -> [OsString; 3] {
        let job = &self.member.dial.job;
        ["agent".to_owned(), format!("job={job}"), format!("node={node}")].map(Into::into)
    }

    fn say(&self, text: &str) {
        if self.member.shows_progress {
            print_message(text, self.member.paint);
        }
    }

    fn report_not_joined(&self, fault: &JoinFault) -> Status {
        let text = match (self.awaited, fault) {
            (
                Awaited::Return,
                JoinFault::NoAnswer(called, why) | JoinFault::OtherProgram(called, why),
            ) => {
                let limit = self.wait_limit().show();
                format!("node 0 ({called}) was lost, and did not answer within {limit}: {why}")
            }
            _ => fault.to_string(),
        };
        let mut lines = text.lines();
        let title = lines.next().unwrap_or_default();
        let (consequence, status) = match (self.epoch, fault) {
            // This node took part in the job until node 0 was lost.
            (Some(_), JoinFault::NoAnswer(..) | JoinFault::OtherProgram(..)) => {
                ("there was no restart", Status::LeaseLost)
            }
            (Some(_), JoinFault::OtherKey { .. } | JoinFault::Refused(_)) => {
                ("there was no restart", fault.status())
            }
            (None, _) => ("nothing was started", fault.status()),
        };
        let mut screen =
            format!("error[{}]: {}; {consequence}\n", codes::NOT_JOINED, escape_control(title));
        screen += &neutral_lines(lines);
        let help = match (self.epoch, fault) {
            (Some(_), JoinFault::NoAnswer(..) | JoinFault::OtherProgram(..)) => {
                "the screen of node 0 shows why it exited".to_owned()
            }
            (_, fault) => fault.help(),
        };
        let screen = format!("{screen}help: {help}\n");
        print_message(&screen, self.member.paint);
        self.member.leave_message(self.node, status, (&screen, None));
        status
    }

    /// Takes part until the job is over or node 0 is lost.
    async fn run_attached(
        &mut self,
        attached: &mut AttachedMember,
        agent: &mut Option<Box<dyn AgentHandle>>,
    ) -> MemberEnd {
        let mut deadline: Option<Instant> = None;
        let mut reap_at = orphan_reaper::is_process_1().then(|| clock::now() + REAP_INTERVAL);
        loop {
            let event = tokio::select! {
                biased;
                request = self.signals.next() => MemberLoopEvent::UserRequest(request),
                news = attached.next() => MemberLoopEvent::Connection(news),
                () = sleep_until(deadline) => MemberLoopEvent::Timeout,
                () = sleep_until(reap_at) => MemberLoopEvent::ReapOrphans,
                never = self.tasks.propagate_panics() => match never {},
            };
            match event {
                MemberLoopEvent::Connection(Some(MemberEvent::JobEnded(over))) => {
                    return MemberEnd::Over(over);
                }
                MemberLoopEvent::Connection(Some(MemberEvent::Rejoin)) => return MemberEnd::Rejoin,
                MemberLoopEvent::Connection(Some(MemberEvent::Leaving)) => {
                    self.free_restarts += u32::from(self.epoch.is_some());
                    return MemberEnd::Replaced;
                }
                MemberLoopEvent::Connection(Some(MemberEvent::EpochStarted(
                    epoch,
                    free_restarts,
                ))) => self.on_epoch_started(epoch, free_restarts),
                MemberLoopEvent::Connection(None) | MemberLoopEvent::Timeout => {
                    return MemberEnd::LeaderLost;
                }
                MemberLoopEvent::Connection(Some(MemberEvent::AgentEnded)) => {
                    // Other nodes may still be stopping; then node 0 reports the result or needs
                    // this node again.
                    deadline =
                        Some(clock::now() + self.member.lease + self.member.grace + STOP_MARGIN);
                    if let Some(agent) = agent.take() {
                        attached.report_agent_exit(self.reap_agent(agent).await);
                    }
                }
                MemberLoopEvent::UserRequest(request) => {
                    if !self.forward_request(request, attached) {
                        return MemberEnd::StoppedWaiting;
                    }
                }
                MemberLoopEvent::ReapOrphans => {
                    reap_at = Some(clock::now() + REAP_INTERVAL);
                    let agent = agent.as_ref().and_then(|agent| agent.pid());
                    let agents =
                        LocalAgents { living: agent.into_iter().collect(), lost: Vec::new() };
                    self.reaper.reap_exited_children(false, agents);
                }
            }
        }
    }

    fn on_epoch_started(&mut self, epoch: Epoch, free_restarts: u32) {
        if self.epoch.is_some_and(|before| before < epoch) {
            let text = format!("{}; node 0 shows the cause", messages::attempt_explained(epoch));
            self.say(&show_step("Restart", &text));
        }
        (self.epoch, self.free_restarts) = (Some(epoch), free_restarts);
        self.health.set_epoch(epoch.0);
        // From here on this process waits: its agent starts the workers.
        text_pages::unmap_text_pages();
    }

    /// Whether the job goes on with another node in the place of this one, as far as this node
    /// knows.
    fn may_be_replaced(&self) -> bool {
        let goes_on = self.member.is_elastic || self.has_restarts_left();
        self.member.supervisor.on_term == OnTerm::EndNode && goes_on
    }

    fn has_restarts_left(&self) -> bool {
        self.first_unused_epoch().0 - self.free_restarts <= self.member.restarts_max
    }

    /// Forwards a request of the user to the job. Returns false if this process is to stop waiting.
    fn forward_request(&mut self, request: UserRequest, attached: &AttachedMember) -> bool {
        match request {
            UserRequest::Stop(signal) => {
                if self.requests.record(clock::now()).is_none() {
                    return true;
                }
                self.stop_signals.push(signal);
                let name = signal_name(signal);
                match self.stop_signals.len() {
                    1 if signal == libc::SIGTERM && self.may_be_replaced() => {
                        let text = format!(
                            "this node leaves the job, which continues: {name} received; {AGAIN}"
                        );
                        self.say(&show_step("Leaving", &text));
                    }
                    1 => {
                        self.say(&show_step("Stopping", &format!("{name} received; {AGAIN}")));
                    }
                    2 => self.say(&show_step("Killing", "the remaining processes")),
                    _ => return false,
                }
                attached.forward_signal(signal);
            }
            UserRequest::Forward(signal) => attached.forward_signal(signal),
            UserRequest::ShowState => {
                let node = self.node.unwrap_or_default();
                let workers = self.plan.nodes[node.index()].workers.len();
                let text = format!("{} of node {node}", show_count(workers, "worker"));
                self.say(&show_step(
                    "State",
                    &format!("{text}; SIGQUIT on node 0 shows the state of each"),
                ));
            }
            UserRequest::Suspend => {
                self.say("note: only Ctrl-Z on node 0 suspends the job\n");
            }
        }
        true
    }

    async fn reap_agent(&mut self, agent: Box<dyn AgentHandle>) -> Option<WorkerExit> {
        let end = agent.wait_for_exit(AGENT_EXIT_TIMEOUT).await;
        // The shim of a killed agent becomes a child of this process: the shim is ended with its
        // workers, and so is everything else that is left.
        if end.exit != Some(WorkerExit::Code(0)) {
            self.reaper.end_descendants().await;
        }
        end.exit
    }

    /// Waits for the agent, which stops its workers by itself once its link has ended; a third
    /// signal ends the wait.
    async fn wait_for_agent_exit(&mut self, agent: Box<dyn AgentHandle>, has_left: bool) {
        if has_left {
            return;
        }
        let limit = self.member.grace + STOP_MARGIN;
        let third_signal = async {
            loop {
                if let UserRequest::Stop(signal) = self.signals.next().await
                    && self.requests.record(clock::now()).is_some()
                {
                    self.stop_signals.push(signal);
                    if 2 < self.stop_signals.len() {
                        return;
                    }
                }
            }
        };
        let exit = tokio::select! {
            end = agent.wait_for_exit(limit) => end.exit,
            () = third_signal => return,
        };
        if exit != Some(WorkerExit::Code(0)) {
            self.reaper.end_descendants().await;
        }
    }

    fn report_end(&self, part: MemberEnd) -> Status {
        match part {
            MemberEnd::Over(JobOver { status, text, cause }) => {
                let text = neutral_lines(text.lines());
                if text.is_empty() {
                    self.say(&show_step("Ended", "the job exited with status 0"));
                } else if self.member.dial.shares_screen {
                    let text =
                        format!("the job exited with status {status}; node 0 shows the cause");
                    print_message(&show_step("Ended", &text), self.member.paint);
                } else {
                    print_message(&text, self.member.paint);
                }
                let own = self.node.unwrap_or_default();
                let own_status = self.member.dial.status_of(own, Status::Worker(status), cause);
                self.member.leave_message(self.node, own_status, (&text, cause));
                own_status
            }
            MemberEnd::LeaderLost | MemberEnd::Rejoin | MemberEnd::Replaced => {
                if let Some(signal) = self.stop_signals.last() {
                    return self.report_left(*signal);
                }
                let text = show_failure(&self.leader_lost(), ReportScreen::Node0);
                print_message(&text, self.member.paint);
                self.member.leave_message(self.node, Status::LeaseLost, (&text, Some(NodeRank(0))));
                Status::LeaseLost
            }
            MemberEnd::StoppedWaiting => {
                Status::Interrupted(self.stop_signals.last().copied().unwrap_or(libc::SIGTERM))
            }
        }
    }

    /// Reports that the user stopped this node before node 0 had accepted it.
    fn report_stopped_wait(&self, signal: i32, leader_address: &str) -> Status {
        let name = signal_name(signal);
        let consequence = match self.epoch {
            None => "; nothing was started",
            Some(_) => "",
        };
        let text = format!(
            "error[{}]: {name} stopped this node while it waited for node 0 ({leader_address}){consequence}\n",
            codes::INTERRUPTED
        );
        print_message(&text, self.member.paint);
        self.report_left(signal)
    }

    /// The status after the user stopped this node: no failure, so only the signal is reported.
    fn report_left(&self, signal: i32) -> Status {
        let status = Status::Interrupted(signal);
        let text = format!("left the job: {} received\n", signal_name(signal));
        self.member.leave_message(self.node, status, (&text, self.node));
        status
    }

    fn leader_lost(&self) -> Failure {
        let dial = &self.member.dial;
        let host = &self.plan.nodes[0].host;
        let pid = process::id();
        Failure {
            code: codes::LEADER_LOST,
            title: format!("node 0 ({host}) was lost; the workers of this node were stopped"),
            facts: vec![format!(
                "the connection to {}:{} closed before the job ended   pid {pid} here",
                dial.address, dial.port
            )],
            help: vec![format!(
                "see the last lines of node 0; if it was killed, see `uptime` and `dmesg` on {}",
                dial.address
            )],
            ..Failure::default()
        }
    }
}

/// Lines of another program, with control characters escaped for the terminal.
fn neutral_lines<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.fold(String::new(), |text, line| text + &escape_control(line) + "\n")
}
