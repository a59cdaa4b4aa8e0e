//! Whole numbers as Python reads them.

/// Parses an integer like Python's `int()`: blanks around, a sign, single underscores between
/// digits. Numbers beyond 64 bits name no slot and become the end of the range.
pub fn python_int(text: &str) -> Option<i64> {
    let text = text.trim();
    let (is_negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let groups_are_digits = digits
        .split('_')
        .all(|group| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit()));
    if !groups_are_digits {
        return None;
    }
    let magnitude = digits.replace('_', "").parse().unwrap_or(i64::MAX);
    Some(if is_negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_int(text: &str, expect: Option<i64>) {
        assert_eq!(python_int(text), expect, "for `{text}`");
    }

    #[test]
    fn python_int_parses_as_python() {
        check_int("4", Some(4));
        check_int(" 01 ", Some(1));
        check_int("+1", Some(1));
        check_int("-1", Some(-1));
        check_int("1_0", Some(10));
        check_int("99999999999999999999", Some(i64::MAX));
        for text in ["", "a", "0x1", "1.0", "1__0", "_1", "1_", "--1", "[0"] {
            check_int(text, None);
        }
    }
}
