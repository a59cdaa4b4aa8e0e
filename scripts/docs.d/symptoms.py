"""Problems as users type them into the search of the site, and the page that must be found.

The sources must have the phrase as a heading of the page; with mdBook, the search index of the rendered site is asked,
too (search.js).
"""

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
]


def problems(root):
    path = root / "docs/src" / PAGE
    lines = path.read_text(encoding="utf-8").splitlines()
    headings = [line.lower() for line in lines if line.startswith("## ")]
    for phrase in PHRASES:
        if not any(phrase.lower() in heading for heading in headings):
            yield f"docs/src/{PAGE}: no heading has `{phrase}`"


if __name__ == "__main__":
    print("\n".join([PAGE, *PHRASES]))
