//! The checkpoints of a directory, and which of them a run continues from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::base::order;
use crate::base::show_io_error;
use crate::runtime::checkpoint::digest::BlockDigest;
use crate::runtime::checkpoint::error::{Damage, OpenError};
use crate::runtime::checkpoint::names::{EXTENSION, INDEX, LATEST, parse_step};

/// Checkpoints that are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadChoice {
    /// The one that is named, or that `latest` of the directory names. If it is damaged, that is an error.
    Exact,
    /// If it is damaged, the newest earlier one that is not.
    NewestValid,
}

/// Checkpoint of a directory: a directory, or a file of earlier builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedEntry {
    pub(super) step: u64,
    pub(super) name: String,
}

/// Lists the checkpoints of a directory, the newest last.
pub(super) fn list(dir: &Path) -> io::Result<Vec<SavedEntry>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let is_dir = entry.path().is_dir();
        let stem = if is_dir { Some(&*name) } else { name.strip_suffix(&format!(".{EXTENSION}")) };
        if let Some(step) = stem.and_then(parse_step) {
            found.push((step, is_dir, name));
        }
    }
    order::sort(&mut found);
    Ok(found.into_iter().map(|(step, _, name)| SavedEntry { step, name }).collect())
}

/// Returns whether a directory is a checkpoint, complete or damaged, and not a directory of checkpoints.
pub fn is_checkpoint(dir: &Path) -> bool {
    let dir = with_name(dir);
    let name = dir.file_name().and_then(|name| name.to_str());
    dir.is_dir() && (name.and_then(parse_step).is_some() || dir.join(INDEX).is_file())
}

/// Checkpoints that are tried, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadCandidates {
    /// Directory of the checkpoints.
    pub(super) dir: PathBuf,
    /// Names in the directory, at least one.
    pub(super) names: Vec<String>,
    /// What the user may want to know.
    pub(super) notes: Vec<String>,
}

/// The path, or the absolute one if it ends in `.` or `..`.
pub(super) fn with_name(path: &Path) -> PathBuf {
    let absolute = if path.file_name().is_none() { path.canonicalize().ok() } else { None };
    absolute.unwrap_or_else(|| path.to_owned())
}

/// Finds the checkpoints that a path refers to: one checkpoint, or those of a directory.
pub(super) fn find(path: &Path, choice: LoadChoice) -> Result<LoadCandidates, OpenError> {
    let read = |path: &Path, source| OpenError::Read { path: path.to_owned(), source };
    let path = &with_name(path);
    let is_dir = fs::metadata(path).map_err(|source| read(path, source))?.is_dir();
    let name = path.file_name().and_then(|name| name.to_str());
    if is_dir && !is_checkpoint(path) {
        return find_in(path, choice);
    }
    let (Some(dir), Some(name)) = (path.parent(), name) else {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "it has no name");
        return Err(read(path, source));
    };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let mut names = vec![name.to_owned()];
    if is_dir && choice == LoadChoice::NewestValid {
        let entries = list(dir).map_err(|source| read(dir, source))?;
        names.extend(earlier(&entries, name));
    }
    Ok(LoadCandidates { dir: dir.to_owned(), names, notes: Vec::new() })
}

fn find_in(dir: &Path, choice: LoadChoice) -> Result<LoadCandidates, OpenError> {
    let read = |source| OpenError::Read { path: dir.to_owned(), source };
    let entries = list(dir).map_err(read)?;
    let Some(newest) = entries.last() else {
        return Err(OpenError::Empty { dir: dir.to_owned() });
    };
    let newest_first = || entries.iter().rev().map(|entry| entry.name.clone());
    let (mut names, mut notes) = (Vec::new(), Vec::new());
    match named_by_latest(dir, &entries) {
        Ok(Some(name)) => {
            names.extend(earlier(&entries, &name));
            names.insert(0, name);
        }
        Ok(None) => {
            if dir.join(&newest.name).is_dir() {
                let (dir, newest) = (dir.display(), &newest.name);
                notes.push(format!(
                    "`{dir}` has no `{LATEST}`: `{newest}` is the newest checkpoint"
                ));
            }
            names.extend(newest_first());
        }
        Err(reason) => {
            let damage = Damage::Invalid { file: LATEST.to_owned(), reason };
            if choice == LoadChoice::Exact {
                return Err(OpenError::Damaged { path: dir.to_owned(), damage: vec![damage] });
            }
            notes.push(format!("{damage}; `{}` is the newest checkpoint", newest.name));
            names.extend(newest_first());
        }
    }
    if choice == LoadChoice::Exact {
        names.truncate(1);
    }
    Ok(LoadCandidates { dir: dir.to_owned(), names, notes })
}

/// Names of the checkpoints of earlier steps than that of `name`, the newest first.
fn earlier(entries: &[SavedEntry], name: &str) -> Vec<String> {
    let step = entries.iter().find(|entry| entry.name == name).map(|entry| entry.step);
    let before = entries.iter().rev().filter(|entry| step.is_some_and(|step| entry.step < step));
    before.map(|entry| entry.name.clone()).collect()
}

/// Name in `latest`, if there is one; an error says why it cannot be used.
fn named_by_latest(dir: &Path, entries: &[SavedEntry]) -> Result<Option<String>, String> {
    let text = match fs::read_to_string(dir.join(LATEST)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(show_io_error(&error)),
    };
    let name = parse_latest(&text)?;
    if entries.iter().any(|entry| entry.name == name) {
        return Ok(Some(name.to_owned()));
    }
    Err(format!("it names `{}`, which does not exist", name.escape_default()))
}

/// Content of `latest`: a name, and its digest.
pub(super) fn latest_text(name: &str) -> String {
    format!("{name}\nsha256 {}\n", BlockDigest::of(name.as_bytes()))
}

/// Reads `latest`. If the user has written it, there is no digest.
fn parse_latest(text: &str) -> Result<&str, String> {
    let (name, rest) = text.split_once('\n').unwrap_or((text, ""));
    let is_valid = rest.is_empty() || latest_text(name) == text;
    if name.trim().is_empty() {
        Err("it is empty".to_owned())
    } else if is_valid {
        Ok(name.trim())
    } else {
        let name = name.escape_default();
        Err(format!(
            "its second line is not the SHA-256 of its first line, `{name}`; if that name is correct, \
             remove the second line"
        ))
    }
}

/// Damage of `latest` of a directory with checkpoints, if it is damaged.
pub(super) fn latest_damage(dir: &Path) -> io::Result<Option<Damage>> {
    let reason = named_by_latest(dir, &list(dir)?).err();
    Ok(reason.map(|reason| Damage::Invalid { file: LATEST.to_owned(), reason }))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        /// A directory with these directories and files, each with a name, and a text if it is a file.
        fn new(test: &str, content: &[(&str, Option<&str>)]) -> Self {
            let name = format!("remuda-checkpoints-{test}-{}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            fs::create_dir(&dir).expect("a new directory");
            for (name, text) in content {
                match text {
                    Some(text) => fs::write(dir.join(name), text).expect("it is written"),
                    None => fs::create_dir(dir.join(name)).expect("a new directory"),
                }
            }
            Self(dir)
        }

        #[track_caller]
        fn check(&self, inside: &str, choice: LoadChoice, expect: &[&str], notes: usize) {
            let found = find(&self.0.join(inside), choice).expect("there are checkpoints");
            assert_eq!((found.names, found.notes.len()), (expect.map_owned(), notes), "{inside}");
            assert_eq!(found.dir.join(""), self.0.join(""));
        }
    }

    trait MapOwned {
        fn map_owned(&self) -> Vec<String>;
    }

    impl MapOwned for [&str] {
        fn map_owned(&self) -> Vec<String> {
            self.iter().map(|text| (*text).to_owned()).collect()
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const THREE: [(&str, Option<&str>); 6] = [
        ("step-00000002.safetensors", Some("")),
        ("step-00000004", None),
        ("step-00000006", None),
        ("step-00000008", None),
        (".draft-step-00000009-0000000000000001", None),
        ("notes.txt", Some("")),
    ];

    #[test]
    fn latest_is_tried_before_earlier_checkpoints() {
        use LoadChoice::{Exact, NewestValid};
        let dir = Dir::new("latest", &THREE);
        let all = ["step-00000008", "step-00000006", "step-00000004", "step-00000002.safetensors"];
        dir.check("", Exact, &all[..1], 1);
        dir.check("", NewestValid, &all, 1);
        fs::write(dir.0.join(LATEST), latest_text("step-00000006")).expect("it is written");
        dir.check("", Exact, &all[1..2], 0);
        dir.check("", NewestValid, &all[1..], 0);
        fs::write(dir.0.join(LATEST), "step-00000004").expect("it is written");
        dir.check("", NewestValid, &all[2..], 0);
        dir.check("step-00000006", Exact, &all[1..2], 0);
        dir.check("step-00000006", NewestValid, &all[1..], 0);
        dir.check(all[3], NewestValid, &all[3..], 0);
    }

    #[test]
    fn damaged_latest_is_an_error_or_a_note() {
        let dir = Dir::new("damaged", &THREE);
        let flipped = latest_text("step-00000006").replacen('6', "4", 1);
        for bad in ["", "\n", "global_step4\n", "../step-00000004", &flipped] {
            fs::write(dir.0.join(LATEST), bad).expect("it is written");
            assert!(find(&dir.0, LoadChoice::Exact).is_err(), "{bad:?}");
            let all =
                ["step-00000008", "step-00000006", "step-00000004", "step-00000002.safetensors"];
            dir.check("", LoadChoice::NewestValid, &all, 1);
        }
    }

    #[test]
    fn every_flipped_bit_of_latest_is_found() {
        let text = latest_text("step-00000012").into_bytes();
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let Ok(flipped) = String::from_utf8(flipped) else { continue };
            // Without an end of its first line it is a name that no checkpoint has.
            let found = parse_latest(&flipped);
            assert!(found.is_err() || found.is_ok_and(|name| parse_step(name).is_none()), "{bit}");
        }
    }

    #[test]
    fn directories_without_checkpoints_are_errors() {
        let empty = Dir::new("empty", &[("notes.txt", Some(""))]);
        let found = find(&empty.0, LoadChoice::NewestValid);
        assert!(matches!(found, Err(OpenError::Empty { .. })), "{found:?}");
        let found = find(&empty.0.join("none"), LoadChoice::NewestValid);
        assert!(matches!(found, Err(OpenError::Read { .. })), "{found:?}");
    }
}
