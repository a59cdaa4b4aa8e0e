//! Values of `remuda k8s manifest` that have a grammar of their own; errors have a caret under the
//! wrong part.

use std::ops::Range;

use crate::base::Diagnostic;
use crate::cli::error::CliError;
use crate::cli::line::codes::CANNOT_COMBINE;
use crate::cli::line::{ArgvSpan, BadValue, CommandLine, refuse_value};
use crate::plan::{
    PairError, Quantity, ResourceError, Resources, Toleration, TolerationError, is_label_value,
    is_qualified_name, is_subdomain, parse_annotation, parse_label,
};

/// A value of an option, with its place in the command line.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    typed: &'a CommandLine,
    flag: &'static str,
    text: &'a str,
    place: ArgvSpan,
}

/// Returns the values of an option, in order.
pub(super) fn values<'a>(
    typed: &'a CommandLine,
    flag: &'static str,
    texts: impl IntoIterator<Item = &'a String>,
) -> Vec<Value<'a>> {
    let given = typed.options.iter().filter(|given| given.flag == flag);
    let places = given.filter_map(|given| given.value.as_ref()).map(|(_, place)| *place);
    let places = places.chain(std::iter::repeat_with(|| typed.end_span()));
    let with_place = |(text, place): (&'a String, ArgvSpan)| Value { typed, flag, text, place };
    texts.into_iter().zip(places).map(with_place).collect()
}

impl Value<'_> {
    /// Returns a part of the value.
    fn part(self, range: Range<usize>) -> Self {
        let start = self.place.start + range.start;
        let place = ArgvSpan { word: self.place.word, start, end: start + range.len() };
        Self { text: &self.text[range], place, ..self }
    }

    /// Returns the parts between commas.
    fn split(self) -> Vec<Self> {
        let mut start = 0;
        let parts = self.text.split(',').map(|text| {
            let range = start..start + text.len();
            start = range.end + 1;
            self.part(range)
        });
        parts.collect()
    }

    fn refuse(self, bad: &BadValue) -> CliError {
        refuse_value(self.typed, self.place, self.flag, self.text, bad).into()
    }

    /// Returns the error for a value that is given twice.
    fn refuse_duplicate(self, what: &str, first: Self) -> CliError {
        let refused = self.typed.refuse(&[self.place, first.place], |spans| {
            Diagnostic::error(CANNOT_COMBINE, spans[0], format!("`{what}` is given twice"))
                .label("a second time")
                .related(spans[1], "the first time")
                .help("give it once")
        });
        refused.into()
    }
}

/// Parses `NAME=QUANTITY` of `--resource`, then of `--request`.
pub(super) fn resources(
    mut resources: Resources,
    limits: &[Value<'_>],
    requests: &[Value<'_>],
) -> Result<Resources, CliError> {
    for (all, add) in [
        (limits, Resources::add_limit as fn(&mut Resources, &str, Quantity) -> _),
        (requests, Resources::add_request),
    ] {
        let mut seen: Vec<(&str, Value<'_>)> = Vec::new();
        for value in all.iter().flat_map(|value| value.split()) {
            let (name, quantity) = read_resource(value)?;
            if let Some((_, first)) = seen.iter().find(|(other, _)| *other == name) {
                return Err(value.refuse_duplicate(name, *first));
            }
            seen.push((name, value));
            let result: Result<(), ResourceError> = add(&mut resources, name, quantity);
            result.map_err(|error| refuse_resource(value, name, &error))?;
        }
    }
    Ok(resources)
}

fn read_resource(value: Value<'_>) -> Result<(&str, Quantity), CliError> {
    let Some((name, amount)) = value.text.split_once('=') else {
        let bad = BadValue::new("expected NAME=QUANTITY");
        return Err(value.refuse(&bad.help("write `cpu=8`, `memory=64Gi` or `rdma/hca=1`")));
    };
    let amount_at = value.part(name.len() + 1..value.text.len());
    let quantity = Quantity::parse(amount).map_err(|error| {
        let bad = BadValue::new(error.to_string()).help(error.help());
        let place = amount_at.part(error.range(amount.len())).place;
        // The message quotes the whole value; the caret points at the wrong part.
        Value { place, ..value }.refuse(&bad)
    })?;
    Ok((name, quantity))
}

fn refuse_resource(value: Value<'_>, name: &str, error: &ResourceError) -> CliError {
    let bad = match error {
        // `--gpus` adds this resource: if an option is given twice, it is refused earlier.
        ResourceError::Twice(_) => {
            BadValue::new("`--gpus` adds it").help("leave one of the two out")
        }
        _ => BadValue::new(error.to_string()).help(error.help()),
    };
    let range =
        if error.is_about_name() { 0..name.len() } else { name.len() + 1..value.text.len() };
    Value { place: value.part(range).place, ..value }.refuse(&bad)
}

/// Parses the taints of `--toleration`.
pub(super) fn tolerations(all: &[Value<'_>]) -> Result<Vec<Toleration>, CliError> {
    let read = |value: &Value<'_>| {
        Toleration::parse(value.text).map_err(|error| {
            let help = match &error {
                TolerationError::Key(_) | TolerationError::Value(_) => {
                    "write KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT, as `kubectl taint` does"
                }
                TolerationError::Effect(_) => {
                    "an effect is NoSchedule, PreferNoSchedule or NoExecute"
                }
            };
            value.refuse(&BadValue::new(error.to_string()).help(help))
        })
    };
    all.iter().map(read).collect()
}

type Pairs = Vec<(String, String)>;

/// Parses `KEY=VALUE` of labels and selectors; a key may be given once.
pub(super) fn labels(all: &[Value<'_>]) -> Result<Pairs, CliError> {
    pairs(all, parse_label)
}

/// Parses `KEY=VALUE` of annotations; a key may be given once.
pub(super) fn annotations(all: &[Value<'_>]) -> Result<Pairs, CliError> {
    pairs(all, parse_annotation)
}

fn pairs(
    all: &[Value<'_>],
    parse: fn(&str) -> Result<(String, String), PairError>,
) -> Result<Pairs, CliError> {
    let mut pairs: Pairs = Vec::new();
    for value in all {
        let (key, text) = parse(value.text).map_err(|error| {
            value.refuse(&BadValue::new(error.to_string()).help("write KEY=VALUE: `team=vision`"))
        })?;
        if let Some(first) = pairs.iter().position(|(other, _)| *other == key) {
            return Err(value.refuse_duplicate(&key, all[first]));
        }
        pairs.push((key, text));
    }
    Ok(pairs)
}

/// Parses the key of a node label.
pub(super) fn key(value: Value<'_>) -> Result<String, CliError> {
    let bad = "expected the key of a label";
    let help = "write a key: `topology.kubernetes.io/zone`";
    checked(value, is_qualified_name, bad, help)
}

/// Parses the name of a Kubernetes object.
pub(super) fn object_name(value: Value<'_>) -> Result<String, CliError> {
    let bad = "expected the name of an object: letters a-z, digits, `-` and `.`";
    checked(value, is_subdomain, bad, "`kubectl get` lists them")
}

/// Parses the name of a queue, which is the value of a label.
pub(super) fn queue_name(value: Value<'_>) -> Result<String, CliError> {
    let is_name = |text: &str| is_label_value(text) && !text.is_empty();
    let bad = "expected the name of a queue";
    checked(value, is_name, bad, "`kubectl get localqueues` lists those of Kueue")
}

/// Parses the name of the resource that represents a GPU.
pub(super) fn device(value: Value<'_>) -> Result<String, CliError> {
    let is_device = |text: &str| is_qualified_name(text) && text.contains('/');
    let help = "write a name with a domain: `amd.com/gpu`, `gpu.intel.com/xe`";
    checked(value, is_device, "expected the resource of a device", help)
}

fn checked(
    value: Value<'_>,
    is_good: impl Fn(&str) -> bool,
    bad: &str,
    help: &str,
) -> Result<String, CliError> {
    if is_good(value.text) {
        return Ok(value.text.to_owned());
    }
    Err(value.refuse(&BadValue::new(bad).help(help)))
}
