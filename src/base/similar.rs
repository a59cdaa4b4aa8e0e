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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &str, expect: Option<&str>) {
        assert_eq!(nearest(typed, ["worker-0", "worker-1", "gpu"]), expect, "for `{typed}`");
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
