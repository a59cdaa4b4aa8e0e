//! `remuda train --dry-run`: the memory of a worker, or of its GPU, for every stage of ZeRO.

use crate::cli::command::train::values::DeviceArg;
use crate::inventory::GpuRoom;
use crate::report::text::{Align, show_bytes, show_columns};
use crate::runtime::engine::Sharding;
use crate::train::{TrainOptions, WorkerMemory};

/// What the memory of a run follows from.
pub(super) struct MemoryTable<'a> {
    pub(super) options: &'a TrainOptions,
    /// Tokens that the model knows.
    pub(super) vocabulary: usize,
    pub(super) workers: usize,
    pub(super) device: DeviceArg,
    /// GPUs of this machine, if the workers use them.
    pub(super) rooms: Vec<GpuRoom>,
}

/// Formats the forecast of the memory of a worker by use and stage; the stage of the run is marked.
pub(super) fn show_memory(table: &MemoryTable<'_>) -> String {
    let options = table.options;
    let forecasts = Sharding::ALL.map(|sharding| {
        let mut other = options.clone();
        other.engine.sharding = sharding;
        forecast(table, &other)
    });
    let title = |sharding: Sharding| {
        let mark = if sharding == options.engine.sharding { "*" } else { "" };
        format!("{mark}stage {}", sharding.stage())
    };
    let row = |name: &str, cells: [String; 4]| {
        let [a, b, c, d] = cells;
        [name.to_owned(), a, b, c, d]
    };
    let uses = forecasts.map(|forecast| forecast.uses());
    let of_use = |index: usize| {
        let bytes = uses.map(|uses| uses[index].1);
        let is_shown = bytes.iter().any(|bytes| 0.0 < *bytes);
        is_shown.then(|| row(uses[0][index].0, bytes.map(show_bytes)))
    };
    let mut rows = vec![row(of_what(table.device), Sharding::ALL.map(title))];
    rows.extend((0..uses[0].len()).filter_map(of_use));
    rows.push(row("total", forecasts.map(|forecast| show_bytes(forecast.total()))));
    if forecasts.iter().any(|forecast| 0.0 < forecast.files) {
        rows.push(row("files of a worker", forecasts.map(|forecast| show_bytes(forecast.files))));
    }
    let right = Align::Right;
    let mut text = show_columns(&rows, [Align::Left, right, right, right, right]);
    text.extend(table.rooms.iter().map(|GpuRoom { slot, name, free_bytes }| {
        format!("{name} {}: {} are free\n", slot.0, show_bytes(*free_bytes as f64))
    }));
    text
}

fn of_what(device: DeviceArg) -> &'static str {
    match device {
        DeviceArg::Cuda => "memory of a GPU",
        DeviceArg::Cpu | DeviceArg::Auto => "memory of a worker",
    }
}

fn forecast(table: &MemoryTable<'_>, options: &TrainOptions) -> WorkerMemory {
    let MemoryTable { vocabulary, workers, .. } = *table;
    #[cfg(feature = "nccl")]
    if table.device == DeviceArg::Cuda {
        return WorkerMemory::forecast_on_device(options, vocabulary, workers);
    }
    WorkerMemory::forecast(options, vocabulary, workers)
}
