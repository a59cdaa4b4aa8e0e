//! Rounding of gradients to a 16-bit type; they are kept as `f32`.

use crate::runtime::dtype::element::Dtype;
use crate::runtime::dtype::half::{Bf16, F16};
use crate::runtime::dtype::rounding::round_in_place;

/// Rounds every value to the nearest value of a 16-bit type, ties to even. Other types change nothing.
pub(super) fn round_to(values: &mut [f32], dtype: Dtype) {
    match dtype {
        Dtype::Bf16 => round_in_place::<Bf16>(values),
        Dtype::F16 => round_in_place::<F16>(values),
        Dtype::F32 | Dtype::F64 | Dtype::I32 | Dtype::I64 | Dtype::U8 => {}
    }
}
