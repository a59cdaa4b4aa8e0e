//! Goal: whatever dies, hangs or misbehaves, the exit status is the truth and nothing is left.
//! Method: the real program, real processes, real signals. Every job carries a marker; after every
//! job the process table is searched for it. Nobody waits for time to pass: tests look until they
//! see, and a deadline only ends a hang.
//!
//! | fault | where |
//! |---|---|
//! | a worker exits with a code, exits early with 0, is killed, crashes, is out of memory | `workers` |
//! | all workers crash at once; a death long after the first failure | `workers`, `screens` |
//! | a worker ignores SIGTERM, or outlives SIGKILL | `workers` |
//! | a daemon, a fork chain, a zombie, a holder of the output is left behind | `workers`, `output` |
//! | shim, agent, launcher killed, alone and in pairs | `ours` |
//! | any one of them killed at a random moment | `random`, as proofs |
//! | a shim is stopped by a signal, once or again and again | `frozen` |
//! | launcher or agent stands still; the launcher is process 1 of a container | `ours` |
//! | the agent hears nonsense, or another epoch; it panics; nobody reads its words | `agent` |
//! | a signal to every process at once | `ours` |
//! | SIGINT once, twice, three times; SIGTERM; SIGHUP with and without nohup; Ctrl-Z; SIGQUIT | `signals` |
//! | a failure that is restarted: worker, shim, agent, crash loop, refusal; a warning before TERM | `restarts` |
//! | a time limit; two jobs at once | `signals` |
//! | two jobs that want the same GPU | `claims` |
//! | a screen that stands still, goes on, or is closed | `output` |
//! | a status line among lines, prompts and failures | `status` |
//! | a gigabyte without an end of line; escape sequences; torn lines; progress bars | `output` |
//! | too few descriptors; no standard input; input that nobody reads | `options` |
//! | nodes of a job that are launched one by one | `node` |
//! | programs and scripts that are missing or cannot be executed | `options`, `screens` |
//!
//! Not here, and why:
//!
//! * Agent, shim and launcher of a node killed together: workers die with the shim, but daemons
//!   that they started have nobody left who knows them. Only a control group could, see
//!   ARCHITECTURE.md.
//! * The screen of an agent that ends with our own bug: no agent does. That the agent says so and
//!   ends with 70 is tested in `agent`, what the launcher makes of a 70 in `job`.

#![cfg(all(feature = "cli", feature = "train"))]

#[expect(dead_code, reason = "each test program uses a part of it")]
#[path = "../support/mod.rs"]
mod support;

mod agent;
mod claims;
mod frozen;
mod node;
mod options;
mod ours;
mod output;
mod random;
mod restarts;
mod screens;
mod signals;
mod status;
mod trace_ffi;
mod workers;
