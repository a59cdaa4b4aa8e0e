//! Conversion of a value to the type of its key, as DeepSpeed's reader of the section converts it.

use crate::config::keys::{KeyDefault, KeyKind, KeySpec, SectionReader};
use crate::config::tree::{ConfigNode, ConfigValue};

/// Why a value does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// It has another type.
    Type,
    /// It is outside of the limits.
    Limit,
}

/// Converts a value. A model of pydantic takes text and numbers for each other; elsewhere the types are
/// strict, except that a whole number may be written with an exponent.
pub(super) fn convert(
    key: &KeySpec,
    reader: SectionReader,
    value: &ConfigValue,
) -> Result<ConfigValue, Misfit> {
    let is_nullable = key.takes_null || key.default == KeyDefault::Null;
    if *value == ConfigValue::Null && is_nullable {
        return Ok(ConfigValue::Null);
    }
    let is_lax = reader == SectionReader::Model;
    let takes_bool = is_lax && !key.refuses_bool;
    match key.kind {
        KeyKind::Bool => boolean(value, is_lax).map(ConfigValue::Bool).ok_or(Misfit::Type),
        KeyKind::Whole(min) => {
            let number = whole(value, is_lax, takes_bool).ok_or(Misfit::Type)?;
            if number < min { Err(Misfit::Limit) } else { Ok(ConfigValue::Whole(number)) }
        }
        KeyKind::Number(min, max) => {
            let number = float(value, is_lax, takes_bool).ok_or(Misfit::Type)?;
            let is_inside = (min..=max).contains(&number);
            if is_inside { Ok(ConfigValue::Float(number)) } else { Err(Misfit::Limit) }
        }
        KeyKind::Stage => {
            let number = whole(value, is_lax, takes_bool).ok_or(Misfit::Type)?;
            let is_stage = (0..=3).contains(&number);
            if is_stage { Ok(ConfigValue::Whole(number)) } else { Err(Misfit::Limit) }
        }
        KeyKind::Text => match value {
            ConfigValue::Text(_) => Ok(value.clone()),
            _ => Err(Misfit::Type),
        },
        KeyKind::OneOf(words) => one_of(value, |text| words.contains(&text).then_some(text)),
        KeyKind::OneOfAnyCase(words) => {
            one_of(value, |text| words.iter().copied().find(|word| word.eq_ignore_ascii_case(text)))
        }
        KeyKind::Betas => betas(value),
        KeyKind::Words => match value {
            ConfigValue::Text(_) => Ok(value.clone()),
            ConfigValue::List(items) if items.iter().all(is_text) => Ok(value.clone()),
            _ => Err(Misfit::Type),
        },
        KeyKind::List => match value {
            ConfigValue::List(_) => Ok(value.clone()),
            _ => Err(Misfit::Type),
        },
        KeyKind::Any => Ok(value.clone()),
        KeyKind::Section(_) | KeyKind::BoolOrSection(_) | KeyKind::Params => Err(Misfit::Type),
    }
}

fn is_text(node: &ConfigNode) -> bool {
    matches!(node.value, ConfigValue::Text(_))
}

fn one_of<'a>(
    value: &'a ConfigValue,
    find: impl Fn(&'a str) -> Option<&'a str>,
) -> Result<ConfigValue, Misfit> {
    let ConfigValue::Text(text) = value else { return Err(Misfit::Type) };
    find(text).map(|word| ConfigValue::Text(word.to_owned())).ok_or(Misfit::Limit)
}

/// Two numbers from 0 to below 1.
fn betas(value: &ConfigValue) -> Result<ConfigValue, Misfit> {
    let ConfigValue::List(items) = value else { return Err(Misfit::Type) };
    let numbers: Option<Vec<f64>> =
        items.iter().map(|item| float(&item.value, false, false)).collect();
    let Some([first, second]) = numbers.as_deref() else { return Err(Misfit::Type) };
    let is_inside = |beta: f64| (0.0..1.0).contains(&beta);
    if is_inside(*first) && is_inside(*second) { Ok(value.clone()) } else { Err(Misfit::Limit) }
}

fn boolean(value: &ConfigValue, is_lax: bool) -> Option<bool> {
    match value {
        ConfigValue::Bool(on) => Some(*on),
        _ if !is_lax => None,
        ConfigValue::Whole(0) => Some(false),
        ConfigValue::Whole(1) => Some(true),
        ConfigValue::Text(text) => match text.to_ascii_lowercase().as_str() {
            "1" | "on" | "t" | "true" | "y" | "yes" => Some(true),
            "0" | "off" | "f" | "false" | "n" | "no" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn whole(value: &ConfigValue, is_lax: bool, takes_bool: bool) -> Option<i64> {
    match value {
        ConfigValue::Whole(number) => Some(*number),
        ConfigValue::Float(number) => whole_float(*number),
        ConfigValue::Bool(on) if takes_bool => Some(i64::from(*on)),
        ConfigValue::Text(text) if is_lax => whole_text(text),
        _ => None,
    }
}

/// The whole number that a float is, if a float of its size is exact enough to be one.
fn whole_float(number: f64) -> Option<i64> {
    const LIMIT: f64 = 9.2e18;
    (number.fract() == 0.0 && number.abs() < LIMIT).then_some(number as i64)
}

/// Reads a whole number as pydantic does: with a sign, underscores between digits, and zeros as its
/// fraction, but without an exponent.
fn whole_text(text: &str) -> Option<i64> {
    let text = text.trim();
    let text = match text.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => {
            whole
        }
        Some(_) => return None,
        None => text,
    };
    without_underscores(text)?.parse().ok()
}

/// Removes single underscores between digits.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit =
        |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let is_between = |at: usize| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
    let all_between = (0..bytes.len()).filter(|at| bytes[*at] == b'_').all(is_between);
    all_between.then(|| text.replace('_', ""))
}

fn float(value: &ConfigValue, is_lax: bool, takes_bool: bool) -> Option<f64> {
    let number = match value {
        ConfigValue::Whole(number) => *number as f64,
        ConfigValue::Float(number) => *number,
        ConfigValue::Bool(on) if takes_bool => f64::from(u8::from(*on)),
        ConfigValue::Text(text) if is_lax => without_underscores(text.trim())?.parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::TOP;

    /// The key of a path in sections below the top level.
    fn key(section: &str, name: &str) -> (&'static KeySpec, SectionReader) {
        let top = TOP.keys.iter().find(|key| key.name == section).expect("a section");
        let spec = top.section().expect("a section");
        (spec.keys.iter().find(|key| key.name == name).expect("a key"), spec.reader)
    }

    fn text(text: &str) -> ConfigValue {
        ConfigValue::Text(text.to_owned())
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "the expected values are written in place")]
    fn check(path: (&str, &str), value: &ConfigValue, expect: Result<ConfigValue, Misfit>) {
        let (key, reader) = key(path.0, path.1);
        assert_eq!(convert(key, reader, value), expect, "{path:?} {}", value.show());
    }

    #[test]
    fn models_convert_values_as_pydantic_does() {
        use ConfigValue::{Bool, Float, Null, Whole};
        use Misfit::{Limit, Type};
        let bucket = ("zero_optimization", "reduce_bucket_size");
        check(bucket, &Float(5e8), Ok(Whole(500_000_000)));
        check(bucket, &Float(5.5), Err(Type));
        check(bucket, &Bool(true), Ok(Whole(1)));
        check(bucket, &Bool(false), Err(Limit));
        check(bucket, &Whole(0), Err(Limit));
        check(bucket, &Null, Err(Type));
        for (written, expect) in [
            ("5", Some(5)),
            (" 5 ", Some(5)),
            ("5.0", Some(5)),
            ("1_000", Some(1000)),
            ("+5", Some(5)),
            ("05", Some(5)),
            ("5e8", None),
            ("5.5", None),
            ("_5", None),
            ("", None),
        ] {
            check(bucket, &text(written), expect.map(Whole).ok_or(Type));
        }
        let stage = ("zero_optimization", "stage");
        check(stage, &text("2"), Ok(Whole(2)));
        check(stage, &text("2.0"), Ok(Whole(2)));
        check(stage, &Bool(true), Ok(Whole(1)));
        check(stage, &Whole(4), Err(Limit));
        let enabled = ("fp16", "enabled");
        for (written, expect) in [
            ("yes", Ok(Bool(true))),
            ("YES", Ok(Bool(true))),
            ("t", Ok(Bool(true))),
            ("off", Ok(Bool(false))),
            ("01", Err(Type)),
            (" true", Err(Type)),
        ] {
            check(enabled, &text(written), expect);
        }
        check(enabled, &Whole(2), Err(Type));
        check(("fp16", "loss_scale"), &Bool(true), Err(Type));
        check(("fp16", "loss_scale"), &text("1_0"), Ok(Float(10.0)));
        check(("fp16", "loss_scale"), &text("inf"), Err(Type));
        check(("fp16", "loss_scale"), &Whole(-1), Err(Limit));
        check(("fp16", "min_loss_scale"), &Float(0.25), Err(Type));
        check(("tensorboard", "output_path"), &Whole(5), Err(Type));
    }

    #[test]
    fn lookups_have_strict_types() {
        use ConfigValue::{Bool, Float, Whole};
        check(("aio", "block_size"), &Float(1e6), Ok(Whole(1_000_000)));
        check(("aio", "block_size"), &text("5"), Err(Misfit::Type));
        check(("aio", "single_submit"), &Whole(1), Err(Misfit::Type));
        check(("aio", "single_submit"), &Bool(true), Ok(Bool(true)));
        check(("checkpoint", "tag_validation"), &text("WARN"), Ok(text("Warn")));
        check(("checkpoint", "tag_validation"), &text("never"), Err(Misfit::Limit));
    }
}
