//! A file that other users can write is refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::Place;

const MODES: [(u32, &str); 3] = [
    (0o666, "every user can write"),
    (0o664, "its group can write"),
    (0o646, "every user can write"),
];

fn set_mode(place: &Place, mode: u32) {
    let path = place.0.join("remuda.toml");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own file");
}

#[test]
fn file_that_others_can_write_is_refused() {
    let place = Place::new("trust").local("num_gpus = 1\n");
    for (mode, why) in MODES {
        set_mode(&place, mode);
        let expect = format!(
            "$ remuda run train.py\n\
             error[O007]: {why} `remuda.toml`, which decides what is executed\n --> remuda.toml\n\
             help: type `chmod go-w remuda.toml`; `--no_settings` ignores it\n[77]\n\n"
        );
        assert_eq!(place.screen("remuda run train.py"), expect);
        for accepted in ["--no_settings -n 1", "--allow_insecure_files"] {
            let output = place.run(&format!("remuda run {accepted} train.py"));
            assert!(output.status.success(), "{accepted}: {output:?}");
        }
    }
    let output = place.run("REMUDA_ALLOW_INSECURE_FILES=1 remuda run train.py");
    assert_eq!(output.status.code(), Some(77));
    set_mode(&place, 0o600);
    assert!(place.run("remuda run train.py").status.success());
}

#[test]
fn file_cannot_say_that_it_is_trusted() {
    let place = Place::new("self_trust").local("allow_insecure_files = true\n");
    set_mode(&place, 0o666);
    assert_eq!(place.run("remuda run -n 1 train.py").status.code(), Some(77));
}

#[test]
fn file_of_another_user_is_refused() {
    // Only root can give a file away.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new("foreign").local("num_gpus = 1\n");
    chown(place.0.join("remuda.toml"), Some(65534), Some(65534)).expect("given away");
    let screen = place.screen("remuda run train.py");
    let expect =
        "error[O007]: `remuda.toml` belongs to user `nobody`, who could decide what is executed\n";
    assert!(screen.contains(expect) && screen.ends_with("[77]\n\n"), "{screen}");
}

#[test]
fn files_that_cannot_be_read_are_refused() {
    let place = Place::new("unreadable");
    let path = place.0.join("remuda.toml");
    fs::create_dir(&path).expect("a directory");
    let screen = place.screen("remuda run train.py");
    let expect = "error[O008]: cannot read `remuda.toml`: it is a directory\n";
    assert!(screen.contains(expect) && screen.ends_with("[66]\n\n"), "{screen}");
    fs::remove_dir(&path).expect("it is empty");
    fs::write(&path, b"a = \"\xff\"\n").expect("written");
    assert!(place.screen("remuda run train.py").contains("it is not UTF-8 text"));
    fs::write(&path, " ".repeat((1 << 20) + 1)).expect("written");
    assert!(place.screen("remuda run train.py").contains("it is larger than 1 MiB"));
    fs::remove_file(&path).expect("own file");
    symlink("remuda.toml", &path).expect("a link");
    assert!(place.screen("remuda run train.py").contains("error[O008]"));
}
