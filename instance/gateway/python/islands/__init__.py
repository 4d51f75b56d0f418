"""Transactions on an Islands deployment, through its gateway.

    import islands

    with islands.connect("unix:run/gateway.sock") as db:
        db.put("accounts", 7, b"...")
        with db.transaction() as t:          # committed at the end of the block, rolled back if it is left by an error
            row = t.get("accounts", 7)
            t.put("accounts", 8, row)
        db.run(transfer)                     # transfer(t), again and again until it was committed
        paid, balance = db.call("transfer.pay", 1, 2, 30)  # a procedure of a loaded workload
        people = db.table("people")          # rows as dictionaries, of a table that names its fields
        people.put({"id": 7, "name": "ann"})

README.md has more, and what each error means.
"""

from pkgutil import extend_path as _extend_path

# In a clone of the repository the stubs are generated into another folder, an `islands` too.
__path__ = _extend_path(__path__, __name__)

from islands.attempts import new_token  # noqa: E402
from islands.client import Client, Transaction, connect, tls  # noqa: E402
from islands.errors import (Aborted, ConditionFailed, DeadlineExceeded, Error, InvalidRequest,  # noqa: E402
                            LimitExceeded, Unavailable, UnknownOutcome)
from islands.fields import Fields  # noqa: E402
from islands.operations import Batch  # noqa: E402
from islands.procedures import Answer, NamedType, Procedure  # noqa: E402
from islands.rows import Rows  # noqa: E402
from islands.tables import Field, Index, Table, describe  # noqa: E402
from islands.values import Key, Result, Results, Row  # noqa: E402

__all__ = ["Aborted", "Answer", "Batch", "Client", "ConditionFailed", "DeadlineExceeded", "Error", "Field", "Fields",
           "Index", "InvalidRequest", "Key", "LimitExceeded", "NamedType", "Procedure", "Result", "Results", "Row",
           "Rows", "Table", "Transaction", "Unavailable", "UnknownOutcome", "connect", "describe", "new_token", "tls"]
