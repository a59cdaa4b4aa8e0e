//! Checks of the documents against the repository: tables, scripts, links, commands, crates.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::source::{Source, files, has_extension, read, root};

/// Rows of a layer table, `| L4 | [`runtime`] … |`, in the order of the text.
pub(crate) fn layer_table(text: &str) -> Vec<(usize, Vec<&str>)> {
    text.lines().filter_map(layer_row).collect()
}

fn layer_row(line: &str) -> Option<(usize, Vec<&str>)> {
    let mut cells = line.trim_start_matches("//! ").strip_prefix('|')?.split('|').map(str::trim);
    let level = cells.next()?.strip_prefix('L')?.parse().ok()?;
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let modules = cells.next()?.split(|c| !is_part(c)).filter(|name| !name.is_empty());
    Some((level, modules.collect()))
}

/// A row of a table at the top of a test file, and the tests that its last cell names.
pub(crate) struct RowOfTests {
    pub(crate) line: String,
    pub(crate) tests: Vec<(String, String)>,
}

/// Rows of `//! | … | `path::test`, `test` |`; a name without a path is in the file itself.
pub(crate) fn rows_of_tests(file: &str, text: &str) -> Vec<RowOfTests> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! |")?.strip_suffix(" |"));
    let test = |name: &str| match name.split_once("::") {
        Some((path, name)) => (path.to_owned(), name.to_owned()),
        None => (file.to_owned(), name.to_owned()),
    };
    rows.skip(1)
        .map(|row| {
            let last = row.rsplit(" | ").next().unwrap_or_default();
            let tests = last.split('`').skip(1).step_by(2).map(test).collect();
            RowOfTests { line: row.to_owned(), tests }
        })
        .collect()
}

/// All Markdown files.
fn documents() -> Vec<Source> {
    files().into_iter().filter(|path| has_extension(path, &["md"])).map(read).collect()
}

/// Paths `scripts/…` and `.ci/…` that a text names.
fn named_scripts(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    text.split(|c| !is_part(c))
        .map(|word| word.trim_end_matches(['.', '/']))
        .map(|word| word.strip_prefix("./").unwrap_or(word))
        .filter(|word| word.starts_with("scripts/") || word.starts_with(".ci/"))
        .collect()
}

/// Targets of links to files of the repository.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets
        .map(|(target, _)| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .collect()
}

/// Lines of fenced `sh` and `console` blocks that are commands, without their `$ `.
fn commands(text: &str) -> Vec<&str> {
    let mut shell = None;
    let mut found = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("```"), shell) {
            (Some(language), None) => shell = Some(language),
            (Some(_), Some(_)) => shell = None,
            (None, Some("sh" | "bash")) => found.push(line),
            (None, Some("console")) => found.extend(line.strip_prefix("$ ")),
            (None, _) => {}
        }
    }
    found.retain(|line| !line.trim().is_empty() && !line.starts_with('#'));
    found
}

/// The subcommand of a line that runs the program, by name or through cargo: `hostfile check`.
fn subcommand(command: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> =
        command.split_whitespace().skip_while(|word| word.contains('=')).collect();
    let program = words.first()?;
    let rest = match *program {
        "cargo" if words.get(1) == Some(&"run") => words.split(|word| *word == "--").nth(1)?,
        _ if program.rsplit('/').next() == Some("remuda") => &words[1..],
        _ => return None,
    };
    let is_name = |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let nested = |first: &&str| matches!(*first, "hostfile" | "config" | "env");
    let depth = 1 + usize::from(rest.first().is_some_and(nested));
    Some(
        rest.iter()
            .take_while(|word| !word.starts_with('-'))
            .take(depth)
            .filter(is_name)
            .copied()
            .collect(),
    )
}

/// Keys of a table `[name]` of a manifest.
fn manifest_keys<'a>(manifest: &'a str, name: &str) -> Vec<&'a str> {
    let header = format!("[{name}]");
    let body = manifest.lines().skip_while(|line| *line != header).skip(1);
    body.take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "))
        .map(|(key, _)| key)
        .collect()
}

/// First cells, in backticks, of the table rows below a heading.
fn listed_below<'a>(document: &'a str, heading: &str) -> Vec<&'a str> {
    let section = document.lines().skip_while(|line| *line != heading).skip(1);
    section
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect()
}

/// Cells of the rows of the table below a heading, without its head.
pub(crate) fn table_below<'a>(document: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let section = document.lines().skip_while(|line| *line != heading).skip(1);
    let rows = section.take_while(|line| !line.starts_with("## ")).filter_map(|line| {
        Some(line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect())
    });
    // The head, and the line of dashes below it, which is no row of cells.
    rows.skip(1).collect()
}

/// Golden inputs without their expectation, and expectations without their input: `a.txt` belongs to
/// `a.expected` or to `a.txt.expected`.
fn golden_violations(paths: &[String]) -> Vec<String> {
    let is_golden =
        |path: &&String| path.starts_with("hostfiles/") || path.starts_with("env/invalid/");
    let (expectations, inputs): (Vec<&String>, Vec<&String>) =
        paths.iter().filter(is_golden).partition(|path| has_extension(path, &["expected"]));
    let belongs = |input: &str, expectation: &str| {
        let stem = expectation.trim_end_matches(".expected");
        input == stem || input.rsplit_once('.').is_some_and(|(name, _)| name == stem)
    };
    let unexpected = inputs.iter().filter(|input| !expectations.iter().any(|e| belongs(input, e)));
    let orphaned = expectations.iter().filter(|e| !inputs.iter().any(|input| belongs(input, e)));
    let missing = unexpected.map(|path| format!("{path}: no .expected file beside it"));
    missing.chain(orphaned.map(|path| format!("{path}: no input beside it"))).collect()
}

/// White space at line ends, paths of a development machine, and missing final newlines.
fn hygiene_violations(file: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = 0;
    for line in file.text.split_inclusive('\n') {
        let content = line.trim_end_matches('\n');
        if content.ends_with([' ', '\t', '\r']) {
            found.push(file.violation(at, "white space at the end of the line"));
        }
        // Concatenated, so that this file does not contain the path.
        if content.contains(concat!("/wo", "rk/")) {
            found.push(file.violation(at, "a path of the development machine"));
        }
        at += line.len();
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        found.push(file.violation(file.text.len(), "no newline at the end of the file"));
    }
    found
}

/// Whether the rule for white space applies; golden files contain blanks on purpose.
fn is_prose_or_code(path: &str) -> bool {
    has_extension(path, &["rs", "md", "toml", "py", "sh", "c", "yml"])
        || path.starts_with("scripts/")
        || path.starts_with(".ci/")
        || path.starts_with("LICENSE")
}

#[track_caller]
fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn readme_is_short_and_shows_a_line_for_every_launcher() {
    let readme = read("README.md".into()).text;
    assert!(readme.lines().count() <= 150, "{} lines", readme.lines().count());
    let rows: Vec<&str> = readme.lines().filter(|line| line.starts_with("| `")).collect();
    for launcher in [
        "deepspeed",
        "torchrun",
        "python -m torch.distributed.launch",
        "accelerate launch",
        "srun",
        "mpirun",
    ] {
        let start = format!("| `{launcher} ");
        assert!(rows.iter().any(|row| row.starts_with(&start)), "no row for {launcher}");
    }
}

#[test]
fn documents_name_existing_files() {
    let mut missing = Vec::new();
    for document in documents() {
        let folder = Path::new(&document.path).parent().unwrap_or(Path::new(""));
        let linked = links(&document.text).into_iter().map(|path| root().join(folder).join(path));
        let scripts = named_scripts(&document.text).into_iter().map(|path| root().join(path));
        let absent = scripts.chain(linked).filter(|path| !path.exists());
        missing.extend(absent.map(|path| format!("{}: {}", document.path, path.display())));
    }
    assert_none("documents name files that do not exist", &missing);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "asks the program that was just built for its help")]
fn documents_show_existing_commands() {
    let Some(program) = option_env!("CARGO_BIN_EXE_remuda") else { return };
    let mut unknown = Vec::new();
    for document in documents() {
        for command in commands(&document.text) {
            let Some(subcommand) = subcommand(command) else { continue };
            let mut help = Command::new(program);
            help.args(&subcommand).arg("--help").stdin(Stdio::null());
            let status = help.stdout(Stdio::null()).stderr(Stdio::null()).status();
            if !status.expect("the program starts").success() {
                unknown.push(format!("{}: {command}", document.path));
            }
        }
    }
    assert_none("documents show commands that do not exist", &unknown);
}

#[test]
fn every_direct_dependency_has_a_reason() {
    let manifest = read("Cargo.toml".into());
    let reasons = read("docs/dependencies.md".into());
    let mut direct = manifest_keys(&manifest.text, "dependencies");
    direct.extend(manifest_keys(&manifest.text, "dev-dependencies"));
    let mut listed = listed_below(&reasons.text, "# Dependencies");
    direct.sort_unstable();
    // A crate that the tests need with other features has one row.
    direct.dedup();
    listed.sort_unstable();
    assert_eq!(listed, direct, "the table of docs/dependencies.md against Cargo.toml");
}

#[test]
fn golden_files_come_in_pairs() {
    assert_none("golden files", &golden_violations(&files()));
}

#[test]
fn text_files_are_clean() {
    let checked = files().into_iter().filter(|path| is_prose_or_code(path)).map(read);
    let found: Vec<String> = checked.flat_map(|file| hygiene_violations(&file)).collect();
    assert_none("white space and paths", &found);
}

#[test]
fn names_in_documents_are_found() {
    let text = "run `scripts/test`, [the rules](CONTRIBUTING.md#how) and\n```sh\n# first\n./scripts/ci.sh\n\n\
                remuda run -n 2 a.py\n```\n```text\nremuda no\n```\n```console\n$ remuda hostfile check a\nok\n```\n";
    assert_eq!(named_scripts(text), ["scripts/test", "scripts/ci.sh"]);
    assert_eq!(links(text), ["CONTRIBUTING.md"]);
    assert_eq!(
        commands(text),
        ["./scripts/ci.sh", "remuda run -n 2 a.py", "remuda hostfile check a"]
    );
}

#[test]
fn subcommands_are_read_from_their_commands() {
    #[track_caller]
    fn check(command: &str, expect: Option<&[&str]>) {
        assert_eq!(subcommand(command).as_deref(), expect, "for `{command}`");
    }
    check("remuda run -H hosts train.py", Some(&["run"]));
    check("target/release/remuda hostfile check a.txt", Some(&["hostfile", "check"]));
    check("A=1 cargo run --release -- train --steps 10", Some(&["train"]));
    check("remuda --version", Some(&[]));
    check("cargo test", None);
    check("scripts/test", None);
}

#[test]
fn tables_are_read() {
    let table = "//! | layer | modules |\n//! |---|---|\n//! | L1 | [`pool`] [`os`] | x |\n| L0 | `base` | y |\n";
    assert_eq!(layer_table(table), [(1, vec!["pool", "os"]), (0, vec!["base"])]);
    let manifest =
        "[dependencies]\n# why\na = \"1\"\nb-c = { version = \"1\" }\n[profile.dev]\nd = 1\n";
    assert_eq!(manifest_keys(manifest, "dependencies"), ["a", "b-c"]);
    let document = "## X\n| `no` | a |\n## Y\n| crate | why |\n| `yes` | a |\n## Z\n| `no` | a |\n";
    assert_eq!(listed_below(document, "## Y"), ["yes"]);
}

#[test]
fn planted_golden_file_is_found() {
    #[track_caller]
    fn check(paths: &[&str], expect: &str) {
        let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
        assert_eq!(golden_violations(&paths).first().map_or("-", String::as_str), expect);
    }
    check(&["src/a.rs", "hostfiles/a.txt", "hostfiles/a.expected"], "-");
    check(&["hostfiles/valid/a", "hostfiles/valid/a.expected"], "-");
    check(&["hostfiles/a.txt", "hostfiles/a.txt.expected"], "-");
    check(&["hostfiles/b.txt"], "hostfiles/b.txt: no .expected file beside it");
    check(&["env/invalid/b.expected"], "env/invalid/b.expected: no input beside it");
}

#[test]
fn planted_leftovers_are_found() {
    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = hygiene_violations(&Source::new("a.md", text));
        assert_eq!(found.first().map_or("-", String::as_str), expect, "for `{text}`");
    }
    check("a\n\nb\n", "-");
    check("a \n", "a.md:1: white space at the end of the line");
    check("a\nb\r\n", "a.md:2: white space at the end of the line");
    check(concat!("see /wo", "rk/x\n"), "a.md:1: a path of the development machine");
    check("a", "a.md:1: no newline at the end of the file");
}

/// Letters of the error codes that a text defines: `A` of `"A001"`.
fn letters_of_codes(text: &str) -> Vec<char> {
    let quoted = text.split('"').filter(|word| word.len() == 4);
    let letter = |word: &str| {
        let first = word.chars().next()?;
        let is_code = first.is_ascii_uppercase() && word[1..].parse::<u16>().is_ok();
        is_code.then_some(first)
    };
    let mut letters: Vec<char> = quoted.filter_map(letter).collect();
    letters.sort_unstable();
    letters.dedup();
    letters
}

#[test]
fn contributing_lists_the_letters_of_error_codes() {
    let text = read("CONTRIBUTING.md".into()).text;
    let mut defined = Vec::new();
    let is_list = |path: &String| path.ends_with("codes.rs") || path.contains("/codes/");
    for path in files().into_iter().filter(|path| path.starts_with("src/")).filter(is_list) {
        let letters = letters_of_codes(&read(path.clone()).text);
        defined.extend(letters.into_iter().map(|letter| (letter, path.clone())));
    }
    assert!(17 <= defined.len(), "{defined:?}");
    let is_missing = |(letter, path): &&(char, String)| {
        let start = format!("| `{letter}…` |");
        !text.lines().any(|row| row.starts_with(&start) && row.contains(&format!("`{path}`")))
    };
    let missing: Vec<_> = defined.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "CONTRIBUTING.md lists no {missing:?}");
}

#[test]
fn contributing_names_every_module_of_tests() {
    let text = read("CONTRIBUTING.md".into()).text;
    for name in ["program", "library", "gpu"] {
        let modules = read(format!("tests/{name}.rs")).text;
        let modules =
            modules.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
        let is_missing = |module: &&str| {
            *module != "support" && !text.contains(&format!("--test {name} {module}::"))
        };
        let missing: Vec<_> = modules.filter(is_missing).collect();
        assert!(missing.is_empty(), "CONTRIBUTING.md: {name} {missing:?}");
    }
}

#[test]
fn index_of_examples_is_complete() {
    let text = read("examples/README.md".into()).text;
    let listed = links(&text);
    let names =
        files().into_iter().filter_map(|path| Some(path.strip_prefix("examples/")?.to_owned()));
    let missing: Vec<_> =
        names.filter(|name| name != "README.md" && !listed.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "examples/README.md: {missing:?}");
}
