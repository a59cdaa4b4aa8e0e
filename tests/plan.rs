//! Plans: equal input gives equal bytes, ranks are dense, and every worker has the variables and the
//! arguments that DeepSpeed and torchrun set.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::support::expected::check_expected;
use proptest::prelude::*;
use remuda::base::{Epoch, HostName, JobId, Slot, Status, env_vars};
use remuda::plan::{
    Accelerator, Bindings, Conventions, EnvValue, Export, JobSpec, LaunchPlan, MasterAddr,
    PlanError, Program, RendezvousPort, ThreadShare, VariableOrigin, WorkerPlan, digest, plan,
};
use remuda::report::plan::{Secrets, show_plan, write_plan_json};
use remuda::report::{ElasticSettings, PlanSettings};

fn host(name: &str) -> HostName {
    HostName::parse(name).expect("a host name")
}

fn bindings(master_addr: &str, master_port: u16) -> Bindings {
    let (master_addr, job) = (master_addr.to_owned(), JobId("k7q2".to_owned()));
    Bindings { master_addr, master_port, job }
}

/// `python -u train.py --local_rank=N --lr 0.1` on two uneven nodes.
fn spec() -> JobSpec {
    JobSpec {
        nodes: vec![
            (host("worker-0"), [0, 1, 2].map(Slot).to_vec()),
            (host("worker-1"), [1, 3].map(Slot).to_vec()),
        ],
        accelerator: Accelerator::Cuda,
        device_names: Vec::new(),
        program: python(),
        args: ["--lr", "0.1"].map(OsString::from).to_vec(),
        master_addr: MasterAddr::AskNode0,
        restarts_max: 0,
        master_port: RendezvousPort::Usual,
        conventions: Conventions::DeepSpeed,
        exports: Vec::new(),
    }
}

fn python() -> Program {
    Program::Python {
        script: "train.py".into(),
        module: false,
        local_rank: true,
        interpreter: "python".into(),
    }
}

fn planned(spec: &JobSpec) -> LaunchPlan {
    plan(spec).expect("a valid spec")
}

fn workers(plan: &LaunchPlan) -> impl Iterator<Item = &WorkerPlan> {
    plan.nodes.iter().flat_map(|node| &node.workers)
}

/// The environment of a worker without symbolic values.
fn bound(worker: &WorkerPlan) -> BTreeMap<String, String> {
    let bindings = bindings("10.0.0.1", 29500);
    let text = |text: OsString| text.into_string().expect("text");
    let env = worker.bind(&bindings, ThreadShare::share(8, 3), Epoch(0));
    env.into_iter().map(|(name, value)| (text(name), text(value))).collect()
}

#[test]
fn ranks_and_local_ranks_follow_hosts_and_slots() {
    let plan = planned(&spec());
    let found: Vec<_> = plan
        .nodes
        .iter()
        .flat_map(|node| node.workers.iter().map(move |worker| (node, worker)))
        .map(|(node, worker)| (worker.rank.0, node.node_rank.0, worker.local_rank.0, worker.slot.0))
        .collect();
    // DeepSpeed would give the last two the local ranks 1 and 0.
    assert_eq!(found, [(0, 0, 0, 0), (1, 0, 1, 1), (2, 0, 2, 2), (3, 1, 0, 1), (4, 1, 1, 3)]);
    assert_eq!(plan.world_size, 5);
}

#[test]
fn worker_has_variables_of_deepspeed_and_torchrun() {
    let plan = planned(&spec());
    let found = bound(&plan.nodes[1].workers[1]);
    let expect = [
        ("CROSS_RANK", "1"),
        ("CROSS_SIZE", "2"),
        ("CUDA_VISIBLE_DEVICES", "1,3"),
        ("GROUP_RANK", "1"),
        ("GROUP_WORLD_SIZE", "2"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_SIZE", "2"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "10.0.0.1"),
        ("MASTER_PORT", "29500"),
        ("NODE_RANK", "1"),
        ("OMP_NUM_THREADS", "2"),
        ("RANK", "4"),
        ("REMUDA_JOB", "k7q2"),
        ("ROLE_NAME", "default"),
        ("ROLE_RANK", "4"),
        ("ROLE_WORLD_SIZE", "5"),
        ("TORCHELASTIC_MAX_RESTARTS", "0"),
        ("TORCHELASTIC_RESTART_COUNT", "0"),
        ("TORCHELASTIC_RUN_ID", "k7q2"),
        ("TORCHELASTIC_USE_AGENT_STORE", "False"),
        ("WORLD_SIZE", "5"),
    ];
    let expect = expect.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(found, BTreeMap::from(expect));
}

#[test]
fn cpu_slots_are_visible_devices_like_in_deepspeed() {
    let spec = JobSpec { accelerator: Accelerator::Cpu, ..spec() };
    let plan = planned(&spec);
    assert_eq!(bound(&plan.nodes[0].workers[0])[env_vars::CUDA_VISIBLE_DEVICES], "0,1,2");
}

#[test]
fn cpu_slots_tell_accelerate_to_use_the_cpu() {
    let default = |accelerator| {
        let plan = planned(&JobSpec { accelerator, ..spec() });
        let env = plan.nodes[0].workers[0].defaults(ThreadShare::Inherited);
        env.into_iter().find(|(name, _)| name == env_vars::ACCELERATE_USE_CPU)
    };
    let value = default(Accelerator::Cpu).map(|(_, value)| value);
    assert_eq!(value, Some("true".into()));
    assert_eq!(default(Accelerator::Cuda), None);
    // The user's value replaces it.
    let exports = vec![Export::flag(env_vars::ACCELERATE_USE_CPU, "false")];
    let plan = planned(&JobSpec { accelerator: Accelerator::Cpu, exports, ..spec() });
    let worker = &plan.nodes[0].workers[0];
    assert_eq!(bound(worker)[env_vars::ACCELERATE_USE_CPU], "false");
    assert!(
        !worker
            .defaults(ThreadShare::Inherited)
            .iter()
            .any(|(name, _)| name == "ACCELERATE_USE_CPU")
    );
}

#[test]
fn thread_count_of_the_environment_is_kept() {
    let plan = planned(&spec());
    let bindings = bindings("a", 1);
    let env = plan.nodes[0].workers[0].bind(&bindings, ThreadShare::Inherited, Epoch(0));
    assert!(env.iter().all(|(name, _)| name != env_vars::OMP_NUM_THREADS));
    assert_eq!(ThreadShare::share(2, 8), ThreadShare::Share(1));
}

#[test]
fn later_epoch_counts_as_restart_in_torch() {
    let plan = planned(&spec());
    let bindings = bindings("a", 1);
    let env = plan.nodes[0].workers[0].bind(&bindings, ThreadShare::Inherited, Epoch(3));
    let count = env.iter().find(|(name, _)| name == env_vars::TORCHELASTIC_RESTART_COUNT);
    assert_eq!(count.map(|(_, value)| value.as_os_str()), Some("3".as_ref()));
}

#[test]
fn values_not_given_stay_symbolic() {
    let value = |spec: &JobSpec, name: &str| {
        let plan = planned(spec);
        let mut env = plan.nodes[0].workers[0].env();
        env.find(|(found, _)| *found == name).expect("it is set").1.into_owned()
    };
    let open = spec();
    assert_eq!(value(&open, env_vars::MASTER_ADDR), EnvValue::MasterAddr);
    assert_eq!(value(&open, env_vars::MASTER_PORT), EnvValue::MasterPort);
    assert_eq!(value(&open, env_vars::OMP_NUM_THREADS), EnvValue::ThreadShare);
    let given = JobSpec {
        master_addr: MasterAddr::Given("127.0.0.1".to_owned()),
        master_port: RendezvousPort::Given(1234),
        exports: vec![Export::flag("OMP_NUM_THREADS", "7")],
        ..spec()
    };
    assert_eq!(value(&given, env_vars::MASTER_ADDR), EnvValue::Known("127.0.0.1".into()));
    assert_eq!(value(&given, env_vars::MASTER_PORT), EnvValue::Known("1234".into()));
    assert_eq!(value(&given, env_vars::OMP_NUM_THREADS), EnvValue::Known("7".into()));
}

fn argv(worker: &WorkerPlan) -> Vec<OsString> {
    worker.argv().map(Cow::into_owned).collect()
}

#[track_caller]
fn check_argv(program: Program, expect: &[&str]) {
    let plan = planned(&JobSpec { program, ..spec() });
    assert_eq!(argv(&plan.nodes[1].workers[1]), expect);
}

#[test]
fn command_matches_deepspeed() {
    check_argv(python(), &["python", "-u", "train.py", "--local_rank=1", "--lr", "0.1"]);
    let script = |module, local_rank| Program::Python {
        script: "pkg.train".into(),
        module,
        local_rank,
        interpreter: "/venv/bin/python".into(),
    };
    let interpreter = "/venv/bin/python";
    check_argv(
        script(true, true),
        &[interpreter, "-u", "-m", "pkg.train", "--local_rank=1", "--lr", "0.1"],
    );
    check_argv(script(false, false), &[interpreter, "-u", "pkg.train", "--lr", "0.1"]);
    let exec = |local_rank| Program::Exec { program: "./train".into(), local_rank };
    check_argv(exec(true), &["./train", "--local_rank=1", "--lr", "0.1"]);
    check_argv(exec(false), &["./train", "--lr", "0.1"]);
}

#[track_caller]
fn check_error(spec: &JobSpec, expect: &str, status: Status) {
    let error = plan(spec).expect_err("the spec is invalid");
    assert_eq!(error.to_string(), expect);
    assert_eq!(error.status(), status);
}

fn exporting(name: &str, value: &str) -> JobSpec {
    JobSpec { exports: vec![Export::flag(name, value)], ..spec() }
}

#[test]
fn plan_rejects_jobs_that_cannot_start() {
    let nodes = |nodes| JobSpec { nodes, ..spec() };
    check_error(&nodes(vec![]), "the job has no hosts", Status::Usage);
    let idle = vec![(host("a"), vec![])];
    check_error(&nodes(idle), "host `a` has no slots", Status::Usage);
    let twice = vec![(host("a"), vec![Slot(0)]), (host("a"), vec![Slot(1)])];
    check_error(&nodes(twice), "host `a` is listed twice", Status::Usage);
    let args = |argument: &str| JobSpec { args: vec!["x".into(), argument.into()], ..spec() };
    check_error(&args("a\0b"), "argument 5 has a NUL byte", Status::Usage);
    check_error(
        &args(&"x".repeat(131_072)),
        "argument 5 is 131072 bytes; the limit of Linux is 131071",
        Status::OsLimit,
    );
    assert!(plan(&args(&"x".repeat(131_071))).is_ok());
    let nothing = Program::Exec { program: "".into(), local_rank: false };
    let spec = JobSpec { program: nothing, ..spec() };
    check_error(&spec, "the name of the program is empty", Status::Usage);
}

#[test]
fn user_variables_win_except_reserved_ones() {
    let plan = planned(&JobSpec {
        exports: [("A", "1"), ("CUDA_VISIBLE_DEVICES", "GPU-1"), ("A", "2")]
            .map(|(name, value)| Export::flag(name, value))
            .to_vec(),
        ..spec()
    });
    let env = bound(&plan.nodes[0].workers[0]);
    assert_eq!((env["A"].as_str(), env["CUDA_VISIBLE_DEVICES"].as_str()), ("2", "GPU-1"));
    for name in ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "REMUDA_RANK_FD"]
    {
        let expect = PlanError::Reserved { name: name.to_owned() };
        assert_eq!(plan_of(&exporting(name, "1")), Err(expect));
    }
    check_error(&exporting("", "1"), "`` is not a variable name", Status::Usage);
    check_error(&exporting("A=B", "1"), "`A=B` is not a variable name", Status::Usage);
    check_error(&exporting("A", "\0"), "the value of `A` has a NUL byte", Status::Usage);
    check_error(
        &exporting("A", &"x".repeat(131_070)),
        "variable `A` is 131072 bytes with its value; the limit of Linux is 131071",
        Status::OsLimit,
    );
}

fn plan_of(spec: &JobSpec) -> Result<LaunchPlan, PlanError> {
    plan(spec)
}

#[test]
fn digest_covers_nodes_slots_argv_and_flag_variables() {
    let of = |spec: &JobSpec| digest(&planned(spec));
    let base = of(&spec());
    assert_ne!(of(&exporting("A", "secret")), base);
    assert_ne!(of(&exporting("A", "secret")), of(&exporting("A", "other")));
    let file = VariableOrigin::File { file: ".deepspeed_env".into(), line: 3 };
    for origin in [file, VariableOrigin::Propagated] {
        let export = Export { name: "A".into(), value: "secret".into(), origin };
        assert_eq!(of(&JobSpec { exports: vec![export], ..spec() }), base);
    }
    let swapped = JobSpec { nodes: spec().nodes.into_iter().rev().collect(), ..spec() };
    assert_ne!(of(&swapped), base);
    let joined = JobSpec { args: vec!["--lr0.1".into()], ..spec() };
    assert_ne!(of(&joined), base);
    let mut moved = spec();
    moved.nodes[1].1 = [1, 2].map(Slot).to_vec();
    assert_ne!(of(&moved), base);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn digest_is_the_same_on_every_machine() {
    // Computed by hashing the fields in Python: little-endian numbers, texts with their lengths.
    assert_eq!(
        hex(&digest(&planned(&spec()))),
        "cea2e9a7f9421476269ae2aca315e1b0a2fe41fc0713242d3f2075d64c76dfd6"
    );
}

/// A spec whose plan has every kind of value in its document.
fn full_spec() -> JobSpec {
    JobSpec {
        args: vec!["it's".into(), OsString::from_vec(b"caf\xe9".to_vec())],
        exports: vec![
            Export::flag("HF_token", "hf_abc"),
            Export {
                name: "NAME".into(),
                value: "two words".into(),
                origin: VariableOrigin::File { file: ".deepspeed_env".into(), line: 3 },
            },
            Export::flag("RAW", OsString::from_vec(vec![0xff])),
            Export {
                name: "NCCL_DEBUG".into(),
                value: "INFO".into(),
                origin: VariableOrigin::Propagated,
            },
        ],
        ..spec()
    }
}

fn settings() -> PlanSettings {
    PlanSettings {
        node: None,
        max_restarts: 3,
        grace_ms: 10_000,
        streams: None,
        numa_binding: None,
        program: None,
        elastic: None,
        options: Vec::new(),
    }
}

fn plan_table(plan: &LaunchPlan, secrets: Secrets) -> String {
    show_plan(plan, &settings(), secrets)
}

fn plan_json(plan: &LaunchPlan, secrets: Secrets) -> String {
    let mut text = Vec::new();
    write_plan_json(&mut text, plan, &settings(), secrets).expect("writing to memory cannot fail");
    String::from_utf8(text).expect("JSON is UTF-8")
}

#[test]
fn plan_document_matches_golden_file() {
    check_expected(
        "tests/plan/full.json".as_ref(),
        &plan_json(&planned(&full_spec()), Secrets::Masked),
    );
}

#[test]
fn plan_names_the_numbers_of_nodes_and_the_spares() {
    let shown = |min_nodes, spares: &[&str]| {
        let spares = spares.iter().map(|name| host(name)).collect();
        let elastic = Some(ElasticSettings { min_nodes, max_nodes: 2, spares });
        let plan = planned(&spec());
        let text = show_plan(&plan, &PlanSettings { elastic, ..settings() }, Secrets::Masked);
        text.lines().find(|line| line.starts_with("workers run on")).map(str::to_owned)
    };
    let line = |text: &str| Some(text.to_owned());
    assert_eq!(shown(1, &[]), line("workers run on 1 to 2 nodes; this plan has 2"));
    assert_eq!(shown(2, &["n3"]), line("workers run on 2 nodes; ready as spares: n3"));
    let both = "workers run on 1 to 2 nodes; this plan has 2; ready as spares: n[3-4]";
    assert_eq!(shown(1, &["n3", "n4"]), line(both));
}

#[test]
fn plan_table_matches_golden_file() {
    check_expected(
        "tests/plan/full.expected".as_ref(),
        &plan_table(&planned(&full_spec()), Secrets::Masked),
    );
}

fn large(hosts: u32, slots: u32) -> LaunchPlan {
    let slots: Vec<Slot> = (0..slots).map(Slot).collect();
    let nodes = (1..=hosts).map(|n| (host(&format!("n{n}")), slots.clone())).collect();
    planned(&JobSpec { nodes, ..spec() })
}

#[test]
fn table_of_a_large_plan_shows_ranges() {
    let table = |plan: &LaunchPlan| {
        let shown = plan_table(plan, Secrets::Masked);
        shown.split("\n\n").next().expect("a table").to_owned()
    };
    assert_eq!(
        table(&large(4096, 64)),
        "node    host       ranks     slots\n0-4095  n[1-4096]  0-262143  0-63 each"
    );
    assert_eq!(table(&large(64, 2)).lines().count(), 65);
    let mut uneven = spec();
    uneven.nodes = (0..100).map(|n| (host(&format!("n{n}")), vec![Slot(0)])).collect();
    uneven.nodes[40].1 = [0, 1, 3, 5, 6, 7].map(Slot).to_vec();
    assert_eq!(
        table(&planned(&uneven)),
        "node   host      ranks   slots\n0-39   n[0-39]   0-39    0 each\n\
         40     n40       40-45   0-1,3,5-7\n41-99  n[41-99]  46-104  0 each"
    );
}

#[test]
fn secrets_are_shown_only_on_request() {
    let plan = planned(&full_spec());
    for show in [plan_json, plan_table] {
        assert!(!show(&plan, Secrets::Masked).contains("hf_abc"));
        assert!(show(&plan, Secrets::Shown).contains("hf_abc"));
    }
}

fn some_spec() -> impl Strategy<Value = JobSpec> {
    let nodes = proptest::collection::vec(proptest::collection::btree_set(0u32..16, 1..9), 1..9);
    let bytes = proptest::collection::vec(1u8..=255, 0..6);
    let args = proptest::collection::vec(bytes.prop_map(OsString::from_vec), 0..4);
    (nodes, args, any::<Option<u16>>()).prop_map(|(nodes, args, master_port)| JobSpec {
        nodes: nodes
            .into_iter()
            .enumerate()
            .map(|(index, slots)| {
                (host(&format!("h{index}")), slots.into_iter().map(Slot).collect())
            })
            .collect(),
        args,
        master_port: RendezvousPort::or_usual(master_port),
        conventions: Conventions::DeepSpeed,
        ..spec()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn equal_input_gives_equal_bytes(spec in some_spec()) {
        let (first, second) = (planned(&spec), planned(&spec.clone()));
        prop_assert_eq!(digest(&first), digest(&second));
        prop_assert_eq!(plan_json(&first, Secrets::Shown), plan_json(&second, Secrets::Shown));
        prop_assert_eq!(first, second);
    }

    #[test]
    fn ranks_are_dense_and_match_the_environment(spec in some_spec()) {
        let plan = planned(&spec);
        let ranks: Vec<u32> = workers(&plan).map(|worker| worker.rank.0).collect();
        prop_assert_eq!(ranks, (0..plan.world_size).collect::<Vec<_>>());
        for node in &plan.nodes {
            let local: Vec<u32> = node.workers.iter().map(|worker| worker.local_rank.0).collect();
            prop_assert_eq!(local, (0..node.workers.len() as u32).collect::<Vec<_>>());
            let slots: Vec<Slot> = node.workers.iter().map(|worker| worker.slot).collect();
            prop_assert_eq!(&slots, &node.slots);
            for worker in &node.workers {
                let env = bound(worker);
                prop_assert_eq!(&env["RANK"], &worker.rank.to_string());
                prop_assert_eq!(&env["LOCAL_RANK"], &worker.local_rank.to_string());
                prop_assert_eq!(&env["NODE_RANK"], &node.node_rank.to_string());
                prop_assert!(worker.env().is_sorted_by(|left, right| left.0 < right.0));
            }
        }
    }

    #[test]
    fn arguments_arrive_byte_for_byte(spec in some_spec()) {
        for worker in workers(&planned(&spec)) {
            prop_assert!(argv(worker).ends_with(&spec.args));
        }
    }

    #[test]
    fn plan_document_has_all_nodes_and_workers(spec in some_spec()) {
        let plan = planned(&spec);
        let document: serde_json::Value =
            serde_json::from_str(&plan_json(&plan, Secrets::Shown)).expect("JSON");
        prop_assert_eq!(&document["version"], 1);
        prop_assert_eq!(&document["world_size"], plan.world_size);
        prop_assert_eq!(document["master_port"].as_u64(), plan.master_port.given().map(u64::from));
        let nodes = document["nodes"].as_array().expect("nodes");
        prop_assert_eq!(nodes.len(), plan.nodes.len());
        for (found, node) in nodes.iter().zip(&plan.nodes) {
            prop_assert_eq!(found["workers"].as_array().map(Vec::len), Some(node.workers.len()));
        }
    }
}
