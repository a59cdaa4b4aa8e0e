//! The world info that DeepSpeed's launcher passes to every node: base64 of `{"worker-0": [0, 1],
//! "worker-1": [0]}`, with hosts in rank order.

use std::collections::HashSet;
use std::fmt;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::base::{Diagnostic, Findings, HostName, Slot, Source, Span, prefix, show_typed};
use crate::pool::codes;
use crate::pool::hostfile::hosts::SLOTS_MAX;
use crate::pool::hostfile::reader::HOSTS_MAX;

/// Hosts in rank order, each with its slots.
pub type World = Vec<(HostName, Vec<Slot>)>;

/// The name of the source in messages.
const NAME: &str = "world info";
const HELP: &str = "`--world_info` is base64 of `{\"host\": [0, 1]}`; to make it, type \
                    `printf '{\"n0\": [0, 1]}' | base64 -w0`";
/// Upper bound of the base64 text: every possible host with every slot is shorter.
const BYTES_MAX: usize = 64 << 20;
/// A decoder with Python's rules: padding is required, trailing bits are ignored.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(DecodePaddingMode::RequireCanonical);

/// Reads the value of `--world_info`. All problems of its hosts are reported at once.
pub fn read_world(text: &str) -> Result<World, Findings> {
    let json = decode(text)?;
    if json.trim().is_empty() {
        let problem = Diagnostic::whole(codes::WORLD_NOT_HOSTS, "world info is empty");
        return Err(findings(json, vec![problem.help(HELP)]));
    }
    let Object(entries) = serde_json::from_str(&json).map_err(|error| not_json(&json, &error))?;
    let mut reading = WorldReader { json: &json, diagnostics: Vec::new() };
    let mut world = World::new();
    let mut names = HashSet::new();
    match entries.len() {
        0 => reading.add_error("world info has no host"),
        hosts if HOSTS_MAX < hosts => {
            reading.add_error(&format!("{hosts} hosts exceed the limit {HOSTS_MAX}"));
            let diagnostics = reading.diagnostics;
            return Err(findings(json, diagnostics));
        }
        _ => {}
    }
    for (name, value) in &entries {
        if !names.insert(name) {
            reading.add_host_error(name, format!("host `{}` is listed twice", show_typed(name)));
            continue;
        }
        let (host, slots) = (reading.host(name), reading.slots(name, value));
        world.extend(host.zip(slots));
    }
    match reading.diagnostics {
        problems if problems.is_empty() => Ok(world),
        diagnostics => Err(findings(json, diagnostics)),
    }
}

/// Decodes base64 in both alphabets, as Python does; bytes that Python skips without an error are
/// an error.
fn decode(text: &str) -> Result<String, Findings> {
    let refuse = |span: Option<Span>, message: String| {
        let problem = Diagnostic { span, ..Diagnostic::whole(codes::WORLD_NOT_BASE64, message) };
        findings(text.to_owned(), vec![problem.help(HELP)])
    };
    if BYTES_MAX < text.len() {
        return Err(findings(
            String::new(),
            vec![Diagnostic::whole(codes::WORLD_NOT_BASE64, "world info is longer than 64 MiB")],
        ));
    }
    let url_safe = text.replace('+', "-").replace('/', "_");
    let bytes = GeneralPurpose::new(&URL_SAFE, LENIENT).decode(&url_safe).map_err(|error| {
        use base64::DecodeError::{InvalidByte, InvalidLastSymbol, InvalidLength, InvalidPadding};
        let end = text.len();
        match error {
            InvalidByte(at, _) | InvalidLastSymbol(at, _) => {
                let at = prefix(text, at).len();
                let width = text[at..].chars().next().map_or(0, char::len_utf8);
                refuse(Some(Span::new(at, at + width)), format!("invalid base64 at byte {at}"))
            }
            InvalidLength(_) | InvalidPadding => {
                let message = "base64 ends too early: it is truncated, or its `=` is missing";
                refuse(Some(Span::new(end, end)), message.to_owned())
            }
        }
    })?;
    String::from_utf8(bytes).map_err(|_| {
        let message = "the decoded bytes are not UTF-8".to_owned();
        refuse(Some(Span::new(0, text.len())), message)
    })
}

fn not_json(json: &str, error: &serde_json::Error) -> Findings {
    let lines = json.split_inclusive('\n');
    let before: usize = lines.take(error.line().saturating_sub(1)).map(str::len).sum();
    let at = before + error.column().saturating_sub(1);
    let at = prefix(json, at).len();
    let text = error.to_string();
    // serde_json's message ends with the position, which is shown separately.
    let message = text.rsplit_once(" at line ").map_or(&*text, |(message, _)| message);
    let problem = Diagnostic::error(codes::WORLD_NOT_HOSTS, Span::new(at, at), message);
    findings(json.to_owned(), vec![problem.help(HELP)])
}

fn findings(text: String, diagnostics: Vec<Diagnostic>) -> Findings {
    Findings { source: Source { name: NAME.to_owned(), text }, diagnostics }
}

struct WorldReader<'a> {
    json: &'a str,
    diagnostics: Vec<Diagnostic>,
}

impl WorldReader<'_> {
    /// Reads the name of a host, without a user: the world info is not used to log in.
    fn host(&mut self, name: &str) -> Option<HostName> {
        let bare = name.rsplit_once('@').map_or(name, |(_, host)| host);
        match HostName::parse(bare) {
            Ok(host) => Some(host),
            Err(error) => {
                self.add_host_error(name, error.to_string());
                None
            }
        }
    }

    /// Reads a slot list such as `[0, 1]`: its first slot is local rank 0. Only the first problem
    /// of a list is reported.
    fn slots(&mut self, name: &str, value: &Value) -> Option<Vec<Slot>> {
        let shown = show_typed(name);
        let Value::Array(items) = value else {
            self.add_host_error(
                name,
                format!("`{shown}`: expected a list of slots, found {}", kind(value)),
            );
            return None;
        };
        if items.is_empty() {
            self.add_host_error(
                name,
                format!("`{shown}` has no slot; every node needs at least one slot"),
            );
            return None;
        }
        let mut slots: Vec<Slot> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let number = item.as_u64().filter(|number| *number < u64::from(SLOTS_MAX));
            let problem = match number.map(|number| Slot(number as u32)) {
                Some(slot) if !slots.contains(&slot) => {
                    slots.push(slot);
                    continue;
                }
                Some(slot) => format!("slot {slot} is listed twice"),
                None => format!("expected a slot, found {}", kind(item)),
            };
            self.add_host_error(name, format!("`{shown}`[{index}]: {problem}"));
            return None;
        }
        Some(slots)
    }

    /// Reports a problem of a host; the span is its name, where the text contains it literally.
    fn add_host_error(&mut self, name: &str, message: String) {
        let quoted = format!("\"{name}\"");
        let span = self.json.rfind(&quoted).map(|at| Span::new(at, at + quoted.len()));
        let problem = Diagnostic::whole(codes::WORLD_NOT_HOSTS, message).help(HELP);
        self.diagnostics.push(Diagnostic { span, ..problem });
    }

    fn add_error(&mut self, message: &str) {
        let problem = Diagnostic::error(
            codes::WORLD_NOT_HOSTS,
            Span::new(0, self.json.len().min(1)),
            message,
        );
        self.diagnostics.push(problem.help(HELP));
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => format!("`{value}`"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// A JSON object that keeps its order and its duplicate keys.
struct Object(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of hosts")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Object, M::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Object(entries))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::URL_SAFE as BASE64;
    use proptest::prelude::*;

    use super::*;

    /// Formats a result as `a:0,1 b:0`, or the error with the text under the caret.
    fn shown(read: Result<World, Findings>) -> String {
        match read {
            Ok(world) => {
                let slots = |slots: &[Slot]| {
                    slots.iter().map(Slot::to_string).collect::<Vec<_>>().join(",")
                };
                let host = |(host, own): &(HostName, Vec<Slot>)| format!("{host}:{}", slots(own));
                world.iter().map(host).collect::<Vec<_>>().join(" ")
            }
            Err(found) => {
                let one = |problem: &Diagnostic| {
                    let at =
                        problem.span.map_or("", |span| &found.source.text[span.start..span.end]);
                    format!("{} [{at}]", problem.message)
                };
                found.diagnostics.iter().map(one).collect::<Vec<_>>().join("; ")
            }
        }
    }

    #[track_caller]
    fn check(json: &str, expect: &str) {
        assert_eq!(shown(read_world(&BASE64.encode(json))), expect, "for {json}");
    }

    #[test]
    fn world_keeps_order_of_hosts_and_slots() {
        check(r#"{"localhost": [0, 1]}"#, "localhost:0,1");
        check(r#"{"b": [3, 1], "a": [0]}"#, "b:3,1 a:0");
        check(r#"{"ada@w0": [0]}"#, "w0:0");
    }

    #[test]
    fn invalid_world_is_reported_with_position() {
        check("", "world info is empty []");
        check("{", "EOF while parsing an object []");
        check("[0]", "invalid type: sequence, expected an object of hosts []");
        check(r#"{"a": [0],}"#, "trailing comma []");
        check("{}", "world info has no host [{]");
        check(r#"{"a": 4}"#, "`a`: expected a list of slots, found `4` [\"a\"]");
        check(r#"{"a": [0, -1]}"#, "`a`[1]: expected a slot, found `-1` [\"a\"]");
        check(r#"{"a": [0, "1"]}"#, "`a`[1]: expected a slot, found a string [\"a\"]");
        check(r#"{"a": [0.0]}"#, "`a`[0]: expected a slot, found `0.0` [\"a\"]");
        check(r#"{"a": [1, 1]}"#, "`a`[1]: slot 1 is listed twice [\"a\"]");
        check(r#"{"a": []}"#, "`a` has no slot; every node needs at least one slot [\"a\"]");
        check(r#"{"a": [0], "a": [1]}"#, "host `a` is listed twice [\"a\"]");
        check(
            r#"{"-oX": [0], "b": 1}"#,
            "host names may not begin with `-` [\"-oX\"]; \
             `b`: expected a list of slots, found `1` [\"b\"]",
        );
    }

    #[test]
    fn invalid_base64_is_reported_with_position() {
        let check = |text: &str, expect: &str| assert_eq!(shown(read_world(text)), expect);
        check("eyJh!jogWzBdfQ==", "invalid base64 at byte 4 [!]");
        check("eyJé", "invalid base64 at byte 3 [é]");
        check("eyJhIjogWzBdfQ", "base64 ends too early: it is truncated, or its `=` is missing []");
        check("eyJhI", "base64 ends too early: it is truncated, or its `=` is missing []");
        check("_w==", "the decoded bytes are not UTF-8 [_w==]");
        check("/w==", "the decoded bytes are not UTF-8 [/w==]");
        check("None", "the decoded bytes are not UTF-8 [None]");
    }

    proptest! {
        #[test]
        fn read_world_never_panics(text in ".{0,60}") {
            let _ = read_world(&text);
            let _ = read_world(&BASE64.encode(&text));
        }

        #[test]
        fn world_of_python_is_read(slots in prop::collection::vec(1u32..5, 1..6)) {
            let host = |(index, count): (usize, &u32)| {
                let own: Vec<String> = (0..*count).map(|slot| slot.to_string()).collect();
                (format!("\"w{index}\": [{}]", own.join(", ")), format!("w{index}:{}", own.join(",")))
            };
            let (json, expect): (Vec<_>, Vec<_>) = slots.iter().enumerate().map(host).unzip();
            let text = BASE64.encode(format!("{{{}}}", json.join(", ")));
            prop_assert_eq!(shown(read_world(&text)), expect.join(" "));
        }
    }
}
