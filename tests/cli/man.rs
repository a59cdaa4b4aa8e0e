//! Manual pages contain every option of `--help`.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::proof::has;

const REMUDA: &str = env!("CARGO_BIN_EXE_remuda");

#[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
fn remuda(words: &[&str]) -> String {
    let output = Command::new(REMUDA).args(words).output().expect("remuda starts");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Long options at the start of a line or after a short option: those that the text defines.
fn longs(help: &str) -> BTreeSet<String> {
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let words = lines.flat_map(|line| line.split([' ', ',', '=', '[', ']']));
    words.filter(|word| word.starts_with("--") && 2 < word.len()).map(str::to_owned).collect()
}

const COMMANDS: [&[&str]; 26] = [
    &["run"],
    &["sbatch"],
    &["torchrun"],
    &["torch.distributed.launch"],
    &["accelerate"],
    &["accelerate", "launch"],
    &["pod"],
    &["k8s", "manifest"],
    &["k8s", "containerfile"],
    &["launch"],
    &["train"],
    &["tokenize"],
    &["sample"],
    &["bench"],
    &["ssh"],
    &["hostfile", "check"],
    &["hostfile", "fmt"],
    &["hostfile", "convert"],
    &["hostfile", "show"],
    &["hostfile", "diff"],
    &["config", "check"],
    &["doctor"],
    &["explain"],
    &["links"],
    &["completion"],
    &["man"],
];

#[test]
fn pages_contain_every_option() {
    for command in COMMANDS {
        let help = remuda(&[command, &["--help"]].concat());
        // Hyphens are escaped, so that no line is broken there.
        let page = remuda(&[&["man"], command].concat()).replace("\\-", "-");
        let options = longs(&help);
        assert!(!options.is_empty(), "{command:?}: {help}");
        for option in options {
            assert!(page.contains(&option), "no `{option}` in the page of {command:?}");
        }
        let title = format!(".TH remuda-{} 1", command.join("-"));
        assert!(page.contains(&title), "no `{title}` in {page}");
    }
}

#[test]
fn first_page_names_every_command() {
    let page = remuda(&["man"]);
    for command in ["run", "train", "hostfile", "doctor", "explain", "completion"] {
        assert!(page.contains(&format!("remuda\\-{command}")), "no `{command}` in {page}");
    }
    let (_, examples) = page.split_once(".SH EXAMPLES").expect("examples");
    assert!(examples.contains("remuda run \\-n 4 train.py"), "{examples}");
    assert!(!examples.contains("remuda \\-"), "{examples}");
}

#[test]
fn page_has_the_usage_and_a_footer() {
    for (command, usage) in [
        (&["run"][..], "remuda run\\fR [OPTIONS] <SCRIPT>..."),
        (&["hostfile", "check"], "remuda hostfile check\\fR [OPTIONS] <FILE>..."),
        (&["explain"], "remuda explain\\fR [OPTIONS] [CODE]..."),
    ] {
        let page = remuda(&[&["man"], command].concat());
        assert!(page.contains(usage), "no `{usage}` in {page}");
        let foot = concat!("\"remuda ", env!("CARGO_PKG_VERSION"), "\" \"Manual of remuda\"");
        let title = page.lines().find(|line| line.starts_with(".TH")).expect("a title");
        assert!(title.contains(foot), "{title}");
    }
}

/// The sections of man-pages(7) that pages have, in its order.
const SECTIONS: [&str; 11] = [
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "COMMANDS",
    "OPTIONS",
    "EXIT STATUS",
    "ENVIRONMENT",
    "FILES",
    "NOTES",
    "EXAMPLES",
    "SEE ALSO",
];

#[test]
fn sections_have_the_usual_names_and_order() {
    for command in COMMANDS {
        let page = remuda(&[&["man"], command].concat());
        let titles = page.lines().filter_map(|line| line.strip_prefix(".SH "));
        let titles: Vec<&str> = titles.map(|title| title.trim_matches('"')).collect();
        let usual = SECTIONS.iter().copied().filter(|title| titles.contains(title));
        assert_eq!(titles, usual.collect::<Vec<_>>(), "{command:?}");
        for needed in ["NAME", "SYNOPSIS", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "SEE ALSO"] {
            assert!(titles.contains(&needed), "{command:?} has no {needed}");
        }
        let name = page.lines().skip_while(|line| *line != ".SH NAME").nth(1).expect("a name");
        assert!(!name.contains(". ") && !name.ends_with('.'), "{name}");
        // The definition of a quote is in front of the title only.
        assert_eq!(page.matches(".ds Aq").count(), 2, "{command:?}");
    }
}

#[test]
fn page_of_run_names_environment_variables() {
    for command in ["run", "pod"] {
        let page = remuda(&["man", command]);
        let section = page.split(".SH ENVIRONMENT").nth(1).expect("a section");
        for name in ["REMUDA_LOG", "REMUDA_RUN_DIR", "REMUDA_STREAMS", "REMUDA_NCCL_LIBRARY"] {
            assert!(section.contains(name), "no `{name}` in the page of {command}: {section}");
        }
        assert!(section.contains(".SH EXAMPLES"), "{section}");
    }
    let page = remuda(&["man", "explain"]);
    assert!(page.contains("NO_COLOR") && !page.contains("REMUDA_STREAMS"), "{page}");
}

#[test]
fn groff_renders_pages_without_warnings() {
    if !has("groff", "groff_renders_pages_without_warnings") {
        return;
    }
    for command in COMMANDS.into_iter().chain([&[][..]]) {
        // groff is not given an encoding: pages must be ASCII.
        #[expect(clippy::disallowed_methods, reason = "the reader of manuals")]
        let started = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut groff = started.expect("groff starts");
        let page = remuda(&[&["man"], command].concat());
        groff.stdin.take().expect("a pipe").write_all(page.as_bytes()).expect("it reads");
        let output = groff.wait_with_output().expect("it ends");
        assert!(output.status.success(), "for {command:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "for {command:?}");
        let name = [&["remuda"], command].concat().join("-");
        assert!(String::from_utf8_lossy(&output.stdout).contains(&name), "for {command:?}");
    }
}

#[test]
fn unknown_command_has_no_page() {
    #[expect(clippy::disallowed_methods, reason = "as above")]
    let refused = Command::new(REMUDA).args(["man", "hostfile", "chek"]).output().expect("starts");
    assert_eq!(refused.status.code(), Some(2));
    let screen = String::from_utf8(refused.stderr).expect("text");
    assert!(
        screen.contains("there is no command `chek`") && screen.contains("`check`"),
        "{screen}"
    );
}
