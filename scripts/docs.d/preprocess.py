"""A preprocessor of mdBook: links between pages, documents of the repository, and error codes.

The pages below `project/` include documents such as COMPAT.md, whose links are relative to their own place. A link to a
document that has a page becomes a link to this page; a link to another file of the repository becomes its text. A code
such as R101 in a text becomes a link to its explanation. The name of a file stands above the block that is its content.
Reads the book as JSON on standard input and prints it, as mdBook wants.
"""

import json
import os
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r"\{\{#include ([^}:]+)")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
CODE = re.compile(r"\b([A-Z])\d{3}\b")
HEADING_OF_CODE = re.compile(r"^## ([A-Z]\d{3}): ", re.MULTILINE)
# What has no codes to link: code, links, headings.
OTHER = re.compile(r"(`[^`]*`|!?\[[^\]]*\]\([^)]*\)|^#.*$|<[^>]*>)", re.MULTILINE)
# The name of the file that the next block is (consoles.py).
FILE = re.compile(r"^<!-- file: (\S+) -->$", re.MULTILINE)
FENCED = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


class Links:
    """Where the documents of a book are."""

    def __init__(self, source):
        self.source = source
        # Document of the repository to page of the book, and the reverse.
        self.page_of = {}
        self.document_of = {}
        codes = "".join(path.read_text(encoding="utf-8") for path in source.glob("reference/codes/?.md"))
        self.codes = set(HEADING_OF_CODE.findall(codes))
        for page in source.rglob("*.md"):
            found = INCLUDE.search(page.read_text(encoding="utf-8"))
            if found:
                document = (page.parent / found[1]).resolve()
                self.page_of.setdefault(document, page)
                self.document_of[page] = document

    def content(self, path, text):
        page = self.source / path
        place = self.document_of.get(page, page).parent
        parts = FENCED.split(text)
        parts[::2] = [FILE.sub(r'<div class="file-name">\1</div>\n', part) for part in parts[::2]]
        parts[::2] = [LINK.sub(lambda link: self.link(link, page, place), part) for part in parts[::2]]
        if not path.startswith("reference/codes/"):
            parts[::2] = [self.with_codes(part, page) for part in parts[::2]]
        return "".join(parts)

    def with_codes(self, text, page):
        folder = os.path.relpath(self.source / "reference/codes", page.parent)

        def linked(code):
            return f"[{code[0]}]({folder}/{code[1]}.md#{code[0]})" if code[0] in self.codes else code[0]

        parts = OTHER.split(text)
        parts[::2] = [CODE.sub(linked, part) for part in parts[::2]]
        return "".join(parts)

    def link(self, link, page, place):
        mark, text, target = link.groups()
        path, _, anchor = target.partition("#")
        if "://" in target or not path:
            return link[0]
        file = (place / path).resolve()
        # The list of pages is no page: its place is the first one.
        file = self.source / "index.md" if file == self.source / "SUMMARY.md" else file
        to = self.page_of.get(file, file)
        if not to.is_relative_to(self.source):
            return text
        relative = os.path.relpath(to, page.parent)
        return f"{mark}[{text}]({relative}{'#' + anchor if anchor else ''})"


def visit(items, links):
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            if chapter["path"]:
                chapter["content"] = links.content(chapter["path"], chapter["content"])
            visit(chapter["sub_items"], links)


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    context, book = json.load(sys.stdin)
    source = Path(context["root"], context["config"]["book"].get("src", "src")).resolve()
    visit(book["items"], Links(source))
    json.dump(book, sys.stdout)


main()
