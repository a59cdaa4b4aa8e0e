//! [`DiskSpace`]: what a checkpoint needs on a full disk, and what would make room for it. Pure.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::base::show_bytes;

/// Disk on which a checkpoint had no room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSpace {
    /// Directory of the checkpoints.
    pub dir: PathBuf,
    /// Size of the checkpoint; `None`: it was not known yet.
    pub needed: Option<u64>,
    /// Free bytes after its files were removed; `None`: the system does not tell it.
    pub free: Option<u64>,
    /// Number of checkpoints that the run keeps; `None`: all.
    pub keep: Option<NonZeroUsize>,
    /// Size of all checkpoints before the newest one, which is kept until the next one is complete.
    pub older: u64,
}

/// Size of a block of most file systems: a file takes whole ones.
const BLOCK_BYTES: u64 = 4096;

/// Returns what a file of so many bytes takes on a disk, as far as that is known without it.
pub(super) fn on_disk(bytes: u64) -> u64 {
    bytes.saturating_add(BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES
}

impl DiskSpace {
    /// Returns what the user can do: free so many bytes, use another disk, or keep fewer checkpoints if that makes room.
    pub(super) fn help(&self) -> String {
        let Self { needed, free, older, keep, .. } = self;
        let dir = self.dir.display();
        let shown = |bytes: u64| show_bytes(bytes as f64);
        let is_free = free.map(|free| format!("{} are free on the disk of `{dir}`", shown(free)));
        let needs = needed.map(|needed| format!("the checkpoint needs {}", shown(needed)));
        let missing = needed.zip(*free).map(|(needed, free)| needed.saturating_sub(free));
        let facts: Vec<String> = [needs, is_free].into_iter().flatten().collect();
        let more = match missing {
            Some(0) if *needed != Some(0) => "free more there, or raise your quota",
            Some(missing) => &format!("free at least {} more there", shown(missing)),
            None => "delete files on its disk",
        };
        let older_first =
            if makes_room_for(*older, missing) && keep.is_none_or(|keep| 1 < keep.get()) {
                let older = shown(*older);
                format!("; `--resume auto --keep 1` first removes the older checkpoints: {older}")
            } else if keep.is_some() {
                "; the newest checkpoint is kept until the next one is complete".to_owned()
            } else {
                String::new()
            };
        let help = format!("{more}, or use a `--checkpoint_dir` on another disk{older_first}");
        if facts.is_empty() { help } else { format!("{}: {help}", facts.join(", and ")) }
    }
}

/// Whether the older checkpoints are there, and have what is missing, if that is known.
fn makes_room_for(older: u64, missing: Option<u64>) -> bool {
    older != 0 && missing.is_none_or(|missing| missing <= older)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(needed: Option<u64>, free: Option<u64>, keep: usize, older: u64, expected: &str) {
        let keep = NonZeroUsize::new(keep);
        let space = DiskSpace { dir: "kept".into(), needed, free, keep, older };
        assert_eq!(space.help(), expected);
    }

    #[test]
    fn help_says_what_is_missing_and_what_makes_room() {
        let mib = |count: u64| count << 20;
        let facts = "the checkpoint needs 12.0 MiB, and 4.0 MiB are free on the disk of `kept`: free at least 8.0 MiB more \
                     there, or use a `--checkpoint_dir` on another disk";
        let (needed, free) = (Some(mib(12)), Some(mib(4)));
        check(needed, free, 0, 0, facts);
        let kept = "; the newest checkpoint is kept until the next one is complete";
        check(needed, free, 1, 0, &format!("{facts}{kept}"));
        check(needed, free, 2, mib(7), &format!("{facts}{kept}"));
        let fewer = "; `--resume auto --keep 1` first removes the older checkpoints: 12.0 MiB";
        check(needed, free, 0, mib(12), &format!("{facts}{fewer}"));
        check(needed, free, 2, mib(12), &format!("{facts}{fewer}"));
    }

    #[test]
    fn help_says_only_what_is_known() {
        let other = ", or use a `--checkpoint_dir` on another disk";
        check(None, None, 0, 0, &format!("delete files on its disk{other}"));
        let free = "0 B are free on the disk of `kept`: delete files on its disk";
        check(None, Some(0), 0, 0, &format!("{free}{other}"));
        let quota = "the checkpoint needs 5 B, and 9 B are free on the disk of `kept`: free more there, or raise your quota";
        check(Some(5), Some(9), 0, 0, &format!("{quota}{other}"));
    }
}
