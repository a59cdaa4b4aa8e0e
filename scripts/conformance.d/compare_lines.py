"""Compares how remuda and another launcher read the same lines.

    compare_lines.py --remuda FILE --peer torchrun|accelerate --python PYTHON [--count N] [--seed N] [--record FILE]
    compare_lines.py --remuda FILE --replay FILE

The first form asks the real launcher (launchers.py), the second one compares with recorded answers, and needs
neither torch nor accelerate. remuda's reading is the document of `--dry-run --json`. A difference without a
rule is a failure; it is reduced to a minimal line. The names of the rules stand in COMPAT.md.
"""

import collections
import json
import os
import re
import string
import subprocess

import comparison
import generate_lines
import line_rules

STREAMS = {"none": 0, "stdout": 1, "stderr": 2, "both": 3}
# Variables of a worker that torch's agent sets; they follow from the settings.
AGENT_VARIABLES = {
    "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RANK",
    "REMUDA_JOB", "REMUDA_RUN_PATH", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCHELASTIC_USE_AGENT_STORE", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "WORLD_SIZE",
}
COMMANDS = {
    "torchrun": ["torchrun"],
    "distributed_launch": ["torch.distributed.launch"],
    "accelerate": ["accelerate", "launch"],
}
SHOWN_MAX = 40
# Stands for the directory of a comparison.
HERE = "@here@"


def base_environment(scratch):
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": scratch, "LC_ALL": "C.UTF-8"}


def streams(value):
    """A set of streams as numbers by local rank, without those that are 0."""
    if isinstance(value, dict):
        of = {int(rank): STREAMS.get(one, one) for rank, one in value.items()}
        return {str(rank): one for rank, one in sorted(of.items()) if one}
    value = STREAMS.get(value, value)
    return {"every": value} if value else {}


class Remuda:
    """remuda's reading of a line."""

    def __init__(self, program, scratch):
        self.program, self.scratch = program, scratch

    def read(self, case):
        if case.get("config") is not None:
            with open(os.path.join(self.scratch, "config.yaml"), "w", encoding="utf-8") as file:
                file.write(case["config"])
        ran = subprocess.run(
            [self.program, *COMMANDS[case["kind"]], "--dry-run", "--json", *case["argv"]],
            cwd=self.scratch,
            env={**base_environment(self.scratch), **case["env"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
        )
        out, err = ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace")
        if ran.returncode:
            code = re.search(r"error\[(\w+)\]", err)
            return {"refused": {"status": ran.returncode, "type": code and code[1], "text": err.strip()}}
        if not out.startswith("{"):
            return {"text": True}
        return self.settings(json.loads(out.replace(self.scratch, HERE)), case)

    def settings(self, plan, case):
        nodes, settings = plan["nodes"], plan["settings"]
        first = next(node["workers"] for node in nodes if node["workers"])
        env = first[0]["env"]
        command = list(first[0]["argv"])
        if re.fullmatch(r".*/python3?", command[0]) and "python3" not in case["argv"]:
            command[0] = "PYTHON"
        found = {"command": command, "env": {k: v for k, v in env.items() if k not in AGENT_VARIABLES}}
        if "RANK" not in env or "TORCHELASTIC_SIGNALS_TO_HANDLE" not in env:
            return {**found, "launcher": "deepspeed"} if "RANK" in env else found
        elastic = settings["elastic"]
        least = elastic["min_nodes"] if elastic else len(nodes)
        found["nodes"] = len(nodes) if least == len(nodes) else [least, len(nodes)]
        found["workers"] = len(first)
        found["node"] = settings["node"]
        found["run_id"] = env["TORCHELASTIC_RUN_ID"]
        found["role"] = env["ROLE_NAME"]
        found["max_restarts"] = int(env["TORCHELASTIC_MAX_RESTARTS"])
        found["shutdown_timeout"] = settings["grace_ms"] / 1000
        found["signals"] = env["TORCHELASTIC_SIGNALS_TO_HANDLE"]
        found["address"], found["port"] = plan["master_addr"], plan["master_port"]
        if len(first) > 1:
            found["virtual"] = first[1]["env"]["LOCAL_RANK"] == "0"
        of = settings["streams"]
        if of is not None:
            found["redirects"], found["tee"] = streams(of["redirects"]), streams(of["tee"])
            found["log_dir"], found["prefix"] = of["log_dir"], of["tee_prefix"]
            found["shown"] = of["shown_local_ranks"]
            found["stdout_filters"], found["stderr_filters"] = of.get("stdout_filters", []), of.get("stderr_filters", [])
            found["numa"] = settings.get("numa_binding")
        return found


def prefix(template, role):
    """torchrun's prefix with remuda's placeholders."""
    template = template or "[${role_name}${local_rank}]:"
    names = {"role_name": role, "local_rank": "{local_rank}", "rank": "{rank}", "hostname": "{host}"}
    return string.Template(template).safe_substitute(names)


def peer_settings(answer, case):
    """The answer of launchers.py with the names of `Remuda.settings`."""
    if "agent" not in answer and "command" not in answer:
        return answer
    base = {**base_environment(HERE), **case["env"]}
    env = {k: v for k, v in answer["env"].items() if base.get(k) != v and k not in AGENT_VARIABLES}
    if "command" in answer:
        return {"command": answer["command"], "env": env}
    of = answer["agent"]
    least, most = of["nodes"]
    command = list(of["command"])
    if command[0] == "run_path":
        command = ["PYTHON", "run_path", *command[1:]]
    command = [string.Template(word).safe_substitute(local_rank="0") for word in command]
    is_static = of["backend"] == "static"
    return {
        "command": command,
        "env": env,
        "nodes": most if least == most else [least, most],
        "workers": of["workers"],
        "node": int(of["conf"].get("rank", 0)) if is_static and most > 1 else None,
        "run_id": of["run_id"],
        "role": of["role"],
        "max_restarts": of["max_restarts"],
        "shutdown_timeout": of["shutdown_timeout"],
        "signals": of["signals"],
        "address": of["address"],
        "port": of["port"] if is_static else None,
        "virtual": of["virtual"],
        "redirects": streams(of["redirects"]),
        "tee": streams(of["tee"]),
        "log_dir": of["log_dir"],
        "prefix": prefix(of["prefix"], of["role"]),
        "shown": of["shown"],
        "stdout_filters": of["stdout_filters"],
        "stderr_filters": of["stderr_filters"],
        "numa": of["numa"],
        "backend": of["backend"],
    }


def shape(reading):
    return "refused" if "refused" in reading else "text" if "text" in reading else "job"


def differences(case, ours, theirs):
    """Pairs of a rule, or None, and a text."""
    shapes = shape(ours), shape(theirs)
    if shapes == ("refused", "refused") or shapes == ("text", "text"):
        return []
    if shapes != ("job", "job"):
        text = f"remuda {ours if shapes[0] != 'job' else 'starts'}, peer {theirs if shapes[1] != 'job' else 'starts'}"
        return [(line_rules.of_refusal(case, ours, theirs), text)]
    found = []
    if theirs["command"][0] == "deepspeed":
        # The nodes are those of `remuda run`, which has a comparison of its own.
        names = {name for name in {*ours["env"], *theirs["env"]} if name.startswith("ACCELERATE_")}
        ours = {"env": {name: ours["env"][name] for name in names if name in ours["env"] and name != "ACCELERATE_USE_CPU"}}
        theirs = {"env": {name: theirs["env"][name] for name in names if name in theirs["env"]}}
        found.append(("deepspeed-nodes", ""))
    for key in ours:
        if key == "env":
            continue
        if key not in theirs or ours[key] != theirs[key]:
            rule = line_rules.of_setting(case, key, ours, theirs)
            found.append((rule, f"{key}: remuda {ours[key]!r}, peer {theirs.get(key)!r}"))
    for name in sorted({*ours["env"], *theirs["env"]}):
        one, other = ours["env"].get(name, "-"), theirs["env"].get(name, "-")
        if other == "-" and one == case["env"].get(name):
            continue
        # A variable of remuda's that is null has a value only if the environment has none.
        if one is None and (name in case["env"] or other != "-"):
            continue
        if one != other:
            rule = line_rules.of_variable(case, name, ours, theirs)
            found.append((rule, f"{name}: remuda {one!r}, peer {other!r}"))
    return [pair for pair in found if pair[0] != line_rules.SAME]


class Peer:
    """The real launcher."""

    def __init__(self, python, scratch):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launchers.py")
        command = [python, "-B", script, scratch]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.scratch = scratch

    def read(self, case):
        question = {**case, "env": {**base_environment(self.scratch), **case["env"]}}
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"error: the launcher ended at {case}")
        return peer_settings(json.loads(line.replace(self.scratch, HERE)), case)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def smaller(case):
    """The same case with one part less."""
    for at in range(len(case["argv"])):
        yield {**case, "argv": case["argv"][:at] + case["argv"][at + 1 :]}
    for name in case["env"]:
        yield {**case, "env": {other: value for other, value in case["env"].items() if other != name}}
    lines = (case.get("config") or "").splitlines(keepends=True)
    for at in range(len(lines)):
        yield {**case, "config": "".join(lines[:at] + lines[at + 1 :])}


def unexplained(case, remuda, peer):
    return comparison.unexplained(differences(case, remuda.read(case), peer.read(case)))


def take(tally, case, ours, theirs):
    tally.take(case, differences(case, ours, theirs), shape(ours) == "refused")


def shrink(case, remuda, peer):
    while True:
        for other in smaller(case):
            if unexplained(other, remuda, peer):
                case = other
                break
        else:
            return case


def prepare(scratch):
    """Files that lines name."""
    for name in ("train.py", "a b.py", "ds.json", "hosts"):
        with open(os.path.join(scratch, name), "w", encoding="utf-8") as file:
            file.write("n1 slots=4\nn2 slots=4\n" if name == "hosts" else "{}\n")


def compare(options, scratch):
    prepare(scratch)
    remuda, peer = Remuda(options.remuda, scratch), Peer(options.python, scratch)
    tally, kept, by_text = comparison.Tally("lines"), [], collections.Counter()
    for case in generate_lines.cases(options.peer, options.count, options.seed):
        theirs = peer.read(case)
        take(tally, case, remuda.read(case), theirs)
        if options.record:
            kept.append((case, theirs))
    print(tally.table(options.peer))
    shown, first = {}, {}
    for case, texts in tally.failed:
        kind = re.sub(r"'[^']*'|\d+", "…", texts[0])[:120]
        if kind not in shown and len(shown) < SHOWN_MAX:
            shown[kind], first[kind] = case, texts
        by_text[kind] += 1
    smallest = {}
    for kind, case in shown.items():
        small = shrink(case, remuda, peer)
        texts = unexplained(small, remuda, peer) or ["not repeated", *first[kind]]
        smallest[json.dumps(small)] = (by_text[kind], texts)
    for small, (count, texts) in smallest.items():
        print(f"\n{count} x {small}")
        print("\n".join(f"    {text}" for text in texts))
    peer.end()
    if options.record:
        comparison.record(options.record, kept)
    return not tally.failed


def replay(options, scratch):
    prepare(scratch)
    remuda, tally = Remuda(options.remuda, scratch), comparison.Tally("lines")
    for found in comparison.recorded(options.replay):
        take(tally, found["case"], remuda.read(found["case"]), found["theirs"])
    tally.report_replay(options.replay, SHOWN_MAX)
    return not tally.failed


if __name__ == "__main__":
    comparison.run(__doc__, "lines", 1000, compare, replay, peers=generate_lines.PEERS)
