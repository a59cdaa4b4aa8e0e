//! What workers expect of torchrun: the names of role and job, signals, devices.

use super::args::TorchrunArgs;
use super::values::Values;
use crate::base::{Diagnostic, env_vars};
use crate::cli::error::CliError;
use crate::cli::line::{BadValue, CommandLine, codes};
use crate::plan::TorchrunConventions;

/// Signals that torchrun handles by default.
const SIGNALS: &str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

/// The run id that all nodes of a line without one have.
pub(super) const USUAL_RUN_ID: &str = "none";

/// Returns what workers expect of torchrun; `usual_id` is the run id of a line without one, if it has one.
pub(super) fn conventions(
    (args, values): (&TorchrunArgs, Values<'_>),
    workers: usize,
    usual_id: Option<&str>,
) -> Result<TorchrunConventions, CliError> {
    let role = values.text("role", args.watch.role.as_deref(), "default");
    let id = values.text("rdzv-id", args.rendezvous.rdzv_id.as_deref(), USUAL_RUN_ID);
    let signals =
        values.text("signals-to-handle", args.watch.signals_to_handle.as_deref(), SIGNALS);
    let is_virtual = values.switch("virtual-local-rank", args.size.virtual_local_rank)?;
    let virtual_devices = is_virtual.then(|| virtual_devices(values.typed, workers)).transpose()?;
    Ok(TorchrunConventions {
        role: role.text,
        run_id: if id.is_given() { Some(id.parse(run_id)?) } else { usual_id.map(str::to_owned) },
        signals: signals.parse(signal_names)?,
        virtual_devices,
    })
}

/// The name of the job is part of the name of a directory.
pub(super) fn run_id(text: &str) -> Result<String, BadValue> {
    if text.contains(['/', '\0']) || text.is_empty() || text == ".." {
        return Err(BadValue::new("expected a name without `/`"));
    }
    Ok(text.to_owned())
}

fn signal_names(text: &str) -> Result<String, BadValue> {
    let is_signal =
        |name: &str| (1..=64).any(|number| crate::base::exit::signal_name(number) == name);
    match text.split(',').find(|name| !is_signal(name)) {
        None => Ok(text.to_owned()),
        Some(name) => Err(BadValue::new(format!("`{}` is no signal", name.escape_debug()))
            .help("write names: `SIGTERM,SIGINT`")),
    }
}

/// The devices among which every worker gets one.
fn virtual_devices(typed: &CommandLine, workers: usize) -> Result<Vec<String>, CliError> {
    let visible = env_vars::get_text(env_vars::CUDA_VISIBLE_DEVICES);
    let devices: Vec<String> = match visible.filter(|list| !list.is_empty()) {
        Some(list) => list.split(',').map(|name| name.trim().to_owned()).collect(),
        None => (0..workers).map(|device| device.to_string()).collect(),
    };
    if devices.len() < workers {
        let refused = typed.refuse(&[typed.name_or_end("virtual-local-rank")], |spans| {
            let message =
                format!("CUDA_VISIBLE_DEVICES has {} devices for {workers} workers", devices.len());
            Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
                .label("gives each worker one device")
                .help("lower `--nproc-per-node`, or name more devices")
        });
        return Err(refused.into());
    }
    Ok(devices)
}
