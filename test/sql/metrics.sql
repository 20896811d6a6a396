-- What hloom_metrics, hloom_openmetrics() and hloom_metrics_reset() tell.  Other tests count in this
-- database, too, so the namespaces are this one's.
CREATE SCHEMA metrics;
SET search_path = metrics, public;
SELECT hloom_configure('metrics-off', enabled => false), hloom_configure('metrics-memory', provider => 'memory');
CREATE VIEW counted AS SELECT namespace, name, outcome, value FROM hloom_metrics
	WHERE namespace LIKE 'metrics%' AND name !~ '_(bucket|sum)$' AND value <> 0;
CREATE FUNCTION take(ns text, key text, n int, scope text DEFAULT 'lease') RETURNS bool LANGUAGE sql AS $$
	SELECT count(*) = 1 FROM hloom_try_acquire(ns, key, '1 min', owner => hl.owner(n), scope => scope)
$$;

-- Acquisitions by how they ended, holds where they are given back, and what is held.
SELECT take('metrics', 'a', 1), take('metrics', 'a', 2), take('metrics', 'b', 1), take('metrics-memory', 'a', 1);
SELECT hloom_release('metrics', 'a', hl.owner(1)), hloom_release('metrics', 'a', hl.owner(1));
SELECT hl.state($$SELECT hloom_acquire('metrics', 'b', max_wait => '0', owner => hl.owner(2))$$);
SELECT * FROM counted ORDER BY namespace, name, outcome;
-- A lease that its scope ends was held, one that was too late is lost, and a failed statement's is an
-- orphan: neither was.
BEGIN;
SELECT take('metrics-scope', 'a', 1, 'transaction'), take('metrics-scope', 'b', 1, 'session');
SELECT take('metrics-scope', 'c', 1, 'session'), hloom_extend('metrics-scope', 'c', hl.owner(1), '1 ms');
COMMIT;
SELECT hl.state($$SELECT 1 / (fence - fence) FROM hloom_try_acquire('metrics-scope', 'd')$$);
DO $$ BEGIN
	WHILE hloom_is_held('metrics-scope', 'c', hl.owner(1)) LOOP
		PERFORM pg_sleep(0.001);
	END LOOP;
END $$;
SELECT hloom_release_session();
SELECT hloom_reap() >= 0;
SELECT * FROM counted WHERE namespace = 'metrics-scope' AND name !~ 'orphan' ORDER BY name, outcome;
-- A renewal is an acquisition, and one lease.
SELECT take('metrics-renew', 'a', 1), take('metrics-renew', 'a', 1);
SELECT hloom_release('metrics-renew', 'a', hl.owner(1));
SELECT * FROM counted WHERE namespace = 'metrics-renew' ORDER BY name, outcome;
-- Taken away.
SELECT take('metrics-away', 'a', 1), hloom_force_release('metrics-away', 'a', 'test');
SELECT * FROM counted WHERE namespace = 'metrics-away' ORDER BY name, outcome;
-- In a disabled namespace nothing is counted.
SELECT take('metrics-off', 'a', 1);
SELECT name, value FROM hloom_metrics WHERE namespace = 'metrics-off' ORDER BY name;

-- The buckets are cumulative, end with all there are, and have these bounds.
SELECT name, outcome, string_agg(le::text, ' ' ORDER BY le) AS bounds,
	bool_and(grows) AS grows, max(value) FILTER (WHERE le = 'Infinity') AS all
FROM (SELECT *, value >= lag(value, 1, 0) OVER (PARTITION BY name, outcome ORDER BY le) AS grows
	FROM hloom_metrics WHERE namespace = 'metrics' AND le IS NOT NULL) AS bucket
GROUP BY name, outcome ORDER BY name, outcome;
-- Each duration is in its bucket.
CREATE FUNCTION hold(usec int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	enough timestamptz;
BEGIN
	PERFORM take('metrics-hold', 'a', 1);
	enough := clock_timestamp() + usec * interval '1 us';
	WHILE clock_timestamp() < enough LOOP NULL; END LOOP;
	PERFORM hloom_release('metrics-hold', 'a', hl.owner(1));
END $$;
SELECT hold(6000), hold(51000);
SELECT min(value) FILTER (WHERE le = 0.005) AS to_5_ms, min(value) FILTER (WHERE le = 0.05) <= 1 AS to_50_ms,
	min(value) FILTER (WHERE le = 'Infinity') AS all
FROM hloom_metrics WHERE namespace = 'metrics-hold' AND name = 'hostloom_lock_hold_duration_seconds_bucket';
SELECT value BETWEEN 0.057 AND 30 AS sum FROM hloom_metrics
WHERE namespace = 'metrics-hold' AND name = 'hostloom_lock_hold_duration_seconds_sum';

-- The text says the same: each of its lines is a row.
CREATE TEMP TABLE line AS SELECT line FROM regexp_split_to_table(hloom_openmetrics(), '\n') AS line;
SELECT line FROM line WHERE line LIKE '#%';
SELECT count(*) AS wrong FROM (SELECT regexp_replace(name, '_(lost|orphan_releases|waits|wakeups|missed_turns|deadlocks)$', '_\1_total')
		|| '{datname="' || current_database() || '",hostloom_lock_namespace="' || namespace || '"'
		|| coalesce(',hostloom_lock_outcome="' || outcome || '"', '')
		|| coalesce(',le="' || CASE WHEN le = 'Infinity' THEN '+Inf' WHEN le::text ~ '[.e]' THEN le::text ELSE le || '.0' END || '"', '')
		|| '} ' || value AS line
	FROM hloom_metrics WHERE namespace LIKE 'metrics%') AS row
WHERE NOT EXISTS (SELECT FROM line WHERE line.line = row.line);
-- What does not ask the providers is the same without the leases held.
SELECT name, count(*) FROM (SELECT namespace, name, outcome, le FROM hloom_metrics EXCEPT
	SELECT namespace, name, outcome, le FROM hloom_metrics(active => false)) AS left_out
WHERE namespace = 'metrics' GROUP BY name;
SELECT count(*) AS more FROM (SELECT namespace, name, outcome, le FROM hloom_metrics(false) EXCEPT
	SELECT namespace, name, outcome, le FROM hloom_metrics) AS more;
SELECT count(*) FROM hloom_metrics(NULL) WHERE namespace = 'metrics' AND name = 'hostloom_lock_active';

-- Reset: counts begin again, what is held is held, and it says since when.
SELECT value AS since FROM hloom_metrics WHERE name = 'hostloom_lock_start_time_seconds' \gset
SELECT hloom_metrics_reset();
SELECT * FROM counted ORDER BY namespace, name, outcome;
SELECT value > :since AS later, value <= extract(epoch FROM clock_timestamp()) AS past
FROM hloom_metrics WHERE name = 'hostloom_lock_start_time_seconds';
SELECT hloom_release('metrics', 'b', hl.owner(1)), hloom_release('metrics-memory', 'a', hl.owner(1));
SELECT * FROM counted ORDER BY namespace, name, outcome;

-- Who may.
CREATE ROLE regress_hloom_metrics;
GRANT USAGE ON SCHEMA hl TO regress_hloom_metrics;
SET ROLE regress_hloom_metrics;
SELECT hl.state('SELECT FROM hloom_metrics'), hl.state('SELECT hloom_openmetrics()'), hl.state('SELECT hloom_metrics_reset()');
RESET ROLE;
GRANT pg_monitor TO regress_hloom_metrics;
SET ROLE regress_hloom_metrics;
SELECT hl.state('SELECT FROM hloom_metrics'), hl.state('SELECT hloom_openmetrics()'), hl.state('SELECT hloom_metrics_reset()');
RESET ROLE;
REVOKE USAGE ON SCHEMA hl FROM regress_hloom_metrics;
DROP ROLE regress_hloom_metrics;

SET client_min_messages = warning;
SELECT hloom_unconfigure('metrics-off'), hloom_unconfigure('metrics-memory');
DROP SCHEMA metrics CASCADE;
