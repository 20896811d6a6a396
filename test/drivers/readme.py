"""The examples of README.md as they stand there: taken out of it and run, free, busy, failing."""

import contextlib
import io
import pathlib
import re
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
from psycopg import errors

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
SCHEMA = "readme"
KEY = "invoice:1"


# Out of README.md -----------------------------------------------------------


def section(text, title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def statements(block):
    """The statements of a block in which each ends its line, but for a comment."""
    return re.split(r";[ \t]*(?:--.*)?$\n?", block, flags=re.MULTILINE)[:-1]


# The checks -----------------------------------------------------------------


def check(passed, name):
    print(("ok" if passed else "not ok") + " - " + name, flush=True)


def connect(autocommit=True):
    return psycopg.connect(
        autocommit=autocommit,
        options=f"-c search_path={SCHEMA},public -c statement_timeout=90s",
    )


def value(conn, query, *args):
    return conn.execute(query, args).fetchone()[0]


def fresh(conn):
    conn.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    conn.execute(f"CREATE SCHEMA {SCHEMA}")
    conn.execute("CREATE TABLE invoice (id bigint PRIMARY KEY, settled_at timestamptz)")
    conn.execute("INSERT INTO invoice VALUES (1), (2)")


def settled(conn):
    return value(conn, "SELECT settled_at IS NOT NULL FROM invoice WHERE id = 1")


def held(conn):
    return value(conn, "SELECT count(*) FROM hloom_leases WHERE namespace = 'billing'")


def failure(call, *args):
    try:
        call(*args)
        return None
    except psycopg.Error as error:
        return error


@contextlib.contextmanager
def busy():
    """Another connection holds the key."""
    with connect() as other:
        owner = value(
            other, "SELECT owner FROM hloom_acquire('billing', %s, lease => '60 s')", KEY
        )
        try:
            yield str(owner)
        finally:
            other.execute("SELECT hloom_release('billing', %s, %s)", (KEY, owner))


@contextlib.contextmanager
def no_settling(conn):
    """Every attempt to settle an invoice violates a constraint."""
    conn.execute("ALTER TABLE invoice ADD CONSTRAINT never CHECK (settled_at IS NULL)")
    try:
        yield
    finally:
        conn.execute("ALTER TABLE invoice DROP CONSTRAINT never")


def top(conn, block):
    """The first block: acquire, release with $1 bound, the same in one call."""
    fresh(conn)
    acquire, release, execute = statements(block)
    columns = conn.execute(acquire)
    handle = dict(zip([column.name for column in columns.description], columns.fetchone()))
    check(held(conn) == 1, "top: the first statement takes the lease")
    result = conn.pgconn.exec_params(release.encode(), [str(handle["owner"]).encode()])
    check(result.get_value(0, 0) == b"t" and held(conn) == 0, "top: the second gives it back")
    check(
        value(conn, execute) == 1 and settled(conn) and held(conn) == 0,
        "top: the third does the work in between",
    )
    with busy():
        check(conn.execute(acquire).fetchone() is None, "top: a busy key is no row")
        error = failure(conn.execute, execute)
        check(isinstance(error, errors.LockNotAvailable), "top: and 55P03 in one call")


def run_exclusively(conn, create):
    fresh(conn)
    conn.execute(create)
    call = "SELECT settle(1)"
    check(
        value(conn, call) == 1 and settled(conn) and value(conn, call) == 0,
        "settle: settles a free invoice once",
    )
    fresh(conn)
    conn.execute(create)
    with busy() as owner:
        start = time.monotonic()
        error = failure(conn.execute, call)
        took = time.monotonic() - start
        check(
            isinstance(error, errors.LockNotAvailable) and 1 < took < 60 and not settled(conn),
            "settle: a busy invoice is waited for, then 55P03",
        )
        check(
            '"holder_pid"' in error.diag.message_detail and owner not in str(error),
            "settle: which says who is at it",
        )
    with no_settling(conn):
        error = failure(conn.execute, call)
        check(
            isinstance(error, errors.CheckViolation) and held(conn) == 0,
            "settle: a violated constraint comes through, nothing is held",
        )
    conn.execute("DROP TABLE invoice")
    error = failure(conn.execute, call)
    check(
        isinstance(error, errors.UndefinedTable) and held(conn) == 0,
        "settle: so does a missing table",
    )


def cancel_during_work(conn, call):
    """The error of the call, cancelled while its UPDATE waits for a lock of the row."""
    with connect(autocommit=False) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SELECT * FROM invoice WHERE id = 1 FOR UPDATE")
        waiter = pool.submit(failure, conn.execute, call)
        deadline = time.monotonic() + 30
        with connect() as watch:
            while time.monotonic() < deadline and not value(
                watch,
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE pid = %s AND wait_event_type = 'Lock'",
                conn.info.backend_pid,
            ):
                time.sleep(0.01)
        conn.cancel()
        return waiter.result()


def skip_if_busy(conn, create):
    fresh(conn)
    conn.execute(create)
    call = "SELECT settle_unless_busy(1)"
    with busy():
        conn.execute("SET statement_timeout = '2 s'")
        done = value(conn, call)
        conn.execute("SET statement_timeout = '90 s'")
        check(
            done is False and not settled(conn) and held(conn) == 1,
            "settle_unless_busy: does nothing with a busy invoice, without waiting",
        )
    with no_settling(conn):
        error = failure(conn.execute, call)
        check(
            isinstance(error, errors.CheckViolation) and held(conn) == 0,
            "settle_unless_busy: a violated constraint comes through, nothing is held",
        )
    error = cancel_during_work(conn, call)
    check(
        isinstance(error, errors.QueryCanceled) and not settled(conn) and held(conn) == 0,
        "settle_unless_busy: so does a cancel",
    )
    with connect(autocommit=False) as block:
        done = value(block, call)
        check(
            done and held(conn) == 1 and value(conn, call) is False,
            "settle_unless_busy: in a transaction block the key stays locked",
        )
        block.rollback()
    check(not settled(conn) and held(conn) == 0, "settle_unless_busy: and is free after ROLLBACK")
    check(
        value(conn, call) and settled(conn) and held(conn) == 0,
        "settle_unless_busy: settles a free invoice",
    )
    conn.execute("DROP TABLE invoice")
    error = failure(conn.execute, call)
    check(
        isinstance(error, errors.UndefinedTable) and held(conn) == 0,
        "settle_unless_busy: a missing table comes through, nothing is held",
    )


def run_python(block, settle):
    """What the block printed and the error it ended with."""
    printed = io.StringIO()
    code = compile(block, "README.md", "exec")
    with contextlib.redirect_stdout(printed):
        error = failure(exec, code, {"settle": settle})
    return printed.getvalue(), error


def driver_free(conn, block):
    calls = []

    def settle(db, key, fence):
        calls.append((key, held(conn), fence > 0))
        db.execute("UPDATE invoice SET settled_at = now() WHERE id = 2")

    fresh(conn)
    printed, error = run_python(block, settle)
    check(
        error is None and printed == "" and settled(conn),
        "python: runs exclusively, and prints nothing when the key is free",
    )
    both = value(conn, "SELECT count(*) FROM invoice WHERE settled_at IS NOT NULL") == 2
    check(
        calls == [(KEY, 1, True)] and both and held(conn) == 0,
        "python: works under the lease, commits and gives it back",
    )


def driver_busy(conn, block):
    calls = []
    fresh(conn)
    with busy() as owner:
        printed, error = run_python(block, lambda *args: calls.append(args))
        check(
            error is None
            and re.search(r'invoice:1.*\{"namespace": "billing", "key": "invoice:1"', printed)
            and printed.endswith("\nsomebody else is at it\n")
            and owner not in printed,
            "python: prints who is at it, then that somebody is",
        )
        check(
            not calls and not settled(conn) and held(conn) == 1,
            "python: and does nothing with a busy key",
        )


def driver_fails(conn, block):
    def settle(db, key, fence):
        db.execute("INSERT INTO invoice VALUES (3)")
        db.execute("INSERT INTO invoice VALUES (1)")

    fresh(conn)
    printed, error = run_python(block, settle)
    check(
        isinstance(error, errors.UniqueViolation) and printed == "" and held(conn) == 0,
        "python: an error of the work comes through, nothing is held",
    )
    check(value(conn, "SELECT count(*) FROM invoice") == 2, "python: and its writes are undone")
    conn.execute("DROP TABLE invoice")
    printed, error = run_python(block, settle)
    check(
        isinstance(error, errors.UndefinedTable) and held(conn) == 0,
        "python: so does an error of the action",
    )


def waits_long(conn, block):
    (call,) = statements(block)
    columns = conn.execute(call)
    names = [column.name for column in columns.description]
    owner = columns.fetchone()[0]
    taken = held(conn)
    check(
        names == ["owner", "fence", "lease_end"]
        and taken == 1
        and value(conn, "SELECT hloom_release('billing', 'nightly', %s)", owner),
        "long waits: the procedure gives owner, fence and end of a lease",
    )


def depends(conn, block):
    """The block that guards: while the lease is held it commits, and not otherwise."""
    begin, guard, update, commit = statements(block)
    fresh(conn)
    with connect() as session, busy() as owner:
        for lost in (True, False):
            session.execute(begin)
            result = session.pgconn.exec_params(guard.encode(), [owner.encode()])
            held_then = result.get_value(0, 0) == b"t"
            session.execute(update)
            if lost:
                value(conn, "SELECT hloom_force_release('billing', %s, 'test')", KEY)
            error = failure(session.execute, commit)
            if lost:
                check(
                    held_then and error.sqlstate == "LL010" and not settled(conn),
                    "depends: without the lease it does not commit",
                )
                conn.execute(
                    "SELECT FROM hloom_acquire('billing', %s, owner => %s)", (KEY, owner)
                )
    check(error is None and settled(conn), "depends: with the lease it commits")


def main():
    text = README.read_text(encoding="utf-8")
    exclusively, skip = blocks(section(text, "From SQL"), "sql")
    (python,) = blocks(section(text, "From a driver"), "python")
    options = f"options='-c search_path={SCHEMA},public'"
    assert python.count('"dbname=app"') == 1
    python = python.replace('"dbname=app"', repr(options))
    with connect() as conn:
        top(conn, blocks(text, "sql")[0])
        run_exclusively(conn, exclusively)
        skip_if_busy(conn, skip)
        long_wait, _, guard = blocks(section(text, "Reference"), "sql")[:3]
        waits_long(conn, long_wait)
        depends(conn, guard)
        driver_free(conn, python)
        driver_busy(conn, python)
        driver_fails(conn, python)
        conn.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


if __name__ == "__main__":
    main()
