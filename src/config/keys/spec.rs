//! What a key of a configuration is: its type, its default, and its status in remuda.

use crate::base::Span;
use crate::config::tree::{ConfigNode, ConfigValue, show_number};

/// How DeepSpeed reads the keys of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionReader {
    /// Known keys are looked up: others are ignored, and values are not checked.
    Lookup,
    /// A model of pydantic: unknown keys are refused, values are converted, and `auto` is the default.
    Model,
    /// Arguments of a constructor: unknown keys are refused.
    Arguments,
}

/// A section: the keys of one object.
#[derive(Debug)]
pub struct SectionSpec {
    /// Its path, `zero_optimization.offload_param`; empty for the file itself.
    pub path: &'static str,
    /// How DeepSpeed reads it.
    pub reader: SectionReader,
    /// Its keys, in the order of DeepSpeed.
    pub keys: &'static [KeySpec],
}

/// A key of a section.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// The name by which DeepSpeed's documentation calls the key.
    pub name: &'static str,
    /// A second name of the same key.
    pub alias: Option<&'static str>,
    /// What values it has.
    pub kind: KeyKind,
    /// Its value when it is absent.
    pub default: KeyDefault,
    /// Whether `null` is a value although the default is another one.
    pub takes_null: bool,
    /// Whether `true` and `false` are refused as numbers.
    pub refuses_bool: bool,
    /// What remuda does with it.
    pub status: KeyStatus,
}

/// The values that a key can have.
#[derive(Clone, Copy, Debug)]
pub enum KeyKind {
    /// `true` or `false`.
    Bool,
    /// A whole number of at least this.
    Whole(i64),
    /// A number from the first to the second, both included.
    Number(f64, f64),
    /// Any text.
    Text,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// One of these words, in any case.
    OneOfAnyCase(&'static [&'static str]),
    /// A stage of ZeRO, from 0 to 3.
    Stage,
    /// Two numbers from 0 to below 1.
    Betas,
    /// A list of texts, or one text.
    Words,
    /// A list of values.
    List,
    /// A value that remuda does not look at.
    Any,
    /// An object.
    Section(&'static SectionSpec),
    /// An object, or `true` for stage 1 and `false` for stage 0.
    BoolOrSection(&'static SectionSpec),
    /// The parameters of an optimizer or a schedule, whose keys depend on its type.
    Params,
}

/// The value of a key that the file does not give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyDefault {
    /// The key is required.
    Required,
    /// It has none, or `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Whole(i64),
    /// A number, with or without a fraction.
    Number(f64),
    /// A text in quotes, or without.
    Text(&'static str),
    /// Two numbers.
    Pair(f64, f64),
    /// An empty list.
    Empty,
    /// A value that depends on something else, in words.
    Words(&'static str),
}

/// What remuda does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    /// It does what it does in DeepSpeed; a remark for COMPAT.md, which may be empty.
    Works(&'static str),
    /// It has no effect here, for this reason.
    NoEffect(&'static str),
    /// A value that is not the default is refused; this is to be used instead.
    Refused(&'static str),
    /// DeepSpeed removed the feature, and refuses the key as well; this is to be used instead.
    Removed(&'static str),
}

impl KeySpec {
    const fn new(
        name: &'static str,
        kind: KeyKind,
        default: KeyDefault,
        status: KeyStatus,
    ) -> Self {
        Self { name, alias: None, kind, default, takes_null: false, refuses_bool: false, status }
    }

    /// The same key with a second name.
    pub(super) const fn also(mut self, alias: &'static str) -> Self {
        self.alias = Some(alias);
        self
    }

    /// The same key, which can be `null`.
    pub(super) const fn or_null(mut self) -> Self {
        self.takes_null = true;
        self
    }

    /// The same key, which is a number that `true` does not stand for.
    pub(super) const fn without_bool(mut self) -> Self {
        self.refuses_bool = true;
        self
    }

    /// Whether a name is that of the key.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.alias == Some(name)
    }

    /// The key with an object, for messages: `"fp16": {"enabled": true}`.
    pub fn example_object(&self) -> String {
        let keys = self.section().map_or(&[][..], |section| section.keys);
        let works = |key: &KeySpec| matches!(key.status, KeyStatus::Works(_));
        let can_enable = keys.iter().any(|key| key.is_named("enabled") && works(key));
        let object = if can_enable { "{\"enabled\": true}" } else { "{…}" };
        format!("\"{}\": {object}", self.name)
    }

    /// The section of the key's value, if it is an object with known keys.
    pub fn section(&self) -> Option<&'static SectionSpec> {
        match self.kind {
            KeyKind::Section(section) | KeyKind::BoolOrSection(section) => Some(section),
            _ => None,
        }
    }
}

/// A key that works.
pub(super) const fn works(name: &'static str, kind: KeyKind, default: KeyDefault) -> KeySpec {
    KeySpec::new(name, kind, default, KeyStatus::Works(""))
}

/// A key that works, with a remark.
pub(super) const fn works_as(
    name: &'static str,
    kind: KeyKind,
    default: KeyDefault,
    remark: &'static str,
) -> KeySpec {
    KeySpec::new(name, kind, default, KeyStatus::Works(remark))
}

/// A key without effect.
pub(super) const fn idle(
    name: &'static str,
    kind: KeyKind,
    default: KeyDefault,
    reason: &'static str,
) -> KeySpec {
    KeySpec::new(name, kind, default, KeyStatus::NoEffect(reason))
}

/// A key of which only the default is accepted.
pub(super) const fn refused(
    name: &'static str,
    kind: KeyKind,
    default: KeyDefault,
    instead: &'static str,
) -> KeySpec {
    KeySpec::new(name, kind, default, KeyStatus::Refused(instead))
}

/// A key that DeepSpeed removed.
pub(super) const fn removed(name: &'static str, instead: &'static str) -> KeySpec {
    KeySpec::new(name, KeyKind::Any, KeyDefault::Null, KeyStatus::Removed(instead))
}

/// Any whole number.
pub(super) const WHOLE: KeyKind = KeyKind::Whole(i64::MIN);
/// A whole number of at least 0.
pub(super) const COUNT: KeyKind = KeyKind::Whole(0);
/// A whole number of at least 1.
pub(super) const POSITIVE: KeyKind = KeyKind::Whole(1);
/// Any number.
pub(super) const NUMBER: KeyKind = KeyKind::Number(f64::NEG_INFINITY, f64::INFINITY);
/// A number of at least 0.
pub(super) const AMOUNT: KeyKind = KeyKind::Number(0.0, f64::INFINITY);
/// A number from 0 to 1.
pub(super) const FRACTION: KeyKind = KeyKind::Number(0.0, 1.0);
/// Off unless the file says otherwise.
pub(super) const OFF: KeyDefault = KeyDefault::Bool(false);
/// On unless the file says otherwise.
pub(super) const ON: KeyDefault = KeyDefault::Bool(true);
/// Reason why the keys beside an `enabled` have no effect: remuda refuses `true`.
pub(super) const NOT_ENABLED: &str = "`enabled` of this section is false";

impl KeyKind {
    /// What a value has to be, for messages: `expected …`.
    pub fn expected(self) -> String {
        match self {
            Self::Bool => "`true` or `false`".to_owned(),
            Self::Whole(i64::MIN) => "a whole number".to_owned(),
            Self::Whole(min) => format!("a whole number of at least {min}"),
            Self::Number(min, max) => match (min.is_finite(), max.is_finite()) {
                (true, true) => {
                    format!("a number from {} to {}", show_number(min), show_number(max))
                }
                (true, false) => format!("a number of at least {}", show_number(min)),
                (false, _) => "a number".to_owned(),
            },
            Self::Text => "text".to_owned(),
            Self::OneOf(words) | Self::OneOfAnyCase(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                format!("one of {}", words.join(", "))
            }
            Self::Stage => "a stage from 0 to 3".to_owned(),
            Self::Betas => "two numbers from 0 to below 1, as `[0.9, 0.999]`".to_owned(),
            Self::Words => "a list of texts".to_owned(),
            Self::List => "a list".to_owned(),
            Self::Any => "a value".to_owned(),
            Self::Section(_) | Self::Params => "an object".to_owned(),
            Self::BoolOrSection(_) => "an object, `true` or `false`".to_owned(),
        }
    }

    /// The type in a word, for COMPAT.md.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Whole(_) | Self::Stage => "int",
            Self::Number(..) => "float",
            Self::Text | Self::OneOf(_) | Self::OneOfAnyCase(_) => "text",
            Self::Betas | Self::Words | Self::List => "list",
            Self::Any => "any",
            Self::Section(_) | Self::Params => "object",
            Self::BoolOrSection(_) => "object or bool",
        }
    }
}

impl KeyDefault {
    /// The default as a value; `None` if it is required or depends on something else.
    pub fn value(self) -> Option<ConfigValue> {
        Some(match self {
            Self::Required | Self::Words(_) => return None,
            Self::Null => ConfigValue::Null,
            Self::Bool(on) => ConfigValue::Bool(on),
            Self::Whole(number) => ConfigValue::Whole(number),
            Self::Number(number) => ConfigValue::Float(number),
            Self::Text(text) => ConfigValue::Text(text.to_owned()),
            Self::Pair(first, second) => {
                let node = |number| ConfigNode {
                    value: ConfigValue::Float(number),
                    span: Span::new(0, 0),
                };
                ConfigValue::List(vec![node(first), node(second)])
            }
            Self::Empty => ConfigValue::List(Vec::new()),
        })
    }

    /// The default as text, for COMPAT.md.
    pub fn show(self) -> String {
        match self {
            Self::Required => "required".to_owned(),
            Self::Words(words) => words.to_owned(),
            Self::Whole(number) if 1_000_000 <= number => show_number(number as f64),
            _ => self.value().map_or_else(String::new, |value| value.show()),
        }
    }
}
