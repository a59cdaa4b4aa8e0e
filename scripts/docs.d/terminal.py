"""A terminal for one program: its output as rows of characters with their style, and these rows as a picture."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from html import escape

CONTROL = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b[^\[]|\r|\n|\x08|[^\x1b\r\n\x08]+")
# Colours with enough contrast on the background, which is dark on light and on dark pages.
COLOURS = ["#8b949e", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#e6edf3"]
TEXT, BACKGROUND, FRAME = "#e6edf3", "#161b22", "#30363d"
CHARACTER, LINE, MARGIN = 8.0, 19, 16
# A blank that browsers keep: of several usual ones they show one.
BLANK = "\u00a0"


class Screen:
    """Rows of `(character, colour, is_bold)`; understands what a launcher with a status area writes."""

    def __init__(self, columns):
        self.columns = columns
        self.rows = [[]]
        self.row, self.column = 0, 0
        self.colour, self.bold, self.dim = TEXT, False, False

    def feed(self, text):
        for found in CONTROL.finditer(text):
            part = found[0]
            if part == "\n":
                self.row += 1
                if self.row == len(self.rows):
                    self.rows.append([])
            elif part == "\r":
                self.column = 0
            elif part == "\x08":
                self.column -= 1
            elif part.startswith("\x1b["):
                self.control(found[1], found[2])
            elif not part.startswith("\x1b"):
                self.write(part)

    def write(self, text):
        for character in text:
            if self.column == self.columns:
                self.feed("\r\n")
            row = self.rows[self.row]
            row.extend([(" ", TEXT, False)] * (self.column + 1 - len(row)))
            row[self.column] = (character, COLOURS[0] if self.dim else self.colour, self.bold)
            self.column += 1

    def control(self, numbers, letter):
        count = int(numbers or 1) if numbers.isdigit() or not numbers else 1
        if letter == "m":
            self.style([int(each or 0) for each in numbers.split(";")])
        elif letter == "A":
            self.row = max(0, self.row - count)
        elif letter == "B":
            self.row += count
        elif letter == "G":
            self.column = count - 1
        elif letter == "K":
            self.rows[self.row] = [] if numbers == "2" else self.rows[self.row][: self.column]
        elif letter == "J":
            self.rows[self.row] = self.rows[self.row][: self.column]
            del self.rows[self.row + 1 :]

    def style(self, codes):
        for code in codes:
            if code == 0:
                self.colour, self.bold, self.dim = TEXT, False, False
            elif code == 1:
                self.bold = True
            elif code == 2:
                self.dim = True
            elif code == 22:
                self.bold = self.dim = False
            elif code == 39:
                self.colour = TEXT
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.colour = COLOURS[code % 10]


def record(command, folder, environment, columns):
    """Runs a command on a terminal of its own; returns all that it wrote."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    written = b""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            try:
                written += os.read(master, 65536)
            except OSError:
                break
        elif process.poll() is not None:
            break
    process.wait(timeout=10)
    os.close(master)
    return written.decode(errors="replace")


def picture(title, prompt, screen, columns):
    """The rows as SVG; `title` is what a screen reader says."""
    rows = [[(character, "#7ee787" if number == 0 else TEXT, False) for number, character in enumerate(prompt)]]
    rows += screen.rows
    while rows and not any(character.strip() for character, *_ in rows[-1]):
        rows.pop()
    width, height = columns * CHARACTER + 2 * MARGIN, len(rows) * LINE + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}" stroke="{FRAME}"/>',
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="13">',
    ]
    for number, row in enumerate(rows):
        y = MARGIN + LINE * number + 14
        out += [piece(start, y, text, style) for start, text, style in runs(row)]
    return "\n".join([*out, "</g>", "</svg>", ""])


def runs(row):
    """Adjacent characters of one style: start, text, style; blanks at both ends are left out."""
    found = []
    for column, (character, colour, bold) in enumerate(row):
        if found and found[-1][2] == (colour, bold):
            found[-1][1] += character
        else:
            found.append([column, character, (colour, bold)])
    for start, text, style in found:
        stripped = text.lstrip(" ")
        if stripped.rstrip(" "):
            yield start + len(text) - len(stripped), stripped.rstrip(" "), style


def piece(start, y, text, style):
    colour, bold = style
    weight = ' font-weight="bold"' if bold else ""
    shown = escape(text).replace(" ", BLANK)
    # The length keeps columns aligned, whatever the font is.
    return (
        f'<text x="{MARGIN + start * CHARACTER:.0f}" y="{y}" fill="{colour}"{weight} textLength="{len(text) * CHARACTER:.0f}" '
        f'lengthAdjust="spacingAndGlyphs">{shown}</text>'
    )
