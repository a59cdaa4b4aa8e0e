//! Exit statuses: the documented ones of `remuda`, and the one of a worker.

use std::fmt;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

/// Exit status of `remuda` itself. A worker's own status is passed through as [`Status::Worker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Every worker of every node returned 0.
    Success,
    /// A checking command found problems in its input.
    Findings,
    /// The command line, selectors included, is invalid.
    Usage,
    /// An input file is malformed.
    BadInput,
    /// An input file is missing or unreadable.
    NoInput,
    /// A host cannot be reached.
    Unreachable,
    /// Internal error: a bug of remuda.
    Bug,
    /// A limit of the operating system: descriptors, processes, memory.
    OsLimit,
    /// An output file cannot be created.
    CantCreate,
    /// Reading or writing failed.
    Io,
    /// A node was lost.
    LeaseLost,
    /// The peer uses another protocol.
    Protocol,
    /// Permission denied, or authentication failed.
    Permission,
    /// The configuration is invalid.
    Config,
    /// `--timeout` ran out.
    Timeout,
    /// The program exists but cannot be executed.
    NotExecutable,
    /// The program does not exist.
    NotFound,
    /// A signal to the launcher ended the job.
    Interrupted(i32),
    /// The status of the worker that failed first.
    Worker(u8),
}

impl Status {
    /// The number that the shell receives.
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Findings => 1,
            Self::Usage => 2,
            Self::BadInput => 65,
            Self::NoInput => 66,
            Self::Unreachable => 69,
            Self::Bug => 70,
            Self::OsLimit => 71,
            Self::CantCreate => 73,
            Self::Io => 74,
            Self::LeaseLost => 75,
            Self::Protocol => 76,
            Self::Permission => 77,
            Self::Config => 78,
            Self::Timeout => 124,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Interrupted(signal) => 128 + signal as u8,
            Self::Worker(code) => code,
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        status.code().into()
    }
}

/// How a worker exited. Termination by a signal never counts as success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerExit {
    /// The worker returned from `main` or called `exit`.
    Code(u8),
    /// A signal terminated the worker.
    Signal {
        /// The signal's number.
        signal: i32,
        /// Whether the kernel wrote a core file.
        core: bool,
    },
    /// The exit status is unknown, because the node was lost.
    Lost,
}

impl WorkerExit {
    /// Whether the worker exited with 0.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }

    /// The status that a shell would report: the code itself, or 128 + signal.
    pub fn shell_status(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal { signal, .. } => 128u8.saturating_add(signal as u8),
            Self::Lost => Status::LeaseLost.code(),
        }
    }
}

impl fmt::Display for WorkerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal { signal, core } => {
                write!(f, "was killed by signal {signal} ({})", signal_name(signal))?;
                if core { f.write_str(", core dumped") } else { Ok(()) }
            }
            Self::Lost => f.write_str("was lost with its node"),
        }
    }
}

/// Names of signals by their numbers, without `SIG`.
const SIGNAL_NAMES: [&str; 32] = [
    "0", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// The signal with this name, with or without `SIG`, or with this decimal number (1 to 31).
pub fn signal_number(name: &str) -> Option<i32> {
    let bare = name.strip_prefix("SIG").unwrap_or(name);
    let named = SIGNAL_NAMES.iter().position(|known| *known == bare).map(|index| index as i32);
    named
        .or_else(|| name.parse().ok())
        .filter(|number| (1..SIGNAL_NAMES.len() as i32).contains(number))
}

/// The usual name of a signal, `SIGKILL` for 9.
pub fn signal_name(signal: i32) -> String {
    match usize::try_from(signal).ok().and_then(|index| SIGNAL_NAMES.get(index)) {
        Some(name) => format!("SIG{name}"),
        None => format!("SIG{signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_exit_is_never_success() {
        for signal in 1..65 {
            let exit = WorkerExit::Signal { signal, core: false };
            assert!(!exit.is_success());
            assert_eq!(exit.shell_status(), 128 + signal as u8);
        }
        assert_eq!(
            WorkerExit::Signal { signal: 9, core: false }.to_string(),
            "was killed by signal 9 (SIGKILL)"
        );
    }

    #[test]
    fn signal_number_accepts_every_name_and_number() {
        for signal in 1..32 {
            let name = signal_name(signal);
            assert_eq!(signal_number(&name), Some(signal));
            assert_eq!(signal_number(name.trim_start_matches("SIG")), Some(signal));
            assert_eq!(signal_number(&signal.to_string()), Some(signal));
        }
        for unknown in ["", "0", "SIG", "FOO", "32", "-1", "usr1"] {
            assert_eq!(signal_number(unknown), None);
        }
    }

    #[test]
    fn status_codes_match_documentation() {
        assert_eq!(Status::Interrupted(2).code(), 130);
        assert_eq!(Status::Interrupted(15).code(), 143);
        assert_eq!(Status::Worker(7).code(), 7);
        assert_eq!(Status::Timeout.code(), 124);
    }
}
