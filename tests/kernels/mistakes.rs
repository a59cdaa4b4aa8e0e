//! Proof: a mistake in a kernel, at any of its barriers, copies and collectives, is found on the emulated device.

use remuda::cuda::kernels::{
    AttentionShape, ELEMENT_SOURCE, ElementType, HalfType, HeadWidth, Kernel, KernelFile,
    KernelLaunch, KernelProgram, RowParts,
};

use super::emulated::{ELEMENT_LINES, EmulatedRunner, SCHEDULES, run};
use super::ffi_emulated::{Mistake, MistakeKind};
use crate::support::proof::{has, proof_cases};
use remuda::cuda::device::KernelArgument::{F32, F64};
use remuda::runtime::RandomStream;
use remuda::runtime::kernel_checks::{
    AttentionCase, CaseMemory, KernelCase, SoftmaxCase, decode, draw, error_of,
};

const BF16: ElementType = ElementType::Half(HalfType::Bf16);
/// Mistakes of a normal test run.
const FEW: usize = 12;
/// A wrong result differs by more than this from the correct one, which other tests compare with f64.
const TOLERANCE: f64 = 4e-3;

/// A launch, and which of its memory is compared: the type of its numbers, if it is an output.
struct Probe {
    case: KernelCase,
    outputs: Vec<(usize, NumberType)>,
}

#[derive(Clone, Copy)]
enum NumberType {
    Element(ElementType),
    F64,
}

/// Statements in which a mistake is possible, and the mistake.
const STATEMENTS: [(&str, MistakeKind); 7] = [
    ("SYNC();", MistakeKind::NoBarrier),
    ("wait_copies<", MistakeKind::ShortWait),
    ("seal_copies();", MistakeKind::NoSeal),
    ("copy16(", MistakeKind::WrongCopy),
    ("load_matrices(", MistakeKind::WrongLoad),
    ("load_transposed(", MistakeKind::WrongLoad),
    ("shuffle_xor(", MistakeKind::NoShuffle),
];

/// All mistakes that are possible in a text.
fn mistakes(text: &str, lines_before: u32) -> Vec<Mistake> {
    let code = |line: &'_ str| line.split("//").next().unwrap_or_default().to_owned();
    let of_line = |(number, line): (usize, &str)| {
        let (code, line) = (code(line), lines_before + number as u32 + 1);
        let found = STATEMENTS.iter().filter(move |(statement, _)| code.contains(statement));
        found.map(move |(_, kind)| Mistake { kind: *kind, line }).collect::<Vec<_>>()
    };
    text.lines().enumerate().flat_map(of_line).collect()
}

/// Kernels whose statements all threads execute, with data on which every one of them has an effect.
fn probes(file: KernelFile) -> Vec<Probe> {
    let mut random = RandomStream::new(&[7]);
    match file {
        KernelFile::Norm => vec![norm_forward(&mut random), norm_backward(&mut random)],
        KernelFile::Fold => vec![bias_backward(&mut random), fold(&mut random)],
        KernelFile::Classifier => vec![classifier(&mut random)],
        KernelFile::Optimizer => vec![block_squares(&mut random), decide_step(&mut random)],
        KernelFile::Softmax => softmax(&mut random),
        KernelFile::Attention => {
            let [narrow, wide] = HeadWidth::ALL.map(|width| attention(&mut random, width));
            narrow.into_iter().chain(wide).collect()
        }
        KernelFile::Activation | KernelFile::Convert | KernelFile::Embedding => Vec::new(),
    }
}

fn floats(random: &mut RandomStream, len: usize) -> Vec<f32> {
    draw(random, ElementType::F32, len, 1.0).iter().map(|x| *x as f32).collect()
}

const ELEMENTS: NumberType = NumberType::Element(BF16);
const FLOATS: NumberType = NumberType::Element(ElementType::F32);

fn norm_forward(random: &mut RandomStream) -> Probe {
    let (rows, width) = (9, 264);
    let launch = KernelLaunch::warp_for_each_row(rows as u32);
    let case = KernelCase::new(KernelProgram::Norm(BF16), Kernel::NormForward, launch)
        .elements(BF16, &draw(random, BF16, rows * width, 1.0))
        .elements(BF16, &draw(random, BF16, width, 1.0))
        .null()
        .unwritten(rows * width * 2)
        .unwritten(rows * 4)
        .unwritten(rows * 4)
        .ints([rows, width]);
    Probe { case, outputs: vec![(2, ELEMENTS), (3, FLOATS), (4, FLOATS)] }
}

fn norm_backward(random: &mut RandomStream) -> Probe {
    let (rows, width) = (13, 264);
    let parts = RowParts::of_norm(rows as u32);
    let launch = KernelLaunch::norm_backward(rows as u32, width as u32);
    let case = KernelCase::new(KernelProgram::Norm(BF16), Kernel::NormBackward, launch)
        .elements(BF16, &draw(random, BF16, rows * width, 1.0))
        .elements(BF16, &draw(random, BF16, rows * width, 1.0))
        .elements(BF16, &draw(random, BF16, width, 1.0))
        .memory(&floats(random, rows))
        .memory(&vec![1.0f32; rows])
        .null()
        .unwritten(rows * width * 2)
        .unwritten(parts.parts as usize * 2 * width * 4)
        .ints([rows, parts.rows_of_part as usize, width]);
    Probe { case, outputs: vec![(5, ELEMENTS), (6, FLOATS)] }
}

fn bias_backward(random: &mut RandomStream) -> Probe {
    let (rows, width) = (70, 264);
    let parts = RowParts::of_bias(rows as u32);
    let launch = KernelLaunch::bias_backward(rows as u32, width as u32, BF16);
    let case = KernelCase::new(KernelProgram::Fold(BF16), Kernel::BiasBackward, launch)
        .elements(BF16, &draw(random, BF16, rows * width, 1.0))
        .unwritten(parts.parts as usize * width * 4)
        .ints([rows, parts.rows_of_part as usize, width]);
    Probe { case, outputs: vec![(1, FLOATS)] }
}

fn fold(random: &mut RandomStream) -> Probe {
    let (parts, columns) = (31, 70);
    let case = KernelCase::new(KernelProgram::Fold(BF16), Kernel::Fold, KernelLaunch::fold(70))
        .memory(&floats(random, parts * columns))
        .unwritten(columns * 4)
        .ints([parts, columns, columns]);
    Probe { case, outputs: vec![(1, FLOATS)] }
}

fn classifier(random: &mut RandomStream) -> Probe {
    let (rows, vocabulary, stride) = (3, 2050, 2056);
    let targets: Vec<u32> = (0..rows).map(|_| random.below(vocabulary) as u32).collect();
    let launch = KernelLaunch::classifier(rows as u32, stride as u32, BF16);
    let case = KernelCase::new(KernelProgram::Classifier(BF16), Kernel::Classifier, launch)
        .elements(BF16, &draw(random, BF16, rows * stride, 4.0))
        .memory(&targets)
        .unwritten(rows * 4)
        .memory(&[1.0f32])
        .scalar(F32(1.0))
        .ints([vocabulary, stride]);
    Probe { case, outputs: vec![(0, ELEMENTS), (2, FLOATS)] }
}

fn block_squares(random: &mut RandomStream) -> Probe {
    let len = 20_000;
    let launch = KernelLaunch::block_squares(len as u64);
    let case = KernelCase::new(KernelProgram::Optimizer(BF16), Kernel::BlockSquares, launch)
        .memory(&floats(random, len))
        .unwritten(len.div_ceil(1024) * 8)
        .count(len);
    Probe { case, outputs: vec![(1, NumberType::F64)] }
}

fn decide_step(random: &mut RandomStream) -> Probe {
    let sums: Vec<f64> = floats(random, 40_000).iter().map(|x| f64::from(x * x)).collect();
    let launch = KernelLaunch::decide_step(sums.len() as u32);
    let case = KernelCase::new(KernelProgram::Optimizer(BF16), Kernel::DecideStep, launch)
        .memory(&sums)
        .count(sums.len())
        .scalar(F64(1.0))
        .memory(&[1.0f32])
        .memory(&[0.0f64; 3]);
    // Of the decision, the norm: the first word.
    Probe { case, outputs: vec![(2, NumberType::F64)] }
}

fn attention(random: &mut RandomStream, width: HeadWidth) -> Vec<Probe> {
    let shape = AttentionShape { batch: 1, length: 257, heads: 1, width };
    let attention = AttentionCase::draw(random, shape, HalfType::Bf16);
    let forward = Probe { case: attention.forward(), outputs: vec![(1, ELEMENTS), (2, FLOATS)] };
    let delta = Probe { case: attention.delta_of_inputs(), outputs: vec![(2, FLOATS)] };
    let outputs = || vec![(4, ELEMENTS)];
    let backward = attention.backward_cases(&mut EmulatedRunner);
    let backward =
        backward.expect("the kernels are correct").map(|case| Probe { case, outputs: outputs() });
    [forward, delta].into_iter().chain(backward).collect()
}

fn softmax(random: &mut RandomStream) -> Vec<Probe> {
    let of = SoftmaxCase { batch: 1, length: 300, element: BF16 };
    let (scores, gradients) = (of.scores(random), of.scores(random));
    let forward = of.forward(&scores);
    let found = run(&forward, SCHEDULES[0], None).expect("the kernel is correct");
    let backward = of.backward(&gradients, &found.elements(1, BF16));
    [forward, backward].map(|case| Probe { case, outputs: vec![(1, ELEMENTS)] }).into()
}

impl Probe {
    /// The numbers that were written, of all outputs.
    fn numbers(&self, CaseMemory(memory): &CaseMemory) -> Vec<f64> {
        let of_output = |(buffer, number): &(usize, NumberType)| match number {
            NumberType::Element(element) => decode(*element, &memory[*buffer]),
            NumberType::F64 => {
                let first = memory[*buffer].chunks_exact(8).take(2);
                first.map(bytemuck::pod_read_unaligned::<f64>).collect()
            }
        };
        self.outputs.iter().flat_map(of_output).collect()
    }

    /// How a mistake is found, or `None`.
    fn finds(&self, mistake: Mistake, correct: &CaseMemory) -> Option<String> {
        let expect = self.numbers(correct);
        let mut first = None;
        for schedule in SCHEDULES {
            let memory = match run(&self.case, schedule, Some(mistake)) {
                Ok(memory) => memory,
                Err(error) => return Some(error),
            };
            let found = self.numbers(&memory);
            let is_written = |(found, expect): (&f64, &f64)| found.is_nan() == expect.is_nan();
            if !found.iter().zip(&expect).all(is_written) {
                return Some(format!("NaN under {schedule:?}"));
            }
            let pairs = found.into_iter().zip(expect.iter().copied());
            let (found, expect): (Vec<_>, Vec<_>) = pairs.filter(|(_, x)| !x.is_nan()).unzip();
            let error = error_of(&found, &expect);
            if TOLERANCE < error {
                return Some(format!("error {error:.1e} under {schedule:?}"));
            }
            if *first.get_or_insert_with(|| memory.clone()) != memory {
                return Some(format!("other bits under {schedule:?}"));
            }
        }
        None
    }
}

/// Whether one of the launches of a file finds a mistake in it.
fn is_found(probes: &[(Probe, CaseMemory)], mistake: Mistake) -> bool {
    probes.iter().any(|(probe, correct)| probe.finds(mistake, correct).is_some())
}

/// The launches of a file with their correct results.
fn correct_probes(file: KernelFile) -> Vec<(Probe, CaseMemory)> {
    let correct = |probe: Probe| {
        let memory = run(&probe.case, SCHEDULES[0], None).expect("the kernel is correct");
        (probe, memory)
    };
    probes(file).into_iter().map(correct).collect()
}

#[test]
fn prove_kernels_lose_a_barrier() {
    if !has("compiler", "prove_kernels_lose_a_barrier") {
        return;
    }
    let of_file = |file: KernelFile| mistakes(file.text(), 0).into_iter().map(move |m| (file, m));
    let mut all: Vec<_> = KernelFile::ALL.into_iter().flat_map(of_file).collect();
    // The sum over a warp, as the norms use it.
    let shared = mistakes(ELEMENT_SOURCE, ELEMENT_LINES);
    all.extend(shared.into_iter().map(|mistake| (KernelFile::Norm, mistake)));
    assert!(30 < all.len(), "{} statements", all.len());
    // A few of all kinds, else all.
    let count = proof_cases(FEW).min(all.len());
    let mut chosen: Vec<_> = (0..count).map(|index| all[index * all.len() / count]).collect();
    chosen.sort_by_key(|(file, _)| file.name());
    let mut survivors = Vec::new();
    for of_file in chosen.chunk_by(|a, b| a.0 == b.0) {
        let file = of_file[0].0;
        let probes = correct_probes(file);
        let nowhere = Mistake { kind: MistakeKind::NoBarrier, line: 0 };
        assert!(!is_found(&probes, nowhere), "{} without a mistake is correct", file.name());
        let missed = of_file.iter().filter(|(_, mistake)| !is_found(&probes, *mistake));
        survivors.extend(missed.map(|(_, mistake)| format!("{}: {mistake:?}", file.name())));
    }
    assert!(survivors.is_empty(), "not found:\n{}", survivors.join("\n"));
}
