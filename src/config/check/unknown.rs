//! Keys that no section has: what was meant.

use crate::base::{Diagnostic, Span, nearest, show_typed};
use crate::config::codes::{IGNORED_KEY, UNKNOWN_KEY};
use crate::config::keys::{SectionReader, SectionSpec, all_sections};
use crate::config::tree::ConfigEntry;

/// Names that other libraries give to a setting.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("max_grad_norm", "use `gradient_clipping`, a key of the file"),
    ("learning_rate", "the learning rate is `lr`"),
    ("warmup_steps", "the steps of the warm-up are `warmup_num_steps`"),
    ("batch_size", "use `train_batch_size` or `train_micro_batch_size_per_gpu`"),
];

/// The problem of a key that a section does not have.
pub(super) fn unknown_key(section: &SectionSpec, path: &str, entry: &ConfigEntry) -> Diagnostic {
    let key = show_typed(&entry.key);
    let place = if path.is_empty() { String::new() } else { format!(" in `{path}`") };
    let problem = match section.reader {
        SectionReader::Lookup => {
            let message = format!("unknown key `{key}`{place}");
            Diagnostic::warning(IGNORED_KEY, entry.key_span, message)
                .label("ignored, by DeepSpeed as well")
        }
        SectionReader::Model | SectionReader::Arguments => {
            let message = format!("unknown key `{key}`{place}");
            Diagnostic::error(UNKNOWN_KEY, entry.key_span, message).label("unknown")
        }
    };
    if let Some((_, help)) = OTHER_NAMES.iter().find(|(other, _)| *other == entry.key) {
        return problem.help(*help);
    }
    let names = section.keys.iter().map(|key| key.name);
    if let Some(near) = nearest(&entry.key, names) {
        return problem.help(format!("did you mean `{near}`?")).guess(inner_span(entry), near);
    }
    match owner(section, &entry.key) {
        Some(owner) => problem.help(format!("`{key}` is a key of {owner}")),
        None => problem.help("remove the key; COMPAT.md lists all keys"),
    }
}

/// The place of the key without its quotes.
fn inner_span(entry: &ConfigEntry) -> Span {
    let Span { start, end } = entry.key_span;
    if end - start == entry.key.len() + 2 { Span::new(start + 1, end - 1) } else { entry.key_span }
}

/// The section that has the key.
fn owner(section: &SectionSpec, key: &str) -> Option<String> {
    let has = |other: &&&SectionSpec| {
        !std::ptr::eq(**other, section) && other.keys.iter().any(|known| known.is_named(key))
    };
    let sections = all_sections();
    let mut owners = sections.iter().filter(has);
    let first = owners.next()?;
    // A name such as `enabled` is in many sections.
    if owners.next().is_some() {
        return None;
    }
    Some(if first.path.is_empty() {
        "the file itself".to_owned()
    } else {
        format!("`{}`", first.path)
    })
}
