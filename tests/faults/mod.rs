//! Goal: whichever process is killed, hangs or misbehaves, the exit status is correct and no process
//! is left. Method: the real program, real processes, real signals. Every job has a marker; after
//! every job the process table is searched for it. Tests do not sleep: they poll for a state, and a
//! deadline only ends a hang.
//!
//! | fault | where |
//! |---|---|
//! | a worker exits with a code, exits early with 0, is killed, crashes, is out of memory | `workers` |
//! | all workers crash at once; an exit long after the first failure | `workers`, `screens` |
//! | a worker ignores SIGTERM, or outlives SIGKILL | `workers` |
//! | a daemon, a fork chain, a zombie, a holder of the output is left behind | `workers`, `output` |
//! | shim, agent, launcher killed, alone and in pairs | `own_processes` |
//! | any one of them killed at a random moment | `random`, as proofs |
//! | a shim is stopped by a signal, once or again and again | `frozen` |
//! | launcher or agent is suspended; the launcher is process 1 of a container | `own_processes` |
//! | the agent receives invalid data, or another epoch; it panics; its stderr blocks | `agent` |
//! | a signal to every process at once | `own_processes` |
//! | SIGINT once, twice, three times; SIGTERM; SIGHUP with and without nohup; Ctrl-Z; SIGQUIT | `signals` |
//! | a failure that is restarted: worker, shim, agent, crash loop, refusal; a warning before TERM | `restarts` |
//! | a time limit; two jobs at once | `signals` |
//! | two jobs that want the same GPU | `claims` |
//! | a screen that blocks, continues, or is closed | `output` |
//! | a status line among lines, prompts and failures | `status` |
//! | a gigabyte without an end of line; escape sequences; torn lines; progress bars | `output` |
//! | too few descriptors; no standard input; input without a reader | `options` |
//! | nodes of a job that are launched one by one | `node` |
//! | programs and scripts that are missing or cannot be executed | `options`, `scripts`, `screens` |
//!
//! Not here, and why:
//!
//! * Agent, shim and launcher of a node killed together: the workers are killed with the shim, but no
//!   process is left that knows their daemons. Only a control group could find them, see
//!   docs/decisions/0001-process-tree.md.
//! * The screen of an agent that exits after an internal error: no agent does. `agent` tests that the
//!   agent reports the error and exits with 70, `job` tests how the launcher handles 70.

mod agent;
mod claims;
mod frozen;
mod node;
mod options;
mod output;
mod own_processes;
mod random;
mod restarts;
mod screens;
mod scripts;
mod signals;
mod status;
mod trace_ffi;
mod workers;
