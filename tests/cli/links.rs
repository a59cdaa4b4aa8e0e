//! `remuda links`: launchers by their own names.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::scratch::{Scratch, screen_of};

const REMUDA: &str = env!("CARGO_BIN_EXE_remuda");

#[test]
#[expect(clippy::disallowed_methods, reason = "this test starts the real program by its links")]
fn links_start_remuda_as_the_launchers() {
    let scratch = Scratch::new("links", "made");
    let shown = scratch.succeed("bin");
    let names = ["deepspeed", "ds", "torchrun", "accelerate", "accelerate-launch"];
    for name in names {
        let link = scratch.path("bin").join(name);
        assert_eq!(fs::read_link(&link).expect("a link"), Path::new(REMUDA));
        assert!(shown.contains(&format!("bin/{name} -> {REMUDA}\n")), "{shown}");
    }
    let dir = scratch.path("bin").display().to_string();
    assert!(
        shown.ends_with(&format!("help: put the directory first: export PATH={dir}:$PATH\n")),
        "{shown}"
    );
    let mut torchrun = Command::new(scratch.path("bin/torchrun"));
    let torchrun =
        torchrun.args(["--nproc-per-node=2", "--no-python", "sh", "-c", "echo $WORLD_SIZE"]);
    let output = torchrun.env("REMUDA_RUN_DIR", scratch.path("runs")).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches('2').count(), 2, "{output:?}");
    assert_eq!(scratch.succeed("bin"), shown, "links that exist are kept");
}

#[test]
fn entry_that_is_no_link_to_remuda_is_kept() {
    let scratch = Scratch::new("links", "kept");
    fs::create_dir(scratch.path("bin")).expect("a new directory");
    scratch.write("bin/torchrun", "#!/bin/sh\n");
    let output = scratch.run("bin");
    assert_eq!(output.status.code(), Some(73));
    assert_eq!(
        screen_of(&output),
        "error[M006]: bin/torchrun exists and is not a link to remuda\n\
         help: name another directory, or remove the file; nothing was changed\n"
    );
    let entries = fs::read_dir(scratch.path("bin")).expect("a directory").count();
    assert_eq!(entries, 1, "nothing was made");
    assert!(scratch.succeed("bin ds accelerate").contains("bin/ds -> "));
    let output = scratch.run("bin mpirun");
    assert_eq!(output.status.code(), Some(2));
    assert!(screen_of(&output).contains("mpirun"), "{}", screen_of(&output));
}
