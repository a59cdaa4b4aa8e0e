pub(crate) mod core;
pub(crate) mod shm;
