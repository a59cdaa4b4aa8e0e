//! The source files under test, and the modules that they import, under the same paths.

pub(crate) mod comm;
