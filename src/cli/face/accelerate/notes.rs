//! Notes on settings of a job that have another effect than their values say. Pure.

use super::hosts::Split;
use crate::report::text::show_count;

/// Returns a note on workers that machines cannot share equally: accelerate rounds the number of each down.
pub(super) fn note_of_shares(split: Split) -> Option<String> {
    let Split { workers, machines } = split;
    let share = split.share();
    (1 < machines && share * machines != workers).then(|| {
        format!(
            "note: `num_processes` is {workers}, which {machines} machines cannot share equally: each starts {}, the \
             job has {}\n",
            show_count(share, "worker"),
            share * machines
        )
    })
}
