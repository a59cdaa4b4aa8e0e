//! Generator of lines: usual ones, and some with errors.

use crate::support::proof::Random;

/// Options of DeepSpeed with valid values, and some invalid ones.
const OPTIONS: &[(&str, &[&str])] = &[
    ("--hostfile", &["@here@/hosts", "@here@/hosts", "@here@/missing", "@here@"]),
    ("--include", &["localhost", "w0", "w1:0", "w0@w1:0,1", "w9", "", "localhost:0", "w1:7", " "]),
    ("--exclude", &["localhost:0", "w0", "w1:0", "w0@w1", "w9", "", "-1", "localhost"]),
    ("--num_nodes", &["1", "2", "3", "-1", "0", "1_0", " 2", "+1", "x", "", "0x1", "1.0", "99"]),
    ("--num_gpus", &["1", "2", "4", "-1", "0", "08", "x", "9", "99999999999999999999"]),
    ("--num_accelerators", &["1", "2", "3"]),
    ("--master_port", &["29500", "1234", "0", "-1", "65536", "x", "4_000"]),
    ("--master_addr", &["10.1.2.3", "node-7", "", "a b"]),
    ("--node_rank", &["0", "1", "-1", "5", "x"]),
    ("--launcher", &["pdsh", "PDSH", "openmpi", "slurm", "mpich", "impi", "mvapich", "foo", ""]),
    (
        "--launcher_args",
        &["", "-f 8", "-l ada -S", "-R ssh", "-x y", "-x", "--mca a b", "'a b' c", "'", "a\\"],
    ),
    ("--enable_each_rank_log", &["None", "", "logs"]),
    ("--autotuning", &["tune", "run", "x", ""]),
    ("--bind_core_list", &["0", "0-1", "0,2-4", "4-2", "a", "", "1-2-3", "0,0"]),
    ("--ssh_port", &["22", "2222", "0", "-5", "x"]),
    ("--venv_script", &["venv/bin/activate", "", "a b"]),
    ("--log_level", &["debug", "info", "warning", "error", "critical", "INFO", "x"]),
];
const SWITCHES: &[&str] = &[
    "--module",
    "--no_python",
    "--no_local_rank",
    "--no_ssh",
    "--no_ssh_check",
    "--force_multi",
    "--save_pid",
    "--bind_cores_to_rank",
    "--quiet",
    "-q",
    "-h",
    "--help",
];
/// Options of most lines.
const USUAL: &[&str] =
    &["--hostfile", "--include", "--exclude", "--num_nodes", "--num_gpus", "--master_port"];
const SHORT: &[(&str, &str)] = &[("--hostfile", "-H"), ("--include", "-i"), ("--exclude", "-e")];
const UNUSUAL_WORDS: &[&str] = &[
    "--",
    "-",
    "--x",
    "-x",
    "-1",
    "-1.5",
    "--num",
    "--m",
    "--launch",
    "--no_s",
    "--bind",
    "-qH",
    "--=",
    "---",
    "-q5",
    "--num-gpus",
    "--dry-run",
    "--timeout=5",
    "--elastic_training",
    "--min_elastic_nodes=1",
    "-n",
    "--quiet=yes",
    "- -",
    "-H",
    "--module=",
    "--log_l",
    "--ssh",
    "--env",
    "-qh",
    "-iw0",
    "-e=w0",
    "--no_ssh_",
    "",
    "-qq",
];
const SCRIPTS: &[&str] = &[
    "train.py",
    "train.py",
    "train.py",
    "pkg.mod",
    "/opt/a b.py",
    "-",
    "-1",
    "a=b",
    "run",
    "é.py",
];
const ARGUMENTS: &[&[u8]] = &[
    b"--lr",
    b"0.1",
    b"--",
    b"--num_gpus",
    b"3",
    b"-H",
    b"",
    b" ",
    b"a b",
    b"$HOME",
    b"*.py",
    b"it's",
    b"say \"x\"",
    b"a\nb",
    b"a\tb",
    b"\\",
    b"--local_rank=7",
    b"\xff\xfe",
    b"%n",
    b"%h",
    b"`id`",
    b"x>y",
    b"q&",
    b"-h",
    b"\xc3\xa9",
    b"I'm going to tell them \"DeepSpeed is the best\"",
];

const DEVICES: &[&str] = &[
    "0",
    "1,0",
    "0,1",
    "3,1",
    "2",
    "1,1",
    "",
    "9",
    "0,9",
    "-1",
    "GPU-1",
    "GPU-1,GPU-2",
    "MIG-7",
    " 1, 2",
    "0,1,2,3",
    "x",
];
/// Variables, most of which are passed to other nodes.
const PROPAGATED_VARIABLES: &[&[u8]] = &[
    b"NCCL_DEBUG=INFO",
    b"NCCL_IB_HCA=mlx5",
    b"UCX_NET_DEVICES=eth0",
    b"UCX_TLS=tcp",
    b"MLFLOW_URI=http://x?y=1&z",
    b"MV2_X=",
    b"PYTHONPATH=/a:/b",
    b"PYTHONPATH=",
    b"PYTHONIOENCODING=utf8",
    b"PYTHON_NOTE= two words ",
    b"NCCL_NOTE=$HOME",
    b"NCCL_QUOTED=a\"b",
    b"UCX_RUN=`echo ran`",
    b"AISC_JOB_NAME=j",
    b"CUDA_HOME=/c",
    b"MYNCCL=1",
    b"OMP_NUM_THREADS=3",
    b"LD_LIBRARY_PATH=/l",
];
/// Lines of env files; the last of them are errors in both launchers, or only in remuda.
const ENV_LINES: &[&str] = &[
    "A=1",
    "NCCL_DEBUG=WARN",
    "B=two words",
    "C=$HOME",
    "D=\"q u\"",
    "E='single'",
    "",
    "# a note",
    "# a=1",
    "export F=2",
    "G=",
    "H = 3",
    "PYTHONPATH=/x",
    "I=a=b",
    "J=`echo ran`",
    "K=a;b",
    "L=64(x2)",
    "M=a\\nb",
    "N=\u{e9}",
    "A=2",
    "P=a b # c",
    "Q=\"it's\" # why",
    "RANK=3",
    "MASTER_PORT=1",
    "9X=1",
    "a word",
    "export",
    "R=\"open",
    "S=\"a\" b",
    "=1",
];
/// Number of those.
const ENV_LINES_BAD: usize = 8;

/// Generates a line that is usually valid, often with a hostfile, sometimes with one unusual word.
pub(crate) fn generate(random: &mut Random) -> Vec<Vec<u8>> {
    let mut case: Vec<Vec<u8>> = Vec::new();
    let with_hosts = random.below(2) == 0;
    if with_hosts {
        for host in 0..=random.below(3) {
            let name =
                if random.below(12) == 0 { "localhost".to_owned() } else { format!("w{host}") };
            let most = if name == "localhost" { 6 } else { 4 };
            case.push(format!("F{name} slots={}", 1 + random.below(most)).into_bytes());
        }
    }
    some_environment(random, with_hosts, &mut case);
    let mut words: Vec<String> = Vec::new();
    if with_hosts {
        option(random, "--hostfile", "@here@/hosts", &mut words);
    }
    for _ in 0..random.below(4) {
        some_option(random, &mut words);
    }
    if random.below(8) == 0 {
        let at = random.below(words.len() + 1);
        words.insert(at, UNUSUAL_WORDS[random.below(UNUSUAL_WORDS.len())].to_owned());
    }
    if random.below(40) != 0 {
        words.push(SCRIPTS[random.below(SCRIPTS.len())].to_owned());
    }
    case.extend(words.into_iter().map(|word| format!("A{word}").into_bytes()));
    for _ in 0..random.below(4) {
        let argument = ARGUMENTS[random.below(ARGUMENTS.len())];
        case.push([b"A", argument].concat());
    }
    case
}

/// Adds hidden devices, variables that are passed on, and env files.
fn some_environment(random: &mut Random, with_hosts: bool, case: &mut Vec<Vec<u8>>) {
    if random.below(if with_hosts { 12 } else { 3 }) == 0 {
        let value = DEVICES[random.below(DEVICES.len())];
        case.push(format!("ECUDA_VISIBLE_DEVICES={value}").into_bytes());
    }
    if random.below(12) == 0 {
        case.push(b"EDS_ACCELERATOR=cpu".to_vec());
        if random.below(2) == 0 {
            case.push(format!("ELOCAL_SIZE={}", random.below(4)).into_bytes());
        }
    }
    if random.below(4) == 0 {
        let first = random.below(PROPAGATED_VARIABLES.len());
        for at in 0..=random.below(3) {
            case.push(
                [b"E", PROPAGATED_VARIABLES[(first + at) % PROPAGATED_VARIABLES.len()]].concat(),
            );
        }
    }
    if random.below(4) == 0 {
        let usual = ENV_LINES.len() - ENV_LINES_BAD;
        for _ in 0..=random.below(3) {
            let among = if random.below(4) == 0 { ENV_LINES.len() } else { usual };
            let place = if random.below(2) == 0 { b'H' } else { b'D' };
            case.push([&[place], ENV_LINES[random.below(among)].as_bytes()].concat());
        }
        if random.below(6) == 0 {
            let name = ["other.env", "missing.env"][random.below(2)];
            case.push(format!("EDS_ENV_FILE={name}").into_bytes());
        }
    }
}

fn some_option(random: &mut Random, words: &mut Vec<String>) {
    if random.below(4) == 0 {
        let usual = SWITCHES.len() - 2;
        let among = if random.below(20) == 0 { SWITCHES.len() } else { usual };
        let switch = SWITCHES[random.below(among)];
        words.push(abbreviated(random, switch));
        return;
    }
    let name = USUAL[random.below(USUAL.len())];
    let any = OPTIONS[random.below(OPTIONS.len())].0;
    let name = if random.below(2) == 0 { name } else { any };
    let values =
        OPTIONS.iter().find(|(known, _)| *known == name).map_or(&["1"][..], |(_, values)| values);
    // The first values of each list are valid.
    let among = if random.below(6) == 0 { values.len() } else { values.len().min(3) };
    let value = values[random.below(among)];
    option(random, name, value, words);
}

fn option(random: &mut Random, name: &str, value: &str, words: &mut Vec<String>) {
    if let Some((_, short)) = SHORT.iter().find(|(long, _)| *long == name)
        && random.below(3) == 0
    {
        match random.below(3) {
            0 => words.extend([(*short).to_owned(), value.to_owned()]),
            1 => words.push(format!("{short}{value}")),
            _ => words.push(format!("{short}={value}")),
        }
        return;
    }
    let name = abbreviated(random, name);
    if random.below(3) == 0 {
        words.push(format!("{name}={value}"));
    } else {
        words.extend([name, value.to_owned()]);
    }
}

/// Some options are typed in part.
fn abbreviated(random: &mut Random, name: &str) -> String {
    if !name.starts_with("--") || random.below(5) != 0 {
        return name.to_owned();
    }
    name[..3 + random.below(name.len() - 2)].to_owned()
}
