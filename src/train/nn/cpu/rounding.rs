//! Rounding of activations to the 16-bit type in which a model computes.

use crate::os::cpu::simd_versions::versions;
use crate::runtime::Dtype;
use crate::runtime::dtype::half::{Bf16, F16, HalfFloat};
use crate::train::ModelFloat;

/// Rounds every value to the nearest value of a 16-bit type, ties to even. Other types change nothing.
pub(crate) fn round_to<F: ModelFloat>(values: &mut [F], compute: Dtype) {
    match compute {
        Dtype::Bf16 => round_to_bf16(values),
        Dtype::F16 => round_to_f16(values),
        Dtype::F32 | Dtype::F64 | Dtype::I32 | Dtype::I64 | Dtype::U8 => {}
    }
}

versions! {
    /// Rounds to `bf16`.
    fn round_to_bf16<F: ModelFloat>(values: &mut [F]) {
        for value in values.iter_mut() {
            *value = F::from_f64(f64::from(Bf16::round(value.to_f64() as f32).widen()));
        }
    }

    /// Rounds to `f16`.
    fn round_to_f16<F: ModelFloat>(values: &mut [F]) {
        for value in values.iter_mut() {
            *value = F::from_f64(f64::from(F16::round(value.to_f64() as f32).widen()));
        }
    }
}
