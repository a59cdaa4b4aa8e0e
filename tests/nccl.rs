//! Search for NCCL: workers load the library that a Python worker of the same environment loads, and all
//! ranks receive the id of rank 0. The error of a library that cannot be loaded names its path.
//!
//! The workers run under `remuda run` with NVIDIA's own libraries (`scripts/libraries`), without a GPU.

use std::io::Write;
use std::path::PathBuf;

use crate::support::launch::{Launch, workers};
use crate::support::proof::has;
use remuda::base::env_vars;
use remuda::runtime::nccl::{NcclLibrary, share_id};
use remuda::runtime::{Error, Group};

/// Environment variable that is set for workers of a test.
const ROLE: &str = "REMUDA_TEST_ROLE";

/// Worker that the other tests start; without the variable it does nothing.
#[test]
fn worker() {
    if env_vars::get(ROLE).is_some() {
        let line = nccl_line().unwrap_or_else(|error| error.to_string());
        writeln!(std::io::stdout(), "{line}").expect("the test reads the output of workers");
    }
}

/// Line about the NCCL of this rank and the id that it has received.
fn nccl_line() -> Result<String, Error> {
    let library = match NcclLibrary::open() {
        Ok(library) => library,
        Err(error) => return Ok(format!("told: {error}")),
    };
    let group = Group::from_env()?;
    let id = share_id(&group, &library)?;
    // Rank 0 must listen until the other ranks have the id.
    group.barrier()?;
    let address = &id.0[8..16];
    let digest = id.0.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
    let (version, path) = (library.version(), library.path().display());
    let registers = library.can_register();
    Ok(format!("told: {version} {path} {address:?} {digest} registers: {registers}"))
}

/// Workers whose environment has a single variable that leads to libraries.
fn ranks(count: usize, variable: &str, value: impl Into<std::ffi::OsString>) -> Launch {
    let own = std::env::current_exe().expect("a test has a path");
    let mut launch = workers(count).option("--prefix").option("").env(ROLE, "1");
    launch = launch.env("NCCL_SOCKET_IFNAME", "lo");
    for other in ["VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "REMUDA_NCCL_LIBRARY"] {
        launch = launch.env(other, "");
    }
    let args = ["--exact", "nccl::worker", "--nocapture"].map(std::ffi::OsString::from);
    launch.env(variable, value).program(std::iter::once(own.into_os_string()).chain(args))
}

fn lines_of(launch: Launch) -> Vec<String> {
    let outcome = launch.end().code(0);
    let lines = outcome.stdout_text().lines();
    lines.filter_map(|line| Some(line.split_once("told: ")?.1.to_owned())).collect()
}

fn root(name: &str) -> PathBuf {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    target.parent().expect("a directory of target").join("nvidia").join(name)
}

#[test]
fn nccl_of_the_environment_is_loaded_and_its_id_shared() {
    if !has("nccl", "nccl_of_the_environment_is_loaded_and_its_id_shared") {
        return;
    }
    for (name, version) in [("cuda12", "2.21.5"), ("cuda13", "2.28.9")] {
        let root = root(name);
        let wheel = "lib/python3/site-packages/nvidia/nccl/lib/libnccl.so.2";
        let file = root.join(wheel).canonicalize().expect("scripts/libraries has been run");
        let lines = lines_of(ranks(3, "VIRTUAL_ENV", &root));
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines.iter().all(|line| *line == lines[0]), "one id for all: {lines:?}");
        // The address of the listener: IPv4, a port, loopback.
        let start = format!("{version} {} [2, 0, ", file.display());
        assert!(lines[0].starts_with(&start), "{lines:?}");
        assert!(lines[0].contains(", 127, 0, 0, 1] "), "{lines:?}");
        assert!(lines[0].ends_with(" registers: true"), "{lines:?}");
    }
}

#[test]
fn nccl_is_found_by_its_variable_or_the_loader_path() {
    if !has("nccl", "nccl_is_found_by_its_variable_or_the_loader_path") {
        return;
    }
    let directory = root("cuda13/lib/python3/site-packages/nvidia/nccl/lib");
    let by_path = lines_of(ranks(1, "LD_LIBRARY_PATH", &directory));
    assert!(by_path[0].starts_with("2.28.9 "), "{by_path:?}");
    let by_name = lines_of(ranks(1, "REMUDA_NCCL_LIBRARY", directory.join("libnccl.so.2")));
    assert!(by_name[0].starts_with("2.28.9 "), "{by_name:?}");
}

#[test]
fn nccl_error_names_the_file() {
    let missing = lines_of(ranks(1, "REMUDA_NCCL_LIBRARY", "/nowhere/libnccl.so.2"));
    let expect = "cannot load NCCL: `/nowhere/libnccl.so.2`: cannot open shared object file: No \
                  such file or directory";
    assert_eq!(missing, [expect]);
    let other = lines_of(ranks(1, "REMUDA_NCCL_LIBRARY", "libc.so.6"));
    assert_eq!(other, ["`libc.so.6` is not a usable NCCL: it has no function `ncclGetVersion`"]);
}
