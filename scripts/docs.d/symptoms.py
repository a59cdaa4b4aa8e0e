"""Problems as users type them into the search of the site, and the page that must be found.

A heading of the page must have all words of the phrase; with mdBook, the search index of the rendered site is asked,
too (search.js).
"""

import re

PAGE = "failures/symptoms.md"
PHRASES = [
    "connection closed by peer",
    "no space left on device",
    "loss is NaN",
    "address already in use",
    "CUDA out of memory",
    "NCCL timeout",
    "No module named",
    "Permission denied (publickey)",
    "Host key verification failed",
    "killed by signal 9",
    "bus error",
    "connection refused",
    "connection timed out",
    "command not found",
    "broken pipe",
    "connection reset",
    "unrecognized arguments",
    "job hangs",
    "no space left",
    "permission denied publickey",
    "out of memory",
    "hang at start",
    "unknown option",
    "killed signal 9",
]
# Endings that the search ignores, too.
ENDINGS = re.compile(r"(ed|s)$")



def problems(root):
    path = root / "docs/src" / PAGE
    lines = path.read_text(encoding="utf-8").splitlines()
    headings = [stems(line) for line in lines if line.startswith("## ")]
    for phrase in PHRASES:
        if not any(stems(phrase) <= heading for heading in headings):
            yield f"docs/src/{PAGE}: no heading has all words of `{phrase}`"


def stems(text):
    return {ENDINGS.sub("", word) for word in re.findall(r"\w+", text.lower())}


if __name__ == "__main__":
    print("\n".join([PAGE, *PHRASES]))
