//! Disks that are full, and hosts that do not share one.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use remuda::runtime::Group;
use remuda::runtime::checkpoint::{CheckpointWriter, ProblemKind, SaveError, WriterOptions};

use super::runs::names;
use super::worker::Workers;
use crate::checkpoint::test_dir::{TestDir, check_content};
use crate::support::checkpoints::{pieces, save_all, state, tensors};
use crate::support::proof::has;

/// Words before a command that give it a disk of its own at a path.
fn on_own_disk(dir: &Path, size: &str) -> Vec<String> {
    let mount = format!("mount -t tmpfs -o size={size} none \"$0\" && exec \"$@\"");
    let words = ["unshare", "--mount", "sh", "-c", &mount];
    words.into_iter().map(str::to_owned).chain([dir.display().to_string()]).collect()
}

#[test]
fn full_disk_leaves_earlier_checkpoints() {
    if !has("mounts", "full_disk_leaves_earlier_checkpoints") {
        return;
    }
    let scratch = TestDir::new("full");
    let dir = scratch.path("disk");
    fs::create_dir(&dir).expect("a new directory");
    let through = on_own_disk(&dir, "256k");
    let workers = Workers::start(&scratch, "full", &dir, 1, None, &through);
    assert_eq!(workers.results(), [Some("as expected".to_owned())]);
}

/// Runs on a small disk of its own: a save that does not fit, and one that fits again.
pub(super) fn fill_disk(disk: &Path) -> String {
    let dir = disk.join("run");
    Group::on_threads(3, |group| {
        let mut writer = CheckpointWriter::new(group, &dir, WriterOptions::default()).expect("new");
        let mut save = |step| {
            let all = tensors(step);
            writer.save(&state(step, 3), &pieces(&all, group.rank(), 3))
        };
        save(2).expect("there is space");
        group.barrier()?;
        let other = disk.join("other");
        if group.rank() == 0 {
            // All but two blocks: a directory fits, the files of three ranks do not.
            let free = rustix::fs::statvfs(disk).expect("it is mounted");
            let bytes = (free.f_bavail - 2) * free.f_frsize;
            fs::write(&other, vec![7; bytes as usize]).expect("there is space");
        }
        group.barrier()?;
        for _ in 0..2 {
            let error = save(4).expect_err("the disk is full");
            let SaveError::Failed { problems, .. } = &error else { panic!("{error}") };
            assert!(problems.iter().all(|problem| problem.kind == ProblemKind::NoSpace), "{error}");
            assert!(error.to_string().contains(": no space left on device"), "{error}");
            let help = error.help().expect("a full disk has a cure");
            assert!(
                help.starts_with("the checkpoint needs ") && help.contains(" more there, or use "),
                "{help}"
            );
            assert_eq!(names(&dir), ["latest", "step-00000002"]);
            check_content(&dir, 2);
            group.barrier()?;
        }
        if group.rank() == 0 {
            fs::remove_file(&other).expect("it is there");
        }
        group.barrier()?;
        save(6).expect("there is space again");
        check_content(&dir, 6);
        Ok(())
    })
    .expect("no rank fails");
    "as expected".to_owned()
}

/// A run that continues makes room for its first save, and keeps what it has read, and what belongs to another run.
#[test]
fn old_checkpoints_are_removed_before_the_first_save() {
    let scratch = TestDir::new("prune-before");
    let dir = scratch.path("run");
    save_all(2, &dir, &[2, 4, 6, 8]);
    Group::on_threads(2, |group| {
        let options = WriterOptions { keep: NonZeroUsize::new(2), ..WriterOptions::default() };
        let writer = CheckpointWriter::new(group, &dir, options).expect("new");
        let elsewhere = scratch.path("other").join("step-00000006");
        for (loaded, kept) in [
            (elsewhere, &["step-00000002", "step-00000004", "step-00000006", "step-00000008"][..]),
            (dir.join("step-00000006"), &["step-00000004", "step-00000006", "step-00000008"][..]),
        ] {
            assert_eq!(writer.prune_before(&loaded, 6), []);
            group.barrier()?;
            assert_eq!(names(&dir), [&["latest"], kept].concat());
            group.barrier()?;
        }
        Ok(())
    })
    .expect("no rank fails");
    check_content(&dir, 8);
}

#[test]
fn separate_disks_are_found_before_the_first_save() {
    if !has("mounts", "separate_disks_are_found_before_the_first_save") {
        return;
    }
    let scratch = TestDir::new("separate");
    let dir = scratch.path("disk");
    fs::create_dir(&dir).expect("a new directory");
    let through = on_own_disk(&dir, "1m");
    for role in ["probe", "save"] {
        let workers = Workers::start(&scratch, role, &dir, 3, None, &through);
        let shown = dir.display();
        for result in workers.results() {
            let result = result.expect("it was not killed");
            let start = format!("`{shown}` is another directory on ranks 1, 2 (host `");
            assert!(
                result.starts_with(&start) && result.ends_with("`) than on rank 0"),
                "{result}"
            );
        }
    }
    let workers = Workers::start(&scratch, "probe", &scratch.path("shared"), 2, None, &[]);
    assert_eq!(workers.results(), vec![Some("shared".to_owned()); 2]);
}
