//! `remuda.toml`, profiles and REMUDA_ variables: screens of errors, precedence, sources in a dry run.
//!
//! `UPDATE_EXPECTED=1 cargo test --test program settings::` rewrites the expectations.

mod check;
mod faces;
mod precedence;
mod screens;
mod trust;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const REMUDA: &str = env!("CARGO_BIN_EXE_remuda");

/// A working directory, and a home directory in it.
struct Place(PathBuf);

impl Place {
    /// Creates the directories, with a script and a hostfile.
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("settings").join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("home/.config/remuda")).expect("a directory");
        let place = Self(dir);
        place.write("train.py", "print('it was started')\n");
        place.write("hosts", "localhost slots=2\n");
        place
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::write(&path, text).expect("the directory is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("own file");
    }

    /// Writes the file of the working directory.
    fn local(self, text: &str) -> Self {
        self.write("remuda.toml", text);
        self
    }

    /// Writes the file of the user.
    fn user(self, text: &str) -> Self {
        self.write("home/.config/remuda/remuda.toml", text);
        self
    }

    /// Runs a line: variables, the name of the program, and its words.
    #[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
    fn run(&self, line: &str) -> Output {
        let mut words = line.split(' ').map(|word| word.replace('␣', " "));
        let mut command = Command::new(REMUDA);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.0.join("home"));
        command.env("XDG_STATE_HOME", self.0.join("state"));
        let program = words.by_ref().find(|word| match word.split_once('=') {
            Some((name, value)) => {
                command.env(name, value);
                false
            }
            None => true,
        });
        command.arg0(program.expect("a program")).args(words);
        command.current_dir(&self.0).stdin(Stdio::null());
        command.output().expect("remuda starts")
    }

    /// Returns what a line prints, and its status.
    fn screen(&self, line: &str) -> String {
        let output = self.run(line);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let screen = text(&output.stdout) + &text(&output.stderr);
        let screen = screen.replace(&*self.0.to_string_lossy(), "DIR");
        let status = output.status.code().expect("it exits");
        format!("$ {line}\n{screen}[{status}]\n\n")
    }

    /// Returns the options of a dry run that are not on its line: `SOURCE OPTION VALUE`.
    #[track_caller]
    fn options(&self, line: &str) -> Vec<String> {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {output:?}");
        let shown = String::from_utf8(output.stdout).expect("text");
        let shown = shown.replace(&*self.0.to_string_lossy(), "DIR");
        let lines = shown.lines().skip_while(|line| !line.starts_with("options that are not"));
        let lines = lines.skip(1).take_while(|line| line.starts_with("  "));
        lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
