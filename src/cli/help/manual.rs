//! Manual pages in roff, from the definitions of commands. Pure.
//!
//! The sections are those of man-pages(7), in its order: NAME, SYNOPSIS, DESCRIPTION, COMMANDS, OPTIONS, EXIT
//! STATUS, ENVIRONMENT, FILES, NOTES, EXAMPLES, SEE ALSO.

use std::fmt::Write as _;
use std::io;

use clap::{Arg, Command};
use clap_mangen::Man;

use super::page::examples_of;
use crate::base::env_vars;

/// Text at the foot of every page, which has the version.
const PAGE_FOOTER: &str = concat!("remuda ", env!("CARGO_PKG_VERSION"));

/// Beginning of the paragraph of a help page that states the exit status.
const EXIT_STATUS: &str = "Exit status: ";

/// The exit status of commands whose help does not state it.
const USUAL_STATUS: &str = "0 if the command succeeded, 2 if its command line is invalid. remuda-run(1) lists the \
                            other statuses of remuda.";

/// Which commands a variable or a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageGroup {
    /// All commands.
    Every,
    /// Commands that start workers or a command on nodes.
    Job,
    /// Commands that read `remuda.toml`.
    Settings,
    /// `remuda pod`.
    Pod,
}

/// Commands of [`PageGroup::Job`].
const JOB_PAGES: [&str; 10] = [
    "remuda-run",
    "remuda-pod",
    "remuda-sbatch",
    "remuda-torchrun",
    "remuda-torch.distributed.launch",
    "remuda-accelerate-launch",
    "remuda-launch",
    "remuda-train",
    "remuda-bench",
    "remuda-ssh",
];

/// A variable or a file, and what it does.
struct PageEntry {
    group: PageGroup,
    name: &'static str,
    text: &'static str,
}

const fn entry(group: PageGroup, name: &'static str, text: &'static str) -> PageEntry {
    PageEntry { group, name, text }
}

/// Environment variables that a user can set, and their effects.
const ENVIRONMENT: [PageEntry; 18] = [
    entry(
        PageGroup::Every,
        env_vars::REMUDA_LOG,
        "Filter of the log of remuda itself, which is written to standard error, such as debug or \
         remuda::job=trace,info. Add the log at debug to a bug report. Default: no log.",
    ),
    entry(
        PageGroup::Job,
        env_vars::REMUDA_RUN_DIR,
        "Directory in which run directories are created. Default: remuda/runs in XDG_STATE_HOME, \
         which is ~/.local/state if it is not set.",
    ),
    entry(
        PageGroup::Job,
        env_vars::DS_ENV_FILE,
        "Name or path of the environment files that are read for the workers. Default: .deepspeed_env.",
    ),
    entry(
        PageGroup::Settings,
        "REMUDA_PROFILE, REMUDA_TIMEOUT, ...",
        "Values of options that are not on the command line: REMUDA_ and the name of the option in capitals; 1 \
         or 0 for an option without a value. They precede remuda.toml.",
    ),
    entry(
        PageGroup::Job,
        env_vars::DS_ACCELERATOR,
        "Kind of device of a slot: the values of --accelerator.",
    ),
    entry(
        PageGroup::Job,
        env_vars::PYTHON_EXEC,
        "Python that runs the script when --python is not given.",
    ),
    entry(
        PageGroup::Job,
        env_vars::REMUDA_STREAMS,
        "For workers: number of TCP streams between two ranks of different nodes.",
    ),
    entry(
        PageGroup::Job,
        env_vars::REMUDA_LOCAL_ADDR,
        "For workers: address at which other ranks connect to this rank.",
    ),
    entry(
        PageGroup::Job,
        env_vars::REMUDA_NCCL_LIBRARY,
        "For workers: path of the NCCL library to load.",
    ),
    entry(
        PageGroup::Job,
        env_vars::REMUDA_NVRTC_LIBRARY,
        "For workers: path of the NVRTC library to load.",
    ),
    entry(
        PageGroup::Job,
        env_vars::REMUDA_CUBLASLT_LIBRARY,
        "For workers: path of the cuBLASLt library to load.",
    ),
    entry(
        PageGroup::Job,
        env_vars::REMUDA_TORCH_BACKEND,
        "For workers that use torch: remuda is the backend of groups that a program makes with gloo, as with \
         --torch_backend.",
    ),
    entry(
        PageGroup::Job,
        env_vars::REMUDA_WATCH,
        "For workers that use torch: if it is 0, steps of optimizers are not counted.",
    ),
    entry(
        PageGroup::Job,
        env_vars::REMUDA_EXECUTABLE,
        "For programs that call remuda.launch of the Python package: path of remuda, instead of the one beside the \
         package or in PATH.",
    ),
    entry(
        PageGroup::Job,
        env_vars::REMUDA_LIBRARY,
        "For programs that use the Python package: path of libremuda.so, instead of the one beside the package.",
    ),
    entry(
        PageGroup::Pod,
        "REMUDA_NODES, REMUDA_KEY_FILE, ...",
        "For remuda pod: values of the options under Nodes and Hosts, as described in remuda pod --help.",
    ),
    entry(PageGroup::Every, env_vars::NO_COLOR, "If it is set, output has no colours."),
    entry(
        PageGroup::Every,
        env_vars::FORCE_COLOR,
        "If it is set and not 0, output has colours even if it is not a terminal; CLICOLOR_FORCE has \
         the same effect.",
    ),
];

/// Files that commands read and write.
const FILES: [PageEntry; 4] = [
    entry(
        PageGroup::Settings,
        "remuda.toml",
        "Values of options, in the working directory; the file of the user is remuda/remuda.toml in \
         XDG_CONFIG_HOME, which is ~/.config if it is not set.",
    ),
    entry(
        PageGroup::Job,
        ".deepspeed_env",
        "Variables for the workers, in the working directory or in the home directory.",
    ),
    entry(
        PageGroup::Job,
        "~/.local/state/remuda/runs",
        "Run directories: one for each job, with run.json and the output of every rank.",
    ),
    entry(
        PageGroup::Pod,
        "/dev/termination-log",
        "The end of the job, for the status of the pod; REMUDA_TERMINATION_LOG names another file.",
    ),
];

/// Returns the page of a command. Its definition must be built, and its name is that of the page, `remuda-hostfile-check`.
pub(in crate::cli) fn manual_page(page: &Command) -> io::Result<String> {
    let examples = examples_of(page).map_or_else(String::new, |text| example_section(&text));
    let help = page.get_after_long_help().or(page.get_after_help());
    let (status, notes) = split_exit_status(&help.map(ToString::to_string).unwrap_or_default());
    let about =
        page.get_long_about().or(page.get_about()).map(ToString::to_string).unwrap_or_default();
    let shown = page.clone().mut_args(with_aliases).about(first_sentence(&about)).long_about(about);
    let shown =
        Man::new(shown.after_help(None::<&'static str>).after_long_help(None::<&'static str>));
    let man = shown.source(PAGE_FOOTER).manual("Manual of remuda");
    let mut roff = Vec::new();
    man.render_title(&mut roff)?;
    man.render_name_section(&mut roff)?;
    man.render_synopsis_section(&mut roff)?;
    man.render_description_section(&mut roff)?;
    if page.get_subcommands().any(|command| !command.is_hide_set()) {
        man.render_subcommands_section(&mut roff)?;
    }
    man.render_options_section(&mut roff)?;
    let roff = with_usual_headings(&String::from_utf8_lossy(&roff), page);
    let groups = groups(page);
    let roff = roff
        + &text_section("EXIT STATUS", &status.unwrap_or_else(|| USUAL_STATUS.to_owned()))
        + &list_section("ENVIRONMENT", &ENVIRONMENT, &groups)
        + &list_section("FILES", &FILES, &groups)
        + &text_section("NOTES", &notes)
        + &examples
        + &text_section("SEE ALSO", &see_also(page, &groups));
    Ok(escape_non_ascii(&roff))
}

/// The first sentence of a description, without the full stop: what the section NAME has.
fn first_sentence(about: &str) -> String {
    let paragraph = about.split("\n\n").next().unwrap_or_default();
    paragraph.split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned()
}

/// The groups that a command belongs to.
fn groups(page: &Command) -> Vec<PageGroup> {
    let name = page.get_display_name().unwrap_or_default();
    let reads_settings = page.get_arguments().any(|option| option.get_id() == "profile");
    let belongs = [
        (PageGroup::Every, true),
        (PageGroup::Job, JOB_PAGES.contains(&name)),
        (PageGroup::Settings, reads_settings),
        (PageGroup::Pod, name == "remuda-pod"),
    ];
    belongs.into_iter().filter(|(_, is_part)| *is_part).map(|(group, _)| group).collect()
}

/// Splits the paragraph about the exit status from the other paragraphs after the options.
fn split_exit_status(text: &str) -> (Option<String>, String) {
    let (status, others): (Vec<&str>, Vec<&str>) =
        text.split("\n\n").partition(|paragraph| paragraph.starts_with(EXIT_STATUS));
    let status = status.first().and_then(|paragraph| paragraph.strip_prefix(EXIT_STATUS));
    (status.map(str::to_owned), others.join("\n\n"))
}

/// Makes subsections of OPTIONS of the headings of options, which `clap_mangen` writes as sections in capitals, and
/// leaves out the definition of a quote that it repeats in front of every section.
fn with_usual_headings(roff: &str, page: &Command) -> String {
    let headings: Vec<&str> = page.get_arguments().filter_map(Arg::get_help_heading).collect();
    let (mut out, mut is_begun) = (String::with_capacity(roff.len()), false);
    for line in roff.lines() {
        let title =
            line.strip_prefix(".SH ").map(|title| title.trim_matches('"').replace('\\', ""));
        let heading = |title: &String| headings.iter().find(|one| one.to_uppercase() == *title);
        match (&title, title.as_ref().and_then(heading)) {
            (None, _) if is_begun && (line.starts_with(".ie ") || line.starts_with(".el ")) => {
                continue;
            }
            (Some(title), None) if title == "SUBCOMMANDS" => out += ".SH COMMANDS",
            (Some(_), Some(heading)) => {
                write!(out, ".SS \"{}\"", escaped(heading))
                    .expect("writing to a String cannot fail");
            }
            (None | Some(_), None | Some(_)) => out += line,
        }
        out.push('\n');
        is_begun |= line.starts_with(".TH ");
    }
    out
}

/// Adds the other names of an option to its help, as clap does on the screen; `clap_mangen` leaves them out.
fn with_aliases(option: Arg) -> Arg {
    let aliases = option.get_visible_aliases().filter(|aliases| !aliases.is_empty());
    let Some(aliases) = aliases else { return option };
    let noun = if aliases.len() == 1 { "alias" } else { "aliases" };
    let names: Vec<String> = aliases.iter().map(|alias| format!("--{alias}")).collect();
    let help = option.get_long_help().or(option.get_help()).cloned().unwrap_or_default();
    let help = format!("{help} [{noun}: {}]", names.join(", "));
    option.help(help.clone()).long_help(help)
}

/// Formats variables or files as a list of tagged paragraphs.
fn list_section(title: &str, all: &[PageEntry], groups: &[PageGroup]) -> String {
    let mut section = String::new();
    for PageEntry { name, text, .. } in all.iter().filter(|entry| groups.contains(&entry.group)) {
        let (name, text) = (escaped(name), escaped(text));
        write!(section, ".TP\n\\fB{name}\\fR\n{text}\n").expect("writing to a String cannot fail");
    }
    if section.is_empty() { section } else { format!(".SH {title}\n{section}") }
}

/// Formats paragraphs; lines that begin with a blank are shown unchanged.
fn text_section(title: &str, text: &str) -> String {
    if text.trim().is_empty() {
        return String::new();
    }
    let mut section = format!(".SH \"{title}\"\n");
    for (number, paragraph) in text.trim_matches('\n').split("\n\n").enumerate() {
        if number != 0 {
            section += ".PP\n";
        }
        let lines: String = paragraph.lines().map(|line| escaped(line) + "\n").collect();
        let is_code = paragraph.starts_with(' ');
        let (before, after) = if is_code { (".nf\n", ".fi\n") } else { ("", "") };
        for part in [before, &lines, after] {
            section += part;
        }
    }
    section
}

/// Formats lines that are shown unchanged.
fn example_section(text: &str) -> String {
    let lines: Vec<String> = text.lines().skip(1).map(escaped).collect();
    format!(".SH EXAMPLES\n.nf\n{}\n.fi\n", lines.join("\n"))
}

/// The pages of the command above, of those below, and of commands that belong to a job.
fn see_also(page: &Command, groups: &[PageGroup]) -> String {
    let name = page.get_display_name().unwrap_or_default();
    let mut names: Vec<String> = Vec::new();
    names.extend(name.rsplit_once('-').map(|(parent, _)| parent.to_owned()));
    let below = page.get_subcommands().filter(|command| !command.is_hide_set());
    let below = below.filter(|command| command.get_name() != "help");
    names.extend(below.map(|command| format!("{name}-{}", command.get_name())));
    if groups.contains(&PageGroup::Job) {
        names.extend(["remuda-run", "remuda-doctor"].map(str::to_owned));
    }
    names.push("remuda-explain".to_owned());
    let mut seen: Vec<String> = Vec::new();
    for each in names.into_iter().filter(|each| each != name) {
        if !seen.contains(&each) {
            seen.push(each);
        }
    }
    seen.iter().map(|name| format!("{name}(1)")).collect::<Vec<_>>().join(", ")
}

/// Escapes what roff would interpret: backslashes, hyphens, and a dot or quote at the start of a line.
fn escaped(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

/// Replaces other characters by escapes, `…` → `\[u2026]`: not every reader of manual pages
/// supports UTF-8.
fn escape_non_ascii(roff: &str) -> String {
    let mut out = String::with_capacity(roff.len());
    for c in roff.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            write!(out, "\\[u{:04X}]", u32::from(c)).expect("writing to a String cannot fail");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_ascii() {
        assert_eq!(escape_non_ascii("a\\-b … ×\n"), "a\\-b \\[u2026] \\[u00D7]\n");
    }

    #[test]
    fn exit_status_is_split_from_the_other_paragraphs() {
        let (status, notes) = split_exit_status("First.\n\nExit status: 0,\n1 else.\n\nLast.");
        assert_eq!((status.as_deref(), &*notes), (Some("0,\n1 else."), "First.\n\nLast."));
        assert_eq!(split_exit_status(""), (None, String::new()));
    }

    #[test]
    fn text_has_no_requests_of_roff() {
        let expect = ".SH \"NOTES\"\n\\&.deepspeed_env\n.PP\n.nf\n  a \\-b \\e\n.fi\n";
        assert_eq!(text_section("NOTES", ".deepspeed_env\n\n  a -b \\"), expect);
    }
}
