//! Steps of all optimizers: vectors of torch, and equal bits for every division of the work.

use super::*;
use crate::os::cpu::simd::tests::at_every_level;
use crate::runtime::flat::tasks::Serial;
use crate::runtime::flat::tasks::tests::Strided;
use crate::runtime::optim::optimizer::{
    AdamOptions, LionOptions, Optimizer, SgdOptions, WeightDecay,
};
use proptest::prelude::*;

const GRADIENTS: [[f32; 4]; 3] =
    [[0.1, -0.2, 0.3, -0.4], [0.05, 0.0, -0.3, 0.2], [-1.0, 2.0, 0.001, -0.5]];

/// Parameters after steps with the gradients above, in turn, at every level.
fn run(optimizer: Optimizer, rate: f64, steps: u64) -> [f32; 4] {
    let results = at_every_level(|| {
        let mut params = [1.0, -2.0, 0.5, 3.0];
        let mut states = vec![[0.0; 4]; optimizer.state_names().len()];
        for number in 1..=steps {
            let gradients = &GRADIENTS[(number as usize - 1) % 3];
            optimizer.step(number, rate, 1.0).update(&mut params, &mut states, gradients);
        }
        params
    });
    assert!(results.iter().all(|result| result.map(f32::to_bits) == results[0].map(f32::to_bits)));
    results[0]
}

#[track_caller]
fn check(optimizer: Optimizer, rate: f64, steps: u64, expect: [u32; 4]) {
    let found = run(optimizer, rate, steps).map(f32::to_bits);
    assert_eq!(found, expect, "{found:08x?} instead of {expect:08x?}");
}

fn adam(weight_decay: f64, decay: WeightDecay) -> AdamOptions {
    AdamOptions { weight_decay, decay, ..AdamOptions::default() }
}

/// Values of torch 2.15.0 on the CPU.
#[test]
fn adam_matches_torch() {
    let plain = adam(0.0, WeightDecay::L2);
    check(Optimizer::Adam(plain), 0.1, 3, [0x3f5c_bdad, 0xbff2_19bc, 0x3ed1_8029, 0x404c_07f4]);
    let l2 = adam(0.01, WeightDecay::L2);
    check(Optimizer::Adam(l2), 0.1, 3, [0x3f5c_2d6b, 0xbff1_292f, 0x3ecf_d479, 0x404b_1848]);
    let decoupled = adam(0.01, WeightDecay::Decoupled);
    let optimizer = Optimizer::Adam(decoupled);
    check(optimizer, 0.1, 1, [0x3f66_24de, 0xbff2_f1aa, 0x3ecc_8b44, 0x4046_353f]);
    check(optimizer, 0.1, 2, [0x3f4e_0cd1, 0xbfea_1fd3, 0x3ecf_08c1, 0x4047_b6df]);
    check(optimizer, 0.1, 3, [0x3f5c_0c7a, 0xbff1_5e13, 0x3ed0_d543, 0x404b_70ef]);
    let large = AdamOptions { epsilon: 0.1, ..decoupled };
    check(Optimizer::Adam(large), 0.1, 3, [0x3f74_0d94, 0xbff8_950c, 0x3edc_5a55, 0x4048_f2e6]);
}

/// Values of the formula in numpy's f32, with scalars in f64.
#[test]
fn adam_matches_the_formula() {
    let decoupled = adam(0.01, WeightDecay::Decoupled);
    let short = AdamOptions { betas: [0.4, 0.9], ..decoupled };
    check(Optimizer::Adam(short), 0.1, 3, [0x3f6a_75c5, 0xbffa_6340, 0x3eeb_d59e, 0x404a_4b94]);
    let long = adam(0.1, WeightDecay::Decoupled);
    check(Optimizer::Adam(long), 1e-3, 1000, [0x3fae_efcb, 0xc013_2dad, 0x3ee6_44b9, 0x4052_6f88]);
    let raw = AdamOptions { bias_correction: false, ..adam(0.0, WeightDecay::Decoupled) };
    check(Optimizer::Adam(raw), 0.1, 3, [0x3f0f_f39a, 0xbfd8_16ed, 0x3e66_f203, 0x406e_eb5e]);
}

/// DeepSpeed's kernels compute other last bits, from `1 - β` in f32 and with fused operations.
#[test]
fn adam_is_close_to_deepspeed() {
    #[track_caller]
    fn check(options: AdamOptions, expect: [u32; 4]) {
        let found = run(Optimizer::Adam(options), 0.1, 3);
        for (found, expect) in found.into_iter().zip(expect.map(f32::from_bits)) {
            assert!((found - expect).abs() <= 5e-6, "{found} instead of {expect}");
        }
    }
    let decoupled = adam(0.01, WeightDecay::Decoupled);
    check(decoupled, [0x3f5c_0c79, 0xbff1_5e0f, 0x3ed0_d542, 0x404b_70ec]);
    let l2 = adam(0.01, WeightDecay::L2);
    check(l2, [0x3f5c_2d6b, 0xbff1_292d, 0x3ecf_d479, 0x404b_1846]);
    let raw = AdamOptions { bias_correction: false, ..adam(0.0, WeightDecay::Decoupled) };
    check(raw, [0x3f0f_f368, 0xbfd8_16dc, 0x3e66_f188, 0x406e_eb72]);
}

/// Values of torch 2.15.0 on the CPU; those after 30 steps with `ATEN_CPU_CAPABILITY=default`, which fuses
/// no product with a sum.
#[test]
fn sgd_matches_torch() {
    let sgd = SgdOptions::default();
    check(Optimizer::Sgd(sgd), 0.1, 3, [0x3f8a_e148, 0xc00b_851f, 0x3eff_f2e5, 0x4044_7ae1]);
    let decay = SgdOptions { weight_decay: 0.01, ..sgd };
    check(Optimizer::Sgd(decay), 0.1, 3, [0x3f8a_7fe5, 0xc00b_2392, 0x3eff_3269, 0x4043_e697]);
    let momentum = SgdOptions { momentum: 0.9, ..sgd };
    check(Optimizer::Sgd(momentum), 0.1, 3, [0x3f88_1d7e, 0xc009_54ca, 0x3ef3_81d8, 0x4047_b4a2]);
    let nesterov = SgdOptions { nesterov: true, weight_decay: 0.01, ..momentum };
    check(Optimizer::Sgd(nesterov), 0.1, 3, [0x3f91_2bb1, 0xc012_e71b, 0x3ef2_c03c, 0x4049_d9c0]);
    let dampened = SgdOptions { dampening: 0.5, ..momentum };
    check(Optimizer::Sgd(dampened), 0.1, 3, [0x3f82_52bd, 0xc002_ee63, 0x3ee4_f0d8, 0x4047_5254]);
    let long = SgdOptions { dampening: 0.1, weight_decay: 0.1, ..momentum };
    check(Optimizer::Sgd(long), 0.1, 30, [0x403c_634a, 0xc0c7_fc38, 0xbd5f_c1ba, 0x4011_29fb]);
}

#[test]
fn lion_matches_the_formula() {
    let lion = LionOptions { betas: [0.9, 0.99], weight_decay: 0.1 };
    let expect = [0.987_033_07_f32, -1.984_036_1, 0.488_511_5, 3.000_999];
    check(Optimizer::Lion(lion), 0.01, 3, expect.map(f32::to_bits));
    // A gradient and a mean of zero move nothing.
    let mut params = [1.0, 2.0];
    let step = Optimizer::Lion(LionOptions::default()).step(1, 0.1, 1.0);
    step.update(&mut params, &mut [[0.0; 2]], &[0.0, 3.0]);
    assert_eq!(params.map(f32::to_bits), [1.0f32, 1.9].map(f32::to_bits));
}

#[test]
fn decay_is_left_out_where_it_does_not_apply() {
    let optimizers = |weight_decay| {
        [
            Optimizer::Adam(adam(weight_decay, WeightDecay::Decoupled)),
            Optimizer::Adam(adam(weight_decay, WeightDecay::L2)),
            Optimizer::Sgd(SgdOptions { weight_decay, ..SgdOptions::default() }),
            Optimizer::Lion(LionOptions { weight_decay, ..LionOptions::default() }),
        ]
    };
    for (decayed, plain) in optimizers(0.5).into_iter().zip(optimizers(0.0)) {
        let update = |step: OptimizerStep| {
            let mut params = [1.0, -2.0, 0.5, 3.0];
            let mut states = vec![[0.0; 4]; decayed.state_names().len()];
            step.update(&mut params, &mut states, &GRADIENTS[0]);
            params.map(f32::to_bits)
        };
        let (with, without) = (decayed.step(1, 0.1, 1.0), plain.step(1, 0.1, 1.0));
        assert_eq!(update(with.without_decay()), update(without), "{decayed:?}");
        assert_ne!(update(with), update(without), "{decayed:?}");
    }
}

/// All rules, with all branches of their loops.
fn any_optimizer() -> impl Strategy<Value = Optimizer> {
    let weight_decay = prop_oneof![Just(0.0), Just(0.1)];
    let decay = prop_oneof![Just(WeightDecay::Decoupled), Just(WeightDecay::L2)];
    let beta1 = prop_oneof![Just(0.9), Just(0.3)];
    let momentum = prop_oneof![Just(0.0), Just(0.9)];
    let sgd = (momentum, any::<bool>(), weight_decay.clone());
    prop_oneof![
        (beta1, weight_decay.clone(), decay, any::<bool>()).prop_map(
            |(beta1, weight_decay, decay, bias_correction)| {
                let betas = [beta1, 0.99];
                let adam = AdamOptions::default();
                Optimizer::Adam(AdamOptions { betas, weight_decay, decay, bias_correction, ..adam })
            }
        ),
        sgd.prop_map(|(momentum, nesterov, weight_decay)| {
            let dampening = if nesterov { 0.0 } else { 0.25 };
            Optimizer::Sgd(SgdOptions { momentum, dampening, nesterov, weight_decay })
        }),
        weight_decay.prop_map(|weight_decay| {
            Optimizer::Lion(LionOptions { betas: [0.9, 0.99], weight_decay })
        }),
    ]
}

/// Bits of parameters and states after three steps; `update` performs one of them.
fn three_steps(
    optimizer: Optimizer,
    start: &[f32],
    update: impl Fn(&OptimizerStep, &mut [f32], &mut [Vec<f32>], &[f32]),
) -> Vec<u32> {
    let mut params = start.to_vec();
    let mut states = vec![vec![0.0; start.len()]; optimizer.state_names().len()];
    for number in 1..4 {
        let gradients: Vec<f32> =
            params.iter().enumerate().map(|(i, p)| p * 0.3 + (i % 7) as f32 - 3.0).collect();
        update(&optimizer.step(number, 0.01, 0.7), &mut params, &mut states, &gradients);
    }
    params.into_iter().chain(states.concat()).map(f32::to_bits).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Ranks that own shards, with any boundaries, get the bits of one update of the whole.
    #[test]
    fn update_has_the_same_bits_for_any_shards(
        optimizer in any_optimizer(),
        start in proptest::collection::vec(-3.0f32..3.0, 1..600),
        cuts in proptest::collection::vec(0usize..600, 0..5),
    ) {
        let whole = three_steps(optimizer, &start, |step, params, states, gradients| {
            step.update(params, states, gradients);
        });
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(start.len())).collect();
        cuts.extend([0, start.len()]);
        cuts.sort_unstable();
        let cut = at_every_level(|| {
            three_steps(optimizer, &start, |step, params, states, gradients| {
                for cut in cuts.windows(2) {
                    let range = cut[0]..cut[1];
                    let mut states: Vec<&mut [f32]> =
                        states.iter_mut().map(|state| &mut state[range.clone()]).collect();
                    step.update(&mut params[range.clone()], &mut states, &gradients[range]);
                }
            })
        });
        prop_assert!(cut.iter().all(|bits| *bits == whole));
    }
}

#[test]
fn update_has_the_same_bits_with_any_threads() {
    let start: Vec<f32> = (0..50_000).map(|i| (i % 101) as f32 * 0.1 - 5.0).collect();
    let ranges = [(0..20_001, true), (20_001..20_001, true), (20_001..50_000, false)]
        .map(|(range, decays)| DecayRange { range, decays });
    let optimizers = [
        Optimizer::Adam(adam(0.1, WeightDecay::Decoupled)),
        Optimizer::Sgd(SgdOptions { momentum: 0.9, weight_decay: 0.1, ..SgdOptions::default() }),
        Optimizer::Sgd(SgdOptions { weight_decay: 0.1, ..SgdOptions::default() }),
    ];
    for optimizer in optimizers {
        let with = |parallel: &dyn Parallel| {
            three_steps(optimizer, &start, |step, params, states, gradients| {
                step.update_ranges(parallel, &ranges, params, states, gradients);
            })
        };
        let expect = three_steps(optimizer, &start, |step, params, states, gradients| {
            for DecayRange { range, decays } in ranges.clone() {
                let step = if decays { *step } else { step.without_decay() };
                let mut states: Vec<&mut [f32]> =
                    states.iter_mut().map(|state| &mut state[range.clone()]).collect();
                step.update(&mut params[range.clone()], &mut states, &gradients[range]);
            }
        });
        assert!(with(&Serial) == expect);
        assert!((1..5).all(|threads| with(&Strided(threads)) == expect));
    }
}

#[test]
#[should_panic(expected = "the ranges cover the slice")]
fn ranges_that_leave_out_elements_are_a_bug() {
    let step = Optimizer::Sgd(SgdOptions::default()).step(1, 0.1, 1.0);
    let ranges = [DecayRange { range: 0..2, decays: true }];
    step.update_ranges(&Serial, &ranges, &mut [0.0; 3], &mut [[0.0f32; 0]; 0], &[0.0; 3]);
}
