//! Description of the program that is started as every worker.

use std::ffi::OsString;

use crate::cli::start::face::Face;
use crate::cli::start::options::PrintedRanks;
use crate::launch::{KeptState, WorkersFile};
use crate::plan::Program;
use crate::report::RunClass;

/// The program that is started as every worker.
pub(in crate::cli) struct WorkerProgram {
    pub(in crate::cli) program: Program,
    pub(in crate::cli) args: Vec<OsString>,
    /// The workers with printed output.
    pub(in crate::cli) printed_ranks: PrintedRanks,
    /// Files that the workers need on other machines.
    pub(in crate::cli) files: Vec<WorkersFile>,
    /// Checkpoints from which a later job can continue.
    pub(in crate::cli) kept_state: Option<KeptState>,
    /// Class of the run: the newest records of each class are kept.
    pub(in crate::cli) class: RunClass,
    /// The launcher whose command line was typed.
    pub(in crate::cli) face: Face,
    /// The program in words, where the workers are this executable.
    pub(in crate::cli) shown: Option<String>,
    /// The interpreter, if it should be printed.
    pub(in crate::cli) python: Option<String>,
}

impl WorkerProgram {
    /// Creates a description without any files.
    pub(in crate::cli) fn new(
        program: Program,
        args: Vec<OsString>,
        printed_ranks: PrintedRanks,
    ) -> Self {
        Self {
            program,
            args,
            printed_ranks,
            files: Vec::new(),
            kept_state: None,
            class: RunClass::Job,
            face: Face::Remuda,
            shown: None,
            python: None,
        }
    }
}
