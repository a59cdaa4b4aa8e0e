//! The profile of a training step, on the emulated device.

use std::collections::BTreeMap;
use std::sync::Arc;

use remuda::cuda::device::Device;
use remuda::runtime::Group;
use remuda::train::{GptArchitecture, GptConfig, profile_step};

use super::emulated_streams::{EmulatedStreams, Order};
use crate::support::proof::has;

#[test]
fn profile_of_a_step_has_all_of_its_operations() {
    if !has("compiler", "profile_of_a_step_has_all_of_its_operations") {
        return;
    }
    let architecture = GptArchitecture::Gpt2;
    let config =
        GptConfig { architecture, vocabulary: 37, block: 16, layers: 2, heads: 1, width: 64 };
    let device: Arc<dyn Device> = Arc::new(EmulatedStreams::new(Order::Early));
    let group = Group::single().expect("a group of one rank");
    let profile = profile_step(&group, &device, config, 2).expect("the device executes all steps");
    let mut counts = BTreeMap::new();
    for operation in &profile.operations {
        assert!(0.0 < operation.seconds, "{operation:?}");
        *counts.entry(operation.name).or_insert(0) += operation.count;
    }
    // Of a block four layers, with the gradients of their weights and inputs; the head.
    assert_eq!(counts["product"], 2 * 4 * 3 + 3, "{counts:?}");
    for kernel in ["attention_forward", "attention_delta", "attention_backward_kv"] {
        assert_eq!(counts[kernel], 2, "{kernel}");
    }
    for kernel in ["embed", "classifier", "norm_forward", "embed_backward_tokens"] {
        assert_eq!(counts[kernel], 1, "{kernel}");
    }
    assert_eq!(counts["residual_norm_forward"], 2 * 2);
    let products = profile.operations.iter().filter(|of| of.name == "product");
    let flops: f64 = products.map(|of| f64::from(of.count) * of.flops).sum();
    // Multiplications and additions of 32 tokens: three products for each weight of a layer, and of the head.
    assert_eq!(flops as u64, 3 * 2 * 32 * (2 * 12 * 64 * 64 + 37 * 64));
    let figures = profile.figures();
    assert!(0.0 < figures["step_ms"] && 0.0 < figures["product_32_192_64_tflop_per_s"]);
    assert_eq!(figures.keys().filter(|name| name.starts_with("product_")).count(), 1 + 12);
    let text = profile.to_string();
    let begin = "gpt2 of 2 layers, width 64, 2 x 16 tokens in bf16: ";
    assert!(text.starts_with(begin) && text.contains(" TFLOP/s)"), "{text}");
}
