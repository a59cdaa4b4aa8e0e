"""Checks the rendered site: every link of a page to a file and to an anchor of the site.

python3 rendered.py SITE
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote


class Document(HTMLParser):
    """Identifiers and links of a page."""

    def __init__(self, path):
        super().__init__()
        self.identifiers = set()
        self.links = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if "id" in found:
            self.identifiers.add(found["id"])
        target = found.get("href" if tag in ("a", "link") else "src")
        if target:
            self.links.append(unquote(target))


def main():
    site = Path(sys.argv[1]).resolve()
    documents = {path: Document(path) for path in site.rglob("*.html")}
    count, problems = 0, 0
    for path, document in documents.items():
        # The page for missing addresses has a base of its own.
        if path.name == "404.html":
            continue
        for link in document.links:
            target, _, anchor = link.partition("#")
            if "://" in target or target.startswith(("data:", "mailto:", "javascript:")):
                continue
            count += 1
            file = (path.parent / target).resolve() if target else path
            is_missing = not file.exists()
            if is_missing or (anchor and file in documents and anchor not in documents[file].identifiers):
                print(f"target/site/{path.relative_to(site)}: `{link}` leads nowhere")
                problems += 1
    print(f"rendered site: {len(documents)} pages, {count} links, {problems} problems")
    sys.exit(bool(problems))


main()
