//! The way of a platform engineer: the binary alone in an image, the manifest as printed, run as by a
//! kubelet; a scanner connects to every port, a pod is killed, and the job is deleted.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::pods::cluster::{Cluster, can_run, init, kill};
use crate::pods::manifest::printed;
use crate::support::launch::{Launch, REMUDA, Running, command};
use crate::support::net::{Namespace, Network};
use crate::support::process::MARK;
use crate::support::{LIMIT, wait_for};

/// User of the container in the manifest; the image has no such user.
const USER: u32 = 10_001;
const PODS: usize = 3;

/// A root with the binary of remuda, the libraries that it is linked to, and places to mount something at.
fn make_image(dir: &Path) {
    for place in ["bin", "dev/shm", "proc", "tmp", "etc/remuda", "kept"] {
        fs::create_dir_all(dir.join(place)).expect("a directory");
    }
    for file in ["dev/null", "dev/urandom", "dev/termination-log", "etc/hosts"] {
        fs::write(dir.join(file), "").expect("a file");
    }
    fs::hard_link(REMUDA, dir.join("bin/remuda")).expect("on the same disk");
    let linked = command("ldd").arg(REMUDA).output().expect("ldd is there");
    for library in String::from_utf8_lossy(&linked.stdout).split_whitespace() {
        if let Some(inside) = library.strip_prefix('/') {
            let place = dir.join(inside);
            fs::create_dir_all(place.parent().expect("a directory")).expect("it is made");
            fs::copy(library, place).expect("copied");
        }
    }
}

/// What the kubelet does before it starts the container, as a line of `sh`.
fn mounts(cluster: &Cluster, template: &Value, image: &Path, log: &Path) -> String {
    let mut line = vec![format!("cd '{}'", image.display()), "mount --bind . .".to_owned()];
    // The old directory is still below what was mounted over it.
    line.push(format!("cd '{}'", image.display()));
    let mut bind = |from: &Path, to: &str| {
        line.push(format!("mount --bind '{}' {to}", from.display()));
    };
    bind(&cluster.file("secret"), "etc/remuda");
    bind(&cluster.file("hosts"), "etc/hosts");
    bind(&cluster.file("kept"), "kept");
    bind(log, "dev/termination-log");
    bind(Path::new("/dev/null"), "dev/null");
    bind(Path::new("/dev/urandom"), "dev/urandom");
    line.push("mount -t proc proc proc".to_owned());
    let spec = &template["spec"];
    for mount in spec["containers"][0]["volumeMounts"].as_array().expect("a list") {
        let volumes = spec["volumes"].as_array().expect("a list");
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]);
        if volume.expect("every mount has one").get("emptyDir").is_some() {
            let path = mount["mountPath"].as_str().expect("text");
            line.push(format!("mount -t tmpfs -o mode=1777,size=64m tmpfs .{path}"));
        }
    }
    assert_eq!(spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true);
    line.push("mount -o remount,bind,ro .".to_owned());
    line.join(" && ")
}

/// Starts the container of a pod from its template; `log` is the termination log.
fn start(cluster: &Cluster, template: &Value, rank: usize, log: &Path) -> Running {
    let container = &template["spec"]["containers"][0];
    let texts = |list: &Value| -> Vec<String> {
        let list = list.as_array().expect("a list").iter();
        list.map(|text| text.as_str().expect("text").to_owned()).collect()
    };
    assert_eq!(texts(&container["command"]), ["remuda", "pod"]);
    let image = cluster.file("image");
    fs::write(log, "").expect("the kubelet makes it");
    fs::set_permissions(log, std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .expect("permissions can be set");
    let launch = Launch::new().command("pod").remuda("remuda");
    // Its file may be nowhere but in the container.
    let launch = launch.option("--run_dir=/tmp/runs");
    let (mark, words) = (launch.mark().to_owned(), texts(&container["args"]));
    let launch = cluster.contain(rank, launch, &mounts(cluster, template, &image, log));
    let mut environment = vec![format!("JOB_COMPLETION_INDEX={rank}"), format!("{MARK}={mark}")];
    for variable in container["env"].as_array().expect("a list") {
        let text = |field: &str| variable[field].as_str().expect("text");
        environment.push(format!("{}={}", text("name"), text("value")));
    }
    let environment: Vec<&str> = environment.iter().map(String::as_str).collect();
    let user = &template["spec"]["securityContext"]["runAsUser"];
    assert_eq!(user, USER);
    let image = image.display().to_string();
    let root = format!("--userspec={USER}:{USER}");
    let launch = launch.through(&["setpriv", "--no-new-privs", "env", "-i", "PATH=/bin"]);
    let launch = launch.through(&environment).through(&["/usr/sbin/chroot", "--groups=", &root]);
    let launch = launch.through(&[&image]);
    // The words of the manifest have their own `--`.
    let end = words.iter().position(|word| word == "--").expect("it was given");
    launch.options(words[..end].iter()).program(words[end + 1..].iter()).start()
}

/// Runs on a thread that is in this namespace.
fn inside<T: Send>(namespace: &Namespace, run: impl FnOnce() -> T + Send) -> T {
    let file = fs::File::open(namespace.path()).expect("it lives");
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            use std::os::fd::AsFd;
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(file.as_fd(), kind).expect("the namespace can be entered");
            run()
        });
        thread.join().expect("it does not panic")
    })
}

fn address_of(pod: usize, port: u16) -> SocketAddr {
    let ip: IpAddr = Network::address(pod).parse().expect("an address");
    SocketAddr::new(ip, port)
}

/// Every listening port.
fn scan(pod: usize) -> Vec<u16> {
    let is_open = |port: &u16| {
        let called = TcpStream::connect_timeout(&address_of(pod, *port), LIMIT);
        called.is_ok()
    };
    (1..=u16::MAX).filter(is_open).collect()
}

/// Time limit for a reply: a worker that is connected to all its peers accepts no connection.
const PATIENCE: Duration = Duration::from_millis(500);

/// Sends the bytes, and returns the reply up to the end of the connection or to a time limit.
fn call(pod: usize, port: u16, saying: &[u8]) -> Vec<u8> {
    // The listener may have been closed since: a port of a worker.
    let Ok(mut stream) = TcpStream::connect(address_of(pod, port)) else { return Vec::new() };
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut answer = Vec::new();
    let _ = stream.write_all(saying);
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn ask(pod: usize, path: &str) -> String {
    let question = format!("GET {path} HTTP/1.1\r\nHost: pod\r\n\r\n");
    String::from_utf8_lossy(&call(pod, 8080, question.as_bytes())).into_owned()
}

/// First bytes of the scanner: HTTP, TLS, garbage, and more bytes than are read.
fn sayings() -> Vec<Vec<u8>> {
    let garbage = (0..8192_u32).map(|at| (at.wrapping_mul(2_654_435_769) >> 24) as u8);
    vec![
        b"GET / HTTP/1.1\r\nHost: pod\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(40),
        garbage.collect(),
        b"remuda\x01\x00\x02\x00\x00\x00\xff\xff".to_vec(),
        vec![0; 300],
    ]
}

/// Calls every port of every pod; only the status ports answer, and they change nothing.
fn pester(cluster: &Cluster) {
    let pester_pod = |pod| {
        let open = inside(cluster.stranger(), || scan(pod));
        assert!(open.contains(&8080), "{open:?}");
        assert_eq!(open.contains(&29_501), pod == 0, "{open:?}");
        for port in open {
            for saying in sayings() {
                let answer = inside(cluster.stranger(), || call(pod, port, &saying));
                let is_told = port == 8080 && answer.starts_with(b"HTTP/1.1 4");
                assert!(answer.is_empty() || is_told, "{port}: {answer:?}");
            }
        }
    };
    std::thread::scope(|scope| {
        for pod in 0..PODS {
            scope.spawn(move || pester_pod(pod));
        }
    });
}

#[test]
fn printed_manifest_survives_a_killed_pod_and_port_scans() {
    if !can_run("printed_manifest_survives_a_killed_pod_and_port_scans") {
        return;
    }
    let cluster = Cluster::new(PODS);
    make_image(&cluster.file("image"));
    for place in ["secret", "kept"] {
        fs::create_dir_all(cluster.file(place)).expect("a directory");
    }
    std::os::unix::fs::chown(cluster.file("kept"), Some(USER), Some(USER))
        .expect("the test runs as root");
    let sizes = "--model gpt --layers 1 --heads 2 --width 16 --block 8 --batch_size 1";
    let run = "--steps 10000000 --eval_every 0 --save_every 20 --checkpoint_dir /kept";
    let words = ["--nodes=3", "--cpus=2", "--with_key", "--no_python", "--no_local_rank", "--"];
    let train = ["remuda", "train"].into_iter().chain(sizes.split(' ')).chain(run.split(' '));
    let documents = printed(&words.into_iter().chain(train).collect::<Vec<_>>());
    let key = documents[0]["stringData"]["key"].as_str().expect("it was asked for");
    fs::write(cluster.file("secret").join("key"), key).expect("a file");
    let template = &documents[2]["spec"]["template"];
    let log = |pod: usize| -> PathBuf { cluster.file(&format!("termination-{pod}")) };
    let begin = |pod| start(&cluster, template, pod, &log(pod));

    let [first, second, third] = [0, 1, 2].map(begin);
    let is_saved = |step: &str| cluster.file("kept").join(step).exists().then_some(());
    wait_for("a checkpoint", || is_saved("step-00000020"));
    let ready = inside(cluster.stranger(), || ask(2, "/readyz"));
    assert!(ready.starts_with("HTTP/1.1 200 OK\r\n"), "{ready}");
    pester(&cluster);
    let metrics = inside(cluster.stranger(), || ask(0, "/metrics"));
    let lines = [
        "remuda_restarts_total 0",
        "remuda_workers{state=\"running\"} 6",
        "remuda_nodes{state=\"connected\"} 3",
    ];
    for line in lines {
        assert!(metrics.lines().any(|found| found == line), "{metrics}");
    }

    first.wait_for_error("warning[D024]: /dev/shm has only 64 MiB; NCCL and data loaders may");
    kill(second);
    first.wait_for_error("; restart 1 of 3");
    let replaced = begin(1);
    first.wait_for_lines("resuming after step", 1);

    let pods = [first, replaced, third];
    for pod in &pods {
        init(pod).signal(Signal::TERM);
    }
    for (pod, running) in pods.into_iter().enumerate() {
        let outcome = running.end().code(143);
        assert_eq!(outcome.stdout_text().contains("step"), pod == 0, "one log, of pod 0");
        let message = fs::read(log(pod)).expect("the kubelet's file");
        let message: Value = serde_json::from_slice(&message).expect("JSON");
        assert_eq!((&message["node"], &message["status"]), (&pod.into(), &143.into()));
    }
}
