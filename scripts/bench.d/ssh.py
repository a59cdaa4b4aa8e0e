#!/usr/bin/env python3
"""Launch of `true` on many hosts over ssh: remuda, pdsh, clush, mpirun and plain ssh.

All hosts are loopback addresses of this machine. The figures are the wall time of the complete command
and the CPU time of the launcher (without sshd and its children), as ratios to the other tools in the
same run. All tools use the same key exchange. The first launch, which sends the binary, is reported
separately.
"""

import argparse
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import harness

SSHD = "/usr/sbin/sshd"
PLAIN = "ssh & wait"
PEER = "pdsh"
REMUDA = "remuda"
# Command of each further tool, and its Debian package.
OTHERS = {"clush": "clustershell", "mpirun": "openmpi-bin"}


class Hosts:
    """sshds on loopback addresses, with the files that clients need to connect to them."""

    # Limit of the addresses on which one sshd listens.
    ADDRESSES_MAX = 16

    def __init__(self, directory, count):
        self.dir = pathlib.Path(directory)
        self.address = {f"h{at}": f"127.0.{1 + at // 250}.{1 + at % 250}" for at in range(count)}
        for key in ("host_key", "user_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.dir / key]
            subprocess.run(command, check=True)
        with socket.socket() as free:
            free.bind(("", 0))
            self.port = free.getsockname()[1]
        self.write_files()
        os.makedirs("/run/sshd", exist_ok=True)
        self.sshds = []
        addresses = list(self.address.values())
        for first in range(0, count, self.ADDRESSES_MAX):
            own = addresses[first : first + self.ADDRESSES_MAX]
            config = ["-f", self.write_sshd_config(own), "-E", self.dir / "sshd.log"]
            self.sshds.append(subprocess.Popen([SSHD, "-D", *config]))
        for address in addresses:
            self.wait_for(address)

    def wait_for(self, address):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex((address, self.port)) == 0:
                    return
            time.sleep(0.02)
        raise harness.Failed(f"no sshd listens on {address}")

    def write_files(self):
        here = self.dir
        key = " ".join((here / "host_key.pub").read_text().split()[:2])
        known = [f"[{ip}]:{self.port} {key}" for ip in self.address.values()]
        (here / "known_hosts").write_text("\n".join(known) + "\n")
        shutil.copy(here / "user_key.pub", here / "authorized_keys")
        hosts = [f"Host {name}\n  HostName {ip}" for name, ip in self.address.items()]
        hosts.append(
            f"Host *\n  Port {self.port}\n  IdentityFile {here}/user_key\n  IdentitiesOnly yes\n"
            f"  IdentityAgent none\n  UserKnownHostsFile {here}/known_hosts\n"
            "  GlobalKnownHostsFile /dev/null\n  KexAlgorithms curve25519-sha256\n"
            "  StrictHostKeyChecking yes\n"
        )
        (here / "ssh_config").write_text("\n".join(hosts))
        (here / "hostfile").write_text("".join(f"{name} slots=1\n" for name in self.address))
        os.makedirs(here / "run", exist_ok=True)

    def write_sshd_config(self, addresses):
        """Configuration of one sshd. Each host has its own TMPDIR: Open MPI's daemons fail if they find
        files of other daemons there."""
        here = self.dir
        text = (
            f"Port {self.port}\n"
            f"HostKey {here}/host_key\nAuthorizedKeysFile {here}/authorized_keys\nPidFile none\n"
            "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
            "PerSourceMaxStartups none\nMaxStartups 1000:1:2000\n"
        )
        text += "".join(f"ListenAddress {address}\n" for address in addresses)
        for address in addresses:
            own = here / "tmp" / address
            own.mkdir(parents=True)
            variables = f"HOME={here}/run XDG_RUNTIME_DIR={here}/run TMPDIR={own}"
            text += f"Match LocalAddress {address}\n  SetEnv {variables}\n"
        config = here / f"sshd_config_{addresses[0]}"
        config.write_text(text)
        return config

    def close(self):
        for sshd in self.sshds:
            sshd.send_signal(signal.SIGTERM)
            sshd.wait()


def mpirun(hosts, config):
    """Command of Open MPI over ssh, one process on each host.

    The hosts are given as addresses: Open MPI would look up names that only ssh_config defines, one
    after the other, and each failed lookup takes five seconds.
    """
    targets = ",".join(hosts.address.values())
    options = ["--mca", "plm_rsh_args", f"-F {config}", "--mca", "plm_rsh_num_concurrent", "64"]
    return ["timeout", "120", *harness.mpirun(len(hosts.address), *options), "-H", targets, "true"]


def commands(hosts, builds, with_peer, others):
    config = hosts.dir / "ssh_config"
    names = " ".join(hosts.address)
    loop = f"for h in {names}; do ssh -F {config} $h true & done; wait"
    found = {PLAIN: ["sh", "-c", loop]}
    targets = ",".join(hosts.address)
    if with_peer:
        found[PEER] = ["pdsh", "-R", "ssh", "-S", "-f", "64", "-w", targets, "true"]
    if "clush" in others:
        found["clush"] = ["clush", "-S", "-f", "64", "-o", f"-F {config}", "-w", targets, "true"]
    if "mpirun" in others:
        found["mpirun"] = mpirun(hosts, config)
    for name, program in builds.items():
        found[name] = [
            program, "run", "-q", "-H", str(hosts.dir / "hostfile"), "--ssh_config", str(config),
            "--accelerator", "cpu", "--no_python", "--no_local_rank", "true",
        ]  # fmt: skip
    return found


def drop_broken(launchers, name, environment):
    """Removes a further tool that fails on this machine, and reports it."""
    try:
        harness.run(launchers[name], environment)
    except harness.Failed as failed:
        print(f"left out: {name}: {str(failed).splitlines()[-1]}")
        del launchers[name]


def measure(count, builds, rounds, others):
    with harness.scratch() as directory:
        hosts = Hosts(directory, count)
        try:
            environment = {
                "REMUDA_RUN_DIR": directory,
                "PDSH_SSH_ARGS_APPEND": f"-F {hosts.dir}/ssh_config",
            }
            launchers = commands(hosts, builds, harness.peer("pdsh", "pdsh"), others)
            for name in others:
                drop_broken(launchers, name, environment)
            # remuda does not use a program in a world-writable directory on the nodes, so it sends a copy.
            writable_dir = hosts.dir / "writable"
            writable_dir.mkdir()
            writable_dir.chmod(0o777)
            copy = shutil.copy(builds[REMUDA], writable_dir / "remuda")
            first_launch = harness.run([str(copy), *launchers[REMUDA][1:]], environment)
            once = lambda command: lambda: harness.run(command, environment)
            return first_launch, harness.interleaved(
                {name: once(command) for name, command in launchers.items()}, rounds
            )
        finally:
            hosts.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peers", default="clush,mpirun", help="further tools, separated by commas")
    options = parser.parse_args()
    named = [name for name in options.peers.split(",") if name]
    others = [name for name in named if harness.peer(name, OTHERS[name])]
    first_launch, times = measure(options.hosts, harness.builds(), options.rounds, others)

    def row(name):
        cells = [name]
        for figure, scale in (("wall_s", 1000), ("cpu_s", 1000)):
            cells.append(harness.spread(times[name], figure, scale))
            for peer in (PLAIN, PEER):
                share = harness.ratio(times, name, peer, figure)
                cells.append("–" if share is None else f"{share:.2f}")
        return cells

    print(f"{options.hosts} hosts × true, {options.rounds} rounds: median (minimum–maximum)\n")
    header = ["", "wall ms", "/ssh", "/pdsh", "head CPU ms", "/ssh", "/pdsh"]
    harness.table(header, [row(name) for name in times])
    print(f"\nfirst launch, which sends the binary: {first_launch['wall_s'] * 1000:.0f} ms")
    harness.save("ssh", {"hosts": options.hosts, "times": times, "first": first_launch})


if __name__ == "__main__":
    main()
