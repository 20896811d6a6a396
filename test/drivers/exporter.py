"""doc/postgres_exporter.yml with the real prometheus-postgres-exporter, against hloom_metrics, and
what doc/grafana-dashboard.json asks for."""

import json
import os
import re
import socket
import subprocess
import threading
import time
import urllib.request

import psycopg
from prometheus_client.parser import text_string_to_metric_families

DOC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../doc/")
NAMESPACE = "exporter"


def check(good, what):
    print(("ok - " if good else "not ok - ") + what)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def scrape(url):
    end = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return answer.read().decode()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def export(role):
    """What the exporter serves when it connects as the role."""
    port = free_port()
    source = (
        f"host={os.environ['PGHOST']} port={os.environ['PGPORT']} user={role}"
        f" dbname={os.environ['PGDATABASE']} sslmode=disable"
    )
    exporter = subprocess.Popen(
        [
            "prometheus-postgres-exporter",
            "--disable-default-metrics",
            "--disable-settings-metrics",
            f"--extend.query-path={DOC}postgres_exporter.yml",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        env={**os.environ, "DATA_SOURCE_NAME": source},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        text = scrape(f"http://127.0.0.1:{port}/metrics")
    finally:
        exporter.terminate()
        log = exporter.communicate()[1]
    return text, log


def wait_for_held(conn):
    try:
        conn.execute(
            "SELECT * FROM hloom_try_acquire(%s, 'held', max_wait => '1 min',"
            " retry => hloom_retry_interval(100, '10 s'))",
            [NAMESPACE],
        )
    except psycopg.errors.QueryCanceled:
        pass


with psycopg.connect(autocommit=True) as conn, psycopg.connect(autocommit=True) as waiting:
    conn.execute("CREATE ROLE hloom_exporter LOGIN IN ROLE pg_monitor")
    waiter = threading.Thread(target=wait_for_held, args=[waiting])
    try:
        take = "SELECT hloom_release(t) FROM hloom_try_acquire(%s, 'given-back') AS t"
        conn.execute(take, [NAMESPACE])
        conn.execute("SELECT * FROM hloom_try_acquire(%s, 'held', '2 min')", [NAMESPACE])
        conn.execute("SELECT * FROM hloom_try_acquire(%s, 'held')", [NAMESPACE])
        waiter.start()
        while not conn.execute("SELECT EXISTS (SELECT FROM hloom_waiters)").fetchone()[0]:
            if not waiter.is_alive():
                raise RuntimeError("it does not wait")
            time.sleep(0.01)
        text, log = export("hloom_exporter")
        rows = conn.execute(
            "SELECT name, outcome, le, value FROM hloom_metrics WHERE namespace = %s", [NAMESPACE]
        ).fetchall()
        kinds = dict(
            line.split()[2:4]
            for line in conn.execute("SELECT hloom_openmetrics()").fetchone()[0].splitlines()
            if line.startswith("# TYPE")
        )
    finally:
        waiting.cancel()
        waiter.join()
        conn.execute("DROP ROLE hloom_exporter")

families = list(text_string_to_metric_families(text))
samples = {}
for family in families:
    for sample in family.samples:
        labels = dict(sample.labels)
        if labels.pop("hostloom_lock_namespace", None) == NAMESPACE:
            key = (sample.name, labels.get("hostloom_lock_outcome"), labels.get("le"))
            samples[key] = sample.value


def of_row(name, outcome, le):
    """The series of a row of hloom_metrics."""
    if kinds.get(name) == "counter":
        name += "_total"
    bound = None if le is None else "+Inf" if le == float("inf") else f"{le:g}"
    return name, outcome, bound


expected = {of_row(name, outcome, le): value for name, outcome, le, value in rows}
missing = {
    key: (value, samples.get(key)) for key, value in expected.items() if samples.get(key) != value
}
check("level=error" not in log, "no query fails")
check(len(expected) > 80 and not missing, "it serves each row of hloom_metrics")
for key, values in missing.items():
    print(key, values)
more = {name for name, _, _ in set(samples) - set(expected)}
check(
    more == {"hostloom_lock_waiting_sessions", "hostloom_lock_waiting_longest_seconds"},
    "and who waits, but nothing else of the namespace",
)
check(samples.get(("hostloom_lock_waiting_sessions", None, None)) == 1.0, "one does")
check(
    {family.name: family.type for family in families}["hostloom_lock_hold_duration_seconds"]
    == "histogram",
    "histograms are histograms",
)
served = {sample.name: sample for family in families for sample in family.samples}
healthy = {
    sample.labels["provider"]: sample.value
    for family in families
    for sample in family.samples
    if sample.name == "hostloom_lock_provider_healthy"
}
check(healthy.get("table") == 1.0, "it serves which providers are healthy")

with open(DOC + "grafana-dashboard.json", encoding="utf-8") as file:
    dashboard = json.load(file)
asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
asked += [v["query"]["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
names = {name for text in asked for name in re.findall(r"hostloom_lock_\w+(?=[{),])", text)}
names -= {name for name in names if name.endswith(("_namespace", "_outcome"))}
check(
    len(names) > 10 and not names - set(served),
    f"the dashboard asks for what is served: {sorted(names - set(served))}",
)
if "level=error" in log:
    print(log)
