//! Collection of the facts of a node for `remuda doctor`, on its own thread. Makes no judgement.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ports;
use super::preflight::{self, Site};
use crate::base::{Status, clock, env_vars};
use crate::inventory::{self, GpuState};
use crate::os::machine::machine_name;
use crate::os::net::interfaces;
use crate::os::net::ports::PortClaim;
use crate::os::process::command_output;
use crate::os::shared_libraries::library_directories;
use crate::os::user::{self, Bounds};
use crate::report::text::show_io_error;
use crate::wire::{
    Adapter, Compute, Depth, EXAM_VERSION, Examination, Examine, FileSystemSpace, GpuProcess,
    GpuReport, GpusReport, Interface, LibraryReport, Limit, Machine, Network, PortRequest, Problem,
    Python, TORCH, Token,
};

/// Time limit for a Python that prints its version; on a cold network file system it takes seconds.
const PYTHON_LIMIT: Duration = Duration::from_secs(30);

/// Python program that prints the version, then each directory of packages. The version of torch is read from
/// the files of its package, because its import takes seconds.
const PYTHON_SCRIPT: &str = "import site, sys, sysconfig\n\
    print('.'.join(map(str, sys.version_info[:3])))\n\
    for name in ('purelib', 'platlib'): print(sysconfig.get_path(name))\n\
    print(site.getusersitepackages())\n\
    try:\n \
        from importlib.metadata import distribution\n \
        torch = distribution('torch')\n \
        print('torch', torch.version, torch.locate_file('torch'), sep='\\t')\n\
    except Exception: pass";

/// A report, and the listeners and the port claim that must stay open while it is used.
pub(super) struct HeldReport {
    pub(super) report: Examination,
    /// Listeners for the connectivity test, each with the token that peers must have.
    pub(super) listeners: Vec<(TcpListener, Token)>,
    pub(super) port: Option<PortClaim>,
}

/// Collects everything that was requested. May take long.
pub(super) fn collect_facts(request: &Examine) -> HeldReport {
    let cwd = Path::new(OsStr::from_bytes(&request.cwd));
    let site = Site { cwd, spans_machines: request.spans_machines };
    // Must run before the limit of open files is raised.
    let compute = compute();
    let (python, packages, torch) = query_python(request, cwd);
    let (network, listeners, port) = open_probe_listeners(request);
    let environment = env_vars::all();
    let find_program = |program: &Vec<u8>| {
        preflight::find_program(site, ("program", program), &environment).map(|_| ())
    };
    let report = Examination {
        version: EXAM_VERSION,
        machine: machine(),
        cwd: preflight::check_cwd(site),
        program: request.program.as_ref().map(find_program),
        script: request.script.as_ref().map(|script| preflight::check_script(site, Some(script))),
        python,
        compute,
        gpus: gpus(),
        libraries: match request.depth {
            Depth::Quick => Vec::new(),
            Depth::Full => torch.into_iter().chain(libraries(&packages)).collect(),
        },
        network,
    };
    HeldReport { report, listeners, port }
}

fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let uid = rustix::process::geteuid().as_raw();
    Machine {
        host_name: machine_name(),
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        kernel: read("/proc/sys/kernel/osrelease"),
        arch: std::env::consts::ARCH.to_owned(),
        user: user::user_name(uid),
        uid,
        clock_us: clock::machine_us(),
        wall_us: clock::wall().as_micros() as u64,
    }
}

fn compute() -> Compute {
    let (membership, root) = (Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    let limit = |bounds: Bounds| Limit { soft: bounds.soft, hard: bounds.hard };
    Compute {
        cpus: inventory::usable_cpus() as u32,
        memory_bytes: inventory::available_memory(),
        memory_limit_bytes: inventory::memory_limit(membership, root),
        shm: shared_memory(Path::new("/dev/shm")),
        memlock: limit(user::locked_memory()),
        nofile: limit(user::open_files()),
    }
}

/// Returns the size and free space of `/dev/shm`, or why it cannot be used.
pub fn shared_memory(dir: &Path) -> Result<FileSystemSpace, String> {
    let found = rustix::fs::statvfs(dir).map_err(|error| show_io_error(&error.into()))?;
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(|error| show_io_error(&error.into()))?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(FileSystemSpace { total_bytes: bytes(found.f_blocks), free_bytes: bytes(found.f_bavail) })
}

/// Returns the version of the Python, the directories of its packages, and its torch.
fn query_python(
    request: &Examine,
    cwd: &Path,
) -> (Option<Python>, Vec<PathBuf>, Option<LibraryReport>) {
    let python =
        request.program.as_ref().filter(|_| request.is_python && request.depth == Depth::Full);
    let Some(python) = python else { return (None, Vec::new(), None) };
    let cwd = if cwd.is_dir() { cwd } else { Path::new("/") };
    let python = OsStr::from_bytes(python);
    match command_output::output_of(python, &["-c", PYTHON_SCRIPT], cwd, PYTHON_LIMIT) {
        Ok(output) => {
            let mut lines = output.lines();
            let version = lines.next().unwrap_or_default().to_owned();
            let torch = output.lines().find_map(parse_torch);
            let paths = lines.filter(|line| parse_torch(line).is_none());
            let mut packages: Vec<PathBuf> = paths.map(PathBuf::from).collect();
            packages.dedup();
            (Some(Python { version: Ok(version) }), packages, torch)
        }
        Err(why) => (Some(Python { version: Err(why) }), Vec::new(), None),
    }
}

/// Parses the line of [`PYTHON_SCRIPT`] about torch.
fn parse_torch(line: &str) -> Option<LibraryReport> {
    let (version, path) = line.strip_prefix("torch\t")?.split_once('\t')?;
    Some(LibraryReport {
        name: TORCH.to_owned(),
        version: Some(version.to_owned()),
        path: path.to_owned(),
    })
}

fn libraries(packages: &[PathBuf]) -> Vec<LibraryReport> {
    let loader_path = env_vars::get(env_vars::LD_LIBRARY_PATH);
    let roots = [env_vars::CONDA_PREFIX, env_vars::VIRTUAL_ENV].map(env_vars::get);
    let roots: Vec<PathBuf> = roots.into_iter().flatten().map(PathBuf::from).collect();
    let directories = library_directories(packages, loader_path.as_deref(), &roots);
    let found = inventory::libraries(&directories).into_iter();
    let library = |found: inventory::FoundLibrary| LibraryReport {
        name: found.name.to_owned(),
        version: found.version,
        path: found.path.display().to_string(),
    };
    found.map(library).collect()
}

fn gpus() -> GpusReport {
    let files = inventory::gpu_count(Path::new("/dev"));
    if files == 0 {
        return GpusReport::default();
    }
    let known =
        GpusReport { device_files: files, xids: inventory::xids(), ..GpusReport::default() };
    match inventory::gpu_states() {
        Err(why) => GpusReport { nvml_error: Some(why), ..known },
        Ok(found) => {
            let known = GpusReport { driver: found.driver, cuda: found.cuda, ..known };
            match found.devices {
                Ok(devices) => {
                    GpusReport { devices: devices.into_iter().map(gpu).collect(), ..known }
                }
                Err(why) => GpusReport { nvml_error: Some(why), ..known },
            }
        }
    }
}

fn gpu(state: GpuState) -> GpuReport {
    let processes = state.users.into_iter().map(|user| GpuProcess {
        pid: user.pid,
        name: user.name,
        memory_bytes: user.memory_bytes,
    });
    GpuReport {
        name: state.name,
        uuid: state.uuid,
        memory_bytes: state.memory_bytes,
        mig: state.mig,
        ecc_errors: state.ecc_errors,
        processes: processes.collect(),
    }
}

/// Opens the listener of the connectivity test and that of the port of rank 0.
fn open_probe_listeners(
    request: &Examine,
) -> (Network, Vec<(TcpListener, Token)>, Option<PortClaim>) {
    let address = ports::listen_address(request.addr.as_deref(), &request.others).map(|(_, ip)| ip);
    let mut listeners = Vec::new();
    let mut open = |address: SocketAddr| {
        let listener = TcpListener::bind(address);
        let listener = listener.map_err(|error| cannot_listen(address, &error))?;
        let address = listener.local_addr().map_err(|error| cannot_listen(address, &error))?;
        listeners.push((listener, request.token));
        Ok(address)
    };
    let listener = address.clone().and_then(|ip| open(SocketAddr::new(ip, 0)));
    let mut port_claim = None;
    let master = request.port.map(|port| {
        let ip = address.clone()?;
        let (port, claim) = master_port(port)?;
        port_claim = Some(claim);
        open(SocketAddr::new(ip, port))
    });
    let own = listener.as_ref().ok().map(SocketAddr::ip);
    let network = Network { interfaces: nics(own), adapters: adapters(), listener, master };
    (network, listeners, port_claim)
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Problem {
    Problem::new(Status::OsLimit, format!("cannot listen on {address}: {}", show_io_error(error)))
}

/// Claims the port as rank 0 would. The caller binds it at once, so no other process gets it.
fn master_port(request: PortRequest) -> Result<(u16, PortClaim), Problem> {
    let mut claim = ports::claim_port(None, request)?;
    claim.release_socket();
    Ok((claim.port(), claim))
}

fn nics(own: Option<IpAddr>) -> Vec<Interface> {
    let addresses = interfaces::addresses().unwrap_or_default();
    let has_listener =
        |name: &str| addresses.iter().any(|(nic, address)| nic == name && Some(*address) == own);
    let nics = inventory::nics(Path::new("/sys/class/net")).into_iter();
    let interface = |nic: inventory::Nic| Interface {
        has_listener: has_listener(&nic.name),
        name: nic.name,
        speed_mbit: nic.speed_mbit,
        mtu: nic.mtu,
    };
    nics.map(interface).collect()
}

fn adapters() -> Vec<Adapter> {
    let ports = inventory::ib_ports(Path::new("/sys/class/infiniband")).into_iter();
    ports.map(|port| Adapter { name: port.name, state: port.state, rate: port.rate }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_of_torch_is_a_line_of_its_own() {
        let found = parse_torch("torch\t2.4.1+cu121\t/venv/lib/torch").expect("torch");
        assert_eq!(found.version.as_deref(), Some("2.4.1+cu121"));
        assert_eq!((&*found.name, &*found.path), (TORCH, "/venv/lib/torch"));
        assert_eq!(parse_torch("/venv/lib/python3.12/site-packages"), None);
    }
}
