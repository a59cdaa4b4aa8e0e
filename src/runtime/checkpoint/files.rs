//! Files of a checkpoint, opened when they are read. What is read is checked by the digests of its blocks.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::show_io_error;
use crate::os::files::input_file::open_regular;
use crate::os::files::writeback::start_reading;
use crate::runtime::checkpoint::digest::BlockDigest;
use crate::runtime::checkpoint::error::Damage;
use crate::runtime::checkpoint::index::CheckpointIndex;
use crate::runtime::checkpoint::shard;

/// Largest number of files that are open at a time: a process may have no more than 1024.
const OPEN_MAX: usize = 64;
/// Bytes that the kernel reads while those before them are checked.
const AHEAD_BYTES: u64 = 16 << 20;
/// Bytes in which the header of a file is looked for, to recognize a file in the wrong place.
const HEAD_BYTES: u64 = 16 << 20;

/// Files of a checkpoint.
pub(super) struct CheckpointFiles {
    dir: PathBuf,
    block_bytes: u64,
    files: Vec<CheckedFile>,
    /// Open files, the last used one at the end.
    open: Mutex<VecDeque<(usize, Arc<File>)>>,
}

/// File with digests of its blocks, or without if it was checked as a whole.
struct CheckedFile {
    name: String,
    bytes: u64,
    blocks: Vec<Block>,
}

struct Block {
    digest: BlockDigest,
    is_valid: AtomicBool,
}

impl CheckpointFiles {
    pub(super) fn new(dir: &Path, index: &CheckpointIndex) -> Self {
        let file = |file: &super::index::IndexedFile| CheckedFile {
            name: file.name.clone(),
            bytes: file.bytes,
            blocks: file
                .blocks
                .iter()
                .map(|digest| Block { digest: *digest, is_valid: AtomicBool::new(false) })
                .collect(),
        };
        Self {
            dir: dir.to_owned(),
            block_bytes: index.block_bytes,
            files: index.files.iter().map(file).collect(),
            open: Mutex::default(),
        }
    }

    /// Number of blocks of a file.
    pub(super) fn blocks(&self, file: usize) -> usize {
        self.files[file].blocks.len()
    }

    /// Damage that the size of a file shows.
    pub(super) fn check_size(&self, file: usize) -> Result<(), Damage> {
        let CheckedFile { name, bytes, .. } = &self.files[file];
        let path = self.dir.join(name);
        let found = match std::fs::metadata(&path) {
            Ok(found) => found.len(),
            Err(error) => return Err(self.unreadable(file, &error)),
        };
        if found == *bytes {
            return Ok(());
        }
        self.check_origin(file)?;
        Err(Damage::Size { file: name.clone(), bytes: found, expected: *bytes })
    }

    /// Reads a range of a file that begins at `offset`; `index` names the tensors of damaged blocks.
    pub(super) fn read(
        &self,
        index: &CheckpointIndex,
        file: usize,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), Damage> {
        let CheckedFile { bytes, blocks, .. } = &self.files[file];
        let opened = self.open(file)?;
        let read = |out: &mut [u8], at| {
            opened.read_exact_at(out, at).map_err(|error| self.unreadable(file, &error))
        };
        let mut rest = out;
        let mut at = offset;
        let end = offset + rest.len() as u64;
        while !rest.is_empty() {
            let number = (at / self.block_bytes) as usize;
            let block_start = number as u64 * self.block_bytes;
            let block_end = (block_start + self.block_bytes).min(*bytes);
            let (now, later) = rest.split_at_mut((rest.len() as u64).min(block_end - at) as usize);
            rest = later;
            let next = at + now.len() as u64;
            start_reading(&opened, &(next..end.min(next + AHEAD_BYTES)));
            let block = blocks.get(number);
            let unchecked = block.filter(|block| !block.is_valid.load(Ordering::Relaxed));
            match unchecked {
                None => read(now, at)?,
                Some(block) if at == block_start && next == block_end => {
                    read(now, at)?;
                    self.check_block(index, (file, number), block, now)?;
                }
                Some(block) => {
                    let mut whole = vec![0; (block_end - block_start) as usize];
                    read(&mut whole, block_start)?;
                    self.check_block(index, (file, number), block, &whole)?;
                    let start = (at - block_start) as usize;
                    now.copy_from_slice(&whole[start..start + now.len()]);
                }
            }
            at = next;
        }
        Ok(())
    }

    /// Checks a block; `scratch` is memory for it.
    pub(super) fn verify_block(
        &self,
        index: &CheckpointIndex,
        file: usize,
        number: usize,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Damage> {
        let start = number as u64 * self.block_bytes;
        let length = self.block_bytes.min(self.files[file].bytes - start);
        scratch.resize(length as usize, 0);
        self.read(index, file, start, scratch)
    }

    fn check_block(
        &self,
        index: &CheckpointIndex,
        place: (usize, usize),
        block: &Block,
        bytes: &[u8],
    ) -> Result<(), Damage> {
        if BlockDigest::of(bytes) == block.digest {
            block.is_valid.store(true, Ordering::Relaxed);
            return Ok(());
        }
        let (file, number) = place;
        self.check_origin(file)?;
        let start = number as u64 * self.block_bytes;
        let bytes = start..start + bytes.len() as u64;
        let tensors = index.tensors_in(file, &bytes);
        Err(Damage::Changed { file: self.files[file].name.clone(), bytes, tensors })
    }

    /// Fails if the header of a file says that it belongs elsewhere.
    fn check_origin(&self, file: usize) -> Result<(), Damage> {
        let name = &self.files[file].name;
        let mut beginning = Vec::new();
        let opened = File::open(self.dir.join(name));
        let read = opened.and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut beginning));
        let origin = read.ok().and_then(|_| shard::origin(&beginning));
        let own = super::names::parse_step(&self.dir_name());
        match origin {
            Some((step, rank))
                if super::names::shard_name(rank) != *name
                    || own.is_some_and(|own| own != step) =>
            {
                Err(Damage::Foreign { file: name.clone(), step, rank })
            }
            _ => Ok(()),
        }
    }

    fn dir_name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn unreadable(&self, file: usize, error: &io::Error) -> Damage {
        let CheckedFile { name, bytes: expected, .. } = &self.files[file];
        let (file, expected) = (name.clone(), *expected);
        match error.kind() {
            io::ErrorKind::NotFound => Damage::Missing { file },
            io::ErrorKind::UnexpectedEof => {
                let bytes = std::fs::metadata(self.dir.join(name)).map_or(0, |found| found.len());
                Damage::Size { file, bytes, expected }
            }
            _ => Damage::Unreadable { file, reason: show_io_error(error) },
        }
    }

    fn open(&self, file: usize) -> Result<Arc<File>, Damage> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = open.iter().position(|(known, _)| *known == file) {
            let entry = open.remove(at).expect("it was found");
            let opened = entry.1.clone();
            open.push_back(entry);
            return Ok(opened);
        }
        let path = self.dir.join(&self.files[file].name);
        let opened = open_regular(&path).map_err(|error| self.unreadable(file, &error))?;
        let opened = Arc::new(opened);
        if OPEN_MAX <= open.len() {
            open.pop_front();
        }
        open.push_back((file, opened.clone()));
        Ok(opened)
    }
}
