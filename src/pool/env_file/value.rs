//! Parser of the value after the `=`.

use crate::base::Diagnostic;
use crate::pool::codes;
use crate::pool::env_file::text::EnvText;

/// The value, literal; `None` when its quotes are invalid.
pub(super) fn read(typed: EnvText<'_>, problems: &mut Vec<Diagnostic>) -> Option<String> {
    let Some(quote) = typed.text.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        problems.extend(comment_inside(typed));
        problems.extend(not_expanded(typed));
        return Some(typed.text.to_owned());
    };
    let Some(end) = typed.text[1..].find(quote).map(|at| at + 1) else {
        problems.push(open_quote(typed, quote));
        return None;
    };
    let rest = typed.part(end + 1, typed.text.len()).trim();
    if !rest.text.is_empty() && !rest.text.starts_with('#') {
        problems.push(after_quote(rest, quote));
        return None;
    }
    let quoted = typed.part(1, end);
    if quote == '"' {
        problems.extend(not_expanded(quoted));
    }
    Some(quoted.text.to_owned())
}

fn open_quote(typed: EnvText<'_>, quote: char) -> Diagnostic {
    Diagnostic::error(codes::ENV_OPEN_QUOTE, typed.part(0, 1).span(), "the quote is not closed")
        .label(format!("no second {quote} on this line"))
        .help("close the quote on the same line")
}

fn after_quote(rest: EnvText<'_>, quote: char) -> Diagnostic {
    let other = if quote == '"' { '\'' } else { '"' };
    Diagnostic::error(codes::ENV_AFTER_QUOTE, rest.span(), "text after the closing quote")
        .label("the value ends before this")
        .help(format!("for a {quote} inside a value use {other} around it, or no quotes at all"))
}

/// Warns of a value that DeepSpeed passes to the remote shell for expansion, commands included.
fn not_expanded(value: EnvText<'_>) -> Option<Diagnostic> {
    let bytes = value.text.as_bytes();
    let starts_name = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'{' | b'(');
    let at = (0..bytes.len()).find(|at| match bytes[*at] {
        b'$' => bytes.get(at + 1).is_some_and(starts_name),
        byte => byte == b'`',
    })?;
    let word = value.text[at..].find(char::is_whitespace).map_or(value.text.len(), |end| at + end);
    Some(
        Diagnostic::warning(
            codes::ENV_NOT_EXPANDED,
            value.part(at, word).span(),
            "the value is taken literally",
        )
        .label("not expanded, not run")
        .help("write the expanded value, or put a literal value in single quotes"),
    )
}

fn comment_inside(value: EnvText<'_>) -> Option<Diagnostic> {
    let at = value.text.find(" #").or_else(|| value.text.find("\t#"))? + 1;
    let comment = value.part(at, value.text.len());
    Some(
        Diagnostic::warning(
            codes::ENV_COMMENT,
            comment.span(),
            "this `#` does not start a comment",
        )
        .label("part of the value, as in DeepSpeed")
        .help("put the value in quotes, or the comment on a line of its own"),
    )
}
