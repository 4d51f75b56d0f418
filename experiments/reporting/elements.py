"""What pages are made of. It draws nothing, and needs no matplotlib."""

import html
import re
from collections.abc import Iterable

from reporting.style import sheet


def text(value: object) -> str:
    """Escaped for text and attributes; a number and its unit stay on one line."""
    return re.sub(r"(?<=\d) (?=%|µs)", "\u00a0", html.escape(str(value), quote=True))


def table(rows: Iterable[Iterable[str]], header: Iterable[str] | None = None, kind: str = "") -> str:
    """`rows` of cells that are HTML already."""
    head = "<thead><tr>" + "".join(f"<th>{cell}</th>" for cell in header) + "</tr></thead>" if header else ""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table{kind and f" class={chr(34)}{kind}{chr(34)}"}>{head}<tbody>{body}</tbody></table>'


def document(title: str, body: str) -> str:
    return ('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
            f"<title>{text(title)}</title>\n<style>\n{sheet()}\n</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n")
