//! Several checkpoints and several runs in one directory.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use remuda::runtime::checkpoint::{
    CheckpointWriter, DirectoryLock, LoadChoice, OpenError, SaveError, SaveStage, SavedState,
    TensorPiece, WriterOptions, Writers, check_shared_directory, last_of_job, load_checkpoint,
    open_newest,
};
use remuda::runtime::{Group, ReduceOp};

use crate::checkpoint::test_dir::{TestDir, check_content};
use crate::support::checkpoints::{pieces, save_all, save_steps, state, tensors};

/// Names in a directory, sorted.
pub(super) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("it is there").map(|entry| entry.expect("it is read"));
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn oldest_checkpoints_are_removed() {
    let dir = TestDir::new("keep");
    // Of another run, and of an earlier version.
    save_all(2, &dir.0, &[20]);
    fs::write(dir.path("step-00000001.safetensors"), "").expect("it is written");
    let options = || WriterOptions {
        keep: NonZeroUsize::new(2),
        job: Some("j".to_owned()),
        ..WriterOptions::default()
    };
    for reports in save_steps(3, &dir.0, &[2, 4, 6], options) {
        let reports = reports.expect("it is saved");
        let removed: Vec<_> = reports.iter().flat_map(|report| report.removed.clone()).collect();
        assert_eq!(removed, [dir.path("step-00000001.safetensors"), dir.path("step-00000002")]);
        assert!(reports.iter().all(|report| report.not_removed.is_empty()));
    }
    let expect = ["last-of-job", "latest", "step-00000004", "step-00000006", "step-00000020"];
    assert_eq!(names(&dir.0), expect);
    check_content(&dir.0, 6);
    assert_eq!(last_of_job(&dir.0, "j"), Some(dir.path("step-00000006")));
    assert_eq!(last_of_job(&dir.0, "other"), None);
}

/// A checkpoint in which the user has put a file is kept as a whole.
#[test]
fn checkpoint_with_other_files_is_not_removed() {
    let dir = TestDir::new("other-files");
    save_all(1, &dir.0, &[2]);
    fs::write(dir.path("step-00000002/notes.txt"), "precious").expect("it is written");
    let options = || WriterOptions { keep: NonZeroUsize::new(1), ..WriterOptions::default() };
    let reports = save_steps(1, &dir.0, &[4], options).swap_remove(0).expect("it is saved");
    let kept = [(dir.path("step-00000002"), "it contains `notes.txt`".to_owned())];
    assert_eq!(reports[0].not_removed, kept);
    check_content(&dir.path("step-00000002"), 2);
}

#[test]
fn checkpoint_of_the_same_step_is_exchanged() {
    let dir = TestDir::new("again");
    save_all(3, &dir.0, &[2, 4]);
    save_all(1, &dir.0, &[2]);
    assert_eq!(names(&dir.path("step-00000002")), ["index.json", "rank-00000.safetensors"]);
    assert_eq!(names(&dir.0), ["latest", "step-00000002", "step-00000004"]);
    // The run went back to this step.
    check_content(&dir.0, 2);
}

#[test]
fn equal_runs_write_equal_files() {
    let (a, b) = (TestDir::new("equal-a"), TestDir::new("equal-b"));
    for dir in [&a, &b] {
        save_all(3, &dir.0, &[12]);
    }
    for name in names(&a.path("step-00000012")) {
        let read = |dir: &TestDir| fs::read(dir.path("step-00000012").join(&name)).expect("a file");
        assert!(read(&a) == read(&b), "{name}");
    }
    assert_eq!(
        fs::read(a.path("latest")).expect("a file"),
        fs::read(b.path("latest")).expect("a file")
    );
}

#[test]
fn directory_has_one_run_at_a_time() {
    let dir = TestDir::new("lock");
    let lock = DirectoryLock::claim(&dir.0).expect("it is free");
    for outcome in save_steps(3, &dir.0, &[2], WriterOptions::default) {
        let error = outcome.expect_err("it is in use");
        assert!(matches!(error, SaveError::InUse { .. }), "{error}");
    }
    assert_eq!(names(&dir.0), [""; 0]);
    drop(lock);
    save_all(3, &dir.0, &[2]);
    // The program has claimed the directory before it joined the group.
    let lock = DirectoryLock::claim(&dir.0).expect("it is free again");
    let lock = std::sync::Mutex::new(Some(lock));
    let options = || {
        let lock = lock.lock().expect("no test panics").take();
        WriterOptions { lock, ..WriterOptions::default() }
    };
    save_steps(1, &dir.0, &[4], options).swap_remove(0).expect("it is saved");
}

/// Leftovers are removed by their names; what has other names or other files is not.
#[test]
fn leftovers_of_killed_runs_are_removed() {
    let dir = TestDir::new("leftovers");
    let own = [
        ".draft-step-00000002-0123456789abcdef",
        ".removed-step-00000002-0123456789abcdef",
        ".draft-step-00000004-00000000000000ff",
    ];
    let other = [".draft-step-00000002", "draft-step-00000002-0123456789abcdef", ".drafts"];
    for name in own.iter().chain(&other) {
        fs::create_dir(dir.path(name)).expect("a new directory");
        fs::write(dir.path(name).join("rank-00000.safetensors"), "").expect("it is written");
    }
    fs::write(dir.path(own[2]).join("notes.txt"), "precious").expect("it is written");
    fs::write(dir.path(".draft-latest-0123456789abcdef"), "").expect("it is written");
    save_all(2, &dir.0, &[6]);
    let expect =
        [own[2], other[0], other[2], other[1], "latest", "step-00000006"].map(str::to_owned);
    let mut expect = expect.to_vec();
    expect.sort();
    assert_eq!(names(&dir.0), expect);
    let kept = names(&dir.path(own[2]));
    assert_eq!(kept, ["notes.txt", "rank-00000.safetensors"]);
}

/// All ranks get the same words, whichever rank has the problem, and the directory is as before.
#[test]
fn all_ranks_get_the_same_error() {
    let dir = TestDir::new("same-error");
    save_all(3, &dir.0, &[2]);
    let errors = Group::on_threads(3, |group| {
        let mut writer =
            CheckpointWriter::new(group, &dir.0, WriterOptions::default()).expect("a writer");
        let all = tensors(4);
        let mut own = pieces(&all, group.rank(), 3);
        if group.rank() == 1 {
            own.remove(3);
        }
        let first = writer.save(&state(4, 3), &own).expect_err("a piece is missing").to_string();
        let mut own = pieces(&all, group.rank(), 3);
        if group.rank() == 2 {
            own[0].range.end += 1;
        }
        writer.start_save(&state(4, 3), &own);
        let second = writer.finish().pop().expect("one").expect_err("a range is wrong").to_string();
        let state = if group.rank() == 2 { state(5, 3) } else { state(4, 3) };
        let third = writer.save(&SavedState { step: 4, ..state }, &pieces(&all, group.rank(), 3));
        Ok([first, second, third.expect_err("a state differs").to_string()])
    });
    let path = dir.path("step-00000004");
    let expect = [
        "rank 0 on host `localhost`: elements 64..128 of `h.0.weight` are in no rank's pieces",
        "rank 2 on host `localhost`: the range 69..105 is not within `wte.weight` (f32 [13, 8])",
        "rank 2 on host `localhost`: the state besides the tensors differs from that of rank 0",
    ];
    let expect = expect.map(|text| format!("cannot save checkpoint `{}`: {text}", path.display()));
    assert_eq!(errors.expect("the group does not fail"), vec![expect; 3]);
    assert_eq!(names(&dir.0), ["latest", "step-00000002"]);
    check_content(&dir.0, 2);
}

#[test]
fn ranks_without_pieces_write_no_files() {
    let dir = TestDir::new("first-rank");
    Group::on_threads(3, |group| {
        let options = WriterOptions { writers: Writers::FirstRank, ..WriterOptions::default() };
        let mut writer = CheckpointWriter::new(group, &dir.0, options).expect("a writer");
        let all = tensors(2);
        let own = if group.rank() == 0 { pieces(&all, 0, 1) } else { Vec::new() };
        let report = writer.save(&state(2, 3), &own).expect("it is saved");
        assert_eq!(report.path, dir.path("step-00000002"));
        Ok(())
    })
    .expect("no rank fails");
    assert_eq!(names(&dir.path("step-00000002")), ["index.json", "rank-00000.safetensors"]);
    check_content(&dir.0, 2);
}

/// Saves run beside operations of the training, of any number and in any order relative to the save.
#[test]
fn training_continues_while_a_save_runs() {
    let dir = TestDir::new("beside");
    let during = AtomicUsize::new(0);
    Group::on_threads(3, |group| {
        let (sender, gate) = std::sync::mpsc::channel::<()>();
        let gate = std::sync::Mutex::new(gate);
        let wait = move |stage| {
            if stage == SaveStage::Written {
                // Until the training has made its steps.
                let _ = gate.lock().expect("no test panics").recv();
            }
        };
        let options = WriterOptions { on_stage: Some(Arc::new(wait)), ..WriterOptions::default() };
        let mut writer = CheckpointWriter::new(group, &dir.0, options).expect("a writer");
        let mut all = tensors(2);
        let started = writer.start_save(&state(2, 3), &pieces(&all, group.rank(), 3));
        assert!(0 < started.bytes);
        for _ in 0..20 {
            // The training changes the values that are being saved.
            for (_, values) in &mut all {
                values.fill(0.0);
            }
            let mut sum = [1i32];
            group.all_reduce(&mut sum, ReduceOp::Sum)?;
            during.fetch_add(sum[0] as usize, Ordering::Relaxed);
        }
        assert!(writer.poll().is_empty(), "the save waits");
        drop(sender);
        group.barrier()?;
        let outcomes = writer.finish();
        assert_eq!(outcomes.len(), 1);
        for outcome in outcomes {
            outcome.expect("it is saved");
        }
        assert!(writer.finish().is_empty());
        Ok(())
    })
    .expect("no rank fails");
    assert_eq!(during.into_inner(), 20 * 3 * 3);
    check_content(&dir.0, 2);
}

/// A writer that is dropped finishes; starting a second save waits for the first.
#[test]
fn started_saves_are_finished_in_order() {
    let dir = TestDir::new("in-order");
    let outcomes = Group::on_threads(2, |group| {
        let mut writer =
            CheckpointWriter::new(group, &dir.0, WriterOptions::default()).expect("a writer");
        for step in [2, 4] {
            let all = tensors(step);
            writer.start_save(&state(step, 2), &pieces(&all, group.rank(), 2));
        }
        let first: Vec<u64> =
            writer.poll().into_iter().map(|saved| saved.expect("it is saved").step).collect();
        Ok(first)
    });
    for first in outcomes.expect("no rank fails") {
        assert!(first.starts_with(&[2]), "{first:?}");
    }
    assert_eq!(names(&dir.0), ["latest", "step-00000002", "step-00000004"]);
    check_content(&dir.path("step-00000002"), 2);
    check_content(&dir.0, 4);
}

#[test]
fn directory_without_checkpoints_is_an_error() {
    let dir = TestDir::new("none");
    let texts = Group::on_threads(2, |group| {
        let load = |path: &Path| {
            load_checkpoint(group, path, LoadChoice::NewestValid, |_| Ok(()))
                .expect_err("there is none")
                .to_string()
        };
        check_shared_directory(group, &dir.path("new")).expect("it is created");
        Ok([load(&dir.0), load(&dir.path("missing"))])
    });
    assert_eq!(names(&dir.path("new")), [""; 0]);
    let shown = dir.0.display();
    let expect = [
        format!("there is no checkpoint in `{shown}`"),
        format!("cannot read checkpoint `{shown}/missing`: no such file or directory"),
    ];
    assert_eq!(texts.expect("the group does not fail"), vec![expect; 2]);
}

#[test]
fn requests_outside_of_tensors_are_errors() {
    let dir = TestDir::new("requests");
    save_all(2, &dir.0, &[2]);
    let reader = open_newest(&dir.0, LoadChoice::Exact, 2).expect("it is valid").reader;
    let check = |name: &str, range: std::ops::Range<usize>, length: usize, expect: &str| {
        let error = reader.read(name, range, &mut vec![0.0; length]).expect_err("it is refused");
        assert!(matches!(error, OpenError::Request { .. }));
        let expect = format!("checkpoint `{}`: {expect}", dir.path("step-00000002").display());
        assert_eq!(error.to_string(), expect);
    };
    check("wte", 0..1, 1, "there is no tensor `wte`");
    check("h.0.bias", 20..25, 5, "the range 20..25 is not within `h.0.bias` (f32 [24])");
    check("h.0.bias", 20..24, 5, "4 elements of `h.0.bias` into 5");
    reader.read("h.0.bias", 7..7, &mut []).expect("nothing is read");
}

/// Values of pieces need not be aligned as their type is.
#[test]
fn pieces_of_bytes_need_no_alignment() {
    let dir = TestDir::new("unaligned");
    let group = Group::single().expect("a group");
    let mut writer =
        CheckpointWriter::new(&group, &dir.0, WriterOptions::default()).expect("a writer");
    let bytes: Vec<u8> = (0..41).collect();
    let whole = TensorPiece::new("a", &[10], 0..0, &[0f32; 0]);
    let piece = TensorPiece { range: 0..10, bytes: &bytes[1..], ..whole };
    writer.save(&SavedState::default(), &[piece]).expect("it is saved");
    let reader = open_newest(&dir.0, LoadChoice::Exact, 1).expect("it is valid").reader;
    let mut read = vec![0; 40];
    reader.read_bytes("a", 0..10, &mut read).expect("it is read");
    assert_eq!(read, bytes[1..]);
}
