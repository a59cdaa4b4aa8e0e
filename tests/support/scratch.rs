//! A directory of one test, in which it runs a command of the real program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use remuda::base::env_vars;

/// The directory of a test and a command, removed when dropped.
pub(crate) struct Scratch {
    command: &'static str,
    dir: PathBuf,
}

impl Scratch {
    /// Creates a directory for `remuda COMMAND`.
    pub(crate) fn new(command: &'static str, name: &str) -> Self {
        let name = format!("{command}-{name}-{}", std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // As that of an earlier process with this number.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("the directory for tests can be written");
        Self { command, dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).expect("it can be written");
    }

    /// Runs `remuda COMMAND LINE`, with the words of the line split at blanks.
    pub(crate) fn run(&self, line: &str) -> Output {
        self.run_other(self.command, line)
    }

    /// Runs another command in the directory.
    #[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
    pub(crate) fn run_other(&self, name: &str, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_remuda"));
        command.arg(name).args(line.split_whitespace()).current_dir(&self.dir);
        // Screens are those of a machine without GPUs.
        command.env(env_vars::CUDA_VISIBLE_DEVICES, "");
        command.env(env_vars::REMUDA_RUN_DIR, self.path("runs")).env_remove("CLICOLOR_FORCE");
        command.stdin(Stdio::null()).output().expect("it starts")
    }

    /// The same, and checks that it succeeds; returns standard output.
    #[track_caller]
    pub(crate) fn succeed(&self, line: &str) -> String {
        let output = self.run(line);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{line}: {stderr}");
        assert!(!stdout.contains('\r') && !stdout.contains('\x1b'), "{stdout:?}");
        stdout
    }

    /// Runs every line and returns it with its screen, formatted by `shown`, and its exit status.
    /// Standard output must be empty.
    pub(crate) fn screens(&self, lines: &[&str], shown: impl Fn(&str) -> String) -> String {
        let screen = |line: &&str| {
            let output = self.run(line);
            let status = output.status.code().expect("it ends by itself");
            assert!(output.stdout.is_empty(), "{line}: {}", text(&output.stdout));
            let stderr = shown(&screen_of(&output));
            format!("$ remuda {} {line}\n{stderr}[{status}]\n\n", self.command)
        };
        lines.iter().map(screen).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Standard error, for comparison with a whole screen.
pub(crate) fn screen_of(output: &Output) -> String {
    super::delays::without_delays(&text(&output.stderr))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}
