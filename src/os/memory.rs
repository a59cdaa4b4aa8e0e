//! Memory that processes share.
