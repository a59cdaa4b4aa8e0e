//! `remuda train` in pods: one is killed and replaced, and the loss continues
//! unchanged.

use std::fs;
use std::path::Path;

use crate::pods::cluster::{Cluster, can_run, kill};
use crate::support::launch::{Launch, REMUDA, workers};
use crate::support::wait_for;

const STEPS: usize = 150;

/// The same training, wherever it runs.
fn train(launch: Launch, dir: &Path) -> Launch {
    let sizes = "--model gpt --layers 1 --heads 2 --width 16 --block 8 --batch_size 1 --steps 150";
    let often = "--eval_every 0 --save_every 10";
    let launch = launch.program([REMUDA, "train"]).program(sizes.split(' '));
    let launch = launch.program(often.split(' ')).program(["--checkpoint_dir"]).program([dir]);
    launch.program(["--metrics"]).program([dir.join("metrics")])
}

/// The last checkpoint, and what was noted of every step: of one that was taken twice, the last.
fn result(dir: &Path) -> (Vec<u8>, Vec<serde_json::Value>) {
    // A rank without a part of this small model has no file.
    let shard = |rank| dir.join(format!("step-00000150/rank-0000{rank}.safetensors"));
    let last: Vec<u8> = (0..6).filter_map(|rank| fs::read(shard(rank)).ok()).flatten().collect();
    assert!(!last.is_empty(), "the last step was saved");
    let metrics = fs::read(dir.join("metrics")).expect("it noted every step");
    let mut steps = vec![serde_json::Value::Null; STEPS];
    for line in String::from_utf8_lossy(&metrics).lines() {
        let note: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if let (Some(step), Some(_)) = (note["step"].as_u64(), note.get("loss")) {
            steps[step as usize - 1] = note["loss"].clone();
        }
    }
    (last, steps)
}

#[test]
fn killed_training_pod_is_replaced_with_equal_results() {
    if !can_run("killed_training_pod_is_replaced_with_equal_results") {
        return;
    }
    let cluster = Cluster::new(3);
    let (undisturbed, kept) = (cluster.file("undisturbed"), cluster.file("kept"));
    fs::create_dir_all(&undisturbed).expect("a directory");
    fs::create_dir_all(&kept).expect("a directory");
    // Where its workers run does not matter to a bit.
    drop(train(workers(6), &undisturbed).end().code(0));
    let pod = |rank| {
        let pod = cluster.pod(rank, 3).options(["--num_gpus=2", "--max_restarts=1"]);
        train(pod, &kept).start()
    };
    let [first, second, third] = [0, 1, 2].map(pod);
    let is_saved = || kept.join("step-00000020").exists().then_some(());
    wait_for("two checkpoints", is_saved);
    kill(second);
    first.wait_for_error("; restart 1 of 1");
    let replaced = pod(1);
    let first = first.end().code(0);
    let resumed = first.stdout_text().lines().find(|line| line.contains("resuming after step"));
    assert!(resumed.is_some(), "it started from step 1: {first:#?}");
    replaced.end().code(0);
    third.end().code(0);
    let ((ours, our_losses), (theirs, their_losses)) = (result(&kept), result(&undisturbed));
    assert_eq!(our_losses, their_losses);
    assert!(our_losses.iter().all(serde_json::Value::is_number), "{our_losses:?}");
    assert!(ours == theirs, "the models differ");
}
