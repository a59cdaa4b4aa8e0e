"""Manual pages as they are printed by `remuda man`, read into sections of terms and texts."""

import re
from dataclasses import dataclass, field

ESCAPES = [
    (re.compile(r"\\f[BIRP]"), ""),
    (re.compile(r"\\\*\(Aq|\\\(aq"), "'"),
    (re.compile(r"\\\[u([0-9A-Fa-f]{4,6})\]"), lambda found: chr(int(found[1], 16))),
    (re.compile(r"\\&"), ""),
    (re.compile(r"\\-"), "-"),
    (re.compile(r"\\\\|\\e"), r"\\"),
]


@dataclass
class Term:
    """An option, an argument, a command or a variable, with its text."""

    name: str
    text: list = field(default_factory=list)
    values: list = field(default_factory=list)


@dataclass
class Section:
    """A section of a page: terms, or lines of text."""

    title: str
    terms: list = field(default_factory=list)
    lines: list = field(default_factory=list)

    def paragraphs(self):
        """Lines without a blank line between them, joined."""
        return [" ".join(part.split()) for part in self.blocks()]

    def blocks(self):
        """The same with their lines, of which those of code begin with blanks."""
        return [part for part in "\n".join(self.lines).split("\n\n") if part.strip()]


def plain(text):
    for pattern, replacement in ESCAPES:
        text = pattern.sub(replacement, text)
    return text


def sections(page):
    """The sections of a page in their order."""
    found = []
    expects = None
    for line in page.splitlines():
        if line.startswith((".SH ", ".SS ")):
            heading = plain(line[4:].strip('"'))
            found.append(Section(heading.capitalize() if line.startswith(".SH") else heading))
            expects = None
        elif line == ".PP" and found and not found[-1].terms:
            found[-1].lines.append("")
        elif not found or line.startswith((".ie", ".el", ".TH")):
            continue
        elif line == ".TP":
            expects = "term"
        elif line.startswith(".IP"):
            expects = "value"
        elif line.startswith("."):
            continue
        else:
            expects = add(found[-1], plain(line), expects)
    return found


def add(section, line, expects):
    """Adds a line of text where it belongs; returns what the next line is."""
    if expects == "term":
        section.terms.append(Term(line))
        return "text"
    if expects == "value":
        section.terms[-1].values.append(line)
        return "text"
    if section.terms and expects == "text":
        if line and line != "Possible values:":
            section.terms[-1].text.append(line)
        return "text"
    section.lines.append(line)
    return None
