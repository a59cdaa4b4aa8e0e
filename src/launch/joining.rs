//! A member of a job whose nodes are started one by one, other than node 0: connects to node 0,
//! starts its agent, and stays in the foreground until node 0 has reported how the job ended.

use std::ffi::OsString;
use std::process;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::codes;
use super::dispatcher::sleep_until;
use super::grave::{self, OrphanReaper};
use super::options::{DialOptions, LaunchError, SupervisorOptions};
use super::probes::{HealthState, answer_probes};
use super::signals::{Signals, UserRequest};
use super::termination_log::leave_message;
use super::verdict::show_refusal;
use super::voice;
use crate::base::exit::signal_name;
use crate::base::{Epoch, NodeRank, Status, WorkerExit, clock};
use crate::job::{OnTerm, Requests};
use crate::os::tasks::Tasks;
use crate::os::{family, heap, signals};
use crate::plan::{self, LaunchPlan};
use crate::report::diagnostic::Paint;
use crate::report::summary::{Failure, count, duration, show_failure, step};
use crate::report::{neutral, say};
use crate::transport::dial::{Attached, Dialer, JobOver, JoinFault, News};
use crate::transport::{AgentProcess, Link, connect_local};
use crate::wire::Problem;

/// An agent that does not exit this long after its link has ended is no longer waited for.
const AGENT_END_LIMIT: Duration = Duration::from_millis(500);
/// Time that stopping takes beside the grace.
const ENDING: Duration = Duration::from_secs(5);
/// Interval at which process 1 reaps orphans.
const BURIAL: Duration = Duration::from_secs(3);

/// Options of a member, beside its plan.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// How nodes connect to each other.
    pub dial: DialOptions,
    /// Which node this is.
    pub node: NodeRank,
    /// Time between the request to stop and SIGKILL.
    pub grace: Duration,
    /// Time without a heartbeat after which a link counts as lost.
    pub lease: Duration,
    /// Maximum number of restarts after a failure.
    pub restarts_max: u32,
    /// Options for the supervisor of a pod.
    pub keeper: SupervisorOptions,
    /// Why this node cannot start its workers, as far as it is known by now.
    pub lacks: Vec<Problem>,
    /// Whether events are reported.
    pub talks: bool,
    /// Colors of the lines that remuda prints.
    pub paint: Paint,
}

impl MemberOptions {
    fn leave_message(&self, status: Status, text: &str, cause: Option<NodeRank>) {
        let file = self.keeper.termination_log.as_ref();
        leave_message(file, (&self.dial.job, self.node), status, (text, cause));
    }
}

/// Takes part in the job of node 0. Returns the exit status of the job.
pub fn join(plan: &LaunchPlan, member: &MemberOptions) -> Result<Status, LaunchError> {
    if let Some(first) = member.lacks.first() {
        let host = plan.nodes[member.node.index()].host.as_str();
        let what = "this node cannot take part; nothing was started here";
        let problems = member.lacks.iter().map(|problem| (host, problem));
        let (screen, status) = (show_refusal(what, problems), Status::Worker(first.status));
        say(&screen, member.paint);
        member.leave_message(status, &screen, None);
        return Ok(status);
    }
    heap::share();
    signals::hear_of_children();
    let blocked_signals = signals::let_requests_wait();
    family::become_subreaper();
    let inherited = family::children_of(rustix::process::getpid());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let status = runtime.block_on(async {
        let mut member_loop = Joining {
            plan,
            member,
            inherited,
            signals: Signals::listen()?,
            stops: Vec::new(),
            epoch: None,
            uncharged: 0,
            pulse: Arc::default(),
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
struct Joining<'a> {
    plan: &'a LaunchPlan,
    member: &'a MemberOptions,
    /// Children that the process had before remuda started.
    inherited: Vec<Pid>,
    signals: Signals,
    /// Signals received so far that request the end.
    stops: Vec<i32>,
    /// The last epoch that began.
    epoch: Option<Epoch>,
    /// Number of epochs that did not follow a failure.
    uncharged: u32,
    /// State for the answers to probes.
    pulse: Arc<HealthState>,
    requests: Requests,
    tasks: Tasks,
}

/// How this node's part in the job ended.
enum Part {
    Over(JobOver),
    /// Node 0 was lost.
    Lost,
    /// This node was asked to end, and another one will replace it.
    Replaced,
    /// Node 0 needs this node again, with another agent.
    Again,
    /// The user stopped the wait.
    Left,
}

enum Happening {
    News(Option<News>),
    Wish(UserRequest),
    Late,
    Burial,
}

impl Joining<'_> {
    /// Runs the member. Node 0 or its processes here may be replaced: then this node joins once
    /// more.
    async fn run(&mut self) -> Result<Status, LaunchError> {
        let status_addr = self.member.keeper.status_addr;
        answer_probes(status_addr, &self.pulse, &mut self.tasks).await?;
        loop {
            if let Some(status) = self.take_part_once().await? {
                return Ok(status);
            }
            self.pulse.set_ready(false);
        }
    }

    /// One connection, from the first attempt to its end. Returns the exit status, unless there is
    /// to be another connection.
    async fn take_part_once(&mut self) -> Result<Option<Status>, LaunchError> {
        let dialer = self.dialer();
        self.say(&step("Joining", &self.introduction(&dialer)));
        let leader_address = dialer.called();
        let joined = {
            let limit = duration(self.member.dial.join_limit);
            let report_wait = |why: &str, since| {
                let since = duration(since);
                let text = format!(
                    "for node 0 ({leader_address}), since {since}, {limit} at most (--join_timeout): {why}"
                );
                say(&step("Waiting", &text), self.member.paint);
            };
            let join = dialer.join(self.member.dial.join_limit, report_wait);
            tokio::select! {
                joined = join => Ok(joined),
                signal = self.signals.stop() => Err(signal),
            }
        };
        let connection = match joined {
            Ok(Ok(connection)) => connection,
            Ok(Err(fault)) => return Ok(Some(self.not_joined(&fault))),
            Err(signal) => return Ok(Some(self.left(signal))),
        };
        let text = format!("node 0 ({leader_address}), which shows the output of the workers");
        self.say(&step("Joined", &text));
        self.pulse.set_ready(true);
        let Link { reader, writer, agent, .. } =
            connect_local(&self.agent_words(), self.member.dial.local_addr)?;
        let mut agent = Some(agent);
        let mut attached = connection.attach((reader, writer), &mut self.tasks);
        let part = self.take_part(&mut attached, &mut agent).await;
        // With the connection the agent's link ends, and with the link the agent.
        drop(attached);
        if let Some(agent) = agent {
            self.see_off(agent, matches!(part, Part::Left)).await;
        }
        if self.may_join_again(&part) {
            let attempt = voice::attempt_explained(self.fresh());
            let text = format!("to node 0 was lost; reconnecting for {attempt}");
            self.say(&step("Lost", &format!("the connection {text}")));
            return Ok(None);
        }
        Ok(Some(self.last_words(part)))
    }

    /// The first epoch in which this node has not taken part.
    fn fresh(&self) -> Epoch {
        self.epoch.map_or(Epoch(0), Epoch::next)
    }

    /// Whether to join again: a lost node 0 may be replaced while restarts are left or nothing was
    /// started.
    fn may_join_again(&self, part: &Part) -> bool {
        match part {
            Part::Over(_) | Part::Left => false,
            Part::Again | Part::Replaced => self.stops.is_empty(),
            Part::Lost => {
                let is_replaced = 0 < self.member.restarts_max && self.has_restarts_left();
                self.stops.is_empty() && (self.epoch.is_none() || is_replaced)
            }
        }
    }

    fn dialer(&self) -> Dialer {
        let dial = &self.member.dial;
        Dialer {
            address: dial.address.clone(),
            port: dial.port,
            from: dial.local_addr,
            node: self.member.node,
            key: dial.key.clone(),
            key_file: dial.key_file.clone(),
            lease: self.member.lease,
            job: dial.job.clone(),
            build: env!("CARGO_PKG_VERSION"),
            digest: plan::digest(self.plan),
            outline: plan::outline(self.plan),
            fresh: self.fresh(),
            uncharged: self.uncharged,
        }
    }

    fn introduction(&self, dialer: &Dialer) -> String {
        let MemberOptions { dial, node, .. } = self.member;
        let host = &self.plan.nodes[node.index()].host;
        let nodes = self.plan.nodes.len();
        let (leader_address, limit) = (dialer.called(), duration(dial.join_limit));
        format!(
            "job {} at {leader_address} as node {node} of {nodes} ({host}), within {limit}",
            dial.job
        )
    }

    fn agent_words(&self) -> [OsString; 3] {
        let MemberOptions { dial, node, .. } = self.member;
        ["agent".to_owned(), format!("job={}", dial.job), format!("node={node}")].map(Into::into)
    }

    fn say(&self, text: &str) {
        if self.member.talks {
            say(text, self.member.paint);
        }
    }

    fn not_joined(&self, fault: &JoinFault) -> Status {
        let text = fault.to_string();
        let mut lines = text.lines();
        let title = lines.next().unwrap_or_default();
        let (consequence, status) = match (self.epoch, fault) {
            // This node took part in the job until node 0 was lost.
            (Some(_), JoinFault::NoAnswer(..)) => ("there was no restart", Status::LeaseLost),
            (Some(_), JoinFault::OtherKey { .. } | JoinFault::Refused(_)) => {
                ("there was no restart", fault.status())
            }
            (None, _) => ("nothing was started", fault.status()),
        };
        let mut screen =
            format!("error[{}]: {}; {consequence}\n", codes::NOT_JOINED, neutral(title));
        screen += &neutral_lines(lines);
        let help = match (self.epoch, fault) {
            (Some(_), JoinFault::NoAnswer(..)) => {
                "the screen of node 0 shows why it exited".to_owned()
            }
            (_, fault) => fault.help(),
        };
        let screen = format!("{screen}help: {help}\n");
        say(&screen, self.member.paint);
        self.member.leave_message(status, &screen, None);
        status
    }

    /// Takes part until the job is over or node 0 is lost.
    async fn take_part(
        &mut self,
        attached: &mut Attached,
        agent: &mut Option<AgentProcess>,
    ) -> Part {
        let mut deadline: Option<Instant> = None;
        let mut reap_at = grave::is_everybodys_parent().then(|| clock::now() + BURIAL);
        loop {
            let event = tokio::select! {
                biased;
                request = self.signals.next() => Happening::Wish(request),
                news = attached.next() => Happening::News(news),
                () = sleep_until(deadline) => Happening::Late,
                () = sleep_until(reap_at) => Happening::Burial,
                never = self.tasks.watch() => match never {},
            };
            match event {
                Happening::News(Some(News::Over(over))) => return Part::Over(over),
                Happening::News(Some(News::Again)) => return Part::Again,
                Happening::News(Some(News::Leaving)) => {
                    self.uncharged += u32::from(self.epoch.is_some());
                    return Part::Replaced;
                }
                Happening::News(Some(News::Begun(epoch, uncharged))) => {
                    (self.epoch, self.uncharged) = (Some(epoch), uncharged);
                    self.pulse.set_epoch(epoch.0);
                }
                Happening::News(None) | Happening::Late => return Part::Lost,
                Happening::News(Some(News::AgentEnded)) => {
                    // Other nodes may still be stopping; then node 0 reports the result or needs
                    // this node again.
                    deadline = Some(clock::now() + self.member.lease + self.member.grace + ENDING);
                    if let Some(agent) = agent.take() {
                        attached.agent_ended(self.bury(agent).await);
                    }
                }
                Happening::Wish(request) => {
                    if !self.pass_on(request, attached) {
                        return Part::Left;
                    }
                }
                Happening::Burial => {
                    reap_at = Some(clock::now() + BURIAL);
                    let agent_pid = agent.as_ref().and_then(AgentProcess::pid);
                    let known = |pid| agent_pid == Some(pid) || self.inherited.contains(&pid);
                    family::bury(known, |_, _| {});
                }
            }
        }
    }

    /// Whether the job goes on with another node in the place of this one, as far as this node
    /// knows.
    fn may_leave(&self) -> bool {
        self.member.keeper.on_term == OnTerm::EndsNode && self.has_restarts_left()
    }

    fn has_restarts_left(&self) -> bool {
        self.fresh().0 - self.uncharged <= self.member.restarts_max
    }

    /// Forwards a request of the user to the job. Returns false if this process is to stop waiting.
    fn pass_on(&mut self, request: UserRequest, attached: &Attached) -> bool {
        match request {
            UserRequest::Stop(signal) => {
                if self.requests.note(clock::now()).is_none() {
                    return true;
                }
                self.stops.push(signal);
                let name = signal_name(signal);
                match self.stops.len() {
                    1 if signal == libc::SIGTERM && self.may_leave() => {
                        let text =
                            format!("the job, which continues without this node: {name} received");
                        self.say(&step("Leaving", &format!("{text}; again to kill now")));
                    }
                    1 => {
                        let text = format!("the job: {name} received; again to kill now");
                        self.say(&step("Stopping", &text));
                    }
                    2 => self.say(&step("Killing", "the remaining processes")),
                    _ => return false,
                }
                attached.signal(signal);
            }
            UserRequest::Forward(signal) => attached.signal(signal),
            UserRequest::Tell => {
                let workers = self.plan.nodes[self.member.node.index()].workers.len();
                let text = format!("{} of node {}", count(workers, "worker"), self.member.node);
                self.say(&step(
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

    async fn bury(&mut self, agent: AgentProcess) -> Option<WorkerExit> {
        let end = agent.bury(AGENT_END_LIMIT).await;
        // The shim of a killed agent becomes a child of this process: the shim is ended with its
        // workers, and so is everything else that is left.
        if end.exit != Some(WorkerExit::Code(0)) {
            self.bury_leftovers(None).await;
        }
        end.exit
    }

    async fn bury_leftovers(&mut self, agent_pid: Option<Pid>) {
        let mut reaper = OrphanReaper::default();
        reaper.open(self.spared(agent_pid));
        while let Some(at) = reaper.look_at() {
            sleep_until(Some(at)).await;
            reaper.look();
        }
    }

    /// Waits for the agent, which stops its workers by itself once its link has ended; a third
    /// signal ends the wait.
    async fn see_off(&mut self, agent: AgentProcess, has_left: bool) {
        if has_left {
            return;
        }
        let limit = self.member.grace + ENDING;
        let third_signal = async {
            loop {
                if let UserRequest::Stop(signal) = self.signals.next().await
                    && self.requests.note(clock::now()).is_some()
                {
                    self.stops.push(signal);
                    if 2 < self.stops.len() {
                        return;
                    }
                }
            }
        };
        let exit = tokio::select! {
            end = agent.bury(limit) => end.exit,
            () = third_signal => return,
        };
        if exit != Some(WorkerExit::Code(0)) {
            self.bury_leftovers(None).await;
        }
    }

    /// Returns a test for children that must not be ended as leftovers of the job.
    fn spared(&self, agent_pid: Option<Pid>) -> impl Fn(Pid) -> bool + Send + 'static {
        let (inherited, job) = (self.inherited.clone(), self.member.dial.job.to_string());
        let agents: Vec<Pid> = agent_pid.into_iter().collect();
        move |pid| {
            agents.contains(&pid)
                || inherited.contains(&pid)
                || grave::is_everybodys_parent() && !grave::is_of_job(pid, &job, &agents)
        }
    }

    fn last_words(&self, part: Part) -> Status {
        match part {
            Part::Over(JobOver { status, text, cause }) => {
                let text = neutral_lines(text.lines());
                if text.is_empty() {
                    self.say(&step("Ended", "the job, with status 0"));
                } else {
                    say(&text, self.member.paint);
                }
                let own = self.member.node;
                let own_status = self.member.dial.status_of(own, Status::Worker(status), cause);
                self.member.leave_message(own_status, &text, cause);
                own_status
            }
            Part::Lost | Part::Again | Part::Replaced => {
                if let Some(signal) = self.stops.last() {
                    return self.left(*signal);
                }
                let text = show_failure(&self.leader_lost());
                say(&text, self.member.paint);
                self.member.leave_message(Status::LeaseLost, &text, Some(NodeRank(0)));
                Status::LeaseLost
            }
            Part::Left => Status::Interrupted(self.stops.last().copied().unwrap_or(libc::SIGTERM)),
        }
    }

    /// The status after the user stopped this node: no failure, so only the signal is reported.
    fn left(&self, signal: i32) -> Status {
        let status = Status::Interrupted(signal);
        let text = format!("left the job: {} received\n", signal_name(signal));
        self.member.leave_message(status, &text, Some(self.member.node));
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
                "its connection closed without a final status   {}:{}   pid {pid} here",
                dial.address, dial.port
            )],
            help: vec!["the screen of node 0 shows the cause".to_owned()],
            ..Failure::default()
        }
    }
}

/// Lines of another program, with control characters escaped for the terminal.
fn neutral_lines<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.fold(String::new(), |text, line| text + &neutral(line) + "\n")
}
