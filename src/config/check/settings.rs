//! The settings of a file, by their paths.

use std::collections::BTreeMap;

use crate::base::Span;
use crate::base::order;
use crate::config::tree::ConfigValue;

/// A setting that the file gives.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::config) struct GivenSetting {
    pub(in crate::config) value: GivenValue,
    /// The place of the value.
    pub(in crate::config) span: Span,
    /// The place of the key.
    pub(in crate::config) key_span: Span,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::config) enum GivenValue {
    /// `auto`: computed by a rule, or the default.
    Auto,
    /// A value of the key's type.
    Is(ConfigValue),
    /// A value that was refused: the default takes its place, so that other settings can be checked.
    Invalid,
}

/// The settings of a file.
#[derive(Clone, Debug, Default)]
pub(in crate::config) struct GivenSettings {
    map: BTreeMap<String, GivenSetting>,
}

impl GivenSettings {
    /// Returns a setting by its path: `zero_optimization.stage`.
    pub(in crate::config) fn get(&self, path: &str) -> Option<&GivenSetting> {
        self.map.get(path)
    }

    /// The value of a setting that is given and is not `auto`.
    pub(in crate::config) fn given(&self, path: &str) -> Option<&ConfigValue> {
        match &self.get(path)?.value {
            GivenValue::Is(value) => Some(value),
            GivenValue::Auto | GivenValue::Invalid => None,
        }
    }

    /// Whether a setting is given and true.
    pub(in crate::config) fn is_on(&self, path: &str) -> bool {
        self.given(path) == Some(&ConfigValue::Bool(true))
    }

    /// The places of the values, by the paths of their keys.
    pub(in crate::config) fn places(&self) -> BTreeMap<String, Span> {
        order::map(self.map.iter().map(|(path, setting)| (path.clone(), setting.span)))
    }

    pub(super) fn insert(&mut self, path: String, setting: GivenSetting) {
        self.map.insert(path, setting);
    }
}

/// A key of the file that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ineffective {
    /// Its path: `zero_optimization.overlap_comm`.
    pub path: String,
    /// Where the key is.
    pub span: Span,
    /// Why it has none.
    pub reason: String,
}

/// The path of a key in a section.
pub(in crate::config) fn join(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}
