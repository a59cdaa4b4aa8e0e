//! `remuda config check remuda.toml`, in every format.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::Place;

const FILE: &str = "\
# Every job
ssh_config = \"cluster/ssh\"
env = [\"NCCL_DEBUG=WARN\"]

[profile.cluster]
hostfile = \"hosts\"
force_multi = true
";

#[test]
fn options_of_a_valid_file_are_shown() {
    let place = Place::new("valid").local(FILE);
    let expect = "\
$ remuda config check remuda.toml
remuda.toml: options of remuda, 1 profile

defaults:
  ssh_config  cluster/ssh      line 2  run, train, bench, ssh, doctor
  env         NCCL_DEBUG=WARN  line 3  run, train, bench, ssh

profile cluster:
  hostfile     hosts  line 6  run, train, bench, ssh, doctor
  force_multi  true   line 7  run, train, bench, ssh, doctor

remuda.toml: no errors, no warnings
[0]

";
    assert_eq!(place.screen("remuda config check remuda.toml"), expect);
}

#[test]
fn findings_of_settings_have_every_format() {
    let place = Place::new("formats").local("launcer = \"local\"\n");
    let output = place.run("remuda config check --json remuda.toml");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = &document["diagnostics"][0];
    assert_eq!(
        (&found["code"], &found["line"], &found["column"]),
        (&"O002".into(), &1.into(), &1.into())
    );
    assert_eq!(found["help"], "did you mean `launcher`?");
    assert_eq!(output.status.code(), Some(1));
    let output = place.run("remuda config check --format sarif remuda.toml");
    let sarif: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let run = &sarif["runs"][0];
    assert_eq!(run["results"][0]["ruleId"], "O002");
    assert!(run["tool"]["driver"]["rules"][0]["shortDescription"]["text"].is_string(), "{run}");
    let output = place.run("remuda config check --format github remuda.toml");
    let lines = String::from_utf8(output.stdout).expect("text");
    assert!(lines.starts_with("::error file=remuda.toml,line=1,"), "{lines}");
    let valid = place.local("launcher = \"local\"\n").run("remuda config check --json remuda.toml");
    let document: Value = serde_json::from_slice(&valid.stdout).expect("JSON");
    assert_eq!(
        (&document["diagnostics"], valid.status.code()),
        (&Value::Array(Vec::new()), Some(0))
    );
}

#[test]
fn check_reports_what_commands_refuse() {
    let place = Place::new("check_trust").local(FILE);
    let path = place.0.join("remuda.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("own file");
    let screen = place.screen("remuda config check remuda.toml");
    assert!(
        screen.contains("error[O007]: every user can write") && screen.ends_with("[1]\n\n"),
        "{screen}"
    );
    fs::write(&path, b"\xff").expect("written");
    assert!(place.screen("remuda config check remuda.toml").ends_with("[2]\n\n"));
    assert!(place.screen("remuda config check none.toml").contains("does not exist"));
}
