//! Looks, before any worker starts anywhere, whether they could start here.

use std::cell::Cell;
use std::ffi::{CString, OsStr};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::base::{JobId, Status, clock, env_vars};
use crate::os::{fds, fork};
use crate::report::print_error;
use crate::report::summary::reason;
use crate::runtime::store::{OnRefused, Server, ServerOptions};
use crate::secure::{JobKey, derive_rank_key};
use crate::wire::{Listen, Prepare, Problem};

/// Descriptors that an agent needs beside those of its workers.
const OWN_FDS: u64 = 32;

/// What was found, as far as the job needs it.
pub(super) struct Prepared {
    /// The file that the workers execute.
    pub(super) path: CString,
    /// The port for rank 0, on node 0.
    pub(super) master_port: Option<u16>,
    /// The store of the workers, on node 0 of several.
    pub(super) store: Option<Server>,
}

/// Examines everything and gives all reasons at once.
pub(super) fn examine(job: &JobId, prepare: &Prepare) -> Result<Prepared, Vec<Problem>> {
    let cwd = Path::new(OsStr::from_bytes(&prepare.cwd));
    let mut problems = Vec::new();
    problems.extend(check_cwd(cwd).err());
    problems.extend(check_fds(prepare.fds).err());
    problems.extend(check_script(cwd, prepare.script.as_deref()).err());
    let path = note(&mut problems, find_program(cwd, &prepare.program));
    let port = note(&mut problems, find_port(prepare));
    let store = note(&mut problems, serve_store(job, prepare));
    match (path, port, store) {
        (Some(path), Some(port), Some(store)) if problems.is_empty() => {
            // Held until here, so that the store did not get it.
            let master_port = port.and_then(|held| Some(held.local_addr().ok()?.port()));
            Ok(Prepared { path, master_port, store })
        }
        _ => Err(problems),
    }
}

fn note<T>(problems: &mut Vec<Problem>, result: Result<T, Problem>) -> Option<T> {
    result.map_err(|problem| problems.push(problem)).ok()
}

fn check_cwd(cwd: &Path) -> Result<(), Problem> {
    match std::fs::metadata(cwd) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => {
            Err(Problem::new(Status::NoInput, format!("`{}` is not a directory", cwd.display())))
        }
        Err(error) => Err(Problem::new(
            Status::NoInput,
            format!("cannot use the working directory `{}`: {}", cwd.display(), reason(&error)),
        )
        .help("the same path must exist on every node")),
    }
}

fn check_fds(workers: u64) -> Result<(), Problem> {
    let (needed, limit) = (workers + OWN_FDS, fds::raise_limit());
    if needed <= limit {
        return Ok(());
    }
    let message = format!("the job needs {needed} open files on this node, the limit is {limit}");
    Err(Problem::new(Status::OsLimit, message).help("raise it with `ulimit -n` or in limits.conf"))
}

fn check_script(cwd: &Path, script: Option<&[u8]>) -> Result<(), Problem> {
    let Some(script) = script.map(OsStr::from_bytes) else {
        return Ok(());
    };
    let problem = |why: &str| {
        Problem::new(Status::NoInput, format!("cannot read script `{}`: {why}", script.display()))
    };
    match std::fs::metadata(cwd.join(script)) {
        Ok(metadata) if metadata.is_dir() && !cwd.join(script).join("__main__.py").exists() => {
            Err(problem("it is a directory"))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(problem(&reason(&error))),
    }
}

fn find_program(cwd: &Path, program: &[u8]) -> Result<CString, Problem> {
    let shown = OsStr::from_bytes(program).display().to_string();
    let name = CString::new(program)
        .map_err(|_| Problem::new(Status::NotFound, "the program's name holds a NUL byte"))?;
    let path = env_vars::get(env_vars::PATH);
    fork::find_program(&name, cwd, path.as_ref()).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if shown.contains('/') => {
            Problem::new(Status::NotFound, format!("program `{shown}` does not exist"))
        }
        io::ErrorKind::NotFound => {
            Problem::new(Status::NotFound, format!("program `{shown}` is not in PATH"))
        }
        _ => Problem::new(
            Status::NotExecutable,
            format!("program `{shown}` cannot be executed: {}", reason(&error)),
        ),
    })
}

/// The wanted port, or one that is free, held open; rank 0 will bind it once we have let go.
fn find_port(prepare: &Prepare) -> Result<Option<TcpListener>, Problem> {
    let Some(listen) = &prepare.listen else {
        return Ok(None);
    };
    let ip = address(listen)?;
    let wanted = listen.master_port.unwrap_or(0);
    TcpListener::bind(SocketAddr::new(ip, wanted)).map(Some).map_err(|error| {
        let message = format!("master port {wanted} cannot be used on {ip}: {}", reason(&error));
        Problem::new(Status::Config, message)
            .help("leave `--master_port` out to take one that is free")
    })
}

fn address(listen: &Listen) -> Result<IpAddr, Problem> {
    listen.addr.parse().map_err(|_| {
        Problem::new(Status::Config, format!("`{}` is not an address of this node", listen.addr))
    })
}

/// Starts the store where the workers will need one.
fn serve_store(job: &JobId, prepare: &Prepare) -> Result<Option<Server>, Problem> {
    let Some(listen) = prepare.listen.as_ref().filter(|listen| listen.store) else {
        return Ok(None);
    };
    let (key, epoch) = (JobKey::from_random(prepare.key), prepare.epoch);
    let ranks = prepare.world_size;
    let options = ServerOptions {
        job: job.clone(),
        epoch,
        key_of: Box::new(move |rank| (rank.0 < ranks).then(|| derive_rank_key(&key, epoch, rank))),
        on_refused: on_refused(),
    };
    let bound = Server::bind(SocketAddr::new(address(listen)?, 0), options);
    bound.map(Some).map_err(|error| {
        let message = format!("the store cannot listen on {}: {}", listen.addr, reason(&error));
        Problem::new(Status::OsLimit, message)
    })
}

/// Tells about strangers at the store, but not more often than somebody would read.
fn on_refused() -> OnRefused {
    const PAUSE: Duration = Duration::from_secs(10);
    let told = Cell::new(None);
    Box::new(move |address, why| {
        let now = clock::now();
        if told.get().is_none_or(|told| told + PAUSE <= now) {
            told.set(Some(now));
            print_error(&format!("remuda agent: {address} was refused by the store: {why}\n"));
        }
    })
}
