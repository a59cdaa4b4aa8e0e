//! Number types of collectives on devices.

use cudarc::driver::{DeviceRepr, ValidAsZeroBits};

use crate::cuda::nccl::{DataType, NcclElement, Reduction};
use crate::runtime::dtype::element::{Dtype, Element, ReduceOp};

/// Number type for collectives on devices.
pub trait DeviceElement: Element + DeviceRepr + ValidAsZeroBits {}

impl<T: Element + DeviceRepr + ValidAsZeroBits> DeviceElement for T {}

impl<T: Element> NcclElement for T {
    const DATA_TYPE: DataType = match T::DTYPE {
        Dtype::U8 => DataType::U8,
        Dtype::I32 => DataType::I32,
        Dtype::I64 => DataType::I64,
        Dtype::F16 => DataType::F16,
        Dtype::F32 => DataType::F32,
        Dtype::F64 => DataType::F64,
        Dtype::Bf16 => DataType::Bf16,
    };
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
