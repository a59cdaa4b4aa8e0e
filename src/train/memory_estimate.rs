//! Memory estimate of a run: a run that exceeds the available memory is refused before it starts.
//!
//! Numbers are `f64`, so that the product of any sizes is representable.

use crate::train::nn::gpt::{GptConfig, tile_height};
use crate::train::options::{MlpOptions, ModelOptions, TrainOptions};

/// Memory of a worker without a model: its program, libraries, buffers of its streams.
const WORKER_BYTES: f64 = (8 << 20) as f64;
/// Number of batches of an evaluation that are kept, including the last, complete one.
const KEPT_BATCHES: f64 = 16.0;

/// Returns the peak memory of one worker in bytes, including its share of the shared memory. A text has
/// at most `vocabulary` different bytes.
pub fn worker_bytes(options: &TrainOptions, vocabulary: usize) -> f64 {
    let samples = options.batch_size.get();
    let (parameters, copies, work) = match &options.model {
        ModelOptions::Gpt(gpt) => {
            let (block, layers) = (gpt.block, gpt.layers);
            let config =
                GptConfig { vocabulary, block, layers, heads: gpt.heads, width: gpt.width };
            // A second copy of the weights, transposed.
            (gpt_parameters(&config), 1.0, gpt_work_len(&config, samples))
        }
        ModelOptions::Mlp(mlp) => (mlp_parameters(mlp), 0.0, mlp_work_len(mlp, samples as f64)),
    };
    // Weights, gradient, two moments; partial sums of earlier micro-batches.
    let partial_sums = options.engine.accumulate.next_power_of_two().ilog2();
    // A checkpoint is written and read as a whole: weights and moments.
    let has_checkpoint = options.checkpoint.is_some() || options.resume.is_some();
    let buffers = 4.0 + copies + f64::from(partial_sums) + if has_checkpoint { 3.0 } else { 0.0 };
    WORKER_BYTES + size_of::<f32>() as f64 * (parameters * buffers + work)
}

fn gpt_parameters(config: &GptConfig) -> f64 {
    let [vocabulary, block, layers, width] =
        [config.vocabulary, config.block, config.layers, config.width].map(|size| size as f64);
    let per_layer = 2.0 * width + 12.0 * width * width;
    (vocabulary + block) * width + layers * per_layer + width
}

/// Elements of the activations and their gradients in all tiles, see [`Tile`](super::nn::gpt).
fn gpt_work_len(config: &GptConfig, sequences: usize) -> f64 {
    let [vocabulary, block, layers, heads, width] =
        [config.vocabulary, config.block, config.layers, config.heads, config.width]
            .map(|size| size as f64);
    let per_layer = 16.0 * width + 2.0 + heads * block;
    let per_token = layers * per_layer + 15.0 * width + vocabulary + 2.0;
    let per_tile = block * block + 2.0 * width;
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
    use crate::runtime::engine::{Model as _, loss_of};
    use crate::train::nn::cpu::threads::Threads;
    use crate::train::nn::gpt::Gpt;
    use crate::train::nn::gpt::Sequences;
    use crate::train::nn::mlp::Mlp;

    #[track_caller]
    fn check_gpt(vocabulary: usize, block: usize, layers: usize, width: usize, sequences: usize) {
        let config = GptConfig { vocabulary, block, layers, heads: 2, width };
        let mut model = Gpt::<f32>::new(config, Threads::ONE);
        let params = model.parameters().init::<f32>(1);
        assert_eq!(gpt_parameters(&config) as usize, params.len(), "{config:?}");
        let tokens = vec![0; sequences * block];
        let batch = Sequences { length: block, inputs: tokens.clone(), targets: tokens };
        loss_of(&mut model, &params, &batch).expect("a GPT names its units");
        assert_eq!(gpt_work_len(&config, sequences) as usize, model.work_len(), "{config:?}");
    }

    #[test]
    fn footprint_matches_the_buffers() {
        check_gpt(5, 4, 1, 8, 1);
        check_gpt(96, 16, 3, 4, 7);
        check_gpt(3, 100, 2, 2, 9);
        for (inputs, layers, width, classes) in [(7, 1, 5, 3), (4, 3, 6, 2)] {
            let mut features = vec![inputs];
            features.extend(std::iter::repeat_n(width, layers));
            features.push(classes);
            let model = Mlp::<f32>::new(&features, Threads::ONE);
            let mlp = MlpOptions { inputs, layers, width, classes };
            assert_eq!(mlp_parameters(&mlp) as usize, model.parameters().len(), "{mlp:?}");
        }
    }

    #[test]
    fn footprint_of_huge_sizes_is_finite() {
        let huge = usize::MAX;
        let mlp = MlpOptions { inputs: huge, layers: huge, width: huge, classes: 10 };
        assert!((mlp_parameters(&mlp) + mlp_work_len(&mlp, huge as f64)).is_finite());
        let config =
            GptConfig { vocabulary: 256, block: huge, layers: huge, heads: huge, width: huge };
        assert!((gpt_parameters(&config) + gpt_work_len(&config, huge)).is_finite());
    }
}
