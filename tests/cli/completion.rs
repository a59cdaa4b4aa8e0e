//! Completion in real shells, as far as a test can drive them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::proof::has;

const REMUDA: &str = env!("CARGO_BIN_EXE_remuda");

#[expect(clippy::disallowed_methods, reason = "these tests start the real program and real shells")]
fn output(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().expect("it starts");
    assert!(output.status.success(), "{program} {words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The script for a shell, in a file.
fn script(shell: &str) -> PathBuf {
    // Tests that run beside each other have their own.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("completion");
    fs::create_dir_all(&dir).expect("a directory");
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let file = dir.join(format!("{shell}-{}-{number}", std::process::id()));
    fs::write(&file, output(REMUDA, &["completion", shell])).expect("a file");
    file
}

/// Completions of bash for the last word of a line.
fn bash_offers(line: &[&str]) -> Vec<String> {
    let words = line.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let (last, before) = (line[line.len() - 1], line[line.len() - 2]);
    let text = format!(
        "compopt() {{ :; }}; source <('{REMUDA}' completion bash); COMP_WORDS=({words}); COMP_CWORD={}; _remuda remuda '{last}' '{before}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        line.len() - 1
    );
    output("bash", &["-c", &text]).lines().map(str::to_owned).collect()
}

#[track_caller]
fn bash(line: &[&str], expect: &[&str]) {
    let offered = bash_offers(line);
    for word in expect {
        assert!(offered.iter().any(|one| one == word), "no `{word}` after {line:?}: {offered:?}");
    }
}

#[test]
fn bash_offers_commands_options_and_values() {
    bash(&["remuda", ""], &["run", "train", "hostfile", "doctor", "links", "completion", "man"]);
    bash(&["remuda", "run", "--num_"], &["--num_gpus", "--num_nodes"]);
    bash(&["remuda", "run", "--mas"], &["--master_addr", "--master_port"]);
    bash(&["remuda", "hostfile", ""], &["check", "fmt", "convert", "show", "diff"]);
    bash(&["remuda", "hostfile", "check", "--format", ""], &["human", "json", "sarif", "github"]);
    bash(&["remuda", "config", ""], &["check"]);
    bash(&["remuda", "config", "check", "--world"], &["--world_size"]);
    bash(&["remuda", "config", "check", "--format", ""], &["human", "json", "sarif", "github"]);
    bash(&["remuda", "doctor", "--us"], &["--usable"]);
    bash(&["remuda", "run", "--accelerator", "cu"], &["cuda"]);
    bash(&["remuda", "run", "--launcher", ""], &["local", "ssh", "pdsh"]);
    bash(&["remuda", "run", "--torch_b"], &["--torch_backend"]);
    bash(&["remuda", "run", "--torch_backend", ""], &["remuda", "gloo"]);
    bash(&["remuda", "explain", "H00"], &["H003"]);
    bash(&["remuda", "man", ""], &["run", "doctor", "check"]);
    bash(&["remuda", "bench", "all-"], &["all-reduce", "all-gather", "all-to-all"]);
    bash(&["remuda", "bench", "-d", ""], &["float", "bfloat16", "all"]);
    bash(&["remuda", "bench", "--op", "m"], &["min", "max"]);
    bash(&["remuda", "hostfile", "check", "--allow", "H03"], &["H039"]);
}

#[test]
fn refused_options_are_not_offered() {
    for (command, refused) in
        [("doctor", "--share"), ("ssh", "--master_port"), ("run", "--autotuning")]
    {
        let offered = bash_offers(&["remuda", command, "--"]);
        assert!(10 < offered.len(), "{command}: {offered:?}");
        assert!(!offered.iter().any(|one| one == refused), "{command}: {refused}");
    }
    for shell in ["zsh", "fish"] {
        let script = output(REMUDA, &["completion", shell]);
        assert!(!script.contains("autotuning"), "{shell}");
    }
    // Numbers are not completed with files.
    let offered = bash_offers(&["remuda", "run", "--num_nodes", ""]);
    assert!(offered.iter().all(String::is_empty), "{offered:?}");
}

#[test]
fn fish_offers_commands_and_options() {
    if !has("fish", "fish_offers_commands_and_options") {
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
    assert!(begins(&ask("remuda run --launcher "), "pdsh"));
    assert!(begins(&ask("remuda bench -o "), "prod"));
    assert!(begins(&ask("remuda bench -d "), "bfloat16"));
    // Arguments with their descriptions.
    assert!(ask("remuda explain H00").contains("H003\thost is listed twice"));
    assert!(begins(&ask("remuda man "), "hostfile"));
    assert!(begins(&ask("remuda bench "), "all-reduce"));
    assert!(begins(&ask("remuda completion "), "zsh"));
    assert!(!begins(&ask("remuda doctor --sha"), "--share"));
}

#[test]
fn zsh_accepts_the_script() {
    if !has("zsh", "zsh_accepts_the_script") {
        return;
    }
    let file = script("zsh");
    let text = format!(
        "autoload -Uz compinit && compinit -D -u; source {}; print -r -- ${{_comps[remuda]}}; \
         whence -w _remuda",
        file.display()
    );
    let shown = output("zsh", &["-f", "-c", &text]);
    assert_eq!(shown, "_remuda\n_remuda: function\n");
    let script = fs::read_to_string(file).expect("written before");
    for part in [
        "'--num_gpus=",
        "'--usable=",
        ":HOW:(auto local ssh pdsh slurm openmpi mpich impi mvapich pbs lsf flux)'",
        ":OP:(sum prod min max avg all)'",
        ":TYPE:(float double half",
        "H003\\:\"host is listed twice\"",
    ] {
        assert!(script.contains(part), "no `{part}` in {script}");
    }
}

#[test]
fn unknown_shell_is_refused() {
    #[expect(clippy::disallowed_methods, reason = "as above")]
    let refused = Command::new(REMUDA).args(["completion", "tcsh"]).output().expect("it starts");
    assert_eq!(refused.status.code(), Some(2));
    let screen = String::from_utf8(refused.stderr).expect("text");
    assert!(screen.contains("tcsh") && screen.contains("fish"), "{screen}");
}
