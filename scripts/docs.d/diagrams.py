"""Diagrams of the site as SVG: boxes, arrows and texts with colours that can be read on light and on dark pages."""

from html import escape

INK, SOFT, ACCENT, WARM, COOL = "#e6edf3", "#8b949e", "#79c0ff", "#e3b341", "#7ee787"
BACKGROUND, BOX, FRAME = "#161b22", "#21262d", "#30363d"


class Diagram:
    """Shapes in a frame of its own."""

    def __init__(self, title, width, height):
        self.head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{SOFT}"/></marker></defs>',
            f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}" stroke="{FRAME}"/>',
            '<g font-family="system-ui, Segoe UI, Helvetica, Arial, sans-serif" font-size="13">',
        ]
        self.shapes = []

    def text(self, x, y, text, colour=INK, anchor="middle", size=13, bold=False):
        weight = ' font-weight="600"' if bold else ""
        self.shapes.append(
            f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}" font-size="{size}"{weight}>{escape(text)}</text>'
        )

    def box(self, x, y, width, height, title="", below="", colour=FRAME, fill=BOX):
        self.shapes.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{colour}"/>'
        )
        middle = y + height / 2 + 5
        if title:
            self.text(x + width / 2, middle - (9 if below else 0), title, bold=True)
        if below:
            self.text(x + width / 2, middle + 9, below, SOFT, size=11)

    def frame(self, x, y, width, height, title):
        self.shapes.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="none" stroke="{SOFT}" '
            'stroke-dasharray="5 4"/>'
        )
        self.text(x + 12, y + height - 12, title, SOFT, "start", 12)

    def arrow(self, x1, y1, x2, y2, text="", both=False, at=None, anchor="middle"):
        start = ' marker-start="url(#tip)"' if both else ""
        self.shapes.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{SOFT}" stroke-width="1.5" marker-end="url(#tip)"{start}/>'
        )
        if text:
            x, y = at or ((x1 + x2) / 2, (y1 + y2) / 2 - 6)
            self.text(x, y, text, SOFT, anchor, 11)

    def svg(self):
        return "\n".join([*self.head, *self.shapes, "</g>", "</svg>", ""])


def processes():
    """Launcher, agents and workers of a job on two hosts."""
    made = Diagram("Launcher, agents and workers of a job on two hosts", 760, 360)
    made.box(270, 20, 220, 56, "launcher", "plan, policy, output, cause", ACCENT)
    for number, x in enumerate([30, 400]):
        made.frame(x, 150, 330, 190, f"host node0{number + 1}")
        made.box(x + 30, 180, 130, 52, "agent", "supervises", ACCENT)
        made.box(x + 200, 180, 100, 52, "shim", "forks")
        made.arrow(x + 160, 206, x + 198, 206)
        for rank in range(2):
            made.box(x + 150 + 92 * rank, 280, 78, 44, f"rank {2 * number + rank}", "worker", COOL)
            made.arrow(x + 250, 232, x + 189 + 92 * rank, 278)
    made.arrow(340, 76, 125, 178, "ssh, Slurm, MPI or a pod: one stream", True, (220, 122), "end")
    made.arrow(420, 76, 495, 178, "messages, output, heartbeats", True, (480, 122), "start")
    made.arrow(350, 302, 548, 302, both=True)
    made.text(445, 292, "collectives", SOFT, size=11)
    return made.svg()


def pods():
    """Pods of a job."""
    made = Diagram(
        "Pods of a job: they connect to pod 0 with a common key, and the kubelet asks each of them", 760, 340
    )
    made.box(20, 84, 150, 52, "Secret", "the key of the job", WARM)
    for number, x in enumerate([220, 405, 590]):
        made.frame(x, 64, 150, 176, f"pod {number}")
        made.box(x + 15, 86, 120, 50, "remuda pod", "leads the job" if number == 0 else "joins", ACCENT)
        for rank in range(2):
            made.box(x + 15 + 62 * rank, 170, 56, 40, f"rank {2 * number + rank}", "", COOL)
            made.arrow(x + 75, 136, x + 43 + 62 * rank, 168)
    made.arrow(420, 111, 358, 111)
    made.shapes.append(
        f'<path d="M665 86 C 665 24, 295 24, 295 84" fill="none" stroke="{SOFT}" stroke-width="1.5" marker-end="url(#tip)"/>'
    )
    made.text(480, 30, "Noise over TCP, with the key of the job", SOFT, size=11)
    made.arrow(170, 110, 218, 110)
    made.box(290, 274, 390, 44, "kubelet", "/livez  /readyz  /metrics", FRAME)
    for x in (295, 480, 665):
        made.arrow(x, 274, x, 242)
    return made.svg()


def stage3():
    """One step with stage 3."""
    made = Diagram(
        "One step with stage 3: gather a unit, compute a pass, free it; reduce its gradient to its owner", 760, 390
    )
    made.text(24, 34, "each rank owns a part of every unit", SOFT, "start", 12)
    for rank in range(4):
        made.text(70, 76 + 34 * rank, f"rank {rank}", INK, "end", 12)
        for unit in range(3):
            for part in range(4):
                own = part == rank
                made.box(
                    84 + 84 * unit + 18 * part,
                    60 + 34 * rank,
                    16,
                    22,
                    "",
                    "",
                    ACCENT if own else FRAME,
                    "#1f6feb" if own else BOX,
                )
    for unit in range(3):
        made.text(84 + 84 * unit + 35, 208, f"unit {unit}", SOFT, size=12)
    rows = [
        ("forward", ["gather 0", "pass 0, free", "gather 1", "pass 1, free", "gather 2", "pass 2"]),
        ("backward", ["pass 2", "reduce 2, free", "gather 1", "pass 1", "reduce 1, free", "…"]),
        ("optimizer", ["each rank updates its parts of parameters, moments and master weights"]),
    ]
    for number, (name, steps) in enumerate(rows):
        y = 232 + 48 * number
        made.text(92, y + 24, name, INK, "end", 12)
        width = 636 / len(steps)
        for place, step in enumerate(steps):
            colour = WARM if "gather" in step else COOL if "pass" in step else ACCENT if "reduce" in step else FRAME
            made.box(104 + width * place, y, width - 8, 36, "", "", colour)
            made.text(104 + width * place + (width - 8) / 2, y + 22, step, INK, size=12)
    notes = [
        "gather: all ranks send their parts",
        "reduce: sums go to the rank that owns the part",
        "the same bits for every stage",
    ]
    for number, note in enumerate(notes):
        made.text(380, 84 + 34 * number, note, [WARM, ACCENT, COOL][number], "start", 13)
    return made.svg()


def all_diagrams():
    return {"processes": processes(), "pods": pods(), "stage3": stage3()}
