//! Standard output and standard error as they are: terminal or not, colour or not, how wide.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::fs::FileType;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use super::diagnostic::Paint;
use super::summary::paint_ours;
use crate::base::env_vars;
use crate::os::fds;

/// What the two standard descriptors lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Standard output is a terminal.
    pub stdout: bool,
    /// Standard error is a terminal.
    pub stderr: bool,
    /// Whether what we say on standard error may carry colours.
    pub paint: Paint,
    /// The same for standard output.
    pub stdout_paint: Paint,
    /// Where a status line may be drawn.
    pub status: StatusPlace,
    /// What the marks in lines are made of.
    pub charset: Charset,
}

/// What the marks in lines are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// Characters of Unicode.
    Utf8,
    /// ASCII, where the locale has nothing else.
    Ascii,
}

impl Charset {
    /// The charset of the locale: the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set. Without
    /// any it is UTF-8, as in most containers.
    fn look() -> Self {
        let names = [env_vars::LC_ALL, env_vars::LC_CTYPE, env_vars::LANG].into_iter();
        let locale = names.filter_map(env_vars::get_text).find(|value| !value.is_empty());
        locale.map_or(Self::Utf8, |locale| Self::of(&locale))
    }

    /// `en_US.UTF-8`, `C.utf8`, `C`, `de_DE@euro`.
    fn of(locale: &str) -> Self {
        let charset = locale.split('@').next().and_then(|name| name.split_once('.'));
        let is_utf8 = charset.is_some_and(|(_, charset)| {
            charset.eq_ignore_ascii_case("UTF-8") || charset.eq_ignore_ascii_case("UTF8")
        });
        if is_utf8 { Self::Utf8 } else { Self::Ascii }
    }

    /// A text of remuda in the characters that the charset has.
    pub(super) fn adapt(self, text: &str) -> Cow<'_, str> {
        if self == Self::Utf8 || text.is_ascii() {
            return text.into();
        }
        let spelt = |character| match character {
            '│' => "|".into(),
            '…' => "...".into(),
            '×' => "x".into(),
            'µ' => "u".into(),
            other => Cow::from(other.to_string()),
        };
        text.chars().map(spelt).collect::<String>().into()
    }

    /// Stands between a prefix and its line.
    pub(super) fn bar(self) -> &'static str {
        match self {
            Self::Utf8 => "│",
            Self::Ascii => "|",
        }
    }

    /// Stands for text that was cut off.
    pub(super) fn more(self) -> &'static str {
        match self {
            Self::Utf8 => "…",
            Self::Ascii => "...",
        }
    }

    /// Ends a part of a line that goes on.
    pub(super) fn continues(self) -> &'static str {
        match self {
            Self::Utf8 => "⏎",
            Self::Ascii => "\\",
        }
    }
}

/// Where a status line may be drawn: below the lines on a terminal that nobody else writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusPlace {
    /// On no terminal.
    Nowhere,
    /// On the terminal of standard error; standard output goes into a file.
    Stderr,
    /// On the one terminal of both.
    Shared,
}

impl Terminal {
    /// Looks.
    pub fn look() -> Self {
        let (stdout, stderr) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let status = if stderr && !is_dumb() { status_place() } else { StatusPlace::Nowhere };
        Self {
            stdout,
            stderr,
            paint: paint(stderr),
            stdout_paint: paint(stdout),
            status,
            charset: Charset::look(),
        }
    }

    /// The same without a status line.
    #[must_use]
    pub fn without_status(self) -> Self {
        Self { status: StatusPlace::Nowhere, ..self }
    }
}

fn is_dumb() -> bool {
    env_vars::get(env_vars::TERM).is_some_and(|value| value == "dumb")
}

/// For a standard error that is a terminal. Whoever reads our standard output from a pipe may write
/// to the same terminal, and would write into the status line.
fn status_place() -> StatusPlace {
    let stat = |fd| rustix::fs::fstat(fd).ok();
    let (Some(out), Some(err)) = (stat(rustix::stdio::stdout()), stat(rustix::stdio::stderr()))
    else {
        return StatusPlace::Nowhere;
    };
    match FileType::from_raw_mode(out.st_mode) {
        FileType::CharacterDevice if io::stdout().is_terminal() => {
            if out.st_rdev == err.st_rdev {
                StatusPlace::Shared
            } else {
                StatusPlace::Nowhere
            }
        }
        FileType::RegularFile | FileType::CharacterDevice => StatusPlace::Stderr,
        _ => StatusPlace::Nowhere,
    }
}

/// A terminal that a status line is drawn on.
pub(super) struct Tty(OwnedFd);

impl Tty {
    /// `fd` leads to a terminal.
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Its columns and rows; `None` while another process group has it, for a job in the background
    /// must not draw where the user types.
    pub(super) fn size(&self) -> Option<(usize, usize)> {
        const USUAL: (usize, usize) = (80, 24);
        match rustix::termios::tcgetpgrp(&self.0) {
            Ok(foreground) if foreground != rustix::process::getpgrp() => return None,
            // Not our controlling terminal: nobody can type at us.
            Ok(_) | Err(_) => {}
        }
        let size = rustix::termios::tcgetwinsize(&self.0).ok();
        let (columns, rows) = size.map_or((0, 0), |size| (size.ws_col.into(), size.ws_row.into()));
        let or = |number, usual| if number == 0 { usual } else { number };
        Some((or(columns, USUAL.0), or(rows, USUAL.1)))
    }
}

/// When text of remuda has colours; the value of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// On a terminal that knows colours, unless a variable of the environment decides.
    #[default]
    Auto,
    /// Also in pipes and files.
    Always,
    /// Nowhere.
    Never,
}

static COLOR: OnceLock<ColorChoice> = OnceLock::new();

/// Sets the choice for the whole process; only the first one counts.
pub fn choose_color(choice: ColorChoice) {
    let _ = COLOR.set(choice);
}

/// `--color` first, then `NO_COLOR`, then `FORCE_COLOR` and `CLICOLOR_FORCE`, then whether it is a
/// terminal that knows colours.
fn paint(terminal: bool) -> Paint {
    let is_set = |name| env_vars::get(name).is_some_and(|value| value != "0");
    let has_colours = match COLOR.get().copied().unwrap_or_default() {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if env_vars::get(env_vars::NO_COLOR).is_some() => false,
        ColorChoice::Auto => {
            let is_forced = is_set(env_vars::FORCE_COLOR) || is_set(env_vars::CLICOLOR_FORCE);
            is_forced || terminal && !is_dumb()
        }
    };
    if has_colours { Paint::Colour } else { Paint::Plain }
}

/// Writes requested data; a reader that went away is not an error.
pub fn print(text: &str) -> io::Result<()> {
    print_by(|stdout| stdout.write_all(text.as_bytes()))
}

/// Writes to standard output what need not be in memory all at once. A reader that leaves early is
/// no error.
pub fn print_by(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match write(&mut stdout).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Says something about ourselves, the first word of each line in its colour.
pub fn say(text: &str, paint: Paint) {
    print_error(&paint_ours(text, paint));
}

/// Writes to standard error.
pub fn print_error(text: &str) {
    let text = Charset::look().adapt(text);
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Says something about ourselves if nobody has to wait for it; what finds no room is lost.
pub fn print_error_now(text: &str) {
    let stderr = io::stderr();
    if fds::has_room(&stderr) {
        let _ = stderr.lock().write_all(text.as_bytes());
    }
}

/// Makes a panic one line that says whose bug it is. What unwinds then ends with
/// [`Status::Bug`](crate::base::Status::Bug).
pub fn explain_panics(who: &'static str) {
    std::panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| Some(payload.downcast_ref::<String>()?.as_str()));
        let why = text.and_then(|text| text.lines().next()).unwrap_or("it does not say why");
        let place = info.location().map(|place| format!(" ({place})")).unwrap_or_default();
        print_error_now(&format!(
            "{who}: internal error in remuda, please report it: {why}{place}\n"
        ));
    }));
}

/// Our own log, for whoever asks with `REMUDA_LOG=debug`, or `REMUDA_LOG=remuda::job=trace,info`.
/// Messages that may carry keys or values of variables are never logged.
pub fn start_log() {
    let Some(filter) = env_vars::get_text(env_vars::REMUDA_LOG) else {
        return;
    };
    match filter.parse::<Targets>() {
        Ok(targets) => {
            let lines = fmt::layer().with_writer(io::stderr);
            tracing_subscriber::registry().with(lines).with(targets).init();
        }
        Err(error) => print_error_now(&format!("warning: REMUDA_LOG is not understood: {error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locale_names_its_charset() {
        for locale in ["en_US.UTF-8", "C.UTF-8", "C.utf8", "de_DE.utf8@euro"] {
            assert_eq!(Charset::of(locale), Charset::Utf8, "{locale}");
        }
        for locale in ["C", "POSIX", "de_DE", "de_DE@euro", "de_DE.ISO-8859-15@euro"] {
            assert_eq!(Charset::of(locale), Charset::Ascii, "{locale}");
        }
    }

    #[test]
    fn ascii_text_has_no_other_marks() {
        let text = "n1 │ 8 × 3 µs, …";
        assert_eq!(Charset::Ascii.adapt(text), "n1 | 8 x 3 us, ...");
        assert_eq!(Charset::Utf8.adapt(text), text);
    }
}
