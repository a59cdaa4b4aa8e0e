//! Locks of GPUs, so that two jobs do not use the same GPU: a locked file for each GPU, named after
//! its UUID.
//!
//! Agent and shim hold a lock together; it is released when both have exited. Agents of one job do
//! not exclude each other: if one machine simulates several hosts, these share its GPUs. So the
//! file is locked exclusively to write its owner into it, and then stays locked as shared, together
//! with other agents of the same job or with jobs that use `--share`.
//!
//! A lock is advisory between jobs of remuda and no protection: any user who may run programs on
//! the machine may hold such a file for ever, and `--share` ignores it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fmt, io};

use crate::base::{JobId, Slot, Status, UserName, clock, env_vars};
use crate::inventory;
use crate::os::files::shared_file::{self, Lock, SharedFile};
use crate::report::escape_control;
use crate::wire::{GpuLockRequest, Problem};

/// Time allowed for a job that has just exited to release its locks.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of bytes read from a file, which any user may have written.
const RECORD_BYTES_MAX: usize = 512;

/// The GPU locks of a node, and notes for the user.
#[derive(Default)]
pub(super) struct GpuLocks {
    /// Held as long as any worker may run.
    pub(super) locks: Vec<OwnedFd>,
    pub(super) notes: Vec<String>,
}

/// Locks the GPUs of these slots, all or none. Slots without a GPU need no lock.
pub(super) fn lock_gpus(job: &JobId, request: &GpuLockRequest) -> Result<GpuLocks, Vec<Problem>> {
    let mut locks = GpuLocks::default();
    let gpus = inventory::gpu_uuids();
    let wanted: Vec<_> =
        request.slots.iter().filter_map(|slot| Some((*slot, gpus.get(slot.index())?))).collect();
    let Some(dir) = shared_file::directory().filter(|_| !wanted.is_empty()) else {
        return Ok(locks);
    };
    let own = GpuLockHolder::of_this_process(job);
    let deadline = clock::now() + RELEASE_LIMIT;
    let mut problems = Vec::new();
    for (slot, uuid) in wanted {
        match lock_gpu(&dir, uuid, &own, request.share, deadline) {
            Ok(LockAttempt::Locked(file)) => locks.locks.push(file.into_fd()),
            Ok(LockAttempt::Skipped) => {}
            Ok(LockAttempt::InUse(holder)) => problems.push(in_use_problem(slot, uuid, holder)),
            Err(error) => {
                let reason = crate::report::text::show_io_error(&error);
                locks.notes.push(format!("GPU {uuid} is used without a lock: {reason}"));
            }
        }
    }
    if problems.is_empty() { Ok(locks) } else { Err(problems) }
}

fn in_use_problem(slot: Slot, uuid: &str, holder: Option<GpuLockHolder>) -> Problem {
    let holder = holder.map_or_else(|| "another process".to_owned(), |holder| holder.to_string());
    let message = format!("slot {slot} (GPU {uuid}) is used by {holder}");
    Problem::new(Status::Unreachable, message)
        .help("wait until that job exits, leave the slot out, or share the GPU with --share")
}

/// Result of one attempt to lock a GPU.
enum LockAttempt {
    Locked(SharedFile),
    /// Another process holds the lock exclusively, and the job may share: it runs without a lock.
    Skipped,
    /// Another job holds the lock; the record of its owner may be unreadable.
    InUse(Option<GpuLockHolder>),
}

fn lock_gpu(
    dir: &Path,
    uuid: &str,
    own: &GpuLockHolder,
    share: bool,
    deadline: Instant,
) -> io::Result<LockAttempt> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if !uuid.chars().all(is_plain) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its UUID is malformed"));
    }
    let file = SharedFile::open(&dir.join(format!("remuda-{uuid}")))?;
    loop {
        if try_lock_gpu(&file, own, share)? {
            return Ok(LockAttempt::Locked(file));
        }
        if deadline <= clock::now() {
            return Ok(if share {
                LockAttempt::Skipped
            } else {
                LockAttempt::InUse(GpuLockHolder::of(&file))
            });
        }
        std::thread::sleep(PAUSE);
    }
}

fn try_lock_gpu(file: &SharedFile, own: &GpuLockHolder, share: bool) -> io::Result<bool> {
    if file.try_lock(Lock::Exclusive)? {
        // If the owner cannot be written, the lock is held nevertheless.
        let _ = file.replace(own.record().as_bytes());
        // The kernel does not convert locks atomically: another process may have locked the file in
        // between.
        return file.try_lock(Lock::Shared);
    }
    if !file.try_lock(Lock::Shared)? {
        return Ok(false);
    }
    if share || GpuLockHolder::of(file).is_some_and(|holder| holder.is_same_job(own)) {
        return Ok(true);
    }
    file.unlock()?;
    Ok(false)
}

/// The owner of a lock, as written in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GpuLockHolder {
    job: String,
    pid: u32,
    uid: u32,
    user: Option<UserName>,
    /// Seconds since 1970, of the wall clock.
    since_s: u64,
}

impl GpuLockHolder {
    fn of_this_process(job: &JobId) -> Self {
        Self {
            job: job.to_string(),
            pid: rustix::process::getpid().as_raw_pid() as u32,
            uid: rustix::process::geteuid().as_raw(),
            user: env_vars::get_text(env_vars::LOGNAME)
                .and_then(|name| UserName::parse(&name).ok()),
            since_s: clock::wall().as_secs(),
        }
    }

    fn of(file: &SharedFile) -> Option<Self> {
        let bytes = file.read(RECORD_BYTES_MAX).ok()?;
        Self::parse(std::str::from_utf8(&bytes).ok()?)
    }

    fn is_same_job(&self, other: &Self) -> bool {
        (&self.job, self.uid) == (&other.job, other.uid)
    }

    fn record(&self) -> String {
        let Self { job, pid, uid, user, since_s } = self;
        let user = user.as_ref().map_or("", UserName::as_str);
        format!("remuda 1 {job} {pid} {uid} {since_s} {user}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_prefix("remuda 1 ")?.strip_suffix('\n')?.split(' ');
        Some(Self {
            job: words.next().filter(|job| !job.is_empty())?.to_owned(),
            pid: words.next()?.parse().ok()?,
            uid: words.next()?.parse().ok()?,
            since_s: words.next()?.parse().ok()?,
            user: UserName::parse(words.next()?).ok(),
        })
    }
}

impl fmt::Display for GpuLockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, pid, uid, user, since_s } = self;
        let user = user.as_ref().map_or_else(|| format!("uid {uid}"), ToString::to_string);
        let job = escape_control(job);
        let age = clock::wall().saturating_sub(Duration::from_secs(*since_s));
        let age = crate::report::text::show_duration(Duration::from_secs(age.as_secs()));
        write!(f, "job {job} of {user} (agent pid {pid}, for {age})")
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const UUID: &str = "GPU-00000000-1111-2222-3333-444444444444";

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("remuda-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).expect("a directory");
        dir
    }

    fn try_lock_now(dir: &Path, job: &str, share: bool) -> LockAttempt {
        let own = GpuLockHolder::of_this_process(&JobId(job.to_owned()));
        lock_gpu(dir, UUID, &own, share, clock::now()).expect("the directory is writable")
    }

    fn hold(dir: &Path, job: &str, share: bool) -> SharedFile {
        match try_lock_now(dir, job, share) {
            LockAttempt::Locked(file) => file,
            LockAttempt::Skipped | LockAttempt::InUse(_) => panic!("{job} cannot lock it"),
        }
    }

    #[track_caller]
    fn refused(dir: &Path, job: &str) -> Option<String> {
        match try_lock_now(dir, job, false) {
            LockAttempt::InUse(holder) => holder.map(|holder| holder.job),
            LockAttempt::Locked(_) | LockAttempt::Skipped => panic!("{job} could lock it"),
        }
    }

    #[test]
    fn second_job_gets_name_of_the_gpu_holder() {
        let dir = scratch("gpu-lock-second");
        let first = hold(&dir, "one", false);
        assert_eq!(refused(&dir, "two").as_deref(), Some("one"));
        let again = hold(&dir, "one", false);
        drop(first);
        assert_eq!(refused(&dir, "two").as_deref(), Some("one"), "its other agent holds it");
        drop(again);
        let second = hold(&dir, "two", false);
        assert_eq!(refused(&dir, "one").as_deref(), Some("two"));
        drop(second);
        std::fs::remove_dir_all(dir).expect("writable");
    }

    #[test]
    fn shared_gpu_lock_blocks_exclusive_jobs() {
        let dir = scratch("gpu-lock-share");
        let first = hold(&dir, "one", false);
        let sharer = hold(&dir, "two", true);
        drop(first);
        assert!(matches!(try_lock_now(&dir, "three", false), LockAttempt::InUse(_)));
        drop(sharer);
        drop(hold(&dir, "three", false));
        std::fs::remove_dir_all(dir).expect("writable");
    }

    #[test]
    fn share_skips_gpu_file_locked_by_another_process() {
        let dir = scratch("gpu-lock-foreign");
        let foreign = SharedFile::open(&dir.join(format!("remuda-{UUID}"))).expect("made");
        assert!(foreign.try_lock(Lock::Exclusive).expect("flock works"));
        foreign.replace(b"\x1b]0;owned\x07 remuda 1 one\n").expect("writable");
        assert_eq!(refused(&dir, "one"), None, "the record is unreadable");
        assert!(matches!(try_lock_now(&dir, "one", true), LockAttempt::Skipped));
        std::fs::remove_dir_all(dir).expect("writable");
    }

    #[test]
    fn gpu_lock_record_is_parsed_strictly() {
        let own = GpuLockHolder::of_this_process(&JobId("abcd2345".to_owned()));
        assert_eq!(GpuLockHolder::parse(&own.record()), Some(own));
        for text in ["", "remuda 1 \n", "remuda 1 a b c d e\n", "remuda 2 a 1 2 3 ada\n", "\n"] {
            assert_eq!(GpuLockHolder::parse(text), None, "for {text:?}");
        }
    }

    #[test]
    fn gpu_uuid_with_a_path_is_refused() {
        let own = GpuLockHolder::of_this_process(&JobId("one".to_owned()));
        assert!(lock_gpu(Path::new("/tmp"), "../x", &own, false, clock::now()).is_err());
    }
}
