//! Machine code of the kernels, read with NVIDIA's disassembler: attention uses tensor cores, and its loops have few
//! other instructions; rows are read by 16 bytes at once; nothing is kept in local memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use remuda::cuda::kernels::{Activation, ElementType, HalfType, HeadWidth, Kernel, KernelProgram};
use remuda::runtime::nvrtc::Architecture;

use super::{of_cuda_13, package};
use crate::support::proof::has;

const BF16: ElementType = ElementType::Half(HalfType::Bf16);
const SM_80: Architecture = Architecture { major: 8, minor: 0 };
const SM_90: Architecture = Architecture { major: 9, minor: 0 };
const SM_100: Architecture = Architecture { major: 10, minor: 0 };

/// An instruction or a label of a kernel.
#[derive(Debug)]
enum Line {
    Label(String),
    Instruction { name: String, operands: String },
}

/// The lines of each kernel of a program.
#[expect(clippy::disallowed_methods, reason = "the test starts a disassembler")]
fn disassemble(program: KernelProgram, architecture: Architecture) -> BTreeMap<String, Vec<Line>> {
    let options = program.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let compiled = of_cuda_13().compile(&program.name(), &program.source(), architecture, &options);
    let cubin = compiled.expect("the kernels compile").cubin;
    let name = format!("{}.{architecture}.cubin", program.name());
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, cubin).expect("written");
    let disassembler = package("nvdisasm/lib/python3/site-packages/nvidia/cu13/bin/nvdisasm");
    let output = Command::new(disassembler).arg("-c").arg(&file).output();
    let output = output.expect("scripts/libraries has been run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(file).expect("the test has created it");
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Reads a listing: sections `.text.KERNEL:`, labels `.L_x_1:`, instructions `/*0010*/ @P0 HMMA.16816.F32 R4, … ;`.
fn parse(listing: &str) -> BTreeMap<String, Vec<Line>> {
    let mut kernels = BTreeMap::new();
    let mut kernel = None;
    for line in listing.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix(".text.").and_then(|rest| rest.strip_suffix(':')) {
            kernel = Some(kernels.entry(name.to_owned()).or_insert_with(Vec::new));
        } else if let Some(lines) = &mut kernel {
            lines.extend(parse_line(line));
        }
    }
    kernels
}

fn parse_line(line: &str) -> Option<Line> {
    if let Some(label) = line.strip_suffix(':').filter(|label| label.starts_with(".L_")) {
        return Some(Line::Label(label.to_owned()));
    }
    let (address, code) = line.strip_prefix("/*")?.split_once("*/")?;
    u32::from_str_radix(address, 16).ok()?;
    let code = code.split(';').next()?.trim();
    // A predicate is not the name of the instruction.
    let code = if code.starts_with('@') { code.split_once(' ')?.1.trim() } else { code };
    let (name, operands) = code.split_once(' ').unwrap_or((code, ""));
    Some(Line::Instruction { name: name.to_owned(), operands: operands.to_owned() })
}

fn count(lines: &[Line], prefix: &str) -> usize {
    let is_it =
        |line: &&Line| matches!(line, Line::Instruction { name, .. } if name.starts_with(prefix));
    lines.iter().filter(is_it).count()
}

/// The loop with the most tensor instructions, and of those with equally many the shortest one.
fn main_loop(lines: &[Line]) -> &[Line] {
    let label_at = |target: &str| {
        lines.iter().position(|line| matches!(line, Line::Label(label) if label == target))
    };
    let loop_of = |(end, line): (usize, &Line)| match line {
        Line::Instruction { name, operands } if name.starts_with("BRA") => {
            let target = operands.split(['(', ')', '`']).find(|part| part.starts_with(".L_"))?;
            label_at(target).filter(|start| *start < end).map(|start| &lines[start..end])
        }
        Line::Instruction { .. } | Line::Label(_) => None,
    };
    let loops = lines.iter().enumerate().filter_map(loop_of);
    loops.max_by_key(|body| (count(body, "HMMA"), usize::MAX - body.len())).unwrap_or_default()
}

/// Checks the instructions per tensor instruction in the main loop, those of rare branches included.
#[track_caller]
fn check_loop(kernels: &BTreeMap<String, Vec<Line>>, kernel: Kernel, slots_max: f64) {
    let body = main_loop(&kernels[kernel.name()]);
    let (all, tensor) = (count(body, ""), count(body, "HMMA"));
    assert!(64 <= tensor, "{}: {tensor} tensor instructions", kernel.name());
    let slots = all as f64 / tensor as f64;
    assert!(slots < slots_max, "{}: {all} instructions for {tensor}, {slots:.2}", kernel.name());
}

#[test]
fn loops_of_attention_are_mostly_tensor_instructions() {
    if !has("nccl", "loops_of_attention_are_mostly_tensor_instructions") {
        return;
    }
    let limits = [(HeadWidth::W64, [5.5, 4.0, 4.2]), (HeadWidth::W128, [4.5, 3.6, 3.2])];
    for architecture in [SM_80, SM_90, SM_100] {
        for (width, [forward, kv, q]) in limits {
            let program = KernelProgram::Attention(width, HalfType::Bf16);
            let kernels = disassemble(program, architecture);
            check_loop(&kernels, Kernel::AttentionForward, forward);
            check_loop(&kernels, Kernel::AttentionBackwardKv, kv);
            check_loop(&kernels, Kernel::AttentionBackwardQ, q);
            for (name, lines) in &kernels {
                let local = count(lines, "LDL") + count(lines, "STL");
                assert_eq!(local, 0, "{name} for {architecture} uses local memory");
            }
        }
    }
}

#[test]
fn rows_are_read_and_written_by_16_bytes() {
    if !has("nccl", "rows_are_read_and_written_by_16_bytes") {
        return;
    }
    for program in [
        KernelProgram::Norm(BF16),
        KernelProgram::Activation(Activation::GeluTanh, BF16),
        KernelProgram::Classifier(BF16),
        KernelProgram::Softmax(BF16),
    ] {
        for (name, lines) in disassemble(program, SM_90) {
            let [loads, stores] = ["LDG.E.128", "STG.E.128"].map(|prefix| count(&lines, prefix));
            assert!(
                0 < loads && 0 < stores,
                "{name}: {loads} loads and {stores} stores of 16 bytes"
            );
        }
    }
}
