//! Files and file descriptors.

#[cfg(feature = "cli")]
pub mod async_fd;
pub mod disk_space;
pub mod fds;
pub mod input_file;
pub mod io_errors;
pub mod scratch_memory;
#[cfg(feature = "cli")]
pub mod shared_file;
#[cfg(feature = "cli")]
pub mod virtual_env;
pub mod writeback;
