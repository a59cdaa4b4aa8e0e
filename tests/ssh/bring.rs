//! Transfer of the agent's executable: what is sent, what is cached, and which errors are reported.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::ssh::cluster::{Cluster, can_run, untrusted_copy};
use crate::support::launch::{REMUDA, command};

/// The builds that a cache holds, each with the inode of its file.
fn builds(cache: &Path) -> Vec<(String, Option<u64>)> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let inode = |dir: PathBuf| fs::metadata(dir.join("remuda")).ok().map(|file| file.ino());
    let mut found: Vec<_> = entries
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), inode(entry.path())))
        .collect();
    found.sort();
    found
}

fn assert_no_leftovers(cluster: &Cluster) {
    for entry in fs::read_dir(cluster.cache()).expect("a cache").flatten() {
        let names: Vec<_> = fs::read_dir(entry.path())
            .expect("a build")
            .flatten()
            .map(|file| file.file_name())
            .collect();
        assert_eq!(names, ["remuda"], "{}", entry.path().display());
    }
}

#[test]
fn node_without_the_agent_receives_it_once() {
    if !can_run("node_without_the_agent_receives_it_once") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let copy = untrusted_copy(cluster.dir());
    // Both nodes have the same cache, as with a shared home, and receive the binary at the same time.
    let outcome = launch.remuda(&copy).sh("tr '\\0' ' ' </proc/$PPID/cmdline; echo").end().code(0);
    let first = builds(&cluster.cache());
    assert_eq!(first.len(), 1, "{first:?}");
    assert_no_leftovers(&cluster);
    assert!(outcome.stdout_text().contains("./remuda agent job="), "{outcome:?}");

    let mut again = command(&copy);
    again.args(["run", "--accelerator", "cpu", "--no_python", "-H"]);
    again.arg(cluster.dir().join("hostfile")).arg("--ssh_config");
    again.arg(cluster.dir().join("ssh_config")).arg("--run_dir").arg(cluster.dir().join("runs"));
    let output = again.arg("true").output().expect("remuda starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(builds(&cluster.cache()), first, "the file that was there is the file that ran");
}

/// The four newest builds stay whatever their age, and so do young builds and foreign files.
#[test]
fn old_builds_are_removed_when_a_new_one_is_stored() {
    if !can_run("old_builds_are_removed_when_a_new_one_is_stored") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    let copy = untrusted_copy(cluster.dir());
    let build = |letter: &str| cluster.cache().join(letter.repeat(64));
    // Made from the oldest to the newest.
    let ages = [("a", 50), ("b", 40), ("c", 30), ("d", 20), ("e", 13), ("f", 12)];
    for (letter, days) in ages {
        fs::create_dir_all(build(letter)).expect("a directory");
        fs::write(build(letter).join("remuda"), "old").expect("a file");
        let mut touch = command("touch");
        touch.arg("-d").arg(format!("{days} days ago")).arg(build(letter));
        assert!(touch.status().expect("touch starts").success());
    }
    fs::create_dir(cluster.cache().join("foreign")).expect("a directory");
    fs::set_permissions(cluster.cache(), fs::Permissions::from_mode(0o700))
        .expect("the directory is writable");
    let _outcome = launch.remuda(&copy).sh("exit 0").end().code(0);
    let left = ages.map(|(letter, _)| build(letter).exists());
    // With the new one `d`, `e` and `f` are the four newest.
    assert_eq!(left, [false, false, false, true, true, true]);
    assert!(cluster.cache().join("foreign").exists());
    assert_eq!(builds(&cluster.cache()).len(), 5);
}

#[test]
fn path_of_the_launcher_is_used_for_the_same_file() {
    if !can_run("path_of_the_launcher_is_used_for_the_same_file") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    if is_open_to_others(Path::new(REMUDA)) {
        return; // The path of a checkout in a world-writable directory is not trusted.
    }
    let outcome = launch.sh("tr '\\0' ' ' </proc/$PPID/cmdline").end().code(0);
    assert!(outcome.stdout_text().starts_with(REMUDA), "{outcome:?}");
    assert_eq!(builds(&cluster.cache()), []);
}

fn is_open_to_others(path: &Path) -> bool {
    path.ancestors().any(|dir| fs::metadata(dir).is_ok_and(|dir| dir.mode() & 0o002 != 0))
}

#[test]
fn unwritable_cache_is_skipped() {
    if !can_run("unwritable_cache_is_skipped") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    let copy = untrusted_copy(cluster.dir());
    // A file blocks the first cache; the other caches get unusual names.
    fs::write(cluster.cache(), "in the way").expect("a file");
    let var_tmp = unlikely_user(&cluster);
    launch.remuda(copy).sh("exit 0").end().code(0);
    assert_eq!(builds(&var_tmp).len(), 1, "the next cache was used");
    fs::remove_dir_all(var_tmp).expect("the directory is writable");
}

/// Sets LOGNAME of every login, so that the cache in /var/tmp is not the user's.
fn unlikely_user(cluster: &Cluster) -> PathBuf {
    let name = format!("test-{}", cluster.dir().file_name().expect("a name").display());
    let path = Path::new("/var/tmp").join(format!(".remuda-{name}"));
    cluster.set_variable("LOGNAME", &name);
    path
}

#[test]
fn cache_of_another_user_is_never_executed_from() {
    if !can_run("cache_of_another_user_is_never_executed_from") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return; // Only root can give a file away.
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    let copy = untrusted_copy(cluster.dir());
    let _outcome = launch.remuda(&copy).sh("exit 0").end().code(0);
    let (digest, _) = builds(&cluster.cache()).remove(0);
    let foreign = cluster.cache().join(digest);
    fs::write(foreign.join("remuda"), "#!/bin/sh\necho owned >&2\n").expect("a file");
    std::os::unix::fs::chown(&foreign, Some(65534), Some(65534)).expect("given away");

    let mut again = command(&copy);
    again.args(["run", "--accelerator", "cpu", "--no_python", "-H"]);
    again.arg(cluster.dir().join("hostfile")).arg("--ssh_config");
    again.arg(cluster.dir().join("ssh_config")).arg("--run_dir").arg(cluster.dir().join("runs"));
    let var_tmp = unlikely_user(&cluster);
    let output = again.arg("true").output().expect("remuda starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !stderr.contains("owned"), "{stderr}");
    assert_eq!(builds(&var_tmp).len(), 1, "the next cache was used");
    fs::remove_dir_all(var_tmp).expect("the directory is writable");
}

#[test]
fn node_without_any_cache_is_an_error() {
    if !can_run("node_without_any_cache_is_an_error") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    let copy = untrusted_copy(cluster.dir());
    fs::write(cluster.cache(), "in the way").expect("a file");
    fs::write(cluster.dir().join("cache/remuda"), "in the way").expect("a file");
    cluster.set_variable("LOGNAME", "no/such/directory\0".trim_end_matches('\0'));
    let var_tmp = Path::new("/var/tmp/.remuda-no");
    let outcome = launch.remuda(copy).sh("exit 0").end();
    let _ = fs::remove_dir_all(var_tmp);
    // Root can create directories anywhere, so the unusual name is a usable cache for root.
    if outcome.status.code() != Some(0) {
        outcome.code(73).says("no usable directory for the agent").says("--agent_path");
    }
}

#[test]
fn installed_agent_is_used_as_it_is() {
    if !can_run("installed_agent_is_used_as_it_is") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    let copy = untrusted_copy(cluster.dir());
    let launch = launch.option("--agent_path").option(&copy);
    let outcome = launch.sh("tr '\\0' ' ' </proc/$PPID/cmdline").end().code(0);
    assert!(outcome.stdout_text().starts_with(&copy.display().to_string()), "{outcome:?}");
}

#[test]
fn missing_installed_agent_is_an_error() {
    if !can_run("missing_installed_agent_is_an_error") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1)]);
    let outcome = launch.options(["--agent_path", "/nowhere/remuda"]).sh("exit 0").end().code(76);
    let outcome = outcome.says("error[R107]: the host cannot take part; nothing was started");
    let outcome = outcome.says("the agent of `--agent_path` did not start:");
    outcome.says("/nowhere/remuda").says("or leave out `--agent_path`");
}

#[test]
fn different_processor_architecture_is_an_error() {
    if !can_run("different_processor_architecture_is_an_error") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    // The bootstrap command reads the architecture only from `uname`.
    let bin = cluster.dir().join("bin");
    fs::create_dir(&bin).expect("a directory");
    let script = command("sh")
        .args(["-c", "printf '#!/bin/sh\\necho riscv128\\n' >\"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(bin.join("uname"))
        .status();
    assert!(script.expect("sh starts").success());
    cluster.set_variable("PATH", &format!("{}:/usr/bin:/bin", bin.display()));
    let outcome = launch.sh("exit 0").end().code(78).says("the processor architecture differs:");
    outcome.says("n1: the host is riscv128, this machine is ").says("--agent_path FILE");
}

/// The message of the loader for a real executable that needs a glibc version which does not exist.
#[test]
fn node_with_an_older_glibc_names_both_versions() {
    if !can_run("node_with_an_older_glibc_names_both_versions") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let copy = untrusted_copy(cluster.dir());
    let newer = cluster.dir().join("newer");
    let mut bytes = fs::read(REMUDA).expect("it was built");
    let name = b"\0GLIBC_2.";
    let mut from = 0;
    while let Some(at) = bytes[from..].windows(name.len()).position(|found| found == name) {
        from += at + name.len();
        // `GLIBC_2.34` becomes `GLIBC_9.34`.
        bytes[from - 2] = b'9';
    }
    fs::write(&newer, bytes).expect("a file");
    // The node stores it in place of the bytes that it receives.
    let bin = cluster.dir().join("bin");
    fs::create_dir(&bin).expect("a directory");
    let script = format!(
        "case $3 in /dev/zero) exec /usr/bin/head \"$@\";; esac; \
         /usr/bin/head \"$@\" >/dev/null; cat {}",
        newer.display()
    );
    let made = command("sh")
        .args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(bin.join("head"))
        .arg(script)
        .status();
    assert!(made.expect("sh starts").success());
    cluster.set_variable("PATH", &format!("{}:/usr/bin:/bin", bin.display()));
    let outcome = launch.remuda(copy).sh("exit 0").end().code(126);
    let outcome = outcome.says("the C library is too old for the agent:\n");
    let here = command("getconf").arg("GNU_LIBC_VERSION").output().expect("glibc has it").stdout;
    let here = String::from_utf8(here).expect("text");
    let there = format!("{} is installed there; this build of remuda needs glibc 9.", here.trim());
    let _outcome = outcome.says(&there).says("--agent_path FILE");
}

/// A file size limit fails like a full disk.
#[test]
fn full_disk_is_an_error() {
    if !can_run("full_disk_is_an_error") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    let copy = untrusted_copy(cluster.dir());
    cluster.configure("ForceCommand ulimit -f 64; eval \"$SSH_ORIGINAL_COMMAND\"");
    let var_tmp = unlikely_user(&cluster);
    let outcome = launch.remuda(copy).sh("exit 0").end().code(73);
    let outcome =
        outcome.says("no usable directory for the agent:").says("run/remuda: no space left");
    let _outcome = outcome.says("cache/remuda: no space left").says("--agent_path FILE");
    let left = |cache: &Path| {
        let builds = fs::read_dir(cache).expect("made").flatten();
        builds
            .flat_map(|build| fs::read_dir(build.path()).expect("the directory is writable"))
            .count()
    };
    assert_eq!((left(&cluster.cache()), left(&var_tmp)), (0, 0), "no partial file is left");
    fs::remove_dir_all(var_tmp).expect("the directory is writable");
}

#[test]
fn noexec_cache_is_skipped() {
    if !can_run("noexec_cache_is_skipped") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    let run = cluster.dir().join("run");
    let mount = format!("mount -t tmpfs -o noexec none \"{}\"", run.display());
    let mut probe = command("unshare");
    probe.args(["--mount", "sh", "-c"]).arg(&mount).stderr(std::process::Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        crate::support::proof::skip("mount", "noexec_cache_is_skipped");
        return;
    }
    let copy = untrusted_copy(cluster.dir());
    cluster.configure(&format!(
        "ForceCommand exec unshare --mount sh -c '{mount}; eval \"$SSH_ORIGINAL_COMMAND\"'"
    ));
    let var_tmp = unlikely_user(&cluster);
    launch.remuda(copy).sh("exit 0").end().code(0);
    assert_eq!(builds(&var_tmp).len(), 1, "the next cache was used");
    fs::remove_dir_all(var_tmp).expect("the directory is writable");
}
