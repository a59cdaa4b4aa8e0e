//! Environment of the workers of a real job: variables and their sources, log and pid files, core
//! binding, and the script of a virtual environment.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use crate::support::launch::{Launch, command, hosts, python, workers};
use crate::support::proof::skip;

/// A job with its own home and working directory.
struct JobDirs {
    launch: Launch,
    home: PathBuf,
    cwd: PathBuf,
}

fn with_dirs(launch: Launch) -> JobDirs {
    let (home, cwd) = (launch.dir().join("home"), launch.dir().join("here"));
    for directory in [&home, &cwd] {
        fs::create_dir_all(directory).expect("a directory for the test");
    }
    let launch = launch.env("HOME", &home).env("DS_ENV_FILE", "").cwd(&cwd);
    JobDirs { launch, home, cwd }
}

fn write(directory: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).expect("the directory is writable");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it can be changed");
    path
}

/// The directory of the run, in which workers of this machine leave records.
#[test]
fn workers_know_the_directory_of_their_run() {
    let script = "test -f \"$REMUDA_RUN_PATH/run.json\" && case $REMUDA_RUN_PATH in /*) exit 0; esac; exit 9";
    let _outcome = workers(2).env("REMUDA_RUN_PATH", "/of/another/run").sh(script).end().code(0);
}

/// A job that a worker of another one starts: the descriptors of that worker are not those of its own workers.
#[test]
fn descriptors_of_an_outer_job_are_not_passed_on() {
    let launch = workers(1).env("REMUDA_RANK_FD", "7777").env("REMUDA_SHM_FD", "7778");
    let outcome = launch.program(["env"]).end().code(0);
    let all = outcome.stdout_text();
    let of = |name: &str| all.lines().filter(|line| line.starts_with(name)).collect::<Vec<_>>();
    assert_eq!(of("REMUDA_RANK_FD=").len(), 1, "{all}");
    assert!(!all.contains("7777") && !all.contains("7778"), "{all}");
}

/// Script that prints some variables of a worker.
const PRINT: &str = r#"for name in A B C D E; do eval "echo \"$name=<\${$name-unset}>\""; done"#;

#[test]
fn env_values_are_literal_and_never_executed() {
    let JobDirs { launch, cwd, .. } = with_dirs(workers(1));
    let text =
        "A=$(touch ran)\nB=`touch ran`; touch ran\nC='  two \"words\" '\nD=a=b==c\nE=$HOME\n";
    write(&cwd, ".deepspeed_env", text);
    let outcome = launch.sh(&format!("{PRINT}; ls")).end().code(0);
    assert_eq!(
        outcome.stdout_text(),
        "A=<$(touch ran)>\nB=<`touch ran`; touch ran>\nC=<  two \"words\" >\nD=<a=b==c>\nE=<$HOME>\n"
    );
}

#[test]
fn master_address_in_environment_is_noted() {
    let job = || {
        let JobDirs { launch, .. } = with_dirs(workers(1));
        let launch = launch.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", "4321");
        launch.sh("echo $MASTER_PORT")
    };
    let note = "note: MASTER_PORT=4321 of the environment is not used; type `--master_port 4321`\n";
    let outcome = job().end().code(0).says(note);
    assert_ne!(outcome.stdout_text(), "4321\n");
    let _outcome = job().option("--quiet").end().code(0).does_not_say("4321");
    let typed = job().options(["--master_port", "4321", "--dry-run"]);
    let outcome = typed.end().code(0).does_not_say("note: MASTER");
    assert!(outcome.stdout_text().contains("MASTER_PORT=4321\n"), "{outcome:#?}");
}

#[test]
fn env_flag_outranks_cwd_then_home_then_launcher() {
    let JobDirs { launch, home, cwd } = with_dirs(workers(1));
    write(&home, ".deepspeed_env", "B=home\nC=home\nD=home\n");
    write(&cwd, ".deepspeed_env", "C=here\nD=here\n");
    let launch = ["A", "B", "C", "D"].iter().fold(launch, |launch, name| launch.env(name, "ours"));
    let outcome = launch.options(["--env", "D=flag"]).sh(PRINT).end().code(0).says(
        "warning[E005]: `C` is also set on line 2 of ~/.deepspeed_env\n --> .deepspeed_env:1:1\n",
    );
    assert_eq!(outcome.stdout_text(), "A=<ours>\nB=<home>\nC=<here>\nD=<flag>\nE=<unset>\n");
}

#[test]
fn env_file_cannot_select_devices() {
    const DEVICES: &str = r#"echo "$CUDA_VISIBLE_DEVICES""#;
    let JobDirs { launch, cwd, .. } = with_dirs(workers(1));
    write(&cwd, ".deepspeed_env", "A=1\nCUDA_VISIBLE_DEVICES=5\n");
    let outcome = launch.sh(DEVICES).end().code(0).says(
        "warning[E021]: `CUDA_VISIBLE_DEVICES` is not passed on: the slots of the job select its devices\n \
         --> .deepspeed_env:2:1\n",
    );
    let outcome = outcome.says(
        "help: select slots with `--include`; `--env CUDA_VISIBLE_DEVICES=…` overrides them\n",
    );
    assert_eq!(outcome.stdout_text(), "0\n");
    let JobDirs { launch, .. } = with_dirs(workers(1));
    let launch = launch.options(["--env", "CUDA_VISIBLE_DEVICES=7"]);
    assert_eq!(launch.sh(DEVICES).end().code(0).stdout_text(), "7\n");
}

#[test]
fn env_file_name_has_two_directories_and_path_has_one() {
    let JobDirs { launch, home, cwd } = with_dirs(workers(1));
    write(&cwd, ".deepspeed_env", "A=no\n");
    write(&home, "job.env", "A=home\nB=home\n");
    write(&cwd, "job.env", "B=here\n");
    let outcome = launch.env("DS_ENV_FILE", "job.env").sh(PRINT).end().code(0);
    assert_eq!(outcome.stdout_text(), "A=<home>\nB=<here>\nC=<unset>\nD=<unset>\nE=<unset>\n");
    let JobDirs { launch, home, .. } = with_dirs(workers(1));
    let path = write(&home, "other.env", "A=1\nA=2\n");
    let outcome = launch.env("DS_ENV_FILE", path).sh(PRINT).end().code(0);
    assert!(outcome.stdout_text().starts_with("A=<2>\nB=<unset>\n"));
    assert_eq!(outcome.stderr.matches("is set twice").count(), 1, "{}", outcome.stderr);
}

#[test]
fn workers_of_all_simulated_nodes_get_the_variables() {
    let JobDirs { launch, cwd, .. } = with_dirs(hosts(&[("a", 2), ("b", 1)]));
    write(&cwd, ".deepspeed_env", "A=1\n");
    let launch = launch.env("MLFLOW_RUN", "m").env("PYTHONPATH", "/lib").options(["--prefix", ""]);
    let outcome = launch.sh(r#"echo "$A $MLFLOW_RUN $PYTHONPATH""#).end().code(0);
    let cwd = fs::canonicalize(&cwd).expect("it is there");
    assert_eq!(outcome.stdout_text(), format!("1 m {}:/lib\n", cwd.display()).repeat(3));
}

#[test]
fn single_node_keeps_launcher_pythonpath() {
    let JobDirs { launch, .. } = with_dirs(workers(1));
    let outcome = launch.env("PYTHONPATH", "/lib").sh(r#"echo "$PYTHONPATH""#).end().code(0);
    assert_eq!(outcome.stdout_text(), "/lib\n");
}

#[test]
fn torch_backend_is_a_variable_of_the_workers() {
    let print = r#"echo "<${REMUDA_TORCH_BACKEND-unset}>""#;
    let check = |options: &[&str], variable: Option<&str>, expect: &str| {
        let JobDirs { launch, cwd, .. } = with_dirs(workers(1));
        write(&cwd, ".deepspeed_env", "REMUDA_TORCH_BACKEND=of_file\n");
        let launch = launch.options(options.iter().copied());
        let launch = match variable {
            Some(value) => launch.env("REMUDA_TORCH_BACKEND", value),
            None => launch,
        };
        let outcome = launch.sh(print).end().code(0);
        assert_eq!(outcome.stdout_text(), format!("<{expect}>\n"), "{options:?} {variable:?}");
    };
    check(&[], None, "of_file");
    check(&["--torch_backend", "remuda"], None, "remuda");
    check(&["--torch_backend=gloo"], Some("remuda"), "gloo");
    check(&[], Some("remuda"), "remuda");
    check(&["--torch_backend=gloo", "--env", "REMUDA_TORCH_BACKEND=typed"], None, "typed");
}

/// An interpreter that has the packages of the directory in PYTHONPATH and no others.
fn bare_python(dir: &Path) -> PathBuf {
    let file = dir.join("python3");
    fs::write(&file, "#!/bin/sh\nexec python3 -S \"$@\"\n").expect("it can be written");
    fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("it is own");
    file
}

#[test]
fn torch_backend_needs_the_package_of_the_interpreter() {
    let launch = |options: &[&str]| {
        let JobDirs { launch, cwd, .. } = with_dirs(python(2));
        let bare = bare_python(&cwd);
        write(&cwd, "train.py", "print('started')\n");
        let launch = launch.options(["--quiet", "--python"]).option(&bare);
        (launch.options(options.iter().copied()).program(["train.py"]), cwd)
    };
    let (refused, cwd) = launch(&["--torch_backend", "remuda"]);
    let outcome = refused.end().code(127);
    let python = fs::canonicalize(&cwd).expect("it is there").join("python3");
    let screen = outcome.screen().replace(&*python.to_string_lossy(), "PYTHON");
    assert_eq!(
        screen,
        "error[R100]: the job cannot start\n\
         \x20 localhost: `--torch_backend remuda` needs the package `remuda`, which `PYTHON` does not have\n\
         help: `PYTHON -m pip install WHEEL` with the wheel of remuda, or name an interpreter that has it: `--python FILE` \
         or `PYTHON_EXEC=FILE`\n"
    );
    assert_eq!(outcome.stdout_text(), "");
    let started = "localhost:0 │ started\nlocalhost:1 │ started\n";
    for options in [
        &["--torch_backend", "gloo"][..],
        &["--torch_backend", "remuda", "--env", "REMUDA_TORCH_BACKEND=gloo"],
    ] {
        let outcome = launch(options).0.end().code(0);
        assert_eq!(outcome.stdout_text().len(), started.len(), "{options:?}");
    }
    // A variable of the workers says where the package is.
    let (found, cwd) = launch(&["--torch_backend", "remuda", "--env", "PYTHONPATH=packages"]);
    let info = cwd.join("packages/remuda-0.dist-info");
    fs::create_dir_all(&info).expect("it can be made");
    write(&info, "METADATA", "Metadata-Version: 2.1\nName: remuda\nVersion: 0\n");
    found.end().code(0);
}

#[test]
fn bad_env_file_stops_launch_with_all_errors() {
    let JobDirs { launch, home, cwd } = with_dirs(workers(1));
    write(&home, ".deepspeed_env", "FOO\n");
    write(&cwd, ".deepspeed_env", "A=1\nRANK=3\nLD_PRELOAD=./x.so\n");
    let outcome = launch.sh("echo started").end().code(65);
    assert_eq!(
        outcome.stderr,
        "error[E001]: expected `NAME=value`\n --> ~/.deepspeed_env:1:1\n  |\n1 | FOO\n  | ^^^ no `=`\n  |\n\
         help: to pass the launcher's own value, use `--env FOO`\n\
         ~/.deepspeed_env: 1 error\n\
         error[E003]: `RANK` is set by remuda itself\n --> .deepspeed_env:2:1\n  |\n\
         2 | RANK=3\n  | ^^^^ cannot be set here\n  |\nhelp: remove the line\n\
         warning[E010]: `LD_PRELOAD` is set by a file of the working directory\n --> .deepspeed_env:3:1\n  |\n\
         3 | LD_PRELOAD=./x.so\n  | ^^^^^^^^^^ selects the code that every worker runs\n  |\n\
         help: if this is intended, move the line to the file in your home directory\n\
         .deepspeed_env: 1 error, 1 warning\n"
    );
    assert_eq!(outcome.stdout_text(), "");
}

/// Checks the whole screen of a file that cannot be used.
#[track_caller]
fn check_refused(prepare: impl Fn(&Path), code: i32, screen: &str) {
    let JobDirs { launch, cwd, .. } = with_dirs(workers(1));
    prepare(&cwd.join(".deepspeed_env"));
    let outcome = launch.sh("echo started").end().code(code);
    assert_eq!(outcome.screen(), screen);
    assert_eq!(outcome.stdout_text(), "");
}

#[test]
fn untrusted_and_unreadable_env_files_are_refused() {
    let open_to_all = |path: &Path| {
        fs::write(path, "A=1\n").expect("written");
        fs::set_permissions(path, Permissions::from_mode(0o666)).expect("it can be changed");
    };
    check_refused(
        open_to_all,
        77,
        "error[E018]: every user can write environment file `.deepspeed_env`\n\
         \x20--> .deepspeed_env\nhelp: type `chmod o-w .deepspeed_env`, or add `--allow_insecure_files`\n",
    );
    check_refused(
        |path| symlink(path, path).expect("a link can be made"),
        66,
        "error[E017]: cannot read environment file `.deepspeed_env`: too many levels of symbolic \
         links\n --> .deepspeed_env\n\
         help: type `chmod u+r .deepspeed_env`, or move it away\n",
    );
    check_refused(
        |path| fs::create_dir(path).expect("a directory can be made"),
        66,
        "error[E016]: environment file `.deepspeed_env` is not a regular file: it is a directory\n\
         \x20--> .deepspeed_env\nhelp: write the variables to a file\n",
    );
    check_refused(
        |path| {
            let file = fs::File::create(path).expect("made");
            file.set_len(1 << 40).expect("a file with holes");
            file.set_permissions(Permissions::from_mode(0o600)).expect("it can be changed");
        },
        65,
        "error[E020]: environment file `.deepspeed_env` is larger than 16 MiB\n\
         \x20--> .deepspeed_env\nhelp: name an environment file: its lines are `NAME=value`\n",
    );
    let JobDirs { launch, cwd, .. } = with_dirs(workers(1));
    open_to_all(&cwd.join(".deepspeed_env"));
    let outcome = launch.options(["--allow_insecure_files"]).sh(PRINT).end().code(0);
    assert!(outcome.stdout_text().starts_with("A=<1>\n"));
}

/// A pod starts in the root directory, and its home may belong to another user.
#[test]
fn env_file_errors_show_a_usable_path() {
    let check = |name: &str, home: &str, shown: &str| {
        let JobDirs { launch, home: made, .. } = with_dirs(workers(1));
        fs::create_dir_all(made.join("file")).expect("a directory can be made");
        let file = if name == "absolute" { made.join("file") } else { "file".into() };
        let home = if home == "made" { made.clone() } else { home.into() };
        let launch = launch.cwd("/").env("HOME", home).env("DS_ENV_FILE", file);
        let outcome = launch.sh("echo started").end().code(66);
        let shown = shown.replace("MADE", &made.display().to_string());
        let screen = format!(
            "error[E016]: environment file `{shown}` is not a regular file: it is a directory\n\
             \x20--> {shown}\nhelp: write the variables to a file\n"
        );
        assert_eq!(outcome.screen(), screen);
    };
    check("relative", "made", "~/file");
    check("absolute", "/nowhere", "MADE/file");
    check("absolute", "/", "MADE/file");
}

#[test]
fn removed_working_directory_is_named() {
    let JobDirs { launch, cwd, .. } = with_dirs(workers(1));
    let outcome = launch.under("rmdir \"$PWD\"").sh("echo started").end().code(66);
    assert_eq!(
        outcome.stderr,
        format!(
            "error[M007]: the working directory `{}` no longer exists: no such file or directory\n\
             help: `cd` to a directory that exists\n",
            cwd.display()
        )
    );
}

/// Runs in a user namespace that maps no other user.
#[test]
fn env_file_of_another_user_is_refused() {
    const OTHER_USER: u32 = 65533;
    let unshare = ["unshare", "--user", "--map-user=1000"];
    if !command(unshare[0])
        .args(&unshare[1..])
        .arg("true")
        .status()
        .is_ok_and(|made| made.success())
    {
        return skip("user namespaces", "env_file_of_another_user_is_refused");
    }
    let JobDirs { launch, home, .. } = with_dirs(workers(1));
    // Only root can give a file away; other users use a file of root.
    let (home, name) = if rustix::process::geteuid().is_root() {
        let path = write(&home, ".deepspeed_env", "LD_PRELOAD=/theirs\n");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("it can be changed");
        chown(path, Some(OTHER_USER), None).expect("given away");
        (home, ".deepspeed_env")
    } else {
        (PathBuf::from("/etc"), "passwd")
    };
    let launch = launch.env("HOME", home).env("DS_ENV_FILE", name).through(&unshare);
    let outcome = launch.sh("echo started").end().code(77);
    assert_eq!(
        outcome.stderr,
        format!(
            "error[E019]: environment file `~/{name}` belongs to another user (uid 65534)\n\
             \x20--> ~/{name}\nhelp: copy it, or add `--allow_insecure_files`\n"
        )
    );
    assert_eq!(outcome.stdout_text(), "");
}

#[test]
fn missing_env_file_warns_only_if_it_was_named() {
    let JobDirs { launch, .. } = with_dirs(workers(1));
    launch.env("DS_ENV_FILE", "~/job.env").sh(":").end().code(0).says(
        "warning[E015]: no environment file `~/job.env` in the home and the working directory\n\
         \x20--> DS_ENV_FILE\n\
         help: correct DS_ENV_FILE, or unset it; `~` is not expanded in it\n",
    );
    with_dirs(workers(1)).launch.sh(":").end().code(0).does_not_say("[E");
}

#[test]
fn dry_run_shows_source_of_each_variable() {
    let JobDirs { launch, home, cwd } = with_dirs(hosts(&[("a", 1), ("b", 1)]));
    write(&home, ".deepspeed_env", "# who\nA=1\nHF_TOKEN=secret\n");
    write(&cwd, ".deepspeed_env", "OMP_NUM_THREADS=3\n");
    let launch = launch.env("MLFLOW_X", "m").options(["--env", "B=2", "--dry-run"]);
    let outcome = launch.sh(":").end().code(0);
    for line in [
        "  ~/.deepspeed_env:2  A=1\n",
        "  ~/.deepspeed_env:3  HF_TOKEN=***\n",
        "  .deepspeed_env:1    OMP_NUM_THREADS=3\n",
        "  propagated          MLFLOW_X=m\n",
        "  --env               B=2\n",
        "  remuda              RANK=0\n",
    ] {
        assert!(outcome.stdout_text().contains(line), "`{line}` in {}", outcome.stdout_text());
    }
}

/// Names and contents of the files in a directory.
fn files_of(directory: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(directory).expect("it was made").flatten();
    let read = |path: PathBuf| fs::read_to_string(path).expect("it can be changed");
    let mut found: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().expect("text"), read(entry.path())))
        .collect();
    found.sort();
    found
}

#[test]
fn each_rank_log_replaces_output_on_screen() {
    let launch = workers(3);
    let directory = launch.dir().join("new/logs");
    let launch = launch.option("--enable_each_rank_log").option(&directory);
    let script = "[ $RANK = 2 ] || { echo out$RANK; sleep 0.2; echo err$RANK >&2; }";
    let outcome = launch.sh(script).end().code(0).does_not_say("err0");
    assert_eq!(outcome.stdout_text(), "");
    let found = files_of(&directory);
    let stamp = found[0].0.split_once('_').expect("a time and a rank").0.to_owned();
    assert!(stamp.len() == 14 && stamp.bytes().all(|byte| byte.is_ascii_digit()), "{stamp}");
    let expect = |rank: u32, text: &str| (format!("{stamp}_rank{rank}.log"), text.to_owned());
    let expect = [expect(0, "out0\nerr0\n"), expect(1, "out1\nerr1\n"), expect(2, "")];
    assert_eq!(found, expect);
    let line = format!(
        "    Output  of each rank is written to {}/{stamp}_rank*.log\n",
        directory.display()
    );
    outcome.says(&line);
}

#[test]
fn failure_report_shows_output_written_to_a_file() {
    let launch = workers(2);
    let directory = launch.dir().join("logs");
    let launch = launch.option("--enable_each_rank_log").option(&directory);
    let outcome = launch.sh("[ $RANK = 0 ] || { echo why >&2; exit 3; }").end().code(3);
    assert_eq!(files_of(&directory).len(), 2);
    outcome.says("  last lines of its stderr:\n    | why\n");
}

#[test]
fn log_directory_must_be_a_directory_or_none() {
    let file = "--enable_each_rank_log=/etc/passwd";
    let refused = workers(1).option(file).sh("echo started").end().code(73);
    assert_eq!(
        refused.stderr,
        "error[M006]: `--enable_each_rank_log`: `/etc/passwd` is a file\nhelp: name a directory\n"
    );
    workers(1).option("--enable_each_rank_log=/proc/no/logs").sh(":").end().code(73).says(
        "error[M006]: `--enable_each_rank_log`: cannot create `/proc/no/logs`: no such file or directory\n",
    );
    let none = workers(1).option("--enable_each_rank_log=None").sh("echo shown").end().code(0);
    assert_eq!(none.stdout_text(), "shown\n");
}

#[test]
fn pid_file_contains_launcher_and_is_removed() {
    for (script, code) in [("exit 0", 0), ("exit 5", 5)] {
        let script = format!("cat /tmp/*.deepspeed; {script}");
        let running = workers(1).option("--save_pid").sh(&script).start();
        let pid = running.pid().as_raw_pid().to_string();
        let path = PathBuf::from(format!("/tmp/{pid}.deepspeed"));
        let outcome =
            running.end().code(code).says(&format!("       Pid  {pid}, in {}", path.display()));
        assert!(outcome.stdout_text().contains(&pid), "{outcome:?}");
        assert!(!path.exists());
    }
}

/// Processors that this test process may use.
fn usable() -> Vec<u32> {
    remuda::os::cpu::affinity::processors(None).expect("the kernel reports them")
}

/// Script that prints the processors that a worker may use.
const ALLOWED: &str = "grep Cpus_allowed_list /proc/self/status | tr -s '\\t' ' '";

fn allowed(cpu: u32, threads: u32) -> String {
    format!("Cpus_allowed_list: {cpu}\n{threads}\n")
}

#[test]
fn workers_are_bound_to_core_list_by_rank() {
    let [first, .., last] = usable()[..] else { return };
    let list = format!("{first},{last}");
    let script = format!("sleep 0.$RANK; {ALLOWED}; echo $OMP_NUM_THREADS");
    let launch = workers(2).options(["--prefix", "", "--bind_cores_to_rank", "--bind_core_list"]);
    let outcome = launch.option(list).env("OMP_NUM_THREADS", "7").sh(&script).end().code(0);
    assert_eq!(outcome.stdout_text(), allowed(first, 1) + &allowed(last, 1));
}

#[test]
fn core_binding_without_list_keeps_omp_threads() {
    let script = format!("{ALLOWED}; echo $OMP_NUM_THREADS");
    let launch = workers(1).options(["--bind_cores_to_rank", "--env", "OMP_NUM_THREADS=9"]);
    let outcome = launch.sh(&script).end().code(0);
    let (allowed, threads) = outcome.stdout_text().split_once('\n').expect("two lines");
    assert!(allowed.starts_with("Cpus_allowed_list: "), "{allowed}");
    assert_eq!(threads, "9\n");
}

#[test]
fn impossible_core_binding_stops_the_launch() {
    let bind = |count| workers(count).options(["--bind_cores_to_rank"]);
    let many = "processors 8190-8191 cannot be used on this node; ";
    let beyond = bind(1).options(["--bind_core_list", "8190-8191"]).sh("echo started");
    let beyond = beyond.end().code(78).says(many).says("help: use `--bind_core_list ");
    assert_eq!(beyond.stdout_text(), "");
    let cpu = usable()[0].to_string();
    let few = bind(2).option("--bind_core_list").option(cpu).sh("echo started");
    few.end().code(78).says("1 core cannot be shared by 2 workers").says("help: use `-n 1`, or");
    let kmp = bind(1).env("KMP_AFFINITY", "").sh("echo started").end().code(78);
    kmp.says("KMP_AFFINITY is set, which binds threads in its own way");
    let exported = bind(1).options(["--env", "KMP_AFFINITY=x"]).sh("echo started").end().code(78);
    assert_eq!(
        exported.stderr,
        "error[M001]: --env sets KMP_AFFINITY, which also binds threads\n\
         help: do not set it, or leave --bind_cores_to_rank out\n"
    );
    let list = workers(1).options(["--bind_core_list", "0"]).sh(":").end().code(0);
    list.says("warning: --bind_core_list has no effect without --bind_cores_to_rank\n");
}

#[test]
fn venv_script_sets_environment_of_workers() {
    let JobDirs { launch, cwd, .. } = with_dirs(workers(2));
    let bin = cwd.join("venv/bin");
    fs::create_dir_all(&bin).expect("made");
    let program = write(&bin, "hello", "#!/bin/sh\necho \"hello $A $B\"\n");
    fs::set_permissions(program, Permissions::from_mode(0o700)).expect("it can be changed");
    let text =
        "echo noise; echo args=$#\nA='x y'\nB=script\nexport A B\nPATH=$PWD/venv/bin:$PATH\n";
    write(&cwd, "activate", text);
    let launch = launch.options(["--venv_script", "activate", "--env", "B=flag", "--prefix", ""]);
    let outcome = launch.program(["hello"]).end().code(0);
    assert_eq!(outcome.stdout_text(), "hello x y flag\n".repeat(2));
}

#[test]
fn failed_venv_script_shows_its_last_line() {
    let run = |text: Option<&str>| {
        let JobDirs { launch, cwd, .. } = with_dirs(workers(1));
        if let Some(text) = text {
            write(&cwd, "activate", text);
        }
        launch.options(["--venv_script", "activate"]).sh("echo started").end()
    };
    run(Some("echo no module >&2; false\n"))
        .code(78)
        .says("venv script `activate`: it failed (exit status: 1): no module\n")
        .says("help: test it: `bash -c '. ./activate'`\n");
    run(Some("exit 0\n"))
        .code(78)
        .says("venv script `activate`: it exited the shell that sourced it\n");
    run(None).code(66).says("cannot read venv script `activate`: no such file or directory\n");
}

#[test]
fn venv_script_selects_the_interpreter() {
    let JobDirs { launch, cwd, .. } = with_dirs(python(1));
    let bin = cwd.join("bin");
    fs::create_dir_all(&bin).expect("made");
    let python = write(&bin, "python3", "#!/bin/sh\necho \"mine $*\"\n");
    fs::set_permissions(python, Permissions::from_mode(0o700)).expect("it can be changed");
    write(&cwd, "activate", "export PATH=$PWD/bin:$PATH\n");
    write(&cwd, "train.py", "");
    let launch = launch.env("PYTHON_EXEC", "").options(["--venv_script", "activate"]);
    let outcome = launch.program(["train.py", "x"]).end().code(0);
    assert_eq!(outcome.stdout_text(), "mine -u train.py --local_rank=0 x\n");
}
