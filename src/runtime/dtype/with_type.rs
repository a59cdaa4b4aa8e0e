//! Code for the element type that a [`Dtype`](super::element::Dtype) states at run time.

/// Evaluates an expression with the element type `$type` of a `Dtype`.
macro_rules! with_type {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            $crate::runtime::dtype::element::Dtype::F32 => {
                type $type = f32;
                $body
            }
            $crate::runtime::dtype::element::Dtype::F64 => {
                type $type = f64;
                $body
            }
            $crate::runtime::dtype::element::Dtype::I32 => {
                type $type = i32;
                $body
            }
            $crate::runtime::dtype::element::Dtype::I64 => {
                type $type = i64;
                $body
            }
            $crate::runtime::dtype::element::Dtype::U8 => {
                type $type = u8;
                $body
            }
            $crate::runtime::dtype::element::Dtype::F16 => {
                type $type = $crate::runtime::dtype::half::F16;
                $body
            }
            $crate::runtime::dtype::element::Dtype::Bf16 => {
                type $type = $crate::runtime::dtype::half::Bf16;
                $body
            }
        }
    };
}

pub(crate) use with_type;
