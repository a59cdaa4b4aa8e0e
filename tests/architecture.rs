//! Tests of the architecture: layers, bans, `unsafe`, names, and the documents about them.
//!
//! This file has the tables, and the tests that check the repository against them.

#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/doc_comments.rs"]
mod doc_comments;
#[path = "architecture/documents.rs"]
mod documents;
#[path = "architecture/formats.rs"]
mod formats;
#[path = "architecture/limits.rs"]
mod limits;
#[path = "architecture/map.rs"]
mod map;
#[path = "architecture/names.rs"]
mod names;
#[path = "architecture/prose.rs"]
mod prose;
#[path = "architecture/purity.rs"]
mod purity;
#[path = "architecture/rules.rs"]
mod rules;
#[path = "architecture/screens.rs"]
mod screens;
#[path = "architecture/shape.rs"]
mod shape;
#[path = "architecture/source.rs"]
mod source;

use names::repeated_names;
use rules::{ban_violations, layer_violations, runtime_violations, unsafe_violations};
use source::{files, read, rust_files};

/// The table of ARCHITECTURE.md, lowest layer first. A module imports only modules of lower layers.
const LAYERS: [&[&str]; 7] = [
    &["base"],
    &["pool", "config", "os", "secure"],
    &["plan", "cuda"],
    &["job", "wire", "inventory"],
    &["transport", "report", "runtime"],
    &["launch", "agent", "doctor", "train", "bench", "capi"],
    &["cli", "simulation"],
];

/// Modules that may import less than their layer allows.
const NARROW: [(&str, &[&str]); 4] = [
    // A worker needs only `runtime`, and `runtime` does not depend on how it was launched.
    ("runtime", &["base", "os", "secure", "cuda"]),
    // The bundled worker uses what a user's worker can use; `report` prints its lines.
    ("train", &["base", "os", "cuda", "runtime", "report"]),
    // Likewise; its charts are drawn by `base`.
    ("bench", &["base", "runtime"]),
    // Programs in other languages load it; they need no launcher.
    ("capi", &["base", "runtime"]),
];

/// The modules of `runtime`, lowest layer first; `comm` alone is its own files. A module imports only
/// modules of lower layers.
const RUNTIME_LAYERS: [&[&str]; 12] = [
    &["dtype", "schedule"],
    &["flat", "comm::core"],
    &["comm::store", "comm::shm", "optim"],
    &["comm::tcp", "contract"],
    &["comm::host", "error"],
    &["comm::bootstrap"],
    &["comm"],
    &["comm::device", "checkpoint"],
    &["data", "parallel"],
    &["engine"],
    &["kernel_checks"],
    &["gpu_checks"],
];

/// Modules that are pure whether or not they say so: no I/O, no clock, no environment.
const PURE: &[&str] = &[
    "src/pool/",
    "src/config/",
    "src/plan/",
    "src/wire/",
    "src/job/",
    "src/secure/",
    "src/agent/state/",
    "src/agent/notes.rs",
    "src/runtime/schedule/",
    "src/runtime/flat/",
    "src/runtime/optim/",
    "src/runtime/parallel/zero/",
    "src/doctor/judge/",
    "src/doctor/screen.rs",
];

/// Words that pure code does not have.
const IMPURE: &[(&str, &str)] = &[
    ("std::fs", "pure code does no I/O"),
    ("File::open", "pure code does no I/O"),
    ("io::stdin", "pure code does no I/O"),
    ("TcpStream", "pure code does no I/O"),
    ("TcpListener", "pure code does no I/O"),
    ("UdpSocket", "pure code does no I/O"),
    ("UnixStream", "pure code does no I/O"),
    ("UnixListener", "pure code does no I/O"),
    ("to_socket_addrs", "pure code asks no name server"),
    ("thread::sleep", "pure code does not wait"),
    ("tokio", "pure code does not wait"),
    ("rustix", "pure code does not call the kernel"),
    ("libc::", "pure code does not call the kernel"),
    ("clock::now", "time is an argument"),
    ("clock::wall", "time is an argument"),
    ("clock::machine_us", "time is an argument"),
    ("env_vars::get", "the environment is an argument"),
    ("env_vars::get_text", "the environment is an argument"),
    ("env::current_dir", "the directory is an argument"),
    ("env::current_exe", "the program is an argument"),
];

/// Modules without an async runtime.
const BLOCKING: &[&str] = &[
    "src/base/",
    "src/cuda/",
    "src/pool/",
    "src/config/",
    "src/secure/",
    "src/plan/",
    "src/job/",
    "src/wire/",
    "src/agent/state/",
    "src/agent/notes.rs",
    "src/runtime/",
    "src/train/",
    "src/bench/",
    "src/capi/",
];

/// Names of files that may contain `unsafe`, in addition to all files of `os`.
const UNSAFE_NAMES: [&str; 4] = ["shm", "mmap", "simd", "ffi"];

/// Words that are banned in code, and the files to which the ban applies.
struct Ban {
    tokens: &'static str,
    within: &'static [&'static str],
    except: &'static [&'static str],
    tests: Tests,
    reason: &'static str,
}

/// Whether a ban applies to code under `#[cfg(test)]` too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tests {
    Included,
    Exempt,
}

const SRC: &[&str] = &["src/"];
const ALL: &[&str] = &["src/", "tests/", "examples/", "benches/"];

const fn product(
    tokens: &'static str,
    except: &'static [&'static str],
    reason: &'static str,
) -> Ban {
    Ban { tokens, within: SRC, except, tests: Tests::Exempt, reason }
}

const fn everywhere(tokens: &'static str, reason: &'static str) -> Ban {
    Ban { tokens, within: ALL, except: &[], tests: Tests::Included, reason }
}

const fn only_in(
    tokens: &'static str,
    within: &'static [&'static str],
    except: &'static [&'static str],
    reason: &'static str,
) -> Ban {
    Ban { tokens, within, except, tests: Tests::Exempt, reason }
}

const fn never_in(
    tokens: &'static str,
    within: &'static [&'static str],
    reason: &'static str,
) -> Ban {
    Ban { tokens, within, except: &[], tests: Tests::Exempt, reason }
}

const CLOCK: &[&str] = &["src/base/clock.rs"];
const ENV: &[&str] = &["src/base/env_vars.rs"];
const SCREEN: &[&str] = &["src/report/"];
const SPAWN: &[&str] = &["src/os/", "src/transport/"];
const KERNEL: &[&str] = &["src/os/"];
const HOST: &[&str] = &["src/runtime/comm/host/"];
const CONNECTIONS: &[&str] =
    &["src/runtime/comm/host/inter_node.rs", "src/runtime/comm/host/messages.rs"];

const BANS: &[Ban] = &[
    product("Instant::now", CLOCK, "use base::clock::now"),
    product("SystemTime::now", CLOCK, "use base::clock::wall"),
    product("clock_gettime", CLOCK, "use base::clock"),
    product("env::var", ENV, "use base::env_vars::get"),
    product("env::var_os", ENV, "use base::env_vars::get"),
    product("env::vars", ENV, "use base::env_vars"),
    product("env::vars_os", ENV, "use base::env_vars"),
    product("env::set_var", &[], "the environment of a process is data of its plan"),
    product("env::remove_var", &[], "the environment of a process is data of its plan"),
    product("println!", SCREEN, "only report writes to the terminal"),
    product("print!", SCREEN, "only report writes to the terminal"),
    product("eprintln!", SCREEN, "only report writes to the terminal"),
    product("eprint!", SCREEN, "only report writes to the terminal"),
    product("io::stdout", SCREEN, "only report writes to the terminal"),
    product("io::stderr", SCREEN, "only report writes to the terminal"),
    product("Command::new", SPAWN, "processes are started in os and transport"),
    product("libc::fork", KERNEL, "processes are started in os and transport"),
    product("libc::execve", KERNEL, "processes are started in os and transport"),
    product("libc::posix_spawn", KERNEL, "processes are started in os and transport"),
    product(
        "libc::kill",
        KERNEL,
        "signals are sent in os, to processes that remuda created and still holds",
    ),
    product(
        "kill_process",
        KERNEL,
        "signals are sent in os, to processes that remuda created and still holds",
    ),
    product("process::exit", &[], "return a base::Status"),
    product("process::abort", &[], "return an error"),
    product(".unwrap()", &[], "handle the error, or state with expect why it cannot occur"),
    product("clap", &["src/cli/"], "only cli knows clap"),
    product("clap_complete", &["src/cli/"], "only cli knows clap"),
    product("clap_mangen", &["src/cli/"], "only cli knows clap"),
    only_in("comm::tcp", HOST, CONNECTIONS, "an algorithm names no connection"),
    never_in("tokio", BLOCKING, "no async runtime here"),
    everywhere("dbg!", "for debugging only"),
    everywhere("todo!", "write the missing code"),
    everywhere("unimplemented!", "write the missing code"),
    everywhere("#[allow(", "use #[expect(…, reason = \"…\")]"),
    everywhere("#![allow(", "use #![expect(…, reason = \"…\")]"),
    everywhere("#[ignore", "run the test or remove it"),
];

#[track_caller]
fn assert_clean(violations: impl IntoIterator<Item = String>) {
    let found: Vec<String> = violations.into_iter().collect();
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn modules_import_only_lower_layers() {
    assert_clean(rust_files().iter().flat_map(layer_violations));
}

#[test]
fn modules_of_runtime_import_only_lower_layers() {
    assert_clean(rust_files().iter().flat_map(runtime_violations));
}

#[test]
fn banned_words_stay_in_their_modules() {
    assert_clean(rust_files().iter().flat_map(ban_violations));
}

#[test]
fn unsafe_code_is_confined_and_documented() {
    assert_clean(rust_files().iter().flat_map(unsafe_violations));
}

#[test]
fn visible_type_names_are_defined_once() {
    let files = rust_files();
    assert_clean(repeated_names(files.iter().filter(|file| file.path.starts_with("src/"))));
}

#[test]
fn layer_table_lists_every_module() {
    let lib = read("src/lib.rs".into());
    let code = lib.tokens();
    let mut declared: Vec<&str> =
        code.windows(2).filter(|pair| pair[0].text == "mod").map(|pair| pair[1].text).collect();
    let mut listed = LAYERS.concat();
    declared.sort_unstable();
    listed.sort_unstable();
    assert_eq!(declared, listed);
}

#[test]
fn architecture_document_has_this_layer_table() {
    let expected: Vec<(usize, Vec<&str>)> =
        LAYERS.iter().enumerate().map(|(level, layer)| (level, layer.to_vec())).rev().collect();
    let document = read("ARCHITECTURE.md".into());
    assert_eq!(documents::layer_table(&document.text), expected);
}

#[test]
fn tables_of_tests_name_existing_tests() {
    let has = |path: &str, name: &str| {
        files().iter().any(|found| found == path)
            && read(path.to_owned()).text.contains(&format!("fn {name}()"))
    };
    for table in ["tests/upstream.rs", "tests/cures.rs", "tests/matrix.rs"] {
        let rows = documents::rows_of_tests(table, &read(table.into()).text);
        assert!(!rows.is_empty(), "{table} has no table");
        assert_clean(rows.iter().filter(|row| row.tests.is_empty()).map(|row| row.line.clone()));
        let named = rows.iter().flat_map(|row| &row.tests);
        let missing = named.filter(|(path, name)| !has(path, name));
        assert_clean(missing.map(|(path, name)| format!("{table}: no `{path}::{name}`")));
    }
}
