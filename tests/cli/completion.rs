//! Completion in the shells themselves, as far as they can be driven without a keyboard.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

const REMUDA: &str = env!("CARGO_BIN_EXE_remuda");

#[expect(clippy::disallowed_methods, reason = "these tests start the real program and real shells")]
fn output(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().expect("it starts");
    assert!(output.status.success(), "{program} {words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The script for a shell, in a file.
fn script(shell: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("completion");
    fs::create_dir_all(&dir).expect("a directory");
    let file = dir.join(format!("{shell}-{}", std::process::id()));
    fs::write(&file, output(REMUDA, &["completion", shell])).expect("a file");
    file
}

#[expect(clippy::disallowed_methods, reason = "as above")]
fn is_there(shell: &str) -> bool {
    Command::new(shell).args(["-c", "exit 0"]).output().is_ok_and(|output| output.status.success())
}

/// What bash would offer behind a line, the last word of which is being typed.
#[track_caller]
fn bash(line: &[&str], expect: &[&str]) {
    let file = script("bash");
    let words = line.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let (last, before) = (line[line.len() - 1], line[line.len() - 2]);
    let text = format!(
        "source {}; COMP_WORDS=({words}); COMP_CWORD={}; _remuda remuda '{last}' '{before}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        file.display(),
        line.len() - 1
    );
    let offered = output("bash", &["-c", &text]);
    let offered: Vec<&str> = offered.lines().collect();
    for word in expect {
        assert!(offered.contains(word), "no `{word}` behind {line:?}: {offered:?}");
    }
}

#[test]
fn bash_offers_commands_options_and_values() {
    bash(&["remuda", ""], &["run", "train", "hostfile", "doctor", "completion", "man"]);
    bash(&["remuda", "run", "--num_"], &["--num_gpus", "--num_nodes"]);
    bash(&["remuda", "run", "--mas"], &["--master_addr", "--master_port"]);
    bash(&["remuda", "hostfile", ""], &["check", "fmt", "convert", "show", "diff"]);
    bash(&["remuda", "hostfile", "check", "--format", ""], &["human", "json", "sarif", "github"]);
    bash(&["remuda", "doctor", "--go"], &["--good"]);
    bash(&["remuda", "run", "--accelerator", "cu"], &["cuda"]);
}

#[test]
fn fish_offers_commands_and_options() {
    if !is_there("fish") {
        return;
    }
    let file = script("fish");
    let ask = |line: &str| {
        let text = format!("source {}; complete --do-complete '{line}'", file.display());
        output("fish", &["--no-config", "-c", &text])
    };
    let begins =
        |text: &str, word: &str| text.lines().any(|line| line.split('\t').next() == Some(word));
    assert!(begins(&ask("remuda "), "doctor"));
    assert!(begins(&ask("remuda run --num_"), "--num_gpus"));
    assert!(begins(&ask("remuda hostfile check --form"), "--format"));
}

#[test]
fn zsh_takes_the_script() {
    if !is_there("zsh") {
        return;
    }
    let file = script("zsh");
    let text = format!(
        "autoload -Uz compinit && compinit -D -u; source {}; print -r -- ${{_comps[remuda]}}; \
         whence -w _remuda",
        file.display()
    );
    let said = output("zsh", &["-f", "-c", &text]);
    assert_eq!(said, "_remuda\n_remuda: function\n");
    let script = fs::read_to_string(file).expect("written before");
    assert!(script.contains("'--num_gpus=") && script.contains("'--good="), "{script}");
}

#[test]
fn a_shell_that_we_do_not_know_is_refused() {
    #[expect(clippy::disallowed_methods, reason = "as above")]
    let refused = Command::new(REMUDA).args(["completion", "tcsh"]).output().expect("it starts");
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).expect("text");
    assert!(said.contains("tcsh") && said.contains("fish"), "{said}");
}
