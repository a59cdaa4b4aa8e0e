//! State machine of the store: requests in, replies out. No I/O, no clock; clients have the deadlines.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::base::Rank;

/// Largest key in bytes.
pub const KEY_BYTES_MAX: usize = 256;
/// Largest value in bytes.
pub const VALUE_BYTES_MAX: usize = 32 << 10;
/// Largest number of keys.
pub const KEYS_MAX: usize = 1 << 20;
/// Largest total size of keys and values in bytes.
pub const BYTES_MAX: usize = 64 << 20;
/// Largest number of keys that one request can wait for.
pub const WAITED_KEYS_MAX: usize = 256;

/// Returns the key that the server sets when a rank has left.
pub fn departed_key(rank: Rank) -> String {
    format!("gone/{rank}")
}

/// Identifier of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Request of a client; the next request follows the reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreRequest {
    /// Sets a value and replaces an earlier one. The reply is `Done`.
    Set {
        /// Key that is set.
        key: String,
        /// New value of the key.
        value: Vec<u8>,
    },
    /// Sets a value unless the key has one. The reply is `Values` with the value that the key then has.
    SetOnce {
        /// Key that is set unless it has a value.
        key: String,
        /// Value for a key without one.
        value: Vec<u8>,
    },
    /// Waits until all keys are set. The reply is `Values`.
    Wait {
        /// Keys that must be set before the reply.
        keys: Vec<String>,
    },
    /// Reads a key. The reply is `Values` with no or one value.
    Peek {
        /// Key that is read.
        key: String,
    },
    /// Adds to a counter, which starts at 0. The reply is `Sum`.
    Add {
        /// Key of the counter.
        key: String,
        /// Number to add; can be negative.
        delta: i64,
    },
    /// Waits until `count` clients have requested the barrier of this name. The reply is `Done`; the
    /// barrier can then be used again.
    Barrier {
        /// Name of the barrier.
        key: String,
        /// Number of clients.
        count: u32,
    },
}

impl StoreRequest {
    /// Whether the reply does not depend on requests of other clients.
    pub(crate) fn is_immediate(&self) -> bool {
        match self {
            Self::Set { .. } | Self::SetOnce { .. } | Self::Peek { .. } | Self::Add { .. } => true,
            Self::Wait { .. } | Self::Barrier { .. } => false,
        }
    }
}

/// Reply to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The request succeeded.
    Done,
    /// Values in the order of the keys.
    Values(Vec<Vec<u8>>),
    /// Value of the counter after the addition.
    Sum(i64),
    /// The request was refused.
    Refused(StoreRefusal),
}

/// Reason why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StoreRefusal {
    /// The key or value is too long, the request has too many keys, or the barrier has no clients.
    #[error("the request exceeds a limit of the store")]
    Bounds,
    /// The store is full.
    #[error("the store is full")]
    Full,
    /// The client sent a second request before the reply to the first.
    #[error("the previous request is not answered yet")]
    Busy,
    /// The key is not a counter.
    #[error("the value is not a counter")]
    NotACounter,
    /// Ranks used different counts for one barrier.
    #[error("other clients wait at this barrier with a different count")]
    CountMismatch,
}

/// State of the store.
#[derive(Debug, Default)]
pub struct State {
    values: BTreeMap<String, Vec<u8>>,
    bytes: usize,
    waiters: HashMap<ClientId, Waiting>,
    /// Clients that wait for each key that is not set.
    waiters_by_key: BTreeMap<String, BTreeSet<ClientId>>,
    barriers: BTreeMap<String, (u32, BTreeSet<ClientId>)>,
}

#[derive(Debug)]
enum Waiting {
    Keys(Vec<String>),
    Barrier(String),
}

impl State {
    /// Processes a request and returns the replies that can now be sent, which may be none.
    pub fn step(&mut self, client: ClientId, request: StoreRequest) -> Vec<(ClientId, Reply)> {
        if self.waiters.contains_key(&client) {
            return vec![(client, Reply::Refused(StoreRefusal::Busy))];
        }
        if !request.is_in_bounds() {
            return vec![(client, Reply::Refused(StoreRefusal::Bounds))];
        }
        match request {
            StoreRequest::Set { key, value } => self.set(client, &key, value),
            StoreRequest::SetOnce { key, value } => self.set_once(client, &key, value),
            StoreRequest::Wait { keys } => self.wait(client, keys),
            StoreRequest::Peek { key } => {
                vec![(client, Reply::Values(self.values.get(&key).cloned().into_iter().collect()))]
            }
            StoreRequest::Add { key, delta } => self.add(client, &key, delta),
            StoreRequest::Barrier { key, count } => self.barrier(client, key, count),
        }
    }

    /// Removes a client that has disconnected; the values that it has set remain.
    pub fn remove_client(&mut self, client: ClientId) {
        match self.waiters.remove(&client) {
            None => {}
            Some(Waiting::Keys(keys)) => {
                for key in keys {
                    remove_from(&mut self.waiters_by_key, &key, client);
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
            Some(Err(_)) => return vec![(client, Reply::Refused(StoreRefusal::NotACounter))],
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
            self.waiters_by_key.entry(key.clone()).or_default().insert(client);
        }
        self.waiters.insert(client, Waiting::Keys(keys));
        Vec::new()
    }

    fn barrier(&mut self, client: ClientId, key: String, count: u32) -> Vec<(ClientId, Reply)> {
        let (expected, clients) =
            self.barriers.entry(key.clone()).or_insert_with(|| (count, BTreeSet::new()));
        if *expected != count {
            return vec![(client, Reply::Refused(StoreRefusal::CountMismatch))];
        }
        clients.insert(client);
        if clients.len() < count as usize {
            self.waiters.insert(client, Waiting::Barrier(key));
            return Vec::new();
        }
        let (_, clients) = self.barriers.remove(&key).expect("`entry` has inserted it");
        for client in &clients {
            self.waiters.remove(client);
        }
        clients.into_iter().map(|client| (client, Reply::Done)).collect()
    }

    /// Sets a value; returns the replies to clients for which it was the last missing one.
    fn store(&mut self, key: &str, value: Vec<u8>) -> Result<Vec<(ClientId, Reply)>, StoreRefusal> {
        let before = self.values.get(key).map_or(0, |old| key.len() + old.len());
        let bytes = self.bytes - before + key.len() + value.len();
        let is_new = !self.values.contains_key(key);
        if BYTES_MAX < bytes || (is_new && KEYS_MAX <= self.values.len()) {
            return Err(StoreRefusal::Full);
        }
        self.bytes = bytes;
        self.values.insert(key.to_owned(), value);
        let waiters = self.waiters_by_key.remove(key).unwrap_or_default();
        Ok(waiters.into_iter().filter_map(|client| self.wake(client)).collect())
    }

    fn wake(&mut self, client: ClientId) -> Option<(ClientId, Reply)> {
        let Some(Waiting::Keys(keys)) = self.waiters.get(&client) else { return None };
        let values = self.values_of(keys)?;
        self.waiters.remove(&client);
        Some((client, Reply::Values(values)))
    }

    fn values_of(&self, keys: &[String]) -> Option<Vec<Vec<u8>>> {
        keys.iter().map(|key| self.values.get(key).cloned()).collect()
    }
}

impl StoreRequest {
    fn is_in_bounds(&self) -> bool {
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

    fn set(key: &str, value: &str) -> StoreRequest {
        StoreRequest::Set { key: key.into(), value: value.into() }
    }

    fn wait(keys: &[&str]) -> StoreRequest {
        StoreRequest::Wait { keys: keys.iter().map(|key| (*key).to_owned()).collect() }
    }

    fn add(key: &str, delta: i64) -> StoreRequest {
        StoreRequest::Add { key: key.into(), delta }
    }

    fn barrier(count: u32) -> StoreRequest {
        StoreRequest::Barrier { key: "b".into(), count }
    }

    /// Runs requests of clients; each line shows the replies, with their clients.
    #[track_caller]
    fn check(steps: &[(u64, StoreRequest, &str)]) {
        let mut state = State::default();
        for (client, request, expect) in steps {
            let replies = state.step(ClientId(*client), request.clone());
            let replies: Vec<_> =
                replies.iter().map(|(id, reply)| format!("{}: {}", id.0, show(reply))).collect();
            assert_eq!(replies.join(", "), *expect, "after {request:?} of {client}");
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

    /// A change of these bytes needs a new [`VERSION`](crate::runtime::contract::VERSION): the store is in
    /// an agent, its clients are in workers, which can be of another build.
    #[test]
    fn store_messages_match_golden_bytes() {
        #[track_caller]
        fn check<M: Serialize>(messages: &[(M, &[u8])]) {
            for (message, bytes) in messages {
                assert_eq!(postcard::to_allocvec(message).as_deref(), Ok(*bytes));
            }
        }
        let key = || "k".to_owned();
        check::<StoreRequest>(&[
            (StoreRequest::Set { key: key(), value: vec![1, 2] }, &[0, 1, b'k', 2, 1, 2]),
            (StoreRequest::SetOnce { key: key(), value: vec![7] }, &[1, 1, b'k', 1, 7]),
            (StoreRequest::Wait { keys: vec![key(), key()] }, &[2, 2, 1, b'k', 1, b'k']),
            (StoreRequest::Peek { key: key() }, &[3, 1, b'k']),
            (StoreRequest::Add { key: key(), delta: -1 }, &[4, 1, b'k', 1]),
            (StoreRequest::Barrier { key: key(), count: 300 }, &[5, 1, b'k', 0xac, 2]),
        ]);
        check::<Reply>(&[
            (Reply::Done, &[0]),
            (Reply::Values(vec![vec![9]]), &[1, 1, 1, 9]),
            (Reply::Sum(-2), &[2, 3]),
            (Reply::Refused(StoreRefusal::Bounds), &[3, 0]),
            (Reply::Refused(StoreRefusal::Full), &[3, 1]),
            (Reply::Refused(StoreRefusal::Busy), &[3, 2]),
            (Reply::Refused(StoreRefusal::NotACounter), &[3, 3]),
            (Reply::Refused(StoreRefusal::CountMismatch), &[3, 4]),
        ]);
    }

    #[test]
    fn store_wait_ends_with_the_last_key() {
        check(&[
            (1, wait(&["a", "b"]), ""),
            (2, set("b", "y"), "2: Done"),
            (2, set("a", "x"), "1: x+y, 2: Done"),
            (1, wait(&["b"]), "1: y"),
            (1, StoreRequest::Peek { key: "c".into() }, "1: "),
            (1, StoreRequest::SetOnce { key: "c".into(), value: b"first".into() }, "1: first"),
            (2, StoreRequest::SetOnce { key: "c".into(), value: b"second".into() }, "2: first"),
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
            (2, barrier(3), "2: other clients wait at this barrier with a different count"),
            (2, barrier(2), "1: Done, 2: Done"),
            (2, barrier(1), "2: Done"),
            (2, barrier(0), "2: the request exceeds a limit of the store"),
        ]);
    }

    #[test]
    fn store_rejects_requests_out_of_bounds() {
        let mut state = State::default();
        let refusal = StoreRefusal::Bounds.to_string();
        let mut reply_to = |request| show(&state.step(ClientId(1), request)[0].1);
        assert_eq!(reply_to(set(&"k".repeat(257), "")), refusal);
        assert_eq!(reply_to(set("k", &"v".repeat(VALUE_BYTES_MAX + 1))), refusal);
        let full = (0..).map(|i| reply_to(set(&format!("{i}"), &"v".repeat(VALUE_BYTES_MAX))));
        let stored = full.take_while(|reply| reply == "Done").count();
        assert!(stored * VALUE_BYTES_MAX < BYTES_MAX && BYTES_MAX < (stored + 2) * VALUE_BYTES_MAX);
        assert_eq!(reply_to(wait(&["missing"; WAITED_KEYS_MAX + 1])), refusal);
    }

    #[test]
    fn store_forgets_waits_of_closed_connections() {
        let mut state = State::default();
        assert_eq!(state.step(ClientId(1), wait(&["a"])), []);
        assert_eq!(
            state.step(ClientId(1), set("b", "")),
            [(ClientId(1), Reply::Refused(StoreRefusal::Busy))]
        );
        assert_eq!(state.step(ClientId(2), barrier(2)), []);
        state.remove_client(ClientId(1));
        state.remove_client(ClientId(2));
        assert_eq!(state.step(ClientId(3), set("a", "x")), [(ClientId(3), Reply::Done)]);
        assert_eq!(state.step(ClientId(3), barrier(2)), []);
        assert!(state.waiters_by_key.is_empty());
    }
}
