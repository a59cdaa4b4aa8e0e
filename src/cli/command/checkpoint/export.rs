//! `remuda checkpoint export`.

use std::path::PathBuf;

use crate::base::{Diagnostic, Status};
use crate::bench::parse_bytes;
use crate::cli::command::checkpoint::codes::{CANNOT_EXPORT, NOT_EXPORTABLE};
use crate::cli::command::checkpoint::problems::refuse;
use crate::cli::error::CliError;
use crate::cli::line::{BadValue, CommandLine};
use crate::report::print_screen;
use crate::report::text::{show_bytes, show_count};
use crate::runtime::checkpoint::{
    CheckpointReader, ExportError, ExportOptions, ExportReport, ExportTarget, ExportedTensor,
    FloatType, TensorInfo, export_checkpoint,
};
use crate::train::hugging_face::KeptSettings;
use crate::train::{ModelId, hugging_face};

/// Prefix of a directory in the layout of Hugging Face.
const HUGGING_FACE: &str = "hf:";

/// Arguments of `remuda checkpoint export`.
#[derive(Clone, Debug, clap::Args)]
#[command(rename_all = "snake_case")]
pub(super) struct ExportArgs {
    /// Checkpoint, or directory of checkpoints, of which the latest is exported
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// File to write, as safetensors; a `--model gpt2` also as `hf:DIR`: a directory as Hugging Face reads it,
    /// with a `config.json`
    #[arg(long, value_name = "FILE", value_parser = parse_target)]
    to: ExportTarget,
    /// Type of the parameters [default: that of the checkpoint]
    #[arg(long, value_enum)]
    dtype: Option<DtypeArg>,
    /// Largest size of a file of `hf:DIR`
    #[arg(long, value_name = "SIZE", default_value = "50G", value_parser = parse_size)]
    max_shard_size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DtypeArg {
    /// 32-bit float
    #[value(alias = "fp32", alias = "float32")]
    F32,
    /// 16-bit float with the exponent of f32
    #[value(alias = "bfloat16")]
    Bf16,
    /// 16-bit float of IEEE 754
    #[value(alias = "fp16", alias = "float16")]
    F16,
}

impl DtypeArg {
    fn float_type(self) -> FloatType {
        match self {
            Self::F32 => FloatType::F32,
            Self::Bf16 => FloatType::Bf16,
            Self::F16 => FloatType::F16,
        }
    }
}

fn no_directory() -> BadValue {
    let help = "write `hf:DIR`, such as `hf:model`; a file with the name `hf` is `./hf`";
    BadValue::new("the directory is missing").help(help)
}

fn parse_target(text: &str) -> Result<ExportTarget, BadValue> {
    match text.strip_prefix(HUGGING_FACE) {
        Some("") => Err(no_directory()),
        Some(dir) => Ok(ExportTarget::HuggingFace(dir.into())),
        None if text == "hf" => Err(no_directory()),
        None if text.ends_with('/') || text.is_empty() => {
            let help = format!("for a directory, write `hf:{}`", text.trim_end_matches('/'));
            Err(BadValue::new("expected a file").help(help))
        }
        None => match unknown_format(text) {
            Some(prefix) => {
                let help = format!(
                    "write `FILE` for a safetensors file, or `hf:DIR` for a directory of Hugging Face; a file \
                     with this name is `./{text}`"
                );
                Err(BadValue::new(format!("there is no format `{prefix}:`")).help(help))
            }
            None => Ok(ExportTarget::File(text.into())),
        },
    }
}

/// The word before the first colon, which would be a format. In a path, it contains a slash or a dot.
fn unknown_format(text: &str) -> Option<&str> {
    let (prefix, _) = text.split_once(':')?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (!prefix.is_empty() && prefix.chars().all(is_word)).then_some(prefix)
}

fn parse_size(text: &str) -> Result<u64, BadValue> {
    let size = parse_bytes(text).ok().filter(|bytes| 0 < *bytes);
    size.ok_or_else(|| BadValue::new("expected a size").help("write a size such as `5G`"))
}

pub(super) fn run(args: &ExportArgs, typed: &CommandLine) -> Result<Status, CliError> {
    let reader = CheckpointReader::open(&args.dir)
        .map_err(|error| refuse(typed, &args.dir, None, &error))?;
    let is_converted = matches!(args.to, ExportTarget::HuggingFace(_));
    let config = if is_converted { Some(config_of(&reader, typed)?) } else { None };
    let options = ExportOptions {
        dtype: args.dtype.map(DtypeArg::float_type),
        file_bytes_max: args.max_shard_size,
        convert: &|tensor: &TensorInfo| {
            let is_transposed = is_converted && hugging_face::is_transposed(&tensor.name);
            Some(ExportedTensor { name: tensor.name.clone(), is_transposed })
        },
        config: config.as_deref(),
    };
    let report = export_checkpoint(&reader, &args.to, &options).map_err(|error| match &error {
        ExportError::Open(error) => refuse(typed, &args.dir, None, error),
        ExportError::Exists { .. } => {
            let help = "remove it, or use another path";
            refuse_target(typed, CANNOT_EXPORT, Status::CantCreate, error.to_string(), help)
        }
        ExportError::CreateDir { .. } => {
            let help = "name another directory";
            refuse_target(typed, CANNOT_EXPORT, Status::CantCreate, error.to_string(), help)
        }
        ExportError::Write { .. } => {
            let help = "use a path that you can write, on a disk with free space";
            refuse_target(typed, CANNOT_EXPORT, Status::CantCreate, error.to_string(), help)
        }
        ExportError::Content { .. } => {
            let help = "`remuda checkpoint show` lists its tensors";
            refuse_target(typed, NOT_EXPORTABLE, Status::BadInput, error.to_string(), help)
        }
    })?;
    print_screen(&screen(&report)).map_err(CliError::output)?;
    Ok(Status::Success)
}

/// The `config.json` of a model. Hugging Face has a class for GPT-2 alone; it would read the tensors of another model
/// as wrong ones, or not at all.
fn config_of(reader: &CheckpointReader, typed: &CommandLine) -> Result<String, CliError> {
    let name = &reader.state().model;
    let model: Option<ModelId> = name.parse().ok();
    let kept = KeptSettings::of_client(&reader.state().client);
    let config = |model| hugging_face::config_json(model, &kept);
    model.as_ref().and_then(config).ok_or_else(|| {
        let kind = name.split(' ').next().unwrap_or_default();
        let what = match model {
            Some(_) => format!("its model is `--model {kind}`, not `--model gpt2`"),
            None if name.is_empty() => "its model is not known".to_owned(),
            None => format!("its model, `{}`, is none of `remuda train --model gpt2`", name.escape_debug()),
        };
        let message = format!(
            "checkpoint `{}` cannot be exported as a model of Hugging Face: {what}",
            reader.path().display()
        );
        let help = "transformers has no class for it; `--to model.safetensors` writes its parameters to one file";
        refuse_target(typed, NOT_EXPORTABLE, Status::BadInput, message, help)
    })
}

fn refuse_target(
    typed: &CommandLine,
    code: &'static str,
    status: Status,
    message: String,
    help: &'static str,
) -> CliError {
    let place = typed.value_or_end("to");
    CliError::refused(status, typed.refuse_at(place, Diagnostic::whole(code, message).help(help)))
}

fn screen(report: &ExportReport) -> String {
    let ExportReport { files, tensors, bytes } = report;
    let (tensors, bytes) = (show_count(*tensors, "tensor"), show_bytes(*bytes as f64));
    let names = files.iter().map(|file| file.strip_prefix(".").unwrap_or(file));
    let names: Vec<String> = names.map(|file| format!("`{}`", file.display())).collect();
    let names = match &names[..] {
        [first, others @ ..] if 2 < others.len() => {
            format!("{first} and {} more files beside it", others.len())
        }
        _ => names.join(" and "),
    };
    format!("{tensors}, {bytes}, safetensors: {names}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = match parse_target(text) {
            Ok(ExportTarget::File(path)) => format!("file {}", path.display()),
            Ok(ExportTarget::HuggingFace(path)) => format!("directory {}", path.display()),
            Err(bad) => bad.to_string(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn targets_have_known_formats_only() {
        check("model.safetensors", "file model.safetensors");
        check("out", "file out");
        check("hf:model", "directory model");
        check("hf:", "the directory is missing");
        check("pt:model2", "there is no format `pt:`");
        check("./pt:model2", "file ./pt:model2");
        check("runs/12:30.safetensors", "file runs/12:30.safetensors");
        check("model.v1:2", "file model.v1:2");
    }
}
