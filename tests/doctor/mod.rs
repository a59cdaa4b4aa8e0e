//! Goal: every problem of a host is found and named, its host is left out of the usable hostfile, and
//! healthy hosts have no findings. Method: the real program, OpenSSH's sshd, nodes with a problem made
//! on purpose. Unit tests beside the code check how facts become findings.
//!
//! | what | where |
//! |---|---|
//! | nodes reached over ssh, each with a different problem | `sick` |
//! | nodes that cannot connect to each other, in network namespaces | `ways` |
//! | this machine, exit statuses, the document, the usable hostfile | `local` |
//! | `--preflight` of a job | `preflight` |

mod local;
mod preflight;
mod sick;
mod ways;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::launch::{REMUDA, command};

/// `remuda doctor`, built word by word.
struct Doctor {
    wrapper: Vec<String>,
    words: Vec<String>,
    cwd: PathBuf,
}

/// Exit status and output of a `remuda doctor`.
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Doctor {
    /// A doctor for the hostfile in this directory.
    fn of(dir: &Path) -> Self {
        let hostfile = dir.join("hostfile").display().to_string();
        let words = ["doctor", "--accelerator", "cpu", "-H", &hostfile].map(str::to_owned).to_vec();
        Self { wrapper: Vec::new(), words, cwd: dir.to_owned() }
    }

    /// A doctor over ssh, with the configuration in this directory.
    fn over_ssh(dir: &Path) -> Self {
        let config = dir.join("ssh_config").display().to_string();
        Self::of(dir).word("--ssh_config").word(&config)
    }

    fn word(mut self, word: &str) -> Self {
        self.words.push(word.to_owned());
        self
    }

    /// Replaces the value of an option.
    #[track_caller]
    fn with(mut self, option: &str, value: &str) -> Self {
        let at = self.words.iter().position(|word| word == option).expect("it was given");
        value.clone_into(&mut self.words[at + 1]);
        self
    }

    fn cwd(mut self, cwd: &Path) -> Self {
        cwd.clone_into(&mut self.cwd);
        self
    }

    fn through(mut self, words: &[String]) -> Self {
        self.wrapper.extend_from_slice(words);
        self
    }

    fn run(self) -> Said {
        let mut words = self.wrapper;
        words.push(REMUDA.to_owned());
        words.extend(self.words);
        let mut doctor = command(&words[0]);
        doctor.args(&words[1..]).current_dir(self.cwd).env_remove("NO_COLOR");
        let Output { status, stdout, stderr } = doctor.output().expect("remuda starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Said { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }
}

impl Said {
    #[track_caller]
    fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    fn says(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "no `{text}` in\n{}{}", self.stdout, self.stderr);
        self
    }

    /// A finding is on the screen, and of this host only.
    #[track_caller]
    fn finds_only(self, code: &str, host: &str) -> Self {
        let mark = format!("[{code}]: ");
        let found: Vec<_> = self.stdout.lines().filter_map(|line| line.split_once(&mark)).collect();
        let is_of_host = |(_, text): &(&str, &str)| text.starts_with(&format!("{host}: "));
        assert!(
            !found.is_empty() && found.iter().all(is_of_host),
            "{}{}",
            self.stdout,
            self.stderr
        );
        self
    }

    #[track_caller]
    fn does_not_say(self, text: &str) -> Self {
        assert!(!self.stdout.contains(text), "`{text}` in\n{}{}", self.stdout, self.stderr);
        self
    }
}

/// Content of an existing hostfile.
#[track_caller]
fn lines_of(path: &Path) -> String {
    fs::read_to_string(path).expect("it was written")
}
