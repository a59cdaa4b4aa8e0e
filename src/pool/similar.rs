//! "Did you mean": the nearest of the words that would have been right.

/// The candidate that `typed` most likely stands for; the earlier one when two are as near.
///
/// A third of the letters may be wrong; a difference in case or in surrounding blanks costs
/// nothing.
pub fn nearest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.trim().to_lowercase();
    let budget = 1.max(typed.chars().count() / 3);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(typed.len()) <= budget)
        .map(|candidate| (distance(&typed, &candidate.to_lowercase()), candidate))
        .filter(|(cost, _)| *cost <= budget)
        .min_by_key(|(cost, _)| *cost)
        .map(|(_, candidate)| candidate)
}

/// The same among names of hosts: whoever types another number means another host.
pub(super) fn nearest_host<'a>(
    typed: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let meant = numbers(typed);
    nearest(typed, candidates.into_iter().filter(|candidate| numbers(candidate) == meant))
}

/// Without the zeros in front of them, which are often forgotten.
fn numbers(name: &str) -> Vec<&str> {
    let runs = name.split(|letter: char| !letter.is_ascii_digit());
    runs.filter(|run| !run.is_empty()).map(|run| run.trim_start_matches('0')).collect()
}

/// Letters to insert, remove, replace or swap with their neighbour.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for i in 1..=left.len() {
        let mut row = vec![i];
        for j in 1..=right.len() {
            let replaced = above[j - 1] + usize::from(left[i - 1] != right[j - 1]);
            let mut cost = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if 1 < i && 1 < j && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                cost = cost.min(before[j - 2] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &str, expect: Option<&str>) {
        assert_eq!(nearest(typed, ["worker-0", "worker-1", "gpu"]), expect, "for `{typed}`");
    }

    #[test]
    fn another_number_is_no_slip_of_the_finger() {
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
    fn a_slip_of_the_finger_finds_its_word() {
        check("wroker-1", Some("worker-1"));
        check("WORKER-1", Some("worker-1"));
        check(" worker-1", Some("worker-1"));
        check("worker", Some("worker-0"));
        check("gpuu", Some("gpu"));
        check("login", None);
        check("", None);
    }
}
