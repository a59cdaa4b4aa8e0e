//! The checks of kernels on the emulated device, under all schedules.

use std::collections::HashSet;

use remuda::cuda::kernels::Kernel;
use remuda::runtime::kernel_checks::{
    CaseMemory, CheckError, DeviceRunner, KERNEL_CHECKS, KernelCase, KernelCheck, KernelRunner,
    check_epilogues, check_products,
};

use super::emulated::{EmulatedRunner, SCHEDULES, run as run_emulated};
use super::emulated_streams::{EmulatedStreams, Order};
use crate::support::proof::has;

#[track_caller]
fn run(name: &str) {
    let check = KERNEL_CHECKS.iter().find(|check| check.name == name).expect("there is one");
    if let Err(error) = check.run(&mut EmulatedRunner) {
        panic!("{name}: {error}");
    }
}

/// Defines a test for each check, and the list of them.
macro_rules! tests {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];

        mod kernels_are_right {
            $(
                #[test]
                fn $name() {
                    if super::has("compiler", stringify!($name)) {
                        super::run(stringify!($name));
                    }
                }
            )*
        }
    };
}

tests! {
    activations
    huge_numbers
    bias
    classifier
    conversions
    embeddings
    position_gradients
    token_gradients
    attention
    attention_lengths
    softmax
    norms
    fused_norms
    norm_gradients
    folds
    bias_gradients
    micro_batches
    block_sums
    clipping
    step_decisions
    skipped_steps
    optimizers
    loss_scale
}

/// A device that computes one kernel wrong, or none: the last number that it writes.
struct WrongRunner {
    wrong: Option<Kernel>,
    /// Kernels that have run.
    kernels: HashSet<Kernel>,
}

impl KernelRunner for WrongRunner {
    fn run(&mut self, case: &KernelCase) -> Result<CaseMemory, CheckError> {
        let failed = |problem| CheckError::Device { kernel: case.name(), problem };
        let mut memory = run_emulated(case, SCHEDULES[0], None).map_err(failed)?;
        self.kernels.insert(case.kernel.1);
        if Some(case.kernel.1) == self.wrong {
            let buffers = memory.0.iter_mut().zip(&case.buffers);
            let changed = buffers.filter(|(after, before)| after != before);
            if let Some((after, before)) = changed.last() {
                let last = (0..after.len()).rfind(|at| after[*at] != before[*at]);
                after[last.expect("they differ")] ^= 0x40;
            }
        }
        Ok(memory)
    }
}

#[test]
fn every_kernel_that_is_wrong_is_found() {
    if !has("compiler", "every_kernel_that_is_wrong_is_found") {
        return;
    }
    let run = |check: &KernelCheck, wrong| {
        let mut runner = WrongRunner { wrong, kernels: HashSet::new() };
        (check.run(&mut runner), runner.kernels)
    };
    let mut found = HashSet::new();
    for check in KERNEL_CHECKS {
        let (result, kernels) = run(check, None);
        assert_eq!(result, Ok(()), "{}", check.name);
        let is_new = |kernel: &Kernel| !found.contains(kernel);
        let wrong: Vec<_> = kernels.into_iter().filter(is_new).collect();
        found.extend(wrong.into_iter().filter(|kernel| run(check, Some(*kernel)).0.is_err()));
    }
    let missed: Vec<_> = Kernel::ALL.into_iter().filter(|kernel| !found.contains(kernel)).collect();
    assert_eq!(missed, [], "a wrong kernel is found by no check");
}

#[test]
fn products_and_kernels_are_right_through_streams() {
    if !has("compiler", "products_and_kernels_are_right_through_streams") {
        return;
    }
    let device = EmulatedStreams::new(Order::Late);
    check_products(&device).expect("the products are right");
    check_epilogues(&device.with_epilogues_apart()).expect("the kernels of epilogues are right");
    for order in [Order::Early, Order::Late, Order::Random(1)] {
        let device = EmulatedStreams::new(order);
        let mut runner = DeviceRunner::new(&device).expect("a stream");
        for name in ["bias", "conversions", "norms"] {
            let check = KERNEL_CHECKS.iter().find(|check| check.name == name);
            check.expect("there is one").run(&mut runner).expect("the kernel is right");
        }
    }
}

#[test]
fn every_check_of_kernels_is_a_test() {
    let names: Vec<_> = KERNEL_CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(names, TESTED);
}
