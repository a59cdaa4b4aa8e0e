//! Objects, lists and the text as a whole.

use std::collections::HashMap;

use super::cursor::{Cursor, Refused, refused};
use super::{quoted, unquoted};
use crate::base::{Diagnostic, Span};
use crate::config::codes::DUPLICATE_KEY;
use crate::config::tree::{ConfigEntry, ConfigNode, ConfigValue};

/// Largest depth of objects and lists; a configuration of DeepSpeed has about six.
pub const DEPTH_MAX: usize = 64;

/// The content of an Hjson text.
#[derive(Clone, Debug, PartialEq)]
pub struct HjsonDocument {
    /// The value of the text; `None` if the syntax is wrong.
    pub root: Option<ConfigNode>,
    /// Problems of syntax, and keys that an object has twice.
    pub problems: Vec<Diagnostic>,
}

/// Reads a text. An empty one, or one with comments only, is an empty object.
pub fn parse_hjson(text: &str) -> HjsonDocument {
    let mut reader = Reader { cursor: Cursor::new(text), problems: Vec::new(), swallowed: None };
    match reader.document() {
        Ok(root) => HjsonDocument { root: Some(root), problems: reader.problems },
        Err(problem) => {
            let mut problems = reader.problems;
            problems.push(*problem);
            HjsonDocument { root: None, problems }
        }
    }
}

struct Reader<'a> {
    cursor: Cursor<'a>,
    problems: Vec<Diagnostic>,
    /// The first text without quotes that contains punctuation.
    swallowed: Option<Span>,
}

impl Reader<'_> {
    fn document(&mut self) -> Result<ConfigNode, Refused> {
        self.cursor.skip()?;
        let root = match self.cursor.byte() {
            None => ConfigNode { value: ConfigValue::Map(Vec::new()), span: Span::new(0, 0) },
            Some(b'{' | b'[') => self.value(0)?,
            Some(_) => self.without_braces()?,
        };
        self.cursor.skip()?;
        if self.cursor.byte().is_some() {
            let line = self.cursor.rest().lines().next().unwrap_or_default().trim_end();
            let span = Span::new(self.cursor.at, self.cursor.at + line.len());
            let problem = refused(span, "text after the end of the object");
            return Err(Box::new(problem.label("the object has ended before this")));
        }
        Ok(root)
    }

    /// Reads an object whose braces are left out, or a single value.
    fn without_braces(&mut self) -> Result<ConfigNode, Refused> {
        let start = self.cursor;
        let problem = match self.entries(Braces::LeftOut, 1) {
            Ok(entries) => {
                let span = Span::new(start.at, self.cursor.text.trim_end().len());
                return Ok(ConfigNode { value: ConfigValue::Map(entries), span });
            }
            Err(problem) => problem,
        };
        self.cursor = start;
        let is_quoted = matches!(start.byte(), Some(b'"' | b'\''));
        let value = self.value(0).ok().filter(|value| {
            // Any text is text without quotes, so the problem of the object says more.
            let is_plain = is_quoted || !matches!(value.value, ConfigValue::Text(_));
            is_plain && self.cursor.skip().is_ok() && self.cursor.byte().is_none()
        });
        value.ok_or(problem)
    }

    fn value(&mut self, depth: usize) -> Result<ConfigNode, Refused> {
        let start = self.cursor.at;
        if depth == DEPTH_MAX {
            let message = format!("objects and lists are nested more than {DEPTH_MAX} deep");
            return Err(Box::new(refused(self.cursor.here(), message).label("too deep")));
        }
        let value = match self.cursor.byte() {
            Some(b'{') => ConfigValue::Map(self.object(depth)?),
            Some(b'[') => ConfigValue::List(self.list(depth)?),
            Some(b'\'') if self.cursor.rest().starts_with("'''") => {
                ConfigValue::Text(quoted::multiline(&mut self.cursor)?)
            }
            Some(b'"' | b'\'') => ConfigValue::Text(quoted::quoted(&mut self.cursor)?),
            _ => {
                let node = unquoted::value(&mut self.cursor)?;
                let is_text = matches!(&node.value, ConfigValue::Text(text) if text.contains([',', '}', ']']));
                self.swallowed = self.swallowed.or(is_text.then_some(node.span));
                return Ok(node);
            }
        };
        Ok(ConfigNode { value, span: self.cursor.since(start) })
    }

    fn object(&mut self, depth: usize) -> Result<Vec<ConfigEntry>, Refused> {
        let open = self.cursor.here();
        self.cursor.at += 1;
        self.cursor.skip()?;
        if self.cursor.byte() == Some(b'}') {
            self.cursor.at += 1;
            return Ok(Vec::new());
        }
        self.entries(Braces::Open(open), depth + 1)
    }

    /// Reads entries up to and with the closing brace, or up to the end of the text.
    fn entries(&mut self, braces: Braces, depth: usize) -> Result<Vec<ConfigEntry>, Refused> {
        let mut entries = Vec::new();
        loop {
            if self.cursor.byte().is_none() {
                return Err(self.not_closed(braces));
            }
            entries.push(self.entry(depth)?);
            self.cursor.skip()?;
            self.comma()?;
            match (self.cursor.byte(), braces) {
                (None, Braces::LeftOut) => break,
                (Some(b'}'), Braces::Open(_)) => {
                    self.cursor.at += 1;
                    break;
                }
                _ => {}
            }
        }
        self.report_duplicates(&entries);
        Ok(entries)
    }

    fn entry(&mut self, depth: usize) -> Result<ConfigEntry, Refused> {
        let (key, key_span) = self.key()?;
        self.cursor.skip()?;
        if self.cursor.byte() != Some(b':') {
            let problem = refused(key_span, "a key without a value").label("no `:` after it");
            return Err(Box::new(problem));
        }
        self.cursor.at += 1;
        self.cursor.skip()?;
        let node = self.value(depth)?;
        Ok(ConfigEntry { key, key_span, node })
    }

    fn key(&mut self) -> Result<(String, Span), Refused> {
        let start = self.cursor.at;
        match self.cursor.byte() {
            Some(b'"' | b'\'') => {
                let key = quoted::quoted(&mut self.cursor)?;
                Ok((key, self.cursor.since(start)))
            }
            _ => unquoted::key(&mut self.cursor),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Vec<ConfigNode>, Refused> {
        let open = self.cursor.here();
        self.cursor.at += 1;
        let mut items = Vec::new();
        self.cursor.skip()?;
        while self.cursor.byte() != Some(b']') {
            if self.cursor.byte().is_none() {
                return Err(self
                    .with_swallowed(refused(open, "the list is not closed").label("begins here")));
            }
            items.push(self.value(depth + 1)?);
            self.cursor.skip()?;
            self.comma()?;
        }
        self.cursor.at += 1;
        Ok(items)
    }

    /// Skips a comma, which may be missing.
    fn comma(&mut self) -> Result<(), Refused> {
        if self.cursor.byte() == Some(b',') {
            self.cursor.at += 1;
            self.cursor.skip()?;
        }
        Ok(())
    }

    fn not_closed(&self, braces: Braces) -> Refused {
        let open = match braces {
            Braces::Open(open) => open,
            Braces::LeftOut => self.cursor.here(),
        };
        self.with_swallowed(refused(open, "the object is not closed").label("begins here"))
    }

    /// Adds the place of a text without quotes that reaches over the closing bracket.
    fn with_swallowed(&self, problem: Diagnostic) -> Refused {
        Box::new(match self.swallowed {
            Some(span) => problem
                .related(span, "text without quotes reaches to the end of its line")
                .help("put this text in quotes"),
            None => problem,
        })
    }

    fn report_duplicates(&mut self, entries: &[ConfigEntry]) {
        let mut first: HashMap<&str, Span> = HashMap::new();
        for entry in entries {
            if let Some(earlier) = first.get(entry.key.as_str()) {
                let message = format!("the key `{}` is given twice", entry.key.escape_debug());
                let problem = Diagnostic::error(DUPLICATE_KEY, entry.key_span, message)
                    .label("given again")
                    .related(*earlier, "first given here")
                    .help("keep one of the two");
                self.problems.push(problem);
            } else {
                first.insert(&entry.key, entry.key_span);
            }
        }
    }
}

/// How the end of an object is marked.
#[derive(Clone, Copy)]
enum Braces {
    /// By a brace; the opening one is here.
    Open(Span),
    /// By the end of the text.
    LeftOut,
}
