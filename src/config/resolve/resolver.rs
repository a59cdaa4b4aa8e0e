//! Access to settings with their defaults and rules; every value that is asked for is noted.

use super::values::{ResolvedValue, ValueOrigin};
use crate::base::{Diagnostic, Span};
use crate::config::auto::{AutoValue, DEFAULT_RULE, auto_rule};
use crate::config::check::{GivenSettings, GivenValue, Ineffective, join};
use crate::config::inputs::ConfigInputs;
use crate::config::keys::{KeySpec, SectionSpec, section_of};
use crate::config::tree::ConfigValue;

/// Settings and arguments, and what was made of them so far.
pub(super) struct Resolver<'a> {
    pub(super) settings: &'a GivenSettings,
    pub(super) inputs: &'a ConfigInputs,
    pub(super) values: Vec<ResolvedValue>,
    pub(super) problems: Vec<Diagnostic>,
    pub(super) ineffective: Vec<Ineffective>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(settings: &'a GivenSettings, inputs: &'a ConfigInputs) -> Self {
        Self { settings, inputs, values: Vec::new(), problems: Vec::new(), ineffective: Vec::new() }
    }

    /// The keys of a section.
    pub(super) fn section<'r>(&'r mut self, path: &'static str) -> SectionView<'r, 'a> {
        self.section_with(section_of(path), path)
    }

    /// The keys of a section whose table depends on a type.
    pub(super) fn section_with<'r>(
        &'r mut self,
        spec: &'static SectionSpec,
        path: &'static str,
    ) -> SectionView<'r, 'a> {
        SectionView { resolver: self, spec, path }
    }

    /// Notes a value.
    pub(super) fn note(&mut self, path: &str, value: ConfigValue, origin: ValueOrigin) {
        self.values.push(ResolvedValue { path: path.to_owned(), value, origin });
    }

    /// Notes that a given key has no effect.
    pub(super) fn idle(&mut self, path: &str, reason: &str) {
        if let Some(setting) = self.settings.get(path) {
            let (path, reason) = (path.to_owned(), reason.to_owned());
            self.ineffective.push(Ineffective { path, span: setting.key_span, reason });
        }
    }

    /// The place of a key; the start of the text for a key that is not given.
    pub(super) fn key_span(&self, path: &str) -> Option<Span> {
        self.settings.get(path).map(|setting| setting.key_span)
    }

    /// The place of a value.
    pub(super) fn value_span(&self, path: &str) -> Option<Span> {
        self.settings.get(path).map(|setting| setting.span)
    }

    /// The value of an option for a key that the file does not have, and the option.
    fn typed_value(&self, path: &str) -> Option<(ConfigValue, &'static str)> {
        let is_contradiction = match path {
            "fp16.enabled" => self.settings.is_on("bf16.enabled"),
            "bf16.enabled" => self.settings.is_on("fp16.enabled"),
            _ => false,
        };
        let typed = auto_rule(path).and_then(|rule| rule.typed_value(self.inputs));
        typed.filter(|_| !is_contradiction)
    }

    /// Whether the file gives a key as `auto`.
    pub(super) fn is_auto(&self, path: &str) -> bool {
        self.settings.get(path).is_some_and(|setting| setting.value == GivenValue::Auto)
    }
}

/// The keys of one section.
pub(super) struct SectionView<'r, 'a> {
    pub(super) resolver: &'r mut Resolver<'a>,
    spec: &'static SectionSpec,
    path: &'static str,
}

impl SectionView<'_, '_> {
    fn key(&self, name: &str) -> &'static KeySpec {
        let found = self.spec.keys.iter().find(|key| key.is_named(name));
        found.expect("the name of a key of the table")
    }

    /// The path of a key.
    pub(super) fn path_of(&self, name: &str) -> String {
        join(self.path, name)
    }

    /// The value of a key: given, by its rule, or its default.
    fn take(&mut self, name: &str) -> ConfigValue {
        let key = self.key(name);
        let path = self.path_of(name);
        let default = || key.default.value().unwrap_or(ConfigValue::Null);
        let (value, origin) = match self.resolver.settings.get(&path).map(|found| &found.value) {
            Some(GivenValue::Is(value)) => (value.clone(), ValueOrigin::File),
            Some(GivenValue::Auto) => match auto_rule(&path) {
                None => (
                    default(),
                    ValueOrigin::Auto { rule: DEFAULT_RULE, source: DEFAULT_RULE.to_owned() },
                ),
                Some(rule) => {
                    let value = match rule.value(self.resolver.inputs) {
                        AutoValue::Is(value) => value,
                        AutoValue::Default | AutoValue::Derived => default(),
                    };
                    (value, ValueOrigin::of_rule(rule, self.resolver.inputs))
                }
            },
            None => match self.resolver.typed_value(&path) {
                Some((value, option)) => (value, ValueOrigin::Derived(format!("`{option}`"))),
                None => (default(), ValueOrigin::Default),
            },
            Some(GivenValue::Invalid) => (default(), ValueOrigin::Default),
        };
        self.resolver.note(&path, value.clone(), origin);
        value
    }

    /// The value of a key that follows from other values if it is not given.
    pub(super) fn number_or(&mut self, name: &str, derived: f64, words: &str) -> f64 {
        let path = self.path_of(name);
        if let Some(found) = self.resolver.settings.given(&path).and_then(as_number) {
            self.resolver.note(&path, ConfigValue::Float(found), ValueOrigin::File);
            return found;
        }
        let is_auto = self.resolver.is_auto(&path);
        let rule = auto_rule(&path).filter(|_| is_auto);
        let origin = match rule {
            Some(rule) => ValueOrigin::of_rule(rule, self.resolver.inputs),
            None => ValueOrigin::Derived(words.to_owned()),
        };
        self.resolver.note(&path, ConfigValue::Float(derived), origin);
        derived
    }

    pub(super) fn flag(&mut self, name: &str) -> bool {
        self.take(name) == ConfigValue::Bool(true)
    }

    pub(super) fn whole(&mut self, name: &str) -> i64 {
        as_whole(&self.take(name)).unwrap_or_default()
    }

    /// A whole number whose table has no negative ones.
    pub(super) fn count(&mut self, name: &str) -> u64 {
        u64::try_from(self.whole(name)).unwrap_or_default()
    }

    /// A number of things that may be `null`.
    pub(super) fn count_or_none(&mut self, name: &str) -> Option<u64> {
        as_whole(&self.take(name)).and_then(|number| u64::try_from(number).ok())
    }

    pub(super) fn number(&mut self, name: &str) -> f64 {
        as_number(&self.take(name)).unwrap_or_default()
    }

    pub(super) fn text(&mut self, name: &str) -> String {
        match self.take(name) {
            ConfigValue::Text(text) => text,
            _ => String::new(),
        }
    }

    pub(super) fn text_or_none(&mut self, name: &str) -> Option<String> {
        match self.take(name) {
            ConfigValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn pair(&mut self, name: &str) -> [f64; 2] {
        match self.take(name) {
            ConfigValue::List(items) => {
                let mut numbers = items.iter().filter_map(|item| as_number(&item.value));
                [numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()]
            }
            _ => [0.0; 2],
        }
    }
}

fn as_number(value: &ConfigValue) -> Option<f64> {
    match value {
        ConfigValue::Whole(number) => Some(*number as f64),
        ConfigValue::Float(number) => Some(*number),
        _ => None,
    }
}

fn as_whole(value: &ConfigValue) -> Option<i64> {
    match value {
        ConfigValue::Whole(number) => Some(*number),
        _ => None,
    }
}
