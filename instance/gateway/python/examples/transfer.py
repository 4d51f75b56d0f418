#!/usr/bin/env python3
"""Moves money between accounts that lie on different islands, from several threads, and looks whether any was lost.

    examples/transfer.py unix:run/gateway.sock [--seconds 5]

Makes a table `transfers`, or begins anew with the one that an earlier run has made. Islands and gateway may be killed
meanwhile: a transfer happens as a whole or not at all, so the total stays what it was, whatever nobody knows the
outcome of.
"""

import argparse
import random
import sys
import threading
import time

import islands

ACCOUNTS, FIRST_BALANCE, THREADS = 100, 1000, 4
KEYS = range(0, 1_000_000, 1_000_000 // ACCOUNTS)  # spread, so that most transfers touch two islands


class Counts:
    def __init__(self) -> None:
        self.done = self.unknown = self.failed = 0


def move(address: str, until: float, counts: Counts) -> None:
    with islands.connect(address) as db:
        accounts = db.table("transfers")
        while time.monotonic() < until:
            source, target = random.sample(KEYS, 2)
            amount = random.randint(1, 10)

            def transfer(transaction: islands.Transaction) -> None:
                mine = accounts.on(transaction)
                if mine.add(source, "balance", -amount) < 0:
                    raise ValueError("there is not so much")  # leaves the block: rolled back
                mine.add(target, "balance", amount)

            try:
                db.run(transfer)
                counts.done += 1
            except ValueError:
                pass
            except islands.UnknownOutcome:
                counts.unknown += 1  # the money is in one account or the other
            except islands.Error:
                counts.failed += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    with islands.connect(arguments.address) as db:
        accounts = db.create_table("transfers", key={"id": "uint64"}, range=(KEYS.start, KEYS.stop),
                                   fields={"balance": "int64"})
        batch = islands.Batch()
        for key in KEYS:
            batch.put("transfers", key, accounts.fields.encode({"balance": FIRST_BALANCE}))
        db.run(lambda transaction: transaction.execute(batch))
        print(f"{ACCOUNTS} accounts, {ACCOUNTS * FIRST_BALANCE} in all", flush=True)
        counts = [Counts() for _ in range(THREADS)]
        until = time.monotonic() + arguments.seconds
        threads = [threading.Thread(target=move, args=(arguments.address, until, each)) for each in counts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = db.run(lambda transaction: sum(int(row["balance"]) for row in accounts.on(transaction).scan()))
    print(f"{sum(each.done for each in counts)} transfers, {sum(each.unknown for each in counts)} of unknown outcome, "
          f"{sum(each.failed for each in counts)} failed; total {found}, was {ACCOUNTS * FIRST_BALANCE}")
    return 0 if found == ACCOUNTS * FIRST_BALANCE else 1


if __name__ == "__main__":
    sys.exit(main())
