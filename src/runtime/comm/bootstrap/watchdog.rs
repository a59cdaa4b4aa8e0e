//! Watchdog thread for failures: a worker that has exited, a lost agent, or a failed rank on
//! another node. It aborts the group on this node, which every wait checks.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::base::{Rank, clock};
use crate::os::files::io_errors::is_temporary;
use crate::runtime::comm::core::abort::AbortRecord;
use crate::runtime::comm::core::error::Departure;
use crate::runtime::comm::core::roster::RankRoster;
use crate::runtime::comm::shm::segment::Segment;
use crate::runtime::comm::store::shared::ABORT_KEY;
use crate::runtime::comm::store::{Client, ClientError, Reply, StoreRequest};
use crate::runtime::contract::{FrameReader, ToWorker};

/// Time limit for receiving the rest of a message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Sources of failure notifications.
#[derive(Default)]
pub(crate) struct Sources {
    /// Connection to the agent, with the bytes that were received after its welcome.
    pub(crate) agent: Option<(UnixStream, FrameReader)>,
    /// A connection to the store for this purpose.
    pub(crate) store: Option<Client>,
    /// Connections to ranks of this node, if no agent reports their end.
    pub(crate) neighbours: Vec<Neighbour>,
}

/// Connection to a rank of this node, on which no data follows: its end is that of the process.
pub(crate) struct Neighbour {
    pub(crate) rank: Rank,
    pub(crate) socket: OwnedFd,
}

/// What the thread has been woken for.
struct Wakeup {
    stop: bool,
    agent: bool,
    store: bool,
    /// Indexes of the neighbours that have ended, ascending.
    neighbours: Vec<usize>,
}

/// Handle of the watchdog thread; its drop stops the thread.
pub(crate) struct Watchdog {
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    pub(crate) fn start(
        mut sources: Sources,
        roster: Arc<RankRoster>,
        segment: Arc<Segment>,
    ) -> io::Result<Self> {
        if let Some(store) = &mut sources.store {
            store.send(&StoreRequest::Wait { keys: vec![ABORT_KEY.to_owned()] }).map_err(to_io)?;
        }
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let watcher = WatchdogThread { sources, roster, segment, stop: stop.try_clone()? };
        let thread = std::thread::Builder::new().name("remuda-watch".to_owned());
        let thread = thread.spawn(move || watcher.run())?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

fn to_io(error: ClientError) -> io::Error {
    match error {
        ClientError::Io(error) => error,
        other => io::Error::other(other),
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Writing to an eventfd fails only when its counter is full, and then the thread wakes
        // anyway.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// State of the watchdog thread.
struct WatchdogThread {
    sources: Sources,
    roster: Arc<RankRoster>,
    segment: Arc<Segment>,
    stop: OwnedFd,
}

impl WatchdogThread {
    /// Handles messages until the handle is dropped or no source is left.
    ///
    /// The store comes before the agent: a rank that fails because of another one writes the first
    /// cause to the store and then exits, and the agent reports that exit. If this thread finds both, the
    /// record of the store is the earlier one.
    fn run(mut self) {
        self.on_agent_messages();
        while self.has_sources() {
            let Ok(woken) = self.poll() else { return };
            if woken.stop {
                return;
            }
            if woken.store || (woken.agent && self.is_store_readable()) {
                self.read_store();
            }
            if woken.agent {
                self.read_agent();
            }
            for index in woken.neighbours.into_iter().rev() {
                self.on_neighbour_ended(index);
            }
        }
    }

    fn has_sources(&self) -> bool {
        let Sources { agent, store, neighbours } = &self.sources;
        agent.is_some() || store.is_some() || !neighbours.is_empty()
    }

    /// Waits for events.
    fn poll(&self) -> io::Result<Wakeup> {
        let agent = self.sources.agent.as_ref().map(|(stream, _)| stream.as_fd());
        let store = self.sources.store.as_ref().map(|client| client.stream().as_fd());
        let neighbours = self.sources.neighbours.iter().map(|neighbour| neighbour.socket.as_fd());
        let first = [Some(self.stop.as_fd()), agent, store];
        let present = first.iter().flatten().copied().chain(neighbours);
        let mut fds: Vec<_> =
            present.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut found = fds.iter().map(|fd| !fd.revents().is_empty());
        let [stop, agent, store] = first.map(|fd| fd.is_some() && found.next() == Some(true));
        let ended = found.enumerate().filter(|(_, has_ended)| *has_ended);
        Ok(Wakeup { stop, agent, store, neighbours: ended.map(|(index, _)| index).collect() })
    }

    /// The process of a rank has ended. If it has left its group before, that was its last action.
    fn on_neighbour_ended(&mut self, index: usize) {
        let Neighbour { rank, .. } = self.sources.neighbours.remove(index);
        let local = self.roster.local_index(rank.index());
        if local.is_some_and(|local| self.segment.departure(local).is_none()) {
            self.abort_without(rank);
        }
    }

    fn read_agent(&mut self) {
        let Some((stream, reader)) = &mut self.sources.agent else { return };
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => self.on_agent_lost("the connection to the agent of this node was lost"),
            Ok(count) => {
                reader.push(&bytes[..count]);
                self.on_agent_messages();
            }
            Err(error) if is_temporary(&error) => {}
            Err(_) => self.on_agent_lost("the connection to the agent of this node was lost"),
        }
    }

    /// Handles the messages of the agent that are complete.
    fn on_agent_messages(&mut self) {
        while let Some((_, reader)) = &mut self.sources.agent {
            match reader.next() {
                Ok(None) => return,
                Ok(Some(ToWorker::PeerGone { rank })) => {
                    self.abort_without(rank);
                }
                Ok(Some(ToWorker::PeerEnded { rank })) => {
                    if let Some(local) = self.roster.local_index(rank.index()) {
                        self.segment.set_departure(local, Departure::Exited);
                    }
                }
                Ok(Some(ToWorker::Welcome(_))) | Err(_) => {
                    self.on_agent_lost("the agent of this node sent an invalid message");
                }
            }
        }
    }

    fn on_agent_lost(&mut self, reason: &str) {
        self.sources.agent = None;
        self.segment.set_abort(&AbortRecord::said(self.roster.own_job_rank(), reason));
    }

    /// Whether the reply of the store has come since the thread was woken.
    fn is_store_readable(&self) -> bool {
        let Some(store) = &self.sources.store else { return false };
        let mut fds = [PollFd::new(store.stream(), PollFlags::IN)];
        matches!(rustix::event::poll(&mut fds, Some(&Timespec::default())), Ok(1))
    }

    /// Reads the reply of the store: the abort record of a failed rank. The end of the store alone is
    /// not a failure.
    fn read_store(&mut self) {
        let Some(mut store) = self.sources.store.take() else { return };
        let Ok(Reply::Values(values)) = store.receive(clock::now() + MESSAGE_TIMEOUT) else {
            return;
        };
        if let Some(record) = values.first().and_then(|value| AbortRecord::decode(value)) {
            self.segment.set_abort(&record);
        }
    }

    /// Aborts the group on this node, because the worker of a rank has ended.
    fn abort_without(&self, lost: Rank) {
        let by = self.roster.own_job_rank();
        self.segment.set_abort(&AbortRecord::lost(by, lost, Departure::Gone));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::base::{Epoch, JobId};
    use crate::runtime::comm::store::{Server, ServerOptions, StoreIdentity};
    use crate::runtime::contract::encode_frame;
    use crate::runtime::schedule::Placement;
    use crate::secure::{JobKey, Purpose, RankKey, derive_rank_key};

    fn key_of(rank: Rank) -> RankKey {
        derive_rank_key(&JobKey::from_random([3; 32]), Epoch(0), rank)
    }

    fn serve() -> Server {
        let options = ServerOptions {
            job: JobId("j".into()),
            epoch: Epoch(0),
            key_of: Box::new(|rank| Some(key_of(rank))),
            on_refused: Box::new(|_, _| {}),
        };
        Server::bind("127.0.0.1:0".parse().unwrap(), options).unwrap()
    }

    fn connect(server: &Server, rank: Rank, purpose: Purpose) -> Client {
        let (job, epoch, key) = (JobId("j".into()), Epoch(0), key_of(rank));
        let identity = StoreIdentity { job, epoch, rank, key, advertised_ip: None };
        Client::connect(server.address(), &identity, purpose, clock::now() + MESSAGE_TIMEOUT)
            .unwrap()
    }

    /// Rank 2 fails because rank 1 is lost, tells the store, and exits; rank 0 finds both messages.
    #[test]
    fn first_cause_is_that_of_the_store() {
        let server = serve();
        let record = AbortRecord::lost(Rank(2), Rank(1), Departure::Gone);
        let bytes = record.encode();
        let mut rank_2 = connect(&server, Rank(2), Purpose::Ask);
        rank_2.set_once(ABORT_KEY, &bytes, clock::now() + MESSAGE_TIMEOUT).unwrap();
        let mut store = connect(&server, Rank(0), Purpose::Watch);
        store.send(&StoreRequest::Wait { keys: vec![ABORT_KEY.to_owned()] }).unwrap();
        rustix::event::poll(&mut [PollFd::new(store.stream(), PollFlags::IN)], None).unwrap();

        let (mut agent, of_rank_0) = UnixStream::pair().unwrap();
        let exit = ToWorker::PeerGone { rank: Rank(2) };
        agent.write_all(&encode_frame(&exit)).unwrap();
        drop(agent);

        let sources = Sources {
            agent: Some((of_rank_0, FrameReader::from_agent())),
            store: Some(store),
            neighbours: Vec::new(),
        };
        let hosts = ["n1", "n2", "n3"].map(str::to_owned).to_vec();
        let placement = Placement::new(hosts, vec![0, 1, 2]).unwrap();
        let segment = Segment::attach(Segment::create(1).unwrap()).unwrap();
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let roster = Arc::new(RankRoster::of_job(0, placement));
        WatchdogThread { sources, roster, segment: segment.clone(), stop }.run();
        assert_eq!(segment.abort_record(), Some(record));
    }
}
