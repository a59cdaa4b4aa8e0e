//! A rank that saves checkpoints in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use remuda::base::env_vars;
use remuda::runtime::Group;
use remuda::runtime::checkpoint::{
    CheckpointWriter, SaveStage, WriterOptions, check_shared_directory,
};
use rustix::process::{Signal, getpid, kill_process};

use super::disks::fill_disk;
use crate::checkpoint::test_dir::TestDir;
use crate::support::checkpoints::{pieces, state, tensors};

/// What a worker does. `save`: checkpoints of steps 2 and 4; `probe`: a look whether the directory is shared;
/// `full`: a disk becomes full.
const ROLE: &str = "REMUDA_TEST_CHECKPOINT_ROLE";
const DIR: &str = "REMUDA_TEST_CHECKPOINT_DIR";
/// Stage of the save of step 4 at which the worker kills itself.
const KILLED_AT: &str = "REMUDA_TEST_CHECKPOINT_KILLED_AT";

/// Main function of a worker that another test has started; without a role, a group of one rank.
#[test]
fn worker() {
    let Some(role) = env_vars::get_text(ROLE) else {
        let dir = TestDir::new("worker");
        let group = Group::single().expect("a group");
        return assert_eq!(save(&group, &dir.0), "saved step 4");
    };
    let dir = PathBuf::from(env_vars::get(DIR).expect("the directory is set"));
    let result = if role == "full" {
        fill_disk(&dir)
    } else {
        let group = Group::from_env().expect("the other ranks are there");
        if role == "probe" {
            check_shared_directory(&group, &dir)
                .map_or_else(|error| error.to_string(), |()| "shared".to_owned())
        } else {
            save(&group, &dir)
        }
    };
    writeln!(std::io::stdout(), "result: {result}").expect("the test reads the output");
}

fn save(group: &Group, dir: &Path) -> String {
    let killed_at = env_vars::get_text(KILLED_AT);
    let step = Arc::new(AtomicU64::new(2));
    let current = step.clone();
    let on_stage = move |stage: SaveStage| {
        let is_it = Some(format!("{stage:?}")) == killed_at;
        if is_it && current.load(Ordering::Relaxed) == 4 {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    };
    let options = WriterOptions {
        on_stage: Some(Arc::new(on_stage)),
        block_bytes: Some(256),
        ..WriterOptions::default()
    };
    let mut writer = match CheckpointWriter::new(group, dir, options) {
        Ok(writer) => writer,
        Err(error) => return error.to_string(),
    };
    for now in [2, 4] {
        step.store(now, Ordering::Relaxed);
        let tensors = tensors(now);
        let (rank, world) = (group.rank(), group.world_size());
        if let Err(error) = writer.save(&state(now, world), &pieces(&tensors, rank, world)) {
            return error.to_string();
        }
    }
    "saved step 4".to_owned()
}

/// Workers that form a group.
pub(super) struct Workers {
    processes: Vec<(Child, BufReader<ChildStdout>)>,
}

impl Workers {
    /// Starts workers; the one of rank `killed.0` kills itself at the stage `killed.1`. Every command is started by
    /// the program and arguments before it, if there are some.
    pub(super) fn start(
        scratch: &TestDir,
        role: &str,
        dir: &Path,
        world: usize,
        killed: Option<(usize, &str)>,
        through: &[String],
    ) -> Self {
        let key_file = scratch.path("key");
        std::fs::write(&key_file, b"sixteen bytes or more").expect("it is written");
        // Rank 0 needs a fixed port: one that was free a moment ago.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let start = |rank: usize| {
            let mut command = command(through);
            command.env(ROLE, role).env(DIR, dir);
            command.env(env_vars::REMUDA_KEY_FILE, &key_file);
            command.env(env_vars::RANK, rank.to_string());
            command.env(env_vars::WORLD_SIZE, world.to_string());
            command.env(env_vars::MASTER_ADDR, "127.0.0.1");
            command.env(env_vars::MASTER_PORT, port.to_string());
            if let Some((_, stage)) = killed.filter(|(of, _)| *of == rank) {
                command.env(KILLED_AT, stage);
            }
            let mut process = command.spawn().expect("the worker starts");
            let output = process.stdout.take().expect("it is piped");
            (process, BufReader::new(output))
        };
        Self { processes: (0..world).map(start).collect() }
    }

    /// Kills all workers.
    pub(super) fn kill(self) {
        for (mut process, _) in self.processes {
            process.kill().expect("it is a child");
            process.wait().expect("it is a child");
        }
    }

    /// Waits for all workers; returns the result of each, or `None` if it was killed.
    pub(super) fn results(self) -> Vec<Option<String>> {
        let result = |(mut process, output): (Child, BufReader<ChildStdout>)| {
            let lines = output.lines().map(|line| line.expect("text"));
            let results = lines.filter_map(|line| line.strip_prefix("result: ").map(str::to_owned));
            let found = results.last();
            process.wait().expect("it is a child");
            found
        };
        self.processes.into_iter().map(result).collect()
    }
}

/// The command of a worker.
#[expect(clippy::disallowed_methods, reason = "tests start workers as agents would")]
fn command(through: &[String]) -> Command {
    let own = std::env::current_exe().expect("this program");
    let mut command = match through.split_first() {
        None => Command::new(own),
        Some((program, rest)) => {
            let mut command = Command::new(program);
            command.args(rest).arg(own);
            command
        }
    };
    command.args(["--exact", "checkpoint::worker::worker", "--nocapture"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}
