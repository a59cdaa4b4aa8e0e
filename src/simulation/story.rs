//! The story of a run: a line for each event that a person needs to follow it.

use std::fmt;

use super::clock::Micros;

/// Lines of a story; empty unless the story was requested.
pub(super) struct Story {
    lines: Option<Vec<String>>,
}

/// The process of which a line tells.
#[derive(Clone, Copy, Debug)]
pub(super) enum Teller {
    Outside,
    Launcher,
    Agent { host: usize, agent: usize },
    Worker { host: usize, rank: u32 },
}

impl fmt::Display for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside => f.pad(""),
            Self::Launcher => f.pad("launcher"),
            Self::Agent { host, agent } => f.pad(&format!("host {host} agent {agent}")),
            Self::Worker { host, rank } => f.pad(&format!("host {host} rank {rank}")),
        }
    }
}

impl Story {
    pub(super) fn new(is_requested: bool) -> Self {
        Self { lines: is_requested.then(Vec::new) }
    }

    /// Adds a line; the text is made only if the story was requested.
    pub(super) fn tell(&mut self, at: Micros, teller: Teller, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let (seconds, micros) = (at / 1_000_000, at % 1_000_000);
            lines.push(format!("{seconds:>5}.{micros:06} s  {teller:<16} {}", text()));
        }
    }

    /// The lines so far.
    pub(super) fn text(&self) -> String {
        self.lines.as_ref().map(|lines| lines.join("\n")).unwrap_or_default()
    }
}
