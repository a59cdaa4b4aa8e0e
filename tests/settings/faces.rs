//! The lines of other launchers do not read `remuda.toml`, and variables of options have no effect on them.

use super::Place;

#[test]
fn faces_ignore_the_file() {
    let text = "this is not TOML\nlauncher = \"lokal\"\n";
    let place = Place::new("faces").local(text).user(text);
    for line in [
        "deepspeed --dry-run train.py",
        "ds --dry-run train.py",
        "torchrun --dry-run train.py",
        "accelerate launch --cpu --dry-run train.py",
        "remuda torchrun --dry-run train.py",
        "remuda torch.distributed.launch --dry-run train.py",
        "remuda accelerate launch --cpu --dry-run train.py",
        "remuda launch --world_info eyJsb2NhbGhvc3QiOlswXX0= --dry-run train.py",
    ] {
        let line = format!("REMUDA_LAUNCHER=lokal REMUDA_PROFILE=none {line}");
        let output = place.run(&line);
        assert!(output.status.success(), "{line}: {output:?}");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!shown.contains("not on the command line"), "{line}: {shown}");
    }
}

#[test]
fn faces_do_not_have_the_option() {
    let place = Place::new("no_option").local("[profile.p]\ngrace = \"1s\"\n");
    for line in ["deepspeed --profile p train.py", "torchrun --profile p train.py"] {
        let screen = place.screen(line);
        assert!(screen.contains("there is no option `--profile`"), "{screen}");
    }
    let output = place.run("remuda run -n 1 train.py --profile p");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn help_needs_no_valid_file() {
    let place = Place::new("help").local("launcher = lokal\n");
    for line in
        ["remuda run --help", "remuda ssh -h", "remuda bench --version", "remuda explain O001"]
    {
        let output = place.run(line);
        assert!(output.status.success(), "{line}: {output:?}");
    }
}
