//! Goal: NCCL is found where a Python worker of the same environment would find it, and its id
//! reaches all ranks of a job; what cannot be loaded is told with its place.
//! Method: NVIDIA's own libraries (`scripts/libraries`), workers under `remuda run`. No GPU is needed
//! .

#![cfg(all(feature = "cli", feature = "nccl"))]

#[expect(dead_code, reason = "shared with tests that use more of it")]
mod support;

use std::io::Write;
use std::path::PathBuf;

use remuda::base::env_vars;
use remuda::runtime::nccl::{NcclLibrary, share_id};
use remuda::runtime::{Error, Group};
use support::launch::{Launch, workers};
use support::proof::has;

/// Set for workers: what they tell is for a test.
const ROLE: &str = "REMUDA_TEST_ROLE";

/// What a worker that another test started does; by itself it has nothing to tell.
#[test]
fn worker() {
    if env_vars::get(ROLE).is_some() {
        let told = told().unwrap_or_else(|error| error.to_string());
        writeln!(std::io::stdout(), "{told}").expect("the test reads what workers say");
    }
}

/// Which NCCL this rank has, and which id it was given.
fn told() -> Result<String, Error> {
    let library = match NcclLibrary::open() {
        Ok(library) => library,
        Err(error) => return Ok(format!("told: {error}")),
    };
    let group = Group::from_env()?;
    let id = share_id(&group, &library)?;
    // Rank 0 listens for the others until they have the id, and longer.
    group.barrier()?;
    let address = &id.0[8..16];
    let digest = id.0.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
    let (version, path) = (library.version(), library.path().display());
    let registers = library.can_register();
    Ok(format!("told: {version} {path} {address:?} {digest} registers: {registers}"))
}

/// Workers with nothing but a variable that leads to libraries.
fn ranks(count: usize, variable: &str, value: impl Into<std::ffi::OsString>) -> Launch {
    let own = std::env::current_exe().expect("a test has a path");
    let mut launch = workers(count).option("--prefix").option("").env(ROLE, "1");
    launch = launch.env("NCCL_SOCKET_IFNAME", "lo");
    for other in ["VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "REMUDA_NCCL_LIBRARY"] {
        launch = launch.env(other, "");
    }
    let words = ["--exact", "worker", "--nocapture"].map(std::ffi::OsString::from);
    launch.env(variable, value).program(std::iter::once(own.into_os_string()).chain(words))
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
fn every_rank_loads_the_library_of_its_environment_and_has_the_id_of_rank_0() {
    if !has("nccl", "every_rank_loads_the_library_of_its_environment_and_has_the_id_of_rank_0") {
        return;
    }
    for (name, version) in [("cuda12", "2.21.5"), ("cuda13", "2.28.9")] {
        let root = root(name);
        let wheel = "lib/python3/site-packages/nvidia/nccl/lib/libnccl.so.2";
        let file = root.join(wheel).canonicalize().expect("scripts/libraries has been run");
        let told = lines_of(ranks(3, "VIRTUAL_ENV", &root));
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told.iter().all(|line| *line == told[0]), "one id for all: {told:?}");
        // The address of the listener: IPv4, a port, loopback.
        let start = format!("{version} {} [2, 0, ", file.display());
        assert!(told[0].starts_with(&start), "{told:?}");
        assert!(told[0].contains(", 127, 0, 0, 1] "), "{told:?}");
        assert!(told[0].ends_with(" registers: true"), "{told:?}");
    }
}

#[test]
fn another_way_to_the_library_is_its_name_or_the_path_of_the_loader() {
    if !has("nccl", "another_way_to_the_library_is_its_name_or_the_path_of_the_loader") {
        return;
    }
    let directory = root("cuda13/lib/python3/site-packages/nvidia/nccl/lib");
    let by_path = lines_of(ranks(1, "LD_LIBRARY_PATH", &directory));
    assert!(by_path[0].starts_with("2.28.9 "), "{by_path:?}");
    let by_name = lines_of(ranks(1, "REMUDA_NCCL_LIBRARY", directory.join("libnccl.so.2")));
    assert!(by_name[0].starts_with("2.28.9 "), "{by_name:?}");
}

#[test]
fn what_is_no_nccl_is_told_with_its_place() {
    let missing = lines_of(ranks(1, "REMUDA_NCCL_LIBRARY", "/nowhere/libnccl.so.2"));
    let expect = "cannot load NCCL: `/nowhere/libnccl.so.2`: cannot open shared object file: No \
                  such file or directory";
    assert_eq!(missing, [expect]);
    let other = lines_of(ranks(1, "REMUDA_NCCL_LIBRARY", "libc.so.6"));
    assert_eq!(other, ["`libc.so.6` is no NCCL that we can use: it lacks `ncclGetVersion`"]);
}
