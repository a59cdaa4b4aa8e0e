//! [`DeviceRows`]: activations in the memory of a device.

use crate::cuda::device::{DeviceAddress, DeviceError, DeviceMatrix, StreamId, UploadRing};
use crate::cuda::kernels::ElementType;

/// Rows of features, padded so that a row consists of whole packs; the padding is zeros.
pub(super) struct DeviceRows {
    /// Address of the first element.
    pub(super) address: DeviceAddress,
    /// Number of rows.
    pub(super) rows: u32,
    /// Features of a row.
    pub(super) width: u32,
    /// Elements of a row with the padding.
    pub(super) stride: u32,
    /// Type of the elements.
    pub(super) element: ElementType,
}

impl DeviceRows {
    /// Elements of a row with the padding.
    pub(super) fn stride_of(width: u32, element: ElementType) -> u32 {
        width.next_multiple_of(element.pack())
    }

    /// Address of the first element.
    pub(super) fn address(&self) -> DeviceAddress {
        self.address
    }

    /// Number of elements, with the padding.
    pub(super) fn len(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.stride)
    }

    /// The rows as a matrix without the padding.
    pub(super) fn matrix(&self) -> DeviceMatrix {
        DeviceMatrix::new(self.address(), self.rows, self.width, self.element)
            .with_stride(self.stride)
    }

    /// Fills the rows with values of the host, rounded to the type of the elements.
    pub(super) fn upload(
        &self,
        uploads: &mut UploadRing,
        stream: StreamId,
        values: &[f32],
    ) -> Result<(), DeviceError> {
        let [rows, width, stride] = [self.rows, self.width, self.stride].map(|size| size as usize);
        assert_eq!(values.len(), rows * width, "there is a value for each element");
        let mut padded = vec![0.0; rows * stride];
        for (to, from) in padded.chunks_exact_mut(stride).zip(values.chunks_exact(width)) {
            to[..width].copy_from_slice(from);
        }
        uploads.upload(stream, &self.element.encode(&padded), self.address())
    }
}
