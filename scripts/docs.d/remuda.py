"""The executable that is documented, and what it prints."""

import os
import re
import subprocess

# Names of the manual pages in the text of another page, and of commands in the list of subcommands.
PAGE = re.compile(r"^remuda-([a-z0-9.-]+)\(1\)$")


class Remuda:
    """An executable whose pages do not depend on terminal, colours and variables of the caller."""

    def __init__(self, path):
        self.path = os.path.abspath(path)
        self.environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": "/nonexistent",
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
        }

    def text(self, *words):
        """What a command prints; a failure of the command is an error."""
        done = subprocess.run(
            [self.path, *words], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"remuda {' '.join(words)}: {done.stderr.decode()}")
        return done.stdout.decode()

    def man(self, words):
        return self.text("man", *words)
