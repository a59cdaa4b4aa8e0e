//! Purity: code of pure functions does no I/O and reads neither the clock nor the environment. The rule holds
//! in the modules of a list, and in every file and folder that says `Pure` at its top.

use crate::rules::occurrences;
use crate::source::{Source, rust_files, tokens};
use crate::{IMPURE, PURE};

/// Whether a sentence of the documentation at the top of a file begins with `Pure`. Lines of lists and tables
/// say it of something else.
fn says_pure(file: &Source) -> bool {
    let lines = file.text.lines().map_while(|line| line.strip_prefix("//!"));
    let is_prose = |line: &&str| !line.starts_with(" *") && !line.starts_with(" |");
    let text: String = lines.filter(is_prose).collect();
    let begins = |at: usize| text[..at].trim_end().is_empty() || text[..at].ends_with(". ");
    let ends = |at: usize| text[at..].starts_with(['.', ':', ';']);
    text.match_indices("Pure").any(|(at, word)| begins(at) && ends(at + word.len()))
}

/// The folder or the file of which a file at this path says that it is pure.
fn subject(path: &str) -> &str {
    path.strip_suffix("mod.rs").unwrap_or(path)
}

/// Impure calls of a file that is pure or in a pure folder.
fn impurities(file: &Source, pure: &[String]) -> Vec<String> {
    if !pure.iter().any(|prefix| file.path.starts_with(prefix)) {
        return Vec::new();
    }
    let code = file.tokens();
    let tests = file.test_regions();
    let in_test = |at: &usize| tests.iter().any(|range| range.contains(at));
    let calls = |&(words, reason): &(&str, &'static str)| {
        let found = occurrences(&code, &tokens(words)).into_iter().filter(|at| !in_test(at));
        let message = format!("`{words}`: {reason}");
        found.map(|at| file.violation(at, &message)).collect::<Vec<_>>()
    };
    IMPURE.iter().flat_map(calls).collect()
}

/// Paths of the folders and files that must be pure.
fn pure_places(files: &[Source]) -> Vec<String> {
    let said = files.iter().filter(|file| file.path.starts_with("src/") && says_pure(file));
    let said = said.map(|file| subject(&file.path).to_owned());
    said.chain(PURE.iter().map(|path| (*path).to_owned())).collect()
}

#[test]
fn pure_code_does_no_io() {
    let files = rust_files();
    let pure = pure_places(&files);
    assert!(PURE.len() + 40 <= pure.len(), "{pure:?}");
    crate::assert_clean(files.iter().flat_map(|file| impurities(file, &pure)));
}

#[test]
fn pure_places_are_found() {
    #[track_caller]
    fn check(path: &str, text: &str, expect: Option<&str>) {
        let pure = pure_places(&[Source::new(path, text)]);
        assert_eq!(pure.len() - PURE.len(), usize::from(expect.is_some()), "for `{text}`");
        assert_eq!(expect.is_some().then(|| pure[0].as_str()), expect);
    }
    check("src/a/b.rs", "//! Sizes. Pure.\n", Some("src/a/b.rs"));
    check("src/a/b.rs", "//! Sizes.\n//! Pure: values in, values out.\n", Some("src/a/b.rs"));
    check("src/a/mod.rs", "//! Sizes. Pure; the agent calls it.\n", Some("src/a/"));
    check("src/a/mod.rs", "//! Screens.\n//!\n//! * `text`: amounts. Pure.\n", None);
    check("src/a/b.rs", "//! Pure functions are elsewhere.\n", None);
    check("src/a/b.rs", "//! Sizes.\n\n/// Pure.\nfn f() {}\n", None);
    check("tests/b.rs", "//! Pure.\n", None);
}

#[test]
fn planted_impurity_is_found() {
    #[track_caller]
    fn check(path: &str, text: &str, expect: &str) {
        let file = Source::new(path, text);
        let found = impurities(&file, &["src/plan/".to_owned(), "src/a.rs".to_owned()]);
        assert_eq!(found.first().map_or("-", String::as_str), expect, "for `{text}`");
    }
    check("src/plan/b.rs", "let now = clock_now();", "-");
    check("src/launch/a.rs", "std::fs::read(a)", "-");
    check("src/a.rs", "#[cfg(test)] mod tests { fn f() { std::fs::read(a) } }", "-");
    check("src/a.rs", "Reply { libc: None }", "-");
    check(
        "src/a.rs",
        "\nlibc::getpid()",
        "src/a.rs:2: `libc::`: pure code does not call the kernel",
    );
    let found = "src/plan/b.rs:1: `clock::machine_us`: time is an argument";
    check("src/plan/b.rs", "let at = clock::machine_us();", found);
    let found = "src/plan/b.rs:1: `to_socket_addrs`: pure code asks no name server";
    check("src/plan/b.rs", "let to = host.to_socket_addrs()?;", found);
    check("src/plan/b.rs", "std::fs::read(a)", "src/plan/b.rs:1: `std::fs`: pure code does no I/O");
}
