//! The content of a configuration file as a tree, in which every key and value has its place.

use crate::base::Span;

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigNode {
    /// The value itself.
    pub value: ConfigValue,
    /// Where it is in the text.
    pub span: Span,
}

/// A value of a configuration file.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigValue {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Whole(i64),
    /// A number with a fraction, or one that is written with an exponent and is large.
    Float(f64),
    /// Text, with or without quotes.
    Text(String),
    /// A list, `[…]`.
    List(Vec<ConfigNode>),
    /// An object, `{…}`; keys are unique.
    Map(Vec<ConfigEntry>),
}

/// An entry of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEntry {
    /// The key, without quotes.
    pub key: String,
    /// Where the key is in the text, with its quotes.
    pub key_span: Span,
    /// The value and its place.
    pub node: ConfigNode,
}

/// The text that stands for a value which the program computes.
pub(super) const AUTO: &str = "auto";

impl ConfigValue {
    /// The kind of the value, for messages: `a number`, `text`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "`null`",
            Self::Bool(true) => "`true`",
            Self::Bool(false) => "`false`",
            Self::Whole(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "an object",
        }
    }

    /// Whether the value is the text `auto`.
    pub fn is_auto(&self) -> bool {
        matches!(self, Self::Text(text) if text == AUTO)
    }

    /// The entries of an object; `None` for other values.
    pub fn entries(&self) -> Option<&[ConfigEntry]> {
        match self {
            Self::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The value as JSON shows it.
    pub fn show(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(on) => on.to_string(),
            Self::Whole(number) => number.to_string(),
            Self::Float(number) => show_number(*number),
            Self::Text(text) => format!("{text:?}"),
            Self::List(items) => {
                let shown: Vec<String> = items.iter().map(|item| item.value.show()).collect();
                format!("[{}]", shown.join(", "))
            }
            Self::Map(entries) => {
                let shown =
                    entries.iter().map(|one| format!("{:?}: {}", one.key, one.node.value.show()));
                format!("{{{}}}", shown.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// A number in its shortest form: `0.00015`, `1e-8`, `500000000`.
pub fn show_number(number: f64) -> String {
    let plain = format!("{number}");
    let short = format!("{number:e}");
    if plain.len() <= short.len() + 3 { plain } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_in_their_shortest_form() {
        for (number, expect) in [
            (1.0, "1"),
            (0.00015, "0.00015"),
            (1e-8, "1e-8"),
            (0.999, "0.999"),
            (5e8, "5e8"),
            (5e-5, "0.00005"),
            (65536.0, "65536"),
        ] {
            assert_eq!(show_number(number), expect);
        }
    }
}
