//! Whole training runs: results are bit-identical for every split over workers, micro-batches, threads and
//! buckets; runs resume from checkpoints; and the files that a run writes.
#![cfg(feature = "train")]

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;

use remuda::base::Status;
use remuda::runtime::Group;
use remuda::runtime::engine::{EngineConfig, EngineError};
use remuda::runtime::optim::{AdamOptions, LrSchedule, Optimizer, Schedule};
use remuda::train::{
    AttentionChoice, CheckpointOptions, CorpusError, GptArchitecture, GptOptions, MlpOptions,
    ModelOptions, RunEnd, ScalarFormat, ScalarNames, ScalarOutput, Threads, TrainError, TrainEvent,
    TrainOptions, TrainOutcome, train,
};

const STEPS: u64 = 20;

fn count(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).expect("at least one")
}

fn gpt() -> ModelOptions {
    ModelOptions::Gpt(GptOptions {
        architecture: GptArchitecture::Plain,
        block: 12,
        layers: 2,
        heads: 2,
        attention: AttentionChoice::Auto,
        width: 16,
        data: Vec::new(),
        vocabulary: None,
    })
}

fn mlp() -> ModelOptions {
    ModelOptions::Mlp(MlpOptions { inputs: 24, layers: 2, width: 40, classes: 5 })
}

fn options(model: ModelOptions) -> TrainOptions {
    TrainOptions {
        model,
        batch_size: count(3),
        engine: EngineConfig {
            optimizer: Optimizer::Adam(AdamOptions {
                betas: [0.9, 0.99],
                weight_decay: 0.1,
                ..Default::default()
            }),
            schedule: rates(STEPS, 4),
            clip: Some(0.25),
            seed: 7,
            ..EngineConfig::default()
        },
        steps: STEPS,
        seed: 7,
        threads: Threads::ONE,
        eval_every: None,
        checkpoint: None,
        resume: None,
        start: None,
        metrics: None,
        plot: None,
        scalars: Vec::new(),
        may_start_fresh: false,
    }
}

/// Learning rates of a run.
fn rates(steps: u64, warmup: u64) -> LrSchedule {
    LrSchedule::HalfCosine(Schedule { rate: 1e-2, rate_min: 1e-3, warmup, steps })
}

/// The same options with another number of micro-batches.
fn accumulating(accumulate: usize, options: TrainOptions) -> TrainOptions {
    TrainOptions { engine: EngineConfig { accumulate, ..options.engine }, ..options }
}

/// Runs one worker; returns the outcome and the events.
fn run_alone(options: &TrainOptions) -> (Result<TrainOutcome, TrainError>, Vec<TrainEvent>) {
    let group = Group::single().expect("a group of one rank");
    let mut events = Vec::new();
    let outcome = train(&group, options, &|| false, &mut |event| events.push(event.clone()));
    (outcome, events)
}

/// Runs `world` workers on threads; returns their common digest.
#[track_caller]
fn digest_of(world: usize, options: &TrainOptions) -> String {
    digest_on(&[world], options)
}

/// Same as [`digest_of`] on several simulated nodes: ranks of a node share memory, nodes use TCP.
#[track_caller]
fn digest_on(ranks_of_nodes: &[usize], options: &TrainOptions) -> String {
    let groups = Group::threads_on(ranks_of_nodes).expect("a group on threads");
    let digests: Vec<String> = thread::scope(|scope| {
        let worker = |group| scope.spawn(move || train(&group, options, &|| false, &mut |_| ()));
        let workers: Vec<_> = groups.into_iter().map(worker).collect();
        let outcomes = workers.into_iter().map(|worker| worker.join().expect("no panic"));
        outcomes.map(|outcome| outcome.expect("the run succeeds").digest).collect()
    });
    assert!(digests.iter().all(|digest| *digest == digests[0]), "workers disagree");
    digests[0].clone()
}

#[track_caller]
fn check_split(model: &ModelOptions, world: usize, accumulate: usize) {
    let with = |accumulate| accumulating(accumulate, options(model.clone()));
    let split = digest_of(world, &with(accumulate));
    let alone = digest_of(1, &with(world * accumulate));
    assert_eq!(split, alone, "{world} workers accumulating {accumulate}, {model:?}");
}

#[test]
fn workers_give_the_same_bits_as_accumulation() {
    for world in 1..=4 {
        for accumulate in [1, 2, 4] {
            check_split(&gpt(), world, accumulate);
            check_split(&mlp(), world, accumulate);
        }
    }
}

#[test]
fn nodes_change_no_bit() {
    for model in [gpt(), mlp()] {
        let alone = accumulating(4, options(model.clone()));
        let expected = digest_of(1, &alone);
        for ranks_of_nodes in [&[2, 2][..], &[1, 3], &[3, 1], &[1, 1, 1, 1]] {
            assert_eq!(digest_on(ranks_of_nodes, &options(model.clone())), expected);
        }
        let two = accumulating(2, options(model));
        assert_eq!(digest_on(&[1, 1], &two), expected);
    }
}

/// Checks that a change of options changes no bit of the result.
#[track_caller]
fn check_same(change: impl Fn(&mut TrainOptions)) {
    for model in [gpt(), mlp()] {
        let plain = accumulating(2, options(model));
        let mut changed = plain.clone();
        change(&mut changed);
        assert_eq!(digest_of(2, &plain), digest_of(2, &changed), "{changed:?}");
    }
}

#[test]
fn thread_count_changes_no_bit() {
    check_same(|options| options.threads = Threads::new(count(2)));
    check_same(|options| options.threads = Threads::new(count(3)));
}

#[test]
fn evaluation_changes_no_bit() {
    check_same(|options| options.eval_every = Some(3));
}

#[test]
fn seed_clip_and_optimizer_change_the_result() {
    let digest = |change: fn(&mut TrainOptions)| {
        let mut changed = options(gpt());
        change(&mut changed);
        digest_of(1, &changed)
    };
    let plain = digest(|_| ());
    assert_ne!(plain, digest(|options| options.engine.seed = 8));
    assert_ne!(plain, digest(|options| options.engine.clip = None));
    assert_ne!(plain, digest(|options| options.engine.accumulate = 2));
    assert_ne!(plain, digest(|options| options.engine.optimizer = Optimizer::default()));
}

/// Directory of a test, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("remuda-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("the temporary directory can be written");
        Self(dir)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("it is there");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("readable").file_name();
        let mut names: Vec<String> =
            entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn keep(dir: &Path, every: u64) -> CheckpointOptions {
    CheckpointOptions { dir: dir.to_owned(), every: Some(every), keep: None }
}

#[test]
fn resuming_from_a_checkpoint_changes_no_bit() {
    for (name, model) in [("gpt", gpt()), ("mlp", mlp())] {
        let scratch = Scratch::new(&format!("resume-{name}"));
        let whole =
            TrainOptions { checkpoint: Some(keep(&scratch.0, STEPS / 2)), ..options(model) };
        let expected = digest_of(2, &whole);
        assert_eq!(scratch.names(), ["latest", "step-00000010", "step-00000020"]);
        let half = scratch.file("step-00000010");
        let rest = TrainOptions { resume: Some(half), checkpoint: None, ..whole };
        assert_eq!(digest_of(2, &rest), expected);
        // The lanes are the same for two workers and for one that accumulates.
        let alone = accumulating(2, rest);
        assert_eq!(digest_of(1, &alone), expected);
    }
}

/// Files with other names and later steps of another run are not removed.
#[test]
fn old_checkpoints_are_removed_and_other_files_kept() {
    let scratch = Scratch::new("keep");
    let others = ["notes.safetensors", "step-00000099.safetensors", "step-1.safetensors"];
    for other in others {
        fs::write(scratch.file(other), "").expect("it can be written");
    }
    let kept = CheckpointOptions { keep: Some(count(2)), ..keep(&scratch.0, 5) };
    let options = TrainOptions { checkpoint: Some(kept), ..options(mlp()) };
    run_alone(&options).0.expect("the run succeeds");
    let [notes, later, odd] = others;
    let expected = ["latest", notes, "step-00000015", "step-00000020", later, odd];
    assert_eq!(scratch.names(), expected);
}

#[test]
fn stopped_run_is_saved_and_can_resume() {
    let scratch = Scratch::new("stop");
    let options = TrainOptions {
        checkpoint: Some(CheckpointOptions { dir: scratch.0.clone(), every: None, keep: None }),
        ..options(gpt())
    };
    let expected = digest_of(2, &TrainOptions { checkpoint: None, ..options.clone() });
    let groups = Group::threads(2).expect("threads share memory");
    thread::scope(|scope| {
        for group in groups {
            let options = &options;
            scope.spawn(move || {
                let steps = std::cell::Cell::new(0);
                // Only one worker receives the request, during its seventh step.
                let stop = || {
                    steps.set(steps.get() + 1);
                    group.rank() == 1 && steps.get() == 7
                };
                let outcome = train(&group, options, &stop, &mut |_| ()).expect("the run succeeds");
                assert_eq!((outcome.summary.end, outcome.summary.step), (RunEnd::Stopped, 7));
            });
        }
    });
    assert_eq!(scratch.names(), ["latest", "step-00000007"]);
    let rest = TrainOptions { resume: Some(scratch.0.clone()), checkpoint: None, ..options };
    assert_eq!(digest_of(2, &rest), expected);
}

/// Checks the error message of a run, with the temporary directory replaced.
#[track_caller]
fn check_error(options: &TrainOptions, scratch: &Scratch, message: &str, status: Status) {
    let error = run_alone(options).0.expect_err("the run cannot begin");
    assert_eq!(error.to_string().replace(&*scratch.0.to_string_lossy(), "DIR"), message);
    assert_eq!(error.status(), status);
}

#[test]
fn unusable_checkpoints_are_rejected() {
    let scratch = Scratch::new("bad-checkpoints");
    let resume = |path: &str| TrainOptions { resume: Some(scratch.file(path)), ..options(mlp()) };
    fs::create_dir(scratch.file("empty")).expect("it can be made");
    check_error(
        &resume("empty"),
        &scratch,
        "there is no checkpoint in `DIR/empty`",
        Status::NoInput,
    );
    check_error(
        &resume("none.safetensors"),
        &scratch,
        "cannot read checkpoint `DIR/none.safetensors`: no such file or directory",
        Status::NoInput,
    );
    let kept = TrainOptions { checkpoint: Some(keep(&scratch.0, STEPS)), ..options(mlp()) };
    run_alone(&kept).0.expect("the run succeeds");
    let other = MlpOptions { inputs: 24, layers: 1, width: 40, classes: 5 };
    let path = "step-00000020";
    check_error(
        &TrainOptions { model: ModelOptions::Mlp(other), ..resume(path) },
        &scratch,
        "checkpoint `DIR/step-00000020` is for another model: `mlp inputs=24 layers=2 width=40 classes=5 \
         teacher=7` instead of `mlp inputs=24 layers=1 width=40 classes=5 teacher=7`",
        Status::Config,
    );
    let shard = scratch.file(path).join("rank-00000.safetensors");
    let mut bytes = fs::read(&shard).expect("it is there");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&shard, &bytes).expect("it can be written");
    let error = run_alone(&resume(path)).0.expect_err("a bit was changed");
    assert_eq!(error.status(), Status::BadInput);
    let text = error.to_string();
    assert!(text.contains("`rank-00000.safetensors` was changed after it was saved"), "{text}");
    fs::write(&shard, &bytes[..last]).expect("it can be written");
    check_error(
        &resume(path),
        &scratch,
        &format!(
            "checkpoint `DIR/step-00000020` is damaged: `rank-00000.safetensors` was truncated: it has {last} \
             bytes instead of {}",
            last + 1
        ),
        Status::BadInput,
    );
}

#[test]
fn unusable_texts_are_rejected() {
    let scratch = Scratch::new("bad-texts");
    let data = |name: &str| {
        let gpt = GptOptions {
            architecture: GptArchitecture::Plain,
            block: 12,
            layers: 1,
            heads: 1,
            attention: AttentionChoice::Auto,
            width: 4,
            data: vec![scratch.file(name)],
            vocabulary: None,
        };
        options(ModelOptions::Gpt(gpt))
    };
    check_error(
        &data("none"),
        &scratch,
        "cannot read `DIR/none`: no such file or directory",
        Status::NoInput,
    );
    for content in ["", "a short text"] {
        fs::write(scratch.file("short"), content).expect("it can be written");
        let error = run_alone(&data("short")).0.expect_err("it is too short");
        assert!(matches!(error, TrainError::Corpus(CorpusError::TooShort { .. })), "{error}");
    }
}

#[test]
fn run_writes_metrics_plot_and_checkpoints() {
    let scratch = Scratch::new("outputs");
    let options = TrainOptions {
        eval_every: Some(5),
        metrics: Some(scratch.file("metrics.jsonl")),
        plot: Some(scratch.file("loss.svg")),
        checkpoint: Some(keep(&scratch.file("kept"), 8)),
        ..options(gpt())
    };
    let (outcome, events) = run_alone(&options);
    let outcome = outcome.expect("the run succeeds");
    assert_eq!(outcome.summary.checkpoint, Some(scratch.file("kept/step-00000020")));
    // Checkpoints are written beside the steps.
    let (saved, others): (Vec<char>, Vec<char>) =
        events.iter().map(kind).partition(|kind| *kind == 's');
    assert_eq!(
        (saved.len(), others.iter().collect::<String>()),
        (3, format!("({}*)", ".".repeat(20)))
    );

    let metrics = fs::read_to_string(scratch.file("metrics.jsonl")).expect("it was written");
    let mut lines: Vec<serde_json::Value> =
        metrics.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = lines.pop().expect("the end of the run");
    assert_eq!(last["digest"].as_str(), Some(&*outcome.digest));
    let steps: Vec<u64> = lines.iter().filter_map(|line| line["step"].as_u64()).collect();
    assert_eq!(steps, (1..=STEPS).collect::<Vec<_>>());
    let evaluated: Vec<&serde_json::Value> =
        lines.iter().filter(|line| line["val_loss"].is_f64()).collect();
    assert_eq!(evaluated.len(), 4);
    assert!(lines.iter().all(|line| {
        ["loss", "ms", "lr", "grad_norm"].iter().all(|field| line[field].is_f64())
            && line["seconds"]["backward"].is_f64()
    }));
    let svg = fs::read_to_string(scratch.file("loss.svg")).expect("it was written");
    assert!(svg.starts_with("<svg ") && svg.matches("<circle").count() == 4);
}

/// The lines of steps that are repeated after resuming occur once.
#[test]
fn resumed_run_completes_metrics_and_plot() {
    let scratch = Scratch::new("metrics");
    let first = TrainOptions {
        metrics: Some(scratch.file("metrics.jsonl")),
        plot: Some(scratch.file("loss.svg")),
        eval_every: Some(4),
        checkpoint: Some(keep(&scratch.file("kept"), 8)),
        ..options(gpt())
    };
    run_alone(&first).0.expect("the run succeeds");
    let read = |name: &str| fs::read_to_string(scratch.file(name)).expect("it was written");
    let losses = |text: &str| -> Vec<(Option<u64>, Option<f64>, Option<f64>)> {
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let pick = |line: serde_json::Value| {
            (line["step"].as_u64(), line["loss"].as_f64(), line["val_loss"].as_f64())
        };
        lines.map(pick).collect()
    };
    let (metrics, plot) = (read("metrics.jsonl"), read("loss.svg"));
    let again = TrainOptions { resume: Some(scratch.file("kept/step-00000008")), ..first };
    run_alone(&again).0.expect("the run succeeds");
    assert_eq!(losses(&read("metrics.jsonl")), losses(&metrics));
    assert_eq!(read("loss.svg"), plot);
}

/// Number of times that a tag occurs in the event files of a directory.
fn events_of(dir: &Path, tag: &str) -> usize {
    let files = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("a file").path());
    let is_tag = |bytes: &&[u8]| *bytes == tag.as_bytes();
    let count = |path: PathBuf| {
        assert!(path.to_string_lossy().contains("/events.out.tfevents."), "{}", path.display());
        fs::read(path).expect("a file").windows(tag.len()).filter(is_tag).count()
    };
    files.map(count).sum()
}

#[test]
fn scalars_of_every_step_are_in_their_files() {
    let scratch = Scratch::new("scalars");
    let output = |dir: &str, format, names| ScalarOutput { dir: scratch.file(dir), format, names };
    let first = TrainOptions {
        eval_every: Some(5),
        checkpoint: Some(keep(&scratch.file("kept"), 8)),
        scalars: vec![
            output("runs/plain", ScalarFormat::TensorBoard, ScalarNames::Plain),
            output("runs/samples", ScalarFormat::TensorBoard, ScalarNames::DeepSpeed),
            output("csv", ScalarFormat::Csv, ScalarNames::DeepSpeed),
        ],
        ..options(mlp())
    };
    run_alone(&first).0.expect("the run succeeds");
    let plain = scratch.file("runs/plain");
    assert_eq!(events_of(&plain, "train/loss"), STEPS as usize);
    assert_eq!(events_of(&plain, "seconds/backward"), STEPS as usize);
    assert_eq!(events_of(&plain, "val/loss"), 4);
    assert_eq!(events_of(&scratch.file("runs/samples"), "Train/Samples/lr"), STEPS as usize);
    let read =
        || fs::read_to_string(scratch.file("csv/Train_Samples_train_loss.csv")).expect("text");
    let rows = read();
    assert!(rows.starts_with("step,train_loss\r\n3,") && rows.ends_with("\r\n"), "{rows}");
    assert_eq!(rows.lines().count(), 1 + STEPS as usize);
    // The steps after the checkpoint are repeated.
    let again = TrainOptions { resume: Some(scratch.file("kept/step-00000008")), ..first };
    run_alone(&again).0.expect("the run succeeds");
    assert_eq!(read(), rows);
    assert_eq!(events_of(&plain, "train/loss"), 2 * STEPS as usize - 8);
}

/// The disk is full for one of the files.
#[test]
fn full_disk_of_scalars_is_one_warning() {
    let scratch = Scratch::new("full");
    fs::create_dir_all(scratch.file("csv")).expect("a new directory");
    std::os::unix::fs::symlink("/dev/full", scratch.file("csv/Train_Samples_lr.csv"))
        .expect("a new link");
    let csv = ScalarOutput {
        dir: scratch.file("csv"),
        format: ScalarFormat::Csv,
        names: ScalarNames::DeepSpeed,
    };
    let options = TrainOptions { scalars: vec![csv], ..options(mlp()) };
    let (outcome, events) = run_alone(&options);
    outcome.expect("the run succeeds");
    let is_warning = |event: &&TrainEvent| matches!(event, TrainEvent::OutputClosed { .. });
    let warnings: Vec<String> = events.iter().filter(is_warning).map(ToString::to_string).collect();
    let [warning] = &*warnings else { panic!("{warnings:?}") };
    assert!(warning.contains("No space left on device"), "{warning}");
}

#[test]
fn directory_of_scalars_is_made_before_the_first_step() {
    let scratch = Scratch::new("no-scalars");
    fs::write(scratch.file("file"), "").expect("a new file");
    for format in [ScalarFormat::TensorBoard, ScalarFormat::Csv] {
        let output =
            ScalarOutput { dir: scratch.file("file/below"), format, names: ScalarNames::Plain };
        let (outcome, events) =
            run_alone(&TrainOptions { scalars: vec![output], ..options(mlp()) });
        let error = outcome.expect_err("the path is below a file");
        assert!(matches!(error, TrainError::Output { .. }), "{error}");
        assert_eq!(events.iter().map(kind).collect::<String>(), "(");
    }
}

#[test]
fn diverging_run_is_an_error() {
    let mut options = options(mlp());
    options.engine.schedule = LrSchedule::Constant { rate: 1e30 };
    options.engine.clip = None;
    let error = run_alone(&options).0.expect_err("the loss overflows at this rate");
    assert!(
        matches!(
            error,
            TrainError::Diverged { .. } | TrainError::Engine(EngineError::Diverged { .. })
        ),
        "{error}"
    );
}

/// Letter for the kind of an event.
fn kind(event: &TrainEvent) -> char {
    match event {
        TrainEvent::Started(_) => '(',
        TrainEvent::Resumed { .. } => 'r',
        TrainEvent::Complete { .. } => 'c',
        TrainEvent::Damaged(_) => 'd',
        TrainEvent::LatestUnknown(_) | TrainEvent::OtherData => 'w',
        TrainEvent::Stepped(_) => '.',
        TrainEvent::Saved { .. } => 's',
        TrainEvent::NotRemoved { .. } | TrainEvent::OutputClosed { .. } => '!',
        TrainEvent::Sampled(_) => '*',
        TrainEvent::Finished(_) => ')',
    }
}

/// The loss falls far below that of guessing, which is ln 96 for this text.
#[test]
fn loss_decreases() {
    let model = GptOptions {
        architecture: GptArchitecture::Plain,
        block: 24,
        layers: 2,
        heads: 2,
        attention: AttentionChoice::Auto,
        width: 32,
        data: Vec::new(),
        vocabulary: None,
    };
    let options = options(ModelOptions::Gpt(model));
    let options = TrainOptions {
        batch_size: count(12),
        engine: EngineConfig { schedule: rates(150, 10), ..options.engine },
        steps: 150,
        ..options
    };
    let (outcome, events) = run_alone(&options);
    let held_out = outcome.expect("the run succeeds").summary.val_loss.expect("a complete run");
    let first = events.iter().find_map(|event| match event {
        TrainEvent::Stepped(report) => Some(report.outcome.loss),
        _ => None,
    });
    assert!(4.0 < first.expect("there were steps"), "{first:?}");
    assert!(held_out < 3.1, "{held_out}");
}
