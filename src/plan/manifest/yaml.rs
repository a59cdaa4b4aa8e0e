//! Writer of objects as YAML documents, with comments. Pure.

use std::fmt::Write as _;

use serde_json::Value;

use super::comments::Comments;

/// The text of the objects as YAML documents.
pub fn show_yaml(objects: &[Value]) -> String {
    let mut writer = Writer { text: String::new(), comments: Comments::new() };
    for object in objects {
        writer.text += "---\n";
        writer.value(object, 0, "");
    }
    writer.text
}

/// Number of columns of a comment.
const COMMENT_COLUMNS: usize = 100;

/// The lines of a comment.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut().filter(|line| line.len() + 1 + word.len() <= width) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

struct Writer {
    text: String,
    comments: Comments,
}

impl Writer {
    /// Writes an object or a list on the lines below its key or dash.
    fn value(&mut self, value: &Value, depth: usize, path: &str) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    self.comment(depth, &path);
                    self.key(key, value, depth, &path);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.item(item, depth, path)),
            _ => {}
        }
    }

    fn comment(&mut self, depth: usize, path: &str) {
        if let Some(comment) = self.comments.take_comment(path) {
            for line in wrapped(comment, COMMENT_COLUMNS.saturating_sub(depth + 2)) {
                let _ = writeln!(self.text, "{:depth$}# {line}", "");
            }
        }
    }

    fn key(&mut self, key: &str, value: &Value, depth: usize, path: &str) {
        let _ = write!(self.text, "{:depth$}{}:", "", scalar(&Value::String(key.to_owned())));
        if is_nested(value) {
            self.text.push('\n');
            self.value(value, depth + 2, path);
        } else {
            let _ = writeln!(self.text, " {}", scalar(value));
        }
    }

    /// Writes an item of a list, whose first line follows the dash.
    fn item(&mut self, item: &Value, depth: usize, path: &str) {
        let name = item.get("name").and_then(Value::as_str).unwrap_or_default();
        let path = format!("{path}[{name}]");
        self.comment(depth, &path);
        let map = item.as_object().filter(|map| !map.is_empty());
        let Some(map) = map else {
            let _ = writeln!(self.text, "{:depth$}- {}", "", scalar(item));
            return;
        };
        let mut fields = map.iter();
        if let Some((key, value)) = fields.next() {
            // A comment would be between the dash and the text that follows it.
            let inner = format!("{path}.{key}");
            self.comment(depth, &inner);
            let _ = write!(self.text, "{:depth$}- ", "");
            let at = self.text.len();
            self.key(key, value, depth + 2, &inner);
            self.text.replace_range(at..at + depth + 2, "");
        }
        for (key, value) in fields {
            let inner = format!("{path}.{key}");
            self.comment(depth + 2, &inner);
            self.key(key, value, depth + 2, &inner);
        }
    }
}

fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

/// Formats a scalar as JSON, which is YAML; only a text that is unambiguous has no quotes.
fn scalar(value: &Value) -> String {
    let is_plain = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
            && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
                .contains(&text.to_ascii_lowercase().as_str())
    };
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ambiguous_scalars_are_quoted() {
        let shown = |text: &str| scalar(&json!(text));
        for plain in ["remuda", "/livez", "batch/v1", "a-b_c.d"] {
            assert_eq!(shown(plain), plain);
        }
        for quoted in
            ["", "8080", "0.0.0.0:8080", "yes", "No", "a: b", "- a", "1e3", "~", "é", "a\nb", "# a"]
        {
            assert!(shown(quoted).starts_with('"'), "{quoted}");
        }
    }

    #[test]
    fn nested_values_are_indented() {
        let value = json!({"a": [{"b": 1, "c": {"d": []}}, "e", {}, {"g": {"h": 2}}], "f": {}});
        assert_eq!(
            show_yaml(&[value]),
            "---\na:\n  - b: 1\n    c:\n      d: []\n  - e\n  - {}\n  - g:\n      h: 2\nf: {}\n"
        );
    }

    #[test]
    fn comments_are_written_above_fields_and_items() {
        let value = json!({"volumes": [{"a": 1, "name": "key"}], "z": {"suspend": true}});
        let expect = "\
---
volumes:
  # the same Secret in every pod authenticates the pods of the job
  - a: 1
    name: key
z:
  # Kueue starts the job when its queue has room
  suspend: true
";
        assert_eq!(show_yaml(&[value]), expect);
    }
}
