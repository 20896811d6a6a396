"""hloom_lock from psycopg 3: first what an application needs, then the checks."""

import datetime
import hashlib
import hmac
import os
import uuid

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.rows import namedtuple_row
from psycopg.types.string import StrDumper

LEASE = datetime.timedelta(seconds=30)


# What an application copies -------------------------------------------------


def try_acquire(conn, key, **options):
    """The handle of the lease, or None when another owner holds the key."""
    return conn.execute(
        "SELECT * FROM hloom_try_acquire(%s, %s, lease => %s)", ("drivers", key, LEASE), **options
    ).fetchone()


def release(conn, handle, **options):
    """True when the lease was still ours."""
    return conn.execute(
        "SELECT hloom_release(%s, %s, %s)",
        (handle.namespace, handle.key, handle.owner),
        **options,
    ).fetchone()[0]


def skip_if_busy(conn, key, work):
    """Does the work under the lease; False when somebody else is at it."""
    handle = try_acquire(conn, key)
    if handle is None:
        return False
    try:
        work(conn)
        # The work is committed before the lease goes, so that the next owner sees it.
        if not conn.autocommit:
            conn.commit()
    except BaseException:
        # An aborted transaction could not even run hloom_release.
        conn.rollback()
        raise
    finally:
        release(conn, handle)
    if not conn.autocommit:
        conn.commit()
    return True


def key_from_sensitive(value, secret=None):
    """The key that hloom_key_from_sensitive() makes, without showing the value to the server."""
    if secret is None:
        return hashlib.sha256(value.encode()).hexdigest()[:32]
    return hmac.new(secret, value.encode(), "sha256").hexdigest()[:32]


# The checks -----------------------------------------------------------------


def connect(autocommit):
    # A refused attempt that waits for the other transaction would end in this timeout.
    return psycopg.connect(
        autocommit=autocommit, row_factory=namedtuple_row, options="-c statement_timeout=1000"
    )


def check(passed, name):
    print(("ok" if passed else "not ok") + " - " + name, flush=True)


def sqlstate(conn, namespace, key):
    try:
        conn.execute("SELECT * FROM hloom_try_acquire(%s, %s)", (namespace, key))
        return None
    except psycopg.Error as error:
        return error.sqlstate
    finally:
        conn.rollback()


def refused(conn, key):
    """No row, without waiting for anybody."""
    try:
        return try_acquire(conn, key) is None
    except errors.QueryCanceled:
        conn.rollback()
        return False


def lifecycle(autocommit, run):
    mode = "autocommit " + ("on" if autocommit else "off")
    with connect(autocommit) as first, connect(autocommit) as second:
        key = f"{run}:{mode.replace(' ', '-')}"

        handle = try_acquire(first, key)
        check(handle is not None, f"{mode}: a free key gives one row")
        expected = TransactionStatus.IDLE if autocommit else TransactionStatus.INTRANS
        check(
            first.info.transaction_status == expected and refused(second, key),
            f"{mode}: another connection gets no row, without waiting",
        )
        first.execute("SELECT 1")
        check(release(first, handle) is True, f"{mode}: release tells the owner true")
        check(
            first.info.transaction_status == expected
            and (other := try_acquire(second, key)) is not None,
            f"{mode}: the next owner gets the key before the first commits",
        )
        check(release(first, handle) is False, f"{mode}: a former owner releases nothing")
        check(other.fence > handle.fence, f"{mode}: the next owner has the higher fence")
        release(second, other)
        first.rollback()
        second.rollback()

        if autocommit:
            with first.transaction(force_rollback=True):
                handle = try_acquire(first, key)
        else:
            handle = try_acquire(first, key)
            first.rollback()
        check(refused(second, key), f"{mode}: the lease outlives a ROLLBACK")
        check(release(first, handle) is True, f"{mode}: and is released after it")

        done = skip_if_busy(first, key, lambda conn: conn.execute("SELECT 1"))
        handle = try_acquire(second, key)
        skipped = not skip_if_busy(first, key, lambda conn: conn.execute("SELECT 1"))
        check(done and skipped, f"{mode}: skip if busy works when free, skips when held")
        release(second, handle)

        try:
            skip_if_busy(first, key, lambda conn: conn.execute("SELECT 1 / 0"))
            failed = None
        except psycopg.Error as error:
            failed = error.sqlstate
        handle = try_acquire(second, key)
        check(
            failed == "22012" and handle is not None,
            f"{mode}: failing work keeps its own error and gives the lease back",
        )
        release(second, handle)

        check(sqlstate(first, "drivers", None) == "22004", f"{mode}: a NULL key is 22004")
        check(sqlstate(first, "Bad Name", key) == "22023", f"{mode}: a bad namespace is 22023")

        leases = [try_acquire(first, f"{key}:{n}", prepare=True) for n in range(20)]
        again = [try_acquire(second, f"{key}:{n}", prepare=True) for n in range(20)]
        gone = [release(first, handle, prepare=True) for handle in leases]
        prepared = first.execute(
            "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%hloom%'"
        ).fetchone()[0]
        check(
            None not in leases and again == [None] * 20 and gone == [True] * 20 and prepared >= 2,
            f"{mode}: prepared on the server, 20 times",
        )


def types(run):
    with connect(True) as conn:
        key = f"{run}:types"
        handle = try_acquire(conn, key)
        check(
            (handle.namespace, handle.key, handle.is_coordinated) == ("drivers", key, True),
            "namespace, key and is_coordinated come back",
        )
        check(isinstance(handle.owner, uuid.UUID), "owner is a uuid.UUID")
        check(isinstance(handle.fence, int) and handle.fence > 0, "fence is an int")
        check(handle.lease == LEASE, "lease is the timedelta that was granted")
        left = handle.lease_end - datetime.datetime.now(datetime.timezone.utc)
        check(
            datetime.timedelta(seconds=20) < left <= LEASE + datetime.timedelta(seconds=1),
            "lease_end is an aware datetime, about one lease ahead",
        )
        check(release(conn, handle) is True, "released by uuid.UUID")

        handle = try_acquire(conn, key)
        check(
            release(conn, handle._replace(owner=str(handle.owner))) is True, "released by str"
        )

        # By default psycopg leaves the type of a str to the server; this one says text.
        conn.adapters.register_dumper(str, StrDumper)
        handle = try_acquire(conn, key)
        check(
            release(conn, handle._replace(owner=str(handle.owner))) is True,
            "released by str sent as text",
        )


def hashes():
    vectors = {
        ("1234", None): "03ac674216f3e15c761ee1a5e255f067",
        ("refresh-token-value", None): "e65009f6e0ae9fc204adcb73a208f63c",
        ("", None): "e3b0c44298fc1c149afbf4c8996fb924",
        ("1234", b"catalog-service-pepper"): "4206b0e68f2edc74108d084419373455",
    }
    check(
        all(key_from_sensitive(*source) == key for source, key in vectors.items()),
        "hashes on the client are the known ones",
    )
    with connect(True) as conn:
        values = ["1234", "", "h\u00e9 \u65e5\u672c \U0001f512"]
        plain = conn.execute(
            "SELECT hloom_key_from_sensitive(v) FROM unnest(%s::text[]) v", (values,)
        )
        keyed = conn.execute(
            "SELECT hloom_key_from_sensitive(v, %s) FROM unnest(%s::text[]) v",
            (b"\x00pepper", values),
        )
        check(
            [row[0] for row in plain] == [key_from_sensitive(v) for v in values]
            and [row[0] for row in keyed] == [key_from_sensitive(v, b"\x00pepper") for v in values],
            "and those of the server",
        )


def main():
    run = f"psycopg-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    lifecycle(True, run)
    lifecycle(False, run)
    types(run)
    hashes()


if __name__ == "__main__":
    main()
