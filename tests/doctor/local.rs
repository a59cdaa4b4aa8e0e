//! Hosts that are all this machine (`--launcher local`).

use std::fs;

use crate::doctor::{Doctor, lines_of};
use crate::support::launch::{Launch, REMUDA, command, face};

fn on_hosts(lines: &str) -> (Doctor, Launch) {
    let launch = Launch::new();
    fs::write(launch.dir().join("hostfile"), lines).expect("a hostfile");
    (Doctor::of(launch.dir()).word("--launcher").word("local").word("--quick"), launch)
}

#[test]
fn doctor_exits_with_0_for_healthy_hosts() {
    let (doctor, _launch) = on_hosts("n1 slots=1\nn2 slots=1\n");
    let said = doctor.word("--no_python").run().code(0).says("2 hosts, 2 slots: no problems found");
    said.says("note[D035]: n2 is the same machine as n1").says("n[1-2] (2)");
}

#[test]
fn missing_script_is_one_finding_for_all_hosts() {
    let (doctor, _launch) = on_hosts("n1 slots=1\nn2 slots=1\n");
    let said = doctor.word("nowhere.py").run().code(1);
    let line = "error[D011]: n[1-2] (2) cannot read script `nowhere.py`: no such file or directory";
    said.says(line).says("2 hosts, 2 slots: errors on 2, 0 usable");
}

#[test]
fn usable_hostfile_is_replaced_or_the_doctor_fails() {
    let (doctor, launch) = on_hosts("n1 slots=1\nn2 slots=1\n");
    let good = launch.dir().join("good");
    std::fs::write(&good, "n1 slots=1\n").expect("a file");
    let said = doctor.word("--usable").word(&good.display().to_string()).word("nowhere.py").run();
    let said = said.code(1);
    assert!(said.stderr.contains("0 of 2 hosts\n"), "{}", said.stderr);
    assert_eq!(lines_of(&good), "# no host is usable\n");
    let (doctor, launch) = on_hosts("n1 slots=1\n");
    let nowhere = launch.dir().join("nowhere/good").display().to_string();
    let said = doctor.word("--no_python").word("--usable").word(&nowhere).run().code(2);
    let line = format!("error[M006]: cannot write `{nowhere}`: no such file or directory\n");
    assert!(said.stderr.starts_with(&line), "{}", said.stderr);
    // The error is reported before the examination.
    assert_eq!(said.stdout, "");
}

#[test]
fn doctor_detects_a_hostfile_given_as_script() {
    let (_, launch) = on_hosts("n1 slots=1\n");
    let out = command(REMUDA).args(["doctor", "hostfile"]).current_dir(launch.dir()).output();
    let stderr = String::from_utf8(out.expect("remuda starts").stderr).expect("text");
    assert!(stderr.contains("error[C011]: `hostfile` is a hostfile, not a script\n"), "{stderr}");
    assert!(stderr.ends_with("\nhelp: did you mean `-H hostfile`?\n"), "{stderr}");
}

#[test]
fn host_with_more_workers_than_processors_is_usable() {
    let (doctor, launch) = on_hosts("# the large one\nn1 slots=1000 # really\n");
    let good = launch.dir().join("good");
    // `--good` is the old spelling of `--usable`.
    let said = doctor.word("--no_python").word("--good").word(&good.display().to_string()).run();
    let said = said.code(1).says("warning[D027]: n1: ").says("for 1000 workers");
    assert!(said.stderr.contains("1 of 1 host\n"), "{}", said.stderr);
    assert_eq!(lines_of(&good), "# the large one\nn1 slots=1000 # really\n");
}

#[test]
fn port_in_use_is_an_error_if_it_was_requested() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port();
    let (doctor, _launch) = on_hosts("n1 slots=1\nn2 slots=1\n");
    let doctor = doctor.word("--no_python").word("--master_port").word(&port.to_string());
    let said = doctor.run().code(1);
    said.says(&format!("error[D029]: n1: port {port} of rank 0 is in use"));
}

#[test]
fn doctor_exits_with_2_if_no_host_was_examined() {
    let (doctor, launch) = on_hosts("");
    doctor.run().code(2);
    let nowhere = launch.dir().join("nowhere").display().to_string();
    let (doctor, _launch) = on_hosts("n1 slots=1\n");
    let said = doctor.with("-H", &nowhere).run().code(2);
    assert!(said.stderr.contains("does not exist"), "{}", said.stderr);
    // No host was examined, but the connection errors are reported.
    let (doctor, _launch) = on_hosts("a.invalid slots=1\nb.invalid slots=1\n");
    let said = doctor.with("--launcher", "ssh").word("--ssh_config").word("none");
    said.run().code(2).says("error[D001]: a.invalid,b.invalid (2) cannot be reached");
    let (doctor, _launch) = on_hosts("n1 slots=1\n");
    let said = doctor.word("--no_ssh").run().code(2);
    let expect = "`--no_ssh` does not apply to `remuda doctor`";
    assert!(said.stderr.contains(expect), "{}", said.stderr);
}

#[test]
fn doctor_document_contains_hosts_and_findings() {
    let (doctor, _launch) = on_hosts("n1 slots=1\nn2 slots=1\n");
    let said = doctor.word("--json").word("nowhere.py").run().code(1);
    let document: serde_json::Value = serde_json::from_str(&said.stdout).expect("a document");
    assert_eq!(document["version"], 1);
    assert_eq!(document["usable"], serde_json::json!([]));
    let finding = &document["findings"][0];
    assert_eq!((&finding["code"], &finding["severity"]), (&"D011".into(), &"error".into()));
    assert_eq!(finding["hosts"], serde_json::json!(["n1", "n2"]));
    let host = &document["hosts"][1];
    assert_eq!((&host["name"], &host["state"]), (&"n2".into(), &"examined".into()));
    assert!(host["compute"]["cpus"].as_u64().is_some_and(|cpus| 0 < cpus));
    assert!(host["network"]["address"] == "127.0.0.1", "{host}");
}

#[test]
fn machine_without_gpus_has_none_to_check() {
    // No device file of a GPU is visible in any case.
    let outcome = face("doctor").option("--gpu").env("CUDA_VISIBLE_DEVICES", "").end().code(2);
    assert_eq!(
        outcome.stderr,
        "error[M003]: no GPU is available: this machine has none, or CUDA_VISIBLE_DEVICES hides them\n\
         help: `nvidia-smi -L` lists the GPUs of a machine; `remuda ssh -H FILE -- remuda doctor --gpu` checks those \
         of all hosts\n"
    );
}
