#!/usr/bin/env python3
"""Moves money between accounts that lie on different islands, from several threads, and looks whether any was lost.

    examples/transfer.py unix:run/gateway.sock [--seconds 5]

Wants a table `accounts` with one integer as key and rows of any length. Islands and gateway may be killed meanwhile: a
transfer happens as a whole or not at all, so the total stays what it was, whatever nobody knows the outcome of.
"""

import argparse
import random
import sys
import threading
import time

import islands

ACCOUNTS, FIRST_BALANCE, THREADS = 100, 1000, 4
WIDTH = 8  # of a balance: a signed little-endian integer


def keys_of(db: islands.Client) -> list[int]:
    """Spread over all of the table, so that most transfers touch two islands."""
    table = next((table for table in db.tables() if table.name == "accounts"), None)
    if table is None:
        raise SystemExit("there is no table `accounts`")
    begin, end = table.range
    return [begin + number * ((end - begin) // ACCOUNTS) for number in range(ACCOUNTS)]


def total(transaction: islands.Transaction) -> int:
    return sum(int.from_bytes(row.value[:WIDTH], "little", signed=True) for row in transaction.scan("accounts"))


class Counts:
    def __init__(self) -> None:
        self.done = self.unknown = self.failed = 0


def move(address: str, keys: list[int], until: float, counts: Counts) -> None:
    with islands.connect(address) as db:
        while time.monotonic() < until:
            source, target = random.sample(keys, 2)
            amount = random.randint(1, 10)

            def transfer(transaction: islands.Transaction) -> None:
                if transaction.add("accounts", source, -amount) < 0:
                    raise ValueError("there is not so much")  # leaves the block: rolled back
                transaction.add("accounts", target, amount)

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
        keys = keys_of(db)
        batch = islands.Batch()
        for key in keys:
            batch.put("accounts", key, FIRST_BALANCE.to_bytes(WIDTH, "little"))
        db.run(lambda transaction: transaction.execute(batch))
        print(f"{ACCOUNTS} accounts, {ACCOUNTS * FIRST_BALANCE} in all", flush=True)
        counts = [Counts() for _ in range(THREADS)]
        until = time.monotonic() + arguments.seconds
        threads = [threading.Thread(target=move, args=(arguments.address, keys, until, each)) for each in counts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = db.run(total)
    print(f"{sum(each.done for each in counts)} transfers, {sum(each.unknown for each in counts)} of unknown outcome, "
          f"{sum(each.failed for each in counts)} failed; total {found}, was {ACCOUNTS * FIRST_BALANCE}")
    return 0 if found == ACCOUNTS * FIRST_BALANCE else 1


if __name__ == "__main__":
    sys.exit(main())
