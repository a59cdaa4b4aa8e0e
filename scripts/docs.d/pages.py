"""Pages of the site, read: blocks of code, links, headings, words, files that a page names."""

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(`{3,})(.*)$")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.*?)(?: \{#([\w.-]+)\})?$")
FILE = re.compile(r"^<!-- file: (\S+) -->$")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"`[^`]*`")


@dataclass
class Block:
    """A fenced block: its language with attributes, lines, and the file that it is."""

    info: str
    lines: list
    start: int
    file: str = ""

    @property
    def language(self):
        return self.info.split(",")[0]

    @property
    def attributes(self):
        return self.info.split(",")[1:]


class Page:
    """A page in Markdown."""

    def __init__(self, root, path):
        self.path = Path(path)
        self.name = str(self.path.relative_to(root))
        self.text = self.path.read_text(encoding="utf-8")
        self.blocks = []
        self.prose = self._read_blocks()

    def _read_blocks(self):
        """Collects the blocks; returns lines outside of them with their numbers."""
        prose = []
        open_block, fence, file = None, "", ""
        for number, line in enumerate(self.text.splitlines(), 1):
            found = FENCE.match(line)
            if open_block is not None:
                if found and found[1] == fence and not found[2]:
                    self.blocks.append(open_block)
                    open_block = None
                else:
                    open_block.lines.append(line)
            elif found:
                fence = found[1]
                open_block = Block(found[2], [], number, file)
                file = ""
            else:
                prose.append((number, line))
                named = FILE.match(line)
                file = named[1] if named else (file if not line.strip() else "")
        return prose

    def links(self):
        """Line and target of every link outside of code."""
        for number, line in self.prose:
            for target in LINK.findall(CODE.sub("", line) if "](" not in line else line):
                yield number, target

    def anchors(self):
        """Identifiers of the headings, as mdBook and GitHub make them."""
        seen = {}
        for _, line in self.prose:
            found = HEADING.match(line)
            if not found:
                continue
            made = found[2] or identifier(found[1])
            count = seen.get(made, 0)
            seen[made] = count + 1
            yield f"{made}-{count}" if count else made

    def words(self):
        """Number of words of prose and code that a reader sees."""
        return len(COMMENT.sub("", self.text).split())

    def files(self):
        """Files that the page names, with their content."""
        return {block.file: "\n".join(block.lines) + "\n" for block in self.blocks if block.file}


def identifier(heading):
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    kept = (char for char in text.strip().lower() if char.isalnum() or char in " _-")
    return "".join(kept).replace(" ", "-")


def all_pages(root):
    source = root / "docs/src"
    return [Page(root, path) for path in sorted(source.rglob("*.md"))]


def is_made(page):
    """Whether a page is made by this script or consists of a document of the repository."""
    return "/reference/" in page.name or "{{#include" in page.text
