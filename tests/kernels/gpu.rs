//! The checks of the emulated device, on the first GPU. Without one the tests are skipped.

use std::sync::Arc;

use remuda::cuda::device::Device;
use remuda::cuda::driver::{CubinCache, CudaDevice};
use remuda::runtime::device::{device_count, open_device};
use remuda::runtime::kernel_checks::{DeviceRunner, KERNEL_CHECKS, check_products};

use super::{models, saved, stages, streams, trainer, training, waits};
use crate::support::proof::skip;

/// The first GPU; programs are kept in a directory of the tests.
fn open() -> Arc<dyn Device> {
    let context = open_device(0).expect("there is a GPU");
    let cache = std::env::temp_dir().join("remuda-kernels-of-tests");
    Arc::new(CudaDevice::new(context, CubinCache::in_dir(&cache)).expect("its libraries are there"))
}

/// Whether there is a GPU; else the test is skipped.
fn has_gpu(test: &str) -> bool {
    let has_gpu = matches!(device_count(), Ok(1..));
    if !has_gpu {
        skip("gpu", test);
    }
    has_gpu
}

#[test]
fn products_on_a_gpu_match_their_definition() {
    if !has_gpu("products_on_a_gpu_match_their_definition") {
        return;
    }
    check_products(&*open()).expect("the products are right");
}

#[test]
fn kernels_on_a_gpu_are_right() {
    if !has_gpu("kernels_on_a_gpu_are_right") {
        return;
    }
    let device = open();
    let mut runner = DeviceRunner::new(&*device).expect("a stream");
    for check in KERNEL_CHECKS {
        check.run(&mut runner).unwrap_or_else(|error| panic!("{}: {error}", check.name));
    }
}

#[test]
fn pipeline_on_a_gpu_is_right() {
    if has_gpu("pipeline_on_a_gpu_is_right") {
        streams::check_pipeline(&*open());
    }
}

#[test]
fn models_on_a_gpu_have_the_gradients_of_a_cpu() {
    if has_gpu("models_on_a_gpu_have_the_gradients_of_a_cpu") {
        let devices = [open(), open()];
        models::check_mlps(&devices);
        models::check_gpts(&devices);
        models::check_beside_autocast(&devices[0], 2.0);
    }
}

#[test]
fn training_on_a_gpu_equals_that_on_a_cpu() {
    if has_gpu("training_on_a_gpu_equals_that_on_a_cpu") {
        training::check_optimizers(&open);
        training::check_overflows([&open, &open]);
        training::check_gpts(&open);
    }
}

#[test]
fn ranks_and_micro_batches_on_a_gpu_change_no_bit() {
    if has_gpu("ranks_and_micro_batches_on_a_gpu_change_no_bit") {
        training::check_lanes([&open, &open, &open, &open]);
    }
}

#[test]
fn stages_on_a_gpu_change_no_bit() {
    if has_gpu("stages_on_a_gpu_change_no_bit") {
        stages::check(&open);
    }
}

#[test]
fn training_on_a_gpu_continues_with_other_ranks_and_stages() {
    if has_gpu("training_on_a_gpu_continues_with_other_ranks_and_stages") {
        saved::check(&open);
    }
}

#[test]
fn steps_that_are_read_later_on_a_gpu_have_the_same_bits() {
    if has_gpu("steps_that_are_read_later_on_a_gpu_have_the_same_bits") {
        waits::check_read_later(&[&open]);
    }
}

#[test]
fn trainer_on_a_gpu_does_what_it_does_on_a_processor() {
    if has_gpu("trainer_on_a_gpu_does_what_it_does_on_a_processor") {
        trainer::check(&open);
    }
}
