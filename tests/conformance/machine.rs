//! Simulated machine with GPUs: device files in `/dev` of a mount namespace.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::proof;

/// GPUs of that machine.
const GPUS: usize = 4;
/// Other files in `/dev`.
const DEVICES: &str = "null zero full random urandom";

/// Machine on which remuda is started.
pub(crate) enum Machine {
    /// A process whose mount namespace has the files; it ends with its input.
    Gpus(Child),
    /// The real machine: mounting is not allowed.
    Bare,
}

impl Machine {
    /// Creates the namespace if mounting is allowed.
    #[expect(clippy::disallowed_methods, reason = "the namespace is a process")]
    pub(crate) fn start(directory: &Path, test: &str) -> Self {
        let dev = directory.join("dev");
        std::fs::create_dir_all(&dev).expect("the directory is writable");
        let shell = format!(
            "mount -t tmpfs none \"$0\" && cd \"$0\" && for name in {DEVICES}; do \
             touch $name && mount --bind /dev/$name $name || exit 1; done && \
             for gpu in $(seq 0 {}); do touch nvidia$gpu; done && \
             mount --rbind . /dev && echo ready && exec cat",
            GPUS - 1
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &shell]).arg(dev);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return Self::Bare };
        let mut line = String::new();
        let answers = child.stdout.take().expect("it has a pipe");
        let _ = BufReader::new(answers).read_line(&mut line);
        if line == "ready\n" {
            return Self::Gpus(child);
        }
        proof::skip("mount", test);
        let _ = child.wait();
        Self::Bare
    }

    /// Number of GPUs that a launcher finds.
    pub(crate) fn gpus(&self) -> usize {
        match self {
            Self::Gpus(_) => GPUS,
            Self::Bare => 0,
        }
    }

    /// Command that runs a program on this machine, in a directory.
    #[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
    pub(crate) fn command(&self, program: &str, directory: &Path) -> Command {
        let mut command = match self {
            Self::Bare => Command::new(program),
            Self::Gpus(child) => {
                let mut command = Command::new("/usr/bin/nsenter");
                command.arg(format!("--mount=/proc/{}/ns/mnt", child.id()));
                let enter = "cd \"$0\" && unset PWD OLDPWD && exec \"$@\"";
                command.args(["sh", "-c", enter]).arg(directory).arg(program);
                command
            }
        };
        command.current_dir(directory).env_clear();
        command
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Self::Gpus(child) = self {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
