//! What many hosts said, said once where it is the same. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// Of each stream that is gathered.
const GATHERED_BYTES_MAX: usize = 16 << 20;

/// What one worker wrote to one stream, up to a bound.
#[derive(Default)]
pub struct Gathered {
    text: Vec<u8>,
    lost_bytes: u64,
}

impl Gathered {
    /// Keeps what there is room for.
    pub fn push(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(GATHERED_BYTES_MAX - self.text.len());
        self.text.extend_from_slice(&bytes[..kept]);
        self.lost_bytes += (bytes.len() - kept) as u64;
    }

    /// What was kept.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// How much was not.
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }
}

/// Names folded as ClusterShell folds them, `node[1-4,7]`, in the order in which they first come.
pub fn fold_names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for name in names {
        let (prefix, digits, suffix) = split(name);
        // More digits than a number holds are a name like any other.
        let number = digits.parse::<u64>().ok().filter(|_| digits.len() < 16);
        let width = if 1 < digits.len() && digits.starts_with('0') { digits.len() } else { 0 };
        let fits = |group: &&mut Group<'_>| {
            let same = group.prefix == prefix && group.suffix == suffix;
            same && number.is_some() && group.takes(width, digits.len())
        };
        match (groups.iter_mut().find(fits), number) {
            (Some(group), Some(number)) => {
                group.numbers.insert(number);
            }
            (_, number) => groups.push(Group {
                prefix,
                suffix,
                digits,
                width,
                numbers: number.into_iter().collect(),
            }),
        }
    }
    groups.iter().map(Group::show).collect::<Vec<_>>().join(",")
}

/// Names that differ in one number.
struct Group<'a> {
    prefix: &'a str,
    suffix: &'a str,
    digits: &'a str,
    /// Of numbers with leading zeros; 0 without.
    width: usize,
    numbers: BTreeSet<u64>,
}

impl Group<'_> {
    /// `08` goes on as `09`, `10`; `8` goes on as `9`, `10`.
    /// A name without a number stays alone.
    fn takes(&self, width: usize, digits: usize) -> bool {
        let fits = self.width == width || width == 0 && self.width == digits;
        fits && !self.numbers.is_empty()
    }

    fn show(&self) -> String {
        let (prefix, suffix, width) = (self.prefix, self.suffix, self.width);
        if self.numbers.len() < 2 {
            return format!("{prefix}{}{suffix}", self.digits);
        }
        let numbers: Vec<u64> = self.numbers.iter().copied().collect();
        let runs = numbers.chunk_by(|left, right| left + 1 == *right).map(|run| match run {
            [first, .., last] => format!("{first:0width$}-{last:0width$}"),
            [only] => format!("{only:0width$}"),
            [] => String::new(),
        });
        format!("{prefix}[{}]{suffix}", runs.collect::<Vec<_>>().join(","))
    }
}

/// Around the last number of a name; an address is not taken apart.
fn split(name: &str) -> (&str, &str, &str) {
    let is_address = name.starts_with('[') || name.parse::<std::net::IpAddr>().is_ok();
    let Some(last) = name.rfind(|c: char| c.is_ascii_digit()).filter(|_| !is_address) else {
        return (name, "", "");
    };
    let first = name[..=last].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    (&name[..first], &name[first..=last], &name[last + 1..])
}

/// Groups what is the same, in the order of the first of each: names folded, how many, what.
pub fn fold<'a, T: Ord + Clone>(
    said: impl IntoIterator<Item = (&'a str, T)>,
) -> Vec<(String, usize, T)> {
    let mut order: Vec<(T, Vec<&str>)> = Vec::new();
    let mut places: BTreeMap<T, usize> = BTreeMap::new();
    for (name, what) in said {
        let place = *places.entry(what.clone()).or_insert(order.len());
        match order.get_mut(place) {
            Some((_, names)) => names.push(name),
            None => order.push((what, vec![name])),
        }
    }
    let show = |(what, names): (T, Vec<&str>)| {
        let count = names.len();
        (fold_names(names), count, what)
    };
    order.into_iter().map(show).collect()
}

/// Outputs below the names of their hosts; nothing of hosts that said nothing.
pub fn show_gathered(said: &[(&str, &[u8])]) -> Vec<u8> {
    const RULE: &str = "---------------";
    let spoke = said.iter().filter(|(_, text)| !text.is_empty()).copied();
    let mut out = Vec::new();
    for (names, count, text) in fold(spoke) {
        let count = if count == 1 { String::new() } else { format!(" ({count})") };
        out.extend_from_slice(format!("{RULE}\n{names}{count}\n{RULE}\n").as_bytes());
        out.extend_from_slice(text);
        if !text.ends_with(b"\n") {
            out.push(b'\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], expect: &str) {
        assert_eq!(fold_names(names.iter().copied()), expect);
    }

    #[test]
    fn names_are_folded_around_their_last_number() {
        check(&["node1", "node2", "node3", "node4"], "node[1-4]");
        check(&["node1", "node3", "node4", "login"], "node[1,3-4],login");
        check(&["n08", "n09", "n10", "n11"], "n[08-11]");
        check(&["n9", "n10"], "n[9-10]");
        check(&["n1", "n01"], "n1,n01");
        check(&["r1n1-ib", "r1n2-ib", "r2n1-ib"], "r1n[1-2]-ib,r2n1-ib");
        check(&["b2", "a1", "b1"], "b[1-2],a1");
        check(&["10.0.0.1", "10.0.0.2"], "10.0.0.1,10.0.0.2");
        check(&["localhost"], "localhost");
        check(&["x99999999999999999999", "x1"], "x99999999999999999999,x1");
        check(&[], "");
    }

    #[test]
    fn what_is_the_same_is_said_once() {
        let said: [(&str, &[u8]); 5] =
            [("n1", b"a\n"), ("n2", b"b"), ("n3", b"a\n"), ("n4", b""), ("n5", b"a\n")];
        assert_eq!(
            String::from_utf8_lossy(&show_gathered(&said)),
            "---------------\nn[1,3,5] (3)\n---------------\na\n---------------\nn2\n---------------\nb\n"
        );
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let mut gathered = Gathered::default();
        for _ in 0..17 {
            gathered.push(&vec![b'x'; 1 << 20]);
        }
        assert_eq!(gathered.text().len(), GATHERED_BYTES_MAX);
        assert_eq!(gathered.lost_bytes(), 1 << 20);
    }
}
