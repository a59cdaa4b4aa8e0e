//! Placeholder header, replaced by its author.
