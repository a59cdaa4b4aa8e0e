//! Types of optimizers and schedules, and the table of parameters that each has.

use crate::base::{Diagnostic, nearest, show_typed};
use crate::config::check::checker::Checker;
use crate::config::codes::{MISSING_KEY, NOT_AN_OBJECT, REFUSED, UNKNOWN_NAME};
use crate::config::keys::{
    KeyDefault, KeySpec, OPTIMIZERS, OptimizerKind, OptimizerSpec, SCHEDULES, SectionSpec,
};
use crate::config::tree::{AUTO, ConfigEntry, ConfigValue};

/// Finds an optimizer by its name: DeepSpeed's in any case, those of torch as they are spelled.
pub(in crate::config) fn find_optimizer(name: &str) -> Option<&'static OptimizerSpec> {
    OPTIMIZERS.iter().find(|one| {
        one.name == name || one.is_known_to_deepspeed && one.name.eq_ignore_ascii_case(name)
    })
}

/// The entry of a key in an object.
fn entry<'a>(entries: &'a [ConfigEntry], key: &str) -> Option<&'a ConfigEntry> {
    entries.iter().find(|entry| entry.key == key)
}

impl Checker {
    /// Checks `type` and `params` of `optimizer`.
    pub(super) fn optimizer(&mut self, entries: &[ConfigEntry]) {
        let Some(kind) = self.optimizer_kind(entries) else { return };
        self.params("optimizer.params", kind.params(), entries);
    }

    fn optimizer_kind(&mut self, entries: &[ConfigEntry]) -> Option<OptimizerKind> {
        let (name, found) = self.name(entries)?;
        let Some(spec) = find_optimizer(name) else {
            let names = OPTIMIZERS.iter().map(|one| one.name);
            self.unknown_name("optimizer", found, names, "use `Adam`, `AdamW`, `SGD` or `Lion`");
            return None;
        };
        let Some(kind) = spec.kind else {
            let message = format!("remuda has no optimizer `{}`", spec.name);
            let problem = Diagnostic::error(REFUSED, found.node.span, message);
            self.problems
                .push(problem.label("refused").help("use `Adam`, `AdamW`, `SGD` or `Lion`"));
            return None;
        };
        let is_torch = kind == OptimizerKind::Adam
            && entry(entries, "params")
                .and_then(|params| entry(params.node.value.entries()?, "torch_adam"))
                .is_some_and(|switch| switch.node.value == ConfigValue::Bool(true));
        Some(if is_torch { OptimizerKind::TorchAdam } else { kind })
    }

    /// Checks `type` and `params` of `scheduler`.
    pub(super) fn scheduler(&mut self, entries: &[ConfigEntry]) {
        let Some((name, found)) = self.name(entries) else { return };
        let Some(spec) = SCHEDULES.iter().find(|one| one.name == name) else {
            let names = SCHEDULES.iter().map(|one| one.name);
            self.unknown_name(
                "schedule",
                found,
                names,
                "`remuda explain G019` lists the schedules",
            );
            return;
        };
        if let Some(kind) = spec.kind {
            self.params("scheduler.params", kind.params(), entries);
        } else {
            let message = format!("remuda has no schedule `{}`", spec.name);
            let problem = Diagnostic::error(REFUSED, found.node.span, message);
            let help = "`remuda explain G019` lists the schedules";
            self.problems.push(problem.label("refused").help(help));
        }
    }

    /// The `type` of an optimizer or a schedule. Without one, DeepSpeed ignores `params`.
    fn name<'a>(&mut self, entries: &'a [ConfigEntry]) -> Option<(&'a str, &'a ConfigEntry)> {
        let found = entry(entries, "type");
        let params = entry(entries, "params");
        let is_missing = found.is_none_or(|found| found.node.value == ConfigValue::Null);
        if let (true, Some(params)) = (is_missing, params) {
            let problem = Diagnostic::warning(
                MISSING_KEY,
                params.key_span,
                "`params` without a `type` beside it",
            );
            self.problems
                .push(problem.label("ignored, by DeepSpeed as well").help("add the key `type`"));
        }
        let found = found?;
        match &found.node.value {
            ConfigValue::Text(name) if name != AUTO => Some((name, found)),
            // Another type, and `auto`, were reported with the key itself.
            _ => None,
        }
    }

    fn unknown_name(
        &mut self,
        what: &str,
        found: &ConfigEntry,
        names: impl Iterator<Item = &'static str>,
        help: &str,
    ) {
        let ConfigValue::Text(name) = &found.node.value else { return };
        let message = format!("unknown {what} `{}`", show_typed(name));
        let problem = Diagnostic::error(UNKNOWN_NAME, found.node.span, message).label("unknown");
        self.problems.push(match nearest(name, names) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None => problem.help(help),
        });
    }

    /// Checks the parameters against their table, and that the required ones are there.
    fn params(&mut self, path: &str, table: &'static SectionSpec, entries: &[ConfigEntry]) {
        let params = entry(entries, "params");
        let given = match params.map(|params| &params.node.value) {
            None | Some(ConfigValue::Null) => &[],
            Some(ConfigValue::Map(given)) => given.as_slice(),
            Some(_) => return,
        };
        self.section(table, path, given);
        let required = table.keys.iter().filter(|key| key.default == KeyDefault::Required);
        for key in required.filter(|key| !given.iter().any(|one| key.is_named(&one.key))) {
            let place = params.or_else(|| entry(entries, "type"));
            let Some(place) = place else { continue };
            let message = format!("`{}` is missing in `{path}`", key.name);
            let problem = Diagnostic::error(MISSING_KEY, place.key_span, message);
            let expected = key.kind.expected();
            self.problems.push(
                problem.label(format!("needs `{}`", key.name)).help(format!("add it: {expected}")),
            );
        }
    }

    /// The problem of a section that is no object.
    pub(super) fn no_object(&mut self, path: &str, found: &ConfigEntry, key: &KeySpec) {
        let message = format!("`{path}` is {}", found.node.value.kind());
        let problem = Diagnostic::error(NOT_AN_OBJECT, found.node.span, message);
        let help = format!("write `{}`, or remove the key", key.example_object());
        self.problems.push(problem.label(format!("expected {}", key.kind.expected())).help(help));
    }
}
