"""islands client FILE [COMMAND]: rows of a deployment by hand.

    islands client my.yaml tables
    islands client my.yaml put notes 7 'some text'
    islands client my.yaml get notes 7
    islands client my.yaml procedures
    islands client my.yaml call transfer.pay 1 2 30
    islands client my.yaml scan people -5/ann --limit 10
    islands client my.yaml txn 'add accounts 1 -30 --field balance' 'add accounts 2 30 --field balance'

Without a command it asks for one after the other; `begin` opens a transaction that lasts until `commit` or `rollback`.
A key of several parts is written 7/ann. Rows of a table with fields are JSON:

    islands client my.yaml put people 7 '{"name": "ann", "visits": 1}'
    islands client my.yaml add people 7 1 --field visits

Other values are text, with \\xff for bytes that are none; where all rows of a table have the same length, zeros follow.
"""

import argparse
import cmd
import dataclasses
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

from gateway_tool import FAILED, INTERRUPTED, Stop, address_of, description
from row_files import Cells, to_bytes

import islands

STEPS = ("get", "put", "insert", "delete", "add", "scan")  # of a transaction
NEGATIVE = re.compile(r"^-\d")
Speaker = Union[islands.Client, islands.Transaction]


def to_text(value: bytes) -> str:
    """Printable; trailing zeros go."""
    shown = value.rstrip(b"\0")
    try:
        text = shown.decode()
    except UnicodeDecodeError:
        text = ""
    return text if text.isprintable() and (text or not shown) else repr(shown)[2:-1]


def key_text(key: islands.Key) -> str:
    return "/".join(map(str, key)) if isinstance(key, tuple) else str(key)


def value_of(declared: islands.NamedType, word: str) -> islands.procedures.Scalar:
    kinds: dict[str, Callable[[str], islands.procedures.Scalar]] = {"int64": int, "double": float, "text": to_bytes}
    try:
        return kinds[declared.type](word)
    except (KeyError, ValueError):
        raise Stop(f"argument '{declared.name}': found '{word}', expected {declared.type}") from None


class Shell:
    """Carries out one command after the other, in the open transaction if there is one."""

    def __init__(self, db: islands.Client, as_json: bool) -> None:
        self.db, self.as_json = db, as_json
        self.transaction: Optional[islands.Transaction] = None
        self.documents: Optional[list[Any]] = None  # of several commands that are one
        self.known = {table.name: table for table in db.tables()}

    @property
    def speaker(self) -> Speaker:
        return self.transaction or self.db

    def table(self, name: str) -> islands.Table:
        if name not in self.known:
            self.known = {table.name: table for table in self.db.tables()}
        if name not in self.known:
            raise Stop(f"there is no table '{name}', but {', '.join(self.known) or 'none at all'}")
        return self.known[name]

    def key(self, table: str, text: str) -> islands.Key:
        types = self.table(table).key
        parts: list[islands.values.KeyPart] = []
        for number, word in enumerate(text.split("/", len(types) - 1)):
            try:
                parts.append(word if types[number] == "string" else int(word))
            except ValueError:
                raise Stop(f"key '{text}': part {number} is no number; keys of '{table}' are "
                           f"{'/'.join(types)}") from None
        return parts[0] if len(types) == 1 and len(parts) == 1 else tuple(parts)

    def value(self, table: str, key: islands.Key, text: str) -> bytes:
        if self.table(table).fields:
            return self.fields_of(table, key, text)
        try:
            value = to_bytes(text)
        except ValueError as error:
            raise Stop(f"value: found {text!r}, expected text with \\xff for bytes that are none, and \\\\ for \\: "
                       f"{error}") from None
        return value.ljust(self.table(table).row_bytes, b"\0")

    def fields_of(self, table: str, key: islands.Key, text: str) -> bytes:
        """Of a row as JSON: bare text would be the row's bytes, and make other fields of it without a word."""
        fields = islands.Fields(self.table(table))
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            names = ", ".join(f'"{field.name}": ...' for field in fields.fields)
            raise Stop(f"value: found {text!r}, expected the row's fields as JSON: {{{names}}}")
        cells = Cells(fields)
        values = {name: cells.value(name, cell) for name, cell in row.items()}
        parts = key if isinstance(key, tuple) else (key,)
        for name, part in zip(fields.key_names, parts):
            if values.get(name, part) != part:
                raise Stop(f"value: found {name} {values[name]!r}, expected {part!r} as in the key, or none")
        return fields.encode(values)

    def shown(self, table: str, row: islands.Row) -> "dict[str, Any]":
        """By names, of a table that has fields."""
        fields = islands.Fields(self.table(table))
        cells = Cells(fields)
        return {name: cells.cell(name, value) for name, value in fields.of_row(row).items()}

    def show(self, document: Any, text: str) -> None:
        if self.as_json and self.documents is not None:
            self.documents.append(document)
        else:
            print(json.dumps(document) if self.as_json else text)

    def tables(self, arguments: argparse.Namespace) -> None:
        self.known = {table.name: table for table in self.db.tables()}
        tables = self.known.values()
        self.show([dataclasses.asdict(table) for table in tables], "\n".join(map(description, tables)))

    def procedures(self, arguments: argparse.Namespace) -> None:
        procedures = self.db.procedures()
        text = "\n".join(f"{procedure}\n    {procedure.about}" for procedure in procedures)
        self.show([dataclasses.asdict(procedure) for procedure in procedures],
                  text or "none; workloads that are loaded may have some")

    def call(self, arguments: argparse.Namespace) -> None:
        if self.transaction:
            raise Stop("a call is a transaction of its own; commit or roll back the open one first")
        known = {procedure.name: procedure for procedure in self.db.procedures()}
        if arguments.name not in known:
            raise Stop(f"there is no procedure '{arguments.name}', but {', '.join(known) or 'none at all'}")
        procedure = known[arguments.name]
        if len(arguments.argument) != len(procedure.arguments):
            raise Stop(f"found {len(arguments.argument)} argument(s), expected {procedure}")
        values = [value_of(declared, word) for declared, word in zip(procedure.arguments, arguments.argument)]
        answer = self.db.call(procedure.name, *values)
        texts = {declared.name: to_text(value) if isinstance(value, bytes) else value
                 for declared, value in zip(procedure.results, answer)}
        self.show(texts, "\n".join(f"{name} {value}" for name, value in texts.items()) or "done")

    def get(self, arguments: argparse.Namespace) -> None:
        key = self.key(arguments.table, arguments.key)
        value = self.speaker.get(arguments.table, key)
        if value is None:
            raise Stop("there is no such row")
        if self.table(arguments.table).fields:
            row = self.shown(arguments.table, islands.Row(key, value))
            self.show(row, json.dumps(row, ensure_ascii=False))
            return
        self.show({"value": to_text(value)}, to_text(value))

    def put(self, arguments: argparse.Namespace) -> None:
        key = self.key(arguments.table, arguments.key)
        self.speaker.put(arguments.table, key, self.value(arguments.table, key, arguments.value))
        self.show({"put": True}, "put")

    def insert(self, arguments: argparse.Namespace) -> None:
        key = self.key(arguments.table, arguments.key)
        if not self.speaker.insert(arguments.table, key, self.value(arguments.table, key, arguments.value)):
            raise Stop("there is such a row already")
        self.show({"inserted": True}, "inserted")

    def delete(self, arguments: argparse.Namespace) -> None:
        if not self.speaker.delete(arguments.table, self.key(arguments.table, arguments.key)):
            raise Stop("there is no such row")
        self.show({"deleted": True}, "deleted")

    def add(self, arguments: argparse.Namespace) -> None:
        number = self.speaker.add(arguments.table, self.key(arguments.table, arguments.key), arguments.delta,
                                  self.offset(arguments))
        self.show({"number": number}, str(number))

    def offset(self, arguments: argparse.Namespace) -> int:
        table = self.table(arguments.table)
        if arguments.field is not None:
            return islands.Fields(table).offset(arguments.field)
        if arguments.offset is None and table.fields:
            names = ", ".join(field.name for field in table.fields if field.type == "int64")
            raise Stop(f"rows of '{table.name}' have fields, expected --field with one of type int64: "
                       f"{names or 'it has none'}")
        return arguments.offset or 0

    def scan(self, arguments: argparse.Namespace) -> None:
        table = arguments.table
        bounds = [None if text is None else self.key(table, text) for text in (arguments.begin, arguments.end)]
        rows = self.speaker.scan(table, bounds[0], bounds[1], arguments.limit, arguments.reverse)
        if self.table(table).fields:
            shown = [self.shown(table, row) for row in rows]
            self.show(shown, "\n".join(json.dumps(row, ensure_ascii=False) for row in shown) or "no rows")
            return
        self.show([{"key": key_text(row.key), "value": to_text(row.value)} for row in rows],
                  "\n".join(f"{key_text(row.key)}\t{to_text(row.value)}" for row in rows) or "no rows")

    def txn(self, arguments: argparse.Namespace) -> None:
        """Nothing of it is left unless all of it was done."""
        parser = make_parser(alone=True)
        steps = []
        for line in arguments.line:
            try:
                step = parser.parse_args(shlex.split(line))
            except (argparse.ArgumentError, ValueError) as error:
                raise Stop(f"{line!r}: {error}") from None
            except SystemExit:
                raise Stop(f"{line!r}: expected a command such as get, put or add") from None
            if step.command not in STEPS:
                raise Stop(f"{line!r}: expected one of {', '.join(STEPS)}")
            steps.append(step)
        documents: list[Any] = []
        self.documents = documents
        with self.db.transaction() as self.transaction:
            for step in steps:
                getattr(self, step.command)(step)
        self.transaction = self.documents = None
        self.show({"results": documents, "committed": True}, "committed")

    def begin(self, arguments: argparse.Namespace) -> None:
        if self.transaction:
            raise Stop("a transaction is open already")
        self.transaction = self.db.transaction(timeout=3600)
        self.show({"open": True}, "open; it is rolled back if nothing is said for as long as the gateway's idle_ms")

    def commit(self, arguments: argparse.Namespace) -> None:
        self.ended().commit()
        self.show({"committed": True}, "committed")

    def rollback(self, arguments: argparse.Namespace) -> None:
        self.ended().rollback()
        self.show({"committed": False}, "rolled back")

    def ended(self) -> islands.Transaction:
        if self.transaction is None:
            raise Stop("no transaction is open")
        transaction, self.transaction = self.transaction, None
        return transaction


def make_parser(alone: bool) -> argparse.ArgumentParser:
    """`alone`: for the words of a command only, as the prompt has them."""
    if alone:
        parser = argparse.ArgumentParser(prog="", add_help=False, exit_on_error=False)
    else:
        parser = argparse.ArgumentParser(prog="islands client", description=__doc__,
                                         formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("file", help="the deployment file")
        parser.add_argument("--format", choices=("text", "json"), default="text")
        parser.add_argument("--timeout", type=float, default=10, help="of a call, in seconds; default: 10")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=alone)

    def command(name: str, about: str, *words: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=about, description=about)
        added._negative_number_matcher = NEGATIVE  # argparse takes -5 for a number, but -5/ann for an option
        if not alone:
            added.add_argument("--format", choices=("text", "json"), default=argparse.SUPPRESS)
        for word in words:
            added.add_argument(word)
        return added

    command("tables", "which tables there are")
    command("procedures", "what workloads that are loaded let one call")
    call = command("call", "call one of them", "name")
    call.add_argument("argument", nargs="*")
    command("get", "show a row", "table", "key")
    command("put", "make a row, or replace it", "table", "key", "value")
    command("insert", "make a row that is not there yet", "table", "key", "value")
    command("delete", "remove a row", "table", "key")
    add = command("add", "add to the 64-bit integer in a row", "table", "key")
    add.add_argument("delta", type=int)
    where = add.add_mutually_exclusive_group()
    where.add_argument("--field", help="of type int64, of a table that has fields")
    where.add_argument("--offset", type=int, help="of the integer in the row; default, of a table without fields: 0")
    scan = command("scan", "show rows in key order", "table")
    scan.add_argument("begin", nargs="?", help="the first key, or its first parts")
    scan.add_argument("end", nargs="?", help="the key to end before")
    scan.add_argument("--limit", type=int, default=20, help="most rows; default: 20")
    scan.add_argument("--reverse", action="store_true", help="the last ones first")
    if not alone:
        txn = command("txn", "several commands as one transaction: all of them, or nothing")
        txn.add_argument("line", nargs="+", help=f"a command with its words: {', '.join(STEPS)}")
    if alone:
        command("begin", "open a transaction")
        command("commit", "end it well")
        command("rollback", "undo it")
    return parser


def carry_out(shell: Shell, arguments: argparse.Namespace) -> Optional[str]:
    """None, or what went wrong."""
    method: Callable[[argparse.Namespace], None] = getattr(shell, arguments.command)
    try:
        method(arguments)
    except islands.UnknownOutcome as error:
        return f"nobody knows whether it was committed: {error}"
    except (islands.Error, Stop, TypeError) as error:
        return str(error)
    return None


class Prompt(cmd.Cmd):
    intro = "`help` lists the commands, `quit` or Ctrl-D ends."

    def __init__(self, shell: Shell) -> None:
        super().__init__()
        self.shell, self.parser = shell, make_parser(alone=True)

    @property
    def prompt(self) -> str:  # type: ignore[override]
        return "islands (open)> " if self.shell.transaction else "islands> "

    def onecmd(self, line: str) -> bool:
        if line in ("EOF", "quit", "exit"):
            return True
        try:
            words = shlex.split(line)
        except ValueError as error:
            print(error)
            return False
        if not words:
            return False
        if words[0] in ("help", "?"):
            print(self.parser.format_help().replace("usage:  COMMAND ...\n\n", ""))
            return False
        try:
            arguments = self.parser.parse_args(words)
        except (argparse.ArgumentError, SystemExit) as error:
            if not isinstance(error, SystemExit):
                print(error)
            return False
        wrong = carry_out(self.shell, arguments)
        if wrong:
            print(wrong)
            if self.shell.transaction and self.shell.transaction.ended:
                self.shell.transaction = None
                print("the transaction has ended")
        return False


def main(words: Sequence[str]) -> int:
    arguments = make_parser(alone=False).parse_args(words)
    try:
        with islands.connect(address_of(arguments.file), timeout=arguments.timeout) as db:
            shell = Shell(db, arguments.format == "json")
            if arguments.command:
                wrong = carry_out(shell, arguments)
                if wrong:
                    print(wrong, file=sys.stderr)
                return FAILED if wrong else 0
            Prompt(shell).cmdloop()
            if shell.transaction:
                shell.rollback(arguments)
    except (Stop, islands.Error) as error:
        print(error, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
