//! Processes.
//!
//! | file | contents |
//! |---|---|
//! | `fork`, `start_programs` | copies of this process; many programs at once |
//! | `process_tree` | adopting, finding, killing and reaping the processes below this one |
//! | `signals`, `signal_stream` | signals: blocked, received, sent; as a stream in an async runtime |
//! | `peak_memory` | the most memory that this process has used |
//! | `replace` | replacing this process by another program |
//! | `command_output`, `shell_env`, `io_with_timeout` | output of a helper program, environment of a shell, file I/O that may hang |

#[cfg(feature = "cli")]
pub mod command_output;
pub mod fork;
#[cfg(feature = "cli")]
pub mod io_with_timeout;
pub mod peak_memory;
pub mod process_tree;
#[cfg(feature = "cli")]
pub mod replace;
#[cfg(feature = "cli")]
pub mod shell_env;
#[cfg(feature = "cli")]
pub mod signal_stream;
pub mod signals;
pub mod start_programs;
