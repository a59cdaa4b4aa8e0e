//! Runs that are started again: with more steps, with none left, from a damaged checkpoint.

use std::fs;
use std::path::Path;

use super::{SMALL, digest, losses, stderr_of};
use crate::support::scratch::{Scratch, text};

/// A run of `steps` steps whose learning rate falls, and that saves every second step.
fn line(steps: u64) -> String {
    format!(
        "{SMALL} --eval_every 0 --warmup 2 --lr 0.01 --steps {steps} --checkpoint_dir kept --save_every 2"
    )
}

#[test]
fn other_length_of_the_schedule_is_told_at_resume() {
    let scratch = Scratch::new("train", "longer");
    scratch.succeed(&line(10));
    let shown = stderr_of(&scratch, &format!("{} --resume auto --dry-run", line(20)));
    let note = "note: the learning rate falls until step 20 (`--steps`), when the checkpoint was saved until step 10, \
                so that of step 11 is 6.28e-3 instead of 1.00e-3\nhelp: `--decay_steps 10` keeps the old schedule\n";
    assert!(shown.contains(note), "{shown}");
    let shown = stderr_of(&scratch, &format!("{} --resume auto --decay_steps 10", line(12)));
    assert!(!shown.contains("learning rate"), "{shown}");
    // The same schedule, so the steps of one run.
    let whole = line(12).replace("kept", "whole");
    scratch.succeed(&format!("{whole} --decay_steps 10"));
    scratch.succeed(&format!("{} --decay_steps 10 --resume kept --metrics m", line(14)));
    let whole = line(14).replace("kept", "whole");
    scratch.succeed(&format!("{whole} --decay_steps 10 --resume whole --metrics n"));
    assert_eq!(digest(&scratch, "m"), digest(&scratch, "n"));
    let shown = scratch.run_other("checkpoint", "show kept");
    let schedule = "schedule    14 optimizer steps; the learning rate falls until step 10";
    assert!(text(&shown.stdout).contains(schedule), "{}", text(&shown.stdout));
}

/// A file that fixes the schedule keeps it, whatever `--steps` is; one that leaves it open is as no file.
#[test]
fn schedule_of_a_file_is_told_only_if_it_follows_the_steps() {
    let scratch = Scratch::new("train", "longer-file");
    let write = |total: &str| {
        let schedule = format!(
            "{{\"type\": \"WarmupDecayLR\", \"params\": {{\"total_num_steps\": {total}, \"warmup_num_steps\": 2}}}}"
        );
        let optimizer = "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}";
        let file = format!(
            "{{\"train_batch_size\": 4, \"optimizer\": {optimizer}, \"scheduler\": {schedule}}}"
        );
        scratch.write("ds.json", file);
    };
    let line = |steps| {
        format!("{SMALL} --eval_every 0 --steps {steps} --checkpoint_dir kept --config ds.json")
    };
    for (total, note) in
        [("8", None), ("\"auto\"", Some("`--decay_steps 4` keeps the old schedule"))]
    {
        write(total);
        let _ = fs::remove_dir_all(scratch.path("kept"));
        scratch.succeed(&line(4));
        let shown = stderr_of(&scratch, &format!("{} --resume auto", line(6)));
        assert_eq!(shown.contains("the learning rate falls"), note.is_some(), "{total}: {shown}");
        assert!(note.is_none_or(|note| shown.contains(note)), "{total}: {shown}");
    }
    write("8");
    let refused = scratch.run(&format!("{} --resume auto --decay_steps 9", line(7)));
    let shown = text(&refused.stderr);
    let expected = "`--decay_steps 9` contradicts `scheduler.params.total_num_steps` of `ds.json`, which has 8";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn complete_run_that_is_started_again_has_nothing_to_do() {
    let scratch = Scratch::new("train", "complete");
    let line = format!("{} --resume auto --metrics m", line(4));
    scratch.succeed(&line);
    let metrics = fs::read(scratch.path("m")).expect("metrics");
    let again = scratch.run(&line);
    let note = "note: nothing to do: step 4 of 4 is reached: `kept/step-00000004`\nhelp: `--steps 8` continues\n";
    assert_eq!((&*text(&again.stderr), again.status.code()), (note, Some(0)));
    assert_eq!(fs::read(scratch.path("m")).expect("metrics"), metrics);
    let fewer = scratch.run(&line.replace("--steps 4", "--steps 3"));
    let note = "note: nothing to do: step 4 is reached, and `--steps` is 3: `kept/step-00000004`\n";
    assert!(text(&fewer.stderr).starts_with(note), "{}", text(&fewer.stderr));
    // Without its last record, the run writes it.
    let steps = text(&metrics);
    let (steps, _) = steps.trim_end().rsplit_once('\n').expect("a record after the steps");
    scratch.write("m", format!("{steps}\n"));
    let shown = scratch.succeed(&line);
    assert!(
        shown.contains("nothing to do: step 4 of 4 is reached; `--steps 8` continues\n"),
        "{shown}"
    );
    assert_eq!(losses(&scratch, "m").len(), 5);
}

/// Damages a file of a checkpoint.
fn flip_last_byte(file: &Path) {
    let mut bytes = fs::read(file).expect("a checkpoint");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(file, bytes).expect("it is written");
}

/// The damage is found by the workers; they report it once, with the checkpoint that can be used.
#[test]
fn damage_is_told_once_with_the_newest_undamaged_checkpoint() {
    let scratch = Scratch::new("train", "flipped");
    let line = |steps| line(steps).replace("--num_gpus 2", "--num_gpus 4");
    scratch.succeed(&line(6));
    flip_last_byte(&scratch.path("kept/step-00000006/rank-00000.safetensors"));
    let check = |dir: &str, more: &str, help: &str| {
        let refused = scratch.run(&format!("{} {more}", line(8).replace("kept", dir)));
        let shown = text(&refused.stderr);
        let damaged = "error[F002]: checkpoint `kept/step-00000006` is damaged: `rank-00000.safetensors` was changed";
        // Rank 0 alone prints it; the report of the job repeats its last lines.
        let count = |begin: &str| shown.lines().filter(|line| line.starts_with(begin)).count();
        assert_eq!((count(damaged), count(help.trim_end())), (1, 1), "{shown}");
        assert!(shown.contains("error[R101]: rank 0 "), "{shown}");
        assert!(!shown.contains("lost their connection"), "{shown}");
        let to_continue = "(newest undamaged checkpoint: step 4)\n";
        assert_eq!(shown.ends_with(to_continue), dir == "kept", "{shown}");
        assert_eq!(refused.status.code(), Some(65), "{shown}");
    };
    let found = "help: the newest undamaged checkpoint has step 4";
    let of_auto = format!("{found}, `kept/step-00000004`: `--resume auto` continues from it\n");
    check("kept", "--resume kept", &of_auto);
    let of_path = format!("{found}: `--resume kept/step-00000004` continues from it\n");
    check("other", "--resume kept/step-00000006", &of_path);
    // What the help says works.
    let shown = scratch.succeed(&format!("{} --resume auto", line(8)));
    assert!(shown.contains("resuming after step 4 from `kept/step-00000004`"), "{shown}");
}

#[test]
fn damage_of_the_only_checkpoint_is_told_with_what_is_left() {
    let scratch = Scratch::new("train", "only");
    let line = |steps| line(steps).replace("--save_every 2", "");
    scratch.succeed(&line(2));
    flip_last_byte(&scratch.path("kept/step-00000002/rank-00000.safetensors"));
    let refused = scratch.run(&format!("{} --resume kept", line(4)));
    let shown = text(&refused.stderr);
    let help = "\nhelp: there is no undamaged checkpoint beside it: ";
    assert_eq!(shown.matches(help).count(), 1, "{shown}");
    assert_eq!(refused.status.code(), Some(65), "{shown}");
}
