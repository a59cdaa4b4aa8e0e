//! Number types of collectives on devices.

use cudarc::driver::{DeviceRepr, ValidAsZeroBits};

use crate::cuda::nccl::{DataType, Reduction};
use crate::runtime::dtype::element::{Dtype, Element, ReduceOp};

/// Number type for collectives on devices.
pub trait DeviceElement: Element + DeviceRepr + ValidAsZeroBits {}

impl<T: Element + DeviceRepr + ValidAsZeroBits> DeviceElement for T {}

impl From<Dtype> for DataType {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::U8 => Self::U8,
            Dtype::I32 => Self::I32,
            Dtype::I64 => Self::I64,
            Dtype::F16 => Self::F16,
            Dtype::F32 => Self::F32,
            Dtype::F64 => Self::F64,
            Dtype::Bf16 => Self::Bf16,
        }
    }
}

impl From<ReduceOp> for Reduction {
    fn from(op: ReduceOp) -> Self {
        match op {
            ReduceOp::Sum => Self::Sum,
            ReduceOp::Prod => Self::Prod,
            ReduceOp::Max => Self::Max,
            ReduceOp::Min => Self::Min,
            ReduceOp::Avg => Self::Avg,
        }
    }
}
