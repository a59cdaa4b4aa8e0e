//! `remuda checkpoint import`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::base::order;
use crate::base::shell::quoted;
use crate::base::{Diagnostic, Status};
use crate::cli::command::checkpoint::codes::{CANNOT_EXPORT, CANNOT_IMPORT};
use crate::cli::command::checkpoint::problems::place_of;
use crate::cli::error::CliError;
use crate::cli::line::{ArgvSpan, CommandLine};
use crate::report::text::show_count;
use crate::report::{Terminal, print, print_message};
use crate::runtime::checkpoint::is_checkpoint;
use crate::train::hugging_face::{ImportError, KeptSettings, import_gpt2};
use crate::train::newest_in;

/// Largest number of entries of a directory among which a model is searched.
const ENTRIES_MAX: usize = 64;

/// Arguments of `remuda checkpoint import`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ImportArgs {
    /// Directory of a GPT-2 of Hugging Face: `config.json` and `model.safetensors`
    #[arg(value_name = "MODEL")]
    dir: PathBuf,
    /// Directory for the checkpoint, `step-00000000`; created if it does not exist
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

pub(super) fn run(args: &ImportArgs, typed: &CommandLine) -> Result<Status, CliError> {
    let to = typed.value_or_end("to");
    if newest_in(&args.to).is_some() {
        let message = format!("`{}` has checkpoints of another run", args.to.display());
        let help = "use another directory";
        return Err(refuse(typed, (CANNOT_EXPORT, Status::CantCreate), to, (message, help)));
    }
    let done = import_gpt2(&args.dir, &args.to).map_err(|error| {
        let (kind, place) = match &error {
            ImportError::Read { .. } => {
                ((CANNOT_IMPORT, Status::NoInput), place_of(typed, &args.dir))
            }
            ImportError::Damaged { .. } | ImportError::Content { .. } => {
                ((CANNOT_IMPORT, Status::BadInput), place_of(typed, &args.dir))
            }
            ImportError::Save(_) => ((CANNOT_EXPORT, Status::CantCreate), to),
            ImportError::Group(_) => ((CANNOT_IMPORT, Status::OsLimit), to),
        };
        refuse(typed, kind, place, (error.to_string(), &help_of(&error, &args.dir)))
    })?;
    let parameters = show_count(done.parameters, "parameter");
    let text = format!("{parameters}: `{}`\n{}\n", done.path.display(), done.model);
    print(&text).map_err(CliError::output)?;
    print_message(&dropout_note(&done.kept), Terminal::detect().paint);
    Ok(Status::Success)
}

/// The note about a model that was trained with dropout.
fn dropout_note(kept: &KeptSettings) -> String {
    let dropout: Vec<String> =
        kept.dropout().into_iter().map(|(key, share)| format!("`{key}` {share}")).collect();
    if dropout.is_empty() {
        return String::new();
    }
    let dropout = dropout.join(", ");
    format!(
        "note: `remuda train` has no dropout; {dropout} are kept for `remuda checkpoint export`\n"
    )
}

/// What to type instead.
fn help_of(error: &ImportError, dir: &Path) -> String {
    let help = match error {
        ImportError::Read { .. } => return help_of_unreadable(dir),
        ImportError::Damaged { .. } => "copy the file again from where the model was published",
        ImportError::Content { .. } => {
            "only GPT-2 with its usual settings can be imported, such as `gpt2`, `gpt2-medium`, `gpt2-large`, \
             `gpt2-xl` and `distilgpt2` of Hugging Face; name the directory of such a model"
        }
        ImportError::Save(_) => {
            "name a directory that you can write, on a disk with free space: `--to DIR`"
        }
        ImportError::Group(_) => {
            "stop other programs on this machine: the import needs more memory"
        }
    };
    help.to_owned()
}

/// What to type if a file of the model is missing, by what the directory has instead.
fn help_of_unreadable(dir: &Path) -> String {
    let shown = quoted(dir);
    if is_checkpoint(dir) || newest_in(dir).is_some() {
        return format!(
            "`{shown}` is a checkpoint of remuda, which needs no import: `remuda train --resume {shown}`"
        );
    }
    if dir.join("pytorch_model.bin").exists() && !dir.join("model.safetensors").exists() {
        return "`pytorch_model.bin` is not read: load the model with transformers, and write it with \
                `save_pretrained(DIR)`"
            .to_owned();
    }
    match below_with_config(dir) {
        Some(model) => format!("the model is in `{}`: name that directory", quoted(&model)),
        None => "name a directory with `config.json` and `model.safetensors`: that of a GPT-2 which \
                 `save_pretrained(DIR)` of transformers wrote, or `hf download gpt2 --local-dir DIR`"
            .to_owned(),
    }
}

/// A directory up to two levels below with a `config.json`, as in the cache of Hugging Face: `snapshots/HASH`.
fn below_with_config(dir: &Path) -> Option<PathBuf> {
    let below = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().take(ENTRIES_MAX);
        let mut paths: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        order::sort(&mut paths);
        paths
    };
    let first = below(dir);
    let second = first.iter().flat_map(|dir| below(dir)).collect::<Vec<_>>();
    first.into_iter().chain(second).find(|dir| dir.join("config.json").is_file())
}

fn refuse(
    typed: &CommandLine,
    (code, status): (&'static str, Status),
    place: ArgvSpan,
    (message, help): (String, &str),
) -> CliError {
    CliError::refused(status, typed.refuse_at(place, Diagnostic::whole(code, message).help(help)))
}
