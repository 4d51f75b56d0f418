"""A section's result: a table with units, the bars of the issue that it answers, and notes. As text and as JSON."""

import statistics
from collections.abc import Sequence

from islands_command import Document

median = statistics.median


def ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


class Bar:
    """Something that a number has to reach, or may not exceed."""

    def __init__(self, what: str, value: float | None, at_least: float | None = None, at_most: float | None = None,
                 form: str = "{:.2f}") -> None:
        self.what, self.value, self.at_least, self.at_most, self.form = what, value, at_least, at_most, form

    def met(self) -> bool | None:
        if self.value is None:
            return None
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most)

    def text(self) -> str:
        verdict = {None: "not measured", True: "met", False: "MISSED"}[self.met()]
        sign, bound = (">=", self.at_least) if self.at_most is None else ("<=", self.at_most)
        found = "" if self.value is None else f"{self.form.format(self.value)}, "
        return f"  bar: {self.what} {sign} {bound:g}: {found}{verdict}"

    def json(self) -> Document:
        return {"what": self.what, "at_least": self.at_least, "at_most": self.at_most, "value": self.value,
                "met": self.met()}


class Section:
    """`columns` are (name, format) pairs; a row is a label and a number or None for each column."""

    def __init__(self, title: str, label: str, columns: Sequence[tuple[str, str]]) -> None:
        self.title, self.label, self.columns = title, label, columns
        self.rows: list[tuple[str, tuple[float | None, ...]]] = []
        self.bars: list[Bar] = []
        self.notes: list[str] = []

    def row(self, label: str, *values: float | None) -> None:
        assert len(values) == len(self.columns)
        self.rows.append((label, values))

    def bar(self, what: str, value: float | None, at_least: float | None = None, at_most: float | None = None,
            form: str = "{:.2f}") -> None:
        self.bars.append(Bar(what, value, at_least, at_most, form))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def text(self) -> str:
        lines = [self.title] + (self.table() if self.rows else [])
        return "\n".join(lines + [bar.text() for bar in self.bars] + [f"  note: {note}" for note in self.notes])

    def table(self) -> list[str]:
        labels = [self.label] + [label for label, _ in self.rows]
        width = max(map(len, labels))
        lines = [f"  {label:<{width}}" for label in labels]
        for index, (name, form) in enumerate(self.columns):
            values = [values[index] for _, values in self.rows]
            cells = [name] + ["-" if value is None else form.format(value) for value in values]
            width = max(map(len, cells))
            lines = [f"{line}  {cell:>{width}}" for line, cell in zip(lines, cells)]
        return lines

    def json(self) -> Document:
        return {"title": self.title, "label": self.label, "columns": [name for name, _ in self.columns],
                "rows": {label: values for label, values in self.rows}, "bars": [bar.json() for bar in self.bars],
                "notes": self.notes}
