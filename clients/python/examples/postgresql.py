"""A table that rejects late writes of former owners of a lock.

A column of each row contains the highest fencing token with which the row was
written. An UPDATE with a lower token changes nothing.

    postgresql.py DSN HOST:PORT...

The program creates the table lock_example if it does not exist.
"""

import sys

import psycopg2

from holdfast_lock import Lock, LostError, Nodes

SCHEMA = """CREATE TABLE IF NOT EXISTS lock_example (
    id text PRIMARY KEY, balance bigint NOT NULL, token bigint NOT NULL DEFAULT 0)"""


class OldTokenError(Exception):
    """A later owner of the lock has already written the row."""


def deposit(db, account, amount, token):
    """Add amount to the balance of an account, on behalf of the owner with the token.

    PostgreSQL locks the row while it compares the token, so no other write can happen
    between the comparison and the change.
    """
    with db, db.cursor() as cursor:
        cursor.execute(
            "UPDATE lock_example SET balance = balance + %s, token = %s WHERE id = %s AND token <= %s",
            (amount, token, account, token),
        )
        if cursor.rowcount == 0:
            raise OldTokenError(f"token {token}")


def main(dsn, addresses):
    nodes = Nodes.from_addresses(addresses)
    db = psycopg2.connect(dsn)
    account = "python"
    with db, db.cursor() as cursor:
        cursor.execute(SCHEMA)
        cursor.execute(
            "INSERT INTO lock_example (id, balance) VALUES (%s, 0) ON CONFLICT (id) DO UPDATE SET balance = 0",
            (account,),
        )

    first = Lock(nodes, f"account:{account}").acquire()
    deposit(db, account, 10, first.token)
    # LOCK BREAK ends the first owner's grant, as the end of the lease would if the
    # process of that owner were paused. The first owner does not know this yet.
    nodes.execute_command("LOCK", "BREAK", f"account:{account}")
    with Lock(nodes, f"account:{account}") as second:
        deposit(db, account, 100, second.token)
        try:
            deposit(db, account, 1000, first.token)
            raise SystemExit("the late write of the former owner was not refused")
        except OldTokenError:
            pass
    try:
        first.release()
        raise SystemExit("the former owner released the lock")
    except LostError:
        pass
    with db, db.cursor() as cursor:
        cursor.execute("SELECT balance FROM lock_example WHERE id = %s", (account,))
        print(f"balance {cursor.fetchone()[0]}: the late write was refused")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
