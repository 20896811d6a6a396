-- Who sees what, and who may do what: each kind of role, each object.  A number tells how many rows
-- of this test's leases it is shown, an SQLSTATE that it is refused.
CREATE SCHEMA seeing;
SET search_path = seeing, public;
GRANT USAGE ON SCHEMA seeing, hl TO PUBLIC;
TRUNCATE hloom_leases;
CREATE ROLE regress_hloom_ordinary;
CREATE ROLE regress_hloom_team;
CREATE ROLE regress_hloom_member IN ROLE regress_hloom_team;
CREATE ROLE regress_hloom_stats IN ROLE pg_read_all_stats;
CREATE ROLE regress_hloom_data IN ROLE pg_read_all_data;
CREATE ROLE regress_hloom_monitor IN ROLE pg_monitor;

-- Two leases of the table and one in memory are in namespaces for everybody, one of each is in one
-- for members of a role.
SELECT hloom_configure('seeing-memory', provider => 'memory'),
	hloom_configure('seeing-team', role => 'regress_hloom_team'),
	hloom_configure('seeing-team-memory', role => 'regress_hloom_team', provider => 'memory');
SET ROLE regress_hloom_ordinary;
SELECT count(*) FROM hloom_acquire('seeing', 'a') AS a, hloom_acquire('seeing', 'b') AS b,
	hloom_acquire('seeing-memory', 'a') AS c;
SET ROLE regress_hloom_member;
SELECT count(*) FROM hloom_acquire('seeing-team', 'a') AS a, hloom_acquire('seeing-team-memory', 'a') AS b;
RESET ROLE;
-- Of each kind one is lost.
SELECT count(hloom_force_release(ns, 'lost', 'test'))
FROM unnest(ARRAY['seeing', 'seeing-team-memory']) AS ns, hloom_acquire(ns, 'lost');

CREATE TABLE look (n serial, object text, sql text);
GRANT SELECT ON look TO PUBLIC;
INSERT INTO look (object, sql) VALUES
	('hloom_leases', $$SELECT count(*) FROM hloom_leases WHERE namespace LIKE 'seeing%'$$),
	('its owner tokens', $$SELECT count(owner) FROM hloom_leases WHERE namespace LIKE 'seeing%'$$),
	('hloom_locks', $$SELECT count(*) FROM hloom_locks WHERE namespace LIKE 'seeing%'$$),
	('of the role''s namespaces', $$SELECT count(*) FROM hloom_locks WHERE namespace LIKE 'seeing-team%'$$),
	('hloom_waiters', $$SELECT count(*) FROM hloom_waiters$$),
	('hloom_blocking_pids', $$SELECT cardinality(hloom_blocking_pids(pg_backend_pid()))$$),
	('hloom_metrics', $$SELECT count(DISTINCT namespace) FROM hloom_metrics WHERE namespace LIKE 'seeing%'$$),
	('hloom_openmetrics', $$SELECT count(hloom_openmetrics())$$),
	('hloom_activities', $$SELECT count(*) FROM hloom_activities WHERE namespace LIKE 'seeing%'$$),
	('hloom_losses', $$SELECT count(*) FROM hloom_losses WHERE namespace LIKE 'seeing%'$$),
	('hloom_health', $$SELECT count(*) FROM hloom_health() WHERE provider IN ('table', 'memory')$$),
	('hloom_namespaces', $$SELECT count(*) FROM hloom_namespaces WHERE namespace LIKE 'seeing%'$$),
	('hloom_describe', $$SELECT count(*) > 0 FROM hloom_describe('seeing')$$),
	('of the role''s namespace', $$SELECT count(*) > 0 FROM hloom_describe('seeing-team')$$),
	('hloom_is_held', $$SELECT hloom_is_held('seeing', 'a', hl.owner(9))$$),
	('in the role''s namespace', $$SELECT hloom_is_held('seeing-team', 'a', hl.owner(9))$$),
	('hloom_metrics_reset', $$SELECT count(*) FROM (SELECT hloom_metrics_reset()) AS a$$),
	('hloom_reap', $$SELECT hloom_reap() >= 0$$),
	('hloom_configure', $$SELECT count(*) FROM hloom_configure('seeing', max_hold => '1 h')$$),
	('hloom_unconfigure', $$SELECT count(hloom_unconfigure('seeing'))$$),
	('hloom_force_release', $$SELECT hloom_force_release('seeing', 'a', 'test')$$);
CREATE FUNCTION see(role name, sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	IF role IS NOT NULL THEN
		EXECUTE format('SET LOCAL ROLE %I', 'regress_hloom_' || role);
	END IF;
	BEGIN
		EXECUTE sql INTO answer;
	EXCEPTION WHEN OTHERS THEN
		answer := SQLSTATE;
	END;
	RESET ROLE;
	RETURN answer;
END $$;
SELECT object, see('ordinary', sql) AS ordinary, see('member', sql) AS member, see('stats', sql) AS stats,
	see('data', sql) AS data, see('monitor', sql) AS monitor, see(NULL, sql) AS superuser
FROM look ORDER BY n;

-- What is granted is: each of them can be given away by itself.
GRANT SELECT ON hloom_leases, hloom_metrics TO regress_hloom_ordinary;
GRANT EXECUTE ON FUNCTION hloom_metrics(boolean), hloom_reap() TO regress_hloom_ordinary;
SELECT object, see('ordinary', sql) AS ordinary FROM look
WHERE object IN ('hloom_leases', 'its owner tokens', 'hloom_metrics', 'hloom_reap') ORDER BY n;
REVOKE ALL ON hloom_leases, hloom_metrics FROM regress_hloom_ordinary;
REVOKE ALL ON FUNCTION hloom_metrics(boolean), hloom_reap() FROM regress_hloom_ordinary;

-- A refusal tells nothing of the lease: it is the same for a key that is held and for one that is not.
SET ROLE regress_hloom_ordinary;
SELECT hl.error($$SELECT hloom_try_acquire('seeing-team', 'a')$$) =
	hl.error($$SELECT hloom_try_acquire('seeing-team', 'b')$$) AS same;
SELECT hl.error($$SELECT hloom_try_acquire('seeing-team', 'b')$$);
RESET ROLE;

SELECT count(hloom_force_release(namespace, key, 'test')) FROM hloom_locks WHERE namespace LIKE 'seeing%';
SELECT count(hloom_unconfigure(namespace)) FROM hloom_namespaces WHERE namespace LIKE 'seeing%';
REVOKE USAGE ON SCHEMA hl FROM PUBLIC;
SET client_min_messages = warning;
DROP SCHEMA seeing CASCADE;
DROP ROLE regress_hloom_ordinary, regress_hloom_member, regress_hloom_team, regress_hloom_stats, regress_hloom_data, regress_hloom_monitor;
