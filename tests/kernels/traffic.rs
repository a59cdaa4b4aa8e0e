//! Bytes that kernels read and write: those of their shapes, counted by the emulated device.

use std::collections::HashSet;

use remuda::cuda::kernels::HalfType;
use remuda::runtime::kernel_checks::{TrafficCase, TrafficShape, measure_bandwidths};

use super::emulated::{count, counting_device};
use super::emulated_streams::{EmulatedStreams, Order};
use crate::support::proof::has;

/// Shapes with rows that fill no block, and with more tokens than words, and the other way round.
const SHAPES: [TrafficShape; 2] = [
    TrafficShape {
        batch: 3,
        length: 70,
        heads: 2,
        vocabulary: 48,
        classified: 5,
        parameters: 5003,
        half: HalfType::Bf16,
    },
    TrafficShape {
        batch: 1,
        length: 129,
        heads: 5,
        vocabulary: 2056,
        classified: 3,
        parameters: 40_000,
        half: HalfType::Bf16,
    },
];

#[test]
fn kernels_touch_the_bytes_of_their_shapes() {
    if !has("compiler", "kernels_touch_the_bytes_of_their_shapes") {
        return;
    }
    let cases: Vec<TrafficCase> = SHAPES.into_iter().flat_map(TrafficShape::cases).collect();
    let mut programs: Vec<_> = cases.iter().map(|case| case.case.kernel.0).collect();
    let mut seen = HashSet::new();
    programs.retain(|program| seen.insert(*program));
    let device = counting_device(&programs);
    let mut other = Vec::new();
    for TrafficCase { case, traffic } in &cases {
        let counted = count(&device, case).unwrap_or_else(|error| panic!("{error}"));
        if counted != *traffic {
            other.push(format!("{}: {counted:?}, expected {traffic:?}", case.name()));
        }
    }
    assert!(other.is_empty(), "{}", other.join("\n"));
}

#[test]
fn bandwidths_of_kernels_are_measured_on_any_device() {
    if !has("compiler", "bandwidths_of_kernels_are_measured_on_any_device") {
        return;
    }
    let device = EmulatedStreams::new(Order::Early);
    let found = measure_bandwidths(&device, SHAPES[0]).expect("the device executes all launches");
    let kernels: HashSet<_> = found.iter().map(|of| of.kernel).collect();
    assert!(kernels.len() == found.len() && 18 <= kernels.len(), "{kernels:?}");
    assert!(found.iter().all(|of| 0.0 < of.bytes_per_second && 0 < of.bytes), "{found:?}");
}
