"""doc/postgres_exporter.yml with the real prometheus-postgres-exporter, against hloom_metrics."""

import os
import socket
import subprocess
import time
import urllib.request

import psycopg
from prometheus_client.parser import text_string_to_metric_families

QUERIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../doc/postgres_exporter.yml")
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
            f"--extend.query-path={QUERIES}",
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


with psycopg.connect(autocommit=True) as conn:
    conn.execute("CREATE ROLE hloom_exporter LOGIN IN ROLE pg_monitor")
    try:
        take = "SELECT hloom_release(t) FROM hloom_try_acquire(%s, 'given-back') AS t"
        conn.execute(take, [NAMESPACE])
        conn.execute("SELECT * FROM hloom_try_acquire(%s, 'held')", [NAMESPACE])
        conn.execute("SELECT * FROM hloom_try_acquire(%s, 'held')", [NAMESPACE])
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
check(not set(samples) - set(expected), "and nothing else of the namespace")
for key, values in missing.items():
    print(key, values)
check(
    {f.name: f.type for f in families}.get("hostloom_lock_acquire_duration_seconds") == "histogram",
    "histograms are histograms",
)
names = {sample.name for family in families for sample in family.samples}
check("hostloom_lock_start_time_seconds" in names, "it says since when")
check(
    {s.labels["provider"]: s.value for f in families for s in f.samples
     if s.name == "hostloom_lock_provider_healthy"}.get("table") == 1.0,
    "and which providers are healthy",
)
if "level=error" in log:
    print(log)
