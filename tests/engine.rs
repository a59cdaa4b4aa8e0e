//! The training engine: stages, world sizes, placements, precisions and limits change no bit of a run with
//! the same lanes; traffic is that of the plan; wrong calls and wrong models are errors on all ranks.
#![cfg(feature = "train")]

use std::fs;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use remuda::base::clock;
use remuda::runtime::engine::{
    BackwardPass, Engine, EngineConfig, EngineError, Exchange, ForwardPass, HostReplica, Init,
    Model, ModelPass, Offload, ParameterTable, PassError, PlanOptions, Precision, Prefetch,
    Sharding, StatePlace,
};
use remuda::runtime::optim::{
    AdamOptions, DynamicScaling, LossScaling, LrSchedule, Optimizer, Schedule,
};
use remuda::runtime::{Group, Operation, RandomStream};
use remuda::train::{
    AttentionChoice, GptArchitecture, GptOptions, MlpOptions, ModelOptions, Threads, TrainEvent,
    TrainOptions, TrainOutcome, train,
};

#[expect(dead_code, reason = "a test calls the function that the main function calls")]
#[path = "../examples/own_model.rs"]
mod own_model;

use crate::support::proof::{Random, proof_cases};
use crate::support::scratch::Scratch;
use crate::support::shards::write_shard;

const STEPS: u64 = 4;

/// A way to run the lanes of a step.
#[derive(Clone, Debug)]
struct Split {
    /// Ranks of every node.
    nodes: Vec<usize>,
    accumulate: usize,
    sharding: Sharding,
    plan: PlanOptions,
    persistent_len_max: usize,
    no_sync: bool,
    shard_group: Option<usize>,
    offload: Offload,
}

fn ways(world: usize, accumulate: usize, sharding: Sharding) -> Split {
    let plan = PlanOptions { prefetch: Prefetch::Elements(0), reduce_max: 0, recompute: 0 };
    Split {
        nodes: vec![world],
        accumulate,
        sharding,
        plan,
        persistent_len_max: 0,
        no_sync: false,
        shard_group: None,
        offload: Offload::default(),
    }
}

/// A GPT with units of 48 blocks of the norm. Its data are short: the last tenth is evaluated after the last step.
fn gpt(scratch: &Scratch) -> ModelOptions {
    let (file, vocabulary) = (scratch.path("tokens.bin"), 61);
    write_shard(&file, (0..900_u32).map(|at| at * at % 61));
    ModelOptions::Gpt(GptOptions {
        architecture: GptArchitecture::Plain,
        block: 8,
        layers: 3,
        heads: 2,
        attention: AttentionChoice::Auto,
        width: 64,
        data: vec![file],
        vocabulary: Some(vocabulary),
    })
}

fn mlp() -> ModelOptions {
    ModelOptions::Mlp(MlpOptions { inputs: 50, layers: 2, width: 130, classes: 7 })
}

fn options(model: &ModelOptions, precision: Precision, split: &Split) -> TrainOptions {
    let loss_scaling = match precision {
        Precision::F16 => LossScaling::Dynamic(DynamicScaling {
            initial_power: 18,
            window: 2,
            hysteresis: 1,
            ..DynamicScaling::default()
        }),
        Precision::F32 | Precision::Bf16 => LossScaling::None,
    };
    TrainOptions {
        model: model.clone(),
        batch_size: NonZeroUsize::new(2).expect("2 is not 0"),
        engine: EngineConfig {
            accumulate: split.accumulate,
            sharding: split.sharding,
            optimizer: Optimizer::Adam(AdamOptions {
                betas: [0.9, 0.99],
                weight_decay: 0.1,
                ..Default::default()
            }),
            schedule: LrSchedule::HalfCosine(Schedule {
                rate: 1e-2,
                rate_min: 1e-3,
                warmup: 2,
                steps: STEPS,
            }),
            clip: Some(0.25),
            precision,
            loss_scaling,
            gradient_rounding: None,
            persistent_len_max: split.persistent_len_max,
            no_sync: split.no_sync,
            shard_group: split.shard_group,
            offload: split.offload.clone(),
            exchange: Exchange::default(),
            plan: split.plan,
            seed: 7,
        },
        steps: STEPS,
        seed: 7,
        threads: Threads::ONE,
        eval_every: Some(3),
        checkpoint: None,
        resume: None,
        start: None,
        metrics: None,
        plot: None,
        scalars: Vec::new(),
        may_start_fresh: false,
    }
}

/// What a run ends with: losses as bits.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    /// That of parameters and moments.
    digest: String,
    /// That of the last step, and that of the held-out part.
    loss: Option<u32>,
    val_loss: Option<u64>,
    /// Steps that changed nothing, because the gradient was not finite.
    skipped: u64,
}

impl Outcome {
    /// Checks that fp16 has both kinds of steps: if all were skipped, any two runs would be equal.
    #[track_caller]
    fn check_skips(&self, precision: Precision) {
        let is_mixed = 0 < self.skipped && self.skipped < STEPS;
        assert_eq!(is_mixed, precision == Precision::F16, "{} of {STEPS} skipped", self.skipped);
    }
}

fn outcome(model: &ModelOptions, precision: Precision, split: &Split) -> Outcome {
    let options = options(model, precision, split);
    let groups = Group::threads_on(&split.nodes).expect("a group on threads");
    let outcomes: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = groups
            .into_iter()
            .map(|group| {
                let options = &options;
                scope.spawn(move || train(&group, options, &|| false, &mut |_| ()))
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let found: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| outcome.unwrap_or_else(|error| panic!("{split:?}: {error}")))
        .map(|TrainOutcome { digest, summary, .. }| Outcome {
            digest,
            loss: summary.loss.map(f32::to_bits),
            val_loss: summary.val_loss.map(f64::to_bits),
            skipped: summary.skipped.map_or(0, |skipped| skipped.skipped),
        })
        .collect();
    assert!(found.iter().all(|other| *other == found[0]), "ranks disagree: {split:?}");
    found[0].clone()
}

/// Compares every stage with one rank that computes all lanes.
#[track_caller]
fn check(model: &ModelOptions, precision: Precision, world: usize, accumulate: usize) {
    let alone = ways(1, world * accumulate, Sharding::None);
    let expected = outcome(model, precision, &alone);
    expected.check_skips(precision);
    for sharding in Sharding::ALL {
        let split = ways(world, accumulate, sharding);
        assert_eq!(outcome(model, precision, &split), expected, "{split:?}, {precision:?}");
    }
    if 1 < accumulate {
        let once = Split { no_sync: true, ..ways(world, accumulate, Sharding::Parameters) };
        assert_eq!(outcome(model, precision, &once), expected, "{once:?}, {precision:?}");
    }
}

#[test]
fn stages_change_no_bit() {
    let scratch = Scratch::new("train", "stages");
    let gpt = gpt(&scratch);
    for (world, accumulate) in [(2, 6), (3, 4), (4, 3)] {
        check(&gpt, Precision::F32, world, accumulate);
    }
    for (world, accumulate) in [(1, 12), (2, 1), (3, 1), (4, 2), (6, 2), (8, 3)] {
        check(&mlp(), Precision::F32, world, accumulate);
    }
}

#[test]
fn shard_groups_change_no_bit() {
    let scratch = Scratch::new("train", "shard-groups");
    let gpt = gpt(&scratch);
    for (nodes, accumulate, size) in [
        (vec![4], 3, 2),
        (vec![2, 2], 6, 2),
        (vec![3, 3], 2, 2),
        (vec![4, 4], 3, 4),
        (vec![8], 1, 2),
        (vec![2], 4, 2),
    ] {
        let world = nodes.iter().sum();
        let alone = outcome(&gpt, Precision::Bf16, &ways(1, world * accumulate, Sharding::None));
        for persistent_len_max in [0, 10_000] {
            let split = Split {
                nodes: nodes.clone(),
                shard_group: Some(size),
                persistent_len_max,
                ..ways(world, accumulate, Sharding::Parameters)
            };
            assert_eq!(outcome(&gpt, Precision::Bf16, &split), alone, "{split:?}");
        }
    }
}

#[test]
fn shard_groups_that_do_not_fit_are_errors() {
    let config = |sharding, size, accumulate| EngineConfig {
        sharding,
        shard_group: Some(size),
        accumulate,
        ..EngineConfig::default()
    };
    let problem =
        |config: EngineConfig, world| config.check(world).expect_err("it is refused").to_string();
    assert_eq!(
        problem(config(Sharding::Gradients, 2, 1), 4),
        "parameters are not divided at stage 2; shard groups need stage 3"
    );
    for (size, world) in [(3, 6), (4, 6), (8, 4), (1, 4), (0, 4)] {
        assert_eq!(
            problem(config(Sharding::Parameters, size, 1), world),
            format!(
                "{world} workers cannot be divided into shard groups of {size}; the size is a power of \
                 two, at least 2, that divides the number of workers"
            )
        );
    }
    assert_eq!(
        problem(config(Sharding::Parameters, 2, 3), 6),
        "6 workers with 3 micro-batches each cannot use shard groups; use a power of two as the number of \
         micro-batches or of workers"
    );
    let once = EngineConfig { no_sync: true, ..config(Sharding::Parameters, 2, 3) };
    assert_eq!(
        problem(once.clone(), 8),
        "8 workers with 3 micro-batches each cannot use shard groups; use a power of two as the number of \
         micro-batches, or leave `no_sync` out"
    );
    assert_eq!(
        problem(once, 6),
        "6 workers with 3 micro-batches each cannot use shard groups; use a power of two as the number of \
         micro-batches"
    );
    assert!(config(Sharding::Parameters, 4, 3).check(4).is_ok(), "a group of all ranks");
}

#[test]
fn offload_to_files_changes_no_bit_and_leaves_no_file() {
    let scratch = Scratch::new("train", "offload");
    let (gpt, dir) = (gpt(&scratch), scratch.path("state"));
    fs::create_dir(&dir).expect("a new directory");
    for (precision, shard_group) in [(Precision::F32, None), (Precision::F16, Some(2))] {
        let expected = outcome(&gpt, precision, &ways(1, 4, Sharding::None));
        expected.check_skips(precision);
        let offload =
            Offload { optimizer: StatePlace::Files(dir.clone()), parameters: Some(dir.clone()) };
        for sharding in Sharding::ALL {
            let shard_group = shard_group.filter(|_| sharding == Sharding::Parameters);
            let split = Split { offload: offload.clone(), shard_group, ..ways(4, 1, sharding) };
            assert_eq!(outcome(&gpt, precision, &split), expected, "{split:?}");
        }
    }
    fs::remove_dir(&dir).expect("nothing is in it");
}

#[test]
fn offload_to_a_missing_directory_is_an_error() {
    let dir = std::env::temp_dir().join("remuda-no-such-directory");
    for offload in [
        Offload { optimizer: StatePlace::Files(dir.clone()), parameters: None },
        Offload { optimizer: StatePlace::Computing, parameters: Some(dir.clone()) },
    ] {
        let options =
            options(&mlp(), Precision::F32, &Split { offload, ..ways(2, 1, Sharding::Parameters) });
        let run = |group: &Group| train(group, &options, &|| false, &mut |_| ());
        let errors =
            Group::on_threads(2, |group| Ok(run(group).err().map(|error| error.to_string())));
        for error in errors.expect("a group on threads") {
            let error = error.expect("there is no directory");
            assert!(error.contains("remuda-no-such-directory` for offloaded state"), "{error}");
        }
    }
}

#[test]
fn stages_change_no_bit_in_16_bit_types() {
    let scratch = Scratch::new("train", "stages-in-16-bit");
    let gpt = gpt(&scratch);
    for precision in [Precision::Bf16, Precision::F16] {
        check(&gpt, precision, 2, 2);
        check(&mlp(), precision, 3, 2);
    }
}

/// Draws a number from a list.
fn pick<T: Copy>(stream: &mut RandomStream, values: &[T]) -> T {
    values[stream.below(values.len())]
}

fn draw(stream: &mut RandomStream, lanes: usize) -> Split {
    let worlds: Vec<usize> =
        [1, 2, 3, 4, 6, 8].into_iter().filter(|world| lanes.is_multiple_of(*world)).collect();
    let world = pick(stream, &worlds);
    let mut nodes = Vec::new();
    while nodes.iter().sum::<usize>() < world {
        nodes.push(1 + stream.below(world - nodes.iter().sum::<usize>()));
    }
    let mut split = Split {
        nodes,
        accumulate: lanes / world,
        sharding: pick(stream, &Sharding::ALL),
        plan: PlanOptions {
            prefetch: pick(
                stream,
                &[
                    Prefetch::NextPass,
                    Prefetch::Elements(0),
                    Prefetch::Elements(3000),
                    Prefetch::Elements(usize::MAX),
                ],
            ),
            reduce_max: pick(stream, &[0, 50_000, usize::MAX]),
            recompute: stream.below(3),
        },
        persistent_len_max: pick(stream, &[0, 100, 10_000, usize::MAX]),
        no_sync: stream.below(2) == 0,
        shard_group: None,
        offload: Offload {
            optimizer: match stream.below(4) {
                0 => StatePlace::Files(std::env::temp_dir()),
                1 => StatePlace::Host,
                _ => StatePlace::Computing,
            },
            parameters: (stream.below(3) == 0).then(std::env::temp_dir),
        },
    };
    let groups: Vec<usize> =
        [2, 4, 8].into_iter().filter(|size| world.is_multiple_of(*size)).collect();
    if split.sharding == Sharding::Parameters && !groups.is_empty() && stream.below(2) == 0 {
        split.shard_group = Some(pick(stream, &groups));
    }
    split
}

/// Random numbers of ranks, placements, stages and limits; the number of cases and the seed are those of
/// `scripts/prove`.
#[test]
fn prove_same_bits() {
    let scratch = Scratch::new("train", "same-bits");
    let mut random = Random::from_seed();
    for case in 0..proof_cases(6) {
        let mut stream = RandomStream::new(&[random.below(usize::MAX) as u64]);
        let model = if stream.below(2) == 0 { gpt(&scratch) } else { mlp() };
        let precision = pick(&mut stream, &[Precision::F32, Precision::Bf16, Precision::F16]);
        let lanes = pick(&mut stream, &[12, 24]);
        let (one, other) = (draw(&mut stream, lanes), draw(&mut stream, lanes));
        let expected = outcome(&model, precision, &one);
        let found = outcome(&model, precision, &other);
        assert_eq!(found, expected, "case {case}: {precision:?}, {one:?} against {other:?}");
    }
}

#[test]
fn lanes_that_are_no_power_of_two_change_no_bit() {
    check(&mlp(), Precision::F32, 3, 3);
    check(&mlp(), Precision::Bf16, 3, 5);
    check(&mlp(), Precision::F32, 6, 3);
}

/// Ranks gather the parameters for every token of the text that the model writes.
#[test]
fn text_of_divided_parameters_is_that_of_one_rank() {
    let scratch = Scratch::new("train", "text");
    scratch.write("text", "a word of a text. ".repeat(40));
    let model = ModelOptions::Gpt(GptOptions {
        architecture: GptArchitecture::Gpt2,
        block: 4,
        layers: 1,
        heads: 1,
        attention: AttentionChoice::Auto,
        width: 8,
        data: vec![scratch.path("text")],
        vocabulary: None,
    });
    let text = |world, sharding| {
        let options = options(&model, Precision::F32, &ways(world, 4 / world, sharding));
        let of_ranks = Group::on_threads(world, |group| {
            let mut text = String::new();
            let mut on_event = |event: &TrainEvent| {
                if let TrainEvent::Sampled(sampled) = event {
                    text.clone_from(sampled);
                }
            };
            train(group, &options, &|| false, &mut on_event).expect("the run succeeds");
            Ok(text)
        });
        of_ranks.expect("a group on threads").swap_remove(0)
    };
    let expected = text(1, Sharding::None);
    assert!(expected.len() > 100, "{expected}");
    assert_eq!(text(2, Sharding::Parameters), expected);
    assert_eq!(text(4, Sharding::Parameters), expected);
}

#[test]
fn example_trains_its_own_model_with_every_stage() {
    let outcome = |world, sharding| {
        let ranks = Group::on_threads(world, |group| Ok(own_model::train(group, sharding)));
        let ranks = ranks.expect("a group on threads").into_iter();
        ranks.map(|rank| rank.expect("the run succeeds")).collect::<Vec<_>>()
    };
    let (expected, loss) = outcome(2, Sharding::None).remove(0);
    assert!(loss < 1e-3, "{loss}");
    for sharding in Sharding::ALL {
        assert!(outcome(2, sharding).iter().all(|(digest, _)| *digest == expected));
    }
}

/// Layers of a length each, all with the same formula; the last layer reads the first one again, like a head
/// that shares an embedding.
struct Chain {
    table: ParameterTable,
    /// Unit that a pass reads although it does not name it.
    unnamed: Option<usize>,
    /// Called in the backward pass of the first layer.
    on_last_backward: Box<dyn FnMut() + Send>,
}

impl Chain {
    fn new(lens: &[usize]) -> Self {
        let mut table = ParameterTable::default();
        for (unit, len) in lens.iter().enumerate() {
            table.unit(format!("layer {unit}"));
            table.push(format!("{unit}"), &[*len], Init::Uniform { bound: 1.0 });
        }
        Self { table, unnamed: None, on_last_backward: Box::new(|| ()) }
    }
}

impl Model for Chain {
    type Batch = f32;

    fn parameters(&self) -> &ParameterTable {
        &self.table
    }

    fn passes(&self) -> Vec<ModelPass> {
        let units = self.table.units().len();
        let last = ModelPass::new([units - 1, 0]);
        (0..units - 1).map(|unit| ModelPass::new([unit]).recomputable()).chain([last]).collect()
    }

    fn forward(&mut self, pass: &ForwardPass<'_, f32>, _batch: &f32) -> Result<(), PassError> {
        pass.unit(self.unnamed.filter(|_| pass.index == 1).unwrap_or(pass.index)).map(drop)
    }

    fn loss(&self) -> f32 {
        1.0
    }

    fn backward(&mut self, pass: &mut BackwardPass<'_, f32>, batch: &f32) -> Result<(), PassError> {
        if pass.index() == 0 {
            (self.on_last_backward)();
        }
        pass.gradient(pass.index())?.iter_mut().for_each(|g| *g += batch);
        if pass.index() + 1 == self.table.units().len() {
            pass.gradient(0)?.iter_mut().for_each(|g| *g += 2.0 * batch);
        }
        Ok(())
    }
}

type ChainEngine = Engine<HostReplica<Chain>>;

/// Runs `body` on every rank with an engine over a chain.
fn with_chain<V: Send>(
    world: usize,
    lens: &[usize],
    config: &EngineConfig,
    body: impl Fn(&mut ChainEngine) -> Result<V, EngineError> + Sync,
) -> Vec<Result<V, EngineError>> {
    let groups = Group::threads(world).expect("a group on threads");
    thread::scope(|scope| {
        let workers: Vec<_> = groups
            .into_iter()
            .map(|group| {
                let body = &body;
                scope.spawn(move || {
                    let mut engine = Engine::new(&group, Chain::new(lens), config.clone())?;
                    body(&mut engine)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    })
}

const LENS: [usize; 3] = [10_000, 4096, 3000];
/// Lengths with padding, for four ranks.
const PADDED: [u64; 3] = [12_288, 4096, 4096];

/// Bytes that a rank received in its second step, by operation.
#[track_caller]
fn check_traffic(sharding: Sharding, accumulate: usize, expected: [u64; 3]) {
    let plan = PlanOptions { prefetch: Prefetch::Elements(0), reduce_max: 0, recompute: 0 };
    let config = EngineConfig { accumulate, sharding, plan, ..EngineConfig::default() };
    let found = with_chain(4, &LENS, &config, |engine| {
        engine.train_batch(|_| 1.0)?;
        let before = engine.group().traffic();
        engine.train_batch(|_| 1.0)?;
        let after = engine.group().traffic();
        let kinds = [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather];
        Ok(kinds.map(|kind| after.of(kind).bytes - before.of(kind).bytes))
    });
    for found in found {
        assert_eq!(found.expect("the steps succeed"), expected, "{sharding:?} × {accumulate}");
    }
}

#[test]
fn traffic_is_that_of_the_plan() {
    let all: u64 = PADDED.iter().sum::<u64>() * 4;
    let share = |bytes: u64| bytes * 3 / 4;
    // Losses and the wish to stop: one number for every lane and one more.
    let slots = |lanes: u64| 2 * share((lanes + 1) * 4);
    // Sums of squares: one f64 for every block.
    let norm = share(all / 4 / 1024 * 8);
    check_traffic(Sharding::None, 1, [2 * share(all) + slots(4), 0, 0]);
    check_traffic(Sharding::None, 2, [2 * share(all) + slots(8), 0, 0]);
    check_traffic(Sharding::Optimizer, 2, [slots(8), share(all), norm + share(all)]);
    check_traffic(Sharding::Gradients, 1, [slots(4), share(all), norm + share(all)]);
    check_traffic(Sharding::Gradients, 2, [slots(8), 2 * share(all), norm + share(all)]);
    // The first unit is read by two passes: gathered for the first forward pass, kept from the last forward
    // to the first backward pass, and gathered for the last backward pass. The last unit is gathered once.
    let gathered = share(3 * PADDED[0] * 4) + share(2 * PADDED[1] * 4) + share(PADDED[2] * 4);
    check_traffic(Sharding::Parameters, 1, [slots(4), share(all), norm + gathered]);
    check_traffic(Sharding::Parameters, 2, [slots(8), 2 * share(all), norm + 2 * gathered]);
}

/// The backward pass of the first layer waits until the gradient of a later one is reduced. If reductions
/// began only after the backward pass, it would never end.
#[test]
fn gradients_are_reduced_during_the_backward_pass() {
    for sharding in Sharding::ALL {
        let config = EngineConfig { sharding, ..EngineConfig::default() };
        let outcomes = with_chain(2, &LENS, &config, |engine| {
            let group = engine.group().clone();
            let reduced = move || {
                let traffic = group.traffic();
                let kinds = [Operation::AllReduce, Operation::ReduceScatter];
                kinds.map(|kind| traffic.of(kind).calls).iter().sum::<u64>()
            };
            let before = reduced();
            engine.model().on_last_backward = Box::new(move || {
                let deadline = clock::now() + Duration::from_secs(60);
                while reduced() == before {
                    assert!(clock::now() < deadline, "nothing was reduced in the backward pass");
                    thread::yield_now();
                }
            });
            engine.train_batch(|_| 1.0)
        });
        for outcome in outcomes {
            assert!(outcome.expect("the step succeeds").is_applied);
        }
    }
}

#[test]
fn pass_that_reads_an_unnamed_unit_is_an_error_on_all_ranks() {
    let expected =
        "pass 1 of the model uses unit 2, but names unit 1; add the unit to `Model::passes`";
    for sharding in Sharding::ALL {
        let config = EngineConfig { sharding, ..EngineConfig::default() };
        let outcomes = with_chain(3, &LENS, &config, |engine| {
            engine.model().unnamed = Some(2);
            engine.train_batch(|_| 1.0)
        });
        for outcome in outcomes {
            let error = outcome.expect_err("the unit is not named").to_string();
            assert!(error.ends_with(expected), "{error}");
        }
    }
}

#[test]
fn methods_in_another_order_are_errors() {
    let config = EngineConfig { accumulate: 2, ..EngineConfig::default() };
    let errors = with_chain(1, &LENS, &config, |engine| {
        let mut errors = Vec::new();
        let mut note = |outcome: Result<(), EngineError>| {
            errors.extend(outcome.err().map(|error| error.to_string()));
        };
        note(engine.backward(&1.0));
        engine.forward(&1.0)?;
        note(engine.step().map(drop));
        engine.backward(&1.0)?;
        assert_eq!(engine.step()?, None);
        engine.forward(&1.0)?;
        assert!(engine.is_gradient_accumulation_boundary());
        engine.backward(&1.0)?;
        note(engine.forward(&1.0).map(drop));
        assert!(engine.step()?.is_some_and(|outcome| outcome.is_applied && outcome.step == 1));
        Ok(errors)
    });
    let [Ok(errors)] = &errors[..] else { panic!("one rank without an error: {errors:?}") };
    assert_eq!(
        errors[..],
        [
            "backward was called before `forward`; call `forward`",
            "step was called between `forward` and `backward`; call `backward`",
            "forward was called after 2 of 2 micro-batches of the step; call `step`",
        ]
    );
}

#[test]
fn overflow_skips_the_step_and_halves_the_scale() {
    let scale = DynamicScaling { initial_power: 4, hysteresis: 1, ..DynamicScaling::default() };
    let config = EngineConfig {
        precision: Precision::F16,
        loss_scaling: LossScaling::Dynamic(scale),
        ..EngineConfig::default()
    };
    for sharding in Sharding::ALL {
        let config = EngineConfig { sharding, ..config.clone() };
        let outcomes = with_chain(2, &LENS, &config, |engine| {
            let before = engine.digest()?;
            // Only one lane overflows.
            let skipped = engine.train_batch(|lane| if lane == 1 { f32::INFINITY } else { 1.0 })?;
            assert_eq!(
                (skipped.is_applied, skipped.loss_scale.to_bits()),
                (false, 16f64.to_bits())
            );
            assert_eq!((engine.digest()?, engine.skipped_steps()), (before, 1));
            let applied = engine.train_batch(|_| 1.0)?;
            assert_eq!((applied.is_applied, applied.loss_scale.to_bits()), (true, 8f64.to_bits()));
            Ok((engine.digest()?, applied.norm.to_bits()))
        });
        let mut outcomes = outcomes.into_iter().map(|outcome| outcome.expect("no error"));
        let first = outcomes.next();
        assert!(outcomes.all(|outcome| Some(outcome) == first), "ranks agree");
    }
}
