//! Words that a test says must not be on a screen: they are words that the program could print. If a screen
//! gets other words and a test still looks for the old ones, the test cannot fail any more.

use crate::source::{Source, rust_files};

/// The call that looks for words that must not be there.
const CALL: &str = "does_not_say(";

/// Literals given to [`CALL`] that are neither in the source of the program nor elsewhere in the test's file,
/// which may be the words of a worker.
fn unsayable(test: &Source, program: &[Source]) -> Vec<String> {
    let mut searched = Vec::new();
    let mut rest = String::new();
    let mut end = 0;
    for (at, literal) in test.literals() {
        if test.text[..at].trim_end().ends_with(CALL) {
            rest.push_str(&test.text[end..at]);
            end = at + literal.len();
            searched.push((at, literal.trim_matches('"')));
        }
    }
    rest.push_str(&test.text[end..]);
    let is_known =
        |words: &str| rest.contains(words) || program.iter().any(|file| file.text.contains(words));
    searched.retain(|(_, words)| !is_known(words));
    let message = |words| format!("no screen can say `{words}`; the words may have changed");
    searched.into_iter().map(|(at, words)| test.violation(at, message(words))).collect()
}

#[test]
fn words_that_screens_must_not_say_exist() {
    let (program, others): (Vec<_>, Vec<_>) =
        rust_files().into_iter().partition(|file| file.path.starts_with("src/"));
    let own = "tests/architecture/screens.rs";
    let tests = others.iter().filter(|file| file.path.starts_with("tests/") && file.path != own);
    crate::assert_clean(tests.flat_map(|file| unsayable(file, &program)));
}

#[test]
fn words_that_no_screen_says_are_found() {
    let program = [Source::new("src/a.rs", "fn f() { say(\"no heartbeat for 1 s\") }")];
    let of = |text: &str| unsayable(&Source::new("tests/a.rs", text), &program).len();
    assert_eq!(of("fn t() { end().does_not_say(\"no heartbeat\"); }"), 0);
    assert_eq!(of("fn t() { end().does_not_say(\"nothing heard\"); }"), 1);
    assert_eq!(of("fn t() { sh(\"echo nothing heard\").does_not_say(\n \"nothing heard\"); }"), 0);
}
