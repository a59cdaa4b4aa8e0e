//! Which value of an option wins: those of higher layers replace those of lower ones. Pure.

use super::known::{KnownOption, OptionTakes};
use super::setting::{OptionSetting, OptionValue, OptionWords};

/// The option whose values are joined by the names of variables.
const ENV: &str = "env";

/// A setting of a layer, and the index of its source. Layers are in ascending order of precedence.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayeredSetting<'a> {
    pub(super) source: usize,
    pub(super) setting: &'a OptionSetting,
}

/// A word that is added to the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChosenWord<'a> {
    pub(super) source: usize,
    pub(super) setting: &'a OptionSetting,
    /// `None`: the option takes no value.
    pub(super) value: Option<&'a OptionValue>,
}

/// Chooses the words of an option. `typed` has the values of the typed line; `None`: the line does not have the
/// option.
pub(super) fn choose<'a>(
    option: &KnownOption,
    layers: &[LayeredSetting<'a>],
    typed: Option<&[String]>,
) -> Vec<ChosenWord<'a>> {
    let mut own = layers.iter().filter(|layered| layered.setting.flag == option.long);
    if option.takes == OptionTakes::Many && option.long == ENV {
        return variables(&own.flat_map(words).collect::<Vec<_>>(), typed.unwrap_or_default());
    }
    if typed.is_some() {
        return Vec::new();
    }
    own.next_back().map_or_else(Vec::new, words)
}

fn words<'a>(layered: &LayeredSetting<'a>) -> Vec<ChosenWord<'a>> {
    let LayeredSetting { source, setting } = *layered;
    match &setting.words {
        OptionWords::Switch(false, _) => Vec::new(),
        OptionWords::Switch(true, _) => vec![ChosenWord { source, setting, value: None }],
        OptionWords::Values(values) => {
            values.iter().map(|value| ChosenWord { source, setting, value: Some(value) }).collect()
        }
    }
}

/// Returns the variables that are set: of several values of a variable the last, and none that the line sets.
fn variables<'a>(words: &[ChosenWord<'a>], typed: &[String]) -> Vec<ChosenWord<'a>> {
    let name = |word: &ChosenWord<'a>| word.value.map(|value| variable(&value.text));
    let is_last = |at: usize| words[at + 1..].iter().all(|later| name(later) != name(&words[at]));
    let is_typed =
        |word: &ChosenWord<'a>| typed.iter().any(|text| Some(variable(text)) == name(word));
    let kept = (0..words.len()).filter(|at| is_last(*at) && !is_typed(&words[*at]));
    kept.map(|at| words[at]).collect()
}

/// Returns the name of the variable of `NAME=VALUE`.
fn variable(text: &str) -> &str {
    text.split('=').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::known::KnownOptions;
    use super::*;
    use crate::base::Span;
    use crate::cli::registry::COMMANDS;

    fn setting(flag: &str, words: OptionWords) -> OptionSetting {
        let key_span = Span::new(0, 0);
        OptionSetting { flag: flag.to_owned(), key: flag.to_owned(), key_span, words }
    }

    fn values(texts: &[String]) -> OptionWords {
        let value = |text: &String| OptionValue { text: text.clone(), span: Span::new(0, 0) };
        OptionWords::Values(texts.iter().map(value).collect())
    }

    /// Chooses from settings in ascending order of precedence.
    fn chosen(flag: &str, settings: &[OptionSetting], typed: Option<&[String]>) -> Vec<String> {
        let known = KnownOptions::of(COMMANDS);
        let layers: Vec<_> = settings
            .iter()
            .enumerate()
            .map(|(source, setting)| LayeredSetting { source, setting })
            .collect();
        let words = choose(known.option(flag).expect("an option"), &layers, typed);
        words
            .iter()
            .map(|word| word.value.map_or("on".to_owned(), |value| value.text.clone()))
            .collect()
    }

    #[test]
    fn switch_of_a_higher_layer_replaces_a_lower_one() {
        let switch = |is_on| setting("quiet", OptionWords::Switch(is_on, Span::new(0, 0)));
        assert_eq!(chosen("quiet", &[switch(false), switch(true)], None), ["on"]);
        assert_eq!(chosen("quiet", &[switch(true), switch(false)], None), [""; 0]);
        assert_eq!(chosen("quiet", &[switch(true)], Some(&[])), [""; 0]);
    }

    #[test]
    fn lists_other_than_variables_are_replaced_as_a_whole() {
        let list = |text: &str| setting("compare", values(&[text.to_owned()]));
        assert_eq!(chosen("compare", &[list("a"), list("b")], None), ["b"]);
        assert_eq!(chosen("compare", &[list("a")], Some(&["c".to_owned()])), [""; 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn variable_has_its_last_value_and_none_beside_a_typed_one(
            layers in proptest::collection::vec(proptest::collection::vec("[A-C]=[0-9]", 0..4), 0..4),
            typed in proptest::collection::vec("[A-C]=t", 0..2),
        ) {
            let settings: Vec<_> = layers.iter().map(|texts| setting("env", values(texts))).collect();
            let found = chosen("env", &settings, Some(&typed));
            for name in ["A", "B", "C"] {
                let last = layers.iter().flatten().rfind(|text| variable(text) == name);
                let is_typed = typed.iter().any(|text| variable(text) == name);
                let own: Vec<_> = found.iter().filter(|text| variable(text) == name).collect();
                let expect: Vec<_> = last.into_iter().filter(|_| !is_typed).collect();
                prop_assert_eq!(own, expect);
            }
        }
    }
}
