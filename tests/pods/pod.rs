//! `remuda pod`: the same command line in every pod.

use crate::pods::cluster::{Cluster, can_run};
use crate::pods::nodes::Nodes;
use crate::support::launch::{Launch, REMUDA, command};
use crate::support::proof::skip;

/// One of two pods of an Indexed Job.
fn pod(nodes: &Nodes, rank: usize) -> Launch {
    let launch = bare(nodes).env("JOB_COMPLETION_INDEX", rank.to_string());
    launch.option("--nodes=2").env("REMUDA_KEY_FILE", nodes.dir().join("key"))
}

fn bare(nodes: &Nodes) -> Launch {
    let launch = Launch::new().command("pod").options(["--accelerator", "cpu", "--no_python"]);
    let launch = launch.options(["--no_local_rank", "--master_addr=127.0.0.1"]);
    launch.option(format!("--master_port={}", nodes.port))
}

#[test]
fn pods_detect_their_rank_and_form_one_job() {
    let nodes = Nodes::new(&[1, 1]);
    let say = "echo $RANK/$WORLD_SIZE on $NODE_RANK";
    let second = pod(&nodes, 1).env("REMUDA_NUM_GPUS", "2").sh(say).start();
    let first = pod(&nodes, 0).option("--num_gpus=2").sh(say).end().code(0);
    let first = first.says("       Pod  node 0 (Indexed Job: JOB_COMPLETION_INDEX=0) of 2\n");
    let mut lines: Vec<_> = first.stdout_text().lines().collect();
    lines.sort_unstable();
    let expect =
        ["pod-0:0 │ 0/4 on 0", "pod-0:1 │ 1/4 on 0", "pod-1:2 │ 2/4 on 1", "pod-1:3 │ 3/4 on 1"];
    assert_eq!(lines, expect);
    let second = second.end().code(0);
    second.says("       Pod  node 1 (Indexed Job: JOB_COMPLETION_INDEX=1) of 2\n");
}

#[test]
fn peer_exit_sets_the_status_of_stopped_pods() {
    let nodes = Nodes::new(&[1, 1]);
    let script = "if [ $RANK = 1 ]; then exit 7; fi; sleep 600";
    let second = pod(&nodes, 1).env("REMUDA_PEER_EXIT", "99").sh(script).start();
    let cause = "error[R101]: rank 1 (pod-1) exited with code 7";
    drop(pod(&nodes, 0).option("--peer_exit=99").sh(script).end().code(99).says(cause));
    second.end().code(7).says(cause);
}

#[test]
fn pods_without_a_key_require_isolated() {
    let nodes = Nodes::new(&[1, 1]);
    let alone = || bare(&nodes).option("--nodes=2").env("LWS_WORKER_INDEX", "1");
    alone().sh("true").end().code(78).says(
        "error[P006]: the pods have no key and could not connect to each other\nhelp: mount a Secret in \
         every pod and give `--key_file FILE` (or REMUDA_KEY_FILE); with `--isolated` every pod \
         starts its workers without connections\n",
    );
    let alone = alone().option("--isolated").sh("echo rank $RANK").end().code(0);
    assert_eq!(alone.stdout_text(), "pod-1:1 │ rank 1\n");
    alone.says("      Node  1 of 2, rank 1 of 2;");
}

#[test]
fn unknown_platform_is_refused_with_the_missing_option() {
    #[track_caller]
    fn check(launch: Launch, screen: &str) {
        launch.sh("true").end().code(78).says(screen);
    }
    let nodes = Nodes::new(&[1, 1]);
    let pod = || bare(&nodes);
    check(
        pod().env("KUBERNETES_SERVICE_HOST", ""),
        "error[P001]: the number of this pod is not set (--node_rank)\nhelp: give `--nodes N \
         --node_rank N --master_addr ADDR`, or set NODE_RANK; `remuda pod --help` lists the known platforms\n",
    );
    check(
        pod().env("JOB_COMPLETION_INDEX", "1"),
        "error[P004]: the number of pods is not set\nhelp: give `--nodes N`, or set \
         REMUDA_NODES to the `completions` of an Indexed Job\n",
    );
    check(
        pod().env("PET_NODE_RANK", "1").env("NODE_RANK", "0"),
        "error[P003]: two different numbers for this pod: node 1 (Kubeflow: PET_NODE_RANK=1), but node 0 \
         (NODE_RANK: NODE_RANK=0)\nhelp: unset one of the two, or give `--node_rank` and `--nodes`\n",
    );
    check(
        pod().env("NODE_RANK", "2").option("--nodes=2"),
        "error[P005]: there is no node 2 among 2 pods\nhelp: `--nodes` is the number of pods; it must \
         be the same in every pod\n",
    );
    check(
        pod().env("NODE_RANK", "0").env("REMUDA_NODES", "many"),
        "error[P002]: REMUDA_NODES=`many`: ",
    );
    check(
        pod().env("OMPI_MCA_orte_default_hostfile", "/no/hostfile"),
        "error[P009]: the hostfile of an MPIJob, `/no/hostfile`, cannot be read: no such file or \
         directory\nhelp: unset the variable that names it, or give `--node_rank` and `--nodes`\n",
    );
}

/// Options in the sections about nodes and hosts of the help.
fn options_of_where() -> Vec<String> {
    let help = command(REMUDA).args(["pod", "--help"]).output().expect("it starts");
    let help = String::from_utf8(help.stdout).expect("text");
    let of_section = |title: &str| {
        let section = help.split(&format!("\n{title}:\n")).nth(1).expect("it has that part");
        let lines = section.lines().take_while(|line| line.is_empty() || line.starts_with(' '));
        let names = lines
            .filter_map(|line| line.split("--").nth(1).filter(|_| !line.starts_with("        ")));
        names
            .map(|rest| rest.split([' ', '\n']).next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    [of_section("Nodes"), of_section("Hosts")].concat()
}

#[test]
fn every_placement_option_has_a_variable() {
    let nodes = Nodes::new(&[1, 1]);
    let options = options_of_where();
    assert!(options.len() == 20 && options.contains(&"share".to_owned()), "{options:?}");
    for option in options {
        let launch = Launch::new().command("pod").options(["--no_python", "--no_local_rank"]);
        let launch = launch.env("JOB_COMPLETION_INDEX", "1").env("REMUDA_NODES", "2");
        let launch = launch.env("REMUDA_MASTER_ADDR", "127.0.0.1").env("REMUDA_ACCELERATOR", "cpu");
        let launch = launch.env("REMUDA_KEY_FILE", nodes.dir().join("key"));
        let variable = format!("REMUDA_{}", option.to_uppercase());
        let outcome = launch.env(&variable, "/no such").sh("true").end();
        drop(outcome.says(&match option.as_str() {
            "key_file" => "error[K001]: cannot read the key file `/no such`".to_owned(),
            "local_addr" => "error[P012]: `/no such` is neither an address".to_owned(),
            _ => format!("error[P002]: {variable}=`/no such`: "),
        }));
    }
}

/// The environments that the operator gives the launcher and the worker of a printed `MPIJob`.
#[test]
fn launcher_of_a_printed_mpi_job_is_node_0() {
    let made = command("unshare").args(["--uts", "true"]).status();
    if !made.is_ok_and(|status| status.success()) {
        return skip("uts namespaces", "launcher_of_a_printed_mpi_job_is_node_0");
    }
    let nodes = Nodes::new(&[1, 1]);
    let hostfile = nodes.dir().join("hostfile");
    let hosts = "train-launcher.train.ml.svc slots=1\ntrain-worker-0.train.ml.svc slots=1\n";
    std::fs::write(&hostfile, hosts).expect("a file");
    let of_operator = |rank: usize, role: &str, name: &str| {
        let launch = bare(&nodes).through(&["unshare", "--uts"]).under(&format!("hostname {name}"));
        let launch = launch.env("K_MPI_JOB_ROLE", role).env("KUBERNETES_SERVICE_HOST", "10.0.0.1");
        let launch = launch.env("REMUDA_NODES", "2").env("REMUDA_NUM_GPUS", "1");
        let launch = launch.env("REMUDA_NODE_RANK", rank.to_string());
        launch.env("REMUDA_KEY_FILE", nodes.dir().join("key")).sh("echo $RANK/$WORLD_SIZE")
    };
    let worker = of_operator(1, "worker", "train-worker-0").start();
    let launcher = of_operator(0, "launcher", "train-launcher");
    let launcher = launcher.env("OMPI_MCA_orte_default_hostfile", &hostfile).end().code(0);
    let mut lines: Vec<_> = launcher.stdout_text().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["pod-0:0 │ 0/2", "pod-1:1 │ 1/2"]);
    worker.end().code(0);
}

/// With a number as `nprocPerNode` the operator gives as WORLD_SIZE a number of processes.
#[test]
fn master_of_a_pytorch_job_is_node_0() {
    let nodes = Nodes::new(&[2, 2]);
    let of_operator = |rank: usize| {
        let launch = bare(&nodes).env("RANK", rank.to_string()).env("WORLD_SIZE", "4");
        let launch = launch.env("MASTER_ADDR", "train-master-0").env("MASTER_PORT", "23456");
        let launch = launch.env("PET_NODE_RANK", rank.to_string()).env("PET_NNODES", "2");
        let launch = launch.env("PET_NPROC_PER_NODE", "2");
        launch.env("REMUDA_KEY_FILE", nodes.dir().join("key")).sh("echo $RANK/$WORLD_SIZE")
    };
    let worker = of_operator(1).start();
    let master = of_operator(0).end().code(0);
    let mut lines: Vec<_> = master.stdout_text().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!((lines[0], lines[3]), ("pod-0:0 │ 0/4", "pod-1:3 │ 3/4"));
    worker.end().code(0);
}

#[test]
fn pods_with_the_hostfile_of_an_mpi_job_are_its_hosts() {
    if !can_run("pods_with_the_hostfile_of_an_mpi_job_are_its_hosts") {
        return;
    }
    let cluster = Cluster::of(("pi-worker", "pi"), 2);
    let hostfile = cluster.file("hostfile");
    std::fs::write(&hostfile, "pi-worker-0.pi:2\npi-worker-1.pi:2\n").expect("a file");
    let [first, second] = [0, 1].map(|rank| {
        let launch = cluster.contain(rank, Launch::new().command("pod"), "true");
        let launch = launch.options(["--accelerator", "cpu", "--no_python", "--no_local_rank"]);
        let launch = launch.env("K_MPI_JOB_ROLE", "worker").env("HYDRA_HOST_FILE", &hostfile);
        let launch = launch.env("REMUDA_KEY_FILE", cluster.file("key"));
        launch.sh("echo $RANK/$WORLD_SIZE at $MASTER_ADDR").start()
    });
    let first = first.end().code(0);
    let mut lines: Vec<_> = first.stdout_text().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.last(), Some(&"pi-worker-1:3 │ 3/4 at pi-worker-0.pi"), "{lines:?}");
    first
        .says(" hostname=pi-worker-0) of 2\n")
        .says("       Pod  node 0 (MPIJob: HYDRA_HOST_FILE=");
    second.end().code(0);
}
