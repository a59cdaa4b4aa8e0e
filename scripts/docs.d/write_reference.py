"""Writes the pages of the reference, or compares them with those that are committed.

python3 write_reference.py ROOT REMUDA [--check]
"""

import sys
from pathlib import Path

import reference
from remuda import Remuda


def main():
    root, is_check = Path(sys.argv[1]), "--check" in sys.argv[3:]
    folder = root / "docs/src/reference"
    made = reference.pages(Remuda(sys.argv[2]), root)
    present = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.md")}
    differ = sorted(path for path in made.keys() | present.keys() if made.get(path) != present.get(path))
    if is_check:
        for path in differ:
            print(f"docs/src/reference/{path}: differs from the executable; type `scripts/docs`")
        sys.exit(bool(differ))
    for path in differ:
        target = folder / path
        if path in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(made[path])
        else:
            target.unlink()
    print(f"{len(made)} pages of the reference, {len(differ)} changed")


main()
