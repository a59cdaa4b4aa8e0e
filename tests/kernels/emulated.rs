//! Launches on the emulated device, under all schedules.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use remuda::cuda::device::KernelArgument;
use remuda::cuda::kernels::{ELEMENT_SOURCE, Kernel, KernelProgram, KernelTraffic};
use remuda::runtime::device::FoldKernel;
use remuda::runtime::kernel_checks::{
    CaseArgument, CaseMemory, CheckError, KernelCase, KernelRunner,
};
use remuda::runtime::{Dtype, ReduceOp};
use rustix::fs::FlockOperation;

use super::ffi_emulated::{EmulatedDevice, EmulatedMemory, Mistake, Schedule};

/// Schedules of every launch.
pub(super) const SCHEDULES: [Schedule; 6] = [
    Schedule::Late(0),
    Schedule::Late(1),
    Schedule::Late(2),
    Schedule::Early(3),
    Schedule::Early(4),
    Schedule::Early(5),
];

/// Number that is added to the lines of `element.cuh`, so that a line is in one file.
pub(super) const ELEMENT_LINES: u32 = 10_000;

/// Kernels with mistakes that the emulated device must find.
pub(super) const FAULTY: &str = include_str!("emulation/faulty.cu");

/// Flags of the compiler under which every access to memory is counted (`emulation/traffic.hpp`).
const COUNTING: [&str; 2] = ["-fsanitize=thread", "-DEMULATION_COUNTS"];

/// The emulated device with all programs, which is built once.
pub(super) fn device() -> &'static EmulatedDevice {
    static DEVICE: OnceLock<EmulatedDevice> = OnceLock::new();
    DEVICE.get_or_init(|| EmulatedDevice::open(&build(&source(&KernelProgram::all()), &[])))
}

/// The emulated device with some programs, which counts the bytes that launches touch.
pub(super) fn counting_device(programs: &[KernelProgram]) -> EmulatedDevice {
    EmulatedDevice::open(&build(&source(programs), &COUNTING))
}

/// Files of the emulation, in the order in which they are included; the last one after the kernels.
const HEADERS: [&str; 6] =
    ["machine.hpp", "memory.hpp", "traffic.hpp", "launch.hpp", "instructions.hpp", "interface.hpp"];

/// Definitions of CUDA that sources which are made at run time use.
const CUDA_WORDS: &str = "#define __global__\n#define __device__\n#define __forceinline__ inline\n\
                          #define __align__(bytes) alignas(bytes)\n";

/// Numbers of ranks whose sums the device can fold.
const FOLDED_PARTS: std::ops::RangeInclusive<usize> = 2..=4;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/emulation")
}

/// C++ source of the shared object: every program in a namespace of its own, and the table of its kernels.
fn source(programs: &[KernelProgram]) -> String {
    let include = |name: &str| format!("#include \"{}\"\n", folder().join(name).display());
    let [before @ .., interface] = HEADERS;
    let mut source = before.map(include).concat() + CUDA_WORDS;
    let mut table = String::new();
    for program in programs {
        let file = program.file();
        let kernels: Vec<_> = file.kernels().map(Kernel::name).collect();
        let defines = program.defines();
        add_namespace(&mut source, &program.name(), &defines, (file.name(), file.text()));
        add_entries(&mut table, &program.name(), &kernels);
    }
    let float = [("ELEMENT", "float".to_owned())];
    add_namespace(&mut source, "faulty", &float, ("faulty.cu", FAULTY));
    for parts in FOLDED_PARTS {
        let fold = FoldKernel { dtype: Dtype::F32, op: ReduceOp::Sum, parts };
        let (name, text) = (fold.name(), fold.source());
        add_line(&mut source, &format!("namespace source_{name} {{\n{text}}}"));
        add_entries(&mut table, &format!("source_{name}"), &[&name]);
    }
    let names = FAULTY.lines().filter_map(|line| line.strip_prefix("KERNEL void "));
    let names: Vec<_> = names.map(|line| line.split('(').next().expect("a name")).collect();
    add_entries(&mut table, "faulty", &names);
    add_line(&mut source, &format!("static const emulation::Kernel kernels[] = {{\n{table}}};"));
    source + &include(interface)
}

fn add_namespace(
    source: &mut String,
    name: &str,
    defines: &[(&'static str, String)],
    (file, text): (&str, &str),
) {
    let first = ELEMENT_LINES + 1;
    for (name, value) in defines {
        add_line(source, &format!("#define {name} {value}"));
    }
    add_line(
        source,
        &format!("namespace {name} {{\n#line {first} \"element.cuh\"\n{ELEMENT_SOURCE}"),
    );
    add_line(source, &format!("#line 1 \"{file}\"\n{text}}}"));
    for (name, _) in defines {
        add_line(source, &format!("#undef {name}"));
    }
}

fn add_line(source: &mut String, line: &str) {
    *source += line;
    *source += "\n";
}

fn add_entries(table: &mut String, program: &str, kernels: &[&str]) {
    for kernel in kernels {
        let function = format!("{program}::{kernel}");
        let [entry, note] =
            ["enter_kernel", "note_pointers"].map(|name| format!("emulation::{name}<{function}>"));
        let arity = format!("emulation::arity_of({function})");
        add_line(table, &format!("    {{\"{program}.{kernel}\", {entry}, {note}, {arity}}},"));
    }
}

/// Compiles the shared object, unless it is there; returns its path. Tests may be processes of their own: the first
/// one compiles, and the others wait for it.
fn build(source: &str, more_flags: &[&str]) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated-device");
    fs::create_dir_all(&directory).expect("a new directory");
    let object = directory.join(format!("{:016x}.so", fingerprint(source, more_flags)));
    let lock = File::create(directory.join("lock")).expect("a file to lock");
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).expect("a lock");
    if !object.exists() {
        compile(source, more_flags, &directory, &object);
    }
    object
}

/// A number that another source, or another emulation, is unlikely to have.
fn fingerprint(source: &str, flags: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (source, flags).hash(&mut hasher);
    for header in HEADERS {
        fs::read(folder().join(header)).expect("a header").hash(&mut hasher);
    }
    hasher.finish()
}

/// Compiles to another name first, so that an object that is there is complete.
#[expect(clippy::disallowed_methods, reason = "the test starts a compiler")]
fn compile(source: &str, more_flags: &[&str], directory: &Path, object: &Path) {
    let file = |extension: &str| directory.join(format!("kernels.{extension}"));
    fs::write(file("cpp"), source).expect("written");
    // Kernels reinterpret words as numbers. No multiplication is fused with an addition, as on a device.
    let flags = ["-std=c++17", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-c"];
    let warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"];
    let mut compiler = Command::new("c++");
    compiler.args(flags).args(warnings).args(more_flags).arg(file("cpp")).arg("-o").arg(file("o"));
    // Linked alone, so that the compiler adds no library for its flags.
    let mut linker = Command::new("c++");
    linker.args(["-shared", "-Wl,-z,defs", "-o"]).arg(file("new")).arg(file("o"));
    for mut step in [compiler, linker] {
        let built = step.output().expect("there is a compiler");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }
    fs::rename(file("new"), object).expect("the directory is writable");
}

/// Name of a kernel of a program on the emulated device.
pub(super) fn name_of(program: KernelProgram, kernel: Kernel) -> String {
    format!("{}.{}", program.name(), kernel.name())
}

/// Name of a kernel whose source was made at run time, of those that were built.
pub(super) fn name_of_source(kernel: &str) -> String {
    format!("source_{kernel}.{kernel}")
}

/// Runs a case; returns the memory.
pub(super) fn run(
    case: &KernelCase,
    schedule: Schedule,
    mistake: Option<Mistake>,
) -> Result<CaseMemory, String> {
    run_as(&case.name(), case, schedule, mistake)
}

/// Runs the kernel of this name with the launch, the memory and the arguments of a case.
pub(super) fn run_as(
    kernel: &str,
    case: &KernelCase,
    schedule: Schedule,
    mistake: Option<Mistake>,
) -> Result<CaseMemory, String> {
    on_device(device(), case, |arguments| {
        device().launch(kernel, case.launch, arguments, schedule, mistake)
    })
    .map(|((), memory)| memory)
}

/// Counts the bytes that a case reads and writes.
pub(super) fn count(device: &EmulatedDevice, case: &KernelCase) -> Result<KernelTraffic, String> {
    on_device(device, case, |arguments| device.count(&case.name(), case.launch, arguments))
        .map(|(counted, _)| counted)
}

/// Puts the memory of a case on a device; returns what `launch` returned, and the memory after it.
fn on_device<T>(
    device: &EmulatedDevice,
    case: &KernelCase,
    launch: impl FnOnce(&[KernelArgument]) -> Result<T, String>,
) -> Result<(T, CaseMemory), String> {
    let memory: Vec<_> = case.buffers.iter().map(|buffer| device.memory(buffer)).collect();
    let argument = |argument: &CaseArgument| match *argument {
        CaseArgument::Buffer(index) => KernelArgument::Address(memory[index].address()),
        CaseArgument::Scalar(scalar) => scalar,
    };
    let arguments: Vec<_> = case.arguments.iter().map(argument).collect();
    let launched = launch(&arguments)?;
    Ok((launched, CaseMemory(memory.iter().map(EmulatedMemory::read).collect())))
}

/// Runs kernels under all schedules, which must give the same bits.
pub(super) struct EmulatedRunner;

impl KernelRunner for EmulatedRunner {
    fn run(&mut self, case: &KernelCase) -> Result<CaseMemory, CheckError> {
        let run = |schedule| {
            let failed = |problem| CheckError::Device {
                kernel: case.name(),
                problem: format!("{schedule:?}: {problem}"),
            };
            run(case, schedule, None).map_err(failed)
        };
        let first = run(SCHEDULES[0])?;
        for schedule in &SCHEDULES[1..] {
            if run(*schedule)? != first {
                return Err(CheckError::OtherBits { kernel: case.name() });
            }
        }
        Ok(first)
    }
}
