//! Properties of standard output and standard error: whether they are terminals, colours and width.

use std::borrow::Cow;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::FileType;

use crate::base::env_vars;
use crate::report::diagnostic::Paint;

/// Properties of the two standard descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Standard output is a terminal.
    pub stdout: bool,
    /// Standard error is a terminal.
    pub stderr: bool,
    /// Whether text of remuda on standard error may have colours.
    pub paint: Paint,
    /// Whether text of remuda on standard output may have colours.
    pub stdout_paint: Paint,
    /// Where a status line may be drawn.
    pub status: StatusPlace,
    /// The characters for marks in lines.
    pub charset: Charset,
    /// Columns and rows of the terminal of standard error, else of standard output.
    pub size: Option<(u16, u16)>,
}

/// The characters for marks in lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// Characters of Unicode.
    Utf8,
    /// ASCII only, as the locale requires.
    Ascii,
}

impl Charset {
    /// The charset of the locale: the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set. If none
    /// is set, it is UTF-8, as in most containers.
    pub(in crate::report) fn detect() -> Self {
        let names = [env_vars::LC_ALL, env_vars::LC_CTYPE, env_vars::LANG].into_iter();
        let locale = names.filter_map(env_vars::get_text).find(|value| !value.is_empty());
        locale.map_or(Self::Utf8, |locale| Self::of_locale(&locale))
    }

    /// The charset of a locale such as `en_US.UTF-8`, `C.utf8`, `C`, `de_DE@euro`.
    fn of_locale(locale: &str) -> Self {
        let charset = locale.split('@').next().and_then(|name| name.split_once('.'));
        let is_utf8 = charset.is_some_and(|(_, charset)| {
            charset.eq_ignore_ascii_case("UTF-8") || charset.eq_ignore_ascii_case("UTF8")
        });
        if is_utf8 { Self::Utf8 } else { Self::Ascii }
    }

    /// Replaces characters in a text of remuda that the charset does not have.
    pub(in crate::report) fn adapt(self, text: &str) -> Cow<'_, str> {
        if self == Self::Utf8 || text.is_ascii() {
            return text.into();
        }
        let replace = |character| match character {
            '│' => "|".into(),
            '…' => "...".into(),
            '×' => "x".into(),
            'µ' => "u".into(),
            '²' => "^2".into(),
            '⏎' => "\\".into(),
            other => Cow::from(other.to_string()),
        };
        text.chars().map(replace).collect::<String>().into()
    }

    /// The mark between a prefix and its line.
    pub(in crate::report) fn separator(self) -> &'static str {
        match self {
            Self::Utf8 => "│",
            Self::Ascii => "|",
        }
    }

    /// The mark for text that was cut off.
    pub(in crate::report) fn ellipsis(self) -> &'static str {
        match self {
            Self::Utf8 => "…",
            Self::Ascii => "...",
        }
    }

    /// The mark at the end of a part of a line that the next part continues.
    pub(in crate::report) fn continuation(self) -> &'static str {
        match self {
            Self::Utf8 => "⏎",
            Self::Ascii => "\\",
        }
    }
}

/// Where a status line may be drawn: below the lines on a terminal that no other program writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusPlace {
    /// On no terminal.
    Nowhere,
    /// On the terminal of standard error; standard output is a file.
    Stderr,
    /// On the terminal of both.
    Shared,
}

impl Terminal {
    /// Determines the properties.
    pub fn detect() -> Self {
        let (stdout, stderr) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let status = if stderr && !is_dumb() { status_place() } else { StatusPlace::Nowhere };
        Self {
            stdout,
            stderr,
            paint: paint(stderr),
            stdout_paint: paint(stdout && !is_below_mpirun()),
            status,
            charset: Charset::detect(),
            size: size_of(rustix::stdio::stderr()).or_else(|| size_of(rustix::stdio::stdout())),
        }
    }

    /// The same properties without a status line.
    #[must_use]
    pub fn without_status(self) -> Self {
        Self { status: StatusPlace::Nowhere, ..self }
    }
}

/// Whether standard output is a terminal of Open MPI's, which writes what it reads to any place.
fn is_below_mpirun() -> bool {
    env_vars::get(env_vars::OMPI_COMM_WORLD_RANK).is_some()
}

/// Number of rows of a terminal whose size is unknown.
const DEFAULT_ROWS: u16 = 24;

/// Columns and rows of a terminal that has a width.
fn size_of(terminal: BorrowedFd<'_>) -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(terminal).ok().filter(|size| 0 < size.ws_col)?;
    Some((size.ws_col, if size.ws_row == 0 { DEFAULT_ROWS } else { size.ws_row }))
}

fn is_dumb() -> bool {
    env_vars::get(env_vars::TERM).is_some_and(|value| value == "dumb")
}

/// The place of the status line if standard error is a terminal. If standard output is a pipe, its
/// reader may write to the same terminal, and would write into the status line.
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
pub(in crate::report) struct Tty(OwnedFd);

impl Tty {
    /// Makes a handle; `fd` must be a terminal.
    pub(in crate::report) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Columns and rows of the terminal; `None` while another process group has it, because a job
    /// in the background must not draw where the user types.
    pub(in crate::report) fn size(&self) -> Option<(usize, usize)> {
        const DEFAULT: (usize, usize) = (80, DEFAULT_ROWS as usize);
        match rustix::termios::tcgetpgrp(&self.0) {
            Ok(foreground) if foreground != rustix::process::getpgrp() => return None,
            // Not the controlling terminal of this process, so no input is typed for it.
            Ok(_) | Err(_) => {}
        }
        let size = size_of(self.0.as_fd());
        Some(size.map_or(DEFAULT, |(columns, rows)| (columns.into(), rows.into())))
    }
}

/// When remuda's text has colours; the value of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// On a terminal that supports colours, unless an environment variable decides.
    #[default]
    Auto,
    /// Always, also in pipes and files.
    Always,
    /// On no output.
    Never,
}

static COLOR: OnceLock<ColorChoice> = OnceLock::new();

/// Sets the choice for the whole process; only the first call has an effect.
pub fn choose_color(choice: ColorChoice) {
    let _ = COLOR.set(choice);
}

/// Decides about colours: `--color` first, then `NO_COLOR`, then `FORCE_COLOR` and
/// `CLICOLOR_FORCE`, then whether it is a terminal that supports colours.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locale_names_its_charset() {
        for locale in ["en_US.UTF-8", "C.UTF-8", "C.utf8", "de_DE.utf8@euro"] {
            assert_eq!(Charset::of_locale(locale), Charset::Utf8, "{locale}");
        }
        for locale in ["C", "POSIX", "de_DE", "de_DE@euro", "de_DE.ISO-8859-15@euro"] {
            assert_eq!(Charset::of_locale(locale), Charset::Ascii, "{locale}");
        }
    }

    #[test]
    fn ascii_text_has_no_other_marks() {
        let text = "n1 │ 8 × 3 µs, 4 h², …⏎";
        assert_eq!(Charset::Ascii.adapt(text), "n1 | 8 x 3 us, 4 h^2, ...\\");
        assert_eq!(Charset::Utf8.adapt(text), text);
    }
}
