//! Suggestions of host names: a name with another number is another host.

use crate::base::nearest;

/// The nearest host name. A name with another number is another host, not a typing error.
pub(super) fn nearest_host<'a>(
    typed: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let typed_numbers = numbers(typed);
    nearest(typed, candidates.into_iter().filter(|candidate| numbers(candidate) == typed_numbers))
}

/// The numbers of a name without leading zeros, which are often forgotten.
fn numbers(name: &str) -> Vec<&str> {
    let runs = name.split(|letter: char| !letter.is_ascii_digit());
    runs.filter(|run| !run.is_empty()).map(|run| run.trim_start_matches('0')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_host_keeps_numbers() {
        #[track_caller]
        fn check(typed: &str, expect: Option<&str>) {
            let hosts = ["node1", "node2", "rack1-gpu07", "10.0.0.1"];
            assert_eq!(nearest_host(typed, hosts), expect, "for `{typed}`");
        }
        check("node9", None);
        check("node11", None);
        check("node", None);
        check("10.0.0.2", None);
        check("rack2-gpu07", None);
        check("nod1", Some("node1"));
        check("ndoe2", Some("node2"));
        check("node01", Some("node1"));
        check("rack1-gpu7", Some("rack1-gpu07"));
        check("rack1-gpu70", None);
    }
}
