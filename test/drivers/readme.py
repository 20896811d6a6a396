"""README's examples as they stand: run exclusively, skip if busy, in PL/pgSQL and psycopg."""

import contextlib
import io
import pathlib
import re

import psycopg

README = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
HELD = "SELECT count(*) FROM hloom_leases WHERE namespace = 'billing'"


def blocks(section, language):
    text = README.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(f"```{language}\n(.*?)```", text, re.S)


def check(passed, name):
    print(("ok" if passed else "not ok") + " - " + name, flush=True)


def settled(db):
    return [row[0] for row in db.execute("SELECT id FROM invoice WHERE settled_at IS NOT NULL")]


def reset(db):
    db.execute("UPDATE invoice SET settled_at = NULL")


def held(db):
    return db.execute(HELD).fetchone()[0]


def run_python():
    """Runs the driver example; returns what it printed and what settle() was called with."""
    calls = []
    printed = io.StringIO()
    code = blocks("From a driver", "python")[0].replace("dbname=app", "")
    with contextlib.redirect_stdout(printed):
        exec(code, {"settle": lambda conn, key, fence: calls.append((key, fence))})
    return printed.getvalue(), calls


def main():
    db = psycopg.connect(autocommit=True)
    db.execute("CREATE TABLE invoice (id bigint PRIMARY KEY, settled_at timestamptz)")
    db.execute("INSERT INTO invoice SELECT generate_series(1, 2)")
    for block in blocks("From SQL", "sql"):
        db.execute(block)

    done = db.execute("SELECT settle(1)").fetchone()[0]
    db.execute("CALL settle_unless_busy(2)")
    check(done == 1 and settled(db) == [1, 2] and held(db) == 0, "in SQL, free: done, given back")
    reset(db)
    printed, calls = run_python()
    check(printed == "" and [key for key, fence in calls] == ["invoice:1"]
          and settled(db) == [1] and held(db) == 0, "in Python, free: done, given back")

    reset(db)
    db.execute("SELECT * FROM hloom_acquire('billing', 'invoice:1', lease => '5 min')")
    db.execute("CALL settle_unless_busy(1)")
    try:
        db.execute("SELECT settle(1)")
        state = None
    except psycopg.Error as error:
        state = error.sqlstate
    check(state == "55P03" and settled(db) == [] and held(db) == 1, "in SQL, busy: 55P03, skipped")
    printed, calls = run_python()
    check("held by another owner" in printed and "somebody else is at it" in printed
          and calls == [] and settled(db) == [] and held(db) == 1, "in Python, busy: told, skipped")
    db.execute("TRUNCATE hloom_leases")

    db.execute("ALTER TABLE invoice ADD CHECK (settled_at IS NULL)")
    states = []
    for call in ("SELECT settle(1)", "CALL settle_unless_busy(1)"):
        try:
            db.execute(call)
        except psycopg.Error as error:
            states.append(error.sqlstate)
    check(states == ["23514", "23514"] and held(db) == 0, "in SQL, failing: its error, given back")
    db.close()


main()
