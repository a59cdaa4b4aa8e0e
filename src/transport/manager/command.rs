//! The command line with which a process manager starts a program. Pure.

use std::ffi::OsString;

use super::spec::{CommandTarget, ProcessManager};

/// What one command starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct ManagerCommand<'a> {
    /// The process manager.
    pub(super) manager: &'static ProcessManager,
    /// Name of the manager's program on this machine.
    pub(super) manager_program: &'a str,
    /// The hosts on which it starts one process each.
    pub(super) target: CommandTarget<'a>,
    /// Further options that the user gave (`--launcher_args`).
    pub(super) words: &'a [String],
    /// The program and its arguments.
    pub(super) program: &'a [OsString],
}

impl ManagerCommand<'_> {
    /// Returns program and arguments of the manager.
    pub(super) fn argv(&self) -> Vec<OsString> {
        let mut argv: Vec<OsString> = vec![self.manager_program.into()];
        argv.extend((self.manager.options)(&self.target).into_iter().map(OsString::from));
        argv.extend(self.words.iter().map(OsString::from));
        argv.extend(self.manager.separator.map(OsString::from));
        argv.extend_from_slice(self.program);
        argv
    }
}

/// A check of the command line of one manager, for its own file.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Asserts the command by which root starts an agent on two hosts, with eight GPUs on each if the manager asks
    /// for their number.
    #[track_caller]
    pub(in crate::transport::manager) fn check_command(
        manager: &'static ProcessManager,
        words: &[&str],
        expected: &str,
    ) {
        let program: Vec<OsString> = ["/opt/remuda", "node"].map(OsString::from).to_vec();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let gpus_per_node = manager.gpus_per_node.map(|_| 8);
        let command = ManagerCommand {
            manager,
            manager_program: manager.usual_program(),
            target: CommandTarget { hosts: &["n1", "n2"], gpus_per_node, is_root: true },
            words: &words,
            program: &program,
        };
        let argv = command.argv();
        let shown: Vec<_> = argv.iter().map(|word| word.to_str().expect("text")).collect();
        assert_eq!(shown.join(" "), expected);
    }
}
