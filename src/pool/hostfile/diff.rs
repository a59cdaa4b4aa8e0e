//! Differences between two pools.

use std::collections::HashMap;

use crate::pool::hostfile::hosts::Host;

/// One difference; nodes are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference<'a> {
    /// Only in the second pool.
    Added(&'a Host),
    /// Only in the first pool.
    Removed(&'a Host),
    /// In both, with different slots: the host of the first pool, then that of the second.
    Slots(&'a Host, &'a Host),
    /// In both, at a different position among the common hosts: the node in the first pool and in
    /// the second.
    Moved(&'a Host, usize, usize),
}

/// Differences from the first pool to the second: removed hosts, then the others in the order of
/// the second pool.
pub fn diff<'a>(first: &'a [Host], second: &'a [Host]) -> Vec<Difference<'a>> {
    let index = |hosts: &'a [Host]| -> HashMap<&'a str, usize> {
        hosts.iter().enumerate().map(|(node, host)| (host.name.as_str(), node)).collect()
    };
    let (in_first, in_second) = (index(first), index(second));
    let removed = first.iter().filter(|host| !in_second.contains_key(host.name.as_str()));
    let mut found: Vec<Difference<'a>> = removed.map(Difference::Removed).collect();
    // The common host at this position in the first pool.
    let mut common = first.iter().filter(|host| in_second.contains_key(host.name.as_str()));
    for (node, host) in second.iter().enumerate() {
        let Some(before) = in_first.get(host.name.as_str()) else {
            found.push(Difference::Added(host));
            continue;
        };
        if first[*before].slots != host.slots {
            found.push(Difference::Slots(&first[*before], host));
        }
        if common.next().is_none_or(|expected| expected.name != host.name) {
            found.push(Difference::Moved(host, *before, node));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::read;

    #[track_caller]
    fn check(first: &str, second: &str, expect: &[&str]) {
        let (first, _) = read("first", first.as_bytes());
        let (second, _) = read("second", second.as_bytes());
        let show = |found: &Difference<'_>| match found {
            Difference::Added(host) => format!("+{}", host.name),
            Difference::Removed(host) => format!("-{}", host.name),
            Difference::Slots(left, right) => {
                format!("{} {}>{}", left.name, left.slots.get(), right.slots.get())
            }
            Difference::Moved(host, from, to) => format!("{} @{from}>{to}", host.name),
        };
        let found = diff(first.hosts(), second.hosts());
        assert_eq!(found.iter().map(show).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn diff_reports_added_removed_changed_and_moved() {
        check("a slots=1\nb slots=1\n", "a slots=1\nb slots=1 # x\n", &[]);
        check("a slots=1\nb slots=1\n", "b slots=2\nc slots=1\n", &["-a", "b 1>2", "+c"]);
        check("a slots=1\nb slots=1\n", "b slots=1\na slots=1\n", &["b @1>0", "a @0>1"]);
        check("a slots=1\nb slots=1\n", "x slots=1\na slots=1\nb slots=1\n", &["+x"]);
    }
}
