//! Queues have limits, and no command is a text that a shell reads, except where a user types one.

use crate::rules::check;
use crate::source::{Source, Token, rust_files};

/// Files that name a shell, and why.
const SHELLS: &[(&str, &str)] = &[
    ("src/agent/preflight.rs", "endings of files that are scripts"),
    ("src/cli/command/completion.rs", "shells for which there are completions"),
    ("src/cli/command/ssh.rs", "`remuda ssh` runs the line that the user typed"),
    ("src/cli/executable.rs", "programs that are shells, for advice"),
    ("src/cli/help/topics.rs", "examples of completions"),
    ("src/cli/line/nested_launcher.rs", "lines of Slurm that start a shell, for advice"),
    ("src/os/process/shell_env.rs", "the user's file of variables is a script"),
    ("src/transport/ssh/", "sshd passes every command to a login shell"),
];

/// Names of shells as a program to start.
const SHELL_NAMES: &[&str] = &["sh", "bash", "dash", "/bin/sh", "/bin/bash"];

/// Literals of a file that name a shell.
fn shells(file: &Source) -> Vec<String> {
    if SHELLS.iter().any(|(path, _)| file.path.starts_with(path)) {
        return Vec::new();
    }
    let tests = file.test_regions();
    let is_code = |at: &usize| !tests.iter().any(|test| test.contains(at));
    let named = file.literals().into_iter().filter(|(at, literal)| {
        let text =
            literal.split_once('"').map_or("", |(_, rest)| rest.trim_end_matches(['"', '#']));
        is_code(at) && (SHELL_NAMES.contains(&text) || text.starts_with("sh -c"))
    });
    named.map(|(at, literal)| file.violation(at, format_args!("{literal} names a shell"))).collect()
}

/// Queues without a limit whose comment does not say what limits them, and limits without a name.
fn queues(file: &Source) -> Vec<String> {
    let tests = file.test_regions();
    let tokens = file.tokens();
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        if tests.iter().any(|test| test.contains(&token.at)) {
            continue;
        }
        match queue_at(&tokens[index..], is_path_of_queue(&tokens[..index])) {
            None | Some(Queue::Limited) => {}
            Some(Queue::Unlimited) if has_comment_above(file, token.at) => {}
            Some(Queue::Unlimited) => found.push(
                file.violation(token.at, "a comment above the queue must say what limits it"),
            ),
            Some(Queue::UnnamedLimit) => {
                found.push(file.violation(token.at, "the limit of a queue is a constant `…_MAX`"));
            }
        }
    }
    found
}

/// What limits a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    /// A constant, or one message.
    Limited,
    /// A value without a name.
    UnnamedLimit,
    /// Something else than the queue.
    Unlimited,
}

/// Whether the tokens before a call are `mpsc ::`.
fn is_path_of_queue(before: &[Token<'_>]) -> bool {
    matches!(before, [.., module, colons] if module.text == "mpsc" && colons.text == "::")
}

/// The queue that the call at the first token creates.
fn queue_at(tokens: &[Token<'_>], is_in_mpsc: bool) -> Option<Queue> {
    let name = tokens[0].text;
    if !is_in_mpsc || !matches!(name, "channel" | "sync_channel" | "unbounded_channel") {
        return None;
    }
    let mut depth = 0usize;
    let open = tokens.iter().position(|token| {
        // The type of a message can have parentheses too: `channel::<(A, B)>()`.
        match token.text {
            "<" => depth += 1,
            ">" => depth -= 1,
            _ => {}
        }
        depth == 0 && token.text == "("
    })?;
    let argument: Vec<&str> =
        tokens[open + 1..].iter().map(|token| token.text).take_while(|text| *text != ")").collect();
    Some(match argument[..] {
        [] => Queue::Unlimited,
        ["1"] => Queue::Limited,
        [.., last] if last.ends_with("_MAX") => Queue::Limited,
        _ => Queue::UnnamedLimit,
    })
}

/// Whether the line of a byte, or the queue above it, has a comment above it.
fn has_comment_above(file: &Source, at: usize) -> bool {
    let mut above = file.text[..at].rsplit('\n').skip(1).map(str::trim);
    let first = above.find(|line| !line.contains("_channel"));
    first.is_some_and(|line| line.starts_with("//") && !line.starts_with("///"))
}

#[track_caller]
fn assert_none(rule: fn(&Source) -> Vec<String>) {
    let files = rust_files().into_iter().filter(|file| file.path.starts_with("src/"));
    crate::assert_clean(files.flat_map(|file| rule(&file)));
}

#[test]
fn only_listed_files_name_a_shell() {
    assert_none(shells);
    let files = rust_files();
    let is_used = |path: &str| {
        let mut own = files.iter().filter(|file| file.path.starts_with(path));
        own.any(|file| file.text.contains("sh\""))
    };
    crate::assert_clean(
        SHELLS
            .iter()
            .filter(|(path, _)| !is_used(path))
            .map(|(path, why)| format!("{path}: {why}")),
    );
}

#[test]
fn queues_have_limits() {
    assert_none(queues);
}

#[test]
fn planted_shell_and_queue_are_found() {
    check(shells, "src/agent/a.rs", "start(\"shim\")", "-");
    check(shells, "src/agent/a.rs", "start(\"bash\")", "src/agent/a.rs:1: \"bash\" names a shell");
    check(shells, "src/agent/a.rs", "start(\"sh\")", "src/agent/a.rs:1: \"sh\" names a shell");
    check(shells, "src/agent/a.rs", "#[cfg(test)] mod t { fn f() { start(\"sh\") } }", "-");
    check(shells, "src/transport/ssh/a.rs", "start(\"sh\")", "-");
    let unlimited = "src/a.rs:1: a comment above the queue must say what limits it";
    check(queues, "src/a.rs", "let a = mpsc::unbounded_channel();", unlimited);
    check(queues, "src/a.rs", "let a = mpsc::channel::<(u8, Vec<u8>)>();", unlimited);
    let commented = "// One for each node.\nlet a = mpsc::unbounded_channel();";
    check(queues, "src/a.rs", commented, "-");
    check(queues, "src/a.rs", &format!("{commented}\nlet b = mpsc::unbounded_channel();"), "-");
    check(queues, "src/a.rs", "let a = mpsc::channel(PIECES_MAX);", "-");
    check(queues, "src/a.rs", "let a = mpsc::sync_channel(1);", "-");
    check(queues, "src/a.rs", "let a = oneshot::channel();", "-");
    let unnamed = "src/a.rs:1: the limit of a queue is a constant `…_MAX`";
    check(queues, "src/a.rs", "let a = mpsc::channel(8);", unnamed);
}
