#!/usr/bin/env python3
"""All-reduce between hosts over links that bound each TCP connection: several streams, and the ring.

The hosts are network namespaces on a bridge; `tc` bounds the whole rate of a host and the rate of each TCP
connection, as the hash of a switch or the processor of a virtual network card does. Figures are the bus
bandwidth, which is the rate at which every host sends, medians over interleaved rounds, and its fraction of
what the bound permits: the number of streams times the rate of a connection, at most the rate of the host.
Needs root, and `ip`, `tc` and `nft`.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess

import harness

# Classes of `tc` between which connections are spread; two connections seldom have the same one.
CLASSES = 1024
BRIDGE = "switch"


class Hosts:
    """Namespaces with one address each; `with` removes them."""

    def __init__(self, count, host_mbit, flow_mbit, directory):
        self.count, self.host_mbit, self.flow_mbit = count, host_mbit, flow_mbit
        self.directory = pathlib.Path(directory)
        self.prefix = f"remuda-bench-{os.getpid()}-"
        self.key = self.directory / "key"
        self.key.write_bytes(os.urandom(32))
        self.key.chmod(0o600)
        self.hostfile = self.directory / "hosts"
        self.hostfile.write_text("".join(f"{self.address(host)} slots=1\n" for host in range(count)))

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def __enter__(self):
        try:
            self.connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def connect(self):
        self.add(BRIDGE)
        self.inside(BRIDGE, "ip link add name bridge0 type bridge && ip link set dev bridge0 up")
        for host in range(self.count):
            self.add(host)
            self.inside(
                host,
                f"ip link add name eth0 type veth peer name port{host} netns {self.prefix}{BRIDGE}"
                f" && ip addr add {self.address(host)}/24 dev eth0 && ip link set dev eth0 up",
            )
            self.inside(BRIDGE, f"ip link set dev port{host} master bridge0 up")
            self.shape(host)

    def __exit__(self, *_):
        for name in [BRIDGE, *range(self.count)]:
            subprocess.run(["ip", "netns", "del", f"{self.prefix}{name}"], check=False, stderr=subprocess.DEVNULL)

    def add(self, name):
        subprocess.run(["ip", "netns", "add", f"{self.prefix}{name}"], check=True)
        self.inside(name, "ip link set dev lo up")

    def inside(self, name, script, text=None):
        words = ["ip", "netns", "exec", f"{self.prefix}{name}", "sh", "-c", script]
        subprocess.run(words, check=True, input=text, text=True)

    def shape(self, host):
        """Bounds the rate of the host and of each connection in the direction from the host."""
        flow = f"rate 1mbit ceil {self.flow_mbit}mbit burst 64kb cburst 64kb quantum 60000"
        whole = f"rate {self.host_mbit}mbit burst 256kb cburst 256kb quantum 60000"
        batch = ["qdisc add dev eth0 root handle 1: htb", f"class add dev eth0 parent 1: classid 1:f000 htb {whole}"]
        batch += [
            f"class add dev eth0 parent 1:f000 classid 1:{number:x} htb {flow}" for number in range(1, CLASSES + 1)
        ]
        self.inside(host, "tc -batch -", "\n".join(batch) + "\n")
        rules = (
            "table ip shape { chain out { type filter hook output priority 0; meta l4proto tcp "
            f"meta priority set jhash tcp sport . tcp dport mod {CLASSES} offset 0x10001; }}; }}"
        )
        self.inside(host, "nft -f -", rules)

    def command(self, host, program, size, options, environment):
        run = [program, "bench", "all-reduce", "-b", str(size), "-e", str(size), "-n", "3", "-w", "1", "-c", "0"]
        run += ["-H", str(self.hostfile), "--no_ssh", "--node_rank", str(host), "--accelerator", "cpu"]
        run += ["--key_file", str(self.key), "--master_addr", self.address(0), "--master_port", "29500"]
        run += ["--local_addr", self.address(host), "--run_dir", str(self.directory / f"runs{host}")]
        for name, value in environment.items():
            run += ["--env", f"{name}={value}"]
        return ["ip", "netns", "exec", f"{self.prefix}{host}", *run, *options, "--json", "-q"]

    def bus_gb_s(self, program, size, options=(), environment=None):
        """Runs the all-reduce of `size` bytes on all hosts."""
        running = [
            subprocess.Popen(
                self.command(host, program, size, options, environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if host == 0 else subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            for host in range(self.count)
        ]
        outcomes = [process.communicate(timeout=300) for process in running]
        for process, (_, errors) in zip(running, outcomes):
            if process.returncode != 0:
                raise harness.Failed(f"{' '.join(process.args)} returned {process.returncode}\n{errors[-2000:]}")
        return json.loads(outcomes[0][0])["rows"][0]["busbw_gbs"]


def row(name, runs, limit_gb_s):
    """A row of the table; `limit_gb_s` is `None` if the number of connections is the program's choice."""
    median = statistics.median(runs)
    spread = f"{median * 1e3:.1f} ({min(runs) * 1e3:.1f}–{max(runs) * 1e3:.1f})"
    return [name, spread, f"{median / limit_gb_s:.2f}" if limit_gb_s else ""]


def streams(program, directory, options):
    """Two hosts; returns the medians by number of streams."""
    host_mbit = 8 * options.flow_mbit
    with Hosts(2, host_mbit, options.flow_mbit, directory) as hosts:
        cases = {
            count: lambda count=count: hosts.bus_gb_s(
                program, options.bytes, environment={"REMUDA_STREAMS": count} if count else {}
            )
            for count in [1, 2, 4, 8, 0]
        }
        results = harness.interleaved(cases, options.rounds)
    print(f"\n2 hosts of {host_mbit} Mbit/s, {options.flow_mbit} Mbit/s for each connection")
    flow_gb_s = options.flow_mbit / 8e3
    rows = [
        row(f"{count} streams" if count else "the default", runs, (count or 1) * flow_gb_s)
        for count, runs in results.items()
    ]
    harness.table(["", "MB/s", "of the bound (default: of one connection)"], rows)
    return {str(count): statistics.median(runs) for count, runs in results.items()}


def ring(program, directory, options):
    """Four hosts, whose whole rate is bounded; returns the medians by order of the reduction."""
    host_mbit = options.flow_mbit
    with Hosts(4, host_mbit, host_mbit, directory) as hosts:
        cases = {
            order: lambda order=order: hosts.bus_gb_s(program, options.bytes, ["--order", order])
            for order in ["canonical", "any"]
        }
        results = harness.interleaved(cases, options.rounds)
    print(f"\n4 hosts of {host_mbit} Mbit/s")
    names = {"canonical": "canonical order", "any": "any order (ring)"}
    harness.table(
        ["", "MB/s", "of the bound"],
        [row(names[order], runs, host_mbit / 8e3) for order, runs in results.items()],
    )
    return {order: statistics.median(runs) for order, runs in results.items()}


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=32 << 20, help="of one all-reduce")
    parser.add_argument("--flow-mbit", type=int, default=400, help="rate of one connection")
    options = parser.parse_args()
    program = harness.remuda()
    with harness.scratch() as directory:
        saved = {"streams": streams(program, directory, options), "ring": ring(program, directory, options)}
    harness.save("links", saved)


if __name__ == "__main__":
    main()
