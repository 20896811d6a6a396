"""hloom_lock from psycopg 3: first what an application needs, then the checks."""

import datetime
import hashlib
import hmac
import json
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

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


def acquire(conn, key, max_wait):
    """The handle of the lease; errors.LockNotAvailable when the key stays busy."""
    return conn.execute(
        "SELECT * FROM hloom_acquire(%s, %s, lease => %s, max_wait => %s,"
        " retry => hloom_retry_interval(1000, '50 ms'))",
        ("drivers", key, LEASE, max_wait),
    ).fetchone()


def acquire_wait(conn, key, owner=None, fence=None, lease_end=None):
    """A row with owner, fence and lease_end.  A long wait; needs autocommit."""
    return conn.execute(
        "CALL hloom_acquire_wait('drivers', %s, %s, %s, %s, lease => %s, max_wait => '1 h',"
        " retry => hloom_retry_interval(1000000, '10 s'))",
        (key, owner, fence, lease_end, LEASE),
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


def execute_with_lock(conn, key, action, *args):
    """The number of rows that the SQL command processed; args are the values of its $1 ... $n."""
    return conn.execute(
        "SELECT hloom_execute_with_lock(%s, %s, %s, args => %s)",
        ("drivers", key, action, list(args)),
    ).fetchone()[0]


def query_with_lock(conn, key, action, *args):
    """The rows of the SQL command, each a dict."""
    rows = conn.execute(
        "SELECT hloom_query_with_lock_json(%s, %s, %s, args => %s)",
        ("drivers", key, action, list(args)),
    )
    return [row[0] for row in rows]


def key_from_sensitive(value, secret=None):
    """The key that hloom_key_from_sensitive() makes, without showing the value to the server."""
    if secret is None:
        return hashlib.sha256(value.encode()).hexdigest()[:32]
    return hmac.new(secret, value.encode(), "sha256").hexdigest()[:32]


# The checks -----------------------------------------------------------------


def connect(autocommit, timeout="1s"):
    # A refused attempt that waits for the other transaction would end in this timeout.
    return psycopg.connect(
        autocommit=autocommit,
        row_factory=namedtuple_row,
        options=f"-c statement_timeout={timeout}",
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


def failure(call, *args):
    """The error that the call ends with, or None."""
    try:
        call(*args)
        return None
    except psycopg.Error as error:
        return error


def until_waiting(conn):
    """Returns when the other thread's call on this connection sleeps between two attempts."""
    with connect(True) as watch:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if watch.execute(
                "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state = 'active'"
                " AND wait_event_type = 'Extension' AND query ~ 'hloom_acquire'",
                (conn.info.backend_pid,),
            ).fetchone():
                return
            time.sleep(0.01)
    raise TimeoutError("the call does not wait")


def bounded_wait(mode, first, second, key):
    handle = try_acquire(first, key)
    start = time.monotonic()
    row = second.execute(
        "SELECT * FROM hloom_try_acquire(%s, %s, max_wait => '300 ms',"
        " retry => hloom_retry_interval(1000, '50 ms'))",
        ("drivers", key),
    ).fetchone()
    took = time.monotonic() - start
    check(row is None and 0.15 <= took < 30, f"{mode}: a bounded wait for a busy key: no row")
    release(first, handle)


def stays_busy(mode, first, second, key):
    handle = try_acquire(first, key)
    error = failure(acquire, second, key, datetime.timedelta(milliseconds=100))
    check(
        isinstance(error, errors.LockNotAvailable) and error.sqlstate == "55P03",
        f"{mode}: a key that stays busy is LockNotAvailable",
    )
    detail = json.loads(error.diag.message_detail)
    check(
        (detail["namespace"], detail["key"]) == ("drivers", key)
        and 1 <= detail["attempts"] <= 3
        and 0 <= detail["waited_ms"] < 30000,
        f"{mode}: its DETAIL is JSON with namespace, key, attempts and waited_ms",
    )
    shown = f"{error} {error.diag.message_primary} {error.diag.message_detail}"
    check(str(handle.owner) not in shown, f"{mode}: and does not show the owner")
    release(first, handle)


def transaction_after_busy(first, second, key):
    mode = "autocommit off"
    short = datetime.timedelta(milliseconds=100)
    handle = try_acquire(first, key)
    second.execute("SAVEPOINT before")
    failure(acquire, second, key, short)
    aborted = second.info.transaction_status == TransactionStatus.INERROR
    second.execute("ROLLBACK TO before")
    check(
        aborted and second.execute("SELECT 1").fetchone()[0] == 1,
        f"{mode}: ROLLBACK TO a savepoint makes a transaction usable that found the key busy",
    )
    failure(acquire, second, key, short)
    error = failure(second.execute, "SELECT 1")
    check(
        isinstance(error, errors.InFailedSqlTransaction),
        f"{mode}: without a savepoint the transaction is aborted",
    )
    second.rollback()
    release(first, handle)
    check(
        (other := acquire(second, key, short)).fence > handle.fence,
        f"{mode}: after ROLLBACK it can take the key, which is free now",
    )
    release(second, other)


def session_after_busy(first, second, key):
    short = datetime.timedelta(milliseconds=100)
    handle = try_acquire(first, key)
    failure(acquire, second, key, short)
    usable = second.execute("SELECT 1").fetchone()[0] == 1
    release(first, handle)
    other = acquire(second, key, short)
    check(
        usable and other.fence > handle.fence,
        "autocommit on: the next statement works, and takes the key once it is free",
    )
    release(second, other)


def handed_over(mode, first, second, key):
    handle = try_acquire(first, key)
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(acquire, second, key, datetime.timedelta(seconds=60))
        until_waiting(second)
        released = release(first, handle)
        other = waiter.result()
    check(
        released and other.fence > handle.fence,
        f"{mode}: a waiting call gets the key that is released, with a higher fence",
    )
    release(second, other)


def cancelled(mode, first, second, key):
    handle = try_acquire(first, key)
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(failure, acquire, second, key, datetime.timedelta(seconds=60))
        until_waiting(second)
        second.cancel()
        error = waiter.result()
    check(isinstance(error, errors.QueryCanceled), f"{mode}: cancel() ends a wait with 57014")
    released = release(first, handle)
    check(
        released and (other := try_acquire(first, key)) is not None,
        f"{mode}: and its caller holds nothing",
    )
    release(first, other)


def actions(mode, first, second, key):
    first.execute("CREATE TEMP TABLE bill (id bigint, paid bigint, note text)")
    first.execute("INSERT INTO bill VALUES (1, 0, ''), (2, 0, '')")
    if not first.autocommit:
        first.commit()
    note = "'; DROP TABLE bill; -- {\"a\",\\}"
    done = execute_with_lock(first, key, "UPDATE bill SET note = $1 WHERE id = $2", note, "1")
    check(done == 1, f"{mode}: an action with bound arguments gives its number of rows")
    rows = query_with_lock(first, key, "SELECT id, note FROM bill WHERE id < $1 ORDER BY 1", "3")
    check(
        rows == [{"id": 1, "note": note}, {"id": 2, "note": ""}],
        f"{mode}: a query gives its rows as dicts",
    )
    action = "UPDATE bill SET paid = 100 / $1"
    error = failure(execute_with_lock, first, key, action, "0")
    handle = try_acquire(second, key)
    check(
        isinstance(error, errors.DivisionByZero) and handle is not None,
        f"{mode}: an action's error is its own, and the key is free after it",
    )
    release(second, handle)
    first.rollback()
    check(
        execute_with_lock(first, key, action, "5") == 2,
        f"{mode}: and the next action runs",
    )


def own_transaction(mode, first, second, key):
    """A CALL that waits outside of any transaction, where that is possible."""
    handle = try_acquire(first, key)
    if not second.autocommit:
        error = failure(acquire_wait, second, key)
        check(
            isinstance(error, errors.ActiveSqlTransaction)
            and "autocommit=True" in error.diag.message_hint,
            f"{mode}: CALL hloom_acquire_wait is 25001, with a hint",
        )
        release(first, handle)
        return

    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(acquire_wait, second, key)
        until_waiting(second)
        release(first, handle)
        row = waiter.result()
    left = row.lease_end - datetime.datetime.now(datetime.timezone.utc)
    check(
        row.fence > handle.fence
        and datetime.timedelta(seconds=1) < left <= LEASE
        and second.info.transaction_status == TransactionStatus.IDLE,
        f"{mode}: CALL hloom_acquire_wait with NULLs gets the key that is released",
    )
    released = release(second, handle._replace(owner=row.owner))
    own = uuid.uuid4()
    row = acquire_wait(second, key, own, row.fence, row.lease_end)
    again = acquire_wait(second, key, str(own))
    check(
        released and row.owner == own and (again.owner, again.fence) == (own, row.fence),
        f"{mode}: and with a token of the caller's own, twice",
    )
    release(second, handle._replace(owner=own))

    with second.pipeline() as pipeline:
        cursor = second.execute("CALL hloom_acquire_wait('drivers', %s)", (key,))
        second.execute("SELECT 1 / 0")
        error = failure(pipeline.sync)
    row = cursor.fetchone()
    check(
        isinstance(error, errors.DivisionByZero)
        and release(second, handle._replace(owner=row.owner)),
        f"{mode}: in a pipeline it is a transaction of its own",
    )


def waits(autocommit, run):
    mode = "autocommit " + ("on" if autocommit else "off")
    key = f"{run}:{mode.replace(' ', '-')}:wait"
    with connect(autocommit, "90s") as first, connect(autocommit, "90s") as second:
        for part in (bounded_wait, stays_busy, handed_over, cancelled, own_transaction, actions):
            part(mode, first, second, key)
            first.rollback()
            second.rollback()
        after = session_after_busy if autocommit else transaction_after_busy
        after(first, second, key)


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
    waits(True, run)
    waits(False, run)
    types(run)
    hashes()


if __name__ == "__main__":
    main()
