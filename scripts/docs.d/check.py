"""Checks the pages of the site: links and anchors, length, console blocks, words of symptoms.

python3 check.py ROOT REMUDA [--jobs N] [--record] [PAGE…]
"""

import argparse
import collections
import re
import sys
import time
from pathlib import Path

import consoles
import ssh_hosts
import symptoms
from pages import Page, all_pages, is_made

WORDS_MAX = 700
CODE = re.compile(r"\b[A-Z]\d{3}\b")
# GPUs whose names look like codes.
NO_CODES = {"A100", "H100", "H200"}
SHELLS = {"sh", "bash", "shell", "shell-session"}


def link_problems(root, pages):
    """Links to files and anchors that do not exist, and pages that the summary lacks."""
    anchors = {}
    for page in pages:
        for number, target in page.links():
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            file = (page.path.parent / path).resolve() if path else page.path
            if not file.exists():
                yield f"{page.name}:{number}: `{target}` does not exist"
            elif anchor and file.suffix == ".md":
                if file not in anchors:
                    anchors[file] = set(Page(root, file).anchors())
                if anchor not in anchors[file]:
                    yield f"{page.name}:{number}: `{target}` names no heading"
    summary = (root / "docs/src/SUMMARY.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\(([^)]+\.md)\)", summary)
    for path, count in collections.Counter(listed).items():
        if 1 < count:
            yield f"docs/src/SUMMARY.md: {path} is listed {count} times"
    for page in pages:
        path = str(page.path.relative_to(root / "docs/src"))
        if path not in listed and path != "SUMMARY.md":
            yield f"docs/src/SUMMARY.md: {path} is not listed"


def code_problems(root, pages):
    """Codes that a page names and the executable does not have."""
    known = set()
    for path in (root / "docs/src/reference/codes").glob("?.md"):
        known.update(re.findall(r"^## ([A-Z]\d{3}): ", path.read_text(encoding="utf-8"), re.MULTILINE))
    letters = {code[0] for code in known}
    for page in pages:
        for code in sorted(set(CODE.findall(page.text)) - known - NO_CODES):
            if code[0] in letters and not is_made(page):
                yield f"{page.name}: there is no code {code}"


def text_problems(pages):
    for page in pages:
        if is_made(page) or page.path.name == "SUMMARY.md":
            continue
        if WORDS_MAX < page.words():
            yield f"{page.name}: {page.words()} words, at most {WORDS_MAX}"
        for block in page.blocks:
            if block.language in SHELLS and not block.file:
                yield f"{page.name}:{block.start}: write `console` instead of `{block.language}`, so that it is a test"
            if not block.info:
                yield f"{page.name}:{block.start}: a block without a language"


def show(results, seconds):
    count = collections.Counter(result.state for result in results)
    for result in results:
        if result.state == "failed":
            print(
                f"\n{result.page.name}:{result.block.start}: a console block does not behave as printed\n{result.text}"
            )
    states = ", ".join(f"{count[state]} {state}" for state in ("passed", "failed", "skipped", "not run"))
    print(f"console blocks: {states}; {seconds:.0f} s")
    skipped = collections.Counter(result.text for result in results if result.state == "skipped")
    if skipped:
        listed = ", ".join(f"{what} ({number})" for what, number in skipped.items())
        print(f"skipped, because this machine lacks: {listed}")
    return count["failed"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("remuda")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("pages", nargs="*")
    args = parser.parse_intermixed_args()
    root = args.root.resolve()
    everything = all_pages(root)
    pages = [page for page in everything if not args.pages or any(part in page.name for part in args.pages)]
    problems = [
        *link_problems(root, everything),
        *text_problems(pages),
        *code_problems(root, pages),
        *symptoms.problems(root),
    ]
    for problem in problems:
        print(problem)
    since = time.monotonic()
    needs = consoles.find_torch(root), consoles.find_pytest(), consoles.find_library(root), consoles.find_pre_commit(), ssh_hosts.are_available()
    place = consoles.Place(str(Path(args.remuda).resolve()), root, *needs)
    results = consoles.check(place, pages, args.jobs)
    if args.record:
        consoles.record(results)
    failed = show(results, time.monotonic() - since)
    links = sum(1 for page in everything for _ in page.links())
    print(f"pages: {len(everything)}, links: {links}, problems: {len(problems)}")
    sys.exit(bool(problems or failed))


main()
