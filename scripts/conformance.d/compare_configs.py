"""Compares how remuda and DeepSpeed read the same `ds_config.json`.

    compare_configs.py --remuda FILE --python PYTHON [--count N] [--seed N] [--record FILE]
    compare_configs.py --remuda FILE --replay FILE

The first form asks DeepSpeed (configs.py), the second one compares with recorded answers, and needs neither torch
nor deepspeed. remuda's reading is the document of `config check --json`. A difference without a rule is a failure;
it is reduced to a minimal file. The names of the rules stand in COMPAT.md.
"""

import collections
import json
import os
import subprocess

import comparison
import config_rules
import generate_configs

SHOWN_MAX = 30
# Files of one call of remuda.
BATCH = 100


class Remuda:
    """remuda's reading of configurations."""

    def __init__(self, program, scratch):
        self.program, self.scratch = program, scratch

    def read(self, cases):
        """The readings of some cases with the same number of ranks."""
        paths = []
        for number, case in enumerate(cases):
            path = os.path.join(self.scratch, f"{number}.json")
            with open(path, "wb") as file:
                file.write(case["text"].encode())
            paths.append(path)
        ranks = str(cases[0]["world_size"])
        ran = subprocess.run(
            [self.program, "config", "check", "--json", "--world_size", ranks, *paths],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
        )
        if ran.returncode not in (0, 1):
            raise SystemExit(f"error: remuda ended with {ran.returncode}: {ran.stderr.decode(errors='replace')}")
        document = json.loads(ran.stdout)
        errors = collections.defaultdict(list)
        for found in document["diagnostics"]:
            if found["severity"] == "error":
                errors[found["file"]].append(found)
        return [self.reading(found, errors[found["file"]]) for found in document["configs"]]

    def reading(self, config, errors):
        if errors:
            return {"refused": [{"code": found["code"], "text": found["message"]} for found in errors]}
        return {"values": {found["key"]: found["value"] for found in config["values"]}}

    def read_all(self, cases):
        """The readings of cases with any numbers of ranks, in their order."""
        readings = [None] * len(cases)
        by_ranks = collections.defaultdict(list)
        for number, case in enumerate(cases):
            by_ranks[case["world_size"]].append(number)
        for numbers in by_ranks.values():
            for start in range(0, len(numbers), BATCH):
                part = numbers[start : start + BATCH]
                for number, reading in zip(part, self.read([cases[number] for number in part])):
                    readings[number] = reading
        return readings


class Peer:
    """DeepSpeed."""

    def __init__(self, python, scratch):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "configs.py")
        self.process = subprocess.Popen([python, "-B", script, scratch], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self, case):
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"error: DeepSpeed ended at {case}")
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def differences(case, ours, theirs):
    """Pairs of a rule, or None, and a text."""
    if "refused" in ours and "refused" in theirs:
        return []
    if "refused" in ours:
        return [(config_rules.of_our_refusal(case, error), f"remuda refuses ({error['code']} {error['text']}), DeepSpeed does not") for error in ours["refused"]]
    if "refused" in theirs:
        refused = theirs["refused"]
        rule = config_rules.of_their_refusal(case, refused)
        return [(rule, f"DeepSpeed refuses ({refused['type']}: {refused['text']}), remuda does not")]
    found = []
    for key, other in theirs["values"].items():
        one = ours["values"].get(key, "absent")
        if one != other:
            found.append((config_rules.of_value(case, key, one, other), f"{key}: remuda {one!r}, DeepSpeed {other!r}"))
    return [pair for pair in found if pair[0] != config_rules.SAME]


def smaller(case):
    """The same case with less text."""
    text = case["text"]
    size = len(text) // 2
    while size:
        for at in range(0, len(text), size):
            yield {**case, "text": text[:at] + text[at + size :]}
        size //= 2
    if case["world_size"] != 1:
        yield {**case, "world_size": 1}


def unexplained(case, remuda, peer):
    return comparison.unexplained(differences(case, remuda.read([case])[0], peer.read(case)))


def take(tally, case, ours, theirs):
    tally.take(case, differences(case, ours, theirs), "refused" in ours)


def shrink(case, remuda, peer, kind):
    tries = 0
    while tries < 2000:
        for other in smaller(case):
            tries += 1
            if any(kind_of(text) == kind for text in unexplained(other, remuda, peer)):
                case = other
                break
        else:
            return case
    return case


def kind_of(text):
    """A text without its numbers and quoted words."""
    return "".join(" " if letter.isdigit() else letter for letter in text)[:70]


def compare(options, scratch):
    remuda, peer = Remuda(options.remuda, scratch), Peer(options.python, scratch)
    cases = list(generate_configs.cases(options.count, options.seed))
    theirs = [peer.read(case) for case in cases]
    tally = comparison.Tally("files")
    for case, ours, other in zip(cases, remuda.read_all(cases), theirs):
        take(tally, case, ours, other)
    print(tally.table("deepspeed"))
    shown = {}
    for case, texts in tally.failed:
        shown.setdefault(kind_of(texts[0]), []).append(case)
    for kind, failed in list(shown.items())[:SHOWN_MAX]:
        small = shrink(min(failed, key=lambda case: len(case["text"])), remuda, peer, kind)
        print(f"\n{len(failed)} x {json.dumps(small)}")
        print("\n".join(f"    {text}" for text in unexplained(small, remuda, peer)))
    peer.end()
    if options.record:
        comparison.record(options.record, zip(cases, theirs))
    return not tally.failed


def replay(options, scratch):
    remuda, tally = Remuda(options.remuda, scratch), comparison.Tally("files")
    recorded = comparison.recorded(options.replay)
    readings = remuda.read_all([found["case"] for found in recorded])
    for found, ours in zip(recorded, readings):
        take(tally, found["case"], ours, found["theirs"])
    tally.report_replay(options.replay, SHOWN_MAX)
    return not tally.failed


if __name__ == "__main__":
    comparison.run(__doc__, "configs", 5000, compare, replay)
