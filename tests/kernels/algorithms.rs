//! Algorithms of products: rank 0 chooses them, and a rank with another GPU or another library refuses them. The library
//! is one that only describes products (`cublaslt.cpp`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use remuda::cuda::cublaslt::{
    AlgorithmChoice, CublasLt, CublasLtError, LtAlgorithms, LtHandle, LtPlan, LtProduct,
    ShareChoices,
};
use remuda::cuda::device::{DeviceAddress, DeviceMatrix, Matmul};
use remuda::cuda::kernels::ElementType;
use remuda::runtime::Group;
use remuda::runtime::engine::GroupChoices;

use crate::support::proof::has;

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

/// A product whose result has so many columns of cuBLASLt.
fn product(rows: u32) -> LtProduct {
    let matrix =
        |rows, columns| DeviceMatrix::new(DeviceAddress(256), rows, columns, ElementType::F32);
    LtProduct::of(&Matmul::new(matrix(rows, 8), matrix(8, 16), matrix(rows, 16)))
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

/// Seconds of plans of which this algorithm is the fastest.
fn fastest(algorithm: u64) -> impl FnMut(&LtPlan) -> Result<f64, String> {
    move |plan| Ok(if plan.algorithm()[0] == algorithm { 1.0 } else { 2.0 })
}

fn untimed(_: &LtPlan) -> Result<f64, String> {
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
            let plan = match rank {
                0 => own.plan(product(rows), &mut fastest(best)),
                _ => own.plan(product(rows), &mut untimed),
            };
            plan.expect("there is one").algorithm()[0]
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
        let plan = own.plan(product(32), &mut untimed).expect("there is one");
        Ok(plan.algorithm()[0])
    });
    assert_eq!(found.expect("the ranks agree"), [100, 100]);
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
        let plan = own.plan(product(32), &mut fastest(best)).expect("there is one");
        Ok((plan.algorithm()[0], own.refusal().map(ToString::to_string)))
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
            Ok(own.plan(product(rows_of(group.rank())), &mut untimed).err())
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
