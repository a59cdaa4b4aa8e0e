//! Files and file descriptors.

#[cfg(feature = "cli")]
pub mod async_fd;
pub mod fds;
pub mod input_file;
pub mod io_errors;
#[cfg(feature = "cli")]
pub mod shared_file;
pub mod writeback;
