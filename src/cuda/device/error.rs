//! [`DeviceError`]: an operation of a device that failed.

/// Error of an operation of a device.
///
/// A device reports the error of a launch when it executes it, so the operation that fails may be a later one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device has not as much memory.
    #[error("cannot allocate {bytes} B on the device: {problem}")]
    OutOfMemory {
        /// Bytes that were asked for.
        bytes: usize,
        /// Message of the driver.
        problem: String,
    },
    /// A model cannot compute on a device as it is.
    #[error("{problem}")]
    Unsupported {
        /// What is not supported, and what is.
        problem: String,
    },
    /// The device cannot compute what the devices of the other ranks compute.
    #[error("{problem}")]
    Differs {
        /// How it differs.
        problem: String,
    },
    /// What the devices of several ranks exchange failed, on this rank or another one.
    #[error("an exchange between the devices of the ranks failed: {problem}")]
    Exchange {
        /// Which rank caused it and how, or the message of the library.
        problem: String,
    },
    /// A launch or a copy failed, or the device itself.
    #[error("the device failed at {operation}: {problem}")]
    Failed {
        /// What was asked of the device, such as the name of a kernel.
        operation: String,
        /// Message of the driver.
        problem: String,
    },
}
