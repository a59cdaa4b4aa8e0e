#!/usr/bin/env python3
"""This build beside an older one, in the same rounds: failures, pods, training.

REMUDA_BEFORE names the directory of the older release executables (`target/release` of a checkout). The
ratio is the median over rounds of this build's figure divided by the older one's; 1 is equal. The other
benches (`launch`, `logs`, `ssh`, `collectives`, `slurm`) measure the older build themselves.
"""

import argparse
import statistics
import sys

import fail
import harness
import pods
import trained

NODES = 8
PODS = 3
MODELS = {"gpt": 60, "mlp": 180}
BEFORE, NOW = "remuda before", "remuda"


def after_failure(case):
    def figure(program):
        with harness.scratch() as directory:
            return case(program, directory, fail.Simulated(directory, NODES), NODES)["s"] * 1000

    return figure


def of_pods(case, *more, key="s", scale=1000):
    def figure(program):
        with harness.scratch() as directory:
            running = pods.Pods(program, directory, PODS)
            try:
                return case(running, *more)[key] * scale
            finally:
                running.stop()

    return figure


def step_time(model, workers):
    return lambda program: trained.finish(trained.start(program, model, workers, MODELS[model]))["median"]


def cases():
    """Figure of a program, by its name."""
    found = {f"{name}, ms": after_failure(case) for name, case in fail.CASES.items()}
    found["last pod started → first worker's program, ms"] = of_pods(pods.first_exec, PODS - 1)
    found["node 0 started last → first worker's program, ms"] = of_pods(pods.first_exec, 0)
    found["pods: worker killed → all others got SIGTERM, ms"] = of_pods(pods.kill_worker)
    found["processes of a pod, PSS MB"] = of_pods(pods.memory, key="others_mb", scale=1)
    found["processes of pod 0, PSS MB"] = of_pods(pods.memory, key="node_0_mb", scale=1)
    for model in MODELS:
        for workers in (1, 2):
            found[f"step of {model}, workers: {workers}, ms"] = step_time(model, workers)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()

    builds = harness.builds()
    if BEFORE not in builds:
        sys.exit("set REMUDA_BEFORE to the directory of an older build's release executables")
    rows, results = [], {}
    for name, figure in cases().items():
        once = {build: lambda program=program: {"x": figure(program)} for build, program in builds.items()}
        found = harness.interleaved(once, options.rounds)
        pairs = zip(found[BEFORE], found[NOW])
        share = statistics.median(now["x"] / before["x"] for before, now in pairs)
        rows.append([name, *(harness.spread(found[build], "x", 1) for build in (BEFORE, NOW)), f"{share:.2f}"])
        results[name] = {"figures": found, "ratio": share}
    print(f"{options.rounds} rounds: median (minimum–maximum)\n")
    harness.table(["", "before", "now", "ratio"], rows)
    harness.save("before", results)


if __name__ == "__main__":
    main()
