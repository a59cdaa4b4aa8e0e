//! Trainings on emulated devices with little memory: one that does not fit is refused before it allocates any, and what
//! its error says is enough is enough.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use remuda::runtime::Group;
use remuda::runtime::engine::{Precision, Sharding};
use remuda::train::{
    AttentionChoice, DeviceMemoryError, GptArchitecture, GptOptions, MemoryCure, ModelOptions,
    SettingNames, TrainError, TrainOptions, TrainOutcome, WorkerMemory, train_on,
};

use super::emulated_streams::{EmulatedStreams, Order};
use super::saved::Dir;
use super::trainer::{mlp, options};
use crate::support::expected::check_expected;
use crate::support::proof::has;

const GIB: usize = 1 << 30;
/// Different bytes of the text.
const VOCABULARY: usize = 32;

/// Writes a text of some pages.
fn write_text(dir: &Dir) -> PathBuf {
    fs::create_dir_all(&dir.0).expect("a new directory");
    let path = dir.0.join("text");
    let letter = |at: usize| (b'A' + (at % VOCABULARY) as u8) as char;
    fs::write(
        &path,
        (0..20_000)
            .map(|at| letter(if at < VOCABULARY { at } else { at * at }))
            .collect::<String>(),
    )
    .expect("the text is written");
    path
}

/// Options of a GPT with so many layers, heads and tokens of a sequence, in micro-batches of `samples`.
fn gpt(dir: &Dir, [layers, heads, block]: [usize; 3], samples: usize) -> TrainOptions {
    let model = GptOptions {
        architecture: GptArchitecture::Gpt2,
        block,
        layers,
        heads,
        attention: AttentionChoice::Auto,
        width: 64 * heads,
        data: vec![write_text(dir)],
        vocabulary: None,
    };
    let mut options = options(ModelOptions::Gpt(model), Precision::Bf16);
    options.batch_size = samples.try_into().expect("a number");
    (options.engine.accumulate, options.eval_every) = (1, None);
    options
}

/// Trains for some steps on devices with these bytes of memory. Returns what rank 0 ends with, and the most allocations
/// and releases of a rank.
fn run(memory: &[usize], options: &TrainOptions) -> (Result<TrainOutcome, TrainError>, usize) {
    let ends = Group::on_threads(memory.len(), |group| {
        let device = EmulatedStreams::connected(Order::Early).with_memory(memory[group.rank()]);
        // The run is stopped when the first step has ended, while the second one is in progress.
        let end = train_on(group, Arc::new(device.clone()), options, &|| true, &mut |_| ());
        Ok((end, device.memory_changes()))
    });
    let ends = ends.expect("all ranks end");
    let error = |(end, _): &(Result<_, TrainError>, _)| end.as_ref().err().map(ToString::to_string);
    assert!(ends.iter().all(|end| error(end) == error(&ends[0])), "{ends:?}");
    let changes = ends.iter().map(|(_, changes)| *changes).max().expect("there is a rank");
    (ends.into_iter().next().expect("there is a rank").0, changes)
}

/// The error of a training that is refused before it allocates memory.
#[track_caller]
fn refused(memory: &[usize], options: &TrainOptions) -> DeviceMemoryError {
    let (end, memory_changes) = run(memory, options);
    let error = end.expect_err("it does not fit");
    assert_eq!((memory_changes, error.status().code()), (0, 71), "{error}");
    let TrainError::DeviceMemory(error) = error else { panic!("{error}") };
    *error
}

#[test]
fn trainings_that_do_not_fit_are_refused_with_what_fits() {
    if !has("compiler", "trainings_that_do_not_fit_are_refused_with_what_fits") {
        return;
    }
    let dir = Dir::new("device-memory");
    // The sizes of GPT-2, and those of its largest variant.
    let (small, large) = (gpt(&dir, [12, 12, 1024], 64), gpt(&dir, [48, 25, 1024], 4));
    let mut divided = large.clone();
    (divided.engine.sharding, divided.engine.plan.recompute) = (Sharding::Optimizer, 1);
    let options = SettingNames::Options;
    let with_lanes = SettingNames::OptionsWithLanes(8);
    let keys = SettingNames::Keys;
    let cases: [(&str, &[usize], (&TrainOptions, SettingNames)); 9] = [
        ("one GPU", &[16 * GIB], (&small, options)),
        ("the same with --lanes", &[16 * GIB], (&small, with_lanes)),
        ("the same with a file", &[16 * GIB], (&small, keys)),
        ("several changes together", &[2 * GIB], (&small, options)),
        ("two GPUs", &[80 * GIB, 24 * GIB], (&large, options)),
        ("the same with a file", &[80 * GIB, 24 * GIB], (&large, keys)),
        ("activations are computed again already", &[16 * GIB; 2], (&divided, options)),
        ("several changes of two GPUs", &[16 * GIB; 2], (&large, options)),
        ("nothing is enough", &[2 * GIB; 2], (&large, options)),
    ];
    let screens = cases.map(|(title, memory, (options, names))| {
        let error = refused(memory, options);
        format!("== {title}\n{error}\nhelp: {}\n", error.help(names))
    });
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/memory.expected");
    check_expected(&expected, &screens.join("\n"));
}

/// Bytes that a training needs on the device of each worker.
fn needed(options: &TrainOptions, workers: usize) -> usize {
    let vocabulary = match options.model {
        ModelOptions::Gpt(_) => VOCABULARY,
        ModelOptions::Mlp(_) => 0,
    };
    WorkerMemory::forecast_on_device(options, vocabulary, workers).total() as usize
}

/// Beside the forecast: some hundred bytes for each unit.
const ROOM: usize = 4 << 10;

#[test]
fn training_fits_the_memory_of_its_forecast() {
    if !has("compiler", "training_fits_the_memory_of_its_forecast") {
        return;
    }
    let dir = Dir::new("device-memory-fits");
    let mlp = TrainOptions { eval_every: None, ..options(mlp(), Precision::F32) };
    for (options, workers) in [(gpt(&dir, [2, 1, 16], 4), 1), (mlp, 2)] {
        let needed = needed(&options, workers);
        let (end, _) = run(&vec![needed + ROOM; workers], &options);
        end.expect("it fits");
        let error = refused(&vec![needed - 1; workers], &options);
        assert_eq!((error.free as usize, error.workers), (needed - 1, workers));
    }
}

#[test]
fn changes_of_a_refused_training_are_enough() {
    if !has("compiler", "changes_of_a_refused_training_are_enough") {
        return;
    }
    let dir = Dir::new("device-memory-changes");
    let gpt = gpt(&dir, [2, 1, 16], 16);
    let changed =
        |cures: &[MemoryCure]| cures.iter().fold(gpt.clone(), |options, cure| cure.of(&options));
    let recompute = MemoryCure::Recompute { blocks: 2 };
    let split = MemoryCure::Split { batch_size: 8, accumulate: 2, factor: 2 };
    let (stage, offload) = (MemoryCure::Stage(Sharding::Optimizer), MemoryCure::OffloadOptimizer);
    for (workers, cures) in
        [(1, &[recompute][..]), (1, &[split]), (2, &[stage]), (1, &[recompute, offload])]
    {
        let memory = vec![needed(&changed(cures), workers) + ROOM; workers];
        let error = refused(&memory, &gpt);
        assert!(error.cures.iter().any(|found| found == cures), "{cures:?}: {:?}", error.cures);
        let (end, _) = run(&memory, &changed(cures));
        end.unwrap_or_else(|error| panic!("{cures:?}: {error}"));
    }
}
