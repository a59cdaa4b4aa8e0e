//! Goes to every node at the same time and comes back with facts: an agent is started as for a job,
//! examines, knocks at the doors of others, and ends. Thin: what to think of it is `judge`'s.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::case::{Clock, NodeFacts, Patient, Seen};
use super::rounds::partners;
use crate::base::{Epoch, HostName, JobId, NodeRank, clock};
use crate::os::heard::Heard;
use crate::os::tasks::Tasks;
use crate::os::{family, fds, heap, signals};
use crate::pool::nodeset::fold_set;
use crate::report::neutral;
use crate::report::summary::{count, duration, step};
use crate::transport::ssh::{self, Ssh, SshOptions};
use crate::transport::{AgentProcess, Arrival, Link, LinkReader, LinkWriter, connect_local};
use crate::wire::{
    self, ClockOffset, Decoder, Depth, Dialed, Door, Examination, Examine, FromAgent,
    LauncherHello, PortWish, ToAgent, Token, Whose,
};

/// Round trips by which a clock is compared.
const CLOCK_QUESTIONS: u32 = 5;
/// An agent that does not greet within this time is lost.
const HELLO_LIMIT: Duration = Duration::from_secs(30);
/// One whose report takes longer hangs.
const EXAM_LIMIT: Duration = Duration::from_secs(60);
/// All knocks of a node are over before.
const DIAL_LIMIT: Duration = Duration::from_secs(30);
/// An agent that was told to end is waited for so long.
const BYE_LIMIT: Duration = Duration::from_secs(1);
/// How often it is said for whom we wait.
const WAITING: Duration = Duration::from_secs(10);
/// Of the names of those, so much is shown.
const NAMES_CHARS_MAX: usize = 60;
const LINK_READ_BYTES: usize = 64 * 1024;

/// How nodes are reached.
#[derive(Clone, Debug)]
pub enum Reach {
    /// Every node is this machine.
    Local,
    /// Over ssh.
    Ssh(SshOptions),
}

/// Everything about a visit that is the same for all nodes.
#[derive(Clone, Debug)]
pub struct Visit {
    /// How nodes are reached.
    pub reach: Reach,
    /// The hosts in the order of ranks, and how many workers each would have.
    pub nodes: Vec<(HostName, u32)>,
    /// What is asked of every node. Which address and which port are those of the first alone.
    pub wish: Examine,
    /// The port of the first node.
    pub port: PortWish,
    /// Whether everybody knocks at everybody, however many they are.
    pub all_ways: bool,
}

/// Why nobody was visited.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// Threads, pipes or memory.
    #[error("nodes cannot be visited: {0}")]
    Os(#[from] io::Error),
    /// Links.
    #[error("{needed} open files are needed here, the limit is {limit}; raise it with `ulimit -n`")]
    OpenFiles {
        /// So many.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
}

/// What came of a visit.
#[derive(Debug)]
pub struct Visited {
    /// One fact for each node, in order.
    pub nodes: Vec<NodeFacts>,
    /// The signal of a user who did not wait for all of them.
    pub interrupted: Option<i32>,
}

/// Visits all nodes; `say` hears lines about what takes long. SIGINT and SIGTERM end the waiting: of
/// nodes that have not answered that is told.
pub fn visit(visit: &Visit, say: &dyn Fn(&str)) -> Result<Visited, VisitError> {
    heap::share();
    signals::hear_of_children();
    family::become_subreaper();
    check_open_files(visit)?;
    // Before anything that starts a thread: it forks.
    let way = match &visit.reach {
        Reach::Local => Way::Local,
        Reach::Ssh(options) => {
            let options = SshOptions { verbose: true, ..options.clone() };
            Way::Ssh(Arc::new(Ssh::prepare(&options, visit.nodes.iter().map(|(host, _)| host))?))
        }
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let visited = runtime.block_on(async {
        let mut round = Round::new(visit, way, say)?;
        round.examine_all().await;
        if round.interrupted.is_none() {
            round.knock_all().await;
        }
        let interrupted = round.interrupted;
        Ok(Visited { nodes: round.go_home().await, interrupted })
    });
    drop(runtime);
    ssh::end_processes();
    visited
}

fn check_open_files(visit: &Visit) -> Result<(), VisitError> {
    const OWN_FDS: u64 = 24;
    let of_link = match visit.reach {
        Reach::Local => 2,
        Reach::Ssh(_) => 6,
    };
    let (needed, limit) = (of_link * visit.nodes.len() as u64 + OWN_FDS, fds::raise_limit());
    if needed <= limit { Ok(()) } else { Err(VisitError::OpenFiles { needed, limit }) }
}

#[derive(Clone)]
enum Way {
    Local,
    Ssh(Arc<Ssh>),
}

/// A visit while it lasts.
struct Round<'a> {
    visit: &'a Visit,
    say: &'a dyn Fn(&str),
    way: Way,
    token: Token,
    tasks: Tasks,
    interrupt: Heard,
    terminate: Heard,
    interrupted: Option<i32>,
    /// In the order of ranks; `None` until somebody has come back.
    found: Vec<Option<(Seen, Option<Bedside>)>>,
}

/// What a task brings from a node.
type Brought = (usize, Seen, Option<Bedside>);

impl<'a> Round<'a> {
    fn new(visit: &'a Visit, way: Way, say: &'a dyn Fn(&str)) -> io::Result<Self> {
        Ok(Self {
            visit,
            say,
            way,
            token: visit.wish.token,
            tasks: Tasks::default(),
            interrupt: Heard::listen(libc::SIGINT)?,
            terminate: Heard::listen(libc::SIGTERM)?,
            interrupted: None,
            found: visit.nodes.iter().map(|_| None).collect(),
        })
    }

    async fn examine_all(&mut self) {
        let (tell, told) = mpsc::unbounded_channel();
        for place in 0..self.visit.nodes.len() {
            let (tell, way) = (tell.clone(), self.way.clone());
            let (host, wish) = (self.visit.nodes[place].0.clone(), self.wish(place));
            self.tasks.spawn(async move {
                let (seen, bedside) = examine(&way, &host, NodeRank(place as u32), wish).await;
                let _ = tell.send((place, seen, bedside));
            });
        }
        drop(tell);
        self.gather(told, "reports of").await;
    }

    /// What is asked of one node.
    fn wish(&self, place: usize) -> Examine {
        const OTHERS_MAX: usize = 3;
        let others = self.visit.nodes.iter().enumerate().filter(|(other, _)| *other != place);
        let others = others.map(|(_, (host, _))| host.to_string()).take(OTHERS_MAX).collect();
        let is_first = place == 0;
        let wish = self.visit.wish.clone();
        let addr = match self.visit.reach {
            Reach::Local => wish.addr,
            Reach::Ssh(_) => wish.addr.filter(|_| is_first),
        };
        let by_ssh = matches!(self.visit.reach, Reach::Ssh(_));
        let elsewhere = by_ssh || 1 < self.visit.nodes.len();
        Examine { addr, others, port: is_first.then_some(self.visit.port), elsewhere, ..wish }
    }

    /// Every node knocks at the doors of its partners, and at that of rank 0.
    async fn knock_all(&mut self) {
        let reports: Vec<Option<&Examination>> =
            self.found.iter().map(|found| report_of(found.as_ref()?)).collect();
        let address = |node: usize| reports[node]?.network.door.as_ref().ok().copied();
        let master = reports.first().copied().flatten();
        let master = master.and_then(|report| report.network.master.clone()?.ok());
        let token = self.token;
        let doors_of = |partners: &Vec<usize>| -> Vec<Door> {
            let door = |other: &usize| {
                let whose = Whose::Node(NodeRank(*other as u32));
                let name = self.name_to_resolve(*other);
                Some(Door { whose, name, addr: address(*other)?, token })
            };
            let of_master =
                master.map(|addr| Door { whose: Whose::Master, name: None, addr, token });
            partners.iter().filter_map(door).chain(of_master).collect()
        };
        let rounds = partners(reports.len(), self.visit.all_ways);
        let doors: Vec<Vec<Door>> = rounds.iter().map(doors_of).collect();
        let (tell, told) = mpsc::unbounded_channel();
        for (place, doors) in doors.into_iter().enumerate() {
            let Some((seen, Some(bedside))) = self.found[place].take_if(has_bedside) else {
                continue;
            };
            let tell = tell.clone();
            self.tasks.spawn(async move {
                let (seen, bedside) = knock(seen, bedside, doors).await;
                let _ = tell.send((place, seen, Some(bedside)));
            });
        }
        drop(tell);
        self.gather(told, "connections between").await;
    }

    /// The name of a host as the others are to look it up; an address needs nobody.
    fn name_to_resolve(&self, place: usize) -> Option<String> {
        let name = self.visit.nodes[place].0.as_str();
        let is_address = name.starts_with('[') || name.parse::<IpAddr>().is_ok();
        (self.visit.wish.depth == Depth::Full && !is_address).then(|| name.to_owned())
    }

    /// Waits for everybody, and says now and then for whom; or until somebody has waited enough.
    async fn gather(&mut self, mut told: mpsc::UnboundedReceiver<Brought>, what: &str) {
        let (mut waited, mut wake) = (Duration::ZERO, clock::now() + WAITING);
        loop {
            tokio::select! {
                never = self.tasks.watch() => match never {},
                brought = told.recv() => match brought {
                    Some((place, seen, bedside)) => self.found[place] = Some((seen, bedside)),
                    None => return,
                },
                () = self.interrupt.recv() => return self.stop(libc::SIGINT),
                () = self.terminate.recv() => return self.stop(libc::SIGTERM),
                () = sleep_until(wake) => {
                    waited += WAITING;
                    wake += WAITING;
                    self.say_waiting(what, waited);
                }
            }
        }
    }

    /// Somebody has waited enough.
    fn stop(&mut self, signal: i32) {
        self.interrupted = Some(signal);
        self.tasks = Tasks::default();
    }

    fn say_waiting(&self, what: &str, waited: Duration) {
        let nodes = self.visit.nodes.iter().zip(&self.found);
        let missing: Vec<&str> = nodes
            .filter(|(_, found)| found.is_none())
            .map(|((host, _), _)| host.as_str())
            .collect();
        let (absent, mut names) = (missing.len(), fold_set(missing));
        if let Some((end, _)) = names.char_indices().nth(NAMES_CHARS_MAX) {
            names.truncate(end);
            names.push('…');
        }
        let all = count(self.found.len(), "host");
        let text = format!("{} for {what} {absent} of {all}: {names}", duration(waited));
        (self.say)(&step("Waiting", &text));
    }

    /// Ends all agents, and gives what was found.
    async fn go_home(mut self) -> Vec<NodeFacts> {
        let mut facts = Vec::new();
        let silent = match self.interrupted {
            Some(_) => "it had not answered when nobody waited any more",
            None => "its task ended without a word",
        };
        for ((host, slots), found) in self.visit.nodes.iter().zip(self.found) {
            let (seen, bedside) = found.unwrap_or_else(|| (Seen::Lost(silent.to_owned()), None));
            if let Some(bedside) = bedside {
                self.tasks.spawn(bedside.leave());
            }
            facts.push(NodeFacts { host: host.clone(), slots: *slots, seen });
        }
        self.tasks.finish().await;
        facts
    }
}

fn has_bedside(found: &mut (Seen, Option<Bedside>)) -> bool {
    found.1.is_some()
}

fn report_of((seen, _): &(Seen, Option<Bedside>)) -> Option<&Examination> {
    match seen {
        Seen::Examined(patient) => Some(&patient.report),
        Seen::Unreachable(_) | Seen::Lost(_) | Seen::OtherVersion { .. } => None,
    }
}

async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(at.into()).await;
}

/// One node: from nothing to its report.
async fn examine(
    way: &Way,
    host: &HostName,
    node: NodeRank,
    wish: Examine,
) -> (Seen, Option<Bedside>) {
    let asked = clock::now();
    let job = JobId(format!("doctor-{}", std::process::id()));
    let link = match way {
        Way::Local => {
            let words = ["agent".into(), format!("job={job}"), format!("node={node}")];
            match connect_local(&words.map(Into::into), None) {
                Ok(link) => link,
                Err(error) => return (Seen::Lost(format!("it cannot be started: {error}")), None),
            }
        }
        Way::Ssh(ssh) => {
            // What a node prints beside the link is no part of the report.
            let hear = |line: &str| tracing::debug!(line = %neutral(line));
            match ssh.connect(host, (&job, node), Box::new(hear), std::future::ready(())).await {
                Ok(link) => link,
                Err(fault) => return (Seen::Unreachable(fault), None),
            }
        }
    };
    let (mut bedside, arrival) = Bedside::at(link);
    match bedside.ask(&job, node, arrival, wish, asked).await {
        Ok(patient) => (Seen::Examined(Box::new(patient)), Some(bedside)),
        Err(NoReport::Version(build)) => (Seen::OtherVersion { build }, Some(bedside)),
        Err(NoReport::Lost(why)) => (Seen::Lost(why), Some(bedside)),
    }
}

async fn knock(seen: Seen, mut bedside: Bedside, doors: Vec<Door>) -> (Seen, Bedside) {
    let Seen::Examined(mut patient) = seen else { return (seen, bedside) };
    patient.dialed = match bedside.knock(doors).await {
        Ok(dialed) => Some(dialed),
        Err(NoReport::Lost(why) | NoReport::Version(why)) => return (Seen::Lost(why), bedside),
    };
    (Seen::Examined(patient), bedside)
}

/// Why there is no report.
enum NoReport {
    Lost(String),
    /// Its build.
    Version(String),
}

/// A link to an agent that is asked and answers.
struct Bedside {
    reader: LinkReader,
    writer: LinkWriter,
    agent: AgentProcess,
    decoder: Decoder,
}

impl Bedside {
    fn at(link: Link) -> (Self, Arrival) {
        let Link { reader, writer, agent, early, arrival } = link;
        let mut decoder = Decoder::of(Epoch(0));
        decoder.push(&early);
        (Self { reader, writer, agent, decoder }, arrival)
    }

    async fn say(&self, message: &ToAgent) -> Result<(), NoReport> {
        let written = self.writer.write_all(&wire::encode(Epoch(0), message), &[]).await;
        written.map_err(|error| NoReport::Lost(format!("its link does not take words: {error}")))
    }

    async fn hear(&mut self) -> Result<FromAgent, NoReport> {
        let lost = |why: &str| NoReport::Lost(why.to_owned());
        loop {
            match self.decoder.message() {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(error) => return Err(lost(&error.to_string())),
            }
            match self.reader.read(self.decoder.room(LINK_READ_BYTES)).await {
                Ok(0) | Err(_) => return Err(lost("its link ended")),
                Ok(_) => {}
            }
        }
    }

    /// The first message that is an answer; beats are none.
    async fn answer<T>(
        &mut self,
        limit: Duration,
        pick: impl Fn(FromAgent) -> Option<T>,
    ) -> Result<T, NoReport> {
        let answer = async {
            loop {
                if let Some(answer) = pick(self.hear().await?) {
                    return Ok(answer);
                }
            }
        };
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(NoReport::Lost(format!("nothing came within {}", duration(limit)))),
        }
    }

    async fn ask(
        &mut self,
        job: &JobId,
        node: NodeRank,
        arrival: Arrival,
        wish: Examine,
        asked: Instant,
    ) -> Result<Patient, NoReport> {
        let hello = LauncherHello {
            version: wire::VERSION,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            job: job.to_string(),
            node,
        };
        self.say(&ToAgent::Hello(hello)).await?;
        let theirs = self.answer(HELLO_LIMIT, |message| match message {
            FromAgent::Hello(hello) => Some(hello),
            _ => None,
        });
        let theirs = theirs.await?;
        if theirs.version != wire::VERSION {
            return Err(NoReport::Version(theirs.build));
        }
        // The way may have begun later than we: only so many are made at a time.
        let way = arrival.login.zip(arrival.shell).map(|(login, shell)| login + shell);
        let reached = way.unwrap_or_else(|| clock::now() - asked);
        let offset = self.compare_clocks().await?;
        self.say(&ToAgent::Examine(Box::new(wish))).await?;
        let report = self.answer(EXAM_LIMIT, |message| match message {
            FromAgent::Examined(report) => Some(*report),
            _ => None,
        });
        let report = report.await?;
        let clock = day_of(&offset, &report);
        Ok(Patient { arrival, reached, build: theirs.build, clock, report, dialed: None })
    }

    async fn compare_clocks(&mut self) -> Result<ClockOffset, NoReport> {
        let mut offset = ClockOffset::default();
        for _ in 0..CLOCK_QUESTIONS {
            self.say(&ToAgent::Beat { at_us: clock::machine_us() }).await?;
            let answer = self.answer(HELLO_LIMIT, |message| match message {
                FromAgent::Clock { asked_us, clock_us } => Some((asked_us, clock_us)),
                _ => None,
            });
            let (asked_us, clock_us) = answer.await?;
            offset.add(asked_us, clock_us, clock::machine_us());
        }
        Ok(offset)
    }

    async fn knock(&mut self, doors: Vec<Door>) -> Result<Vec<Dialed>, NoReport> {
        self.say(&ToAgent::Dial(doors)).await?;
        let dialed = self.answer(DIAL_LIMIT, |message| match message {
            FromAgent::Dialed(dialed) => Some(dialed),
            _ => None,
        });
        dialed.await
    }

    async fn leave(self) {
        let _ = self.say(&ToAgent::Bye).await;
        let Self { reader, writer, agent, .. } = self;
        drop((reader, writer));
        agent.bury(BYE_LIMIT).await;
    }
}

/// Their clock of the day beside ours, at the moment of the report.
fn day_of(offset: &ClockOffset, report: &Examination) -> Clock {
    let (now_us, wall_us) = (clock::machine_us(), clock::wall().as_micros() as i64);
    let age_us = now_us.wrapping_sub(offset.to_ours(report.machine.clock_us)) as i64;
    Clock {
        ahead_us: report.machine.wall_us as i64 - (wall_us - age_us),
        error_us: offset.error_us().unwrap_or(u64::MAX),
    }
}
