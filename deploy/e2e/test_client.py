"""The Python client by itself: rows by name, tokens, tables, against a gateway in this process."""

import asyncio
import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from fake_gateway import FakeGateway, serving, taking_frames

import islands as client  # noqa: E402
import islands.aio as asyncio_client  # noqa: E402

ALL = {"a": "int8", "b": "uint8", "c": "int16", "d": "uint16", "e": "int32", "f": "uint32", "g": "int64",
       "h": "uint64", "i": "double", "j": "string:5", "k": "bytes:3", "l": "string"}
GREATEST: dict[str, Any] = {
    "a": 127, "b": 255, "c": 32767, "d": 65535, "e": (1 << 31) - 1, "f": (1 << 32) - 1, "g": (1 << 63) - 1,
    "h": (1 << 64) - 1, "i": 0.1, "j": "héé", "k": b"\0\1\0", "l": "of any length: \u2603\0"}
LEAST: dict[str, Any] = {
    "a": -128, "b": 0, "c": -32768, "d": 0, "e": -(1 << 31), "f": 0, "g": -(1 << 63), "h": 0, "i": float("-inf"),
    "j": "", "k": bytes(3), "l": ""}
ACCOUNTS: dict[str, Any] = {"key": {"id": "uint64"}, "range": (0, 1000),
                            "fields": {"owner": "string:8", "balance": "int64"},
                            "indexes": {"by_owner": ["owner", "id"]}}


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture(params=["grpc", "frames"])
def address(request: pytest.FixtureRequest, gateway: FakeGateway, folder: str) -> Iterator[str]:
    frames = taking_frames(gateway, folder) if request.param == "frames" else contextlib.nullcontext()
    with serving(gateway, folder) as at, frames:
        yield at


@pytest.fixture
def db(address: str) -> Iterator[client.Client]:
    with client.connect(address, timeout=5) as connected:
        yield connected


def fields(**described: Any) -> client.Fields:
    return client.Fields(client.describe("t", key={"id": "uint64"}, range=(0, 10), **described))


# ---- rows by name

@pytest.mark.parametrize("row", [GREATEST, LEAST])
def test_all_types_come_back(row: dict[str, Any]) -> None:
    of = fields(fields=ALL)
    value = of.encode({"id": 1, **row})
    assert of.decode(value) == row
    assert len(value) == 1 + 1 + 2 + 2 + 4 + 4 + 8 + 8 + 8 + 5 + 3 + len(row["l"].encode())


def test_a_row_is_its_fields_one_after_the_other() -> None:
    of = fields(fields={"n": "uint16", "d": "double", "s": "string:4", "i": "int32"})
    assert of.encode({"n": 258, "d": 1.5, "s": "ab", "i": -2}) == struct.pack("<Hd4si", 258, 1.5, b"ab", -2)
    assert of.table.row_bytes == 18


@pytest.mark.parametrize("name, value, complaint", [
    ("a", 128, "table 't', a: found 128, expected int8: a whole number from -128 to 127"),
    ("b", -1, "table 't', b: found -1, expected uint8: a whole number from 0 to 255"),
    ("g", 1 << 63, "expected int64"),
    ("h", -1, "expected uint64"),
    ("e", 1.0, "found 1.0, expected int32"),
    ("e", True, "found True, expected int32"),
    ("i", "1", "table 't', i: found '1', expected a number"),
    ("i", 1 << 1100, "a number that a double can hold"),
    ("j", "hééé", "table 't', j: found 'hééé', expected at most 5 bytes as UTF-8, not 7"),
    ("j", "a\0", "does not end with a zero"),
    ("j", b"a", "expected text"),
    ("l", "\udc80", "text that UTF-8 has"),
    ("k", b"ab", "expected bytes, 3 of them"),
    ("k", "abc", "expected bytes, 3 of them"),
    ("z", 1, "table 't': found z, expected id, a, b"),
])
def test_what_does_not_fit_is_named(name: str, value: Any, complaint: str) -> None:
    with pytest.raises(client.InvalidRequest) as caught:
        fields(fields=ALL).encode({**GREATEST, name: value})
    assert complaint in str(caught.value) and caught.value.committed is False


def test_what_is_missing_is_named() -> None:
    of = fields(fields=ALL)
    with pytest.raises(client.InvalidRequest, match="found no c, expected id, a, b"):
        of.encode({name: value for name, value in GREATEST.items() if name != "c"})
    with pytest.raises(client.InvalidRequest, match="found no id"):
        of.key(GREATEST)
    with pytest.raises(client.InvalidRequest, match="id: found -1, expected uint64"):
        of.key({"id": -1})
    with pytest.raises(client.InvalidRequest, match="a row of 3 bytes, expected at least 46 by its fields"):
        of.decode(b"abc")
    with pytest.raises(client.InvalidRequest, match="found 'a', expected a field of type int64"):
        of.offset("a")
    assert of.offset("g") == 14


def test_tables_without_names_have_some() -> None:
    of = client.Fields(client.Table("t", ("int32", "string"), (0, 10), row_bytes=4))
    assert of.names == ("key0", "key1", "value")
    row: dict[str, Any] = {"key0": -5, "key1": "ann", "value": b"abcd"}
    assert of.of_row(client.Row(of.key(row), of.encode(row))) == row


@pytest.mark.parametrize("described, complaint", [
    ({"fields": {"a": "int7"}}, "field 'a': found the type 'int7', expected int8..int64"),
    ({"fields": {"a": "string:0"}}, "found the type 'string:0'"),
    ({"fields": {"a": "int8:4"}}, "found the type 'int8:4'"),
    ({"fields": {"a": "string", "b": "int8"}}, "expected string:BYTES: others follow"),
    ({"fields": {"a": "double"}, "indexes": {"i": ["a"]}}, "field 'a' is double, expected an integer or string:BYTES"),
    ({"fields": {"a": "int8"}, "indexes": {"i": ["b"]}}, "index 'i': found 'b', expected one of id, a, key:COMPONENT"),
])
def test_descriptions_that_make_no_sense(described: Any, complaint: str) -> None:
    with pytest.raises(client.InvalidRequest) as caught:
        fields(**described)
    assert complaint in str(caught.value)


def test_numbers_that_no_message_holds_are_named(db: client.Client) -> None:
    """Not protobuf's ValueError, which names nothing."""
    batch = client.Batch()
    for attempt, complaint in (
            (lambda: db.get("t", 1 << 64), "key: found 18446744073709551616"),
            (lambda: batch.add("t", 1, 1 << 63), "delta: found 9223372036854775808"),
            (lambda: batch.add("t", 1, 1, offset=-1), "offset: found -1"),
            (lambda: batch.scan("t", limit=-1), "limit: found -1"),
            (lambda: batch.index_scan("t", "i", 1, limit=1 << 32), "limit: found 4294967296"),
            (lambda: db.create_table("t", key="uint64", range=(0, 1 << 64)), "table 't', range: found 184467440737"),
            (lambda: db.create_table("t", key="uint64", range=(0, 1), row_bytes=-3), "table 't', row_bytes: found -3"),
            (lambda: db.create_table(client.Table("t", ("uint64",), row_bytes=-3)), "row_bytes: found -3"),
            (lambda: db.create_table("t", key="uint64"), "table 't': found no range")):
        with pytest.raises(client.InvalidRequest, match=complaint):
            attempt()


def test_components_of_indexes_are_named() -> None:
    table = client.describe("t", key={"id": "uint64", "at": "string"}, range=(0, 10),
                            fields={"n": "uint16", "owner": "string:20"},
                            indexes={"by_owner": ["owner", "at"], "raw": ["row:0:uint16", "key:0"]})
    assert table.indexes == (client.Index("by_owner", ("row:2:string:20", "key:1")),
                             client.Index("raw", ("row:0:uint16", "key:0")))
    assert table.index_names == ["by_owner", "raw"]


def use(db: client.Client) -> None:
    """A table made, used and dropped."""
    accounts = db.create_table("accounts", **ACCOUNTS)
    db.create_table(accounts.table)  # the same again is fine
    assert db.table("accounts").table == accounts.table
    assert accounts.insert({"id": 7, "owner": "ann", "balance": 100})
    accounts.put({"id": 900, "owner": "bob", "balance": 0})
    assert accounts.get(7) == {"id": 7, "owner": "ann", "balance": 100} and accounts.get(8) is None

    def transfer(transaction: client.Transaction) -> int:
        mine = accounts.on(transaction)
        mine.add(7, "balance", -30)
        return mine.add(900, "balance", 30)

    assert db.run(transfer) == 30
    assert accounts.replace({"id": 900, "owner": "eve", "balance": 5})
    assert accounts.scan() == [{"id": 7, "owner": "ann", "balance": 70}, {"id": 900, "owner": "eve", "balance": 5}]
    with pytest.raises(client.InvalidRequest):  # it has rows
        db.drop_table("accounts")
    assert accounts.delete(7) and accounts.delete(900)
    db.drop_table("accounts")
    with pytest.raises(client.InvalidRequest, match="there is no table 'accounts', but"):
        db.table("accounts")


def test_a_table_is_made_used_and_dropped(db: client.Client) -> None:
    use(db)


def test_another_table_of_that_name_is_refused(db: client.Client) -> None:
    db.create_table("accounts", **ACCOUNTS)
    with pytest.raises(client.InvalidRequest, match="another table"):
        db.create_table("accounts", key=["uint64"], range=(0, 5))


# ---- tokens

@pytest.fixture
def batch(db: client.Client) -> client.Batch:
    """Adds 1 to the balance of an account that has none."""
    accounts = db.create_table("accounts", **ACCOUNTS)
    accounts.put({"id": 1, "owner": "ann", "balance": 0})
    made = client.Batch()
    made.add("accounts", 1, 1, accounts.fields.offset("balance"))
    return made


def balance(db: client.Client) -> Any:
    row = db.table("accounts").get(1)
    return row and row["balance"]


@pytest.mark.parametrize("faults, earlier", [
    ([], False),
    (["lost"], False),
    (["silent"], True),
    (["lost", "lost", "silent", "lost"], True),
    (["silent", "aborted", "aborted"], True),  # which says nothing of the first attempt
])
def test_with_a_token_the_outcome_is_known(db: client.Client, gateway: FakeGateway, batch: client.Batch,
                                           faults: list[str], earlier: bool) -> None:
    gateway.faults = list(faults)
    results = db.execute(batch, token=client.new_token())
    assert results.earlier == earlier and balance(db) == 1
    if earlier:
        assert len(results) == 0
        with pytest.raises(LookupError, match="results are not known"):
            _ = results[0]
    else:
        assert results[0].number == 1


def test_without_a_token_it_is_not(db: client.Client, gateway: FakeGateway, batch: client.Batch) -> None:
    gateway.faults = ["silent"]
    with pytest.raises(client.UnknownOutcome):
        db.execute(batch)
    assert balance(db) == 1


@pytest.fixture
def nobody(folder: str) -> str:
    """An address at which nobody listens."""
    return f"unix:{folder}/nobody.sock"


def test_what_was_never_sent_has_not_happened(nobody: str, batch: client.Batch) -> None:
    with client.connect(nobody, timeout=1) as db:
        def commit() -> None:
            transaction = db.transaction()
            transaction.commit(client.new_token())

        for call in (lambda: db.execute(batch), lambda: db.execute(batch, token=client.new_token()),
                     lambda: db.call("transfer.pay", 1, 2, 3), lambda: db.execute_many([batch]),
                     lambda: db.put("accounts", 1, b""), lambda: db.create_table("t", key=["uint64"], range=(0, 9)),
                     commit):
            with pytest.raises(client.Unavailable, match="nothing was sent; try again") as caught:
                call()
            assert caught.value.committed is False


def test_what_is_too_large_is_not_sent(db: client.Client, batch: client.Batch) -> None:
    for key in range(9):
        batch.put("accounts", key, bytes(1 << 20))
    for call in (lambda: db.execute(batch), lambda: db.execute(batch, token=client.new_token()),
                 lambda: db.execute_many([batch])):
        with pytest.raises(client.InvalidRequest, match="nothing was sent; send less at a time"):
            call()
    assert balance(db) == 0


def test_asyncio_knows_that_likewise(nobody: str, batch: client.Batch) -> None:
    async def call() -> None:
        async with asyncio_client.connect(nobody, timeout=1) as db:
            with pytest.raises(client.Unavailable, match="nothing was sent; try again"):
                await db.execute(batch)
            transaction = db.transaction()
            with pytest.raises(client.Unavailable, match="nothing was sent; try again"):
                await transaction.commit(client.new_token())

    asyncio.run(call())


def test_the_same_token_again_changes_nothing(db: client.Client, batch: client.Batch) -> None:
    token = client.new_token()
    assert not db.execute(batch, token=token).earlier
    assert db.execute(batch, token=token).earlier and balance(db) == 1
    assert db.ask_outcome(token, "accounts", 1)
    assert not db.ask_outcome(client.new_token(), "accounts", 1)


def test_a_refusal_after_a_loss_is_asked_for(db: client.Client, gateway: FakeGateway, batch: client.Batch) -> None:
    """The row is there: if an earlier attempt had inserted it, the insert would be refused just so."""
    batch.insert("accounts", 1, bytes(16))
    gateway.faults = ["lost", "", "lost"]  # the last one: the question is repeated, too
    with pytest.raises(client.ConditionFailed) as caught:
        db.execute(batch, token=client.new_token())
    assert caught.value.committed is False and balance(db) == 0


def test_what_is_not_known_in_time_stays_unknown(db: client.Client, gateway: FakeGateway, batch: client.Batch) -> None:
    first = client.new_token()
    gateway.faults = ["silent"] + ["lost"] * 1000
    with pytest.raises(client.UnknownOutcome):
        db.execute(batch, token=first, timeout=0.3)
    gateway.over.add(first)  # its last attempt may still be under way
    second = client.new_token()
    gateway.faults = ["silent"] + ["aborted"] * 1000
    with pytest.raises(client.UnknownOutcome, match="an earlier attempt was lost") as caught:
        db.execute(batch, token=second, timeout=0.3)
    assert caught.value.committed is None
    gateway.over.add(second)
    gateway.faults = ["aborted"]  # nothing was ever lost
    with pytest.raises(client.Aborted):
        db.execute(batch, token=client.new_token())


def test_an_empty_token_is_none(db: client.Client, batch: client.Batch) -> None:
    with pytest.raises(client.InvalidRequest, match="a token of 0 bytes"):
        db.execute(batch, token=b"")
    with db.transaction() as transaction, pytest.raises(client.InvalidRequest, match="a token of 0 bytes"):
        transaction.commit(b"")


def test_of_reads_nothing_is_left(db: client.Client, gateway: FakeGateway, batch: client.Batch) -> None:
    reads = client.Batch()
    reads.get("accounts", 1)
    reads.scan("accounts", limit=1)
    for attempt in (lambda: db.get("accounts", 1), lambda: db.execute_many([reads, reads])):
        gateway.faults = ["silent"]
        with pytest.raises(client.Unavailable):
            attempt()
    gateway.faults = ["silent"]
    with pytest.raises(client.UnknownOutcome):
        db.execute_many([reads, batch])
    gateway.faults = ["silent"]
    with pytest.raises(client.Unavailable), db.transaction() as transaction:
        transaction.get("accounts", 1)
    gateway.faults = ["silent"]
    assert db.run(lambda transaction: transaction.execute(reads)[0].found)  # again
    reads.put("accounts", 1, bytes(16))
    gateway.faults = ["silent"]
    with pytest.raises(client.UnknownOutcome), db.transaction() as transaction:
        transaction.execute(reads)


@pytest.mark.parametrize("fault, runs", [("silent", 1), ("lost", 2), ("aborted", 2)])
def test_run_once(db: client.Client, gateway: FakeGateway, batch: client.Batch, fault: str, runs: int) -> None:
    calls = []

    def add(transaction: client.Transaction) -> int:
        calls.append(1)
        return transaction.execute(batch)[0].number

    gateway.faults = [fault]
    assert db.run(add, once=True) == 1 and len(calls) == runs and balance(db) == 1
    gateway.faults = ["silent"]
    with pytest.raises(client.UnknownOutcome):
        db.run(add)
    assert db.run(lambda transaction: "nothing done", once=True) == "nothing done"


# ---- procedures

def test_a_procedure_is_called(db: client.Client) -> None:
    assert db.call("counter.add", 7, 3, "ann") == (3, 1.5, "ann")
    total, _, word = db.call("counter.add", 7, 2, b"\xff")
    assert total == 5 and word == b"\xff"
    known = db.procedures()
    assert [str(procedure) for procedure in known] == [
        "counter.add(id int64, by int64, word text) -> (sum int64, half double, word text)"]
    assert known[0].home_table == "counters"
    with pytest.raises(client.InvalidRequest, match="argument 2 'by'"):
        db.call("counter.add", 7, 0.5, "ann")
    with pytest.raises(client.InvalidRequest, match="upwards only") as caught:
        db.call("counter.add", 7, -1, "ann")
    assert caught.value.reason == "procedure" and str(caught.value.code) == "StatusCode.OUT_OF_RANGE"
    with pytest.raises(client.InvalidRequest, match="no such procedure"):
        db.call("counter.sub", 7)
    with pytest.raises(TypeError, match="not bool"):
        db.call("counter.add", True)
    with pytest.raises(client.InvalidRequest, match="an int64 can hold"):
        db.call("counter.add", 1 << 63)


@pytest.mark.parametrize("faults, earlier", [
    ([], False),
    (["lost"], False),
    (["silent"], True),
    (["silent", "aborted", "aborted"], True),
])
def test_a_call_with_a_token_happens_once(db: client.Client, gateway: FakeGateway, faults: list[str],
                                          earlier: bool) -> None:
    gateway.faults = list(faults)
    answer = db.call("counter.add", 7, 3, "ann", token=client.new_token())
    assert answer.earlier == earlier and gateway.counters == {7: 3}
    if earlier:
        with pytest.raises(LookupError, match="results are not known"):
            _, _, _ = answer
        with pytest.raises(LookupError, match="results are not known"):
            _ = answer[0]
    else:
        assert answer == (3, 1.5, "ann")


def test_a_call_that_was_lost_is_asked_for(db: client.Client, gateway: FakeGateway) -> None:
    gateway.faults = ["silent"]
    with pytest.raises(client.UnknownOutcome):
        db.call("counter.add", 7, 3, "ann")
    gateway.faults = ["lost", "", "lost"]  # then a refusal, which says nothing of the first; the question is repeated
    with pytest.raises(client.InvalidRequest, match="upwards only"):
        db.call("counter.add", 7, -3, "ann", token=client.new_token())
    gateway.faults = ["silent"] + ["lost"] * 1000
    with pytest.raises(client.UnknownOutcome):
        db.call("counter.add", 7, 3, "ann", token=client.new_token(), timeout=0.3)
    assert gateway.counters == {7: 6}


def test_asyncio_calls_likewise(address: str, gateway: FakeGateway) -> None:
    async def speak() -> None:
        async with asyncio_client.connect(address) as db:
            assert await db.call("counter.add", 7, 3, "ann") == (3, 1.5, "ann")
            assert [procedure.name for procedure in await db.procedures()] == ["counter.add"]
            gateway.faults = ["silent", "lost"]
            assert (await db.call("counter.add", 7, 3, "ann", token=client.new_token())).earlier
            gateway.faults = ["lost"]
            with pytest.raises(client.InvalidRequest, match="upwards only"):
                await db.call("counter.add", 7, -3, "ann", token=client.new_token())

    asyncio.run(speak())
    assert gateway.counters == {7: 6}


def test_asyncio_likewise(address: str, gateway: FakeGateway, db: client.Client, batch: client.Batch) -> None:
    async def speak() -> None:
        async with asyncio_client.connect(address) as other:
            gateway.faults = ["silent", "lost"]
            assert (await other.execute(batch, token=client.new_token())).earlier
            gateway.faults = ["lost"]
            assert (await other.execute(batch, token=client.new_token()))[0].number == 2

            accounts = await other.table("accounts")

            async def add(transaction: asyncio_client.Transaction) -> int:
                return await accounts.on(transaction).add(1, "balance", 1)

            for fault in ("silent", "lost", "aborted"):
                gateway.faults = [fault]
                await other.run(add, once=True)
            assert await accounts.get(1) == {"id": 1, "owner": "ann", "balance": 5}
            gateway.faults = ["silent"] * 2
            with pytest.raises(client.Unavailable):
                await other.get("accounts", 1)
            with pytest.raises(client.Unavailable):
                async with other.transaction() as transaction:
                    await transaction.get("accounts", 1)
            gateway.faults = ["lost"] * 1000
            with pytest.raises(client.UnknownOutcome):
                await other.execute(batch, token=client.new_token(), timeout=0.3)
            gateway.faults = []
            token = client.new_token()
            assert not await other.ask_outcome(token, "accounts", 1)
            with pytest.raises(client.Aborted):  # who asked was told that it never will be
                await other.execute(batch, token=token)
            made = await other.create_table("other", key=["uint64"], range=(0, 10))
            await made.put({"key": 1, "value": b"x"})
            assert await made.scan() == [{"key": 1, "value": b"x"}]
            await made.delete(1)
            await other.drop_table("other")

    asyncio.run(speak())
