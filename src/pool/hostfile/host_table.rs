//! Table of the hosts of a text while it is read, by name.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use crate::base::{HostName, Span, UserName};
use crate::pool::hostfile::hosts::Host;

/// Every spelling of every host, each once.
#[derive(Default)]
pub(crate) struct HostTable {
    pub(crate) hosts: Vec<Host>,
    /// The hosts that cannot be used; a repetition of one is found all the same.
    unusable: Vec<UnusableHost>,
    /// All spellings in the order of the text.
    spellings: Vec<SpellingIndex>,
    /// Digest of a canonical name → the first of its spellings in `seen`. The table holds numbers
    /// alone: a second copy of every name would be most of the time and memory of a large file.
    first_by_digest: HashMap<u64, u32, BuildHasherDefault<IdentityHasher>>,
    /// Digests are keyed with a secret of this process, so a file cannot contain names chosen to
    /// collide.
    digest: RandomState,
    /// Spellings that are not the first of their name; rarely any.
    other_spellings: HashMap<HostName, u32>,
}

#[derive(Clone, Copy)]
enum SpellingIndex {
    Host(u32),
    Unusable(u32),
}

/// A host that cannot be used.
pub(crate) struct UnusableHost {
    pub(crate) name: HostName,
    pub(crate) user: Option<UserName>,
    pub(crate) span: Span,
}

/// The result of looking up a name; valid until the next insertion.
pub(crate) struct HostLookup {
    digest: u64,
    /// The first spelling of the name.
    first: Option<u32>,
    /// The earlier entry with the same spelling.
    same: Option<u32>,
}

/// A spelling, the login user of its host, and its first position.
pub(crate) struct Spelling<'a> {
    pub(crate) name: &'a HostName,
    pub(crate) user: Option<&'a UserName>,
    pub(crate) span: Span,
    /// The host's index in `hosts`, if the host can be used.
    pub(crate) host: Option<usize>,
}

impl HostTable {
    /// Reserves space for that many more hosts at once: a table that grows step by step is moved as
    /// often.
    pub(crate) fn reserve(&mut self, hosts: usize) {
        self.hosts.reserve(hosts);
        self.spellings.reserve(hosts);
        self.first_by_digest.reserve(hosts);
    }

    /// Looks a name up, with the equality rules of a resolver.
    pub(crate) fn look_up(&self, name: &HostName) -> HostLookup {
        let canonical = name.canonical();
        let mut digest = self.digest.hash_one(canonical.as_bytes());
        loop {
            let Some(first) = self.first_by_digest.get(&digest).copied() else {
                return HostLookup { digest, first: None, same: None };
            };
            let found = self.spelling(first).name;
            if found == name {
                return HostLookup { digest, first: Some(first), same: Some(first) };
            }
            if found.canonical() == canonical {
                return HostLookup {
                    digest,
                    first: Some(first),
                    same: self.other_spellings.get(name).copied(),
                };
            }
            digest = digest.wrapping_add(1);
        }
    }

    /// The first spelling of a name.
    pub(crate) fn first_spelling(&self, key: &HostLookup) -> Option<Spelling<'_>> {
        key.first.map(|at| self.spelling(at))
    }

    /// The first occurrence of a name in the same spelling.
    pub(crate) fn same_spelling(&self, key: &HostLookup) -> Option<Spelling<'_>> {
        key.same.map(|at| self.spelling(at))
    }

    /// Adds a host whose spelling is new.
    pub(crate) fn insert(&mut self, key: &HostLookup, host: Host) {
        self.insert_spelling(key, &host.name, SpellingIndex::Host(index_of(self.hosts.len())));
        self.hosts.push(host);
    }

    /// Adds a host that cannot be used and whose spelling is new.
    pub(crate) fn insert_unusable(&mut self, key: &HostLookup, refused: UnusableHost) {
        self.insert_spelling(
            key,
            &refused.name,
            SpellingIndex::Unusable(index_of(self.unusable.len())),
        );
        self.unusable.push(refused);
    }

    fn insert_spelling(&mut self, key: &HostLookup, name: &HostName, seen: SpellingIndex) {
        let at = index_of(self.spellings.len());
        match key.first {
            None => drop(self.first_by_digest.insert(key.digest, at)),
            Some(_) => drop(self.other_spellings.insert(name.clone(), at)),
        }
        self.spellings.push(seen);
    }

    fn spelling(&self, at: u32) -> Spelling<'_> {
        match self.spellings[at as usize] {
            SpellingIndex::Host(at) => {
                let Host { name, user, span, .. } = &self.hosts[at as usize];
                Spelling { name, user: user.as_ref(), span: *span, host: Some(at as usize) }
            }
            SpellingIndex::Unusable(at) => {
                let UnusableHost { name, user, span } = &self.unusable[at as usize];
                Spelling { name, user: user.as_ref(), span: *span, host: None }
            }
        }
    }
}

fn index_of(count: usize) -> u32 {
    u32::try_from(count).expect("HOSTS_MAX fits into u32")
}

/// A hasher for numbers that are digests already.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_finds_every_spelling() {
        let mut table = HostTable::default();
        let name = |text| HostName::parse(text).expect("a host name");
        for (at, text) in ["a", "b", "A.", "[::1]", "a.b", "[0::1]", "B"].into_iter().enumerate() {
            let (name, span) = (name(text), Span::new(at, at));
            let key = table.look_up(&name);
            table.insert_unusable(&key, UnusableHost { name, user: None, span });
        }
        for (text, first, same) in [
            ("a", Some(0), Some(0)),
            ("a.", Some(0), None),
            ("A.", Some(0), Some(2)),
            ("B", Some(1), Some(6)),
            ("[0::1]", Some(3), Some(5)),
            ("A.B", Some(4), None),
            ("c", None, None),
        ] {
            let key = table.look_up(&name(text));
            let at = |spelling: Spelling<'_>| spelling.span.start;
            assert_eq!(table.first_spelling(&key).map(at), first, "for `{text}`");
            assert_eq!(table.same_spelling(&key).map(at), same, "for `{text}`");
        }
    }
}
