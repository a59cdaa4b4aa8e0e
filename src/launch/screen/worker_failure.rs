//! The part of the final screen about a worker that failed.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::base::exit::signal_name;
use crate::base::{Rank, WorkerExit};
use crate::inventory::xid_is_of_device;
use crate::launch::codes;
use crate::launch::history::WorkerHistory;
use crate::launch::options::CommandOptions;
use crate::launch::screen::argument_hints::{Arguments, argument_hints};
use crate::launch::screen::input_hint::{input_hint, module_hint, remedy_hint, variable_hint};
use crate::launch::screen::job_report::{JobReport, after};
use crate::launch::screen::loss_help::help_of_killed;
use crate::launch::screen::messages;
use crate::launch::screen::shown_text::{
    ShownWorker, first_line, show_recorded_stack, without_shown_text,
};
use crate::report::OutputRouter;
use crate::report::text::{Failure, show_processes};
use crate::wire::{KernelReport, Stream};

/// What the C++ runtime prints when a process exits while threads of torch still run.
const RUNNING_THREADS: &[u8] = b"terminate called without an active exception";
const DESTROY_GROUP: &str = "the program ended while threads of torch were running, often after its own \
                             `sys.exit`: delete the model, then call \
                             `torch.distributed.destroy_process_group()` before the end";

/// Where a worker ran.
pub(in crate::launch) fn place_of(worker: &WorkerHistory) -> String {
    let WorkerHistory { host, local_rank, slot, .. } = worker;
    let pid = worker.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    format!("host {host}   local rank {local_rank}   slot {slot}   pid {pid}")
}

/// The first error that the driver of the GPUs logged while a worker ran.
fn gpu_fact(xid: &str) -> String {
    format!("the GPU driver logged: {}", first_line(xid))
}

/// What to do about an error of a GPU itself.
fn gpu_help(xids: &[String], host: &str) -> Option<String> {
    xids.iter().any(|xid| xid_is_of_device(xid)).then(|| {
        format!(
            "the GPU itself has failed, not the program: `nvidia-smi -q` on {host} shows its state; leave it \
             out with `--exclude` until it has been reset or replaced"
        )
    })
}

impl JobReport<'_> {
    pub(in crate::launch) fn worker_failed(
        &self,
        rank: Rank,
        title: String,
        pages: &OutputRouter,
    ) -> Failure {
        let worker = self.worker(rank);
        let none = KernelReport::default();
        let kernel = worker.outcome.as_ref().map_or(&none, |ended| &ended.kernel);
        let mut facts = self.exception_facts(worker);
        facts.push(place_of(worker));
        facts.extend(self.last_progress(rank));
        if 0 < kernel.oom_kills {
            facts.push(format!(
                "the kernel's OOM killer killed {} while this worker ran",
                show_processes(kernel.oom_kills as usize),
            ));
        }
        facts.extend(kernel.xids.first().map(String::as_str).map(gpu_fact));
        facts.extend(self.reports_of_others());
        let last_lines = pages.last_lines(rank);
        let stream = last_lines.as_ref().map_or(Stream::Stderr, |(stream, _)| *stream);
        // A worker that failed for a reason of its own did not wait for those that had exited.
        let ended = worker.outcome.as_ref().filter(|_| worker.lost_peer || self.has_lost_peers());
        let mut help = ended.map_or_else(Vec::new, |ended| self.early_exits_help(Some(ended.at)));
        let lines = || last_lines.iter().flat_map(|(_, lines)| lines);
        help.extend(self.argument_hints(worker, lines()));
        let input = (worker.rank, self.options.stdin.includes(worker.rank));
        help.extend(input_hint(input, self.has_option("--stdin"), lines()));
        help.extend(self.module_hint(worker));
        help.extend(self.exception().and_then(variable_hint));
        help.extend(self.exception().and_then(remedy_hint));
        help.extend(gpu_help(&kernel.xids, worker.host.as_str()));
        help.extend(self.signal_help(worker, lines()));
        help.extend(self.killed_child_help(worker, lines()));
        facts.extend(self.forwarded_signal_fact(worker));
        let recorded = self.recorded_stack().filter(|_| !pages.has_traceback(rank));
        match recorded {
            Some(stack) => facts.extend(show_recorded_stack(stack)),
            None if last_lines.is_none() => facts.push("it wrote no output".to_owned()),
            None => {}
        }
        let (same, title_has) = (&self.verdict.reports.same_exception, self.exception());
        let shown = ShownWorker { rank, whose: "its", same, title_has, screen: self.screen };
        let last_lines = without_shown_text(last_lines, pages, shown, &mut facts);
        Failure {
            code: codes::WORKER_FAILED,
            title,
            facts,
            last_lines,
            lines_of: None,
            log: pages.log_path(rank, stream).or_else(|| self.run_dir()),
            help,
        }
    }

    /// Report of a worker that gave up: its last lines, or else those of the peer that detected it.
    pub(in crate::launch) fn worker_gave_up(
        &self,
        rank: Rank,
        detector: Rank,
        title: String,
        pages: &OutputRouter,
    ) -> Failure {
        let mut failure = self.worker_failed(rank, title, pages);
        let reason = self.worker(rank).gave_up.as_ref().map(|(reason, _)| first_line(reason));
        failure.facts.extend(reason.map(|reason| format!("it reported: {reason}")));
        let peer = self.worker(detector);
        let exit = peer.outcome.as_ref().map_or(WorkerExit::Lost, |ended| ended.exit);
        failure.facts.push(format!(
            "rank {} ({}) {exit} after it detected this failure; this rank was then stopped by remuda",
            peer.rank, peer.host
        ));
        if failure.last_lines.is_none() {
            failure.last_lines = pages.last_lines(detector);
            failure.lines_of = Some(peer.rank);
            let stream = failure.last_lines.as_ref().map_or(Stream::Stderr, |(stream, _)| *stream);
            failure.log = pages.log_path(detector, stream).or(failure.log);
        }
        failure
    }

    /// Workers that exited with 0 before the others failed or were stopped: a worker that still
    /// needed them in a collective could not finish it.
    pub(in crate::launch) fn early_exits_help(&self, failure: Option<Instant>) -> Vec<String> {
        let is_early = |worker: &&WorkerHistory| {
            let ended = worker.outcome.as_ref().filter(|ended| ended.exit.is_success());
            ended.is_some_and(|ended| !ended.stopped && failure.is_none_or(|at| ended.at < at))
        };
        let early: Vec<_> = self.history.workers.iter().filter(is_early).collect();
        let was_alone = early.len() == self.history.workers.len();
        let Some(first) = early.first().filter(|_| !was_alone) else {
            return Vec::new();
        };
        let ranks = messages::rank_and_others(&early);
        let ran = after(first);
        vec![format!(
            "{ranks} exited with 0{ran} while other ranks were still running; collectives need all ranks"
        )]
    }

    /// The directory with the record of the job, if it is kept.
    pub(in crate::launch) fn run_dir(&self) -> Option<PathBuf> {
        self.options.output.run_dir.as_ref().map(|dir| dir.path().to_owned())
    }

    /// A signal that the user sent to remuda, and that ended the worker.
    fn forwarded_signal_fact(&self, worker: &WorkerHistory) -> Option<String> {
        let signal = own_signal(worker)?;
        let is_forwarded = self.history.forwarded_signals.contains(&signal);
        is_forwarded.then(|| {
            let name = signal_name(signal);
            format!("remuda forwarded {name}; the program has no handler for it")
        })
    }

    /// How to find out why a signal ended the worker.
    fn signal_help<'b>(
        &self,
        worker: &WorkerHistory,
        mut lines: impl Iterator<Item = &'b Vec<u8>>,
    ) -> Option<String> {
        let oom_kills = worker.outcome.as_ref().map_or(0, |ended| ended.kernel.oom_kills);
        match own_signal(worker)? {
            libc::SIGKILL if oom_kills == 0 => {
                help_of_killed(worker.host.as_str(), &self.options.supervisor)
            }
            libc::SIGABRT if lines.any(|line| line.starts_with(RUNNING_THREADS)) => {
                Some(format!("{DESTROY_GROUP}; the lines before this message show why it exited"))
            }
            libc::SIGBUS => Some(format!(
                "shared memory that is full ends a process so: see `df /dev/shm` on {}; a container gets more by \
                 `--shm-size`",
                worker.host
            )),
            libc::SIGSEGV => {
                let argv = self.argv(worker);
                let program = Path::new(argv.first()?).file_name()?.to_string_lossy();
                let has_stack = lines.any(|line| line.starts_with(b"Fatal Python error"));
                (program.starts_with("python") && !has_stack).then(|| self.fault_handler_help())
            }
            _ => None,
        }
    }

    /// How to find out who killed a process that the worker had started with SIGKILL.
    fn killed_child_help<'b>(
        &self,
        worker: &WorkerHistory,
        mut lines: impl Iterator<Item = &'b Vec<u8>>,
    ) -> Option<String> {
        const KILLED: WorkerExit = WorkerExit::Code(128 + libc::SIGKILL as u8);
        let exit = worker.outcome.as_ref().filter(|ended| !ended.stopped)?.exit;
        let is_loader = |line: &Vec<u8>| {
            let line = String::from_utf8_lossy(line);
            line.contains("DataLoader worker") && line.contains("by signal: Killed")
        };
        let (what, further) = if exit == KILLED {
            ("code 137 is 128 + 9: SIGKILL ended a process in it", "")
        } else if lines.any(is_loader) {
            ("SIGKILL ended a process of its DataLoader", "; fewer `num_workers` need less memory")
        } else {
            return None;
        };
        let how = help_of_killed(worker.host.as_str(), &self.options.supervisor)?;
        Some(format!("{what}; {how}{further}"))
    }

    /// How a program of Python prints where it was when a signal ended it.
    fn fault_handler_help(&self) -> String {
        // The options of these launchers set no variables.
        const FACES: [&str; 3] = ["torchrun", "accelerate", "torch.distributed.launch"];
        let mut names = self.options.command.typed.iter().take(2).map(Path::new);
        let has_no_env = names.any(|name| {
            let name = name.file_name().unwrap_or_default().to_string_lossy();
            FACES.iter().any(|face| name.starts_with(face))
        });
        let how = if has_no_env {
            "`PYTHONFAULTHANDLER=1` in the environment of the workers prints where"
        } else {
            "`--env PYTHONFAULTHANDLER=1` prints where"
        };
        how.to_owned()
    }

    /// The command of a worker.
    fn argv(&self, worker: &WorkerHistory) -> Vec<OsString> {
        let workers = &self.plan.nodes[worker.node.index()].workers;
        let plan = workers.iter().find(|plan| plan.rank == worker.rank);
        plan.map_or_else(Vec::new, |plan| plan.argv().map(Cow::into_owned).collect())
    }

    /// The interpreter that lacks a module.
    fn module_hint(&self, worker: &WorkerHistory) -> Option<String> {
        let argv = self.argv(worker);
        let is_chosen_by_remuda =
            !self.options.command.typed.iter().any(|word| word.as_bytes().starts_with(b"--no_p"));
        let option = if self.has_option("--python") { "--python FILE" } else { "PYTHON_EXEC=FILE" };
        module_hint(self.exception()?, argv.first()?, is_chosen_by_remuda.then_some(option))
    }

    /// Whether the launcher whose line was typed has an option.
    pub(in crate::launch) fn has_option(&self, name: &str) -> bool {
        let flags = (self.options.command.flags)();
        flags.iter().any(|flag| flag.spellings.iter().any(|spelling| spelling == name))
    }

    /// Hints about arguments that the program of a worker refused.
    fn argument_hints<'b>(
        &self,
        worker: &WorkerHistory,
        lines: impl Iterator<Item = &'b Vec<u8>>,
    ) -> Vec<String> {
        let argv = self.argv(worker);
        if argv.is_empty() {
            return Vec::new();
        }
        let is_module = |words: &&[OsString]| words[0] == "-m";
        let module = argv.windows(2).find(is_module).map(|words| &words[1]);
        let CommandOptions { script, program, typed, flags, .. } = &self.options.command;
        let mut named = [script.as_ref(), Some(program), module].into_iter().flatten();
        let script = named.find(|name| typed.contains(name)).unwrap_or(program);
        let arguments = Arguments {
            argv: &argv,
            command: typed,
            script: &script.to_string_lossy(),
            added_argument: &format!("--local_rank={}", worker.local_rank),
            flags: &flags(),
        };
        argument_hints(arguments, lines)
    }
}

/// The signal that ended a worker, unless remuda stopped the worker.
fn own_signal(worker: &WorkerHistory) -> Option<i32> {
    match worker.outcome.as_ref().filter(|ended| !ended.stopped)?.exit {
        WorkerExit::Signal { signal, .. } => Some(signal),
        WorkerExit::Code(_) | WorkerExit::Lost => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_gpu_is_a_fact_and_that_of_a_device_has_a_help() {
        let of_program = "Xid (PCI:0000:00:06): 43, pid=7024, name=python3, channel 0x0000000a";
        assert_eq!(gpu_fact(of_program), format!("the GPU driver logged: {of_program}"));
        assert_eq!(gpu_help(&[of_program.to_owned()], "n1"), None);
        let of_device = "Xid (PCI:0000:1a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";
        let help = gpu_help(&[of_program.to_owned(), of_device.to_owned()], "n1");
        assert_eq!(
            help.as_deref(),
            Some(
                "the GPU itself has failed, not the program: `nvidia-smi -q` on n1 shows its state; leave it out \
                 with `--exclude` until it has been reset or replaced"
            )
        );
    }
}
