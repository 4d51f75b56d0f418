"""Draws the screen of `islands top` as SVG, for README.md.

`deploy/e2e/test_top.py -k picture` records a real screen of a real run and calls this; with ISLANDS_PICTURES=FOLDER the
picture stays there.
"""

from xml.sax.saxutils import escape
from collections.abc import Iterator, Sequence

Attributes = frozenset[int]  # numbers of the codes that are on
Cell = tuple[str, Attributes]
Line = Sequence[Cell]
WIDTH, HEIGHT, MARGIN = 8, 18, 14   # of a character; round the screen
BACKGROUND, TEXT, TROUBLE = "#1e2430", "#d8dee9", "#ff8a80"   # a dark screen, on light and dark pages alike
BLOCKS = "▁▂▃▄▅▆▇█"
BLOCK = "#88c0d0"


def runs(line: Line) -> Iterator[tuple[int, str, Attributes]]:
    """(column, text, attributes) of words between blanks: each is put where it belongs, whatever the font's widths."""
    start = 0
    for at in range(1, len(line) + 1):
        if at == len(line) or kind(line[at]) != kind(line[start]):
            if kind(line[start])[0] == "text":
                yield start, "".join(character for character, _ in line[start:at]), line[start][1]
            start = at


def kind(cell: Cell) -> tuple[str, Attributes]:
    character, attributes = cell
    return ("blank" if character == " " else "block" if character in BLOCKS else "text"), attributes


def box(x: float, y: float, width: float, height: float, color: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{color}"/>'


def draw_line(line: Line, top: int) -> Iterator[str]:
    for column, (character, attributes) in enumerate(line):
        if 7 in attributes:
            yield box(MARGIN + column * WIDTH, top, WIDTH + 0.2, HEIGHT, TEXT)
        if character in BLOCKS:
            # Fonts differ in how they draw these; a gap between them keeps seconds apart.
            height = (BLOCKS.index(character) + 1) * (HEIGHT - 4) / len(BLOCKS)
            yield box(MARGIN + column * WIDTH, top + HEIGHT - 2 - height, WIDTH - 1, height, BLOCK)
    for column, text, attributes in runs(line):
        color = BACKGROUND if 7 in attributes else TROUBLE if 31 in attributes else TEXT
        weight = ' font-weight="bold"' if 1 in attributes else ""
        yield (f'<text x="{MARGIN + column * WIDTH}" y="{top + HEIGHT - 5}" textLength="{len(text) * WIDTH}" '
               f'lengthAdjust="spacingAndGlyphs" fill="{color}"{weight}>{escape(text)}</text>')


def draw(lines: Sequence[Line], path: str) -> None:
    """`lines` of (character, attributes), as deploy/e2e/terminal.py has them; blank ones at the end are left out."""
    used = max(index for index, line in enumerate(lines, 1) if any(character != " " for character, _ in line))
    width, height = 2 * MARGIN + len(lines[0]) * WIDTH, 2 * MARGIN + used * HEIGHT
    shapes = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
              f'height="{height}" font-family="ui-monospace, \'DejaVu Sans Mono\', Menlo, Consolas, monospace" '
              'font-size="13">',
              "<title>islands top</title>",
              f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>']
    for index, line in enumerate(lines[:used]):
        shapes += draw_line(line, MARGIN + index * HEIGHT)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(shapes + ["</svg>", ""]))
