//! `remuda train --dry-run`: the memory of a worker, for every stage of ZeRO.

use crate::report::text::{Align, show_bytes, show_columns};
use crate::runtime::engine::Sharding;
use crate::train::{TrainOptions, WorkerMemory};

/// Formats the forecast of the memory of one of `workers` workers, by use and stage; the stage of the run is
/// marked.
pub(super) fn show_memory(options: &TrainOptions, vocabulary: usize, workers: usize) -> String {
    let forecasts = Sharding::ALL.map(|sharding| {
        let mut other = options.clone();
        other.engine.sharding = sharding;
        WorkerMemory::forecast(&other, vocabulary, workers)
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
    let mut rows = vec![row("memory of a worker", Sharding::ALL.map(title))];
    rows.extend((0..uses[0].len()).filter_map(of_use));
    rows.push(row("total", forecasts.map(|forecast| show_bytes(forecast.total()))));
    if forecasts.iter().any(|forecast| 0.0 < forecast.files) {
        rows.push(row("files of a worker", forecasts.map(|forecast| show_bytes(forecast.files))));
    }
    show_columns(&rows, [Align::Left, Align::Right, Align::Right, Align::Right, Align::Right])
}
