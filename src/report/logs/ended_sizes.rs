//! Sizes of the directories of runs that have ended, kept in a file beside them. A start then
//! examines only the runs that are new, and not the files of a hundred runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::private_files::replace_private;
use crate::base::order;

const FILE: &str = ".ended_runs";
/// Name of the file while it is written.
const DRAFT: &str = ".ended_runs.new";

/// Bytes of every directory of a run that has ended, by the directory's name.
pub(super) struct EndedSizes {
    parent: PathBuf,
    /// As read from the file.
    saved: BTreeMap<String, u64>,
    /// Those of directories that still exist.
    current: BTreeMap<String, u64>,
}

impl EndedSizes {
    /// Reads the file of `parent`. Without a file, or for lines that cannot be read, the sizes are
    /// unknown.
    pub(super) fn read(parent: &Path) -> Self {
        let text = fs::read_to_string(parent.join(FILE)).unwrap_or_default();
        // A line without its end was not written completely.
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let saved = lines.filter_map(|line| {
            let (bytes, name) = line.split_once(' ')?;
            Some((name.to_owned(), bytes.parse().ok()?))
        });
        Self { parent: parent.to_owned(), saved: order::map(saved), current: BTreeMap::new() }
    }

    /// Returns the size of a directory that was recorded when its run had ended.
    pub(super) fn get(&mut self, name: &str) -> Option<u64> {
        let bytes = *self.saved.get(name)?;
        self.insert(name, bytes);
        Some(bytes)
    }

    /// Records the size of a directory whose run has ended.
    pub(super) fn insert(&mut self, name: &str, bytes: u64) {
        self.current.insert(name.to_owned(), bytes);
    }

    /// Writes the sizes of the directories that were asked for or recorded. If that fails, the next
    /// start examines the directories again.
    pub(super) fn save(self) {
        if self.current == self.saved {
            return;
        }
        let lines = self.current.iter().map(|(name, bytes)| format!("{bytes} {name}\n"));
        let text = lines.collect::<Vec<_>>().concat();
        let (file, draft) = (self.parent.join(FILE), self.parent.join(DRAFT));
        let _ = replace_private(&file, &draft, text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_sizes_are_read_as_written_but_for_broken_lines() {
        let parent = std::env::temp_dir().join(format!("remuda-sizes-{}", std::process::id()));
        fs::create_dir(&parent).expect("a directory for the test");
        let mut sizes = EndedSizes::read(&parent);
        assert_eq!(sizes.get("a"), None, "there is no file yet");
        sizes.insert("a", 17 << 30);
        sizes.insert("b", 0);
        sizes.save();
        let mut sizes = EndedSizes::read(&parent);
        assert_eq!((sizes.get("a"), sizes.get("c")), (Some(17 << 30), None));
        sizes.save();
        let mut sizes = EndedSizes::read(&parent);
        assert_eq!(sizes.get("b"), None, "its directory was not asked for: it is gone");
        fs::write(parent.join(FILE), "x a\n5 b\n1234 c").expect("a file");
        let mut sizes = EndedSizes::read(&parent);
        assert_eq!([sizes.get("a"), sizes.get("b"), sizes.get("c")], [None, Some(5), None]);
        fs::remove_dir_all(parent).expect("the directory of the test");
    }
}
