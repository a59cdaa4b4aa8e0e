//! The walk over the tree of a configuration.

use super::settings::{GivenSetting, GivenSettings, GivenValue, Ineffective, join};
use super::unknown::unknown_key;
use super::value::{Misfit, convert};
use crate::base::diagnostic::Severity;
use crate::base::{Diagnostic, Span, nearest};
use crate::config::auto::has_rule;
use crate::config::codes::{
    BAD_SETTING, CONTRADICTION, NO_AUTO, NOT_AN_OBJECT, OLD_SPELLING, REFUSED, REMOVED, WRONG_TYPE,
};
use crate::config::keys::{
    KeyDefault, KeyKind, KeySpec, KeyStatus, SectionReader, SectionSpec, TOP,
};
use crate::config::tree::{ConfigEntry, ConfigNode, ConfigValue};

/// The settings of a tree, and all of its problems.
#[derive(Debug, Default)]
pub(in crate::config) struct CheckedTree {
    pub(in crate::config) settings: GivenSettings,
    pub(in crate::config) problems: Vec<Diagnostic>,
    /// Keys without effect, in the order of the file.
    pub(in crate::config) ineffective: Vec<Ineffective>,
}

/// Checks a tree.
pub(in crate::config) fn check_tree(root: &ConfigNode) -> CheckedTree {
    let mut checker = Checker::default();
    if let Some(entries) = root.value.entries() {
        checker.section(&TOP, "", entries);
    } else {
        let message = format!("the file is {}", root.value.kind());
        let problem = Diagnostic::error(NOT_AN_OBJECT, root.span, message);
        checker.problems.push(
            problem
                .label("expected an object")
                .help("a configuration is `{\"train_batch_size\": 8, …}`"),
        );
    }
    let Checker { settings, problems, ineffective, .. } = checker;
    CheckedTree { settings, problems, ineffective }
}

/// What the walk has found so far.
#[derive(Debug, Default)]
pub(in crate::config) struct Checker {
    settings: GivenSettings,
    pub(super) problems: Vec<Diagnostic>,
    ineffective: Vec<Ineffective>,
    /// Depth of sections without effect: their keys are not listed one by one.
    idle_sections: usize,
}

impl Checker {
    /// Checks the entries of a section.
    pub(super) fn section(
        &mut self,
        spec: &'static SectionSpec,
        path: &str,
        entries: &[ConfigEntry],
    ) {
        for entry in entries {
            match spec.keys.iter().find(|key| key.is_named(&entry.key)) {
                None => self.problems.push(unknown_key(spec, path, entry)),
                Some(key) => self.key(spec.reader, key, path, entry),
            }
        }
        self.two_names(spec, entries);
        match path {
            "" => self.old_bf16(entries),
            "zero_optimization" => self.old_zero_keys(entries),
            "optimizer" => self.optimizer(entries),
            "scheduler" => self.scheduler(entries),
            _ => {}
        }
    }

    fn key(
        &mut self,
        reader: SectionReader,
        key: &'static KeySpec,
        section: &str,
        entry: &ConfigEntry,
    ) {
        let path = join(section, key.name);
        if let KeyStatus::Removed(instead) = key.status {
            let message = format!("`{path}` was removed from DeepSpeed");
            let problem = Diagnostic::error(REMOVED, entry.key_span, message);
            self.problems.push(problem.label("DeepSpeed also refuses it").help(instead));
            return;
        }
        if path == "bfloat16" {
            return;
        }
        let value = &entry.node.value;
        if value.is_auto() && key.default != KeyDefault::Text("auto") {
            return self.auto(reader, key.kind, &path, entry);
        }
        match (key.kind, value) {
            (
                KeyKind::Section(inner) | KeyKind::BoolOrSection(inner),
                ConfigValue::Map(entries),
            ) => {
                self.inner_section(key, &path, entry, inner, entries);
            }
            (KeyKind::Params, ConfigValue::Map(_)) => {}
            (KeyKind::BoolOrSection(_), ConfigValue::Bool(on)) => self.zero_bool(*on, entry),
            (KeyKind::Section(_) | KeyKind::BoolOrSection(_) | KeyKind::Params, found) => {
                let is_nullable = key.takes_null || key.default == KeyDefault::Null;
                if *found != ConfigValue::Null || !is_nullable {
                    self.no_object(&path, entry, key);
                }
            }
            _ => self.scalar(reader, key, path, entry),
        }
    }

    fn auto(&mut self, reader: SectionReader, kind: KeyKind, path: &str, entry: &ConfigEntry) {
        if reader == SectionReader::Model || has_rule(path) {
            let setting = GivenSetting {
                value: GivenValue::Auto,
                span: entry.node.span,
                key_span: entry.key_span,
            };
            self.settings.insert(path.to_owned(), setting);
            return;
        }
        let message = format!("`{path}` cannot be `auto`");
        let problem = Diagnostic::error(NO_AUTO, entry.node.span, message);
        let expected =
            if matches!(kind, KeyKind::Text) { "a value".to_owned() } else { kind.expected() };
        let help = format!("write {expected}, or remove the key");
        self.problems.push(problem.label("`auto` is not allowed here").help(help));
    }

    fn inner_section(
        &mut self,
        key: &KeySpec,
        path: &str,
        entry: &ConfigEntry,
        inner: &'static SectionSpec,
        entries: &[ConfigEntry],
    ) {
        let is_idle = match key.status {
            KeyStatus::Works(_) => false,
            KeyStatus::NoEffect(reason) => {
                self.note_idle(path, entry.key_span, reason);
                true
            }
            KeyStatus::Refused(instead) | KeyStatus::Removed(instead) => {
                self.refuse(path, entry.key_span, instead);
                true
            }
        };
        self.idle_sections += usize::from(is_idle);
        self.section(inner, path, entries);
        self.idle_sections -= usize::from(is_idle);
    }

    fn scalar(&mut self, reader: SectionReader, key: &KeySpec, path: String, entry: &ConfigEntry) {
        let value = match convert(key, reader, &entry.node.value) {
            Ok(value) => value,
            Err(misfit) => {
                self.problems.push(misfit_problem(misfit, key, &path, entry));
                let (span, key_span) = (entry.node.span, entry.key_span);
                let setting = GivenSetting { value: GivenValue::Invalid, span, key_span };
                return self.settings.insert(path, setting);
            }
        };
        match key.status {
            KeyStatus::Works(_) => {}
            KeyStatus::NoEffect(reason) => self.note_idle(&path, entry.key_span, reason),
            KeyStatus::Refused(instead) | KeyStatus::Removed(instead) => {
                if !is_default(key, &value) {
                    let setting = format!("{path}: {}", value.show());
                    self.refuse(&setting, entry.node.span, instead);
                }
            }
        }
        let value = GivenValue::Is(value);
        let setting = GivenSetting { value, span: entry.node.span, key_span: entry.key_span };
        self.settings.insert(path, setting);
    }

    fn note_idle(&mut self, path: &str, span: Span, reason: &str) {
        if self.idle_sections == 0 {
            let path = path.to_owned();
            self.ineffective.push(Ineffective { path, span, reason: reason.to_owned() });
        }
    }

    fn refuse(&mut self, setting: &str, span: Span, instead: &str) {
        let message = format!("remuda does not support `{setting}`");
        let problem = Diagnostic::error(REFUSED, span, message);
        self.problems.push(problem.label("refused").help(instead));
    }

    /// Reports a key that is given by both of its names.
    fn two_names(&mut self, spec: &SectionSpec, entries: &[ConfigEntry]) {
        for key in spec.keys.iter().filter(|key| key.alias.is_some()) {
            let mut given = entries.iter().filter(|entry| key.is_named(&entry.key));
            if let (Some(first), Some(second)) = (given.next(), given.next()) {
                let message = format!("`{}` and `{}` are one key", first.key, second.key);
                self.contradiction(second.key_span, message, first.key_span);
            }
        }
    }

    fn contradiction(&mut self, span: Span, message: String, other: Span) {
        let problem = Diagnostic::error(CONTRADICTION, span, message);
        self.problems.push(
            problem.label("given again").related(other, "given here").help("remove one of the two"),
        );
    }

    /// `zero_optimization: true`.
    fn zero_bool(&mut self, on: bool, entry: &ConfigEntry) {
        let stage = i64::from(on);
        let setting = GivenSetting {
            value: GivenValue::Is(ConfigValue::Whole(stage)),
            span: entry.node.span,
            key_span: entry.key_span,
        };
        self.settings.insert("zero_optimization.stage".to_owned(), setting);
        let meaning = format!("`zero_optimization: {on}` is stage {stage}");
        self.old_spelling(entry.node.span, meaning, &format!("`{{\"stage\": {stage}}}`"));
    }

    /// `bfloat16`, which DeepSpeed reads if `bf16` is absent.
    fn old_bf16(&mut self, entries: &[ConfigEntry]) {
        let Some(old) = entries.iter().find(|entry| entry.key == "bfloat16") else { return };
        let new = entries.iter().find(|entry| entry.key == "bf16");
        if new.is_some_and(|new| new.node.value != ConfigValue::Null) {
            self.note_idle("bfloat16", old.key_span, "`bf16` counts, and it is given as well");
            return;
        }
        let bf16 = TOP.keys.iter().find(|key| key.is_named("bf16")).expect("a key of the table");
        match (bf16.section(), &old.node.value) {
            (Some(section), ConfigValue::Map(inner)) => {
                self.old_spelling(old.key_span, "`bfloat16` is `bf16`".to_owned(), "`bf16`");
                self.section(section, "bf16", inner);
            }
            _ => self.no_object("bfloat16", old, bf16),
        }
    }

    /// Old keys of `zero_optimization`, which set new ones.
    fn old_zero_keys(&mut self, entries: &[ConfigEntry]) {
        const OLD: [(&str, &str, &str); 3] = [
            ("cpu_offload", "offload_optimizer", "`\"offload_optimizer\": {\"device\": \"cpu\"}`"),
            ("cpu_offload_param", "offload_param", "`\"offload_param\": {\"device\": \"cpu\"}`"),
            (
                "stage3_gather_fp16_weights_on_model_save",
                "stage3_gather_16bit_weights_on_model_save",
                "`stage3_gather_16bit_weights_on_model_save`",
            ),
        ];
        for (old, new, spelling) in OLD {
            let Some(found) = entries.iter().find(|entry| entry.key == old) else { continue };
            let is_new = |entry: &&ConfigEntry| {
                entry.key == new || Some(entry.key.as_str()) == new.strip_prefix("stage3_")
            };
            if let Some(other) = entries.iter().find(is_new) {
                let message = format!("`{old}` is an old spelling of `{new}`, which is given too");
                self.contradiction(found.key_span, message, other.key_span);
                continue;
            }
            let path = join("zero_optimization", old);
            let Some(setting) = self.settings.get(&path).cloned() else { continue };
            self.old_spelling(found.key_span, format!("`{old}` sets `{new}`"), spelling);
            let (target, value) = if old.starts_with("cpu_") {
                let device = if self.settings.is_on(&path) { "cpu" } else { "none" };
                (format!("zero_optimization.{new}.device"), ConfigValue::Text(device.to_owned()))
            } else {
                (format!("zero_optimization.{new}"), ConfigValue::Bool(self.settings.is_on(&path)))
            };
            self.settings.insert(target, GivenSetting { value: GivenValue::Is(value), ..setting });
        }
    }

    fn old_spelling(&mut self, span: Span, meaning: String, spelling: &str) {
        let note = Diagnostic::error(OLD_SPELLING, span, meaning).severity(Severity::Note);
        self.problems.push(note.label("an old spelling").help(format!("use {spelling}")));
    }
}

/// Whether a value is the default of its key.
fn is_default(key: &KeySpec, value: &ConfigValue) -> bool {
    let Some(default) = key.default.value() else { return false };
    match (&default, value) {
        (ConfigValue::Float(default), ConfigValue::Whole(number)) => {
            default.total_cmp(&(*number as f64)).is_eq()
        }
        _ => default == *value,
    }
}

fn misfit_problem(misfit: Misfit, key: &KeySpec, path: &str, entry: &ConfigEntry) -> Diagnostic {
    let value = &entry.node.value;
    let expected = key.kind.expected();
    let code = match misfit {
        Misfit::Type => WRONG_TYPE,
        Misfit::Limit => BAD_SETTING,
    };
    let message = match misfit {
        Misfit::Type => match not_two_numbers(key, value) {
            Some(found) => format!("`{path}` needs two numbers, and has {found}"),
            None => format!("`{path}` is {}", value.kind()),
        },
        Misfit::Limit => format!("`{path}` cannot be {}", value.show()),
    };
    let problem =
        Diagnostic::error(code, entry.node.span, message).label(format!("expected {expected}"));
    match correction(key, value) {
        Some(help) => problem.help(help),
        None => problem,
    }
}

/// What a list of betas has, if it does not have two numbers.
fn not_two_numbers(key: &KeySpec, value: &ConfigValue) -> Option<String> {
    let (KeyKind::Betas, ConfigValue::List(items)) = (key.kind, value) else { return None };
    let is_number =
        |item: &&ConfigNode| matches!(item.value, ConfigValue::Whole(_) | ConfigValue::Float(_));
    Some(match (items.len(), items.iter().find(|item| !is_number(item))) {
        (0, _) => "none".to_owned(),
        (_, Some(other)) => other.value.show(),
        (1, None) => "one".to_owned(),
        (count, None) => count.to_string(),
    })
}

/// What is probably meant by a value that does not fit.
fn correction(key: &KeySpec, value: &ConfigValue) -> Option<String> {
    let ConfigValue::Text(text) = value else { return None };
    let word = text.trim_end_matches(',');
    if let Some(json) = ["true", "false", "null"]
        .into_iter()
        .find(|json| word.eq_ignore_ascii_case(json) || *json == "null" && word == "None")
    {
        return Some(format!("write `{json}`, in lower case and without quotes"));
    }
    match key.kind {
        KeyKind::OneOf(words) | KeyKind::OneOfAnyCase(words) => {
            nearest(text, words.iter().copied()).map(|near| format!("did you mean `{near}`?"))
        }
        KeyKind::Whole(_) | KeyKind::Number(..) | KeyKind::Stage
            if word.parse::<f64>().is_ok_and(f64::is_finite) =>
        {
            Some(format!("write {word} without quotes"))
        }
        _ => None,
    }
}
