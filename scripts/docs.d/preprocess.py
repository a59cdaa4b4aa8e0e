"""A preprocessor of mdBook: links between pages and documents of the repository.

The pages below `project/` include documents such as COMPAT.md, whose links are relative to their own place. A link to a
document that has a page becomes a link to this page; a link to another file of the repository becomes its text.
Reads the book as JSON on standard input and prints it, as mdBook wants.
"""

import json
import os
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r"\{\{#include ([^}:]+)")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCED = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


class Links:
    """Where the documents of a book are."""

    def __init__(self, source):
        self.source = source
        # Document of the repository to page of the book, and the reverse.
        self.page_of = {}
        self.document_of = {}
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
        fixed = (part if number % 2 else LINK.sub(lambda link: self.link(link, page, place), part)
                 for number, part in enumerate(parts))
        return "".join(fixed)

    def link(self, link, page, place):
        mark, text, target = link.groups()
        path, _, anchor = target.partition("#")
        if "://" in target or not path:
            return link[0]
        file = (place / path).resolve()
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
