//! What the workers of `remuda train` run, in words, for `--dry-run`. Pure.

use crate::cli::command::optimizer_text::show_settings;
use crate::cli::command::train::values::DeviceArg;
use crate::report::text::show_count;
use crate::runtime::engine::{Exchange, Precision, StatePlace};
use crate::train::{ModelOptions, TrainOptions};

/// Returns the model, the steps and the settings of the engine of `workers` workers.
pub(super) fn show_trainer(options: &TrainOptions, device: DeviceArg, workers: usize) -> String {
    let TrainOptions { model, engine, steps, batch_size, .. } = options;
    let model = match model {
        ModelOptions::Gpt(gpt) => format!(
            "{} of {}, {}, width {}, block {}",
            gpt.architecture,
            show_count(gpt.layers, "layer"),
            show_count(gpt.heads, "head"),
            gpt.width,
            gpt.block
        ),
        ModelOptions::Mlp(mlp) => {
            format!("mlp of {} of width {}", show_count(mlp.layers, "layer"), mlp.width)
        }
    };
    let (workers, steps) = (show_count(workers, "worker"), show_count(*steps as usize, "step"));
    let batches = match engine.accumulate {
        1 => "1 micro-batch".to_owned(),
        count => format!("{count} micro-batches"),
    };
    let stage = engine.sharding.stage();
    let precision = match engine.precision {
        Precision::F32 => "fp32",
        Precision::Bf16 => "bf16",
        Precision::F16 => "fp16",
    };
    let optimizer = show_settings(&engine.optimizer).join(", ");
    let place = match &engine.offload.optimizer {
        // A processor has no other memory.
        StatePlace::Host if device == DeviceArg::Cuda => {
            ", its state in the memory of the host".to_owned()
        }
        StatePlace::Files(dir) => format!(", its state in files of `{}`", dir.display()),
        StatePlace::Computing | StatePlace::Host => String::new(),
    };
    let order = match engine.exchange {
        Exchange::AnyOrder => "; gradients added in NCCL's order",
        Exchange::Devices | Exchange::Host => "",
    };
    format!(
        "the bundled trainer: {model}; {steps} of {workers} × {batches} × {batch_size}; stage {stage}, {precision}; \
         {optimizer}{place}{order}"
    )
}
