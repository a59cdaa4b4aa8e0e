//! CUDA kernels: NVIDIA's compilers accept them, and they give the same bits as a group on CPUs.
//!
//! NVRTC of two CUDA releases (`scripts/libraries`) compiles them. The C++ compiler compiles the same source
//! for the CPU, where the threads of the device run one after the other. Where there is a GPU, the kernels run
//! on it too.
//!
//! The kernels of training (`src/cuda/kernels`) run on an emulated device (`emulation/`), whose threads can wait
//! for each other.

#![expect(clippy::disallowed_methods, reason = "tests start programs")]

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::proof::{Random, has, skip};
use remuda::runtime::device::{FoldKernel, GradientKernel, GradientOp, device_count};
use remuda::runtime::nvrtc::{Architecture, Compiler};
use remuda::runtime::{Bf16, Dtype, Element, F16, Group, ReduceOp};

mod algorithms;
mod allocations;
mod compilers;
mod device_checks;

mod emulated;
mod emulated_ranks;
mod emulated_streams;
mod exchange;
mod ffi_device;
mod ffi_emulated;
mod ffi_products;
mod forecast;
mod gpu;
mod machine_code;
mod memory;
mod mistakes;
mod models;

mod profile;
mod saved;
mod stages;
mod streams;
mod suite;
mod traffic;
mod trainer;
mod training;
mod uploads;
mod waits;

use ffi_device::DeviceProgram;

const OPS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];
const DTYPES: [Dtype; 7] =
    [Dtype::F32, Dtype::F64, Dtype::I32, Dtype::I64, Dtype::U8, Dtype::F16, Dtype::Bf16];

/// A file that `scripts/libraries` has installed.
fn package(file: &str) -> PathBuf {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    target.parent().expect("a directory of target").join("nvidia").join(file)
}

fn compiler(name: &str) -> std::sync::Arc<Compiler> {
    Compiler::open_file(&package(name)).expect("scripts/libraries has been run")
}

fn of_cuda_12() -> std::sync::Arc<Compiler> {
    compiler("nvrtc12/lib/python3/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
}

fn of_cuda_13() -> std::sync::Arc<Compiler> {
    compiler("nvrtc13/lib/python3/site-packages/nvidia/cu13/lib/libnvrtc.so.13")
}

/// Compiles a kernel; it must not spill registers.
#[track_caller]
fn check(compiler: &Compiler, kernel: FoldKernel, architecture: (u32, u32)) {
    check_source(compiler, &kernel.name(), &kernel.source(), architecture);
}

#[track_caller]
fn check_source(compiler: &Compiler, name: &str, source: &str, (major, minor): (u32, u32)) {
    let architecture = Architecture { major, minor };
    let verbose = ["--ptxas-options=-v"];
    let compiled = compiler
        .compile(name, source, architecture, &verbose)
        .unwrap_or_else(|error| panic!("{name} for {architecture}: {error}"));
    assert!(compiled.cubin.starts_with(b"\x7fELF"), "code for a device is an ELF file");
    let log = &compiled.log;
    assert!(log.contains(name) && log.contains("0 bytes spill stores"), "{log}");
    assert!(!log.contains("warning"), "{log}");
}

#[test]
fn kernels_compile_without_a_gpu() {
    if !has("nccl", "kernels_compile_without_a_gpu") {
        return;
    }
    let (old, new) = (of_cuda_12(), of_cuda_13());
    assert_eq!((old.version(), new.version()), ("12.4".to_owned(), "13.0".to_owned()));
    for dtype in DTYPES {
        for op in OPS {
            check(&new, FoldKernel { dtype, op, parts: 5 }, (9, 0));
        }
        check(&old, FoldKernel { dtype, op: ReduceOp::Avg, parts: 8 }, (8, 0));
        check(&old, FoldKernel { dtype, op: ReduceOp::Sum, parts: 2 }, (7, 0));
        check(&new, FoldKernel { dtype, op: ReduceOp::Avg, parts: 16 }, (10, 0));
    }
    check(&new, FoldKernel { dtype: Dtype::Bf16, op: ReduceOp::Sum, parts: 72 }, (9, 0));
    for kernel in gradient_kernels() {
        check_source(&old, &kernel.name(), &kernel.source(), (7, 0));
        check_source(&new, &kernel.name(), &kernel.source(), (10, 0));
    }
}

/// All kernels on gradients.
fn gradient_kernels() -> Vec<GradientKernel> {
    let ops = [GradientOp::Add, GradientOp::Divide];
    DTYPES.iter().flat_map(|&dtype| ops.map(|op| GradientKernel { dtype, op })).collect()
}

#[test]
fn nvrtc_error_contains_the_compiler_log() {
    if !has("nccl", "nvrtc_error_contains_the_compiler_log") {
        return;
    }
    let compiler = of_cuda_13();
    let sm_90 = Architecture { major: 9, minor: 0 };
    let error = |source: &str, architecture| {
        compiler.compile("mine.cu", source, architecture, &[]).unwrap_err().to_string()
    };
    assert_eq!(
        error("__global__ void add(float *a) { a[0] = b; }", sm_90),
        "NVRTC 13.0 cannot compile `mine.cu`: mine.cu(1): error: identifier \"b\" is undefined\n  \
         __global__ void add(float *a) { a[0] = b; }\n                                         \
         ^\n\n1 error detected in the compilation of \"mine.cu\"."
    );
    let old = error("", Architecture { major: 3, minor: 5 });
    let start =
        "NVRTC 13.0 cannot compile `mine.cu`: nvrtc: error: invalid value for --gpu-architecture";
    assert!(old.starts_with(start), "{old}");
    assert_eq!(error("\0", sm_90), "NVRTC 13.0 cannot compile `mine.cu`: it contains a zero byte");
}

/// Definitions of CUDA that the kernels use, for a grid of two blocks of three threads.
const DEVICE: &str = r"
#include <cstdio>
#include <cstring>
#include <vector>
#define __global__
#define __device__
#define __forceinline__ inline
#define __align__(bytes) alignas(bytes)
struct Dim { unsigned x; };
static Dim gridDim{2}, blockDim{3}, blockIdx{0}, threadIdx{0};
static inline float __uint_as_float(unsigned bits) { float v; memcpy(&v, &bits, 4); return v; }
static inline unsigned __float_as_uint(float value) { unsigned b; memcpy(&b, &value, 4); return b; }
";

/// Program that reads cases (kernel, stride, packs, data) and writes the data after the kernel. A stride of which all
/// bits are set is replaced by the address of the second half of the data.
const MAIN: &str = r"
int main() {
    unsigned long long head[4];
    while (fread(head, sizeof head, 1, stdin) == 1) {
        std::vector<unsigned long long> words(head[3] + 1);
        /* Align to 16 bytes, as on a device. */
        unsigned long long *parts = words.data() + ((size_t)words.data() / 8 & 1);
        if (fread(parts, 8, head[3], stdin) != head[3]) return 1;
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
                kernels[head[0]](parts, head[1] == ~0ull ? (unsigned long long)(parts + head[3] / 2) : head[1], head[2]);
        fwrite(parts, 8, head[3], stdout);
    }
}
";

/// Source of a kernel whose types and functions have names of their own.
fn in_namespace(name: &str, source: &str) -> String {
    format!("namespace of_{name} {{\n{source}}}\n")
}

/// Compiles a program that contains kernels, given by name and source.
fn build(kernels: impl IntoIterator<Item = (String, String)>, directory: &Path) -> PathBuf {
    let mut source = DEVICE.to_owned();
    let mut table = String::new();
    for (name, kernel) in kernels {
        source += &in_namespace(&name, &kernel);
        writeln!(table, "    (Kernel)of_{name}::{name},").expect("a string can be written to");
    }
    write!(
        source,
        "typedef void (*Kernel)(void *, unsigned long long, unsigned long long);\n\
         static const Kernel kernels[] = {{\n{table}}};\n{MAIN}"
    )
    .expect("writing to a string succeeds");
    std::fs::create_dir_all(directory).expect("a new directory");
    let (file, program) = (directory.join("kernels.cpp"), directory.join("kernels"));
    std::fs::write(&file, source).expect("written");
    let flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-Wno-unknown-pragmas", "-o"];
    let built = Command::new("c++").args(flags).arg(&program).arg(&file).output();
    let built = built.expect("there is a compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

/// One case: a kernel, and the data of all ranks.
struct Case {
    kernel: usize,
    /// Second argument of the kernel; all bits are set if it is the address of the second half of the data.
    stride: usize,
    packs: usize,
    bytes: Vec<u8>,
    /// Result of a group on CPUs.
    expect: Vec<u8>,
    /// Bytes of an element.
    size: usize,
    is_nan: fn(&[u8]) -> bool,
}

/// Calls a function with the element type of a [`Dtype`].
macro_rules! of_dtype {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            Dtype::F32 => $function::<f32>($($argument),*),
            Dtype::F64 => $function::<f64>($($argument),*),
            Dtype::I32 => $function::<i32>($($argument),*),
            Dtype::I64 => $function::<i64>($($argument),*),
            Dtype::U8 => $function::<u8>($($argument),*),
            Dtype::F16 => $function::<F16>($($argument),*),
            Dtype::Bf16 => $function::<Bf16>($($argument),*),
        }
    };
}

impl Case {
    /// Second argument of the kernel, where the second half of the data is at an address.
    fn second_word(&self, second_half: u64) -> u64 {
        if self.stride == usize::MAX { second_half } else { self.stride as u64 }
    }
}

/// Most packs of a case: a few for threads that run one after the other, and more than a launch has threads.
const PACKS_ON_CPU: usize = 5;
const PACKS_ON_GPU: usize = 200;

/// All fold kernels that run in tests.
fn fold_kernels() -> Vec<FoldKernel> {
    let parts = [2, 3, 4, 7, 9];
    let of =
        |dtype| OPS.iter().flat_map(move |&op| parts.map(|parts| FoldKernel { dtype, op, parts }));
    DTYPES.into_iter().flat_map(of).collect()
}

/// A case for every kernel.
fn fold_cases(random: &mut Random, kernels: &[FoldKernel], packs_max: usize) -> Vec<Case> {
    let case = |(index, kernel): (usize, &FoldKernel)| {
        let case = of_dtype!(kernel.dtype, fold_case(random, *kernel, packs_max));
        Case { kernel: index, ..case }
    };
    kernels.iter().enumerate().map(case).collect()
}

fn fold_case<T: Element>(random: &mut Random, kernel: FoldKernel, packs_max: usize) -> Case {
    let (FoldKernel { op, parts, .. }, pack) = (kernel, kernel.pack());
    let len = random.below(packs_max * pack) + 1;
    let stride = (len + random.below(3)).next_multiple_of(64);
    let all: Vec<Vec<T>> = (0..parts).map(|_| numbers(random, len)).collect();
    let sums = Group::on_threads(parts, |group| {
        let mut data = all[group.rank()].clone();
        group.all_reduce(&mut data, op)?;
        Ok(data)
    });
    let mut bytes = vec![0u8; parts * stride * size_of::<T>()];
    for (part, numbers) in all.iter().enumerate() {
        let at = part * stride * size_of::<T>();
        let from = bytemuck::cast_slice::<T, u8>(numbers);
        bytes[at..at + from.len()].copy_from_slice(from);
    }
    Case {
        kernel: 0,
        stride,
        packs: len.div_ceil(pack),
        bytes,
        expect: bytemuck::cast_slice(&sums.expect("a group on threads")[0]).to_vec(),
        size: size_of::<T>(),
        is_nan: is_nan::<T>,
    }
}

/// Random bits: numbers of all sizes, subnormal numbers and NaN.
fn numbers<T: Element>(random: &mut Random, len: usize) -> Vec<T> {
    let mut bytes: Vec<u8> = (0..len * size_of::<T>()).map(|_| random.below(256) as u8).collect();
    if random.below(2) == 0 {
        // Numbers of similar size, so that sums are rounded.
        let top = bytes.chunks_mut(size_of::<T>()).map(|value| value.last_mut());
        top.flatten().for_each(|byte| *byte = *byte & 0x81 | 0x3c);
    }
    bytes.chunks(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

#[expect(clippy::eq_op, reason = "NaN does not equal itself")]
fn is_nan<T: Element>(bytes: &[u8]) -> bool {
    let value: T = bytemuck::pod_read_unaligned(bytes);
    value != value
}

#[test]
fn kernels_give_the_same_bits_as_a_group_on_cpus() {
    if !has("compiler", "kernels_give_the_same_bits_as_a_group_on_cpus") {
        return;
    }
    let kernels = fold_kernels();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    let sources = kernels.iter().map(|kernel| (kernel.name(), kernel.source()));
    let program = build(sources, &directory);
    let cases = fold_cases(&mut Random::from_seed(), &kernels, PACKS_ON_CPU);
    let names: Vec<_> = kernels.iter().map(FoldKernel::name).collect();
    assert_same_bits(&run(&program, &cases), &cases, &names);
    std::fs::remove_dir_all(directory).expect("the test has created it");
}

#[test]
fn fold_kernels_on_a_gpu_give_the_bits_of_a_cpu() {
    let Ok(1..) = device_count() else {
        return skip("gpu", "fold_kernels_on_a_gpu_give_the_bits_of_a_cpu");
    };
    let kernels = fold_kernels();
    let cases = fold_cases(&mut Random::from_seed(), &kernels, PACKS_ON_GPU);
    let sources = kernels.iter().map(|kernel| (kernel.name(), kernel.source()));
    assert_same_bits_on_gpu(&sources.collect::<Vec<_>>(), &cases);
}

/// Compares the results of all cases on the first GPU with those of a CPU.
#[track_caller]
fn assert_same_bits_on_gpu(kernels: &[(String, String)], cases: &[Case]) {
    let program = DeviceProgram::build(kernels);
    let output: Vec<u8> = cases.iter().flat_map(|case| program.run(case)).collect();
    let names: Vec<_> = kernels.iter().map(|(name, _)| name.clone()).collect();
    assert_same_bits(&output, cases, &names);
}

/// Compares the results of all cases with those of a CPU.
#[track_caller]
fn assert_same_bits(output: &[u8], cases: &[Case], names: &[String]) {
    let mut rest = output;
    for case in cases {
        let (found, others) = rest.split_at(case.bytes.len());
        rest = others;
        for (found, expect) in found.chunks(case.size).zip(case.expect.chunks(case.size)) {
            let both_nan = (case.is_nan)(found) && (case.is_nan)(expect);
            assert!(found == expect || both_nan, "{}: {found:?}, {expect:?}", names[case.kernel]);
        }
    }
}

/// Ten cases for every kernel.
fn gradient_cases(random: &mut Random, kernels: &[GradientKernel], packs_max: usize) -> Vec<Case> {
    let len_max = 8 * packs_max;
    let case = |(index, GradientKernel { dtype, op }): (usize, &GradientKernel)| {
        let case = of_dtype!(*dtype, gradient_case(random, *op, len_max));
        Case { kernel: index, ..case }
    };
    let all = std::iter::repeat_n(kernels, 10).flat_map(|kernels| kernels.iter().enumerate());
    all.map(case).collect()
}

/// The bytes of one case: `newer` or `values`, followed by `older`. The program passes the second word of the
/// head to the kernel, which is a divisor or, for [`GradientOp::Add`], replaced by the address of `older`.
fn gradient_case<T: Element>(random: &mut Random, op: GradientOp, len_max: usize) -> Case {
    let len = random.below(len_max) + 1;
    let mut values: Vec<T> = numbers(random, len);
    let older: Vec<T> = numbers(random, len);
    let words = (len * size_of::<T>()).div_ceil(8);
    let mut bytes = vec![0; 2 * 8 * words];
    for (at, numbers) in [(0, &values), (8 * words, &older)] {
        let numbers = bytemuck::cast_slice::<T, u8>(numbers);
        bytes[at..at + numbers.len()].copy_from_slice(numbers);
    }
    let divisor = [1, 2, 3, 7, 24][random.below(5)];
    match op {
        GradientOp::Add => {
            let mut sums = vec![bytemuck::Zeroable::zeroed(); len];
            T::combine(ReduceOp::Sum, &mut sums, &older, &values);
            values.copy_from_slice(T::narrow(&sums, &mut Vec::new()));
        }
        GradientOp::Divide => T::divide(&mut values, divisor),
    }
    Case {
        kernel: 0,
        stride: if op == GradientOp::Add { usize::MAX } else { divisor as usize },
        packs: len,
        bytes,
        expect: bytemuck::cast_slice(&values).to_vec(),
        size: size_of::<T>(),
        is_nan: is_nan::<T>,
    }
}

#[test]
fn gradient_kernels_give_the_bits_of_a_cpu() {
    if !has("compiler", "gradient_kernels_give_the_bits_of_a_cpu") {
        return;
    }
    let kernels = gradient_kernels();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gradient-kernels");
    let sources = kernels.iter().map(|kernel| (kernel.name(), kernel.source()));
    let program = build(sources, &directory);
    let cases = gradient_cases(&mut Random::from_seed(), &kernels, PACKS_ON_CPU);
    let names: Vec<_> = kernels.iter().map(GradientKernel::name).collect();
    assert_same_bits(&run(&program, &cases), &cases, &names);
    std::fs::remove_dir_all(directory).expect("the test has created it");
}

#[test]
fn gradient_kernels_on_a_gpu_give_the_bits_of_a_cpu() {
    let Ok(1..) = device_count() else {
        return skip("gpu", "gradient_kernels_on_a_gpu_give_the_bits_of_a_cpu");
    };
    let kernels = gradient_kernels();
    let cases = gradient_cases(&mut Random::from_seed(), &kernels, PACKS_ON_GPU);
    let sources = kernels.iter().map(|kernel| (kernel.name(), kernel.source()));
    assert_same_bits_on_gpu(&sources.collect::<Vec<_>>(), &cases);
}

/// Runs the program on all cases; returns the concatenated results.
fn run(program: &Path, cases: &[Case]) -> Vec<u8> {
    let pipes = (Stdio::piped(), Stdio::piped());
    let child = Command::new(program).stdin(pipes.0).stdout(pipes.1).spawn();
    let mut child = child.expect("it was built");
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            for Case { kernel, stride, packs, bytes, .. } in cases {
                let head = [*kernel, *stride, *packs, bytes.len() / 8].map(|word| word as u64);
                stdin.write_all(bytemuck::cast_slice(&head)).expect("the program reads");
                stdin.write_all(bytes).expect("the program reads");
            }
        });
        let mut output = Vec::new();
        stdout.read_to_end(&mut output).expect("the program writes");
        output
    });
    assert!(child.wait().expect("it ends").success());
    output
}
