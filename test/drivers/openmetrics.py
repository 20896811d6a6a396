"""hloom_openmetrics() as prometheus_client's strict parser reads it."""

import psycopg
from prometheus_client.openmetrics.parser import text_string_to_metric_families


def check(good, what):
    print(("ok - " if good else "not ok - ") + what)


with psycopg.connect(autocommit=True) as conn:
    conn.execute("SELECT * FROM hloom_try_acquire('openmetrics', 'held')")
    conn.execute(
        "SELECT hloom_release(t) FROM hloom_try_acquire('openmetrics', 'given-back') AS t"
    )
    text = conn.execute("SELECT hloom_openmetrics()").fetchone()[0]
    rows = conn.execute("SELECT count(*) FROM hloom_metrics WHERE namespace = 'openmetrics'")
    count = rows.fetchone()[0]

families = {family.name: family for family in text_string_to_metric_families(text)}
ours = [
    sample
    for family in families.values()
    for sample in family.samples
    if sample.labels.get("hostloom_lock_namespace") == "openmetrics"
]


def value(name, **labels):
    wanted = {"hostloom_lock_" + label: of for label, of in labels.items()}
    return [s.value for s in ours if s.name == name and wanted.items() <= s.labels.items()]


check(len(ours) == count, "each row is a sample")
check(
    value("hostloom_lock_acquire_duration_seconds_count", outcome="acquired") == [2.0],
    "acquisitions are counted",
)
check(value("hostloom_lock_hold_duration_seconds_count") == [1.0], "so is what was given back")
check(value("hostloom_lock_active") == [1.0], "and what is held")
check(value("hostloom_lock_lost_total") == [0.0], "a counter ends in _total")
check(
    families["hostloom_lock_hold_duration_seconds"].unit == "seconds",
    "durations are in seconds",
)
