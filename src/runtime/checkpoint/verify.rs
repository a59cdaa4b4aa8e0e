//! Verification of a whole checkpoint: every problem, not only the first.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::base::{lock, order};
use crate::runtime::checkpoint::block_read::BlockPlace;
use crate::runtime::checkpoint::directory::{latest_damage, list};
use crate::runtime::checkpoint::error::{Damage, OpenError};
use crate::runtime::checkpoint::reader::CheckpointReader;
use crate::runtime::checkpoint::threads::on_threads;

/// Checks all bytes of a checkpoint with several threads, and returns all damage, in the order of the files.
///
/// # Errors
/// If the checkpoint cannot be opened at all: it does not exist, or has a newer format.
pub fn verify_checkpoint(path: &Path, threads: usize) -> Result<Vec<Damage>, OpenError> {
    verify_until(path, threads, &|| false).map(|verified| verified.damage)
}

/// What a verification has found.
pub(super) struct Verification {
    /// All damage of the bytes that were checked.
    pub(super) damage: Vec<Damage>,
    /// Whether every byte was checked.
    pub(super) is_complete: bool,
}

/// [`verify_checkpoint`], which checks index and sizes, and then as many bytes as it can before `is_over`.
pub(super) fn verify_until(
    path: &Path,
    threads: usize,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<Verification, OpenError> {
    let reader = match CheckpointReader::open_unchecked(path) {
        Ok(reader) => reader,
        Err(OpenError::Damaged { damage, .. }) => {
            return Ok(Verification { damage, is_complete: true });
        }
        Err(error) => return Err(error),
    };
    let files = 0..reader.index().files.len();
    let sizes: Vec<_> = files.map(|file| reader.checked_files().check_size(file).err()).collect();
    let blocks_of = |file| {
        let numbers = 0..reader.checked_files().blocks(file);
        numbers.map(move |number| BlockPlace { file, number })
    };
    let readable = (0..sizes.len()).filter(|file| sizes[*file].is_none());
    let blocks: Vec<BlockPlace> = readable.flat_map(blocks_of).collect();
    let of_sizes = sizes.into_iter().enumerate();
    let mut found: Vec<(BlockPlace, Damage)> =
        of_sizes.filter_map(|(file, size)| Some((BlockPlace { file, number: 0 }, size?))).collect();
    let taken = AtomicUsize::new(0);
    let next = || if is_over() { None } else { blocks.get(taken.fetch_add(1, Ordering::Relaxed)) };
    found.extend(verify_blocks(&reader, &next, threads.min(blocks.len())));
    order::sort_by_key(&mut found, |(place, _)| *place);
    let damage = join(found.into_iter().map(|(_, damage)| damage));
    Ok(Verification { damage, is_complete: blocks.len() <= taken.into_inner() })
}

/// Checks blocks of files until there is no next one; returns the damaged ones.
fn verify_blocks<'a>(
    reader: &CheckpointReader,
    next: &(dyn Fn() -> Option<&'a BlockPlace> + Sync),
    threads: usize,
) -> Vec<(BlockPlace, Damage)> {
    let found = Mutex::new(Vec::new());
    let work = || {
        let mut scratch = Vec::new();
        while let Some(&place) = next() {
            let checked = reader.checked_files();
            if let Err(damage) = checked.verify_block(reader.index(), place, &mut scratch) {
                lock(&found).push((place, damage));
            }
        }
    };
    on_threads(threads, &work);
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Joins damage of blocks that follow each other, and equal damage.
fn join(all: impl Iterator<Item = Damage>) -> Vec<Damage> {
    let mut joined: Vec<Damage> = Vec::new();
    for damage in all {
        match (joined.last_mut(), damage) {
            (
                Some(Damage::Changed { file, bytes, tensors }),
                Damage::Changed { file: next, bytes: range, tensors: others },
            ) if *file == next && bytes.end == range.start => {
                bytes.end = range.end;
                tensors.extend(others);
                order::sort(tensors);
                tensors.dedup();
            }
            (Some(last), damage) if *last == damage => {}
            (_, damage) => joined.push(damage),
        }
    }
    joined
}

/// Lists the names of the checkpoints of a directory, the oldest first, and damage of its `latest`.
///
/// # Errors
/// If the directory cannot be read, or contains no checkpoint.
pub fn list_checkpoints(dir: &Path) -> Result<(Vec<String>, Option<Damage>), OpenError> {
    let read = |source| OpenError::Read { path: dir.to_owned(), source };
    let entries = list(dir).map_err(read)?;
    if entries.is_empty() {
        return Err(OpenError::Empty { dir: dir.to_owned() });
    }
    let damage = latest_damage(dir).map_err(read)?;
    Ok((entries.into_iter().map(|entry| entry.name).collect(), damage))
}
