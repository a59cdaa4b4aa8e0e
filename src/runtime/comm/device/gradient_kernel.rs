//! CUDA source of the arithmetic on the gradients of micro-batches.
//!
//! Elements are widened, combined and rounded as in [`FoldKernel`](super::FoldKernel), so a device computes the
//! same bits as a CPU; only the payload of a NaN may differ.

use crate::runtime::comm::device::fold_kernel::{
    Types, combine_expr, conversion_functions, mean_expr, types_of,
};
use crate::runtime::dtype::element::{Dtype, ReduceOp};

/// CUDA kernel on gradients of `len` elements.
///
/// In C, where `T` is the element type:
///
/// | operation | kernel |
/// |---|---|
/// | [`GradientOp::Add`] | `extern "C" __global__ void NAME(T *newer, const T *older, unsigned long long len)` |
/// | [`GradientOp::Divide`] | `extern "C" __global__ void NAME(T *values, unsigned long long divisor, unsigned long long len)` |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GradientKernel {
    /// Element type.
    pub dtype: Dtype,
    /// Operation.
    pub op: GradientOp,
}

/// Operation on gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GradientOp {
    /// Replaces `newer` by `older + newer`.
    Add,
    /// Divides by a number: for floats one rounding of 1/divisor and one of the product; integers are rounded
    /// towards zero.
    Divide,
}

impl GradientKernel {
    /// Returns the name of the kernel, such as `add_f32`.
    pub fn name(&self) -> String {
        let op = match self.op {
            GradientOp::Add => "add",
            GradientOp::Divide => "divide",
        };
        format!("{op}_{}", self.dtype)
    }

    /// Returns the complete CUDA source.
    pub fn source(&self) -> String {
        let Types { stored, sum, unsigned } = types_of(self.dtype);
        let conversions = conversion_functions(self.dtype);
        let (target, parameter, operands, value) = match self.op {
            GradientOp::Add => (
                "newer",
                "const stored *older",
                "left = widen(older[at]), right = widen(newer[at])",
                combine_expr(ReduceOp::Sum, unsigned),
            ),
            GradientOp::Divide => (
                "values",
                "unsigned long long divisor",
                "whole = widen(values[at])",
                mean_expr(self.dtype, "divisor", "whole"),
            ),
        };
        let name = self.name();
        format!(
            "\
typedef {stored} stored;
typedef {sum} sum_t;

{conversions}
extern \"C\" __global__ void {name}(stored *{target}, {parameter}, unsigned long long len) {{
    const unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; at < len; at += threads) {{
        const sum_t {operands};
        const sum_t value = {value};
        {target}[at] = narrow(value);
    }}
}}
"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_rounds_the_factor_and_the_product() {
        let source = GradientKernel { dtype: Dtype::F32, op: GradientOp::Divide }.source();
        let expect = "\
        const sum_t whole = widen(values[at]);
        const sum_t value = whole * ((sum_t)1 / (sum_t)divisor);
        values[at] = narrow(value);
";
        assert!(source.contains(expect.trim_start()), "{source}");
    }
}
