//! What a model is trained for.

pub(crate) mod classification;
pub(crate) mod definition;
pub(crate) mod language;
