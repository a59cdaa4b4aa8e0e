//! Tensors, and the pieces of them that a rank saves.

use std::fmt;
use std::ops::Range;

use crate::runtime::dtype::element::{Dtype, Element};

/// Largest length of the name of a tensor in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// Name, type and shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name of the tensor: that of its parameter, and of its state after a `/`.
    pub name: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Size of every dimension.
    pub shape: Vec<usize>,
}

impl TensorInfo {
    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the number of bytes of all elements.
    pub fn bytes(&self) -> u64 {
        self.elements() as u64 * self.dtype.bytes() as u64
    }
}

impl fmt::Display for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, dtype, shape } = self;
        write!(f, "`{name}` ({dtype} {shape:?})")
    }
}

/// Range of a tensor's elements that one rank saves. The pieces of all ranks cover every tensor exactly once.
#[derive(Clone, Debug)]
pub struct TensorPiece<'a> {
    /// Tensor to which it belongs.
    pub tensor: TensorInfo,
    /// Range of the tensor's elements, in row-major order; an empty one only announces the tensor.
    pub range: Range<usize>,
    /// The elements of the range, little-endian.
    pub bytes: &'a [u8],
}

impl<'a> TensorPiece<'a> {
    /// Creates a piece of a tensor of this name and shape: `values` are its elements in `range`.
    pub fn new<T: Element>(
        name: impl Into<String>,
        shape: &[usize],
        range: Range<usize>,
        values: &'a [T],
    ) -> Self {
        let tensor = TensorInfo { name: name.into(), dtype: T::DTYPE, shape: shape.to_vec() };
        Self { tensor, range, bytes: bytemuck::cast_slice(values) }
    }

    /// Checks that the piece is a part of its tensor.
    pub(super) fn check(&self) -> Result<(), String> {
        let Self { tensor, range, bytes } = self;
        check_name(&tensor.name)?;
        let Some(elements) = elements_of(&tensor.shape) else {
            return Err(format!("{tensor} has too many elements"));
        };
        if range.end < range.start || elements < range.end {
            let (start, end) = (range.start, range.end);
            return Err(format!("the range {start}..{end} is not within {tensor}"));
        }
        let expect = range.len() * tensor.dtype.bytes();
        if bytes.len() != expect {
            let (found, len) = (bytes.len(), range.len());
            return Err(format!("{len} elements of {tensor} have {expect} bytes, not {found}"));
        }
        Ok(())
    }
}

/// Number of elements of a shape whose bytes can be counted.
pub(super) fn elements_of(shape: &[usize]) -> Option<usize> {
    let elements = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
    elements.checked_mul(8).map(|_| elements)
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        Err("a tensor has no name".to_owned())
    } else if NAME_BYTES_MAX < name.len() {
        Err(format!("the name of a tensor has {} bytes, more than {NAME_BYTES_MAX}", name.len()))
    } else if name.chars().any(char::is_control) || name == "__metadata__" {
        Err(format!("a tensor cannot be called `{}`", name.escape_default()))
    } else {
        Ok(())
    }
}

/// Name of a type in safetensors.
pub(super) fn dtype_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "F32",
        Dtype::F64 => "F64",
        Dtype::I32 => "I32",
        Dtype::I64 => "I64",
        Dtype::U8 => "U8",
        Dtype::F16 => "F16",
        Dtype::Bf16 => "BF16",
    }
}

/// Type of a name in safetensors.
pub(super) fn parse_dtype(name: &str) -> Option<Dtype> {
    use Dtype::{Bf16, F16, F32, F64, I32, I64, U8};
    [F32, F64, I32, I64, U8, F16, Bf16].into_iter().find(|dtype| dtype_name(*dtype) == name)
}

/// Lists how the tensors of a checkpoint differ from those of a model; `extra` names a tensor that only the
/// checkpoint has.
pub(super) fn differences<'a>(
    found: impl Fn(&str) -> Option<TensorInfo>,
    all_found: impl Iterator<Item = &'a str>,
    expected: &[TensorInfo],
) -> Vec<String> {
    let mut lines = Vec::new();
    for tensor in expected {
        let TensorInfo { name, dtype, shape } = tensor;
        match found(name) {
            None => lines.push(format!("`{name}` is not in the checkpoint")),
            Some(saved) if saved.shape != *shape => {
                let saved = saved.shape;
                lines.push(format!("`{name}` has the shape {saved:?} instead of {shape:?}"));
            }
            Some(saved) if saved.dtype != *dtype => {
                let saved = saved.dtype;
                lines.push(format!("`{name}` has the type {saved} instead of {dtype}"));
            }
            Some(_) => {}
        }
    }
    let known: std::collections::HashSet<&str> =
        expected.iter().map(|tensor| tensor.name.as_str()).collect();
    let extra = all_found.filter(|name| !known.contains(name));
    lines.extend(extra.map(|name| format!("`{name}` is only in the checkpoint")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piece_must_be_a_part_of_its_tensor() {
        #[track_caller]
        fn check(name: &str, shape: &[usize], range: Range<usize>, expect: Result<(), &str>) {
            let found = TensorPiece::new(name, shape, range, &[1.0f32, 2.0]).check();
            assert_eq!(found, expect.map_err(str::to_owned));
        }
        check("a", &[2, 3], 4..6, Ok(()));
        check("a", &[2, 3], 5..7, Err("the range 5..7 is not within `a` (f32 [2, 3])"));
        check("a", &[2, 3], 0..1, Err("1 elements of `a` (f32 [2, 3]) have 4 bytes, not 8"));
        check("", &[2], 0..2, Err("a tensor has no name"));
        check("a\n", &[2], 0..2, Err("a tensor cannot be called `a\\n`"));
        let huge = [usize::MAX, 2];
        let expect = format!("`a` (f32 {huge:?}) has too many elements");
        check("a", &huge, 0..2, Err(&expect));
    }

    #[test]
    fn differences_of_models_are_listed() {
        let tensor = |name: &str, dtype, shape: &[usize]| TensorInfo {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
        };
        let saved = [
            tensor("a", Dtype::F32, &[2, 3]),
            tensor("b", Dtype::F32, &[2]),
            tensor("c", Dtype::F32, &[2]),
        ];
        let expected = [
            tensor("a", Dtype::F32, &[2, 4]),
            tensor("b", Dtype::Bf16, &[2]),
            tensor("d", Dtype::F32, &[2]),
        ];
        let find = |name: &str| saved.iter().find(|tensor| tensor.name == name).cloned();
        let names = saved.iter().map(|tensor| tensor.name.as_str());
        assert_eq!(
            differences(find, names, &expected),
            [
                "`a` has the shape [2, 3] instead of [2, 4]",
                "`b` has the type f32 instead of bf16",
                "`d` is not in the checkpoint",
                "`c` is only in the checkpoint",
            ]
        );
    }
}
