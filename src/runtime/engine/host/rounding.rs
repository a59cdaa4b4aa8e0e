//! Rounding of gradients to a 16-bit type; they are kept as `f32`.

use crate::runtime::dtype::element::Dtype;
use crate::runtime::dtype::half::{Bf16, F16, HalfFloat};

/// Rounds every value to the nearest value of a 16-bit type, ties to even. Other types change nothing.
pub(super) fn round_to(values: &mut [f32], dtype: Dtype) {
    match dtype {
        Dtype::Bf16 => values.iter_mut().for_each(|value| *value = Bf16::round(*value).widen()),
        Dtype::F16 => values.iter_mut().for_each(|value| *value = F16::round(*value).widen()),
        Dtype::F32 | Dtype::F64 | Dtype::I32 | Dtype::I64 | Dtype::U8 => {}
    }
}
