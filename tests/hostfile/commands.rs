//! The commands of `remuda hostfile`, with their complete output.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use remuda::base::Status;
use serde_json::Value;

use crate::hostfile::{hostfile, scratch, word, write};

/// Runs a command and compares its standard output, standard error and status.
#[track_caller]
fn check(words: &[&str], stdout: &str, stderr: &str, status: u8) {
    let outcome = hostfile(words);
    assert_eq!(outcome.stdout, stdout, "for {words:?}: {}", outcome.stderr);
    assert_eq!(outcome.stderr, stderr, "for {words:?}");
    assert_eq!(outcome.status.code(), status, "for {words:?}");
}

fn file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    write(&path, text);
    path
}

#[test]
fn check_reads_all_files_and_returns_worst_status() {
    let directory = scratch("command");
    let good = file(&directory, "good", "worker-0 slots=4\n");
    let bad = file(&directory, "bad", "worker-0 slots=0\n");
    let missing = directory.join("missing");

    check(&["check", word(&good)], &format!("{}: 1 host, 4 slots\n", good.display()), "", 0);

    let outcome = hostfile(&["check", word(&bad), word(&good)]);
    assert!(outcome.stdout.contains(": 1 error\n"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("1 host, 4 slots"), "{}", outcome.stdout);
    assert_eq!(outcome.status, Status::Findings);

    let outcome = hostfile(&["check", word(&missing), word(&bad)]);
    assert!(outcome.stderr.contains("does not exist"), "{}", outcome.stderr);
    // The arrow is in the column that it has above a line; a count would say nothing new.
    assert!(outcome.stderr.contains(&format!("\n --> {}\n", missing.display())));
    assert!(!outcome.stderr.contains("0 warnings"), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("error[H004]"), "{}", outcome.stdout);
    assert_eq!(outcome.status.code(), 2);
}

#[test]
fn empty_set_and_missing_file_are_reported() {
    check(
        &["show", "hsts & w[0-1]"],
        "\n0 hosts\n",
        "warning: the set contains no host\n\
         note: `hsts` is read as a host: no such file exists\n",
        1,
    );
}

#[test]
fn check_shows_selected_world() {
    let directory = scratch("selection");
    let hosts = file(&directory, "hosts", "w0 slots=4\nw1 slots=4\n");
    let name = hosts.display();
    check(
        &["check", word(&hosts), "--include", "w0:0,1,3@w1"],
        &format!(
            "{name}: 2 hosts, 8 slots\n\n\
             node  host  ranks  slots\n\
             0     w0    0-2    0-1,3\n\
             1     w1    3-6    0-3\n\n\
             world size 7\n"
        ),
        "",
        0,
    );
    let outcome = hostfile(&["check", word(&hosts), "--exclude", "w9"]);
    assert!(outcome.stdout.contains("error[S001]"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("--exclude:1:1"), "{}", outcome.stdout);
    assert_eq!(outcome.status.code(), 1);
    let outcome = hostfile(&["check", word(&hosts), "--include", "w0", "--exclude", "w1"]);
    assert!(outcome.stdout.contains("error[S006]"), "{}", outcome.stdout);
    let outcome = hostfile(&["check", word(&hosts), "--num_gpus", "8"]);
    assert!(outcome.stdout.contains("error[S010]"), "{}", outcome.stdout);
}

#[test]
fn allow_suppresses_warnings_only() {
    let directory = scratch("allow");
    let hosts = file(&directory, "hosts", "gpu_1 slots=4\ngpu_2 slots=2\n");
    assert_eq!(hostfile(&["check", word(&hosts)]).status.code(), 1);
    check(
        &["check", word(&hosts), "--allow", "H039,h040"],
        &format!("{}: 2 hosts, 6 slots\n", hosts.display()),
        "",
        0,
    );
    let bad = file(&directory, "bad", "gpu slots=0\n");
    assert_eq!(hostfile(&["check", word(&bad), "--allow", "H004"]).status.code(), 1);
}

#[test]
fn fix_is_atomic_and_keeps_other_content() {
    let directory = scratch("fix");
    let hosts = file(&directory, "hosts", "# rack 1\nw0 slots = 4 # fast\n\nw1 lots=4\nw2:4\n");
    fs::set_permissions(&hosts, fs::Permissions::from_mode(0o640)).expect("the test owns the file");
    let link = directory.join("link");
    std::os::unix::fs::symlink("hosts", &link).expect("a link");
    let shown = link.display();
    check(
        &["check", "--fix", word(&link)],
        &format!("{shown}: 3 hosts, 12 slots\n"),
        &format!("note: {shown}: 3 changes made, on lines 2, 4-5\n"),
        0,
    );
    let text = fs::read_to_string(&hosts).expect("the file exists");
    assert_eq!(text, "# rack 1\nw0 slots=4 # fast\n\nw1 slots=4\nw2 slots=4\n");
    assert_eq!(fs::metadata(&hosts).expect("the file exists").mode() & 0o777, 0o640);
    assert!(fs::symlink_metadata(&link).expect("the file exists").is_symlink());
    check(&["check", "--fix", word(&link)], &format!("{shown}: 3 hosts, 12 slots\n"), "", 0);
    let left = fs::read_dir(&directory).expect("the file exists").count();
    assert_eq!(left, 2, "the temporary file is removed");
}

#[test]
fn fix_skips_uncertain_suggestions() {
    let directory = scratch("guess");
    let text = "w0 slots=4x\nw1 slots=4\nw1 slots=4\nw2:22 slots=1\n";
    let hosts = file(&directory, "hosts", text);
    let outcome = hostfile(&["check", "--fix", word(&hosts)]);
    assert_eq!(outcome.status.code(), 1);
    let shown = hosts.display();
    let note = "--fix changed nothing: no correction is certain; edit the file";
    assert_eq!(outcome.stderr, format!("note: {shown}: {note}\n"));
    assert_eq!(fs::read_to_string(&hosts).expect("the file exists"), text);
}

#[test]
fn findings_have_machine_readable_formats() {
    let directory = scratch("formats");
    let hosts = file(&directory, "h,osts", "w\u{e4} slots=1\nw0 slots=2\nw1 lots=8\n");
    let bad = word(&hosts);
    let outcome = hostfile(&["check", "--format", "json", bad]);
    assert_eq!(outcome.status.code(), 1);
    let found: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(found["version"], 1);
    let expect = serde_json::json!({
        "code": "H001", "severity": "error", "file": bad, "line": 3, "column": 4, "end_column": 8,
        "message": "unknown key `lots`", "help": "did you mean `slots`?",
        "suggestion": {"line": 3, "column": 4, "end_column": 9, "replacement": "slots=", "certain": true},
    });
    assert_eq!(found["diagnostics"][1], expect);
    assert_eq!(found["diagnostics"][0]["column"], 2);
    assert_eq!(found["hosts"], serde_json::json!([{"file": bad, "name": "w0", "slots": 2}]));

    let outcome = hostfile(&["check", "--format", "github", bad]);
    let line = outcome.stdout.lines().nth(1).expect("two findings");
    let shown = bad.replace(',', "%2C");
    assert_eq!(
        line,
        format!(
            "::error file={shown},line=3,col=4,endColumn=8,title=H001::unknown key `lots`\
             %0Ahelp: did you mean `slots`?"
        )
    );

    let outcome = hostfile(&["check", "--format", "sarif", bad]);
    let found: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let result = &found["runs"][0]["results"][1];
    assert_eq!((&result["ruleId"], &result["level"]), (&"H001".into(), &"error".into()));
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["region"]["startColumn"], 4);
    assert!(place["artifactLocation"]["uri"].as_str().expect("a URI").ends_with("/h%2Costs"));
    let change = &result["fixes"][0]["artifactChanges"][0]["replacements"][0];
    assert_eq!(change["insertedContent"]["text"], "slots=");

    let missing = directory.join("missing");
    let outcome = hostfile(&["check", "--format", "json", word(&missing), bad]);
    let found: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(found["diagnostics"][0]["code"], "H010");
    assert_eq!(found["diagnostics"][0]["line"], Value::Null);
    assert_eq!(outcome.status.code(), 2);
}

#[test]
fn sarif_rule_has_descriptions_and_help() {
    let directory = scratch("sarif");
    let hosts = file(&directory, "hosts", "w0 slots=2\nw1 lots=8\nw_2 slots=x\n");
    let outcome = hostfile(&["check", "--format", "sarif", word(&hosts)]);
    let found: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let rules = found["runs"][0]["tool"]["driver"]["rules"].as_array().expect("rules").clone();
    let ids: Vec<&str> = rules.iter().filter_map(|rule| rule["id"].as_str()).collect();
    assert_eq!(ids, ["H001", "H004"]);
    for rule in &rules {
        let code = rule["id"].as_str().expect("a code");
        let mut stories = remuda::pool::codes::EXPLANATIONS.into_iter().flatten();
        let story = stories.find(|story| story.code == code).expect("a code of hostfiles");
        assert_eq!(rule["shortDescription"]["text"], story.title);
        assert_eq!(rule["help"]["text"], story.text);
        let text = |name: &str, kind: &str| rule[name][kind].as_str().expect("a text").to_owned();
        assert!(story.text.starts_with(&text("fullDescription", "text")), "{rule}");
        assert!(text("help", "markdown").starts_with(&format!("**{}**", story.title)), "{rule}");
    }
}

#[test]
fn list_of_hosts_replaces_file() {
    let directory = scratch("lists");
    let hosts = file(&directory, "hosts", "n1 slots=2\nn2 slots=2\n");
    let world = "node  host  ranks  slots\n0     n1    0-1    0-1\n1     n2    2-3    0-1\n\nworld size 4\n";
    for list in ["n1:2,n2:2", "n[1-2]:2"] {
        check(&["show", list], world, "", 0);
        check(&["check", list], "list: 2 hosts, 4 slots\n", "", 0);
        check(&["convert", "--to", "deepspeed", list], "n1 slots=2\nn2 slots=2\n", "", 0);
        check(&["diff", word(&hosts), list], "", "", 0);
    }
    check(&["show", "n1:2", "n2:2"], world, "", 0);
    let rest = "node  host  ranks  slots\n0     n1    0-1    0-1\n\nworld size 2\n";
    check(&["show", "n1:2,n2:2 ! n2"], rest, "", 0);
    let note = "note: slots are not shown: `n1` has none; write `n1:N`, or add `--slots N`\n";
    check(&["show", "n1,n2:2"], "n[1-2]\n2 hosts\n", note, 0);
    check(&["show", "--slots", "2", "n1,n2:2"], world, "", 0);
    check(&["diff", "n1:2,n2:2", "n1:4,n2:2"], "~ n1 slots=2 -> slots=4\n", "", 1);
    check(&["check", "--slots", "2", "n1,n2"], "list: 2 hosts, 4 slots\n", "", 0);
    let outcome = hostfile(&["check", "n1,n2"]);
    assert!(outcome.stdout.contains("`n1:N,n2:N`, or add `--slots N`"), "{}", outcome.stdout);
    // An existing file of that name takes precedence.
    let named = file(&directory, "m1:2", "other slots=1\n");
    let shown = named.display();
    check(&["check", word(&named)], &format!("{shown}: 1 host, 1 slot\n"), "", 0);
}

#[test]
fn fmt_writes_canonical_form() {
    let directory = scratch("fmt");
    let hosts = file(&directory, "hosts", "\n# rack 1\n w0\tslots=04 # fast\n");
    let formatted = "# rack 1\nw0 slots=4  # fast\n";
    check(&["fmt", word(&hosts)], formatted, "", 0);
    check(&["fmt", "--check", word(&hosts)], &format!("{}\n", hosts.display()), "", 1);
    check(&["fmt", "-w", word(&hosts)], "", "", 0);
    assert_eq!(fs::read_to_string(&hosts).expect("the file exists"), formatted);
    check(&["fmt", "--check", word(&hosts)], "", "", 0);
    let bad = file(&directory, "bad", "w0 slots=0\n");
    let outcome = hostfile(&["fmt", "-w", word(&bad)]);
    assert!(outcome.stderr.contains("error[H004]"), "{}", outcome.stderr);
    assert_eq!((outcome.status.code(), outcome.stdout), (1, String::new()));
}

#[test]
fn convert_writes_every_dialect_and_reports_losses() {
    let directory = scratch("convert");
    let text = "# rack 1\nn01 slots=2 max_slots=4\nn02 slots=2\nlogin slots=1\n";
    let hosts = file(&directory, "hosts", text);
    let kept = "note: 1 comment not taken over\n";
    let lost = "note: 1 comment not taken over\nnote: `max_slots` of 1 host not taken over\n";
    let to = |dialect: &str, expect: &str| {
        check(&["convert", "--to", dialect, word(&hosts)], expect, lost, 0);
    };
    to("deepspeed", "n01 slots=2\nn02 slots=2\nlogin slots=1\n");
    let same = "n01 slots=2 max_slots=4\nn02 slots=2\nlogin slots=1\n";
    check(&["convert", "--to", "openmpi", word(&hosts)], same, kept, 0);
    to("mpich", "n01:2\nn02:2\nlogin:1\n");
    to("slurm", "SLURM_JOB_NODELIST=n[01-02],login\nSLURM_TASKS_PER_NODE=2(x2),1\n");
    to("pbs", "n01\nn01\nn02\nn02\nlogin\n");
    to("lsf", "n01 2\nn02 2\nlogin 1\n");
    to(
        "sge",
        "n01 2 all.q@n01 UNDEFINED\nn02 2 all.q@n02 UNDEFINED\nlogin 1 all.q@login UNDEFINED\n",
    );
    to("horovod", "n01:2,n02:2,login:1\n");
    to("ranges", "n[01-02] slots=2\nlogin slots=1\n");
    let lost = format!("{lost}note: a list of names has no slots\n");
    check(&["convert", "--to", "nodeset", word(&hosts)], "n[01-02],login\n", &lost, 0);
    let outcome = hostfile(&["convert", "--to", "json", word(&hosts)]);
    let found: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(found["world_size"], 5);
    assert_eq!(
        found["hosts"][2],
        serde_json::json!(
            {"name": "login", "node_rank": 2, "slots": [0], "first_rank": 4}
        )
    );
    // A list of names becomes a hostfile.
    let names = file(&directory, "names", "n1\nn2\n");
    check(
        &["convert", "--to", "deepspeed", "--slots", "8", word(&names)],
        "n1 slots=8\nn2 slots=8\n",
        "",
        0,
    );
}

#[test]
fn sets_keep_slots_and_order() {
    let directory = scratch("show");
    let hosts = file(&directory, "hosts", "rack2 slots=2\nrack1 slots=4\nlogin slots=1\n");
    let hosts = word(&hosts);
    check(
        &["show", &format!("{hosts} & rack[1-3]")],
        "node  host   ranks  slots\n\
         0     rack2  0-1    0-1\n\
         1     rack1  2-5    0-3\n\n\
         world size 6\n",
        "",
        0,
    );
    check(&["show", "--names", hosts, "!", "login"], "rack2\nrack1\n", "", 0);
    check(&["show", "n[1-3]"], "n[1-3]\n3 hosts\n", "", 0);
    check(&["show", "--names", "n[1-9] ! n[2-8]"], "n1\nn9\n", "", 0);
    check(
        &["show", "n[1-2]", "--slots", "2", "--num_nodes", "1"],
        "node  host  ranks  slots\n0     n1    0-1    0-1\n\nworld size 2\n",
        "",
        0,
    );
    let outcome = hostfile(&["show", "--json", "n[1-2]"]);
    let found: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(found["hosts"][1], serde_json::json!({"name": "n2", "node_rank": 1}));
    // A single name is a mistyped file.
    let outcome = hostfile(&["show", "hsots"]);
    for part in ["hostfile `hsots` does not exist", "or write a set: `alpha,beta`"] {
        assert!(outcome.stderr.contains(part), "{}", outcome.stderr);
    }
    assert_eq!(outcome.status.code(), 2);
    let outcome = hostfile(&["show", "./hsots"]);
    assert!(outcome.stderr.contains("help: correct the path; `-` is"), "{}", outcome.stderr);
    let outcome = hostfile(&["show", "n[1-3] & n[3-"]);
    assert!(outcome.stderr.contains("error[H029]"), "{}", outcome.stderr);
    let outcome = hostfile(&["show", "n[1-3] &"]);
    assert!(outcome.stderr.contains("error[H042]"), "{}", outcome.stderr);
    assert_eq!(outcome.status.code(), 2);
    let outcome = hostfile(&["show", "n[1-3] - n2"]);
    let screen = "\
error[H042]: `-` is not an operator
 --> command line:1:30
  |
1 | remuda hostfile show 'n[1-3] - n2'
  |                              ^ standard input, which must follow an operator
  |
help: the difference of two sets is `hosts ! rack[1-3]`
";
    assert_eq!((outcome.stderr.as_str(), outcome.status.code()), (screen, 2));
}

#[test]
fn sets_accept_names_and_warn_about_unused_operand() {
    let directory = scratch("names");
    let hosts = file(&directory, "hosts", "a slots=2\nb slots=2\nc slots=2\n");
    let sick = file(&directory, "sick", "b\nz\n");
    let (hosts, sick) = (word(&hosts), word(&sick));
    check(&["show", "--names", &format!("{hosts} ! {sick}")], "a\nc\n", "", 0);
    check(&["show", "--names", &format!("{sick} & {hosts}")], "b\n", "", 0);
    check(&["show", "--names", sick], "b\nz\n", "", 0);
    let outcome = hostfile(&["show", "--names", &format!("{hosts} ! sikc")]);
    let note =
        "warning: `sikc` removes nothing: it is neither a file nor a host of the set before it\n";
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("a\nb\nc\n", note));
    assert_eq!(outcome.status.code(), 1);
    let outcome = hostfile(&["show", "--include", "n1", "n[1-3]"]);
    assert!(outcome.stderr.contains("the list has no slots: add `--slots 8`"));
    assert_eq!((outcome.stdout.as_str(), outcome.status.code()), ("", 2));
    let outcome = hostfile(&["show", "--slots", "2", "--num_nodes", "1", "--names", "n[1-3]"]);
    assert_eq!(outcome.stdout, "n1\n", "{}", outcome.stderr);
}

#[test]
fn check_selects_hosts_and_accepts_insecure_files() {
    let directory = scratch("chosen");
    let uneven = file(&directory, "uneven", "a slots=2\nb slots=4\n");
    let uneven = word(&uneven);
    assert_eq!(hostfile(&["check", uneven]).status.code(), 1);
    for chosen in [["--num_gpus", "2"], ["--include", "b"]] {
        let outcome = hostfile(&[&["check", uneven], &chosen[..]].concat());
        assert_eq!(outcome.status.code(), 0, "{}", outcome.stdout);
    }
    let open = file(&directory, "open", "a slots=2\n");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).expect("the test owns the file");
    let open = word(&open);
    assert_eq!(hostfile(&["check", open]).status.code(), 1);
    check(&["check", open, "--allow_insecure_files"], &format!("{open}: 1 host, 2 slots\n"), "", 0);
}

#[test]
fn diff_prints_lines() {
    let directory = scratch("diff");
    let first = file(&directory, "first", "a slots=1\nb slots=1\nc slots=1\nd slots=1\n");
    let second = file(&directory, "second", "a:1\nd:1\nc:2\ne:1\n");
    check(
        &["diff", word(&first), word(&second)],
        "- b slots=1\n~ d node 3 -> node 1\n~ c slots=1 -> slots=2\n~ c node 2 -> node 2\n+ e slots=1\n",
        "",
        1,
    );
    check(&["diff", word(&first), word(&first)], "", "", 0);
    let bad = file(&directory, "bad", "a slots=0\n");
    assert_eq!(hostfile(&["diff", word(&first), word(&bad)]).status.code(), 2);
}
