//! What a `remuda.toml` means, for `remuda config check`. Pure.

use std::fmt::Write as _;

use super::known::KnownOptions;
use super::setting::{OptionSetting, OptionWords, SettingsFile};
use crate::report::escape_control;
use crate::report::text::{Align, show_columns, show_count};

/// Formats the options of a file without errors, by profile, each with the commands that have it.
pub(in crate::cli) fn show_settings(file: &SettingsFile, known: &KnownOptions) -> String {
    let name = escape_control(file.name());
    let profiles = show_count(file.profiles.len(), "profile");
    let mut out = format!("{name}: options of remuda, {profiles}\n");
    let tables = file.profiles.iter().map(|profile| {
        let title = format!("profile {}", escape_control(&profile.name));
        (title, &profile.settings)
    });
    let all = std::iter::once(("defaults".to_owned(), &file.defaults)).chain(tables);
    for (title, settings) in all {
        writeln!(out, "\n{title}:").expect("writing to a String cannot fail");
        let rows: Vec<[String; 4]> =
            settings.iter().map(|setting| row(setting, file, known)).collect();
        let text = show_columns(&rows, [Align::Left; 4]);
        out.extend(text.split_inclusive('\n').flat_map(|line| ["  ", line]));
    }
    out
}

fn row(setting: &OptionSetting, file: &SettingsFile, known: &KnownOptions) -> [String; 4] {
    let value = match &setting.words {
        OptionWords::Switch(is_on, _) => is_on.to_string(),
        OptionWords::Values(values) => {
            values.iter().map(|value| escape_control(&value.text)).collect::<Vec<_>>().join(" ")
        }
    };
    let commands = known.option(&setting.flag).map(|option| option.commands.join(", "));
    let line = format!("line {}", file.findings.source.line_of(setting.key_span.start));
    [setting.flag.clone(), value, line, commands.unwrap_or_default()]
}
