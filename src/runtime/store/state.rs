//! State machine of the store: takes requests and returns replies, in the order in which waits end.
//! No I/O, no clock; clients have the deadlines.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::base::Rank;

/// Longest key.
pub const KEY_BYTES_MAX: usize = 256;
/// Longest value.
pub const VALUE_BYTES_MAX: usize = 32 << 10;
/// Most keys.
pub const KEYS_MAX: usize = 1 << 20;
/// Most bytes of all keys and values.
pub const BYTES_MAX: usize = 64 << 20;
/// Most keys that one request can wait for.
pub const WAITED_KEYS_MAX: usize = 256;

/// The key that the server sets when a rank has left.
pub fn gone_key(rank: Rank) -> String {
    format!("gone/{rank}")
}

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// What a client asks. One at a time: the next one follows the reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Sets a value, replacing what was there. Answered by `Done`.
    Set {
        /// Which.
        key: String,
        /// To what.
        value: Vec<u8>,
    },
    /// Sets a value unless there is one. Answered by `Values` with the one that is there then.
    SetOnce {
        /// Which.
        key: String,
        /// To what.
        value: Vec<u8>,
    },
    /// Answered by `Values` once all keys are set.
    Wait {
        /// Which.
        keys: Vec<String>,
    },
    /// Answered by `Values` at once; of none or one value.
    Peek {
        /// Which.
        key: String,
    },
    /// Adds to a counter, which begins at 0. Answered by `Sum`.
    Add {
        /// Which.
        key: String,
        /// How much; may be negative.
        delta: i64,
    },
    /// Answered by `Done` once `count` clients have asked for the barrier of this name; it can be
    /// used again then.
    Barrier {
        /// Which.
        key: String,
        /// How many.
        count: u32,
    },
}

impl Request {
    /// Whether the answer does not depend on requests of other clients.
    pub(super) fn is_answered_at_once(&self) -> bool {
        match self {
            Self::Set { .. } | Self::SetOnce { .. } | Self::Peek { .. } | Self::Add { .. } => true,
            Self::Wait { .. } | Self::Barrier { .. } => false,
        }
    }
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// In the order of the keys.
    Values(Vec<Vec<u8>>),
    /// The counter after the addition.
    Sum(i64),
    /// It was not done.
    Refused(Refusal),
}

/// Why a request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Key or value too long, too many keys in a request, a barrier for nobody.
    #[error("the request is out of bounds")]
    Bounds,
    /// The store has as much as it may hold.
    #[error("the store is full")]
    Full,
    /// A second request before the reply to the first.
    #[error("the reply to an earlier request is still due")]
    Busy,
    /// An addition to something that is no counter.
    #[error("the value is not a counter")]
    NotACounter,
    /// Ranks named different counts for one barrier.
    #[error("others wait at this barrier for another count")]
    OtherCount,
}

/// Everything that the store knows.
#[derive(Debug, Default)]
pub struct State {
    values: BTreeMap<String, Vec<u8>>,
    bytes: usize,
    waiting: HashMap<ClientId, Waiting>,
    /// Who waits for a key that is not set.
    by_key: BTreeMap<String, BTreeSet<ClientId>>,
    barriers: BTreeMap<String, (u32, BTreeSet<ClientId>)>,
}

#[derive(Debug)]
enum Waiting {
    Keys(Vec<String>),
    Barrier(String),
}

impl State {
    /// Does what a client asks and returns who is to be told what, perhaps nobody yet.
    pub fn step(&mut self, client: ClientId, request: Request) -> Vec<(ClientId, Reply)> {
        if self.waiting.contains_key(&client) {
            return vec![(client, Reply::Refused(Refusal::Busy))];
        }
        if !request.in_bounds() {
            return vec![(client, Reply::Refused(Refusal::Bounds))];
        }
        match request {
            Request::Set { key, value } => self.set(client, &key, value),
            Request::SetOnce { key, value } => self.set_once(client, &key, value),
            Request::Wait { keys } => self.wait(client, keys),
            Request::Peek { key } => {
                vec![(client, Reply::Values(self.values.get(&key).cloned().into_iter().collect()))]
            }
            Request::Add { key, delta } => self.add(client, &key, delta),
            Request::Barrier { key, count } => self.barrier(client, key, count),
        }
    }

    /// Forgets a client that went away; what it has set stays.
    pub fn client_gone(&mut self, client: ClientId) {
        match self.waiting.remove(&client) {
            None => {}
            Some(Waiting::Keys(keys)) => {
                for key in keys {
                    remove_from(&mut self.by_key, &key, client);
                }
            }
            Some(Waiting::Barrier(key)) => {
                if let Some((_, clients)) = self.barriers.get_mut(&key) {
                    clients.remove(&client);
                    if clients.is_empty() {
                        self.barriers.remove(&key);
                    }
                }
            }
        }
    }

    fn set(&mut self, client: ClientId, key: &str, value: Vec<u8>) -> Vec<(ClientId, Reply)> {
        match self.store(key, value) {
            Err(refusal) => vec![(client, Reply::Refused(refusal))],
            Ok(mut woken) => {
                woken.push((client, Reply::Done));
                woken
            }
        }
    }

    fn set_once(&mut self, client: ClientId, key: &str, value: Vec<u8>) -> Vec<(ClientId, Reply)> {
        if let Some(present) = self.values.get(key) {
            return vec![(client, Reply::Values(vec![present.clone()]))];
        }
        match self.store(key, value.clone()) {
            Err(refusal) => vec![(client, Reply::Refused(refusal))],
            Ok(mut woken) => {
                woken.push((client, Reply::Values(vec![value])));
                woken
            }
        }
    }

    fn add(&mut self, client: ClientId, key: &str, delta: i64) -> Vec<(ClientId, Reply)> {
        let counter = match self.values.get(key).map(|value| value.as_slice().try_into()) {
            None => 0,
            Some(Ok(bytes)) => i64::from_le_bytes(bytes),
            Some(Err(_)) => return vec![(client, Reply::Refused(Refusal::NotACounter))],
        };
        let sum = counter.wrapping_add(delta);
        match self.store(key, sum.to_le_bytes().to_vec()) {
            Err(refusal) => vec![(client, Reply::Refused(refusal))],
            Ok(mut woken) => {
                woken.push((client, Reply::Sum(sum)));
                woken
            }
        }
    }

    fn wait(&mut self, client: ClientId, keys: Vec<String>) -> Vec<(ClientId, Reply)> {
        if let Some(values) = self.values_of(&keys) {
            return vec![(client, Reply::Values(values))];
        }
        for key in keys.iter().filter(|key| !self.values.contains_key(*key)) {
            self.by_key.entry(key.clone()).or_default().insert(client);
        }
        self.waiting.insert(client, Waiting::Keys(keys));
        Vec::new()
    }

    fn barrier(&mut self, client: ClientId, key: String, count: u32) -> Vec<(ClientId, Reply)> {
        let (expected, clients) =
            self.barriers.entry(key.clone()).or_insert_with(|| (count, BTreeSet::new()));
        if *expected != count {
            return vec![(client, Reply::Refused(Refusal::OtherCount))];
        }
        clients.insert(client);
        if clients.len() < count as usize {
            self.waiting.insert(client, Waiting::Barrier(key));
            return Vec::new();
        }
        let (_, clients) = self.barriers.remove(&key).expect("it was looked up above");
        for client in &clients {
            self.waiting.remove(client);
        }
        clients.into_iter().map(|client| (client, Reply::Done)).collect()
    }

    /// Sets a value; returns the replies to clients for which it was the last missing one.
    fn store(&mut self, key: &str, value: Vec<u8>) -> Result<Vec<(ClientId, Reply)>, Refusal> {
        let before = self.values.get(key).map_or(0, |old| key.len() + old.len());
        let bytes = self.bytes - before + key.len() + value.len();
        let is_new = !self.values.contains_key(key);
        if BYTES_MAX < bytes || (is_new && KEYS_MAX <= self.values.len()) {
            return Err(Refusal::Full);
        }
        self.bytes = bytes;
        self.values.insert(key.to_owned(), value);
        let waiters = self.by_key.remove(key).unwrap_or_default();
        Ok(waiters.into_iter().filter_map(|client| self.wake(client)).collect())
    }

    fn wake(&mut self, client: ClientId) -> Option<(ClientId, Reply)> {
        let Some(Waiting::Keys(keys)) = self.waiting.get(&client) else { return None };
        let values = self.values_of(keys)?;
        self.waiting.remove(&client);
        Some((client, Reply::Values(values)))
    }

    fn values_of(&self, keys: &[String]) -> Option<Vec<Vec<u8>>> {
        keys.iter().map(|key| self.values.get(key).cloned()).collect()
    }
}

impl Request {
    fn in_bounds(&self) -> bool {
        let fits = |key: &String| key.len() <= KEY_BYTES_MAX;
        match self {
            Self::Set { key, value } | Self::SetOnce { key, value } => {
                fits(key) && value.len() <= VALUE_BYTES_MAX
            }
            Self::Wait { keys } => keys.len() <= WAITED_KEYS_MAX && keys.iter().all(fits),
            Self::Peek { key } | Self::Add { key, .. } => fits(key),
            Self::Barrier { key, count } => fits(key) && 0 < *count,
        }
    }
}

fn remove_from(index: &mut BTreeMap<String, BTreeSet<ClientId>>, key: &str, client: ClientId) {
    if let Some(clients) = index.get_mut(key) {
        clients.remove(&client);
        if clients.is_empty() {
            index.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &str, value: &str) -> Request {
        Request::Set { key: key.into(), value: value.into() }
    }

    fn wait(keys: &[&str]) -> Request {
        Request::Wait { keys: keys.iter().map(|key| (*key).to_owned()).collect() }
    }

    fn add(key: &str, delta: i64) -> Request {
        Request::Add { key: key.into(), delta }
    }

    fn barrier(count: u32) -> Request {
        Request::Barrier { key: "b".into(), count }
    }

    /// Runs requests of clients; each line shows the replies, with their clients.
    #[track_caller]
    fn check(story: &[(u64, Request, &str)]) {
        let mut state = State::default();
        for (client, request, expect) in story {
            let told = state.step(ClientId(*client), request.clone());
            let told: Vec<_> =
                told.iter().map(|(id, reply)| format!("{}: {}", id.0, show(reply))).collect();
            assert_eq!(told.join(", "), *expect, "after {request:?} of {client}");
        }
    }

    fn show(reply: &Reply) -> String {
        match reply {
            Reply::Values(values) => values
                .iter()
                .map(|value| String::from_utf8_lossy(value))
                .collect::<Vec<_>>()
                .join("+"),
            Reply::Refused(refusal) => refusal.to_string(),
            Reply::Done | Reply::Sum(_) => format!("{reply:?}"),
        }
    }

    #[test]
    fn store_wait_ends_with_the_last_key() {
        check(&[
            (1, wait(&["a", "b"]), ""),
            (2, set("b", "y"), "2: Done"),
            (2, set("a", "x"), "1: x+y, 2: Done"),
            (1, wait(&["b"]), "1: y"),
            (1, Request::Peek { key: "c".into() }, "1: "),
            (1, Request::SetOnce { key: "c".into(), value: b"first".into() }, "1: first"),
            (2, Request::SetOnce { key: "c".into(), value: b"second".into() }, "2: first"),
        ]);
    }

    #[test]
    fn store_counters_add() {
        check(&[
            (1, add("n", 3), "1: Sum(3)"),
            (2, add("n", -5), "2: Sum(-2)"),
            (2, set("text", "abc"), "2: Done"),
            (2, add("text", 1), "2: the value is not a counter"),
        ]);
    }

    #[test]
    fn store_barrier_opens_for_all_and_is_reusable() {
        check(&[
            (1, barrier(2), ""),
            (2, barrier(3), "2: others wait at this barrier for another count"),
            (2, barrier(2), "1: Done, 2: Done"),
            (2, barrier(1), "2: Done"),
            (2, barrier(0), "2: the request is out of bounds"),
        ]);
    }

    #[test]
    fn store_rejects_requests_out_of_bounds() {
        let mut state = State::default();
        let mut ask = |request| show(&state.step(ClientId(1), request)[0].1);
        assert_eq!(ask(set(&"k".repeat(257), "")), "the request is out of bounds");
        assert_eq!(ask(set("k", &"v".repeat(VALUE_BYTES_MAX + 1))), "the request is out of bounds");
        let full = (0..).map(|i| ask(set(&format!("{i}"), &"v".repeat(VALUE_BYTES_MAX))));
        let stored = full.take_while(|reply| reply == "Done").count();
        assert!(stored * VALUE_BYTES_MAX < BYTES_MAX && BYTES_MAX < (stored + 2) * VALUE_BYTES_MAX);
        assert_eq!(ask(wait(&["missing"; WAITED_KEYS_MAX + 1])), "the request is out of bounds");
    }

    #[test]
    fn store_forgets_waits_of_closed_connections() {
        let mut state = State::default();
        assert_eq!(state.step(ClientId(1), wait(&["a"])), []);
        assert_eq!(
            state.step(ClientId(1), set("b", "")),
            [(ClientId(1), Reply::Refused(Refusal::Busy))]
        );
        assert_eq!(state.step(ClientId(2), barrier(2)), []);
        state.client_gone(ClientId(1));
        state.client_gone(ClientId(2));
        assert_eq!(state.step(ClientId(3), set("a", "x")), [(ClientId(3), Reply::Done)]);
        assert_eq!(state.step(ClientId(3), barrier(2)), []);
        assert!(state.by_key.is_empty());
    }
}
