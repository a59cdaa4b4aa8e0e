//! Values of settings, shown as Python shows them: scripts read them from the environment.

use crate::base::python_int;
use crate::config::tree::{ConfigNode, ConfigValue};

/// A value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SettingValue {
    /// It has none.
    None,
    Bool(bool),
    Whole(i64),
    Float(f64),
    Text(String),
    Bools(Vec<bool>),
    /// A list of a file; its values as text.
    List(Vec<String>),
}

impl SettingValue {
    /// The value of a file; `None` for a mapping.
    pub(crate) fn of_node(node: &ConfigNode) -> Option<Self> {
        Some(match &node.value {
            ConfigValue::Null => Self::None,
            ConfigValue::Bool(on) => Self::Bool(*on),
            ConfigValue::Whole(number) => Self::Whole(*number),
            ConfigValue::Float(number) => Self::Float(*number),
            ConfigValue::Text(text) => Self::Text(text.clone()),
            ConfigValue::List(items) => {
                let shown = items.iter().map(|item| Self::of_node(item).map(|item| item.show()));
                Self::List(shown.collect::<Option<_>>()?)
            }
            ConfigValue::Map(_) => return None,
        })
    }

    /// Whether it is a whole number, also as text, or none at all.
    pub(crate) fn is_whole_or_none(&self) -> bool {
        match self {
            Self::None | Self::Whole(_) => true,
            Self::Text(text) => python_int(text).is_some(),
            Self::Bool(_) | Self::Float(_) | Self::Bools(_) | Self::List(_) => false,
        }
    }

    /// Returns the text of Python's `str()`.
    pub(crate) fn show(&self) -> String {
        match self {
            Self::None => "None".to_owned(),
            Self::Bool(true) => "True".to_owned(),
            Self::Bool(false) => "False".to_owned(),
            Self::Whole(number) => number.to_string(),
            Self::Float(number) => show_float(*number),
            Self::Text(text) => text.clone(),
            Self::Bools(all) => {
                let shown: Vec<String> = all.iter().map(|on| Self::Bool(*on).show()).collect();
                format!("({})", shown.join(", "))
            }
            Self::List(items) => format!("[{}]", items.join(", ")),
        }
    }

    /// Whether Python takes it for true.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::None => false,
            Self::Bool(on) => *on,
            Self::Whole(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Bools(all) => !all.is_empty(),
            Self::List(items) => !items.is_empty(),
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Returns a float as Python's `repr` writes it: `1.0`, `1e-05`, `1e+16`.
fn show_float(number: f64) -> String {
    let shown = format!("{number:?}");
    let Some((mantissa, exponent)) = shown.split_once('e') else {
        return if number.abs() < 1e-4 && number != 0.0 {
            show_float_with_exponent(number)
        } else {
            shown.replace("NaN", "nan")
        };
    };
    with_exponent(mantissa, exponent)
}

fn show_float_with_exponent(number: f64) -> String {
    let shown = format!("{number:e}");
    let (mantissa, exponent) = shown.split_once('e').expect("an exponent");
    with_exponent(mantissa, exponent)
}

/// Python's exponents have a sign and two digits at least.
fn with_exponent(mantissa: &str, exponent: &str) -> String {
    let mantissa = mantissa.strip_suffix(".0").unwrap_or(mantissa);
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_look_as_in_python() {
        let floats = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (2.5e-5, "2.5e-05"),
            (0.00012, "0.00012"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1e100, "1e+100"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "nan"),
        ];
        for (number, shown) in floats {
            assert_eq!(show_float(number), shown);
        }
        assert_eq!(SettingValue::Bool(true).show(), "True");
        assert_eq!(SettingValue::None.show(), "None");
        assert_eq!(SettingValue::Bools(vec![false, true]).show(), "(False, True)");
    }
}
