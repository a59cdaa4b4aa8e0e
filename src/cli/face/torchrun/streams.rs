//! Streams of workers: `--redirects`, `--tee`, `--local-ranks-filter`, the prefix of lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::args::TorchrunArgs;
use super::values::Values;
use crate::base::env_vars;
use crate::cli::error::CliError;
use crate::cli::line::{BadValue, python_int};
use crate::cli::start::{TeePrefix, TorchrunStreams};
use crate::report::{OutputStreams, StreamSet};

/// Parses `0`, `3`, or `0:3,1:1`.
fn parse_streams(text: &str) -> Result<StreamSet, BadValue> {
    let streams = |text: &str| {
        match text {
        "0" => Ok(OutputStreams::None),
        "1" => Ok(OutputStreams::Stdout),
        "2" => Ok(OutputStreams::Stderr),
        "3" => Ok(OutputStreams::Both),
        _ => Err(BadValue::new("expected 0, 1, 2, 3, or RANK:NUMBER pairs").help(
            "0 is no stream, 1 stdout, 2 stderr, 3 both; `0:3,1:1` sets those of local ranks 0 and 1",
        )),
    }
    };
    if !text.contains(':') {
        return streams(text).map(StreamSet::Every);
    }
    let mut of_rank = BTreeMap::new();
    for pair in text.split(',') {
        let (rank, value) = pair.split_once(':').unwrap_or((pair, ""));
        let Ok(rank) = rank.parse::<u32>() else { return streams("").map(StreamSet::Every) };
        of_rank.insert(rank, streams(value)?);
    }
    Ok(StreamSet::Some(of_rank))
}

/// Parses `0,1`.
fn parse_local_ranks(text: &str) -> Result<BTreeSet<u32>, BadValue> {
    let rank = |text: &str| u32::try_from(python_int(text)?).ok();
    let ranks = text.split(',').map(rank).collect::<Option<_>>();
    ranks.ok_or_else(|| BadValue::new("expected local ranks").help("write numbers: `0,1`"))
}

/// Reads the texts of `apple,orange`; `,,` is a comma in a text.
fn parse_filters(text: &str) -> Vec<String> {
    let mut texts = vec![String::new()];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let last = texts.last_mut().expect("never empty");
        match rest.strip_prefix(",,") {
            Some(after) => {
                last.push(',');
                rest = after;
                continue;
            }
            None if first == ',' => texts.push(String::new()),
            None => last.push(first),
        }
        rest = &rest[first.len_utf8()..];
    }
    texts
}

/// The prefix of lines as remuda writes its placeholders; torchrun's own by default.
fn prefix(template: Option<&str>, role: &str) -> TeePrefix {
    let Some(template) = template else { return TeePrefix::Usual(role.to_owned()) };
    let names = [
        ("role_name", role),
        ("local_rank", "{local_rank}"),
        ("rank", "{rank}"),
        ("hostname", "{host}"),
    ];
    TeePrefix::Given(fill_template(template, &names))
}

/// Replaces `${NAME}` and `$NAME`, and `$$` by `$`, as `string.Template` of Python does. Other names
/// stay.
fn fill_template(template: &str, names: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let (text, braces) = match rest.strip_prefix('{') {
            Some(text) => (text, true),
            None => (rest, false),
        };
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let (name, after) = text.split_at(end.unwrap_or(text.len()));
        let after = if braces { after.strip_prefix('}') } else { Some(after) };
        match (names.iter().find(|(known, _)| *known == name), after) {
            (Some((_, value)), Some(after)) => {
                out.push_str(value);
                rest = after;
            }
            _ => out.push('$'),
        }
    }
    out + rest
}

/// Returns where the output of the workers goes.
pub(super) fn streams(
    args: &TorchrunArgs,
    values: Values<'_>,
) -> Result<TorchrunStreams, CliError> {
    let logs = &args.logs;
    let set = |flag, typed: &Option<String>| {
        values.text(flag, typed.as_deref(), "0").parse(parse_streams)
    };
    let role = values.text("role", args.watch.role.as_deref(), "default").text;
    let template =
        values.optional("log-line-prefix-template", logs.log_line_prefix_template.as_deref());
    let template = template.map(|template| template.text);
    let template =
        template.or_else(|| env_vars::get_text(env_vars::TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE));
    let shown = values.optional("local-ranks-filter", logs.local_ranks_filter.as_deref());
    let typed_dir = logs.log_dir.as_ref().map(|dir| dir.to_string_lossy());
    let directory = values.optional("log-dir", typed_dir.as_deref());
    let filters = |flag, typed: &Option<String>| {
        let value = values.text(flag, typed.as_deref(), "");
        if value.is_given() { parse_filters(&value.text) } else { Vec::new() }
    };
    let streams = TorchrunStreams {
        stdout_filters: filters("duplicate-stdout-filters", &logs.duplicate_stdout_filters),
        stderr_filters: filters("duplicate-stderr-filters", &logs.duplicate_stderr_filters),
        directory: directory.map(|directory| PathBuf::from(directory.text)),
        redirected: set("redirects", &logs.redirects)?,
        tee: set("tee", &logs.tee)?,
        tee_prefix: prefix(template.as_deref(), &role),
        shown: shown.map(|ranks| ranks.parse(parse_local_ranks)).transpose()?,
    };
    let is_off = streams.directory.as_deref() == Some(Path::new("/dev/null"));
    Ok(if is_off { without_files(streams) } else { streams })
}

/// Streams of a job without log files, as torchrun has them: all output is on the screen.
fn without_files(streams: TorchrunStreams) -> TorchrunStreams {
    let none = || StreamSet::Every(OutputStreams::None);
    TorchrunStreams {
        directory: None,
        redirected: none(),
        tee: none(),
        shown: None,
        stdout_filters: Vec::new(),
        stderr_filters: Vec::new(),
        ..streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_numbers_or_pairs() {
        assert_eq!(parse_streams("3"), Ok(StreamSet::Every(OutputStreams::Both)));
        let pairs = [(0, OutputStreams::Both), (10, OutputStreams::Stdout)];
        assert_eq!(parse_streams("0:3,10:1"), Ok(StreamSet::Some(pairs.into())));
        for bad in ["4", "", "x", "0:4", "0:3,1", ":1", "a:1"] {
            assert!(parse_streams(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn local_ranks_are_a_list() {
        assert_eq!(parse_local_ranks("0, 2"), Ok([0, 2].into()));
        assert!(parse_local_ranks("0,-1").is_err() && parse_local_ranks("").is_err());
    }

    #[test]
    fn filters_are_texts_between_single_commas() {
        assert_eq!(parse_filters("apple,orange"), ["apple", "orange"]);
        assert_eq!(parse_filters("a,,b,c"), ["a,b", "c"]);
        assert_eq!(parse_filters(",,,"), [",", ""]);
        assert_eq!(parse_filters(""), [""]);
    }

    #[test]
    fn prefix_of_torchrun_is_translated() {
        let usual = prefix(None, "trainer");
        assert_eq!(usual.in_files(), "[trainer{local_rank}]:");
        assert_eq!(usual.on_screen(1), usual.in_files());
        assert_eq!(usual.on_screen(2), "[{host}:trainer{local_rank}]:");
        let prefix = |template, role| prefix(template, role).on_screen(2);
        let own = "${hostname} ${role_name}/${rank}.${local_rank} ";
        assert_eq!(prefix(Some(own), "x"), "{host} x/{rank}.{local_rank} ");
        assert_eq!(
            prefix(Some("$rank:$$ ${rank $ranks ${x}$"), "x"),
            "{rank}:$ ${rank $ranks ${x}$"
        );
    }
}
