//! `remuda checkpoint show`.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use crate::base::Status;
use crate::cli::command::checkpoint::facts::show_facts;
use crate::cli::command::checkpoint::problems::refuse;
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::report::text::{Align, escape_control, show_bytes, show_columns, show_count};
use crate::report::{print, print_screen};
use crate::runtime::checkpoint::{
    CheckpointReader, SavedState, TensorInfo, split_tensor, state_tensor,
};

/// Version of the document of `--json`.
const DOCUMENT_VERSION: u32 = 1;

/// Arguments of `remuda checkpoint show`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CheckpointShowArgs {
    /// Checkpoint, or directory of checkpoints, of which the latest is shown
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Document of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    path: String,
    state: &'a SavedState,
    files: Vec<ShownFile>,
    tensors: Vec<ShownTensor>,
}

#[derive(Serialize)]
struct ShownFile {
    name: String,
    bytes: u64,
}

#[derive(Serialize)]
struct ShownTensor {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    bytes: u64,
    files: usize,
}

pub(super) fn run(args: &CheckpointShowArgs, typed: &CommandLine) -> Result<Status, CliError> {
    let reader = CheckpointReader::open(&args.dir)
        .map_err(|error| refuse(typed, &args.dir, None, &error))?;
    let printed =
        if args.json { print(&document(&reader)) } else { print_screen(&screen(&reader)) };
    printed.map_err(CliError::output)?;
    Ok(Status::Success)
}

fn document(reader: &CheckpointReader) -> String {
    let tensor = |tensor: TensorInfo| ShownTensor {
        files: reader.files_of(&tensor.name),
        dtype: tensor.dtype.to_string(),
        bytes: tensor.bytes(),
        shape: tensor.shape,
        name: tensor.name,
    };
    let document = Document {
        version: DOCUMENT_VERSION,
        path: reader.path().to_string_lossy().into_owned(),
        state: reader.state(),
        files: reader
            .files()
            .into_iter()
            .map(|file| ShownFile { name: file.name, bytes: file.bytes })
            .collect(),
        tensors: reader.tensors().map(tensor).collect(),
    };
    serde_json::to_string_pretty(&document).expect("texts and numbers have a JSON form") + "\n"
}

fn screen(reader: &CheckpointReader) -> String {
    let mut text = title(reader) + &show_facts(reader.state()) + "\n";
    let tensors: Vec<TensorInfo> = reader.tensors().collect();
    let (mut rows, mut elements) = (vec![HEAD.map(str::to_owned)], 0);
    for tensor in tensors.iter().filter(|tensor| split_tensor(&tensor.name).1.is_none()) {
        elements += tensor.elements();
        rows.push(row(reader, tensor, &tensors));
    }
    let parameters = rows.len() - 1;
    let align = [Align::Left, Align::Left, Align::Left, Align::Right, Align::Right, Align::Left];
    text += &show_columns(&rows, align);
    let _ = writeln!(
        text,
        "\n{} with {}, {} in all",
        show_count(parameters, "parameter"),
        show_count(elements, "element"),
        show_count(tensors.len(), "tensor"),
    );
    text
}

fn title(reader: &CheckpointReader) -> String {
    let files = reader.files();
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let kind = if reader.is_single_file() { ", of an earlier version of remuda" } else { "" };
    format!(
        "{}: step {}, {}, {}{kind}\n",
        reader.path().display(),
        reader.state().step,
        show_count(files.len(), "file"),
        show_bytes(bytes as f64),
    )
}

const HEAD: [&str; 6] = ["parameter", "type", "shape", "bytes", "files", "state"];

fn row(reader: &CheckpointReader, tensor: &TensorInfo, all: &[TensorInfo]) -> [String; 6] {
    let states = all.iter().filter_map(|other| match split_tensor(&other.name) {
        (parameter, Some(state)) if parameter == tensor.name => Some(state),
        _ => None,
    });
    let states: Vec<&str> = states.collect();
    let named = states.iter().map(|state| state_tensor(&tensor.name, state));
    let names = std::iter::once(tensor.name.clone()).chain(named);
    let files = names.map(|name| reader.files_of(&name)).max().unwrap_or_default();
    [
        escape_control(&tensor.name),
        tensor.dtype.to_string(),
        format!("{:?}", tensor.shape),
        tensor.bytes().to_string(),
        files.to_string(),
        states.join(", "),
    ]
}
