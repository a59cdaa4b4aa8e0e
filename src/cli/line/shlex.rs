//! Splits a text into words as a shell does: Python's `shlex.split`.

use super::number::BadValue;

/// Splits at blanks outside quotes. A backslash escapes the next letter; in double quotes it
/// escapes only a double quote or a backslash, in single quotes nothing.
pub(in crate::cli) fn split(text: &str) -> Result<Vec<String>, BadValue> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\'' => word.get_or_insert_default().push_str(&single(&mut letters)?),
            '"' => word.get_or_insert_default().push_str(&double(&mut letters)?),
            '\\' => {
                let next = letters.next().ok_or_else(|| BadValue::new("ends in a backslash"))?;
                word.get_or_insert_default().push(next);
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

fn single(letters: &mut std::str::Chars<'_>) -> Result<String, BadValue> {
    let mut inside = String::new();
    for letter in letters {
        if letter == '\'' {
            return Ok(inside);
        }
        inside.push(letter);
    }
    Err(BadValue::new("the `'` is never closed"))
}

fn double(letters: &mut std::str::Chars<'_>) -> Result<String, BadValue> {
    let mut inside = String::new();
    while let Some(letter) = letters.next() {
        match (letter, letters.clone().next()) {
            ('"', _) => return Ok(inside),
            ('\\', Some(next @ ('"' | '\\'))) => {
                letters.next();
                inside.push(next);
            }
            _ => inside.push(letter),
        }
    }
    Err(BadValue::new("the `\"` is never closed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        assert_eq!(
            split(text).as_deref(),
            Ok(&expect.iter().map(ToString::to_string).collect::<Vec<_>>()[..])
        );
    }

    #[test]
    fn words_are_split_as_by_python() {
        check("", &[]);
        check("  -f 32\t-t 5 ", &["-f", "32", "-t", "5"]);
        check("-o 'A b'c \"d 'e'\"", &["-o", "A bc", "d 'e'"]);
        check(r#"a\ b "q\"\\\n" '\'"#, &["a b", r#"q"\\n"#, "\\"]);
        check("'' \"\"", &["", ""]);
        check("#no comment", &["#no", "comment"]);
    }

    #[test]
    fn open_quotes_are_errors() {
        assert_eq!(split("a 'b").unwrap_err().label, "the `'` is never closed");
        assert_eq!(split("a \"b\\\"").unwrap_err().label, "the `\"` is never closed");
        assert_eq!(split("a\\").unwrap_err().label, "ends in a backslash");
    }
}
