//! The emulated device ends a kernel that a device would not execute correctly, with an error that names it.

use remuda::cuda::kernels::{ElementType, Kernel, KernelLaunch, KernelProgram};
use remuda::runtime::kernel_checks::KernelCase;

use super::emulated::{SCHEDULES, run_as};
use crate::support::proof::has;

/// A launch without arguments; the kernel that it names is replaced.
fn case(launch: KernelLaunch) -> KernelCase {
    KernelCase::new(KernelProgram::Fold(ElementType::F32), Kernel::Fold, launch)
}

/// Runs a kernel of `faulty.cu` with 64 threads, 4096 bytes of shared memory and memory of 64 floats.
#[track_caller]
fn check(kernel: &str, expect: &str) {
    let launch = KernelLaunch { grid: [2, 1, 1], threads: 64, shared_bytes: 4096 };
    let case = case(launch).memory(&[0.0f32; 64]);
    for schedule in SCHEDULES {
        let error = run_as(&format!("faulty.{kernel}"), &case, schedule, None)
            .expect_err("the kernel is faulty");
        let start = format!("kernel `faulty.{kernel}`, block (");
        assert!(error.starts_with(&start) && error.contains(expect), "{schedule:?}: {error}");
    }
}

#[test]
fn faulty_kernels_end_with_an_error() {
    if !has("compiler", "faulty_kernels_end_with_an_error") {
        return;
    }
    check(
        "barrier_without_all",
        ": deadlock at `barrier` of line 6: 40 threads wait, 24 of 64 have exited",
    );
    check("two_barriers", "other threads are at that of line");
    check(
        "shuffle_without_all",
        ": deadlock at `shuffle_xor` of line 20: 31 threads wait, 33 of 64 have exited",
    );
    check("two_collectives", "another lane of its warp at `shuffle_xor` of line");
    check("write_after_end", " of an allocation of 256 bytes");
    check("read_far_away", ": touches byte 262144 of an allocation of 256 bytes");
    check("misaligned_load", "loads 16 bytes from");
    check("misaligned_copy", "shared address 8 is not aligned to 16");
    check("copy_outside", "`copy16` of line 38: shared address 4096 is outside of 4096 bytes");
    check("write_shared_outside", " of 4096 bytes of shared memory");
    check("copy_without_wait", ": exited without waiting for 1 asynchronous copies");
    check("deep_stack", ": needs more than 65536 bytes of stack");
    check("write_before_start", ": wrote byte -8 of an allocation of 256 bytes");
}

#[test]
fn wrong_launches_are_errors() {
    if !has("compiler", "wrong_launches_are_errors") {
        return;
    }
    let launch = KernelLaunch { grid: [1, 1, 1], threads: 64, shared_bytes: 0 };
    let error =
        |kernel: &str, case: &KernelCase| run_as(kernel, case, SCHEDULES[0], None).unwrap_err();
    assert_eq!(error("fold_float.unfold", &case(launch)), "no kernel `fold_float.unfold`");
    let fold = |case: &KernelCase| error("fold_float.fold", case);
    assert_eq!(fold(&case(launch)), "kernel `fold_float.fold` has 5 arguments, not 0");
    let with_arguments = |launch| case(launch).null().null().ints([1, 1, 1]);
    let wide = KernelLaunch { threads: 1025, ..launch };
    assert!(fold(&with_arguments(wide)).ends_with(": a block has 1 to 1024 threads, not 1025"));
    assert!(fold(&with_arguments(launch)).contains(": touches "));
}
