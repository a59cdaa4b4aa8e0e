"""Text of the program as Markdown."""

import re

SPECIAL = re.compile(r"([*_<\[\]|#])")
QUOTED = re.compile(r"(`[^`]*`)")
# Words that are code in every text: options, variables, paths in the home directory.
BARE_CODE = re.compile(r"(?<![\w`/])(--[a-z][\w-]*|[A-Z][A-Z0-9]*_[A-Z0-9_]+|~/[\w./-]+)(?![\w`])")


def escaped(text):
    """A text in which only code in backticks has a meaning; options and variables become code."""
    parts = QUOTED.split(text)
    return "".join(part if number % 2 else prose(part) for number, part in enumerate(parts))


def prose(text):
    parts = BARE_CODE.split(text)
    return "".join(f"`{part}`" if number % 2 else SPECIAL.sub(r"\\\1", part) for number, part in enumerate(parts))


def explanation(text):
    """An explanation: paragraphs, lists with `* `, and indented code."""
    out = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        if all(line.startswith("    ") for line in lines):
            out.append("\n".join(["```text", *(line[4:] for line in lines), "```"]))
            continue
        items = []
        for line in lines:
            if line.startswith("* ") or not items:
                items.append(line)
            else:
                items[-1] += " " + line.strip()
        listed = [f"* {escaped(item[2:])}" if item.startswith("* ") else escaped(item) for item in items]
        out.append("\n".join(listed))
    return "\n\n".join(out)


def table(head, rows):
    """A table; cells are Markdown without `|`."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def fence(language, text):
    return f"```{language}\n{text.rstrip()}\n```"
