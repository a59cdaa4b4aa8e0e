//! Names of the files, directories and tensors of checkpoints, as data.

/// Name of the index in the directory of a checkpoint.
pub(super) const INDEX: &str = "index.json";
/// Name of the file that names the newest complete checkpoint of its directory.
pub(super) const LATEST: &str = "latest";
/// Name of the file that names the last checkpoint of a job with restarts.
pub(super) const JOB: &str = "last-of-job";
/// File extension of shards, and of checkpoints of one file.
pub(super) const EXTENSION: &str = "safetensors";

const STEP: &str = "step-";
/// Directories that are not complete checkpoints: being written, or being removed.
const DRAFT: &str = ".draft-";
const REMOVED: &str = ".removed-";
/// Smallest number of digits of a step.
const STEP_DIGITS: usize = 8;
/// Number of digits of a token in a name.
const TOKEN_DIGITS: usize = 16;

/// Separates the name of a parameter from the name of its state.
const STATE: char = '/';

/// Returns the name of a tensor of the optimizer's state for a parameter: `wte.weight/exp_avg`.
pub fn state_tensor(parameter: &str, state: &str) -> String {
    format!("{parameter}{STATE}{state}")
}

/// Splits the name of a tensor into the name of its parameter and, unless it is the parameter itself, that
/// of its state.
pub fn split_tensor(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(STATE) {
        Some((parameter, state)) => (parameter, Some(state)),
        None => (name, None),
    }
}

/// Name of the checkpoint after `step` steps.
pub(super) fn step_name(step: u64) -> String {
    format!("{STEP}{step:0STEP_DIGITS$}")
}

/// Step of a name that [`step_name`] returns.
pub(super) fn parse_step(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(STEP)?;
    let is_number = STEP_DIGITS <= digits.len() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let step = digits.parse().ok().filter(|_| is_number)?;
    // No step has two names.
    (step_name(step) == name).then_some(step)
}

/// Name of the file of a rank.
pub(super) fn shard_name(rank: usize) -> String {
    format!("rank-{rank:05}.{EXTENSION}")
}

/// Whether a file of a checkpoint can have this name.
pub(super) fn is_shard_name(name: &str) -> bool {
    let rank = name.strip_prefix("rank-").and_then(|rest| rest.strip_suffix(".safetensors"));
    rank.is_some_and(|rank| 5 <= rank.len() && rank.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Name of the directory in which the checkpoint of a step is written.
pub(super) fn draft_name(step: u64, token: u64) -> String {
    format!("{DRAFT}{}-{token:0TOKEN_DIGITS$x}", step_name(step))
}

/// Name of the directory of a checkpoint that is being removed.
pub(super) fn removed_name(step: u64, token: u64) -> String {
    format!("{REMOVED}{}-{token:0TOKEN_DIGITS$x}", step_name(step))
}

/// Name of a file that will replace another one.
pub(super) fn draft_file_name(name: &str, token: u64) -> String {
    format!("{DRAFT}{name}-{token:0TOKEN_DIGITS$x}")
}

/// What a save that was interrupted has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnfinishedEntry {
    /// Directory with the files of a checkpoint.
    Directory,
    /// File that would have replaced another one.
    File,
}

/// Recognizes names of [`draft_name`], [`removed_name`] and [`draft_file_name`].
pub(super) fn parse_unfinished(name: &str) -> Option<UnfinishedEntry> {
    let inner = name.strip_prefix(DRAFT).or_else(|| name.strip_prefix(REMOVED))?;
    let (inner, token) = inner.rsplit_once('-')?;
    let is_token = token.len() == TOKEN_DIGITS
        && token.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    match inner {
        _ if !is_token => None,
        LATEST | JOB if name.starts_with(DRAFT) => Some(UnfinishedEntry::File),
        _ => parse_step(inner).map(|_| UnfinishedEntry::Directory),
    }
}

/// Name of the probe of a rank.
pub(super) fn probe_name(token: u64, rank: usize) -> String {
    format!(".probe-{token:0TOKEN_DIGITS$x}-{rank:05}")
}

/// Name of a piece in the file of its rank: that of the tensor, unless it is a part of it.
pub(super) fn piece_name(tensor: &str, range: &std::ops::Range<usize>, len: usize) -> String {
    if range.start == 0 && range.end == len {
        tensor.to_owned()
    } else {
        format!("{tensor}[{}..{}]", range.start, range.end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_steps_are_parsed() {
        #[track_caller]
        fn check(name: &str, expect: Option<u64>) {
            assert_eq!(parse_step(name), expect, "{name}");
        }
        check("step-00000012", Some(12));
        check("step-123456789", Some(123_456_789));
        check("step-012345678", None);
        check("step-12", None);
        check("step-0000001a", None);
        check("step-+0000012", None);
        check("step-99999999999999999999", None);
        check("00000012", None);
    }

    #[test]
    fn only_own_leftovers_are_recognized() {
        #[track_caller]
        fn check(name: &str, expect: Option<UnfinishedEntry>) {
            assert_eq!(parse_unfinished(name), expect, "{name}");
        }
        check(&draft_name(12, 7), Some(UnfinishedEntry::Directory));
        check(&removed_name(12, u64::MAX), Some(UnfinishedEntry::Directory));
        check(&draft_file_name(LATEST, 7), Some(UnfinishedEntry::File));
        check(&draft_file_name(JOB, 7), Some(UnfinishedEntry::File));
        check("step-00000012", None);
        check(".draft-step-00000012", None);
        check(".draft-step-00000012-7", None);
        check(".draft-step-00000012-000000000000000G", None);
        check(".draft-notes-0000000000000007", None);
        check(".removed-latest-0000000000000007", None);
        check("draft-step-00000012-0000000000000007", None);
    }

    #[test]
    fn state_follows_the_name_of_its_parameter() {
        assert_eq!(split_tensor("wte.weight"), ("wte.weight", None));
        let name = state_tensor("wte.weight", "exp_avg");
        assert_eq!(split_tensor(&name), ("wte.weight", Some("exp_avg")));
        assert_eq!(piece_name("a", &(0..6), 6), "a");
        assert_eq!(piece_name("a", &(2..6), 6), "a[2..6]");
    }

    proptest! {
        #[test]
        fn every_step_has_one_name(step: u64, token: u64) {
            prop_assert_eq!(parse_step(&step_name(step)), Some(step));
            prop_assert_eq!(parse_unfinished(&step_name(step)), None);
            prop_assert_eq!(parse_unfinished(&draft_name(step, token)), Some(UnfinishedEntry::Directory));
            prop_assert_eq!(parse_unfinished(&removed_name(step, token)), Some(UnfinishedEntry::Directory));
        }

        #[test]
        fn names_of_shards_are_recognized(rank in 0usize..10_000_000) {
            prop_assert!(is_shard_name(&shard_name(rank)));
        }
    }
}
