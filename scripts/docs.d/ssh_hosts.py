"""Hosts `node01` to `node04` for console blocks: an sshd of its own on this machine, with a key and a configuration.

The configuration of ssh is replaced only for the block, in a mount namespace of its own; that needs root.
"""

import os
import shutil
import socket
import subprocess
import time

SSHD = "/usr/sbin/sshd"
HOSTS = "node01 node02 node03 node04"


def are_available():
    if os.geteuid() != 0 or not os.path.exists(SSHD) or not os.path.isdir("/etc/ssh"):
        return False
    programs = all(shutil.which(name) for name in ("ssh", "ssh-keygen", "unshare", "mount"))
    return (
        programs and subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0
    )


class SshHosts:
    """An sshd that accepts one key. `accepts_key` and `is_known` are what users lack whose logins fail."""

    def __init__(self, folder, accepts_key=True, is_known=True):
        self.folder = folder / "etc/ssh"
        self.accepts_key = accepts_key
        self.is_known = is_known
        self.process = None

    def __enter__(self):
        self.folder.mkdir(parents=True)
        # Sshd wants this directory, and does not make it.
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name],
                check=True,
                capture_output=True,
            )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        accepted = (self.folder / "user.pub").read_text() if self.accepts_key else ""
        (self.folder / "accepted").write_text(accepted)
        key = " ".join((self.folder / "host.pub").read_text().split()[:2])
        (self.folder / "known").write_text(f"[127.0.0.1]:{port} {key}\n" if self.is_known else "")
        (self.folder / "sshd_config").write_text(f"""ListenAddress 127.0.0.1
Port {port}
HostKey {self.folder}/host
AuthorizedKeysFile {self.folder}/accepted
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
""")
        (self.folder / "ssh_config").write_text(f"""Host {HOSTS}
  HostName 127.0.0.1
  Port {port}
  IdentityFile {self.folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {self.folder}/known
""")
        self.process = subprocess.Popen([SSHD, "-D", "-f", self.folder / "sshd_config"], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def command(self, words):
        """The command with the configuration of this sshd in the place of that of the system."""
        mounted = f'mount --bind "{self.folder}" /etc/ssh && exec "$@"'
        return ["unshare", "--mount", "bash", "-c", mounted, "bash", *words]
