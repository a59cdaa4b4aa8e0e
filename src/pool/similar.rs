//! Suggestions of the form "did you mean": the valid word nearest to a typed one.

use strsim::osa_distance;

/// The candidate nearest to `typed`; of two that are as near, the earlier one.
///
/// At most a third of the letters may differ: an insertion, a removal, a replacement and a swap of
/// two neighbours count as one letter each. Case and surrounding blanks are ignored.
pub fn nearest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.trim().to_lowercase();
    let budget = 1.max(typed.chars().count() / 3);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(typed.len()) <= budget)
        .map(|candidate| (osa_distance(&typed, &candidate.to_lowercase()), candidate))
        .filter(|(cost, _)| *cost <= budget)
        .min_by_key(|(cost, _)| *cost)
        .map(|(_, candidate)| candidate)
}

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

    #[track_caller]
    fn check(typed: &str, expect: Option<&str>) {
        assert_eq!(nearest(typed, ["worker-0", "worker-1", "gpu"]), expect, "for `{typed}`");
    }

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

    #[test]
    fn nearest_finds_typing_errors() {
        check("wroker-1", Some("worker-1"));
        check("WORKER-1", Some("worker-1"));
        check(" worker-1", Some("worker-1"));
        check("worker", Some("worker-0"));
        check("gpuu", Some("gpu"));
        check("login", None);
        check("", None);
    }
}
