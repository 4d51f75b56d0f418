"""islands table FILE COMMAND: tables of a deployment that is up, and their rows from and to files.

    islands table my.yaml create people --key id:uint64 --range 0:1000000 --field name:string:20 --field age:uint8
    islands table my.yaml load people people.csv
    islands table my.yaml dump people -o people.jsonl
    islands table my.yaml list
    islands table my.yaml drop people

Files are CSV with a header, or JSON Lines, an object a line. Columns are the names of the key's parts and of the
fields, in any order; of a table without names they are `key`, or `key0`, `key1`, and `value`. Bytes are text with \\xff
for those that are none; where all rows have the same length, zeros follow.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from gateway_tool import FAILED, INTERRUPTED, StatusLine, Stop, Usage, address_of, description, pace, pages, persist
from row_files import FORMATS, Cells, Writer
from table_load import load, target

import islands

NEGATIVE = re.compile(r"^-\d")
DELETED_AT_ONCE, DUMPED_AT_ONCE = 500, 1000


def key_of(text: str) -> Any:
    """`id:uint64,name:string` or `uint64,string`, as islands.describe takes it."""
    parts = [word.rpartition(":") for word in text.split(",")]
    named = [colon for _, colon, _ in parts]
    if len(set(named)) > 1:
        raise Usage(f"--key: found '{text}', expected names for all components or for none: id:uint64,name:string")
    return {name: kind for name, _, kind in parts} if named[0] else [kind for _, _, kind in parts]


def range_of(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(-?\d+):(-?\d+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise Usage(f"--range: found '{text}', expected FIRST:END, such as 0:1000000: keys from 0 to below 1000000")
    return int(match[1]), int(match[2])


def pairs(words: Sequence[str], option: str, between: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, sign, rest = word.partition(between)
        if not name or not sign or not rest or name in found:
            what = "a second one of that name" if name in found else f"'{word}'"
            raise Usage(f"{option}: found {what}, expected {example}")
        found[name] = rest
    return found


class Commands:
    """Each is a method; what it returns is said as JSON, or as the text that goes with it."""

    def __init__(self, db: islands.Client, arguments: argparse.Namespace) -> None:
        self.db, self.arguments = db, arguments

    def table(self) -> islands.Table:
        return self.db.table(self.arguments.table).table

    def create(self) -> tuple[Any, str]:
        words = self.arguments
        try:
            table = islands.describe(
                words.table, key=key_of(words.key), range=range_of(words.range) if words.range else None,
                fields=pairs(words.field, "--field", ":", "NAME:TYPE, such as age:uint8"),
                indexes={name: text.split(",") for name, text in pairs(
                    words.index, "--index", "=", "NAME=COMPONENT,..., such as by_name=name,id").items()},
                row_bytes=words.row_bytes, replicated=words.replicated)
        except islands.InvalidRequest as error:
            raise Usage(str(error)) from None
        try:
            self.db.create_table(table)
        except islands.InvalidRequest as error:
            there = next((each for each in self.db.tables() if each.name == table.name), table)
            raise Stop(str(error) if there == table else
                       f"there is another table of that name, {description(there)}; drop it, or choose another name"
                       ) from None
        return dataclasses.asdict(table), description(table)

    def list(self) -> tuple[Any, str]:
        tables = self.db.tables()
        return [dataclasses.asdict(table) for table in tables], "\n".join(map(description, tables)) or "no tables"

    def drop(self) -> tuple[Any, str]:
        table = self.table()
        if not self.arguments.yes and not self.confirmed():
            raise Stop("nothing removed; --yes removes without asking")
        status, deleted = StatusLine(), 0
        with contextlib.ExitStack() as stack:
            stack.callback(status.clear)
            for page in pages(self.db, table, DELETED_AT_ONCE):
                persist(lambda: self.delete(table.name, page))
                deleted += len(page)
                status.show(lambda: f"deleted {pace(deleted, status.seconds)}")
        self.db.drop_table(table.name)
        return {"table": table.name, "deleted": deleted}, f"dropped '{table.name}' and {deleted:,} rows"

    def delete(self, table: str, rows: Sequence[islands.Row]) -> None:
        """Each as a transaction of its own: one of them all might change more than a log ring has room to undo."""
        batches = []
        for row in rows:
            batches.append(islands.Batch())
            batches[-1].delete(table, row.key, may_miss=True)
        for outcome in self.db.execute_many(batches):
            if isinstance(outcome, islands.Error):
                raise outcome

    def confirmed(self) -> bool:
        if not sys.stdin.isatty():
            return False
        print(f"remove table '{self.arguments.table}' with all its rows? Type yes: ", end="", file=sys.stderr,
              flush=True)
        return sys.stdin.readline().strip() == "yes"

    def load(self) -> tuple[Any, str]:
        report = load(self.db, self.table(), self.arguments)
        text = f"{report['loaded']:,} rows loaded into '{report['table']}' in {report['seconds']:.1f} s"
        return report, text + (f", {report['rejected']:,} rejected" if report["rejected"] else "")

    def dump(self) -> tuple[Any, str]:
        table, words, rows = self.table(), self.arguments, 0
        form = words.rows or FORMATS.get(os.path.splitext(words.output or "")[1], "csv")
        fields = islands.Fields(table)
        status = StatusLine()
        with output(words.output) as file:
            writer = Writer(file, form, Cells(fields))
            for page in pages(self.db, table, DUMPED_AT_ONCE):
                for row in page:
                    writer.write(fields.of_row(row))
                rows += len(page)
                status.show(lambda: pace(rows, status.seconds))
        status.clear()
        if words.output is None:
            return None, ""
        return {"table": table.name, "rows": rows}, f"{rows:,} rows of '{table.name}' in {words.output}"


@contextlib.contextmanager
def output(path: "str | None") -> Iterator[TextIO]:
    """A file has its name once it is whole."""
    if path is None:
        with open(1, "w", encoding="utf-8", errors="surrogateescape", newline="", closefd=False) as file:
            yield file
        return
    part = f"{path}.part"
    try:
        with target(part) as file:
            yield file
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="islands table", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="the deployment file")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--timeout", type=float, default=10, help="of a call, in seconds; default: 10")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, about: str, form: bool = True, table: bool = True, **more: Any) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=about, description=more.pop("description", about), **more)
        added._negative_number_matcher = NEGATIVE  # argparse takes -5 for a number, but -5:10 for an option
        if table:
            added.add_argument("table", help="its name")
        if form:
            added.add_argument("--format", choices=("text", "json"), default=argparse.SUPPRESS)
        return added

    create = command("create", "make a table, on all islands; fine if there is the same one already")
    create.add_argument("--key", required=True, metavar="NAME:TYPE,...",
                        help="its components: int8..int64, uint8..uint64, string; the first says where a row lies")
    create.add_argument("--range", metavar="FIRST:END", help="of the first component: from FIRST to below END")
    create.add_argument("--field", action="append", default=[], metavar="NAME:TYPE",
                        help="a part of the row: int8..int64, uint8..uint64, double, string:BYTES, bytes:BYTES; the "
                             "last one may be string or bytes, of any length")
    create.add_argument("--row-bytes", type=int, default=0, help="of every row, without fields; default: any length")
    create.add_argument("--index", action="append", default=[], metavar="NAME=COMPONENT,...",
                        help="of names of fields or of the key's components, or key:NUMBER, row:OFFSET:TYPE")
    create.add_argument("--replicated", action="store_true",
                        help="whole on every island; gateways refuse to make such tables for now")
    command("list", "which tables there are", table=False)
    drop = command("drop", "delete all rows of a table, and then the table")
    drop.add_argument("--yes", action="store_true", help="without asking")
    loading = command("load", "put rows from a file into a table", form=False, description=
                      "Puts rows from a file into a table, each as a transaction of its own. What is no row of the "
                      "table, or is there already, is rejected, and the rest goes on; the exit code is 1 then. Islands "
                      "and gateway may be killed meanwhile: it goes on when they are back.")
    loading.add_argument("input", metavar="FILE", help="FILE.csv or FILE.jsonl; - is standard input")
    loading.add_argument("--format", dest="rows", choices=("csv", "jsonl"), help="default: by the file's name, or csv")
    loading.add_argument("--replace", action="store_true",
                         help="rows that are there already, instead of rejecting them")
    loading.add_argument("--rejects", metavar="FILE", help="where rejected lines go as they are, with the header")
    dump = command("dump", "write all rows of a table, in key order", form=False, description=
                   "Writes all rows of a table, in key order, a thousand at a time: those are as they were at one "
                   "time, but others may change between one thousand and the next.")
    dump.add_argument("--format", dest="rows", choices=("csv", "jsonl"), help="default: by the file's name, or csv")
    dump.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
    return parser


def main(words: Sequence[str]) -> int:
    arguments = make_parser().parse_args(words)
    try:
        with islands.connect(address_of(arguments.file), timeout=arguments.timeout) as db:
            document, text = getattr(Commands(db, arguments), arguments.command)()
    except islands.UnknownOutcome as error:
        print(f"nobody knows what became of it; the same again does no harm: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    except (Stop, islands.Error, OSError) as error:
        print(error, file=sys.stderr)
        return error.code if isinstance(error, Stop) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    if document is not None:
        print(json.dumps(document) if arguments.format == "json" else text)
    return FAILED if arguments.command == "load" and document["rejected"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
