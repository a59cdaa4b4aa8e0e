//! Files that are complete or absent after a crash: written beside, synced, renamed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{CWD, FallocateFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::os::files::writeback::start_writeback;
use crate::runtime::checkpoint::digest::{BlockDigest, digest_blocks};
use crate::runtime::checkpoint::names::{
    INDEX, UnfinishedEntry, draft_file_name, is_shard_name, parse_unfinished,
};

/// Bytes that are written at once, after which the kernel is asked to begin with the disk.
const WRITE_BYTES: usize = 8 << 20;
/// Parts below this size are joined before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes a new file that consists of these parts; it is not synced yet. The digests of its blocks are computed
/// at the same time, by a thread of its own.
pub(super) fn write_shard(
    path: &Path,
    parts: &[&[u8]],
    block_bytes: u64,
) -> io::Result<(File, Vec<BlockDigest>)> {
    thread::scope(|scope| {
        let digests = thread::Builder::new()
            .name("remuda-digest".to_owned())
            .spawn_scoped(scope, || digest_blocks(parts, block_bytes));
        let file = write_parts(path, parts)?;
        let digests = match digests {
            Ok(thread) => thread.join().expect("digests are computed without panics"),
            // There are no more threads.
            Err(_) => digest_blocks(parts, block_bytes),
        };
        Ok((file, digests))
    })
}

fn write_parts(path: &Path, parts: &[&[u8]]) -> io::Result<File> {
    let file = File::create_new(path)?;
    let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
    reserve(&file, bytes)?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, &file);
    let (mut written, mut started) = (0u64, 0u64);
    for chunk in parts.iter().flat_map(|part| part.chunks(WRITE_BYTES)) {
        writer.write_all(chunk)?;
        written += chunk.len() as u64;
        if WRITE_BYTES as u64 <= written - started {
            start_writeback(&file, &(started..written));
            started = written;
        }
    }
    writer.flush()?;
    drop(writer);
    Ok(file)
}

/// Reserves the space of a file, so that a full disk is found before anything is written.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes.max(1)) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
        // Some file systems cannot reserve.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a new file and syncs it.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Replaces a file of a directory: it has either its old or its new content, whatever happens.
pub(super) fn replace_file(dir: &Path, name: &str, bytes: &[u8], token: u64) -> io::Result<()> {
    let draft = dir.join(draft_file_name(name, token));
    let outcome = write_synced(&draft, bytes).and_then(|()| fs::rename(&draft, dir.join(name)));
    if outcome.is_err() {
        // If it remains, the next save removes it.
        let _ = fs::remove_file(&draft);
    }
    outcome?;
    sync_dir(dir)
}

/// Syncs the names in a directory.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Renames a directory. If the new name is taken, the two are exchanged; returns whether that was so.
pub(super) fn rename_dir(from: &Path, to: &Path) -> io::Result<bool> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(false),
        Err(Errno::EXIST) => {
            renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE)?;
            Ok(true)
        }
        // Some file systems have no such renames; `to` must then be free.
        Err(Errno::INVAL | Errno::NOSYS) => {
            if fs::symlink_metadata(to).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to).map(|()| false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes the directory of a checkpoint. If it contains other files, nothing is removed.
pub(super) fn remove_checkpoint(dir: &Path) -> io::Result<()> {
    for path in own_files(dir)? {
        fs::remove_file(path)?;
    }
    fs::remove_dir(dir)
}

/// Files of the directory of a checkpoint; an error if there are others.
pub(super) fn own_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_own = name.to_str().is_some_and(|name| name == INDEX || is_shard_name(name));
        if !is_own || entry.file_type()?.is_dir() {
            return Err(io::Error::other(format!("it contains `{}`", name.display())));
        }
        files.push(entry.path());
    }
    Ok(files)
}

/// Removes what interrupted saves have left in a directory; the caller holds its lock.
pub(super) fn remove_leftovers(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        // What cannot be removed does not prevent a save.
        let _ = match name.to_str().and_then(parse_unfinished) {
            Some(UnfinishedEntry::Directory) => remove_checkpoint(&entry.path()),
            Some(UnfinishedEntry::File) => fs::remove_file(entry.path()),
            None => Ok(()),
        };
    }
    Ok(())
}
