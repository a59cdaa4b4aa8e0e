//! Messages of NVIDIA's driver.

use cudarc::driver::DriverError;

/// The driver's message for an error.
pub(crate) fn driver_message(error: DriverError) -> String {
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    text.unwrap_or_else(|_| format!("CUDA error {:?}", error.0))
}
