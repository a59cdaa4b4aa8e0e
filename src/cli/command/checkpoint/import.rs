//! `remuda checkpoint import`.

use std::path::PathBuf;

use crate::base::{Diagnostic, Status};
use crate::cli::command::checkpoint::codes::{CANNOT_EXPORT, CANNOT_IMPORT};
use crate::cli::command::checkpoint::problems::place_of;
use crate::cli::error::CliError;
use crate::cli::line::{ArgvSpan, CommandLine};
use crate::report::print;
use crate::report::text::show_count;
use crate::train::hugging_face::{ImportError, import_gpt2};
use crate::train::newest_in;

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
        let (code, status, place, help) = match &error {
            ImportError::Read { .. } => {
                let help = "name a directory with `config.json` and `model.safetensors`";
                (CANNOT_IMPORT, Status::NoInput, place_of(typed, &args.dir), help)
            }
            ImportError::Damaged { .. } => {
                let help = "copy the file again from where the model was published";
                (CANNOT_IMPORT, Status::BadInput, place_of(typed, &args.dir), help)
            }
            ImportError::Content { .. } => {
                let help = "only GPT-2 with its usual settings can be imported; name the directory of such \
                            a model";
                (CANNOT_IMPORT, Status::BadInput, place_of(typed, &args.dir), help)
            }
            ImportError::Save(_) => {
                let help = "name a directory that you can write, on a disk with free space: `--to DIR`";
                (CANNOT_EXPORT, Status::CantCreate, to, help)
            }
            ImportError::Group(_) => {
                (CANNOT_IMPORT, Status::OsLimit, to, "stop other programs on this machine: the import needs more memory")
            }
        };
        refuse(typed, (code, status), place, (error.to_string(), help))
    })?;
    let parameters = show_count(done.parameters, "parameter");
    let text = format!("{parameters}: `{}`\n{}\n", done.path.display(), done.model);
    print(&text).map_err(CliError::output)?;
    Ok(Status::Success)
}

fn refuse(
    typed: &CommandLine,
    (code, status): (&'static str, Status),
    place: ArgvSpan,
    (message, help): (String, &str),
) -> CliError {
    CliError::refused(status, typed.refuse_at(place, Diagnostic::whole(code, message).help(help)))
}
