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
