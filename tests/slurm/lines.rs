//! Lines inside an allocation, by variables as Slurm sets them: what they say about nodes that they do not use or
//! wait for. The nodes do not exist.

use rustix::process::Signal;

use crate::faces::torchrun::free_port;
use crate::slurm::allocation::job;
use crate::support::launch::{Launch, Outcome, face};

/// A launch in an allocation of two nodes.
fn allocated(launch: Launch) -> Launch {
    let launch = launch.env("SLURM_JOB_ID", "17").env("SLURM_NNODES", "2");
    let launch = launch.env("SLURM_JOB_NODELIST", "n1.invalid,n2.invalid");
    launch.env("SLURM_TASKS_PER_NODE", "1(x2)").env("HF_HOME", "/nonexistent")
}

/// The same as one of two tasks of a step.
fn task(launch: Launch, number: &str) -> Launch {
    let launch = allocated(launch).env("SLURM_STEP_ID", "0").env("SLURM_STEP_NUM_TASKS", "2");
    launch.env("SLURM_PROCID", number)
}

/// The screen without the length of waits and the words of the resolver.
fn screen(outcome: &Outcome) -> String {
    let line = |line: &str| match line.split_once(" so far, ") {
        None => line.to_owned(),
        Some((head, tail)) => {
            let head = head.rsplit_once(", ").map_or(head, |(head, _)| head);
            let tail = tail.split(" does not resolve: ").next().unwrap_or_default();
            format!("{head}, … {tail}")
        }
    };
    outcome.stderr.lines().map(line).fold(String::new(), |text, line| text + &line + "\n")
}

#[test]
fn tasks_without_an_address_say_what_to_type() {
    let end = |number| {
        let running = task(job(), number).sh("true").start();
        running.wait_for_error("help: type `--master_addr");
        running.signal(Signal::TERM);
        screen(&running.end().code(143))
    };
    let help = "help: type `--master_addr ADDR` with an address of n1.invalid that all nodes reach; `scontrol show \
                node n1.invalid` shows one as NodeAddr\n";
    assert_eq!(
        end("1"),
        format!(
            "   Joining  job 7qrtvr7v at n1.invalid:20526 as node 1 of 2 (node-1), within 30 min 00 s\n   \
             Waiting  for node 0 (n1.invalid:20526), … at most 30 min 00 s: the name `n1.invalid`\n{help}\
             error[R106]: SIGTERM stopped this node while it waited for node 0 (n1.invalid:20526); nothing was \
             started\n"
        )
    );
    let first = end("0");
    let waits = format!(
        "   Waiting  for the name of this node to resolve, … at most 30 min 00 s: the name `n1.invalid`\n{help}\
         error[R106]: SIGTERM stopped this node while it waited for the name of node 0 (`n1.invalid`) to resolve; \
         nothing was started\n"
    );
    assert!(first.ends_with(&waits), "{first}");
}

#[test]
fn tasks_of_other_launchers_name_their_options_for_an_address() {
    let check = |launch: Launch, options: &str| {
        let running = task(launch, "1").options(["--no_python"]).sh("true").start();
        running.wait_for_error(&format!("help: type `{options}` with an address of n1.invalid"));
        running.signal(Signal::TERM);
        running.end().code(143);
    };
    let torchrun = face("torchrun").options(["--nnodes", "2"]);
    check(torchrun, "--master_addr ADDR");
    let accelerate = face("accelerate").options(["launch", "--cpu", "--num_machines=2"]);
    check(accelerate.option("--num_processes=2"), "--main_process_ip ADDR");
}

/// The output of both tasks of a step, sorted, and what the first one printed to standard error.
fn two_tasks(line: impl Fn(&str) -> Launch) -> (Vec<String>, String) {
    let script = "echo $RANK of $WORLD_SIZE in task $SLURM_PROCID";
    let first = task(line("0"), "0").sh(script).start();
    first.wait_for_error("Waiting");
    let _second = task(line("1"), "1").sh(script).end().code(0);
    let first = first.end().code(0);
    let mut lines: Vec<String> = first.stdout_text().lines().map(str::to_owned).collect();
    lines.sort();
    (lines, first.stderr.clone())
}

#[test]
fn number_of_a_task_is_that_of_its_node() {
    let note = |option: &str| {
        format!(
            "note: without `{option}`, each of the 2 tasks of Slurm step 17.0 has the number of its task\n"
        )
    };
    let tasks = ["0 of 2 in task 0", "1 of 2 in task 1"];
    let port = free_port().to_string();
    let torchrun = |_: &str| {
        let launch = face("torchrun").options(["--nnodes", "2", "--master_addr", "127.0.0.1"]);
        launch.options(["--master_port", &port, "--no-python"])
    };
    let (lines, screen) = two_tasks(torchrun);
    assert_eq!(lines, tasks);
    assert!(screen.contains(&note("--node-rank")), "{screen}");
    // A file of `accelerate config` has a number, and all tasks read the same file.
    let port = free_port().to_string();
    let machines = |_: &str| {
        let launch = face("accelerate").options(["launch", "--main_process_port", &port]);
        let file = launch.dir().join("config.yaml");
        let text = "distributed_type: MULTI_CPU\nnum_machines: 2\nnum_processes: 2\nmachine_rank: 0\n\
                    main_process_ip: 127.0.0.1\nuse_cpu: true\n";
        std::fs::write(&file, text).expect("a file");
        launch.option("--config_file").option(file).option("--no_python")
    };
    let (lines, screen) = two_tasks(machines);
    assert_eq!(lines, tasks);
    assert!(screen.contains(&note("--machine_rank")), "{screen}");
}

#[test]
fn typed_number_outranks_that_of_the_task() {
    let port = free_port().to_string();
    let number = |task: &str| if task == "0" { "1" } else { "0" };
    let machine = |task: &str| {
        let options = ["launch", "--cpu", "--num_machines=2", "--num_processes=2", "--no_python"];
        let launch = face("accelerate").options(options).env("HF_HOME", "/nonexistent");
        let address = ["--main_process_ip=127.0.0.1", "--main_process_port", &port];
        launch.options(address).options(["--machine_rank", number(task)])
    };
    let script = "echo $RANK in task $SLURM_PROCID";
    let first = task(machine("1"), "1").sh(script).start();
    first.wait_for_error("Waiting");
    let _second = task(machine("0"), "0").sh(script).end().code(0);
    let first = first.end().code(0).does_not_say("the number of its task");
    let mut lines: Vec<&str> = first.stdout_text().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 in task 1", "1 in task 0"]);
}

#[test]
fn node_of_deepspeed_has_the_number_of_its_task() {
    let options = ["launch", "--use_deepspeed", "--num_machines=2", "--num_processes=2"];
    let launch = face("accelerate").options(options).env("HF_HOME", "/nonexistent");
    let hosts = launch.dir().join("hosts");
    std::fs::write(&hosts, "n1 slots=1\nn2 slots=1\n").expect("the hostfile");
    let launch = launch.options(["--deepspeed_multinode_launcher=nossh", "--no_python"]);
    let launch = launch.option("--deepspeed_hostfile").options([hosts]);
    let launch = task(launch.options(["--dry-run", "--json"]), "1").sh("true");
    let outcome = launch.end().code(0);
    let plan: serde_json::Value = serde_json::from_str(outcome.stdout_text()).expect("a plan");
    assert_eq!(plan["nodes"][0]["node_rank"], 1, "{plan}");
}

#[test]
fn line_of_one_node_names_the_other_nodes() {
    let note = |option: &str| {
        format!(
            "note: the allocation of Slurm job 17 has 2 nodes, and this job runs on this machine alone; type `{option} \
             2` to use all\n"
        )
    };
    let torchrun = |options: &[&str]| {
        let launch = allocated(face("torchrun")).options(["--no-python", "--dry-run"]);
        launch.options(options.iter().copied()).program(["/bin/true"]).end().code(0)
    };
    assert_eq!(torchrun(&[]).stderr, note("--nnodes"));
    assert_eq!(torchrun(&["--nnodes=1"]).stderr, "");
    assert_eq!(torchrun(&["--standalone"]).stderr, "");
    for workers in ["1", "2"] {
        let launch = allocated(face("accelerate")).options(["launch", "--cpu", "--no_python"]);
        let launch = launch.options(["--num_processes", workers]).program(["/bin/true"]);
        launch.end().code(0).says(&note("--num_machines"));
    }
}

#[test]
fn node_without_the_others_of_the_allocation_names_srun() {
    let wait = |options: &[&str], help: &str| {
        let launch = allocated(face("torchrun")).options(["--nnodes=2", "--no-python"]);
        let running = launch.options(options.iter().copied()).sh("true").start();
        running.wait_for_error(&format!(
            "help: the allocation of Slurm job 17 has 2 nodes, and this line starts one of them: {help}, so that one \
             line starts all\n"
        ));
        running.signal(Signal::TERM);
        running.end().code(143);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let port = free_port();
            let endpoint = format!("127.0.0.1:{port}");
            wait(
                &["--rdzv-backend=c10d", "--rdzv-endpoint", &endpoint],
                "type `srun --ntasks-per-node=1` before it to start it on every node, or leave `--rdzv-endpoint` out",
            );
        });
        scope.spawn(|| {
            let port = free_port().to_string();
            let options = ["--master-addr=127.0.0.1", "--node-rank=1", "--master-port", &port];
            wait(&options, "leave `--master-addr` and `--node-rank` out");
        });
    });
}

#[test]
fn typed_slots_replace_the_tasks_of_an_allocation() {
    let outcome = |launch: Launch| {
        let launch = allocated(launch).options(["--slots=2", "--dry-run"]);
        launch.program(["/bin/true"]).end().code(0)
    };
    let hosts = "note: hosts are those of the allocation of Slurm job 17\n";
    let of_tasks = outcome(job());
    assert!(of_tasks.stdout_text().contains("world size 4"), "{of_tasks:?}");
    assert_eq!(of_tasks.stderr, hosts);
    let of_gpus = outcome(job().env("SLURM_GPUS_ON_NODE", "3"));
    assert!(of_gpus.stdout_text().contains("world size 6"), "{of_gpus:?}");
    assert_eq!(
        of_gpus.stderr,
        format!(
            "{hosts}note: `--slots` has no effect: the allocation of Slurm job 17 gives the number of slots of each \
             node; `--num_gpus N` uses fewer of them\n"
        )
    );
}

#[test]
fn hosts_outside_the_allocation_are_named() {
    let outcome = |options: &[&str]| {
        let launch = allocated(job()).options(options.iter().copied()).option("--dry-run");
        launch.program(["/bin/true"]).end().code(0)
    };
    let hosts = ["-H", "n1.invalid:1,n8:1,n9:1"];
    assert_eq!(
        outcome(&hosts).stderr,
        "note: n[8-9] are not nodes of Slurm job 17, so ssh starts all agents; `--launcher ssh` does so without \
         this note\n"
    );
    assert_eq!(outcome(&[&hosts[..], &["--launcher", "ssh"]].concat()).stderr, "");
    assert_eq!(outcome(&["-H", "localhost:2"]).stderr, "");
}
