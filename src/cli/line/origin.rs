//! Lines that were made from another line, from files and from variables: where the value of an option is
//! from, and errors at that place. Pure.

use super::applied::AppliedSettings;
use super::codes;
use super::flags::underscored;
use super::typed::{
    ArgvSpan, CommandLine, GivenOption, LineOrigin, LineRelation, RefusedLine, SettingPlace,
    SettingsSource,
};
use crate::base::{Diagnostic, Findings, Span};
use crate::report::diagnostic::show_place;

/// Makes a diagnostic from the spans of places.
type MakeDiagnostic<'a> = Box<dyn FnOnce(&[Span]) -> Diagnostic + 'a>;

/// Where the value of an option of a made line is from.
#[derive(Clone, Copy)]
enum OptionOrigin<'a> {
    /// From the option of this name.
    Line(&'a str),
    /// From a file or a variable.
    Setting(&'a SettingsSource, &'a SettingPlace),
}

impl CommandLine {
    /// Returns the number of words that were added before those that were typed.
    pub(super) fn added_words(&self) -> usize {
        match self.origin.as_ref().map(|origin| origin.relation) {
            Some(LineRelation::Extended(added)) => added,
            Some(LineRelation::Translated(_)) | None => 0,
        }
    }

    /// Returns the words before this one, without those that were added.
    pub(in crate::cli) fn words_before(&self, at: usize) -> &[std::ffi::OsString] {
        &self.words[self.added_words().min(at)..at]
    }

    /// Returns what the line has from files and variables.
    pub(in crate::cli) fn applied_settings(&self) -> Option<&AppliedSettings> {
        self.origin.as_ref()?.applied.as_ref()
    }

    /// Returns an option as a message names it: `--tee`, or the option or setting from which it was made.
    pub(in crate::cli) fn shown_name(&self, flag: &str) -> String {
        match self.origin.as_ref().map(|origin| origin.find(flag)) {
            Some(OptionOrigin::Setting(_, place)) => place.name.clone(),
            Some(OptionOrigin::Line(_)) | None => self.option_name(flag),
        }
    }

    /// Returns an option as the user can type it: `--tee`, or the option from which it was made.
    pub(in crate::cli) fn option_name(&self, flag: &str) -> String {
        let found = self.origin.as_ref().map(|origin| (origin.relation, origin.find(flag)));
        let name = match found {
            None | Some((LineRelation::Extended(_), _)) => flag,
            Some((_, OptionOrigin::Line(name))) => name,
            Some((_, OptionOrigin::Setting(_, place))) => &place.name,
        };
        format!("--{}", self.spelled(name))
    }

    /// Returns an option, or the setting from which it was made, as messages name it, if the user gave it.
    pub(in crate::cli) fn given_name(&self, flag: &str) -> Option<String> {
        let name = || self.shown_name(flag);
        match self.origin.as_ref().map(|origin| (origin, origin.find(flag))) {
            None => self.last(flag).map(|_| name()),
            Some((origin, OptionOrigin::Line(of_line))) => {
                origin.typed.last(of_line).map(|_| name())
            }
            Some((_, OptionOrigin::Setting(..))) => Some(name()),
        }
    }

    /// Returns the line that the user typed.
    pub(super) fn typed_line(&self) -> &Self {
        self.origin.as_ref().map_or(self, |origin| origin.typed.typed_line())
    }

    /// Returns the text that gave the value of an option, which is at this place, of a made line.
    pub(super) fn original_value(&self, flag: &str, place: ArgvSpan) -> Option<String> {
        let origin = self.origin.as_ref()?;
        match origin.at(self, place).unwrap_or_else(|| origin.find(flag)) {
            OptionOrigin::Line(name) => {
                let (text, _) = origin.typed.last(name)?.value.as_ref()?;
                Some(text.to_string_lossy().into_owned())
            }
            OptionOrigin::Setting(source, SettingPlace { span, .. }) => {
                let text = &source.source.text;
                Some(text.get(span.start..span.end)?.trim_matches(['\'', '"']).to_owned())
            }
        }
    }
}

impl LineOrigin {
    /// Returns the origin of a line whose options stand for those of another command, with `names` for those that
    /// have another name there, and a file that gives values too.
    pub(in crate::cli) fn translated(
        typed: &CommandLine,
        names: &'static [(&'static str, &'static str)],
        file: Option<SettingsSource>,
    ) -> Self {
        Self {
            typed: typed.clone(),
            relation: LineRelation::Translated(names),
            sources: file.into_iter().collect(),
            applied: None,
        }
    }

    /// Finds the option or setting that gave an option of the made line its value: that of the line, else that
    /// of a file or a variable. A value that neither has is a default.
    fn find<'a>(&'a self, flag: &'a str) -> OptionOrigin<'a> {
        let own = underscored(flag);
        let names = match self.relation {
            LineRelation::Translated(names) => names,
            LineRelation::Extended(_) => &[],
        };
        let others = names.iter().filter(|(made, _)| *made == own).map(|(_, name)| *name);
        let names = || std::iter::once(flag).chain(others.clone());
        let typed = |name: &str| {
            let is_it = |given: &&GivenOption| underscored(&given.flag) == underscored(name);
            self.typed.options.iter().rev().find(is_it).map(|given| given.flag.as_str())
        };
        if let Some(name) = names().find_map(typed) {
            return OptionOrigin::Line(name);
        }
        let setting = |name: &str| {
            let name = underscored(name);
            self.settings().find(|(_, place)| underscored(&place.flag) == name)
        };
        match names().find_map(setting) {
            Some((source, place)) => OptionOrigin::Setting(source, place),
            None => OptionOrigin::Line(names().last().unwrap_or(flag)),
        }
    }

    fn settings(&self) -> impl Iterator<Item = (&SettingsSource, &SettingPlace)> {
        self.sources
            .iter()
            .flat_map(|source| source.values.iter().map(move |place| (source, place)))
    }

    /// Finds what gave the option at a place of the made line its value; `None`: no option is there, or the
    /// typed line has the same word.
    fn at<'a>(&'a self, made: &'a CommandLine, place: ArgvSpan) -> Option<OptionOrigin<'a>> {
        match self.relation {
            LineRelation::Extended(_) => {
                let (source, place) =
                    self.settings().find(|(_, one)| one.word == Some(place.word))?;
                Some(OptionOrigin::Setting(source, place))
            }
            LineRelation::Translated(_) => {
                let (flag, _) = made.option_at(place)?;
                Some(self.find(flag))
            }
        }
    }

    /// Returns the setting that gave the option at a place of the made line its value.
    fn setting_at<'a>(
        &'a self,
        made: &'a CommandLine,
        place: ArgvSpan,
    ) -> Option<(&'a SettingsSource, &'a SettingPlace)> {
        match self.at(made, place)? {
            OptionOrigin::Setting(source, place) => Some((source, place)),
            OptionOrigin::Line(_) => None,
        }
    }

    /// Returns an error for places of the made line. It is shown in the file that gave the first of them, else in
    /// the typed line.
    pub(super) fn refuse(
        &self,
        made: &CommandLine,
        places: &[ArgvSpan],
        make: MakeDiagnostic<'_>,
    ) -> RefusedLine {
        match places.first().and_then(|place| self.setting_at(made, *place)) {
            Some((source, first)) => {
                let span = |place: &ArgvSpan| match self.setting_at(made, *place) {
                    Some((other, place)) if std::ptr::eq(other, source) => place.span,
                    Some(_) | None => first.span,
                };
                let mut problem = make(&places.iter().map(span).collect::<Vec<_>>());
                // Places that are not in this file cannot be drawn.
                problem.related.retain(|(span, _)| *span != first.span);
                if problem.code == codes::BAD_VALUE {
                    problem.code = source.code;
                }
                let findings =
                    Findings { source: source.source.clone(), diagnostics: vec![problem] };
                RefusedLine { findings, input: source.input }
            }
            None => self.refuse_typed(made, places, make),
        }
    }

    /// Returns the error in the typed line. What it says about settings is in the help: their places cannot be
    /// drawn in the line.
    fn refuse_typed(
        &self,
        made: &CommandLine,
        places: &[ArgvSpan],
        make: MakeDiagnostic<'_>,
    ) -> RefusedLine {
        let settings = places.iter().filter_map(|place| self.setting_at(made, *place));
        let notes: Vec<String> = match self.relation {
            LineRelation::Translated(_) => Vec::new(),
            LineRelation::Extended(_) => settings
                .map(|(source, place)| {
                    format!("`{}` is set in {}", place.name, show_place(&source.source, place.span))
                })
                .collect(),
        };
        let places: Vec<_> = places.iter().map(|place| self.place_of(made, *place)).collect();
        self.typed.refuse(&places, |spans| {
            let mut problem = make(spans);
            if !notes.is_empty() {
                let is_drawn = |span: &Span| span.start < span.end;
                problem.related.retain(|(span, _)| is_drawn(span));
                let help = problem.help.take().into_iter().chain(notes);
                problem.help = Some(help.collect::<Vec<_>>().join("; "));
            }
            problem
        })
    }

    /// Returns the place of the typed line for a place of the made line; both end with the same program.
    fn place_of(&self, made: &CommandLine, place: ArgvSpan) -> ArgvSpan {
        if let LineRelation::Extended(added) = self.relation {
            let word = place.word.checked_sub(added);
            return word.map_or_else(|| self.typed.end_span(), |word| ArgvSpan { word, ..place });
        }
        if let Some((flag, is_value)) = made.option_at(place) {
            return match self.find(flag) {
                OptionOrigin::Line(name) if is_value => self.typed.value_or_end(name),
                OptionOrigin::Line(name) => self.typed.name_or_end(name),
                OptionOrigin::Setting(..) => self.typed.end_span(),
            };
        }
        let from_end = made.words.len() - place.word.min(made.words.len());
        let word = self.typed.words.len().checked_sub(from_end);
        let is_same = |word: &usize| made.words.get(place.word) == self.typed.words.get(*word);
        word.filter(is_same)
            .map_or_else(|| self.typed.end_span(), |word| ArgvSpan { word, ..place })
    }
}
