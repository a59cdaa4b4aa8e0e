//! Help pages as they are printed, at several widths.
//!
//! `UPDATE_EXPECTED=1 cargo test --test program cli::` rewrites the expectations.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::support::expected::check_expected;

const REMUDA: &str = env!("CARGO_BIN_EXE_remuda");

/// Command lines of every command, and of links to remuda.
const COMMANDS: [&str; 40] = [
    "remuda",
    "deepspeed",
    "torchrun",
    "accelerate",
    "accelerate launch",
    "accelerate-launch",
    "remuda run",
    "remuda sbatch",
    "remuda torchrun",
    "remuda torch.distributed.launch",
    "remuda accelerate",
    "remuda accelerate launch",
    "remuda pod",
    "remuda k8s",
    "remuda k8s manifest",
    "remuda k8s containerfile",
    "remuda launch",
    "remuda train",
    "remuda checkpoint",
    "remuda checkpoint show",
    "remuda checkpoint verify",
    "remuda checkpoint export",
    "remuda checkpoint import",
    "remuda tokenize",
    "remuda sample",
    "remuda bench",
    "remuda ssh",
    "remuda hostfile",
    "remuda hostfile check",
    "remuda hostfile fmt",
    "remuda hostfile convert",
    "remuda hostfile show",
    "remuda hostfile diff",
    "remuda config",
    "remuda config check",
    "remuda doctor",
    "remuda explain",
    "remuda man",
    "remuda completion",
    "remuda links",
];

/// Standard output of a line at a width.
#[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
fn printed(line: &str, width: usize) -> String {
    let mut words = line.split(' ');
    let program = words.next().expect("a program");
    let mut command = Command::new(REMUDA);
    command.arg0(program).args(words).stdin(Stdio::null()).env_clear();
    let output = command.env("COLUMNS", width.to_string()).output().expect("remuda starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    for row in text.lines() {
        assert!(row.chars().count() <= width, "{line}: wider than {width}: {row}");
    }
    text
}

/// A locale without UTF-8 has none of the marks in texts of remuda.
#[test]
#[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
fn screens_are_ascii_in_a_locale_without_utf8() {
    for line in ["run --help", "explain D024", "torchrun --help"] {
        let mut command = Command::new(REMUDA);
        command.args(line.split(' ')).stdin(Stdio::null()).env_clear().env("LC_ALL", "C");
        let output = command.output().expect("remuda starts");
        assert!(output.status.success(), "{line}: {output:?}");
        assert!(output.stdout.is_ascii(), "{line}");
    }
}

#[track_caller]
fn check(option: &str, width: usize, commands: &[&str]) {
    let pages = commands.iter().map(|command| {
        let line = format!("{command} {option}");
        format!("$ COLUMNS={width} {line}\n{}\n", printed(&line, width))
    });
    let found: String = pages.collect();
    let path = format!("tests/cli/help/{}-{width}.expected", option.trim_start_matches('-'));
    check_expected(path.as_ref(), &found);
}

#[test]
fn short_pages_at_60_columns() {
    check("-h", 60, &COMMANDS);
}

#[test]
fn short_pages_at_80_columns() {
    check("-h", 80, &COMMANDS);
}

#[test]
fn short_pages_at_120_columns() {
    check("-h", 120, &COMMANDS);
}

#[test]
fn long_pages_at_60_columns() {
    check("--help", 60, &["remuda hostfile check"]);
}

#[test]
fn long_pages_at_80_columns() {
    check("--help", 80, &["remuda", "remuda run", "remuda hostfile check", "remuda man"]);
}

#[test]
fn long_pages_at_120_columns() {
    check("--help", 120, &["remuda hostfile check"]);
}

#[test]
fn short_page_names_the_long_page() {
    for command in &COMMANDS[1..] {
        let lines = |text: &str| text.lines().count();
        let (short, long) =
            (printed(&format!("{command} -h"), 80), printed(&format!("{command} --help"), 80));
        assert!(lines(&short) <= 30 && lines(&short) <= lines(&long) + 2, "{command}: {short}");
        let next = match *command {
            "remuda k8s" | "remuda hostfile" | "remuda checkpoint" | "remuda config"
            | "remuda accelerate" | "accelerate" => {
                format!("`{command} COMMAND -h` is one screen")
            }
            _ => format!("`{command} --help` lists every option."),
        };
        assert!(short.contains(&next), "{short}");
    }
}

#[test]
fn every_page_has_three_examples() {
    for command in COMMANDS {
        for option in ["-h", "--help"] {
            let page = printed(&format!("{command} {option}"), 80);
            let examples = page.lines().filter(|line| line.starts_with("  # ")).count();
            assert_eq!(examples, 3, "{command} {option}: {page}");
        }
    }
}

/// Names below `Commands:` of a page.
fn listed(page: &str) -> Vec<String> {
    let lines = page.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.trim_start().split("  ").next());
    names.flat_map(|names| names.split(", ")).map(str::to_owned).collect()
}

#[test]
fn list_of_commands_is_complete() {
    let commands = listed(&printed("remuda -h", 80));
    assert!(15 <= commands.len(), "{commands:?}");
    for command in commands {
        let line = format!("remuda {command}");
        assert!(COMMANDS.contains(&&*line), "{line}");
        for inner in listed(&printed(&format!("{line} -h"), 80)) {
            let line = format!("{line} {inner}");
            assert!(inner == "help" || COMMANDS.contains(&&*line), "{line}");
        }
    }
}

#[test]
fn help_of_a_command_is_the_long_page() {
    assert_eq!(printed("remuda help bench", 80), printed("remuda bench --help", 80));
    assert_eq!(printed("remuda help", 80), printed("remuda --help", 80));
}

/// An invalid width is ignored; a page off a terminal has 100 columns.
#[test]
#[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
fn page_off_a_terminal_has_100_columns() {
    let widest = |columns: Option<&str>| {
        let mut command = Command::new(REMUDA);
        command.args(["run", "--help"]).stdin(Stdio::null()).env_clear();
        if let Some(columns) = columns {
            command.env("COLUMNS", columns);
        }
        let output = command.output().expect("remuda starts");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(|line| line.chars().count()).max().expect("a line")
    };
    let usual = widest(None);
    assert!((90..=100).contains(&usual), "{usual}");
    assert_eq!(widest(Some("many")), usual);
    assert_eq!(widest(Some("0")), usual);
    assert!(widest(Some("1000")) <= 120);
}
