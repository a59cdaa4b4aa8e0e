//! Names of what a device has: addresses, streams, events, and the arguments of kernels.

use std::fmt;

use crate::cuda::kernels::ElementType;

/// Address in the memory of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceAddress(pub u64);

impl DeviceAddress {
    /// The address that no memory has: an argument that a kernel does not use.
    pub const NULL: Self = Self(0);

    /// Returns the address `bytes` behind this one.
    #[must_use]
    pub fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

impl fmt::Debug for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Stream of a device: its operations are executed in the order in which they were submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub u32);

/// Event of a device. It marks a place in a stream, and a later record moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId(pub u32);

/// Pinned memory of the host, which a device has for copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PinnedId(pub u32);

/// Kernel whose source is made at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceKernel {
    /// Name of the function, which no other kernel has.
    pub name: String,
    /// Complete CUDA source.
    pub source: String,
}

/// Argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KernelArgument {
    /// Memory of the device, or [`DeviceAddress::NULL`].
    Address(DeviceAddress),
    /// `unsigned`.
    U32(u32),
    /// `int`.
    I32(i32),
    /// `unsigned long long`.
    U64(u64),
    /// `float`.
    F32(f32),
    /// `double`.
    F64(f64),
}

impl KernelArgument {
    /// Returns a size as an `int`, in which kernels count rows and columns.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn int(size: u32) -> Self {
        Self::I32(i32::try_from(size).expect("sizes of models fit an int"))
    }

    /// Returns the argument as the kernel reads it, from the first byte of a word on.
    pub fn word(self) -> [u8; 8] {
        let mut word = [0; 8];
        match self {
            Self::Address(address) => word = address.0.to_ne_bytes(),
            Self::U64(value) => word = value.to_ne_bytes(),
            Self::F64(value) => word = value.to_ne_bytes(),
            Self::U32(value) => word[..4].copy_from_slice(&value.to_ne_bytes()),
            Self::I32(value) => word[..4].copy_from_slice(&value.to_ne_bytes()),
            Self::F32(value) => word[..4].copy_from_slice(&value.to_ne_bytes()),
        }
        word
    }
}

/// Matrix in the memory of a device, row after row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMatrix {
    /// Address of the first element.
    pub address: DeviceAddress,
    /// Rows, as they lie in memory.
    pub rows: u32,
    /// Columns, as they lie in memory.
    pub columns: u32,
    /// Elements from the begin of a row to that of the next one.
    pub stride: u32,
    /// Type of the elements.
    pub element: ElementType,
}

impl DeviceMatrix {
    /// Returns a matrix whose rows are adjacent.
    pub fn new(address: DeviceAddress, rows: u32, columns: u32, element: ElementType) -> Self {
        Self { address, rows, columns, stride: columns, element }
    }

    /// Returns the same matrix with rows that are `stride` elements apart.
    #[must_use]
    pub fn with_stride(self, stride: u32) -> Self {
        assert!(self.columns <= stride, "rows do not overlap");
        Self { stride, ..self }
    }

    /// Rows and columns of the operand.
    pub(super) fn shape(&self, is_transposed: bool) -> (u32, u32) {
        if is_transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }
}
