//! Printing outside a job: requested data, messages, panics and the log.

use std::borrow::Cow;
use std::io::{self, Write};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use super::properties::Charset;
use crate::base::env_vars;
use crate::os::files::fds;
use crate::report::diagnostic::Paint;
use crate::report::text::paint_message;

/// Prints requested data; a reader that closed the pipe is not an error.
pub fn print(text: &str) -> io::Result<()> {
    print_with(|stdout| stdout.write_all(text.as_bytes()))
}

/// Prints a screen that was requested, with the characters of the locale. Documents for programs are printed
/// unchanged by [`print()`].
pub fn print_screen(text: &str) -> io::Result<()> {
    print(&in_locale(text))
}

/// Returns a text of remuda with the characters that the locale has.
pub fn in_locale(text: &str) -> Cow<'_, str> {
    Charset::detect().adapt(text)
}

/// Prints to standard output what need not be in memory all at once. A reader that closes the pipe
/// is not an error.
pub fn print_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match write(&mut stdout).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Prints a message of remuda, with the first word of each line in its colour.
pub fn print_message(text: &str, paint: Paint) {
    print_error(&paint_message(text, paint));
}

/// Prints to standard error.
pub fn print_error(text: &str) {
    let _ = io::stderr().lock().write_all(in_locale(text).as_bytes());
}

/// Prints a message of remuda if that does not block; otherwise the message is dropped.
pub fn try_print_error(text: &str) {
    let stderr = io::stderr();
    if fds::has_room(&stderr) {
        let _ = stderr.lock().write_all(in_locale(text).as_bytes());
    }
}

/// Prints a panic as one line that calls it an internal error of remuda. After the panic the
/// process exits with [`Status::Bug`](crate::base::Status::Bug).
pub fn install_panic_hook(program: &'static str) {
    std::panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| Some(payload.downcast_ref::<String>()?.as_str()));
        let why = text.and_then(|text| text.lines().next()).unwrap_or("no message");
        let place = info.location().map(|place| format!(" ({place})")).unwrap_or_default();
        try_print_error(&format!(
            "{program}: internal error in remuda, please report it: {why}{place}\n"
        ));
    }));
}

/// Starts remuda's log if `REMUDA_LOG=debug` or for example `REMUDA_LOG=remuda::job=trace,info` is
/// set. Messages that may contain keys or values of variables are never logged.
pub fn start_log() {
    let Some(filter) = env_vars::get_text(env_vars::REMUDA_LOG) else {
        return;
    };
    match filter.parse::<Targets>() {
        Ok(targets) => {
            let lines = fmt::layer().with_writer(io::stderr);
            tracing_subscriber::registry().with(lines).with(targets).init();
        }
        Err(error) => try_print_error(&format!("warning: cannot parse REMUDA_LOG: {error}\n")),
    }
}
