//! Builder of a `remuda run` command: it starts the job, observes it, and checks that nothing is
//! left.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal};

use super::delays::without_delays;
use super::process::{self, MARK, Process, Role, marked};
use super::{wait_for, wait_for_or};

/// The program under test.
pub(crate) const REMUDA: &str = env!("CARGO_BIN_EXE_remuda");

/// The beginning of the line that reports a port in use.
const PORT_NOTE: &str = "note: port 29500 is in use";

/// A command line that has not been started. It has its own marker and directory.
pub(crate) struct Launch {
    mark: String,
    dir: Arc<LaunchDir>,
    remuda: PathBuf,
    wrapper: Vec<OsString>,
    command: &'static str,
    options: Vec<OsString>,
    program: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: Option<PathBuf>,
    stdin: Stdio,
    stdout: Stdio,
    stderr: Stdio,
}

/// The directory of a launch and of all that share it. The last of them removes it, unless the test fails:
/// then the files are kept for inspection.
#[derive(Debug)]
pub(crate) struct LaunchDir(PathBuf);

impl Drop for LaunchDir {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// A launch on this machine with that many CPU slots.
pub(crate) fn workers(count: usize) -> Launch {
    python(count).options(["--no_python", "--no_local_rank"])
}

/// The same, for a Python script.
pub(crate) fn python(count: usize) -> Launch {
    Launch::new().options(["--accelerator", "cpu", "--num_gpus"]).option(count.to_string())
}

/// A launch on simulated hosts, each with its number of CPU slots.
pub(crate) fn hosts(hosts: &[(&str, usize)]) -> Launch {
    on_hosts(hosts).options(["--launcher", "local"])
}

/// A launch on hosts, each with its number of CPU slots.
pub(crate) fn on_hosts(hosts: &[(&str, usize)]) -> Launch {
    let launch = Launch::new().options(["--no_python", "--no_local_rank", "--accelerator", "cpu"]);
    launch.on(hosts)
}

/// A line of another launcher that remuda reads: `torchrun`.
pub(crate) fn face(command: &'static str) -> Launch {
    let launch = Launch::bare().command(command);
    let run_dir = launch.run_dir();
    launch.env("REMUDA_RUN_DIR", run_dir)
}

impl Launch {
    pub(crate) fn new() -> Self {
        let launch = Self::bare();
        let run_dir = launch.run_dir();
        launch.option("--run_dir").option(run_dir)
    }

    /// A launch without any option.
    fn bare() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("launch").join(&mark);
        // A failed test of an earlier process with this number has kept its files.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a directory for the test");
        Self::at(mark, Arc::new(LaunchDir(dir)))
    }

    /// Another launch with the same marker and directory.
    pub(crate) fn another(&self) -> Self {
        let launch = Self::at(self.mark.clone(), self.shared_dir());
        let run_dir = launch.run_dir();
        launch.option("--run_dir").option(run_dir)
    }

    /// The directory, for something else that needs it after this launch.
    pub(crate) fn shared_dir(&self) -> Arc<LaunchDir> {
        Arc::clone(&self.dir)
    }

    fn at(mark: String, dir: Arc<LaunchDir>) -> Self {
        Self {
            mark,
            remuda: REMUDA.into(),
            wrapper: Vec::new(),
            command: "run",
            options: Vec::new(),
            program: Vec::new(),
            env: Vec::new(),
            cwd: None,
            stdin: Stdio::null(),
            stdout: Stdio::piped(),
            stderr: Stdio::piped(),
            dir,
        }
    }

    /// Sets the hosts, each with its number of slots.
    pub(crate) fn on(self, hosts: &[(&str, usize)]) -> Self {
        let lines: String = hosts
            .iter()
            .fold(String::new(), |text, (host, slots)| text + &format!("{host} slots={slots}\n"));
        let hostfile = self.dir().join("hostfile");
        fs::write(&hostfile, lines).expect("a hostfile");
        self.option("-H").option(hostfile)
    }

    /// The directory of this test.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir.0
    }

    /// The marker of its processes; see [`MARK`].
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Uses another executable than the one built for the tests.
    pub(crate) fn remuda(mut self, remuda: impl Into<PathBuf>) -> Self {
        self.remuda = remuda.into();
        self
    }

    /// Uses another command than `run`.
    pub(crate) fn command(mut self, command: &'static str) -> Self {
        self.command = command;
        self
    }

    /// The parent of the run directories.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.dir().join("runs")
    }

    pub(crate) fn option(mut self, option: impl Into<OsString>) -> Self {
        self.options.push(option.into());
        self
    }

    pub(crate) fn options<S: Into<OsString>>(
        mut self,
        options: impl IntoIterator<Item = S>,
    ) -> Self {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    /// Sets a variable in the environment of the launcher.
    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    pub(crate) fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// Starts remuda with a line of `sh` that ends in `exec "$@"`.
    pub(crate) fn under(mut self, shell: &str) -> Self {
        let line = format!("{shell}; exec \"$@\"");
        self.wrapper.extend(["sh".into(), "-c".into(), line.into(), "sh".into()]);
        self
    }

    /// Starts remuda with another program, which runs its arguments.
    pub(crate) fn through(mut self, words: &[&str]) -> Self {
        self.wrapper.extend(words.iter().map(Into::into));
        self
    }

    pub(crate) fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = stdin.into();
        self
    }

    pub(crate) fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.stdout = stdout.into();
        self
    }

    pub(crate) fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = stderr.into();
        self
    }

    /// Workers run a line of `sh`.
    pub(crate) fn sh(self, script: &str) -> Self {
        self.program(["sh", "-c", script])
    }

    /// Workers run the fixture `misbehave`.
    pub(crate) fn misbehave(self, how: &str) -> Self {
        self.program([misbehave().as_os_str(), how.as_ref()])
    }

    /// Workers run a line of `sh` whose `$0` is the fixture `misbehave`.
    pub(crate) fn sh_of_misbehave(self, script: &str) -> Self {
        let fixture = misbehave();
        self.sh(script).program([fixture])
    }

    pub(crate) fn program<S: Into<OsString>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.program.extend(words.into_iter().map(Into::into));
        self
    }

    /// Starts the job.
    pub(crate) fn start(mut self) -> Running {
        // A test run in the background may itself ignore signals, which children inherit.
        let mut words: Vec<OsString> =
            vec!["/usr/bin/env".into(), "--default-signal=HUP,INT,QUIT,TERM,TSTP".into()];
        words.append(&mut self.wrapper);
        words.extend([self.remuda.into(), self.command.into()]);
        words.append(&mut self.options);
        words.push("--".into());
        words.append(&mut self.program);
        let mut command = command(&words[0]);
        command.args(&words[1..]).env_remove("NO_COLOR").envs(self.env).env(MARK, &self.mark);
        command.stdin(self.stdin).stdout(self.stdout).stderr(self.stderr);
        if let Some(cwd) = self.cwd {
            command.current_dir(cwd);
        }
        let mut child = command.spawn().expect("remuda starts");
        // This process's copies of the job's streams must not keep a pipe open.
        drop(command);
        let stdout = Collector::start(child.stdout.take());
        let stderr = Collector::start(child.stderr.take());
        let Self { mark, dir, .. } = self;
        Running { child, mark, dir, stdout, stderr }
    }

    /// Starts the job and waits for its end.
    #[track_caller]
    pub(crate) fn end(self) -> Outcome {
        self.start().end()
    }
}

/// The path of the fixture `examples/misbehave.rs`.
fn misbehave() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| example("misbehave")).clone()
}

/// The path of an example, next to this test's executable. Builds it, because a run of only one test does
/// not; once for each build of the tests, because each test can be a process of its own.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let build = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
    let fixture = build.join("examples").join(name);
    let modified = fs::metadata(&test).and_then(|metadata| metadata.modified());
    let current = format!("{} {:?}", test.display(), modified.expect("a test has a time"));
    let stamp = fixture.with_extension("built-for");
    if fs::read_to_string(&stamp).is_ok_and(|built_for| built_for == current) && fixture.exists() {
        return fixture;
    }
    let stderr = cargo_build_example(name, build);
    assert!(fixture.exists(), "`cargo build --example {name}` does not make it: {stderr}");
    let own = stamp.with_extension(std::process::id().to_string());
    fs::write(&own, current).and_then(|()| fs::rename(own, stamp)).expect("target is writable");
    fixture
}

#[expect(clippy::disallowed_methods, reason = "cargo passes its path to tests in a variable")]
fn cargo_build_example(name: &str, build: &Path) -> String {
    let profile = match build.file_name().and_then(OsStr::to_str) {
        None | Some("debug") => "dev",
        Some(profile) => profile,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = command(cargo);
    command.args(["build", "--quiet", "--offline", "--example", name, "--profile", profile]);
    let built = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo starts");
    String::from_utf8_lossy(&built.stderr).into_owned()
}

#[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// A job that was started. Dropping it kills all its processes, so a failing test leaves none.
pub(crate) struct Running {
    child: Child,
    mark: String,
    dir: Arc<LaunchDir>,
    stdout: Collector,
    stderr: Collector,
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir.0
    }

    pub(crate) fn signal(&self, signal: Signal) {
        process::signal_to(self.pid(), signal);
    }

    /// Sends the signal once more, after the interval in which remuda takes a repeated signal for
    /// the same request.
    pub(crate) fn signal_again(&self, signal: Signal) {
        std::thread::sleep(remuda::job::REQUEST_MERGE_INTERVAL);
        self.signal(signal);
    }

    /// The pipe to the launcher's standard input.
    pub(crate) fn take_stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().expect("started with a pipe")
    }

    /// Whether the launcher has exited.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Standard error up to now.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.so_far()).into_owned()
    }

    /// Standard output so far.
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout.so_far()).into_owned()
    }

    /// Waits until that many lines of standard output contain `text`.
    #[track_caller]
    pub(crate) fn wait_for_lines(&self, text: &str, count: usize) {
        let is_there = || {
            (count <= self.stdout().lines().filter(|line| line.contains(text)).count())
                .then_some(())
        };
        wait_for_or(|| format!("{count} × `{text}`, on stderr: {}", self.stderr()), is_there);
    }

    /// Waits until standard error contains `text`.
    #[track_caller]
    pub(crate) fn wait_for_error(&self, text: &str) {
        let is_there = || self.stderr().contains(text).then_some(());
        wait_for_or(|| format!("`{text}` on stderr: {}", self.stderr()), is_there);
    }

    /// The living processes of the job.
    pub(crate) fn processes(&self) -> Vec<Process> {
        marked(&self.mark, self.pid())
    }

    /// Waits until there are that many processes of a role.
    #[track_caller]
    pub(crate) fn wait_for_role(&self, role: Role, count: usize) -> Vec<Process> {
        wait_for(&format!("{count} × {role:?}"), || {
            let mut found = self.processes();
            found.retain(|process| process.role == role);
            (count <= found.len()).then_some(found)
        })
    }

    /// The only process of a role.
    #[track_caller]
    pub(crate) fn the(&self, role: Role) -> Process {
        self.wait_for_role(role, 1).remove(0)
    }

    /// Waits until the launcher has exited and no process of the job is left.
    #[track_caller]
    pub(crate) fn end(mut self) -> Outcome {
        let status = wait_for("the launcher's exit", || self.child.try_wait().expect("a child"));
        process::assert_clean(&self.mark, self.pid());
        let stderr = String::from_utf8_lossy(&self.stderr.all()).into_owned();
        // Another test may use the default port; this is not an error of this test.
        let (port_notes, stderr): (Vec<_>, Vec<_>) =
            stderr.split_inclusive('\n').partition(|line| line.starts_with(PORT_NOTE));
        let outcome = Outcome {
            status,
            stdout: self.stdout.all(),
            stderr: stderr.concat(),
            port_notes: port_notes.concat(),
            dir: Arc::clone(&self.dir),
        };
        for word in ["panicked", "internal error in remuda"] {
            assert!(!outcome.stderr.contains(word), "{outcome:#?}");
        }
        outcome
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for process in self.processes() {
            process.signal(Signal::KILL);
        }
        // A launcher that has not executed its program yet is not among them.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The result of a job.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    /// The launcher's lines about the master port.
    pub(crate) port_notes: String,
    dir: Arc<LaunchDir>,
}

impl Outcome {
    /// Checks the exit status.
    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }

    /// Checks that a signal terminated the launcher.
    #[track_caller]
    pub(crate) fn killed_by(self, signal: Signal) -> Self {
        assert_eq!(self.status.signal(), Some(signal.as_raw()), "{self:#?}");
        self
    }

    /// Checks that standard error contains a text.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "expected `{text}` in {self:#?}");
        self
    }

    /// Checks that standard error does not contain a text.
    #[track_caller]
    pub(crate) fn does_not_say(self, text: &str) -> Self {
        assert!(!self.stderr.contains(text), "did not expect `{text}` in {self:#?}");
        self
    }

    /// Standard error, for comparison with a whole screen.
    pub(crate) fn screen(&self) -> String {
        without_delays(&self.stderr)
    }

    /// Standard output as text.
    #[track_caller]
    pub(crate) fn stdout_text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text")
    }

    /// The directory of this test.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir.0
    }

    /// A file of the run directory.
    #[track_caller]
    pub(crate) fn run_file(&self, name: &str) -> Vec<u8> {
        let path = self.dir().join("runs/latest").join(name);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The sorted names of the entries in the parent of the run directories.
    pub(crate) fn runs(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir().join("runs")).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The content of `run.json`.
    #[track_caller]
    pub(crate) fn record(&self) -> serde_json::Value {
        serde_json::from_slice(&self.run_file("run.json")).expect("JSON")
    }
}

/// A thread that reads a pipe to its end.
struct Collector {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    fn start(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&bytes);
        let thread = pipe.map(|pipe| std::thread::spawn(move || collect(pipe, &shared)));
        Self { bytes, thread }
    }

    fn so_far(&self) -> Vec<u8> {
        self.bytes.lock().expect("no panic while holding it").clone()
    }

    fn all(&mut self) -> Vec<u8> {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("reads to the end");
        }
        self.so_far()
    }
}

fn collect(mut pipe: impl Read, bytes: &Mutex<Vec<u8>>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = pipe.read(&mut buffer) {
        bytes.lock().expect("no panic while holding it").extend_from_slice(&buffer[..length]);
    }
}
