//! Checks of a file against the options: keys, and the types of values.

use super::known::{KnownKey, KnownOption, KnownOptions, OptionTakes};
use super::setting::{OptionSetting, OptionValue, OptionWords, SettingsFile, SettingsProfile};
use super::toml_tree::{TomlEntry, TomlNode, TomlValue, parse_toml};
use super::values;
use crate::base::order;
use crate::base::{Diagnostic, Findings, Source, show_typed};
use crate::cli::line::{option_with_meaning, underscored};
use crate::config::codes::{BAD_OPTION_VALUE, NOT_IN_FILES, OPTION_TWICE, UNKNOWN_OPTION_KEY};
use crate::pool::nearest;

/// The table that contains the profiles.
const PROFILES: &str = "profile";
/// Most characters of a value that a message shows.
const SHOWN_CHARS_MAX: usize = 40;

/// Parses and checks the text of a file; all problems are in the findings.
pub(in crate::cli) fn check_settings(source: Source, known: &KnownOptions) -> SettingsFile {
    let (entries, syntax) = parse_toml(&source.text);
    let mut checker = Checker { text: &source.text, known, problems: Vec::new() };
    let (tables, defaults): (Vec<_>, Vec<_>) =
        entries.iter().partition(|entry| checker.is_table(entry));
    let defaults = checker.table(defaults.into_iter());
    let mut profiles = Vec::new();
    for entry in tables {
        checker.top_table(entry, &mut profiles);
    }
    let mut problems = checker.problems;
    let all = std::iter::once(&defaults).chain(profiles.iter().map(|profile| &profile.settings));
    problems.extend(all.flat_map(|settings| values::problems(settings, &source, known)));
    // The rest of a line with an error of the syntax is not what was meant.
    let lines = |found: &Diagnostic| found.span.map(|span| source.line_of(span.start));
    let broken: Vec<_> = syntax.iter().map(lines).collect();
    problems.retain(|found| !broken.contains(&lines(found)));
    problems.extend(syntax);
    order::sort_by_key(&mut problems, |found| found.span.map(|span| span.start));
    SettingsFile { findings: Findings { source, diagnostics: problems }, defaults, profiles }
}

struct Checker<'a> {
    text: &'a str,
    known: &'a KnownOptions,
    problems: Vec<Diagnostic>,
}

impl<'a> Checker<'a> {
    /// Whether an entry is a table of options, or was meant as one.
    fn is_table(&self, entry: &TomlEntry) -> bool {
        let is_option = matches!(self.known.key(&entry.key), KnownKey::Option(_));
        let is_table = match &entry.node.value {
            TomlValue::Table(_) => true,
            TomlValue::List(items) => {
                items.iter().any(|item| matches!(item.value, TomlValue::Table(_)))
            }
            TomlValue::Text(_) | TomlValue::Number(_) | TomlValue::Bool(_) | TomlValue::Time => {
                false
            }
        };
        is_table && !is_option
    }

    /// Checks a table outside of the defaults.
    fn top_table(&mut self, entry: &TomlEntry, profiles: &mut Vec<SettingsProfile>) {
        let TomlValue::Table(inner) = &entry.node.value else {
            return self.not_a_profile(entry);
        };
        if entry.key != PROFILES {
            return self.not_a_profile(entry);
        }
        for profile in inner {
            let TomlValue::Table(options) = &profile.node.value else {
                let message = format!("`{PROFILES}.{}` is not a table", show_typed(&profile.key));
                let problem = Diagnostic::error(UNKNOWN_OPTION_KEY, profile.key_span, message);
                let help = "`[profile.NAME]` begins a profile; its options are below it";
                self.problems.push(problem.label("not a profile").help(help));
                continue;
            };
            let settings = self.table(options.iter());
            profiles.push(SettingsProfile { name: profile.key.clone(), settings });
        }
    }

    fn not_a_profile(&mut self, entry: &TomlEntry) {
        let key = show_typed(&entry.key);
        let is_mistyped = nearest(&entry.key, [PROFILES]).is_some();
        let name = if is_mistyped { "NAME" } else { &key };
        let message = format!("there is no table `{key}`");
        let problem = Diagnostic::error(UNKNOWN_OPTION_KEY, entry.key_span, message);
        let help =
            format!("a profile is written `[profile.{name}]`; defaults are before the first table");
        self.problems.push(problem.label("unknown").help(help));
    }

    /// Checks the entries of a table.
    fn table<'e>(&mut self, entries: impl Iterator<Item = &'e TomlEntry>) -> Vec<OptionSetting> {
        let mut found: Vec<OptionSetting> = Vec::new();
        for entry in entries {
            let Some(option) = self.option_of(entry) else { continue };
            let first = found.iter().find(|setting| setting.flag == option.long);
            if let Some(first) = first {
                let message = format!("`{}` and `{}` are the same option", first.key, entry.key);
                let problem = Diagnostic::error(OPTION_TWICE, entry.key_span, message)
                    .label("given again here")
                    .related(first.key_span, "first given here")
                    .help("keep one of the two");
                self.problems.push(problem);
                continue;
            }
            if let Some(words) = self.words(option, entry) {
                let (flag, key) = (option.long.clone(), entry.key.clone());
                found.push(OptionSetting { flag, key, key_span: entry.key_span, words });
            }
        }
        found
    }

    /// Returns the option that a key means.
    fn option_of(&mut self, entry: &TomlEntry) -> Option<&'a KnownOption> {
        let key = show_typed(&entry.key);
        let (code, message, label, help) = match self.known.key(&entry.key) {
            KnownKey::Option(option) => return Some(option),
            KnownKey::OnlyTyped(long) => {
                let help = match &*underscored(&long) {
                    PROFILES => {
                        "`[profile.NAME]` begins a profile; REMUDA_PROFILE or `--profile NAME` selects it".to_owned()
                    }
                    _ => format!("type `--{long}` when you need it"),
                };
                (
                    NOT_IN_FILES,
                    format!("`{key}` cannot be set in a file"),
                    "only for the command line",
                    help,
                )
            }
            KnownKey::Word => {
                let message = format!("`{key}` cannot be set in a file");
                let help = "the program is typed on the command line, after the options".to_owned();
                (NOT_IN_FILES, message, "not an option", help)
            }
            KnownKey::Letter(option) => {
                let help = format!("write the option out: `{}`", option.long);
                (UNKNOWN_OPTION_KEY, format!("there is no option `{key}`"), "unknown", help)
            }
            KnownKey::Unknown => {
                let message = format!("there is no option `{key}`");
                (UNKNOWN_OPTION_KEY, message, "unknown", self.meant(&entry.key))
            }
        };
        let problem = Diagnostic::error(code, entry.key_span, message).label(label).help(help);
        self.problems.push(problem);
        None
    }

    /// Returns what an unknown key may mean.
    fn meant(&self, key: &str) -> String {
        let name = underscored(key.trim_start_matches('-'));
        if let Some(option) = self.known.option(&name).or_else(|| {
            let meant = option_with_meaning(&name)?;
            self.known.option(meant)
        }) {
            return format!("did you mean `{}`?", option.long);
        }
        match nearest(&name, self.known.names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "keys are options without dashes; `remuda run --help` lists those of `run`"
                .to_owned(),
        }
    }

    /// Returns the words that a value stands for.
    fn words(&mut self, option: &KnownOption, entry: &TomlEntry) -> Option<OptionWords> {
        let node = &entry.node;
        match (option.takes, &node.value) {
            (OptionTakes::Nothing, TomlValue::Bool(is_on)) => {
                Some(OptionWords::Switch(*is_on, node.span))
            }
            (OptionTakes::Nothing, _) => {
                let help = format!("write `{} = true`, or leave it out", entry.key);
                self.refuse(entry, node, "expected `true` or `false`, without quotes", help)
            }
            (
                OptionTakes::One | OptionTakes::Many,
                TomlValue::Text(text) | TomlValue::Number(text),
            ) => {
                let value = OptionValue { text: text.clone(), span: node.span };
                Some(OptionWords::Values(vec![value]))
            }
            (OptionTakes::Many, TomlValue::List(items)) => {
                let items: Option<Vec<_>> =
                    items.iter().map(|item| self.item(option, entry, item)).collect();
                items.map(OptionWords::Values)
            }
            (OptionTakes::Many, _) => {
                self.refuse(entry, node, "expected a list of texts", list_help(option, entry))
            }
            (OptionTakes::One, TomlValue::List(_)) => {
                let help = "the option takes one value: remove the brackets".to_owned();
                self.refuse(entry, node, "expected one text or number", help)
            }
            (OptionTakes::One, _) => {
                let help = format!("write `{} = \"{}\"`", entry.key, option.value_name);
                self.refuse(entry, node, "expected a text or a number", help)
            }
        }
    }

    fn item(
        &mut self,
        option: &KnownOption,
        entry: &TomlEntry,
        item: &TomlNode,
    ) -> Option<OptionValue> {
        if let TomlValue::Text(text) | TomlValue::Number(text) = &item.value {
            return Some(OptionValue { text: text.clone(), span: item.span });
        }
        self.refuse(entry, item, "expected a text", list_help(option, entry))?;
        None
    }

    /// Adds the problem of a value of the wrong type.
    fn refuse(
        &mut self,
        entry: &TomlEntry,
        node: &TomlNode,
        expected: &str,
        help: String,
    ) -> Option<OptionWords> {
        let text = self.text.get(node.span.start..node.span.end).unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let is_cut = line.len() < text.len() || SHOWN_CHARS_MAX < line.chars().count();
        let shown: String = line.chars().take(SHOWN_CHARS_MAX).collect();
        let more = if is_cut { "…" } else { "" };
        let message =
            format!("`{}` cannot be `{}{more}`", show_typed(&entry.key), show_typed(&shown));
        let problem =
            Diagnostic::error(BAD_OPTION_VALUE, node.span, message).label(expected).help(help);
        self.problems.push(problem);
        None
    }
}

fn list_help(option: &KnownOption, entry: &TomlEntry) -> String {
    format!("write `{} = [\"{}\"]`", entry.key, option.value_name.replace(['[', ']'], ""))
}
