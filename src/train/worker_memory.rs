//! [`WorkerMemory`]: memory that a worker will need, so that a run that does not fit is refused before it
//! starts.
//!
//! Numbers are `f64`, so that the product of any sizes is representable.

#[cfg(feature = "nccl")]
use crate::cuda::driver::WORKSPACE_BYTES;
#[cfg(feature = "nccl")]
use crate::runtime::engine::StatePlace;
use crate::runtime::engine::{EngineMemory, Precision};
use crate::train::nn::cpu::threads::Threads;
#[cfg(feature = "nccl")]
use crate::train::nn::device::work_space::{gpt_work_bytes, mlp_work_bytes};
use crate::train::nn::gpt::{Gpt, GptConfig, tile_height};
use crate::train::nn::mlp::Mlp;
use crate::train::options::{MlpOptions, ModelOptions, TrainOptions};

/// Memory of a worker without a model: its program, libraries, buffers of its streams.
const PROGRAM_BYTES: f64 = (2 << 20) as f64;
/// Number of batches of an evaluation that are kept, including the last, complete one.
const KEPT_BATCHES: f64 = 16.0;
/// Largest numbers of parameters and layers whose plan is made for the forecast. Beyond, a model needs so
/// much memory that the units in use do not matter.
const PLANNED_PARAMETERS_MAX: f64 = 1e12;
const PLANNED_LAYERS_MAX: usize = 1024;

/// Size of an `f32` in bytes.
const F32: f64 = size_of::<f32>() as f64;

/// Memory of the worker that needs most, in bytes, by use, with its share of the shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerMemory {
    /// Weights that the worker keeps between two steps.
    pub parameters: f64,
    /// Mean gradient.
    pub gradients: f64,
    /// Moments and master weights.
    pub optimizer: f64,
    /// Units in use: gathered and converted weights, gradients of one micro-batch.
    pub live_units: f64,
    /// Sums of earlier micro-batches of a step.
    pub micro_batch_sums: f64,
    /// Activations of a micro-batch and their gradients.
    pub activations: f64,
    /// Copy of the part that the worker saves, while it is written.
    pub checkpoint_copy: f64,
    /// Memory that the library of matrix products uses on a device.
    pub products: f64,
    /// Program, libraries and buffers.
    pub program: f64,
    /// Files of offloaded state; not part of the total.
    pub files: f64,
}

impl WorkerMemory {
    /// Returns the memory of each of `workers` workers. A text has at most `vocabulary` different tokens.
    ///
    /// # Panics
    /// If `workers` is 0.
    pub fn forecast(options: &TrainOptions, vocabulary: usize, workers: usize) -> Self {
        let engine = engine_memory(options, vocabulary, workers);
        let has_checkpoint = f64::from(u8::from(options.checkpoint.is_some()));
        Self {
            activations: activation_bytes(options, vocabulary),
            checkpoint_copy: has_checkpoint * engine.checkpoint_copy,
            program: PROGRAM_BYTES,
            ..engine
        }
    }

    /// Returns the memory of the device of each of `workers` workers. Not part of it is what the driver takes itself,
    /// and some hundred bytes for each unit.
    ///
    /// # Panics
    /// If `workers` is 0.
    #[cfg(feature = "nccl")]
    pub fn forecast_on_device(options: &TrainOptions, vocabulary: usize, workers: usize) -> Self {
        use crate::runtime::engine::Model as _;

        let config = &options.engine;
        let engine = if is_planned(options, vocabulary) {
            let forecast = |shape| EngineMemory::of_passes_on_device(shape, config, workers);
            Self::of_engine(match &options.model {
                ModelOptions::Gpt(gpt) => {
                    let model = Gpt::<f32>::new(gpt.config(vocabulary), Threads::ONE);
                    forecast((model.parameters(), model.passes()))
                }
                ModelOptions::Mlp(mlp) => {
                    let model = Mlp::<f32>::new(&mlp.features(), Threads::ONE);
                    forecast((model.parameters(), model.passes()))
                }
            })
        } else {
            let state = state_memory(options, workers, vocabulary);
            let is_updated_there = config.offload.optimizer == StatePlace::Computing;
            Self { optimizer: if is_updated_there { state.optimizer } else { 0.0 }, ..state }
        };
        let samples = options.batch_size.get();
        let (work, losses) = match &options.model {
            ModelOptions::Gpt(gpt) => {
                let sizes = gpt.config(vocabulary);
                let (element, recompute) = (config.precision.into(), config.plan.recompute);
                let work = gpt_work_bytes(&sizes, (element, gpt.attention), samples, recompute);
                (work, samples as f64 * sizes.block as f64)
            }
            ModelOptions::Mlp(mlp) => {
                let work = mlp_work_bytes(&mlp.features(), samples, config.precision.into());
                (work, samples as f64)
            }
        };
        // Of all micro-batches of two steps.
        let losses = 2.0 * F32 * config.accumulate as f64 * losses;
        let products = WORKSPACE_BYTES as f64;
        Self { activations: work + losses, products, checkpoint_copy: 0.0, ..engine }
    }

    /// Returns all uses of memory with their names.
    pub fn uses(&self) -> [(&'static str, f64); 9] {
        let Self { parameters, gradients, optimizer, live_units, .. } = *self;
        let Self { micro_batch_sums, activations, checkpoint_copy, products, program, .. } = *self;
        [
            ("parameters", parameters),
            ("gradients", gradients),
            ("optimizer state", optimizer),
            ("units in use", live_units),
            ("sums of micro-batches", micro_batch_sums),
            ("activations", activations),
            ("copy for a checkpoint", checkpoint_copy),
            ("matrix products", products),
            ("program", program),
        ]
    }

    /// Returns the sum of all uses in bytes.
    pub fn total(&self) -> f64 {
        self.uses().iter().map(|(_, bytes)| bytes).sum()
    }

    /// The part of an engine.
    fn of_engine(engine: EngineMemory) -> Self {
        let EngineMemory { parameters, gradients, optimizer, live_units, .. } = engine;
        let EngineMemory { micro_batch_sums, files, saved, .. } = engine;
        Self {
            parameters: parameters as f64,
            gradients: gradients as f64,
            optimizer: optimizer as f64,
            live_units: live_units as f64,
            micro_batch_sums: micro_batch_sums as f64,
            checkpoint_copy: saved as f64,
            files: files as f64,
            ..Self::default()
        }
    }
}

/// Number of parameters of the model.
fn parameters_of(options: &TrainOptions, vocabulary: usize) -> f64 {
    match &options.model {
        ModelOptions::Gpt(gpt) => gpt_parameters(&gpt.config(vocabulary)),
        ModelOptions::Mlp(mlp) => mlp_parameters(mlp),
    }
}

/// Whether a plan is made for the forecast.
fn is_planned(options: &TrainOptions, vocabulary: usize) -> bool {
    let layers = match &options.model {
        ModelOptions::Gpt(gpt) => gpt.layers,
        ModelOptions::Mlp(mlp) => mlp.layers,
    };
    parameters_of(options, vocabulary) <= PLANNED_PARAMETERS_MAX && layers <= PLANNED_LAYERS_MAX
}

/// Memory of the engine of a worker.
fn engine_memory(options: &TrainOptions, vocabulary: usize, workers: usize) -> WorkerMemory {
    let config = &options.engine;
    if !is_planned(options, vocabulary) {
        return state_memory(options, workers, vocabulary);
    }
    WorkerMemory::of_engine(match &options.model {
        ModelOptions::Gpt(gpt) => {
            let model = Gpt::<f32>::new(gpt.config(vocabulary), Threads::ONE);
            EngineMemory::forecast(&model, config, workers)
        }
        ModelOptions::Mlp(mlp) => {
            let model = Mlp::<f32>::new(&mlp.features(), Threads::ONE);
            EngineMemory::forecast(&model, config, workers)
        }
    })
}

/// Memory of the state of an engine, without the units in use.
fn state_memory(options: &TrainOptions, workers: usize, vocabulary: usize) -> WorkerMemory {
    let (config, parameters) = (&options.engine, parameters_of(options, vocabulary));
    let part = |is_divided: bool| if is_divided { parameters / workers as f64 } else { parameters };
    let (weight, masters) = match config.precision {
        Precision::F32 => (F32, 0.0),
        Precision::Bf16 | Precision::F16 => (F32 / 2.0, 1.0),
    };
    let copies = masters + config.optimizer.state_names().len() as f64;
    let sums = f64::from(config.accumulate.next_power_of_two().ilog2());
    WorkerMemory {
        parameters: weight * part(config.sharding.divides_parameters()),
        gradients: F32 * part(config.sharding.divides_gradients()),
        optimizer: F32 * copies * part(config.sharding.divides_optimizer()),
        micro_batch_sums: F32 * sums * part(config.sharding.divides_gradients()),
        checkpoint_copy: F32 * (1.0 + config.optimizer.state_names().len() as f64) * part(true),
        ..WorkerMemory::default()
    }
}

/// Memory of the activations of a micro-batch, their gradients, and the work space of the model, in bytes.
pub fn activation_bytes(options: &TrainOptions, vocabulary: usize) -> f64 {
    let samples = options.batch_size.get();
    let work = match &options.model {
        ModelOptions::Gpt(gpt) => {
            let sizes = gpt.config(vocabulary);
            // The weights of a block, transposed.
            block_parameters(&sizes) + gpt_work_len(&sizes, samples, options.engine.plan.recompute)
        }
        ModelOptions::Mlp(mlp) => mlp_work_len(mlp, samples as f64),
    };
    F32 * work
}

fn block_parameters(config: &GptConfig) -> f64 {
    let width = config.width as f64;
    let biases = if config.architecture.has_biases() { 11.0 * width } else { 0.0 };
    2.0 * width + 12.0 * width * width + biases
}

fn gpt_parameters(config: &GptConfig) -> f64 {
    let [vocabulary, block, layers, width] =
        [config.vocabulary, config.block, config.layers, config.width].map(|size| size as f64);
    let biases = if config.architecture.has_biases() { width } else { 0.0 };
    (vocabulary + block) * width + layers * block_parameters(config) + width + biases
}

/// Elements of the activations and their gradients in all tiles, see [`Tile`](super::nn::gpt). If
/// `recompute` is not 0, so many blocks share their activations, and every such group keeps its input.
fn gpt_work_len(config: &GptConfig, sequences: usize, recompute: usize) -> f64 {
    let [vocabulary, block, layers, heads, width] =
        [config.vocabulary, config.block, config.layers, config.heads, config.width]
            .map(|size| size as f64);
    let (slots, kept_inputs) = match recompute as f64 {
        0.0 => (layers, 0.0),
        length => (layers.min(length), (layers / length).ceil()),
    };
    let per_block = 16.0 * width + 2.0 + heads * block;
    let per_token = slots * per_block + kept_inputs * width + 15.0 * width + vocabulary + 2.0;
    let biases = if config.architecture.has_biases() { 11.0 * width } else { 0.0 };
    let per_tile = block * block + 2.0 * width + biases;
    let tiles = sequences.div_ceil(tile_height(config.block, sequences));
    sequences as f64 * block * per_token + tiles as f64 * per_tile
}

fn mlp_parameters(mlp: &MlpOptions) -> f64 {
    let MlpOptions { inputs, layers, width, classes } = mlp;
    let [inputs, layers, width, classes] = [inputs, layers, width, classes].map(|n| *n as f64);
    (inputs + 1.0) * width + (layers - 1.0) * (width + 1.0) * width + (width + 1.0) * classes
}

/// Elements of the outputs of the layers, their gradients, and the synthetic inputs.
fn mlp_work_len(mlp: &MlpOptions, samples: f64) -> f64 {
    let outputs = mlp.layers as f64 * mlp.width as f64 + mlp.classes as f64;
    samples * (2.0 * outputs + (1.0 + KEPT_BATCHES) * mlp.inputs as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Group;
    use crate::runtime::engine::{
        Engine, EngineConfig, Model as _, RecomputeSegment, Sharding, loss_of,
    };
    use crate::train::nn::gpt::{GptArchitecture, Sequences};

    fn gpt_of(vocabulary: usize, block: usize, layers: usize, width: usize) -> GptConfig {
        let architecture = GptArchitecture::Plain;
        GptConfig { architecture, vocabulary, block, layers, heads: 2, width }
    }

    #[track_caller]
    fn check_gpt(config: GptConfig, sequences: usize, recompute: usize) {
        let mut model = Gpt::<f32>::new(config, Threads::ONE);
        let params = model.parameters().init::<f32>(1);
        assert_eq!(gpt_parameters(&config) as usize, params.len(), "{config:?}");
        if 0 < recompute {
            let blocks: Vec<usize> = (1..=config.layers).collect();
            let segments = blocks.chunks(recompute).map(|passes| RecomputeSegment {
                passes: passes[0]..passes[0] + passes.len(),
                recomputes: true,
            });
            model.set_segments(&segments.collect::<Vec<_>>());
        }
        let tokens = vec![0; sequences * config.block];
        let batch = Sequences { length: config.block, inputs: tokens.clone(), targets: tokens };
        loss_of(&mut model, &params, &batch).expect("a GPT names its units");
        let forecast = gpt_work_len(&config, sequences, recompute) as usize;
        assert_eq!(forecast, model.work_len(), "{config:?}");
    }

    #[test]
    fn activations_match_the_buffers() {
        check_gpt(gpt_of(5, 4, 1, 8), 1, 0);
        check_gpt(gpt_of(96, 16, 3, 4), 7, 0);
        check_gpt(gpt_of(3, 100, 2, 2), 9, 0);
        let gpt2 = GptConfig { architecture: GptArchitecture::Gpt2, ..gpt_of(96, 16, 3, 4) };
        check_gpt(gpt2, 7, 0);
        for recompute in 1..=6 {
            check_gpt(gpt_of(7, 4, 5, 8), 3, recompute);
        }
        for (inputs, layers, width, classes) in [(7, 1, 5, 3), (4, 3, 6, 2)] {
            let mlp = MlpOptions { inputs, layers, width, classes };
            let model = Mlp::<f32>::new(&mlp.features(), Threads::ONE);
            assert_eq!(mlp_parameters(&mlp) as usize, model.parameters().len(), "{mlp:?}");
        }
    }

    /// Bytes for each parameter that the state of an engine takes, for `workers` workers.
    fn state_bytes(precision: Precision, workers: usize) -> [f64; 4] {
        let sizes = gpt_of(256, 64, 6, 384);
        let model = Gpt::<f32>::new(sizes, Threads::ONE);
        Sharding::ALL.map(|sharding| {
            let config = EngineConfig { sharding, precision, ..EngineConfig::default() };
            let memory = EngineMemory::forecast(&model, &config, workers);
            let state = memory.parameters + memory.gradients + memory.optimizer;
            state as f64 / gpt_parameters(&sizes)
        })
    }

    #[test]
    fn state_of_every_stage_has_the_bytes_of_the_formula() {
        for (workers, w) in [(1, 1.0), (2, 2.0), (4, 4.0)] {
            let formulas = [
                (Precision::F32, [16.0, 8.0 + 8.0 / w, 4.0 + 12.0 / w, 16.0 / w]),
                (Precision::Bf16, [18.0, 6.0 + 12.0 / w, 2.0 + 16.0 / w, 18.0 / w]),
            ];
            for (precision, formula) in formulas {
                let found = state_bytes(precision, workers);
                for (found, formula) in found.into_iter().zip(formula) {
                    assert!(
                        (found / formula - 1.0).abs() < 0.05,
                        "{precision:?}: {found}, {formula}"
                    );
                }
            }
        }
    }

    #[test]
    fn copy_for_a_checkpoint_has_the_bytes_of_the_pieces() {
        let sizes = gpt_of(96, 16, 3, 32);
        let model = || Gpt::<f32>::new(sizes, Threads::ONE);
        for sharding in Sharding::ALL {
            for workers in [1, 2, 4] {
                let config = EngineConfig { sharding, ..EngineConfig::default() };
                let forecast = EngineMemory::forecast(&model(), &config, workers).saved;
                let copied = Group::on_threads(workers, |group| {
                    let engine = Engine::new(group, model(), config.clone()).expect("it fits");
                    let pieces = engine.state_pieces().expect("they are in memory");
                    Ok(pieces.iter().map(|piece| size_of_val(&*piece.values)).sum::<usize>())
                });
                let most = copied.expect("no rank fails").into_iter().max();
                assert_eq!(most, Some(forecast), "{sharding}, {workers} workers");
            }
        }
    }

    #[test]
    fn memory_of_huge_sizes_is_finite() {
        let huge = usize::MAX;
        let mlp = MlpOptions { inputs: huge, layers: huge, width: huge, classes: 10 };
        assert!((mlp_parameters(&mlp) + mlp_work_len(&mlp, huge as f64)).is_finite());
        let config = GptConfig { heads: huge, ..gpt_of(256, huge, huge, huge) };
        assert!((gpt_parameters(&config) + gpt_work_len(&config, huge, 0)).is_finite());
    }
}
