//! Precedence: the line, a variable, the profile, the defaults of the working directory's file, the user's file.

use super::Place;

const LOCAL: &str = "\
grace = \"2s\"
lease = \"2m\"
timeout = \"2h\"
env = [\"A=local\", \"B=local\", \"C=local\"]

[profile.p]
lease = \"3m\"
timeout = \"3h\"
env = [\"B=profile\", \"C=profile\"]
quiet = false
";

const USER: &str = "\
max_restarts = 1
grace = \"1s\"
lease = \"1m\"
quiet = true
env = [\"A=user\", \"D=user\"]

[profile.p]
timeout = \"1h\"
ssh_kex = \"fast\"
";

const USER_FILE: &str = "DIR/home/.config/remuda/remuda.toml";

fn place(name: &str) -> Place {
    Place::new(name).local(LOCAL).user(USER)
}

#[track_caller]
fn check(place: &Place, line: &str, expect: &[&str]) {
    let expect: Vec<String> = expect.iter().map(|line| line.replace("USER", USER_FILE)).collect();
    assert_eq!(place.options(line), expect, "for `{line}`");
}

#[test]
fn file_of_the_working_directory_precedes_that_of_the_user() {
    check(
        &place("defaults"),
        "remuda run --dry-run train.py",
        &[
            "remuda.toml:3 --timeout 2h",
            "remuda.toml:1 --grace 2s",
            "USER:1 --max_restarts 1",
            "remuda.toml:2 --lease 2m",
            "USER:5 --env D=user",
            "remuda.toml:4 --env A=local",
            "remuda.toml:4 --env B=local",
            "remuda.toml:4 --env C=local",
            "USER:4 --quiet",
        ],
    );
}

#[test]
fn profile_precedes_defaults_and_variables_precede_both() {
    check(
        &place("layers"),
        "REMUDA_PROFILE=p REMUDA_TIMEOUT=4h REMUDA_ENV=C=variable remuda run --grace 5s --env D=typed --dry-run train.py",
        &[
            "USER:9 --ssh_kex fast",
            "REMUDA_TIMEOUT --timeout 4h",
            "USER:1 --max_restarts 1",
            "remuda.toml:7 --lease 3m",
            "remuda.toml:4 --env A=local",
            "remuda.toml:9 --env B=profile",
            "REMUDA_ENV --env C=variable",
        ],
    );
}

#[test]
fn typed_options_precede_all_others() {
    let line = "REMUDA_LEASE=4m remuda run --profile p --lease 5m --timeout=5h --grace 5s --max-restarts 0 \
                --ssh-kex user --env A= --env B= --env C= --env D= --dry-run train.py";
    check(&place("typed"), line, &[]);
}

#[test]
fn variable_can_switch_an_option_off() {
    let place = place("switches");
    let options = place.options("REMUDA_QUIET=0 remuda run --dry-run train.py");
    assert!(!options.iter().any(|option| option.contains("--quiet")), "{options:?}");
}

#[test]
fn files_can_be_ignored() {
    let place = place("ignored");
    for line in [
        "REMUDA_TIMEOUT=1h remuda run --no_settings --dry-run train.py",
        "REMUDA_TIMEOUT=1h REMUDA_NO_SETTINGS=1 remuda run --dry-run train.py",
        "REMUDA_TIMEOUT=1h REMUDA_PROFILE=p remuda run --no-settings --dry-run train.py",
    ] {
        check(&place, line, &["REMUDA_TIMEOUT --timeout 1h"]);
    }
}

#[test]
fn variables_of_pods_and_run_directories_keep_their_meaning() {
    let place = Place::new("pods");
    let line = "REMUDA_RUN_DIR=runs REMUDA_NODES=2 REMUDA_KEY_FILE=key REMUDA_JOB_ID=j REMUDA_NODE_RANK=1 \
                REMUDA_LOG=off remuda run --dry-run train.py";
    check(&place, line, &[]);
}

#[test]
fn variable_of_the_configuration_directory_is_read() {
    let place = Place::new("xdg");
    std::fs::create_dir_all(place.0.join("conf/remuda")).expect("a directory");
    place.write("conf/remuda/remuda.toml", "grace = \"7s\"\nssh_config = \"~/ssh\"\n");
    let line = format!("XDG_CONFIG_HOME={}/conf remuda run --dry-run train.py", place.0.display());
    let file = "DIR/conf/remuda/remuda.toml";
    let expect = [format!("{file}:2 --ssh_config DIR/home/ssh"), format!("{file}:1 --grace 7s")];
    assert_eq!(place.options(&line), expect);
    let relative = "XDG_CONFIG_HOME=conf remuda run --dry-run train.py";
    assert_eq!(place.options(relative), [""; 0]);
}

#[test]
fn sources_are_in_both_forms_of_a_dry_run() {
    let place = Place::new("dry_run")
        .local("hostfile = \"hosts\"\nlauncher = \"local\"\nenv = [\"A=1\", \"API_KEY=secret\"]\n");
    let output = place.run("remuda run --dry-run train.py");
    let shown = String::from_utf8(output.stdout).expect("text");
    assert!(shown.contains("\n  remuda.toml:3  A=1\n"), "{shown}");
    assert!(shown.contains("\n  remuda.toml:3  --env 'API_KEY=***'\n"), "{shown}");
    assert!(!shown.contains("secret"), "{shown}");
    let shown = place.run("REMUDA_GRACE=2s remuda run --dry-run train.py").stdout;
    let shown = String::from_utf8(shown).expect("text");
    assert!(
        shown.contains("\n  REMUDA_GRACE   --grace 2s\n  remuda.toml:3  --env A=1\n"),
        "{shown}"
    );
    let output = place.run("REMUDA_MAX_RESTARTS=2 remuda run --dry-run --json train.py");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(document["origins"]["A"], "remuda.toml:3");
    let options = &document["settings"]["options"];
    assert_eq!(options[0]["option"], "hostfile");
    assert_eq!(
        (&options[0]["value"], &options[0]["origin"]),
        (&"hosts".into(), &"remuda.toml:1".into())
    );
    assert!(
        options
            .as_array()
            .expect("options")
            .iter()
            .any(|one| one["origin"] == "REMUDA_MAX_RESTARTS")
    );
    let shown = place.run("remuda run --dry-run --show_env train.py").stdout;
    assert!(String::from_utf8_lossy(&shown).contains("API_KEY=secret"));
}

#[test]
fn first_screen_names_the_file_and_the_profile() {
    let local = "num_gpus = 1\n[profile.p]\nenv = [\"A=1\"]\n";
    let place = Place::new("first_screen").local(local).user("grace = \"1s\"\n");
    for (line, expect) in [
        ("remuda run train.py", Some("  Settings  ./remuda.toml\n")),
        ("remuda run --profile p train.py", Some("  Settings  ./remuda.toml (profile p)\n")),
        ("remuda run --no_settings -n 1 train.py", None),
        ("remuda run --quiet train.py", None),
    ] {
        let output = place.run(line);
        let screen = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.success(), "{line}: {screen}");
        match expect {
            Some(first) => assert!(screen.starts_with(first), "{line}: {screen}"),
            None => assert!(!screen.contains("remuda.toml"), "{line}: {screen}"),
        }
    }
}

#[test]
fn commands_without_a_job_name_the_file_too() {
    let place = Place::new("no_job").local("ssh_port = 22\n");
    for line in [
        "remuda ssh -H localhost --launcher local -- true",
        "remuda ssh --quiet -H localhost --launcher local -- true",
        "remuda doctor -H localhost --launcher local --quick",
    ] {
        let screen = String::from_utf8(place.run(line).stderr).expect("text");
        let is_named = screen.contains("  Settings  ./remuda.toml\n");
        assert_eq!(is_named, !line.contains("--quiet"), "{line}: {screen}");
    }
}

#[test]
fn colours_of_the_line_and_of_the_file_are_used() {
    let place = Place::new("colours").local("launcer = \"local\"\n");
    let is_coloured = |place: &Place, line: &str| place.run(line).stderr.contains(&0x1b);
    assert!(is_coloured(&place, "remuda run --color always train.py"));
    assert!(!is_coloured(&place, "remuda run train.py"));
    let place = place.local("color = \"always\"\nhostfile = \"none\"\n");
    assert!(is_coloured(&place, "remuda run train.py"));
    assert!(!is_coloured(&place, "remuda run --color never train.py"));
}

#[test]
fn options_of_other_commands_are_ignored() {
    let place = Place::new("other_commands")
        .local("partition = \"gpu\"\nmax_restarts = 2\niters = 3\nno_gather = true\n");
    assert_eq!(place.options("remuda run --dry-run train.py"), ["remuda.toml:2 --max_restarts 2"]);
    let output = place.run("remuda ssh -- echo here");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "localhost: here\n", "{output:?}");
}

#[test]
fn batch_job_has_the_profile_of_its_line() {
    let place = Place::new("sbatch").local("[profile.p]\npartition = \"gpu\"\nmodule = true\n");
    let output = place.run("remuda sbatch --profile p --print json.tool");
    let script = String::from_utf8(output.stdout).expect("text");
    assert!(script.contains("#SBATCH --partition=gpu\n"), "{script}");
    assert!(script.contains("remuda run --profile=p json.tool\n"), "{script}");
}
