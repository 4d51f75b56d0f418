"""`islands table`: tables that are made, loaded from files, dumped and dropped; against islands, and against a gateway
in this process for what can be planted there only."""

import contextlib
import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import pytest

from cluster import Cluster, cluster, wait_until  # noqa: F401
from conftest import ROOT, Result
from fake_gateway import FakeGateway, knows_where, serving

sys.path.insert(0, os.path.join(ROOT, "instance", "gateway", "tools"))
import gateway_tool  # noqa: E402
import islands as client  # noqa: E402
import table  # noqa: E402

TABLES = """data:
  tables:
    - {name: micro, key: [uint64], range: [0, 24000], row_bytes: 250}
    - {name: places, key: [int32, string], range: [-10000, 10000]}
    - {name: fixed, key: [int8], range: [-128, 128], row_bytes: 12}
gateway: {enabled: true}
"""
PEOPLE = ["people", "--key", "id:uint64,at:string", "--range", "0:100000", "--field", "name:string:40", "--field",
          "age:uint8", "--field", "weight:double", "--field", "mark:bytes:4", "--field", "note:string"]
Say = Callable[..., Result]


class Fake:
    """Runs the program in this process: most of its time is its start."""

    def __init__(self, gateway: FakeGateway, folder: str, capture: "pytest.CaptureFixture[str]") -> None:
        self.gateway, self.folder, self.capture = gateway, folder, capture

    def say(self, command: str, *words: object, code: int = 0, text: str = "") -> Result:
        with open(self.write("input", text), encoding="utf-8") as file, as_standard_input(file):
            try:
                returned = table.main(["file.yaml", command, *map(str, words)])
            except SystemExit as ended:  # words that argparse does not take
                returned = int(ended.code or 0)
        done = Result(returned, *self.capture.readouterr())
        assert done.code == code, done
        return done

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def write(self, name: str, text: "str | bytes") -> str:
        with open(self.path(name), "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return self.path(name)


@contextlib.contextmanager
def as_standard_input(file: TextIO) -> Iterator[None]:
    saved = os.dup(0)
    os.dup2(file.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(saved, 0)
        os.close(saved)


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


@pytest.fixture
def fake(folder: str, capfd: "pytest.CaptureFixture[str]", monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    gateway = FakeGateway()
    with serving(gateway, folder) as address:
        monkeypatch.setattr(gateway_tool, "BINARY", knows_where(address, folder))
        yield Fake(gateway, folder, capfd)


def say_to(cluster: Cluster) -> Say:
    def say(command: str, *words: object, code: int = 0, **more: Any) -> Result:
        done = cluster.islands.run("table", cluster.file, command, *words, **more)
        assert done.code == code, done
        return done
    return say


def started(cluster: Cluster, durability: str = "lazy") -> Say:
    cluster.write(more=TABLES, durability=durability)
    cluster.up()
    return say_to(cluster)


def csv_of(names: list[str], rows: list[list[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([names, *rows])
    return out.getvalue()


# ---- with names

def make_tables(say: Say) -> None:
    done = say("create", *PEOPLE, "--index", "by_age=age,id", "--index", "raw=row:40:uint8,key:0")
    line = ("people: key id uint64/at string from 0 to below 100000, rows of any length: name string:40, age uint8, "
            "weight double, mark bytes:4, note string; indexes: by_age, raw\n")
    assert done.out == line
    say("create", *PEOPLE, "--index", "by_age=age,id", "--index", "raw=row:40:uint8,key:0")
    assert line in say("list").out
    listed = {table["name"]: table for table in json.loads(say("list", "--format", "json").out)}["people"]
    assert listed["key_names"] == ["id", "at"] and listed["row_bytes"] == 0
    assert listed["indexes"][0] == {"name": "by_age", "key": ["row:40:uint8", "key:0"]}
    say("create", "plain", "--key", "int64", "--range", "-5:5", "--row-bytes", "8")
    assert "plain: key int64 from -5 to below 5, rows of 8 bytes\n" in say("list").out


def names_and_files(say: Say, write: Callable[[str, str], str], path: Callable[[str], str]) -> None:
    """Loads people, dumps them in both forms, loads them from there, drops them."""
    names = ["note", "id", "at", "name", "age", "weight", "mark"]
    rows = [["", 0, "", "", 0, -0.1, r"\x00\xff"],
            ['says "hi", twice\nand "bye"', 5, "b/c", "Zoë ☃", 255, 1e300, "abcd"],
            [r"back\slash", 5, "a", "x" * 40, 1, "inf", r"\\"],
            [" spaces ", 99999, "ü,\r\n", " y ", 7, 3, ""]]
    say("load", "people", write("people.csv", csv_of(names, rows)))
    dumped = say("dump", "people").out
    assert list(csv.reader(io.StringIO(dumped, newline="")))[:3] == [
        ["id", "at", "name", "age", "weight", "mark", "note"],
        ["0", "", "", "0", "-0.1", r"\x00\xff", ""],
        ["5", "a", "x" * 40, "1", "inf", r"\x5c", r"back\slash"]]
    say("dump", "people", "-o", path("people.jsonl"))
    objects = [json.loads(line) for line in read(path("people.jsonl")).splitlines()]
    assert [each["id"] for each in objects] == [0, 5, 5, 99999]
    assert objects[2] == {"id": 5, "at": "b/c", "name": "Zoë ☃", "age": 255, "weight": 1e300, "mark": "abcd",
                          "note": 'says "hi", twice\nand "bye"'}
    done = say("drop", "people", "--yes")
    assert done.out == "dropped 'people' and 4 rows\n"
    say("create", *PEOPLE)
    say("load", "people", path("people.jsonl"))
    assert say("dump", "people").out == dumped
    refused = say("load", "people", path("people.jsonl"), code=1)
    assert "line 1: there is such a row already" in refused.err and "4 rejected" in refused.out
    say("load", "people", path("people.jsonl"), "--replace")
    assert say("dump", "people").out == dumped


def test_tables_are_made_and_listed(fake: Fake) -> None:
    make_tables(fake.say)


def test_rows_with_names_come_back(fake: Fake) -> None:
    fake.say("create", *PEOPLE)
    names_and_files(fake.say, fake.write, fake.path)


def came_and_went(cluster: Cluster) -> Say:
    """Skips the test for as long as gateways make no tables."""
    say = started(cluster)
    with client.connect(cluster.status()["gateway"]["addresses"][0]) as db:
        try:
            db.create_table("probe", key=["uint64"], range=(0, 10))
        except client.InvalidRequest as error:
            if error.code is not None and error.code.name == "UNIMPLEMENTED":
                pytest.skip("this gateway makes no tables")
            raise
        db.drop_table("probe")
    return say


def test_islands_make_tables_and_list_them(cluster: Cluster) -> None:
    make_tables(came_and_went(cluster))


def test_rows_with_names_come_back_from_islands(cluster: Cluster, folder: str) -> None:
    def path(name: str) -> str:
        return os.path.join(folder, name)

    def write(name: str, text: str) -> str:
        with open(path(name), "w", encoding="utf-8", newline="") as file:
            file.write(text)
        return path(name)

    say = came_and_went(cluster)
    say("create", *PEOPLE)
    names_and_files(say, write, path)
    say("drop", "people", "--yes")
    say("create", "many", "--key", "int32", "--range", "-10000:10000")
    say("load", "many", write("many.csv", csv_of(["key", "value"], [[row[0], row[1]] for row in people(3000)])))
    assert say("drop", "many", "--yes").out == "dropped 'many' and 3,000 rows\n"
    assert "many" not in say("list").out


def test_a_file_may_name_a_table_that_was_made_since(cluster: Cluster) -> None:
    say = came_and_went(cluster)
    say("create", "made", "--key", "id:uint64", "--range", "0:1000", "--field", "n:int64")
    with client.connect(cluster.status()["gateway"]["addresses"][0]) as db:
        db.table("made").insert({"id": 900, "n": 7})
    cluster.down()

    def named(table: str) -> None:
        tables = TABLES.replace("  tables:\n", f"  tables:\n    - {{{table}}}\n")
        cluster.write(more=tables, durability="lazy")

    named("name: made, key: {id: uint64}, range: [0, 1000], fields: {n: uint64}")
    done = cluster.islands.run("up", cluster.file)
    assert done.code == 1 and "table 'made', which clients have made, has other names" in done.err, done
    named("name: late, key: [uint64], range: [0, 1000]")
    done = cluster.islands.run("up", cluster.file)
    assert done.code == 1 and "the deployment has table 'late', the data has none of that name" in done.err, done
    named("name: made, key: {id: uint64}, range: [0, 1000], fields: {n: int64}")
    cluster.up()
    done = cluster.islands.run("status", cluster.file)
    assert done.code == 0 and "warning" not in done.err, done
    with client.connect(cluster.status()["gateway"]["addresses"][0]) as db:
        assert db.table("made").get(900) == {"id": 900, "n": 7}
    cluster.down()
    assert cluster.islands.run("verify", cluster.file).code == 0


def test_islands_know_what_became_of_a_token(cluster: Cluster) -> None:
    say = came_and_went(cluster)
    say("create", "counters", "--key", "id:uint64", "--range", "0:1000", "--field", "n:int64")
    with client.connect(cluster.status()["gateway"]["addresses"][0]) as db:
        counters = db.table("counters")
        for key in (1, 900):
            counters.insert({"id": key, "n": 0})
        batch = client.Batch()
        for key in (1, 900):
            batch.add("counters", key, 1)
        token = client.new_token()
        assert not db.execute(batch, token=token).earlier
        assert db.execute(batch, token=token).earlier and counters.get(900) == {"id": 900, "n": 1}
        assert db.ask_outcome(token, "counters", 1)
        never = client.new_token()
        assert not db.ask_outcome(never, "counters", 1)
        with pytest.raises(client.Error):
            db.execute(batch, token=never)
        assert db.run(lambda t: counters.on(t).add(900, "n", 1), once=True) == 2
        # Whoever dies: each request is carried out once.
        for number in range(40):
            if number % 20 == 10:
                os.kill(cluster.status()["gateway"]["pid"], signal.SIGKILL)
            db.execute(batch, token=client.new_token(), timeout=20)
        assert counters.get(1) == {"id": 1, "n": 41} and counters.get(900) == {"id": 900, "n": 42}


@pytest.mark.parametrize("words, complaint", [
    (["--key", "id:uint64,string"], "--key: found 'id:uint64,string', expected names for all components or for none"),
    (["--key", "uint64", "--range", "5"], "--range: found '5', expected FIRST:END"),
    (["--key", "uint64", "--range", "5:5"], "--range: found '5:5'"),
    (["--key", "uint64", "--field", "age"], "--field: found 'age', expected NAME:TYPE"),
    (["--key", "uint64", "--field", "a:int8", "--field", "a:int8"], "--field: found a second one of that name"),
    (["--key", "uint64", "--field", "age:int"], "field 'age': found the type 'int', expected int8..int64"),
    (["--key", "uint64", "--index", "by_age=age"], "index 'by_age': found 'age', expected one of key:COMPONENT"),
])
def test_words_that_make_no_sense(fake: Fake, words: list[str], complaint: str) -> None:
    assert complaint in fake.say("create", "t", *words, code=2).err
    assert fake.gateway.tables == {}


def test_drop_asks(fake: Fake) -> None:
    fake.say("create", "t", "--key", "uint64", "--range", "0:10")
    assert "--yes removes without asking" in fake.say("drop", "t", code=1, text="yes\n").err  # no terminal
    assert "there is no table 'x', but t" in fake.say("drop", "x", "--yes", code=1).err
    fake.say("drop", "t", "--yes")
    assert fake.say("list").out == "no tables\n"


def test_rejects_are_named_and_kept(fake: Fake) -> None:
    fake.say("create", "t", "--key", "id:uint8", "--range", "0:256", "--field", "n:int16", "--field", "s:string:3")
    good = ["1,-5,a\n", '2, 7 ,"x\ny"\n', "3,32767,\n"]
    bad = ["256,1,a\n", "x,1,a\n", "4,32768,a\n", "5,1.5,a\n", "6,1,abcd\n", "7,1\n", '8,1,"a"b\n', "1,0,twice\n",
           "9,1_0,a\n", "10,1,a,b\n", '11,1,"q\nr"\n', "12,,a\n"]
    bad[-2] = '11,9999999,"q\nr"\n'
    text = "id,n,s\n" + good[0] + bad[0] + "\n" + "".join(bad[1:8]) + good[1] + "".join(bad[8:]) + good[2]
    raw = text.encode() + b"13,1,\xff\n"
    done = fake.say("load", "t", fake.write("t.csv", raw), "--rejects", fake.path("bad.csv"), code=1)
    assert done.out.startswith("3 rows loaded into 't' in ") and done.out.endswith(", 13 rejected\n")
    assert read(fake.path("bad.csv")) == b"id,n,s\n" + "".join(bad).encode() + b"13,1,\xff\n"
    lines = done.err.splitlines()
    assert lines[0] == "line 3: table 't', id: found 256, expected uint8: a whole number from 0 to 255"
    assert lines[5] == "line 9: found 2 columns, expected 3"
    assert lines[6].startswith("line 10: not CSV: ")
    assert lines[7] == "line 11: table 't', s: found 'twice', expected at most 3 bytes as UTF-8, not 5"
    assert lines[9] == "line 15: found 4 columns, expected 3" and len(lines) == 11
    assert lines[10] == "more lines are rejected, which are only counted"
    assert fake.say("dump", "t").out == 'id,n,s\n1,-5,a\n2,7,"x\ny"\n3,32767,\n'


def test_bad_json_lines(fake: Fake) -> None:
    fake.say("create", "t", "--key", "id:uint8", "--range", "0:256", "--field", "n:double")
    lines = ['{"id": 1, "n": 1}', "", '{"id": 2}', "[1]", "{", '{"id": 2, "n": null}', '{"id": 2, "n": 1, "x": 1}',
             '{"id": true, "n": 1}', '{"id": "3", "n": "-inf"}', "{}" + "[" * 100000]
    done = fake.say("load", "t", "-", "--format", "jsonl", code=1, text="\n".join(lines))
    assert "2 rows loaded" in done.out and "7 rejected" in done.out
    assert [line.partition(":")[0] for line in done.err.splitlines()] == [f"line {n}" for n in (3, 4, 5, 6, 7, 8, 10)]
    assert "found no n, expected id, n" in done.err and "n: found None, expected a number" in done.err
    assert fake.say("dump", "t", "--format", "jsonl").out == '{"id": 1, "n": 1.0}\n{"id": 3, "n": "-inf"}\n'


def test_headers_that_do_not_fit(fake: Fake) -> None:
    fake.say("create", "t", "--key", "id:uint8", "--range", "0:256", "--field", "n:double")
    for text in ("", "id\n", "id,m\n", "id,n,n\n"):
        assert "expected id, n" in fake.say("load", "t", "-", code=2, text=text).err
    assert "No such file" in fake.say("load", "t", fake.path("none.csv"), code=2).err


def people(count: int) -> list[list[Any]]:
    made = random.Random(5)
    names, notes = ["a", "ü", 'q"q', "c,d", "e\nf"], ["", "x", "ÿ ☃", r"\\ back", "l\n1"]
    return [[key, made.choice(names), made.choice(notes) + str(key)]
            for key in made.sample(range(-10000, 10000), count)]


@pytest.mark.parametrize("replace", [False, True])
def test_what_is_lost_on_the_way_is_neither_lost_nor_doubled(fake: Fake, replace: bool) -> None:
    """Answers are lost before and after the rows are written, of whole calls."""
    fake.say("create", "t", "--key", "id:int32", "--range", "-10000:10000", "--field", "a:string:8", "--field",
             "b:string")
    rows = people(5000)
    fake.gateway.faults = ["silent", "lost", "aborted", "", "", "silent", "silent", "lost", ""] * 3
    path = fake.write("t.csv", csv_of(["id", "a", "b"], [*rows, [rows[0][0], "again", ""]]))
    done = fake.say("load", "t", path, *(["--replace"] if replace else []), code=0 if replace else 1)
    assert f"{5001 if replace else 5000:,} rows loaded" in done.out
    assert done.err == ("" if replace else f"line {read(path).count(10)}: there is such a row already\n")
    expected = {row[0]: row[1] for row in rows} | ({rows[0][0]: "again"} if replace else {})
    found = {int(row["id"]): row["a"] for row in csv.DictReader(io.StringIO(fake.say("dump", "t").out, newline=""))}
    assert found == expected


def test_rows_that_were_there_are_rejected_whatever_is_lost(fake: Fake) -> None:
    fake.say("create", "t", "--key", "id:uint8", "--range", "0:256", "--field", "n:uint8")
    fake.say("load", "t", "-", text="id,n\n1,1\n2,2\n")
    fake.gateway.faults = ["silent"]
    done = fake.say("load", "t", "-", text="id,n\n1,9\n3,3\n", code=1)
    assert done.err == "line 2: there is such a row already\n" and "1 rows loaded" in done.out


# ---- with islands

def test_many_rows_come_back_from_islands(cluster: Cluster) -> None:
    say = started(cluster)
    rows = people(20000)
    path = os.path.join(cluster.folder, "places.csv")
    lines = [csv_of(["key0", "key1", "value"], []), *(csv_of(row, [])[:-1] + "\n" for row in rows)]
    bad = ["10000,a,outside\n", "1,a\n", '5,"a,b"c,d\n', f"6,z,{'x' * 2000}\n", lines[1]]
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.writelines([*lines[:8000], *bad[:4], *lines[8000:], bad[4]])
    kept = os.path.join(cluster.folder, "rejects.csv")
    done = say("load", "places", path, "--rejects", kept, code=1)
    assert "20,000 rows loaded" in done.out and "5 rejected" in done.out and len(done.err.splitlines()) == 5, done
    assert read(kept).decode() == "".join([lines[0], *bad])
    for form in ("csv", "jsonl"):
        out = os.path.join(cluster.folder, f"out.{form}")
        say("dump", "places", "-o", out)
        with open(out, encoding="utf-8", newline="") as file:
            found = [[int(row["key0"]), row["key1"], row["value"].replace(r"\x5c", "\\").replace(r"\x0a", "\n")]
                     for row in (csv.DictReader(file) if form == "csv" else map(json.loads, file))]
        expected = [[row[0], row[1], row[2].replace(r"\\", "\\")] for row in rows]
        assert found == sorted(expected, key=lambda row: (row[0], row[1].encode()))
    say("load", "places", os.path.join(cluster.folder, "out.jsonl"), "--replace")
    again = os.path.join(cluster.folder, "again.csv")
    say("dump", "places", "-o", again)
    assert read(again) == read(os.path.join(cluster.folder, "out.csv"))


def test_all_keys_of_a_type_and_rows_of_one_length(cluster: Cluster) -> None:
    say = started(cluster, durability="none")
    text = "key,value\n" + "".join(f"{key},v{key}\n" for key in range(-128, 128))
    say("load", "fixed", "-", input=text)
    assert say("dump", "fixed").out == text


def test_a_gateway_that_is_killed_during_a_load(cluster: Cluster) -> None:
    say = started(cluster)
    rows = people(12000)
    process = cluster.start("table", cluster.file, "load", "places", "-", stdin=subprocess.PIPE)
    assert process.stdin
    process.stdin.write("key0,key1,value\n")
    for number, row in enumerate(rows):
        process.stdin.write(csv_of(row, []))
        if number in (4000, 8000):
            process.stdin.flush()
            os.kill(cluster.status()["gateway"]["pid"], signal.SIGKILL)
            wait_until(lambda: cluster.status()["gateway"]["state"] == "ready", what="the gateway")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "12,000 rows loaded" in out, (out, err)
    dumped = csv.DictReader(io.StringIO(say("dump", "places").out, newline=""))
    assert sorted(int(row["key0"]) for row in dumped) == sorted(row[0] for row in rows)
    assert say("load", "places", "-", input=f"key0,key1,value\n{rows[0][0]},zz,x\n").out.startswith("1 rows")
