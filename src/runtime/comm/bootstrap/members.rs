//! Creation of a group by its members alone.
//!
//! The members meet outside of the operations of the parent group, so neither waits for the other. Each
//! member shows the others its offer: on its board in shared memory if the parent group is on one node, in
//! the store otherwise. A member that sees all offers shows a number that stands for all of them, and the
//! meeting ends when all members show the same number. A member that gives up before withdraws its offer,
//! so no member takes a group for complete that another one has given up.
//!
//! Offers of the *n*-th and the next use of a list and name are in different places: a member can be one use
//! ahead of a member that still reads, never two.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::base::{Rank, clock, lock, show_duration};
use crate::runtime::comm::bootstrap::subgroup::{Founder, MemberOffer, Subgroup, digest};
use crate::runtime::comm::core::abort::AbortRecord;
use crate::runtime::comm::core::error::{Cause, CollectiveError, Departure};
use crate::runtime::comm::core::operation::Operation;
use crate::runtime::comm::core::roster::RankRoster;
use crate::runtime::comm::store::departed_key;
use crate::runtime::comm::store::shared::{ABORT_KEY, STORE_TIMEOUT};
use crate::runtime::comm::store::{Client, ClientError};
use crate::runtime::error::{Error, Result};

/// Largest length of the name of a group.
const NAME_BYTES_MAX: usize = 128;
/// Largest number of ranks of a list that other ranks compare; longer lists are compared by their number.
const LIST_MAX: usize = 1024;
/// Time for the members to agree after all have joined, although the time limit has passed.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses between two looks for the other members.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// Groups that a rank makes with some ranks of a group.
#[derive(Default)]
pub(crate) struct Meetings {
    state: Mutex<MeetingsState>,
}

#[derive(Default)]
struct MeetingsState {
    /// Number of calls.
    attempts: u64,
    /// Number of groups that were made of each list and name.
    uses: HashMap<(Vec<usize>, String), u64>,
    /// Lists of the names for which this rank waits.
    open: BTreeMap<String, Vec<usize>>,
    /// Attempts of other ranks with another list for a name that this rank has reported. Such a list stays
    /// announced, so that every member can report it, until the rank makes a group of the name again.
    reported: HashMap<(usize, String), u64>,
}

/// What a member shows to the others.
#[derive(Serialize, Deserialize)]
struct Arrival {
    /// Number of this attempt of the member.
    attempt: u64,
    /// Number of earlier uses of the list and name.
    uses: u64,
    offer: MemberOffer,
    /// Number that stands for the arrivals that it has seen, once all members have joined.
    seen: Option<u128>,
    /// Whether the member has given up; its offer is withdrawn.
    gave_up: bool,
    /// Rank of the job whose loss is the reason why the member has given up.
    lost: Option<Rank>,
}

/// List that a rank passes for a name, in ranks of the job.
#[derive(Debug, Serialize, Deserialize)]
struct Announcement {
    ranks: Vec<Rank>,
    list: u128,
    /// Number of this attempt of the rank.
    attempt: u64,
}

/// A call of a rank, until its end.
struct Meeting<'a> {
    meetings: &'a Meetings,
    founder: &'a Founder,
    /// Members, as ranks of the parent group.
    ranks: &'a [usize],
    name: &'a str,
    announcement: Announcement,
    /// Name of this use of the list and name, in the parent group.
    key: String,
    /// Keys of the arrivals of this use, and of the announcements.
    arrivals: u128,
    announcements: u128,
    attempt: u64,
    uses: u64,
    since: Instant,
    until: Instant,
    timeout: Duration,
}

impl Meetings {
    /// Makes a group of these ranks of the founder's group, when all of them have called this.
    pub(crate) fn create_group(
        &self,
        founder: &Founder,
        ranks: &[usize],
        name: &str,
        timeout: Duration,
    ) -> Result<Subgroup> {
        let rejected = |cause| {
            CollectiveError::rejected(Operation::GroupOf, founder.roster.own_job_rank(), cause)
        };
        let rank = check_request(&founder.roster, ranks, name).map_err(rejected)?;
        let (attempt, uses) = self.open(founder, ranks, name).map_err(rejected)?;
        let roster = Arc::new(RankRoster::of_subgroup(&founder.roster, rank, ranks));
        let (resources, offer) = founder.offer(&roster);
        let since = clock::now();
        let text = format!("{}/{ranks:?}/{name}", founder.abort_key);
        let meeting = Meeting {
            meetings: self,
            founder,
            ranks,
            name,
            announcement: Announcement::of(&roster, ranks.len(), attempt),
            key: format!("of/{ranks:?}/{uses}/{name}"),
            arrivals: digest(&format!("arrivals/{}/{text}", uses % 2)),
            announcements: digest(&format!("lists/{}/{name}", founder.abort_key)),
            attempt,
            uses,
            since,
            until: clock::after(since, timeout),
            timeout,
        };
        let outcome = meeting.hold(offer);
        self.close(ranks, name, outcome.is_ok());
        match outcome {
            Ok(offers) => {
                let abort_key = founder.abort_key_of(&meeting.key);
                founder.join(roster, ranks, offers, resources, abort_key)
            }
            Err(failure) => {
                // If a member may have joined, its memory is not freed.
                if !failure.may_be_joined {
                    founder.free(resources);
                }
                Err(rejected(failure.cause).into())
            }
        }
    }

    /// Begins a call; returns the number of the attempt and of earlier uses of the list and name.
    fn open(&self, founder: &Founder, ranks: &[usize], name: &str) -> Result<(u64, u64), Cause> {
        let mut state = self.lock();
        if let Some(open) = state.open.get(name) {
            let open = show_list(&founder.roster.job_ranks(open));
            let requested = show_list(&founder.roster.job_ranks(ranks));
            return Err(Cause::Argument(format!(
                "another thread of this rank makes a group `{name}` of {open} at the same time as this \
                 one of {requested}"
            )));
        }
        state.open.insert(name.to_owned(), ranks.to_owned());
        state.attempts += 1;
        let uses = state.uses.get(&(ranks.to_owned(), name.to_owned())).copied();
        Ok((state.attempts, uses.unwrap_or(0)))
    }

    fn close(&self, ranks: &[usize], name: &str, is_made: bool) {
        let mut state = self.lock();
        state.open.remove(name);
        if is_made {
            *state.uses.entry((ranks.to_owned(), name.to_owned())).or_default() += 1;
        }
    }

    fn is_reported(&self, rank: usize, name: &str, attempt: u64) -> bool {
        self.lock().reported.get(&(rank, name.to_owned())) == Some(&attempt)
    }

    fn set_reported(&self, rank: usize, name: &str, attempt: u64) {
        self.lock().reported.insert((rank, name.to_owned()), attempt);
    }

    fn lock(&self) -> MutexGuard<'_, MeetingsState> {
        lock(&self.state)
    }
}

/// Checks a request; returns the rank of this process in the new group.
fn check_request(roster: &RankRoster, ranks: &[usize], name: &str) -> Result<usize, Cause> {
    let world = roster.placement.world_size();
    let problem = if ranks.is_empty() {
        "the list of ranks is empty".to_owned()
    } else if name.is_empty() {
        "the name of the group is empty".to_owned()
    } else if NAME_BYTES_MAX < name.len() {
        format!("the name of the group has {} bytes, more than {NAME_BYTES_MAX}", name.len())
    } else if let Some(rank) = ranks.iter().find(|rank| world <= **rank) {
        format!("rank {rank} is not in a group of size {world}")
    } else if let Some((_, rank)) =
        ranks.iter().enumerate().find(|(at, rank)| ranks[..*at].contains(rank))
    {
        format!("rank {rank} is more than once in the list for the group `{name}`")
    } else if let Some(rank) = ranks.iter().position(|rank| *rank == roster.rank) {
        return Ok(rank);
    } else {
        let list: Vec<Rank> = ranks.iter().map(|rank| Rank(*rank as u32)).collect();
        let list = show_list(&list);
        format!("rank {} is not among {list}, which it passed for the group `{name}`", roster.rank)
    };
    Err(Cause::Argument(problem))
}

impl Announcement {
    fn of(roster: &RankRoster, world: usize, attempt: u64) -> Self {
        let ranks: Vec<Rank> = (0..world).map(|rank| roster.job_rank(rank)).collect();
        let list = digest(&format!("{ranks:?}"));
        Self { ranks: ranks.into_iter().take(LIST_MAX).collect(), list, attempt }
    }
}

/// Failure of a meeting.
struct Failure {
    cause: Cause,
    /// Whether another member may have joined the group.
    may_be_joined: bool,
}

impl Meeting<'_> {
    /// Waits until all members have joined and agree; returns their offers.
    fn hold(&self, offer: MemberOffer) -> Result<Vec<MemberOffer>, Failure> {
        let (attempt, uses) = (self.attempt, self.uses);
        let mut arrival = Arrival { attempt, uses, offer, seen: None, gave_up: false, lost: None };
        let outcome = self.agree(&mut arrival);
        let is_conflict = matches!(outcome, Err(Cause::Argument(_)));
        if !is_conflict {
            // A failure to clear it is harmless: the next call replaces it.
            let _ = self.write(self.announcements, &[]);
        }
        outcome.map_err(|cause| {
            arrival.gave_up = true;
            arrival.lost = match &cause {
                Cause::PeerLost { rank, .. } => Some(*rank),
                _ => None,
            };
            let _ = self.write(self.arrivals, &encode(&arrival));
            Failure { cause, may_be_joined: arrival.seen.is_some() }
        })
    }

    fn agree(&self, arrival: &mut Arrival) -> Result<Vec<MemberOffer>, Cause> {
        self.write(self.announcements, &encode(&self.announcement))?;
        self.write(self.arrivals, &encode(arrival))?;
        // Members before this one were there at the last look.
        let mut present = 0;
        let mut pause = PAUSE_MIN;
        for turn in 0.. {
            while present < self.ranks.len() && self.arrival(self.ranks[present])?.is_some() {
                present += 1;
            }
            if present == self.ranks.len() {
                match self.all_arrivals()? {
                    None => present = 0,
                    Some(arrivals) => {
                        let seen = Some(digest_of(&arrivals));
                        if arrival.seen != seen {
                            arrival.seen = seen;
                            self.write(self.arrivals, &encode(arrival))?;
                            pause = PAUSE_MIN;
                        } else if arrivals.iter().all(|arrival| arrival.seen == seen) {
                            return Ok(arrivals.into_iter().map(|arrival| arrival.offer).collect());
                        }
                    }
                }
            }
            self.check(arrival, turn)?;
            std::thread::sleep(pause);
            pause = PAUSE_MAX.min(pause * 2);
        }
        unreachable!("the loop ends by a return")
    }

    /// Fails if the wait must end; looks at one of the members in each turn.
    fn check(&self, own: &Arrival, turn: usize) -> Result<(), Cause> {
        self.check_parent()?;
        self.check_member(self.ranks[turn % self.ranks.len()])?;
        let grace = if own.seen.is_some() { AGREEMENT_TIMEOUT } else { Duration::ZERO };
        if clock::now() < clock::after(self.until, grace) {
            return Ok(());
        }
        let (mut late, mut gave_up) = (Vec::new(), Vec::new());
        for rank in self.ranks {
            match self.last_arrival(*rank)? {
                Some(arrival) if arrival.gave_up => gave_up.push(*rank),
                Some(arrival) if own.seen.is_none() || arrival.seen == own.seen => {}
                _ => late.push(*rank),
            }
            // Each is looked at once more, because the reason may be better than the deadline.
            self.check_member(*rank)?;
        }
        // Members that have given up are named only if no other is missing: they waited, too.
        let late = if late.is_empty() { gave_up } else { late };
        let waiting_for = self.founder.roster.job_ranks(&late);
        // All may have joined at the last moment, or, if this process was stopped, long before it could look:
        // then the others have made the group. The next look finds it.
        let is_agreed = own.seen.is_some();
        let until = clock::after(self.until, AGREEMENT_TIMEOUT);
        if waiting_for.is_empty() && (is_agreed || clock::now() < until) {
            return Ok(());
        }
        Err(Cause::Deadline { waiting_for, timeout: self.timeout })
    }

    /// Fails if the parent group has failed.
    fn check_parent(&self) -> Result<(), Cause> {
        // The watchdog looks at the abort record of the job.
        self.check_aborts(|key| key != ABORT_KEY)
    }

    /// Fails if the parent group was aborted, as this node knows or one of these records says.
    fn check_aborts(&self, is_read: impl Fn(&str) -> bool) -> Result<(), Cause> {
        let mut record = self.founder.segment.abort_record();
        if let Some(net) = self.founder.net.as_ref().filter(|_| record.is_none()) {
            for key in net.abort_keys.iter().filter(|key| is_read(key)) {
                let notice = self.ask(|store, until| store.peek(key, until))?;
                record = record.or(notice.and_then(|notice| AbortRecord::decode(&notice)));
            }
        }
        record.map_or(Ok(()), |record| Err(self.founder.roster.abort_cause(record)))
    }

    /// Fails if a member that has not joined is lost, or has passed another list for the name.
    fn check_member(&self, rank: usize) -> Result<(), Cause> {
        let roster = &self.founder.roster;
        let departure = match (&self.founder.net, roster.local_index(rank)) {
            (_, Some(local)) => {
                self.founder.segment.departure(local).filter(|how| *how != Departure::Left)
            }
            (Some(_), None) => {
                let key = departed_key(roster.job_rank(rank));
                let gone = self.ask(|store, until| store.peek(&key, until))?;
                gone.map(|_| Departure::Gone)
            }
            (None, None) => None,
        };
        let announced = self.read(rank, self.announcements)?.and_then(|value| decode(&value));
        let other = announced.filter(|other: &Announcement| {
            other.list != self.announcement.list
                && other.ranks.contains(&roster.own_job_rank())
                && !self.meetings.is_reported(rank, self.name, other.attempt)
        });
        // A member that has joined can already be at its next group.
        if (departure.is_none() && other.is_none()) || self.arrival(rank)?.is_some() {
            return Ok(());
        }
        if let Some(other) = other {
            self.meetings.set_reported(rank, self.name, other.attempt);
            return Err(Cause::Argument(format!(
                "rank {} passed {} for the group `{}`, but rank {} passed {}",
                roster.own_job_rank(),
                show_list(&self.announcement.ranks),
                self.name,
                roster.job_rank(rank),
                show_list(&other.ranks)
            )));
        }
        let Some(how) = departure else { return Ok(()) };
        // A member that has noticed an abort can have left since: the abort is the cause. The watchdog of this
        // node may notice it later.
        self.check_aborts(|_| true)?;
        // A member that gave up because of a lost rank can have exited since: the first loss is the cause.
        let cause = self.last_arrival(rank)?.and_then(|arrival| arrival.lost);
        Err(match cause {
            Some(lost) => roster.job_peer_lost(lost, Departure::Gone),
            None => roster.peer_lost(rank, how),
        })
    }

    /// Arrivals of all members; `None` if one has not joined.
    fn all_arrivals(&self) -> Result<Option<Vec<Arrival>>, Cause> {
        self.ranks.iter().map(|rank| self.arrival(*rank)).collect()
    }

    fn arrival(&self, rank: usize) -> Result<Option<Arrival>, Cause> {
        Ok(self.last_arrival(rank)?.filter(|arrival| !arrival.gave_up))
    }

    /// Arrival of a member that may have given up since.
    fn last_arrival(&self, rank: usize) -> Result<Option<Arrival>, Cause> {
        let arrival = self.read(rank, self.arrivals)?.and_then(|value| decode(&value));
        // That of the use before the last remains until the member joins again.
        Ok(arrival.filter(|arrival: &Arrival| arrival.uses == self.uses))
    }

    /// Shows a value of this rank to the others; an empty one withdraws it.
    fn write(&self, key: u128, value: &[u8]) -> Result<(), Cause> {
        let Founder { roster, arena, net, .. } = self.founder;
        if net.is_none() {
            return arena
                .post(key, value)
                .map_err(|error| Cause::System(Error::from(error).to_string()));
        }
        let key = store_key(key, roster.own_job_rank());
        self.ask(|store, until| store.set(&key, value, until).map(Some)).map(drop)
    }

    fn read(&self, rank: usize, key: u128) -> Result<Option<Vec<u8>>, Cause> {
        let Founder { roster, arena, net, .. } = self.founder;
        let value = if net.is_none() {
            arena.posted(roster.job_local(rank), key)
        } else {
            let key = store_key(key, roster.job_rank(rank));
            self.ask(|store, until| store.peek(&key, until))?
        };
        Ok(value.filter(|value| !value.is_empty()))
    }

    /// Asks the store; repeats a request without a reply until the time limit.
    fn ask<V>(
        &self,
        mut request: impl FnMut(&mut Client, Instant) -> Result<Option<V>, ClientError>,
    ) -> Result<Option<V>, Cause> {
        let Some(net) = &self.founder.net else { return Ok(None) };
        loop {
            // The lock is free between the requests, because operations of other groups need it.
            let outcome = request(&mut lock(&net.store), clock::now() + STORE_TIMEOUT);
            match outcome {
                Err(ClientError::Deadline) if clock::now() < self.until => {
                    if let Some(record) = self.founder.segment.abort_record() {
                        return Err(self.founder.roster.abort_cause(record));
                    }
                }
                Err(error) => {
                    let after = clock::now().saturating_duration_since(self.since);
                    return Err(Cause::Backend(format!(
                        "cannot reach the store, after {}: {error}",
                        show_duration(after)
                    )));
                }
                Ok(value) => return Ok(value),
            }
        }
    }
}

fn store_key(key: u128, rank: Rank) -> String {
    format!("of/{key:032x}/{rank}")
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("texts and numbers serialize")
}

fn decode<'a, V: Deserialize<'a>>(value: &'a [u8]) -> Option<V> {
    postcard::from_bytes(value).ok()
}

/// Number that stands for these arrivals; a member that gives up and comes again changes it.
fn digest_of(arrivals: &[Arrival]) -> u128 {
    let attempts: Vec<u64> = arrivals.iter().map(|arrival| arrival.attempt).collect();
    digest(&format!("{attempts:?}"))
}

/// Ranks of a list, in its order.
fn show_list(ranks: &[Rank]) -> String {
    const SHOWN_MAX: usize = 64;
    let shown: Vec<String> = ranks.iter().take(SHOWN_MAX).map(Rank::to_string).collect();
    let more = match ranks.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("[{}]{more}", shown.join(", "))
}
