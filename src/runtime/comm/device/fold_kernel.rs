//! CUDA source of reductions in the canonical order: the unrolled [tree](crate::runtime::schedule::tree) of a
//! number of parts.
//!
//! Elements are widened, combined and rounded by the same operations as in `half` and `element`, so
//! a device computes the same bits as a CPU; only the payload of a NaN may differ.

use std::fmt::Write as _;

use crate::runtime::dtype::element::{Dtype, ReduceOp};
use crate::runtime::schedule::tree::{Fold, Operand, Step};

/// Bytes that a thread loads from every part at once.
pub(crate) const PACK_BYTES: usize = 16;

/// CUDA kernel that reduces parts in the order of the canonical tree.
///
/// In C, `extern "C" __global__ void NAME(T *parts, unsigned long long stride, unsigned long long
/// packs)`: part `p` begins at element `p * stride`, and in the end the first part is the reduction of
/// all. `parts` and strides are aligned to 16 bytes, and a pack is 16 bytes of every part: what lies
/// between the end of the numbers and the end of their last pack is read and changed too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FoldKernel {
    /// Element type of the parts.
    pub dtype: Dtype,
    /// Reduction.
    pub op: ReduceOp,
    /// Number of parts.
    pub parts: usize,
}

impl FoldKernel {
    /// Returns the name of the kernel, such as `fold_f32_sum_4`.
    pub fn name(&self) -> String {
        format!("fold_{}_{}_{}", self.dtype, self.op, self.parts)
    }

    /// Returns the number of elements of a pack.
    pub fn pack(&self) -> usize {
        PACK_BYTES / self.dtype.bytes()
    }

    /// Returns the complete CUDA source.
    pub fn source(&self) -> String {
        let Types { stored, sum, unsigned } = types_of(self.dtype);
        let (pack, name) = (self.pack(), self.name());
        let conversions = conversion_functions(self.dtype);
        let combined = combine_expr(self.op, unsigned);
        let fold = Fold::of(self.parts);
        let (steps, result) = (steps(&fold), operand_expr(fold.result));
        let result = match self.op {
            ReduceOp::Avg => mean_expr(self.dtype, &self.parts.to_string(), &result),
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max => result,
        };
        format!(
            "\
typedef {stored} stored;
typedef {sum} sum_t;
struct __align__({PACK_BYTES}) pack_t {{ stored at[{pack}]; }};

{conversions}
static __device__ __forceinline__ sum_t combine(sum_t left, sum_t right) {{
    return {combined};
}}

extern \"C\" __global__ void {name}(stored *parts, unsigned long long stride, unsigned long long packs) {{
    pack_t *all = (pack_t *)parts;
    const unsigned long long next = stride / {pack}, threads = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; at < packs; at += threads) {{
        pack_t result;
#pragma unroll
        for (int i = 0; i < {pack}; i++) {{
{steps}            result.at[i] = narrow({result});
        }}
        all[at] = result;
    }}
}}
"
        )
    }
}

/// CUDA types in which elements are stored and combined.
pub(super) struct Types {
    pub(super) stored: &'static str,
    pub(super) sum: &'static str,
    /// Unsigned type for wrapping arithmetic of integers.
    pub(super) unsigned: Option<&'static str>,
}

pub(super) fn types_of(dtype: Dtype) -> Types {
    let float = |stored, sum| Types { stored, sum, unsigned: None };
    let integer = |stored, unsigned| Types { stored, sum: stored, unsigned: Some(unsigned) };
    match dtype {
        Dtype::F32 => float("float", "float"),
        Dtype::F64 => float("double", "double"),
        Dtype::F16 | Dtype::Bf16 => float("unsigned short", "float"),
        Dtype::I32 => integer("int", "unsigned int"),
        Dtype::I64 => integer("long long", "unsigned long long"),
        Dtype::U8 => integer("unsigned char", "unsigned int"),
    }
}

/// The CUDA functions `widen` and `narrow`, from `stored` to `sum_t` and back.
pub(super) fn conversion_functions(dtype: Dtype) -> String {
    let (widen, narrow) = conversions_of(dtype);
    format!(
        "\
static __device__ __forceinline__ sum_t widen(stored value) {{
{widen}}}

static __device__ __forceinline__ stored narrow(sum_t value) {{
{narrow}}}
"
    )
}

/// Bodies of the CUDA functions `widen` and `narrow`; see `half`.
fn conversions_of(dtype: Dtype) -> (&'static str, &'static str) {
    match dtype {
        Dtype::F16 => (
            "    const unsigned int magnitude = (value & 0x7fffu) << 13;
    const float finite = __uint_as_float(magnitude) * __uint_as_float(239u << 23);
    const bool is_finite = magnitude < 0x7c00u << 13;
    const unsigned int bits = is_finite ? __float_as_uint(finite) : 0x7f800000u | magnitude;
    return __uint_as_float((value & 0x8000u) << 16 | bits);
",
            "    const unsigned int bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu;
    unsigned int half;
    if (0x47800000u <= magnitude)
        half = 0x7f800000u < magnitude ? 0x7e00u : 0x7c00u;
    else if (magnitude < 0x38800000u)
        half = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
    else
        half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    return (unsigned short)((bits & 0x80000000u) >> 16 | half);
",
        ),
        Dtype::Bf16 => (
            "    return __uint_as_float((unsigned int)value << 16);
",
            "    const unsigned int bits = __float_as_uint(value);
    const bool is_nan = 0x7f800000u < (bits & 0x7fffffffu);
    return (unsigned short)(is_nan ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
",
        ),
        Dtype::F32 | Dtype::F64 | Dtype::I32 | Dtype::I64 | Dtype::U8 => {
            ("    return value;\n", "    return value;\n")
        }
    }
}

/// Expression for the combination of `left` and `right`.
pub(super) fn combine_expr(op: ReduceOp, unsigned: Option<&str>) -> String {
    match (op, unsigned) {
        (ReduceOp::Sum | ReduceOp::Avg, None) => "left + right".to_owned(),
        (ReduceOp::Prod, None) => "left * right".to_owned(),
        (ReduceOp::Sum | ReduceOp::Avg, Some(wraps)) => {
            format!("(sum_t)(({wraps})left + ({wraps})right)")
        }
        (ReduceOp::Prod, Some(wraps)) => format!("(sum_t)(({wraps})left * ({wraps})right)"),
        (ReduceOp::Min, _) => "right < left || right != right ? right : left".to_owned(),
        (ReduceOp::Max, _) => "left < right || right != right ? right : left".to_owned(),
    }
}

/// Expression for a sum divided by a positive number: for floats one rounding of 1/divisor and one of the
/// product; integers are divided and rounded towards zero.
pub(super) fn mean_expr(dtype: Dtype, divisor: &str, sum: &str) -> String {
    match dtype {
        Dtype::F32 | Dtype::F64 | Dtype::F16 | Dtype::Bf16 => {
            format!("{sum} * ((sum_t)1 / (sum_t){divisor})")
        }
        Dtype::I32 | Dtype::I64 | Dtype::U8 => {
            format!("(sum_t)((long long){sum} / (long long){divisor})")
        }
    }
}

/// Source lines of the steps of a fold; each overwrites a scratch variable as the fold does on a CPU.
fn steps(fold: &Fold) -> String {
    let mut lines = String::new();
    let mut write = |line: String| {
        writeln!(lines, "            {line}").expect("writing to a string succeeds");
    };
    if 0 < fold.scratch {
        let names: Vec<_> = (0..fold.scratch).map(|index| format!("s{index}")).collect();
        write(format!("sum_t {};", names.join(", ")));
    }
    for Step { into, left, right } in &fold.steps {
        write(format!("s{into} = combine({}, {});", operand_expr(*left), operand_expr(*right)));
    }
    lines
}

fn operand_expr(operand: Operand) -> String {
    match operand {
        Operand::Source(part) => format!("widen(all[{part} * next + at].at[i])"),
        Operand::Scratch(index) => format!("s{index}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_source_unrolls_the_tree() {
        let source = FoldKernel { dtype: Dtype::F32, op: ReduceOp::Avg, parts: 3 }.source();
        let expect = "\
            sum_t s0;
            s0 = combine(widen(all[0 * next + at].at[i]), widen(all[1 * next + at].at[i]));
            s0 = combine(s0, widen(all[2 * next + at].at[i]));
            result.at[i] = narrow(s0 * ((sum_t)1 / (sum_t)3));
";
        assert!(source.contains(expect.trim_start()), "{source}");
    }
}
