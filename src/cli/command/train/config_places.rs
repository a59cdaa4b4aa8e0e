//! [`ConfigPlaces`]: the places of the keys of `--deepspeed_config`, for errors that are found after it was read.

use std::collections::BTreeMap;

use crate::base::{Diagnostic, Findings, Source, Span, Status};
use crate::cli::error::CliError;
use crate::config::ConfigReading;

/// Text of a file of `--deepspeed_config`, and the places of the values that it gives.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConfigPlaces {
    source: Source,
    places: BTreeMap<String, Span>,
}

/// Key of a file, with the place of its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConfigPlace<'a> {
    /// Path of the key.
    pub(super) key: &'a str,
    source: &'a Source,
    span: Span,
}

impl ConfigPlaces {
    /// The places of a file.
    pub(super) fn of(reading: &ConfigReading) -> Self {
        Self { source: reading.findings.source.clone(), places: reading.places.clone() }
    }

    /// Returns the first of several keys that the file gives.
    pub(super) fn find<'a>(&'a self, keys: &[&'a str]) -> Option<ConfigPlace<'a>> {
        let source = &self.source;
        keys.iter().find_map(|key| Some(ConfigPlace { key, source, span: *self.places.get(*key)? }))
    }
}

impl ConfigPlace<'_> {
    /// Name of the file.
    pub(super) fn file(&self) -> &str {
        &self.source.name
    }

    /// Returns an error that points at the value.
    pub(super) fn refuse(
        &self,
        status: Status,
        code: &'static str,
        message: String,
        finish: impl FnOnce(Diagnostic) -> Diagnostic,
    ) -> CliError {
        let problem = finish(Diagnostic::error(code, self.span, message));
        let findings = Findings { source: self.source.clone(), diagnostics: vec![problem] };
        CliError::Findings { status, findings: vec![findings] }
    }
}
