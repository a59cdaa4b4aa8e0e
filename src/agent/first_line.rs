//! The first line of a script that is executed directly: whether the interpreter that it names can run.
//! The kernel reports a missing interpreter as a missing script.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::base::Status;
use crate::base::shell::quoted;
use crate::os::files::input_file::open_regular;
use crate::report::text::show_io_error;
use crate::wire::Problem;

/// Length of a first line that every kernel reads.
const LINE_BYTES_MAX: u64 = 256;

/// The interpreter in the first line of a script, and its argument.
#[derive(Debug, PartialEq, Eq)]
struct FirstLine<'a> {
    interpreter: &'a [u8],
    argument: &'a [u8],
}

/// Parses the first line as the kernel does; `None` if it names no interpreter.
fn parse_first_line(head: &[u8]) -> Option<FirstLine<'_>> {
    let line = head.strip_prefix(b"#!")?;
    let line = &line[..line.iter().position(|byte| *byte == b'\n')?];
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = line.iter().position(|byte| !is_blank(byte))?;
    let line = &line[start..];
    let end = line.iter().position(is_blank).unwrap_or(line.len());
    let (interpreter, rest) = line.split_at(end);
    let argument = rest.iter().position(|byte| !is_blank(byte)).map_or(&[][..], |at| &rest[at..]);
    Some(FirstLine { interpreter, argument })
}

impl FirstLine<'_> {
    /// The part that ends in a carriage return and is the name of a program: the interpreter, or what
    /// `env` searches. `env -S` takes the carriage return for a blank.
    fn name_with_carriage_return(&self) -> Option<&[u8]> {
        let name = Path::new(OsStr::from_bytes(self.interpreter)).file_name()?;
        let is_searched = name == "env" && !self.argument.starts_with(b"-");
        let names = [Some(self.interpreter), Some(self.argument).filter(|_| is_searched)];
        names.into_iter().flatten().find(|name| name.ends_with(b"\r"))
    }
}

/// Checks the interpreter of a file that is about to be executed. A file that is no script has no problem
/// here; `what` and `shown` are its names in messages.
pub(super) fn check_interpreter(
    cwd: &Path,
    (what, shown): (&str, &Path),
    file: &Path,
) -> Result<(), Problem> {
    let mut head = Vec::new();
    let read = open_regular(file).and_then(|file| file.take(LINE_BYTES_MAX).read_to_end(&mut head));
    let Some(line) = read.ok().and_then(|_| parse_first_line(&head)) else { return Ok(()) };
    let path = PathBuf::from(OsStr::from_bytes(line.interpreter));
    let usable = rustix::fs::access(cwd.join(&path), Access::EXEC_OK);
    let is_missing = matches!(usable, Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR));
    let shown_file = shown.display();
    if let Some(name) =
        line.name_with_carriage_return().filter(|name| is_missing || *name != line.interpreter)
    {
        let message = format!(
            "{what} `{shown_file}` cannot be executed: its first line ends in CRLF, so the interpreter would be `{}`",
            name.escape_ascii()
        );
        let help = format!("convert its line ends: `sed -i 's/\\r$//' {}`", quoted(shown));
        return Err(Problem::new(Status::NotFound, message).help(help));
    }
    let Err(errno) = usable else { return Ok(()) };
    let why = if is_missing {
        "does not exist".to_owned()
    } else {
        format!("cannot be executed: {}", show_io_error(&errno.into()))
    };
    let message = format!(
        "{what} `{shown_file}` cannot be executed: the interpreter `{}` in its first line {why}",
        path.display()
    );
    let status = if is_missing { Status::NotFound } else { Status::NotExecutable };
    let help = "correct the first line: `#!/usr/bin/env NAME` finds an interpreter in PATH";
    Err(Problem::new(status, message).help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head: &str, expect: Option<(&str, &str)>) {
        let found = parse_first_line(head.as_bytes());
        let expect = expect.map(|(interpreter, argument)| FirstLine {
            interpreter: interpreter.as_bytes(),
            argument: argument.as_bytes(),
        });
        assert_eq!(found, expect, "{head:?}");
    }

    #[test]
    fn first_line_is_read_as_the_kernel_does() {
        check("#!/bin/sh\necho", Some(("/bin/sh", "")));
        check("#! \t/bin/sh  -e -u\n", Some(("/bin/sh", "-e -u")));
        check("#!/usr/bin/env python3\r\n", Some(("/usr/bin/env", "python3\r")));
        for none in ["", "#", "#!", "#!\n", "#!/bin/sh", "\x7fELF", "# !/bin/sh\n"] {
            check(none, None);
        }
    }

    #[test]
    fn carriage_return_matters_in_names_of_programs() {
        let name = |head: &str| {
            let line = parse_first_line(head.as_bytes()).expect("a first line");
            line.name_with_carriage_return().map(|name| name.escape_ascii().to_string())
        };
        assert_eq!(name("#!/bin/sh\r\n").as_deref(), Some(r"/bin/sh\r"));
        assert_eq!(name("#!/usr/bin/env python3\r\n").as_deref(), Some(r"python3\r"));
        assert_eq!(name("#!/usr/bin/env -S python3 -u\r\n"), None);
        assert_eq!(name("#!/usr/bin/perl -w\r\n"), None);
        assert_eq!(name("#!/usr/bin/env python3\n"), None);
    }
}
