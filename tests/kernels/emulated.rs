//! Launches on the emulated device, under all schedules.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use remuda::cuda::device::{DeviceAddress, KernelArgument};
use remuda::cuda::kernels::{
    ELEMENT_SOURCE, ElementType, HalfType, Kernel, KernelLaunch, KernelProgram,
};
use remuda::runtime::{Bf16, F16, HalfFloat as _};
use rustix::fs::FlockOperation;

use super::ffi_emulated::{EmulatedDevice, Mistake, Schedule};
use crate::support::proof::Random;

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

/// The emulated device with all programs, which is built once.
pub(super) fn device() -> &'static EmulatedDevice {
    static DEVICE: OnceLock<EmulatedDevice> = OnceLock::new();
    DEVICE.get_or_init(|| EmulatedDevice::open(&build(&source())))
}

/// Files of the emulation, in the order in which they are included; the last one after the kernels.
const HEADERS: [&str; 5] =
    ["machine.hpp", "memory.hpp", "launch.hpp", "instructions.hpp", "interface.hpp"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/emulation")
}

/// C++ source of the shared object: every program in a namespace of its own, and the table of its kernels.
fn source() -> String {
    let include = |name: &str| format!("#include \"{}\"\n", folder().join(name).display());
    let [before @ .., interface] = HEADERS;
    let mut source = before.map(include).concat();
    let mut table = String::new();
    for program in KernelProgram::all() {
        let file = program.file();
        let kernels: Vec<_> = file.kernels().map(Kernel::name).collect();
        let defines = program.defines();
        add_namespace(&mut source, &program.name(), &defines, (file.name(), file.text()));
        add_entries(&mut table, &program.name(), &kernels);
    }
    let float = [("ELEMENT", "float".to_owned())];
    add_namespace(&mut source, "faulty", &float, ("faulty.cu", FAULTY));
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
fn build(source: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated-device");
    fs::create_dir_all(&directory).expect("a new directory");
    let object = directory.join(format!("{:016x}.so", fingerprint(source)));
    let lock = File::create(directory.join("lock")).expect("a file to lock");
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).expect("a lock");
    if !object.exists() {
        compile(source, &directory, &object);
    }
    object
}

/// A number that another source, or another emulation, is unlikely to have.
fn fingerprint(source: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    for header in HEADERS {
        fs::read(folder().join(header)).expect("a header").hash(&mut hasher);
    }
    hasher.finish()
}

/// Compiles to another name first, so that an object that is there is complete.
#[expect(clippy::disallowed_methods, reason = "the test starts a compiler")]
fn compile(source: &str, directory: &Path, object: &Path) {
    let (file, new) = (directory.join("kernels.cpp"), directory.join("kernels.new"));
    fs::write(&file, source).expect("written");
    // Kernels reinterpret words as numbers. No multiplication is fused with an addition, as on a device.
    let flags =
        ["-std=c++17", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-shared"];
    let warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-o"];
    let mut compiler = Command::new("c++");
    let built = compiler.args(flags).args(warnings).arg(&new).arg(&file).output();
    let built = built.expect("there is a compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    fs::rename(new, object).expect("the directory is writable");
}

/// Name of a kernel of a program on the emulated device.
pub(super) fn name_of(program: KernelProgram, kernel: Kernel) -> String {
    format!("{}.{}", program.name(), kernel.name())
}

/// A launch with its memory, which begins as it is here.
#[derive(Clone, Debug)]
pub(super) struct Case {
    kernel: String,
    launch: KernelLaunch,
    buffers: Vec<Vec<u8>>,
    operands: Vec<Operand>,
}

#[derive(Clone, Copy, Debug)]
enum Operand {
    Buffer(usize),
    Scalar(KernelArgument),
}

impl Case {
    pub(super) fn new(program: KernelProgram, kernel: Kernel, launch: KernelLaunch) -> Self {
        assert_eq!(program.file(), kernel.file(), "the program has the kernel");
        Self::named(name_of(program, kernel), launch)
    }

    pub(super) fn named(kernel: String, launch: KernelLaunch) -> Self {
        Self { kernel, launch, buffers: Vec::new(), operands: Vec::new() }
    }

    /// Adds an argument: memory with this content.
    pub(super) fn memory<T: bytemuck::NoUninit>(mut self, content: &[T]) -> Self {
        self.operands.push(Operand::Buffer(self.buffers.len()));
        self.buffers.push(bytemuck::cast_slice(content).to_vec());
        self
    }

    /// Adds an argument: memory of elements.
    pub(super) fn elements(self, element: ElementType, values: &[f64]) -> Self {
        self.memory(&encode(element, values))
    }

    /// Adds an argument: memory of this many bytes, each 0xff, which is NaN.
    pub(super) fn unwritten(self, bytes: usize) -> Self {
        self.memory(&vec![0xffu8; bytes])
    }

    /// Adds an argument: the memory of an earlier argument, counted among those with memory.
    pub(super) fn same_memory(mut self, buffer: usize) -> Self {
        self.operands.push(Operand::Buffer(buffer));
        self
    }

    /// Adds an argument: no memory.
    pub(super) fn null(self) -> Self {
        self.scalar(KernelArgument::Address(DeviceAddress::NULL))
    }

    pub(super) fn scalar(mut self, argument: KernelArgument) -> Self {
        self.operands.push(Operand::Scalar(argument));
        self
    }

    /// Adds arguments of type `int`.
    pub(super) fn ints<const N: usize>(self, values: [usize; N]) -> Self {
        values.into_iter().fold(self, |case, value| case.scalar(KernelArgument::I32(value as i32)))
    }

    pub(super) fn count(self, count: usize) -> Self {
        self.scalar(KernelArgument::U64(count as u64))
    }

    /// Runs the kernel; returns the memory.
    pub(super) fn run(
        &self,
        schedule: Schedule,
        mistake: Option<Mistake>,
    ) -> Result<Vec<Vec<u8>>, String> {
        let device = device();
        let memory: Vec<_> = self.buffers.iter().map(|buffer| device.memory(buffer)).collect();
        let argument = |operand: &Operand| match *operand {
            Operand::Buffer(index) => KernelArgument::Address(memory[index].address()),
            Operand::Scalar(argument) => argument,
        };
        let arguments: Vec<_> = self.operands.iter().map(argument).collect();
        device.launch(&self.kernel, self.launch, &arguments, schedule, mistake)?;
        Ok(memory.iter().map(super::ffi_emulated::EmulatedMemory::read).collect())
    }

    /// Runs the kernel under all schedules, which must give the same bits; returns the memory.
    #[track_caller]
    pub(super) fn run_under_all_schedules(&self) -> Results {
        let run = |schedule| match self.run(schedule, None) {
            Ok(buffers) => buffers,
            Err(error) => panic!("{schedule:?}: {error}"),
        };
        let first = run(SCHEDULES[0]);
        for schedule in &SCHEDULES[1..] {
            assert!(run(*schedule) == first, "{}: other bits under {schedule:?}", self.kernel);
        }
        Results(first)
    }
}

/// Memory after a launch.
pub(super) struct Results(Vec<Vec<u8>>);

impl Results {
    pub(super) fn get<T: bytemuck::AnyBitPattern>(&self, buffer: usize) -> Vec<T> {
        self.0[buffer].chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }

    pub(super) fn elements(&self, buffer: usize, element: ElementType) -> Vec<f64> {
        decode(element, &self.0[buffer])
    }

    /// Numbers of type `float`.
    pub(super) fn floats(&self, buffer: usize) -> Vec<f64> {
        decode(ElementType::F32, &self.0[buffer])
    }
}

/// Rounds numbers to elements.
pub(super) fn encode(element: ElementType, values: &[f64]) -> Vec<u8> {
    let narrow = |value: &f64| match element {
        ElementType::F32 => (*value as f32).to_ne_bytes().to_vec(),
        ElementType::Half(HalfType::Bf16) => {
            Bf16::round(*value as f32).to_bits().to_ne_bytes().to_vec()
        }
        ElementType::Half(HalfType::F16) => {
            F16::round(*value as f32).to_bits().to_ne_bytes().to_vec()
        }
    };
    values.iter().flat_map(narrow).collect()
}

pub(super) fn decode(element: ElementType, bytes: &[u8]) -> Vec<f64> {
    let half = |pair: &[u8]| u16::from_ne_bytes([pair[0], pair[1]]);
    match element {
        ElementType::F32 => bytes
            .chunks_exact(4)
            .map(|four| f64::from(bytemuck::pod_read_unaligned::<f32>(four)))
            .collect(),
        ElementType::Half(HalfType::Bf16) => bytes
            .chunks_exact(2)
            .map(|pair| f64::from(Bf16::from_bits(half(pair)).widen()))
            .collect(),
        ElementType::Half(HalfType::F16) => bytes
            .chunks_exact(2)
            .map(|pair| f64::from(F16::from_bits(half(pair)).widen()))
            .collect(),
    }
}

/// Bytes of an element.
pub(super) fn bytes_of(element: ElementType) -> usize {
    16 / element.pack() as usize
}

/// Numbers from `-size` to `size` that the element type has.
pub(super) fn draw(random: &mut Random, element: ElementType, len: usize, size: f64) -> Vec<f64> {
    let unit = |random: &mut Random| random.below(1 << 24) as f64 / f64::from(1 << 23) - 1.0;
    let values: Vec<f64> = (0..len).map(|_| size * unit(random)).collect();
    decode(element, &encode(element, &values))
}

/// ‖found - expect‖ / ‖expect‖.
pub(super) fn error_of(found: &[f64], expect: &[f64]) -> f64 {
    assert_eq!(found.len(), expect.len());
    let sum = |terms: &mut dyn Iterator<Item = f64>| terms.map(|x| x * x).sum::<f64>();
    let distance = sum(&mut found.iter().zip(expect).map(|(found, expect)| found - expect));
    (distance / sum(&mut expect.iter().copied()).max(1e-300)).sqrt()
}

/// Largest error of results of a type.
pub(super) fn tolerance(element: ElementType) -> f64 {
    match element {
        ElementType::F32 => 1e-5,
        ElementType::Half(HalfType::Bf16) => 4e-3,
        ElementType::Half(HalfType::F16) => 5e-4,
    }
}

#[track_caller]
pub(super) fn assert_close(what: &str, element: ElementType, found: &[f64], expect: &[f64]) {
    let error = error_of(found, expect);
    assert!(error < tolerance(element), "{what}, {element:?}: error {error:.1e}");
}
