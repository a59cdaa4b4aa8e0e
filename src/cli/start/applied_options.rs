//! Options that the line has from files and variables, in a dry run. Pure.

use std::ffi::OsStr;

use crate::cli::line::{AppliedOption, AppliedSettings, SettingOrigin};
use crate::plan::{Export, VariableOrigin};
use crate::report::OptionDocument;
use crate::report::plan::Secrets;

/// The option whose value has the name of a variable.
const ENV: &str = "env";

/// Returns the options with their sources; values of variables that look like secrets are masked.
pub(super) fn option_documents(
    settings: &AppliedSettings,
    secrets: Secrets,
) -> Vec<OptionDocument> {
    let document = |option: &AppliedOption| OptionDocument {
        option: option.name.clone(),
        value: option.value.as_ref().map(|value| match value.split_once('=') {
            Some((name, _)) if option.name == ENV => secrets.mask(OsStr::new(name), value),
            Some(_) | None => value.clone(),
        }),
        origin: option.origin.to_string(),
    };
    // What was translated is on the command line.
    let is_elsewhere = |option: &&AppliedOption| match option.origin {
        SettingOrigin::File { .. } | SettingOrigin::Variable(_) => true,
        SettingOrigin::Launcher(_) => false,
    };
    settings.options.iter().filter(is_elsewhere).map(document).collect()
}

/// Names the source of the variables of `--env` that a file, a variable or another launcher gives.
pub(super) fn set_origins(exports: &mut [Export], settings: Option<&AppliedSettings>) {
    let Some(settings) = settings else { return };
    for option in settings.options.iter().filter(|option| option.name == ENV) {
        let name = option.value.as_deref().and_then(|value| value.split('=').next());
        let is_it = |export: &&mut Export| {
            export.origin == VariableOrigin::Flag && export.name.to_str() == name
        };
        let origin = VariableOrigin::Setting(option.origin.to_string());
        exports.iter_mut().filter(is_it).for_each(|export| export.origin = origin.clone());
    }
}
