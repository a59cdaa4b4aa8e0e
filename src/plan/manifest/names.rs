//! Checks of names and labels, with the rules of the Kubernetes API. Pure.

/// Limit of the characters of a DNS name, of a label's name and of its value.
pub(super) const LABEL_CHARS_MAX: usize = 63;
/// Limit of the characters of the domain before a label's name.
const DOMAIN_CHARS_MAX: usize = 253;

/// Why a text is not `KEY=VALUE` of a label or an annotation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// The text has no `=`.
    #[error("expected KEY=VALUE")]
    NoValue,
    /// The key is invalid.
    #[error(
        "`{0}` is not a key: use letters, digits, `-`, `_` and `.`, and optionally a domain and `/` before them"
    )]
    Key(String),
    /// The value of a label is invalid.
    #[error(
        "`{0}` is not a value of a label: use at most {LABEL_CHARS_MAX} letters, digits, `-`, `_` and `.`"
    )]
    Value(String),
}

/// Parses `KEY=VALUE` of a label, or of a node selector.
pub fn parse_label(text: &str) -> Result<(String, String), PairError> {
    let (key, value) = parse_annotation(text)?;
    if is_label_value(&value) { Ok((key, value)) } else { Err(PairError::Value(value)) }
}

/// Parses `KEY=VALUE` of an annotation, whose value is any text.
pub fn parse_annotation(text: &str) -> Result<(String, String), PairError> {
    let (key, value) = text.split_once('=').ok_or(PairError::NoValue)?;
    if !is_qualified_name(key) {
        return Err(PairError::Key(key.to_owned()));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Whether a text is `name` or `domain.example/name`.
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_name(name),
        None => is_name(text),
    }
}

/// Whether a text is a valid name of a Secret, an account or a class: lower-case letters, digits,
/// `-` and `.`.
pub fn is_subdomain(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(is_edge)
            && part.ends_with(is_edge)
            && part.chars().all(|c| is_edge(c) || c == '-')
    };
    text.len() <= DOMAIN_CHARS_MAX && text.split('.').all(is_part)
}

/// Whether a text is a valid value of a label; it may be empty.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_name(text: &str) -> bool {
    let is_edge = |c: char| c.is_ascii_alphanumeric();
    text.len() <= LABEL_CHARS_MAX
        && text.starts_with(is_edge)
        && text.ends_with(is_edge)
        && text.chars().all(|c| is_edge(c) || "-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_keys_may_have_a_domain() {
        for good in ["a", "team", "kueue.x-k8s.io/queue-name", "rdma/hca_shared", "A.b_c"] {
            assert!(is_qualified_name(good), "{good}");
        }
        for bad in ["", "/a", "a/", "a b", "-a", "a-", "UP.er/a", "a/b/c", &"x".repeat(64)] {
            assert!(!is_qualified_name(bad), "{bad}");
        }
    }

    #[test]
    fn labels_are_pairs_and_annotations_have_any_value() {
        let pair = |key: &str, value: &str| Ok((key.to_owned(), value.to_owned()));
        assert_eq!(parse_label("team=ml"), pair("team", "ml"));
        assert_eq!(parse_label("team="), pair("team", ""));
        assert_eq!(parse_label("team"), Err(PairError::NoValue));
        assert_eq!(parse_label("=ml"), Err(PairError::Key(String::new())));
        assert_eq!(parse_label("team=m l"), Err(PairError::Value("m l".to_owned())));
        assert_eq!(parse_annotation("a=b = c"), pair("a", "b = c"));
    }
}
