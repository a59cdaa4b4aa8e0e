//! Notes on settings of a job that have another effect than their values say. Pure.

use super::hosts::Split;
use crate::base::shell::quoted;
use crate::cli::line::CommandLine;
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

/// Returns a note on several workers that use CPUs although nothing says so, because this machine has no GPU;
/// accelerate itself starts one process then.
pub(super) fn note_of_cpus(workers: usize, has_hosts: bool) -> String {
    let elsewhere = if has_hosts { "; `--multi_gpu` uses the GPUs of the hosts" } else { "" };
    format!(
        "note: no GPU was found on this machine: the {workers} workers train together on CPUs, as with `--cpu`{elsewhere}\n"
    )
}

/// Returns a warning about several machines of which DeepSpeed's launcher does not know the hosts: it starts this one.
/// If this machine has a number, the line is probably started on each of them.
pub(super) fn warning_of_no_hosts(machines: usize, workers: usize, has_number: bool) -> String {
    let on_each = if has_number {
        "if you start the line on each machine, write `deepspeed_multinode_launcher: standard` under \
         `deepspeed_config`; else "
    } else {
        ""
    };
    format!(
        "warning: `num_machines` is {machines}, and nothing names their hosts: the job is this machine alone, with {}\n\
         help: {on_each}write `deepspeed_hostfile: FILE` under `deepspeed_config` of the configuration file, or type \
         `-H n1,n2`\n",
        show_count(workers, "worker")
    )
}

/// Returns a warning about several workers that need GPUs on a machine that has none.
pub(super) fn warning_of_no_gpus(typed: &CommandLine, workers: usize) -> String {
    format!(
        "warning: no GPU was found on this machine: each of the {workers} workers may train a copy of its own\n\
         help: to train together on CPUs, type `{}`\n",
        line_on_cpus(typed, &workers.to_string())
    )
}

/// The same for what needs GPUs and cannot use CPUs: DeepSpeed, FSDP.
pub(super) fn warning_of_needed_gpus(what: &str, workers: usize) -> String {
    format!(
        "warning: no GPU was found on this machine, and accelerate uses {what} on GPUs: each of the {workers} workers may \
         fail, or train a copy of its own\n"
    )
}

/// Formats the line with `--cpu` and this number of workers, instead of `--multi_gpu`.
pub(super) fn line_on_cpus(typed: &CommandLine, workers: &str) -> String {
    let counted = typed.last("num_processes").is_some();
    let count = if counted { String::new() } else { format!(" --num_processes {workers}") };
    let on_cpus = format!("--cpu{count}");
    let of_gpus = typed.last("multi_gpu").map(|given| given.name.word);
    let mut words: Vec<String> = typed.words.iter().map(quoted).collect();
    match of_gpus {
        Some(word) => words[word] = on_cpus,
        None => words.insert(0, on_cpus),
    }
    format!("{} {}", typed.program, words.join(" "))
}
