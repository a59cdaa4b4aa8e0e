//! Algorithms of products: rank 0 chooses them, and a rank with another GPU or another library refuses them. The library
//! is one that computes in the memory of the host (`cublaslt.cpp`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use remuda::cuda::cublaslt::{
    AlgorithmChoice, CublasLt, CublasLtError, LtAddresses, LtAlgorithms, LtEpilogue, LtHandle,
    LtMethod, LtProduct, LtWorkspace, ShareChoices,
};
use remuda::cuda::device::{DeviceAddress, DeviceMatrix, Epilogue, Matmul, MatmulBatch};
use remuda::cuda::kernels::ElementType;
use remuda::runtime::Group;
use remuda::runtime::engine::GroupChoices;

use super::emulated_streams::multiply;
use super::ffi_products;
use crate::support::proof::{has, skip};
use crate::support::torch::python_with_torch;

const WORKSPACE_BYTES: usize = 1 << 20;
const VERSION: u32 = 130_100;

/// Compiles the library, unless it is there.
#[expect(clippy::disallowed_methods, reason = "the test starts a compiler")]
fn library(version: u32) -> Arc<CublasLt> {
    static BUILD: Mutex<()> = Mutex::new(());
    let _one = BUILD.lock().unwrap_or_else(PoisonError::into_inner);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/cublaslt.cpp");
    let process = std::process::id();
    let name = format!("libcublasLt.{process}.{version}.so");
    let file: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-shared", "-fPIC", "-o"]).arg(&file).arg(source);
    let built = compiler.arg(format!("-DVERSION={version}")).output().expect("a compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let library = CublasLt::open_file(&file).expect("it was built");
    std::fs::remove_file(file).expect("the test has created it");
    library
}

fn matrix(rows: u32, columns: u32) -> DeviceMatrix {
    DeviceMatrix::new(DeviceAddress(256), rows, columns, ElementType::F32)
}

/// A product whose result has so many columns of cuBLASLt.
fn product(rows: u32) -> LtProduct {
    LtProduct::of(&Matmul::new(matrix(rows, 8), matrix(8, 16), matrix(rows, 16)))
}

/// A product with an epilogue, whose result has so many rows of cuBLASLt.
fn with_bias(columns: u32) -> LtProduct {
    let plain = Matmul::new(matrix(32, 8), matrix(8, columns), matrix(32, columns));
    LtProduct::of(&plain.then(Epilogue::Bias { bias: DeviceAddress(256) }))
}

/// The algorithms of a rank.
fn algorithms(
    group: &Group,
    version: u32,
    gpu: &str,
    choice: AlgorithmChoice,
) -> Result<LtAlgorithms, CublasLtError> {
    let handle = LtHandle::new(library(version)).expect("the library works");
    let share: Arc<dyn ShareChoices> = Arc::new(GroupChoices::new(group).expect("a group"));
    LtAlgorithms::new(Arc::new(handle), gpu, WORKSPACE_BYTES, choice, Some(share))
}

/// The algorithm of a method, and whether a kernel computes the epilogue.
fn parts_of(method: &LtMethod) -> (u64, bool) {
    match method {
        LtMethod::Whole(plan) => (plan.algorithm()[0], false),
        LtMethod::EpilogueApart(plan) => (plan.algorithm()[0], true),
    }
}

/// Seconds of methods of which this one is the fastest.
fn fastest(method: (u64, bool)) -> impl FnMut(&LtMethod) -> Result<f64, String> {
    move |found| Ok(if parts_of(found) == method { 1.0 } else { 2.0 })
}

fn untimed(_: &LtMethod) -> Result<f64, String> {
    Err("nothing may be timed".to_owned())
}

#[test]
fn ranks_have_the_algorithm_that_rank_0_has_measured() {
    if !has("compiler", "ranks_have_the_algorithm_that_rank_0_has_measured") {
        return;
    }
    let found = Group::on_threads(3, |group| {
        let mut own = algorithms(group, VERSION, "H200", AlgorithmChoice::Fastest)
            .expect("the ranks are equal");
        assert_eq!(own.refusal(), None);
        let rank = group.rank();
        let of = |own: &mut LtAlgorithms, rows: u32, best: u64| {
            let method = match rank {
                0 => own.choose(product(rows), None, &mut fastest((best, false))),
                _ => own.choose(product(rows), None, &mut untimed),
            };
            parts_of(&method.expect("there is one")).0
        };
        Ok([of(&mut own, 32, 101), of(&mut own, 64, 102), of(&mut own, 32, 100)])
    });
    // A product that is known is not measured again.
    assert_eq!(found.expect("the ranks agree"), [[101, 102, 101]; 3]);
}

#[test]
fn deterministic_algorithms_are_those_of_the_library() {
    if !has("compiler", "deterministic_algorithms_are_those_of_the_library") {
        return;
    }
    let found = Group::on_threads(2, |group| {
        let mut own = algorithms(group, VERSION, "H200", AlgorithmChoice::First)
            .expect("the ranks are equal");
        let method = own.choose(product(32), None, &mut untimed).expect("there is one");
        Ok(parts_of(&method))
    });
    assert_eq!(found.expect("the ranks agree"), [(100, false); 2]);
}

/// Chooses how a product with an epilogue is computed, where these methods take the least time, and those of the
/// library may be refused when they are measured; returns what each of two ranks has.
fn choose_epilogue(
    choice: AlgorithmChoice,
    columns: u32,
    time: fn(&LtMethod) -> Result<f64, String>,
) -> Vec<Result<(u64, bool), CublasLtError>> {
    let found = Group::on_threads(2, |group| {
        let mut own = algorithms(group, VERSION, "H200", choice).expect("the ranks are equal");
        let plain = LtProduct { epilogue: LtEpilogue::None, ..with_bias(columns) };
        let mut time_plain = fastest((101, false));
        let plain = own.choose(plain, None, &mut time_plain).expect("there is one");
        let LtMethod::Whole(apart) = plain else { panic!("it has no epilogue: {plain:?}") };
        let time: &mut dyn FnMut(&LtMethod) -> _ = match group.rank() {
            0 => &mut { time },
            _ => &mut untimed,
        };
        let method = own.choose(with_bias(columns), Some(apart), time);
        Ok(method.as_ref().map(parts_of).map_err(Clone::clone))
    });
    found.expect("the ranks agree")
}

#[test]
fn epilogue_is_computed_where_it_is_faster() {
    if !has("compiler", "epilogue_is_computed_where_it_is_faster") {
        return;
    }
    let (first, fastest) = (AlgorithmChoice::First, AlgorithmChoice::Fastest);
    let is_apart = |method: &LtMethod| Ok(f64::from(u8::from(!parts_of(method).1)));
    assert_eq!(choose_epilogue(fastest, 16, is_apart), vec![Ok((101, true)); 2]);
    let is_102 = |method: &LtMethod| Ok(parts_of(method).0.abs_diff(102) as f64);
    assert_eq!(choose_epilogue(fastest, 16, is_102), vec![Ok((102, false)); 2]);
    // Without a measurement, the library has it if it can.
    assert_eq!(choose_epilogue(first, 16, untimed), vec![Ok((100, false)); 2]);
    assert_eq!(choose_epilogue(first, 24, untimed), vec![Ok((100, true)); 2]);
    assert_eq!(choose_epilogue(fastest, 24, untimed), vec![Ok((101, true)); 2]);
}

#[test]
fn algorithm_that_cannot_be_measured_is_left_out() {
    if !has("compiler", "algorithm_that_cannot_be_measured_is_left_out") {
        return;
    }
    let fastest = AlgorithmChoice::Fastest;
    let refused = |method: &LtMethod| match parts_of(method) {
        (102, false) => Ok(1.0),
        _ => Err("cublasLtMatmul failed: not supported".to_owned()),
    };
    assert_eq!(choose_epilogue(fastest, 16, refused), vec![Ok((102, false)); 2]);
    let none = choose_epilogue(fastest, 16, untimed);
    let [Err(CublasLtError::Untimed { problem }), Err(CublasLtError::NoneOnFirstRank { .. })] =
        &none[..]
    else {
        panic!("{none:?}");
    };
    assert_eq!(problem, "nothing may be timed");
}

/// Numbers of which those of a matrix are the first; its address is a multiple of 256.
#[repr(align(256))]
struct Numbers([f32; 512]);

impl Numbers {
    fn new(seed: u32) -> Box<Self> {
        let number = |at: usize| ((at as u32 * 7 + seed) * 37 % 101) as f32 / 50.0 - 1.0;
        Box::new(Self(std::array::from_fn(number)))
    }

    fn address(&mut self) -> DeviceAddress {
        DeviceAddress(self.0.as_mut_ptr() as u64)
    }
}

/// Multiplies on the library and as an emulated device, and compares all memory: A, B, C, and two more.
#[track_caller]
fn check_as_emulated(product_at: impl Fn([DeviceAddress; 5]) -> Matmul) {
    let mut of_library: [Box<Numbers>; 5] = std::array::from_fn(|seed| Numbers::new(seed as u32));
    let mut emulated: [Box<Numbers>; 5] = std::array::from_fn(|seed| Numbers::new(seed as u32));
    let product_in =
        |memory: &mut [Box<Numbers>; 5]| product_at(memory.each_mut().map(|one| one.address()));
    let handle = Arc::new(LtHandle::new(library(VERSION)).expect("the library works"));
    let product = product_in(&mut of_library);
    let plans = handle.candidates(&LtProduct::of(&product), WORKSPACE_BYTES, 1);
    let workspace = LtWorkspace { address: DeviceAddress(256), bytes: WORKSPACE_BYTES };
    let addresses = LtAddresses::of(&product);
    ffi_products::multiply(&plans.expect("there is an algorithm")[0], addresses, workspace);
    multiply(&product_in(&mut emulated));
    for (found, expected) in of_library.iter().zip(&emulated) {
        for (found, expected) in found.0.iter().zip(&expected.0) {
            assert!((found - expected).abs() < 1e-4, "{found} instead of {expected}");
        }
    }
}

fn floats(at: DeviceAddress, rows: u32, columns: u32) -> DeviceMatrix {
    DeviceMatrix::new(at, rows, columns, ElementType::F32)
}

#[track_caller]
fn check_epilogue(epilogue_of: fn(DeviceAddress, DeviceAddress) -> Epilogue, is_forward: bool) {
    let (rows, columns, inner) = (6, 16, 10);
    check_as_emulated(|[a, b, c, bias, before]| {
        let (a, c) = (floats(a, rows, inner), floats(c, rows, columns));
        let product = if is_forward {
            Matmul::new(a, floats(b, columns, inner), c).transpose_b()
        } else {
            Matmul::new(a, floats(b, inner, columns), c)
        };
        product.then(epilogue_of(bias, before))
    });
}

#[test]
fn epilogues_are_described_as_the_library_computes_them() {
    if !has("compiler", "epilogues_are_described_as_the_library_computes_them") {
        return;
    }
    check_epilogue(|_, _| Epilogue::None, true);
    check_epilogue(|bias, _| Epilogue::Bias { bias }, true);
    check_epilogue(|bias, before| Epilogue::Gelu { bias, before }, true);
    check_epilogue(|_, before| Epilogue::GeluBackward { before }, false);
}

fn entries(dir: PathBuf) -> Vec<PathBuf> {
    let read = std::fs::read_dir(dir).into_iter().flatten().flatten();
    read.map(|entry| entry.path()).collect()
}

/// NVIDIA's libraries in the packages of a virtual environment.
fn libraries_of(venv: &Path) -> Vec<PathBuf> {
    let pythons = entries(venv.join("lib")).into_iter();
    let packages = pythons.flat_map(|python| entries(python.join("site-packages/nvidia")));
    packages.flat_map(|package| entries(package.join("lib"))).collect()
}

fn is_cublaslt(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("libcublasLt.so."))
}

/// NVIDIA's library itself knows every attribute that a product has, and its size. It needs no GPU for that.
#[test]
fn nvidias_library_accepts_descriptions_of_products() {
    let test = "nvidias_library_accepts_descriptions_of_products";
    let Some(python) = python_with_torch(test) else { return };
    let venv = python.parent().and_then(Path::parent).expect("a virtual environment");
    let Some(file) = libraries_of(venv).into_iter().find(|file| is_cublaslt(file)) else {
        return skip("torch with CUDA", test);
    };
    let library = CublasLt::open_file(&file).expect("it is NVIDIA's");
    let at = |number: u64| DeviceAddress(1024 * number);
    let plain = Matmul::new(floats(at(1), 6, 8), floats(at(2), 8, 16), floats(at(3), 6, 16));
    let (bias, before) = (at(4), at(5));
    let batch = MatmulBatch { count: 3, strides: [8, 512, 96] };
    let epilogues = [
        Epilogue::Bias { bias },
        Epilogue::Gelu { bias, before },
        Epilogue::GeluBackward { before },
    ];
    let with_epilogues = epilogues.map(|epilogue| plain.then(epilogue));
    let all = [plain, plain.add(), plain.repeat(batch)].into_iter().chain(with_epilogues);
    for product in all {
        let described = library.check_description(&LtProduct::of(&product));
        described.unwrap_or_else(|error| panic!("{product:?}: {error}"));
    }
}

#[test]
fn batches_are_described_as_the_library_computes_them() {
    if !has("compiler", "batches_are_described_as_the_library_computes_them") {
        return;
    }
    // Operands that begin at no multiple of 256 bytes, whose matrices are side by side, one after another, or the same.
    for strides in [[4, 40, 30], [60, 8, 32], [0, 40, 64]] {
        check_as_emulated(|[a, b, c, ..]| {
            let a = floats(a.offset(16), 6, 4).with_stride(16);
            let b = floats(b.offset(32), 5, 4).with_stride(24);
            let c = floats(c, 6, 5);
            let batch = MatmulBatch { count: 3, strides };
            Matmul::new(a, b, c).transpose_b().add().repeat(batch)
        });
    }
}

/// Rank 2 differs; returns what it says, and the algorithms of all ranks.
#[track_caller]
fn check_another(version: u32, gpu: &str, said: &str) {
    let of = |rank| if rank == 2 { (version, gpu) } else { (VERSION, "H200") };
    let refused = Group::on_threads(3, |group| {
        let (version, gpu) = of(group.rank());
        Ok(algorithms(group, version, gpu, AlgorithmChoice::First).err())
    });
    let refused = refused.expect("the ranks agree");
    assert!(refused[..2].iter().all(Option::is_none), "{refused:?}");
    let differs = refused[2].as_ref().expect("it cannot use the algorithms of rank 0");
    assert_eq!(differs.to_string(), said);
    let found = Group::on_threads(3, |group| {
        let (rank, (version, gpu)) = (group.rank(), of(group.rank()));
        let mut own = algorithms(group, version, gpu, AlgorithmChoice::Fastest)
            .expect("every rank has algorithms");
        let best = [101, 100, 102][rank];
        let method = own.choose(product(32), None, &mut fastest((best, false)));
        let algorithm = parts_of(&method.expect("there is one")).0;
        Ok((algorithm, own.refusal().map(ToString::to_string)))
    });
    let expected = [(101, None), (101, None), (102, Some(said.to_owned()))];
    assert_eq!(found.expect("the ranks agree"), expected);
}

#[test]
fn rank_with_another_gpu_or_library_refuses_algorithms() {
    if !has("compiler", "rank_with_another_gpu_or_library_refuses_algorithms") {
        return;
    }
    let first = "rank 0 has H200 with cuBLASLt 13.1.0: they cannot use the same algorithms";
    check_another(
        VERSION,
        "A100",
        &format!("this rank has A100 with cuBLASLt 13.1.0, and {first}"),
    );
    check_another(
        120_805,
        "H200",
        &format!("this rank has H200 with cuBLASLt 12.8.5, and {first}"),
    );
}

#[test]
fn ranks_that_do_not_agree_on_a_product_have_errors() {
    if !has("compiler", "ranks_that_do_not_agree_on_a_product_have_errors") {
        return;
    }
    let errors = |rows_of: fn(usize) -> u32| {
        let found = Group::on_threads(2, |group| {
            let mut own = algorithms(group, VERSION, "H200", AlgorithmChoice::First)
                .expect("the ranks are equal");
            Ok(own.choose(product(rows_of(group.rank())), None, &mut untimed).err())
        });
        found.expect("the ranks agree")
    };
    let other = errors(|rank| if rank == 0 { 32 } else { 64 });
    assert!(matches!(other[..], [None, Some(CublasLtError::OtherProduct { .. })]), "{other:?}");
    let none = errors(|_| 13);
    let [Some(CublasLtError::NoAlgorithm { .. }), Some(CublasLtError::NoneOnFirstRank { .. })] =
        none[..]
    else {
        panic!("{none:?}");
    };
}
