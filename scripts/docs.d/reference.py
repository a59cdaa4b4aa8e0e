"""Pages of the reference, made from what the executable prints: path below `reference/` to text."""

import re

import documents
import hostfiles
import keys
from markdown import escaped, explanation, fence, table
from remuda import PAGE
from roff import sections

NOTE = "<!-- Made by scripts/docs from the executable; edits are lost. -->\n\n"
# Sections of a manual page that have a page of their own here, or no content for a reader.
LEFT_OUT = {"Name", "Synopsis", "Description", "Commands", "Examples", "Environment"}
# A manual page in the text of another one.
MANUAL = re.compile(r"\bremuda-([a-z0-9.-]+)\(1\)")
# Subjects of the codes, by letter, in the words of CONTRIBUTING.md.
SUBJECTS = re.compile(r"^\| `([A-Z])…` \| (.*?) \| `src/", re.MULTILINE)


def pages(remuda, root):
    commands = find_commands(remuda)
    contributing = (root / "CONTRIBUTING.md").read_text()
    made = {f"commands/{name(words)}.md": command_page(remuda, words, commands) for words in commands}
    made["commands/index.md"] = commands_page(remuda, commands)
    made.update(code_pages(remuda, dict(SUBJECTS.findall(contributing))))
    made["environment.md"] = environment_page(remuda, commands)
    made["exit_statuses.md"] = exit_status_page(remuda, commands)
    made["hostfiles.md"] = hostfiles.page(remuda)
    made["json.md"] = documents.page(remuda)
    made["configuration_keys.md"] = keys.page(remuda, (root / "COMPAT.md").read_text())
    return {path: NOTE + text.rstrip() + "\n" for path, text in made.items()}


def name(words):
    return "-".join(words)


def title(words):
    return "remuda " + " ".join(words)


def find_commands(remuda, parent=()):
    """All commands and subcommands, in the order of the help."""
    found = []
    for section in sections(remuda.man(parent)):
        for term in section.terms if section.title == "Commands" else []:
            words = PAGE.match(term.name)[1]
            prefix = name(parent)
            last = words[len(prefix) + 1 :] if prefix else words
            if last != "help":
                found.append((*parent, last))
                found.extend(find_commands(remuda, (*parent, last)))
    return found


def section_of(remuda, words, wanted):
    return [section for section in sections(remuda.man(words)) if section.title == wanted]


def commands_page(remuda, commands):
    rows = []
    for words in commands:
        text = section_of(remuda, words, "Description")[0].paragraphs()[0]
        rows.append([f"[`{title(words)}`]({name(words)}.md)", escaped(text.split(". ")[0].rstrip("."))])
    return f"""# Commands

Every page below has the text of `remuda man COMMAND`. `remuda COMMAND -h` prints the most used options, and
`remuda COMMAND --help` all of them.

{table(["command", "does"], rows)}
"""


def command_page(remuda, words, commands):
    out = [f"# {title(words)}"]
    parts = {section.title: section for section in sections(remuda.man(words))}
    out.extend(escaped(paragraph) for paragraph in parts["Description"].paragraphs())
    out.append(fence("text", " ".join(parts["Synopsis"].lines)))
    nested = [each for each in commands if each[:-1] == words]
    if nested:
        listed = [f"* [`{title(each)}`]({name(each)}.md)" for each in nested]
        out.append("\n".join(listed))
    if parts.get("Examples"):
        out.append("## Examples")
        lines = [line.strip() for line in parts["Examples"].lines if line.strip()]
        out.append(fence("sh", "\n".join(lines)))
    for section in parts.values():
        if section.title not in LEFT_OUT and section.terms:
            out.append(f"## {section.title}")
            out.extend(definition(term) for term in section.terms)
    for heading in ("Exit status", "Notes"):
        if parts.get(heading):
            out.append(f"## {heading}")
            out.extend(block(text) for text in parts[heading].blocks())
    return "\n\n".join(out)


def block(text):
    """A paragraph, or lines that are shown as they are."""
    if text.startswith(" "):
        return fence("text", text)
    return MANUAL.sub(r"[remuda \1](\1.md)", escaped(" ".join(text.split())))


def definition(term):
    """An option with its text, as a definition list."""
    lines = [f"`{term.name}`", f": {escaped(' '.join(term.text) or 'no description')}"]
    if term.values:
        values = []
        for value in term.values:
            word, colon, text = value.partition(": ")
            values.append(f"`{word}`" + (f" ({escaped(text)})" if colon else ""))
        lines.append(f"\n  Values: {', '.join(values)}.")
    return "\n".join(lines)


def code_pages(remuda, subjects):
    titles = dict(line.split("  ", 1) for line in remuda.text("explain").splitlines())
    letters = {}
    for code, text in titles.items():
        letters.setdefault(code[0], []).append((code, text))
    made = {}
    rows = []
    for letter, codes in letters.items():
        subject = escaped(subjects[letter])
        rows.append([f"[{letter}]({letter}.md)", subject, f"{codes[0][0]} to {codes[-1][0]}"])
        out = [f"# {letter}: {subject}"]
        for code, text in codes:
            body = remuda.text("explain", code).split("\n", 1)[1]
            out += [f"## {code}: {escaped(text)} {{#{code}}}", explanation(body)]
        made[f"codes/{letter}.md"] = "\n\n".join(out)
    listed = [[f"[{code}]({code[0]}.md#{code})", escaped(text)] for code, text in titles.items()]
    made["codes/index.md"] = f"""# Error codes

A message of `remuda` has a code in brackets after `error`, `warning` or `note`. `remuda explain CODE` prints its
explanation; the pages below have all of them. The letter is the subject:

{table(["letter", "problem in", "codes"], rows)}

## All codes

{table(["code", "problem"], listed)}
"""
    return made


def environment_page(remuda, commands):
    variables = {}
    for words in [(), *commands]:
        for section in section_of(remuda, words, "Environment"):
            for term in section.terms:
                variables.setdefault(term.name, (" ".join(term.text), []))[1].append(words)
    terms = "\n\n".join(f"`{each}`\n: {escaped(text)}" for each, (text, _) in variables.items())
    return f"""# Environment variables

## Read by remuda

{terms}

## Set for every worker

`remuda run --dry-run` prints the variables of a job with their values. This is what each launcher sets for rank 0
of a job with two nodes (`remuda run`, `remuda torchrun`) or with two workers (`remuda accelerate launch`):

{documents.worker_variables(remuda)}
"""


def exit_status_page(remuda, commands):
    rows = []
    for words in commands:
        text = remuda.text(*words, "--help")
        found = re.search(r"Exit status: (.*?)(\n\n|\Z)", text, re.DOTALL)
        if found:
            rows.append([f"[`{title(words)}`](commands/{name(words)}.md)", escaped(" ".join(found[1].split()))])
    return f"""# Exit statuses

{table(["command", "exit status"], rows)}

The decision on [exit statuses](../../decisions/0008-exit-status.md) has a row for each number.
"""
