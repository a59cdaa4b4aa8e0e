"""The page of the keys of `ds_config.json`: the table of COMPAT.md by section, each key checked by the executable.

COMPAT.md is held against the code by a test; here `remuda config check` must know each key.
"""

import json
import os
import re
import subprocess
import tempfile

from markdown import table

HEAD = "| keys, with type and default | here | remark |"
# One key of a row: its name, old spellings, type, default.
KEY = re.compile(
    r"`([\w]+)`((?: \(`[^`]+`\))?)(?: (int|float|bool|text|any|list|object)\b([^,|]*(?:\[[^\]]*\])?))?(?:, |$)"
)
UNKNOWN = {"G005", "G006"}
SECTION = re.compile(r"^`([^`]+)`: (.*)$")


def page(remuda, compat):
    sections = rows_by_section(compat)
    for section, rows in sections.items():
        check(remuda, section, [key for keys, _, _ in rows for key, *_ in KEY.findall(keys)])
    out = [
        "# Keys of ds_config.json",
        "`remuda config check ds_config.json` prints the values that apply and names the keys without effect. *Works*:"
        " the key does what it does in DeepSpeed. *No effect*: the numbers of the training do not depend on it."
        " *Default only*: another value is refused (G010). *Removed*: DeepSpeed refuses the key as well (G009).",
    ]
    for section, rows in sections.items():
        out += [f"## {section or 'The file itself'}", table(["keys, with type and default", "here", "remark"], rows)]
    return "\n\n".join(out)


def rows_by_section(compat):
    lines = compat[compat.index(HEAD) :].splitlines()[2:]
    sections = {}
    for line in lines:
        if not line.startswith("| "):
            break
        keys, here, remark = [cell.strip() for cell in line.strip("|").split(" | ")]
        found = SECTION.match(keys)
        section, keys = (found[1], found[2]) if found else ("", keys)
        sections.setdefault(section, []).append([keys, here, remark])
    return sections


def check(remuda, section, keys):
    """Fails if the executable calls one of the keys unknown."""
    assert keys, f"no key was read for section `{section}`"
    path, types = re.match(r"([\w.]*)(?: \((.*)\))?", section).groups()
    content = dict.fromkeys(keys)
    if "with torch_adam" in (types or ""):
        # The keys of torch's optimizer are known if `torch_adam` is true, which this file does not set.
        return
    parts = path.split(".") if path else []
    if types:
        content = {"type": types.split(", ")[0], "params": content}
        parts = parts[:-1]
    for part in reversed(parts):
        content = {part: content}
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "ds_config.json")
        with open(file, "w", encoding="utf-8") as out:
            json.dump(content, out)
        done = subprocess.run(
            [remuda.path, "config", "check", "--json", file], env=remuda.environment, capture_output=True, check=False
        )
    found = json.loads(done.stdout)["diagnostics"]
    unknown = [each["message"] for each in found if each["code"] in UNKNOWN]
    assert not unknown, f"{section}: {unknown}"
