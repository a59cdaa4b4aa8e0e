//! NVIDIA's compilers accept the kernels of training for all architectures, without warnings and spilled registers.

use std::sync::Arc;

use remuda::cuda::kernels::{Kernel, KernelProgram};
use remuda::runtime::nvrtc::{Architecture, Compiler};

use super::{of_cuda_12, of_cuda_13};
use crate::support::proof::{has, proof_cases};

/// Compiles a program and checks the compiler's report on each of its kernels.
#[track_caller]
fn check(compiler: &Compiler, program: KernelProgram, architecture: Architecture) {
    let options = program.options();
    let options: Vec<&str> =
        ["--ptxas-options=-v"].into_iter().chain(options.iter().map(String::as_str)).collect();
    let name = program.name();
    let compiled = compiler.compile(&name, &program.source(), architecture, &options);
    let compiled = compiled.unwrap_or_else(|error| panic!("{name} for {architecture}: {error}"));
    let log = &compiled.log;
    assert!(!log.contains("warning"), "{name} for {architecture}: {log}");
    for kernel in program.file().kernels().map(Kernel::name) {
        assert!(log.contains(&format!("'{kernel}'")), "{name} has no {kernel}: {log}");
    }
    let reports = log.lines().filter(|line| line.contains("bytes stack frame"));
    let clean = " 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
    let spilled: Vec<_> = reports.filter(|line| !line.ends_with(clean)).collect();
    assert!(spilled.is_empty(), "{name} for {architecture}: {log}");
}

/// Compilers with the architectures for which they compile.
fn targets() -> Vec<(Arc<Compiler>, Architecture)> {
    let (old, new) = (of_cuda_12(), of_cuda_13());
    let of = |compiler: &Arc<Compiler>, major| (compiler.clone(), Architecture { major, minor: 0 });
    vec![of(&new, 8), of(&new, 9), of(&new, 10), of(&old, 8), of(&old, 9)]
}

#[test]
fn prove_kernels_compile_without_spills() {
    if !has("nccl", "prove_kernels_compile_without_spills") {
        return;
    }
    let (targets, programs) = (targets(), KernelProgram::all());
    // In a normal run each program for one target, in turn; else every pair.
    let pairs = (0..targets.len()).flat_map(|turn| {
        programs.iter().enumerate().map(move |(index, program)| (*program, index + turn))
    });
    for (program, index) in pairs.take(proof_cases(programs.len())) {
        let (compiler, architecture) = &targets[index % targets.len()];
        check(compiler, program, *architecture);
    }
}
