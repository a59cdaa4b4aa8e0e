//! Set expressions in ClusterShell's operators: `hosts & rack[1-3] ! n7`.

use std::collections::HashSet;
use std::hash::Hash;

use crate::base::Span;

/// An operator that joins two sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `,` or a blank: members of either set.
    Union,
    /// `!`: members of the left set alone.
    Difference,
    /// `&`: members of both sets.
    Intersection,
    /// `^`: members of exactly one set.
    SymmetricDifference,
}

/// A word between operators: a list, or another kind of operand that the caller defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetOperand<'a> {
    /// The text of the operand.
    pub text: &'a str,
    /// Its position in the expression.
    pub span: Span,
}

/// Operands, each with the operator before it; evaluated from left to right, as in ClusterShell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression<'a> {
    /// The terms; the operator of the first one is a union with the empty set.
    pub terms: Vec<(Operator, SetOperand<'a>)>,
}

impl<'a> Expression<'a> {
    /// Parses an expression; the error is the position of an operator without its operand.
    pub fn read(text: &'a str) -> Result<Self, Span> {
        let mut terms: Vec<(Operator, SetOperand<'a>)> = Vec::new();
        let mut pending = None;
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let length = operand_length(rest);
            if 0 < length {
                let operand =
                    SetOperand { text: &rest[..length], span: Span::new(at, at + length) };
                let operator = pending.take().map_or(Operator::Union, |(operator, _)| operator);
                terms.push((operator, operand));
                at += length;
                continue;
            }
            let c = rest.chars().next().expect("at < text.len()");
            let span = Span::new(at, at + c.len_utf8());
            if let Some(operator) = operator(c)
                && (terms.is_empty() || pending.replace((operator, span)).is_some())
            {
                return Err(span);
            }
            at = span.end;
        }
        match pending {
            Some((_, span)) => Err(span),
            None if terms.is_empty() => Err(Span::new(0, text.len())),
            None => Ok(Self { terms }),
        }
    }
}

fn operator(c: char) -> Option<Operator> {
    match c {
        ',' => Some(Operator::Union),
        '!' => Some(Operator::Difference),
        '&' => Some(Operator::Intersection),
        '^' => Some(Operator::SymmetricDifference),
        _ => None,
    }
}

/// Number of bytes up to an operator or a blank outside brackets.
fn operand_length(text: &str) -> usize {
    let mut is_inside = false;
    let ends = |c: char| {
        match c {
            '[' => is_inside = true,
            ']' => is_inside = false,
            _ => {}
        }
        !is_inside && (c.is_whitespace() || operator(c).is_some())
    };
    text.find(ends).unwrap_or(text.len())
}

impl Operator {
    /// Joins two sets. The result keeps the order of the left set, then that of the right one.
    pub fn join<T, K: Hash + Eq>(
        self,
        left: Vec<T>,
        right: Vec<T>,
        key: impl Fn(&T) -> K,
    ) -> Vec<T> {
        let keys = |items: &[T]| items.iter().map(&key).collect::<HashSet<K>>();
        let without = |items: Vec<T>, others: &HashSet<K>| -> Vec<T> {
            items.into_iter().filter(|item| !others.contains(&key(item))).collect()
        };
        let mut joined: Vec<T> = match self {
            Self::Union => left.into_iter().chain(right).collect(),
            Self::Intersection => {
                let in_right = keys(&right);
                left.into_iter().filter(|item| in_right.contains(&key(item))).collect()
            }
            Self::Difference => without(left, &keys(&right)),
            Self::SymmetricDifference => {
                let (in_left, in_right) = (keys(&left), keys(&right));
                without(left, &in_right).into_iter().chain(without(right, &in_left)).collect()
            }
        };
        let mut seen = HashSet::new();
        joined.retain(|item| seen.insert(key(item)));
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::super::{fold, read_list};
    use super::*;
    use crate::base::HostName;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = match Expression::read(text) {
            Err(Span { start, end }) => format!("error at `{}`", &text[start..end]),
            Ok(expression) => {
                let names = |operand: SetOperand<'_>| -> Vec<HostName> {
                    let list = read_list(operand.text, 0).expect("a list");
                    list.iter().flat_map(|(pattern, _)| pattern.hosts()).collect()
                };
                let terms = expression.terms.into_iter();
                let set = terms.fold(Vec::new(), |set, (operator, operand)| {
                    operator.join(set, names(operand), Clone::clone)
                });
                fold(set.iter().map(HostName::as_str))
            }
        };
        assert_eq!(found, expect, "for `{text}`");
    }

    #[test]
    fn operators_apply_left_to_right_and_keep_order() {
        check("n[1-3]", "n[1-3]");
        check("n[1-3],n2,n5", "n[1-3,5]");
        check("n[1-3] n5", "n[1-3,5]");
        check("n[1-9] ! n[3-5]", "n[1-2,6-9]");
        check("n[9,1-3] & n[2-9]", "n[9,2-3]");
        check("n[1-3]^n[3-4]", "n[1-2,4]");
        check("n[1-9]!n[3-5]&n[1-3],x", "n[1-2],x");
        check("n1!n1", "");
        check("a,,b", "error at `,`");
        check("& a", "error at `&`");
        check("a !", "error at `!`");
        check("", "error at ``");
    }
}
