-- Calls of a provider that hang where interrupts are let in: each ends at its bound, and means what
-- its failure means.  The provider would take an hour.  What is taken from it while something is to
-- hang lasts longer there than anybody was told, so no bound here is a race.
CREATE SCHEMA bounds;
SET search_path = bounds, public;
CREATE EXTENSION hloom_test SCHEMA bounds;
\set VERBOSITY terse
SELECT provider, default_lease FROM hloom_configure('bounds', provider => 'test',
	default_lease => '1 s');
CREATE TABLE written (n int);
CREATE VIEW calls AS SELECT operation, key, result FROM hloom_test_calls();
CREATE FUNCTION take(key text, lease interval, ns text DEFAULT 'bounds') RETURNS boolean
LANGUAGE sql AS $$
	SELECT count(*) = 1 FROM hloom_try_acquire(ns, key, lease, owner => hl.owner(1))
$$;
-- Whether something that began then has ended at its bound.
CREATE FUNCTION took(began timestamptz, bound interval) RETURNS boolean LANGUAGE sql AS $$
	SELECT clock_timestamp() - began BETWEEN bound AND bound + '50 s'
$$;

-- commit_begin: the lease last granted.  Nothing is written, and the session goes on.
SELECT hloom_test_delay('1 hour', 'commit_begin');
SELECT take('commit', '1 s');
BEGIN;
SELECT hloom_guard('bounds', 'commit', hl.owner(1));
INSERT INTO written VALUES (1);
SELECT clock_timestamp() AS began \gset
COMMIT;
\echo :LAST_ERROR_SQLSTATE
SELECT took(:'began', '1 s');
-- Somebody else's cancel stays what it is.  (In a procedure: statement_timeout is over when a COMMIT
-- of the client's begins to work.)
SELECT take('cancel', '1 min');
SET statement_timeout = '500 ms';
DO $$
BEGIN
	PERFORM hloom_guard('bounds', 'cancel', hl.owner(1));
	INSERT INTO written VALUES (2);
	COMMIT;
END $$;
\echo :LAST_ERROR_SQLSTATE
RESET statement_timeout;
-- A commit that has begun elsewhere ends: that lease can be taken away.
SELECT take('first', '1 min', 'bounds-table');
SELECT take('again', '1 s');
BEGIN;
SELECT hloom_guard('bounds-table', 'first', hl.owner(1)),
	hloom_guard('bounds', 'again', hl.owner(1));
INSERT INTO written VALUES (4);
COMMIT;
\echo :LAST_ERROR_SQLSTATE
SELECT hloom_force_release('bounds-table', 'first', 'test');
-- A provider that is deaf at the commit answers late: its answer counts, and no cancel is left.
SELECT hloom_test_delay('1500 ms', 'commit_begin', deaf => true);
BEGIN;
SELECT hloom_guard('bounds', 'again', hl.owner(1));
INSERT INTO written VALUES (5);
COMMIT;
SELECT 'not cancelled' AS next FROM pg_sleep(0.01);
TABLE written;
SELECT hloom_test_delay('0');
TABLE calls;

-- count: hloom_lock.default_lease.  The namespace keeps its provider, of which nothing is known.
SET hloom_lock.default_lease = '1 s';
SELECT hloom_test_delay('1 hour', 'count');
SELECT clock_timestamp() AS began \gset
SELECT hl.error($$SELECT hloom_configure('bounds', provider => 'table')$$);
SELECT took(:'began', '1 s');
SELECT hl.error($$SELECT hloom_unconfigure('bounds')$$);
SELECT provider FROM hloom_namespaces WHERE namespace = 'bounds';
-- What it raises is LL004.
SELECT hloom_test_delay('0'), hloom_test_fail('store');
SELECT hl.error($$SELECT hloom_configure('bounds', provider => 'table')$$);
SELECT hl.error($$SELECT hloom_configure('bounds', provider => 'table')$$);
-- list: the same.  A look that leaves leases out would be taken for the truth.
SELECT hloom_test_delay('1 hour', 'list');
SELECT clock_timestamp() AS began \gset
SELECT hl.error($$SELECT FROM hloom_locks$$);
SELECT took(:'began', '1 s');
SELECT hloom_test_delay('0'), hloom_test_fail('store');
SELECT hl.error($$SELECT FROM hloom_locks$$);
SELECT key, state FROM hloom_locks WHERE namespace = 'bounds' ORDER BY key;
-- check: five seconds, and that is an answer, as an error is.
SELECT hloom_test_delay('1 hour', 'check');
SELECT clock_timestamp() AS began \gset
SELECT provider, healthy, detail FROM hloom_health('bounds');
SELECT took(:'began', '5 s');
SELECT hloom_test_delay('0'), hloom_test_fail('store');
SELECT provider, healthy, detail FROM hloom_health('bounds');
SELECT provider, healthy, detail FROM hloom_health('bounds');
-- Somebody else's cancel stays what it is, for all three.
SELECT hloom_test_delay('1 hour', 'count list check');
SET hloom_lock.default_lease = '5 min';
SET statement_timeout = '500 ms';
SELECT hloom_configure('bounds', provider => 'table');
SELECT count(*) FROM hloom_locks;
SELECT healthy FROM hloom_health('bounds');
RESET statement_timeout;
RESET hloom_lock.default_lease;
SELECT hloom_test_delay('0');

-- is_held and force_release: the namespace's default_lease.  The transaction goes on.
SELECT take('kept', '5 min');
SELECT hloom_test_delay('1 hour', 'is_held force_release');
CREATE FUNCTION bounded(statement text, OUT state text, OUT took boolean) LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz := clock_timestamp();
BEGIN
	state := hl.state(statement);
	took := took(began, '1 s');
END $$;
BEGIN;
SELECT call, b.* FROM unnest(ARRAY['hloom_is_held(%s)', 'hloom_remaining(%s)', 'hloom_guard(%s)',
	$$hloom_force_release('bounds', 'kept', 'test')$$]) AS call,
	LATERAL bounded('SELECT ' || format(call, $$'bounds', 'kept', hl.owner(1)$$)) AS b;
SELECT hloom_test_delay('0');
SELECT hloom_is_held('bounds', 'kept', hl.owner(1)) AS still_held;
COMMIT;
TABLE calls;

-- A clean-up release: five seconds, or the lease when that is shorter; also when it hangs.
CREATE VIEW bounds AS SELECT operation, key, result, bound FROM hloom_test_calls();
SELECT hloom_test_fail('timeout', acquire_only => true);
SELECT hl.state($$SELECT FROM hloom_acquire('bounds', 'long', '5 min')$$);
SELECT hloom_test_fail('timeout', acquire_only => true);
SELECT hl.state($$SELECT FROM hloom_acquire('bounds', 'short', '2 s')$$);
TABLE bounds;
SELECT hloom_test_fail('timeout', acquire_only => true), hloom_test_delay('1 hour', 'release');
SELECT clock_timestamp() AS began \gset
SELECT hl.state($$SELECT FROM hloom_acquire('bounds', 'long', '5 min')$$);
SELECT took(:'began', '5 s');
SELECT hloom_test_fail('timeout', acquire_only => true);
SELECT clock_timestamp() AS began \gset
SELECT hl.state($$SELECT FROM hloom_acquire('bounds', 'short', '2 s')$$);
SELECT took(:'began', '2 s');
SELECT hloom_test_delay('0');
SELECT outcome, value FROM hloom_metrics WHERE namespace = 'bounds'
	AND name = 'hostloom_lock_orphan_releases' ORDER BY outcome;

SELECT hloom_test_free(key) FROM (VALUES ('bounds:lock:commit'), ('bounds:lock:cancel'),
	('bounds:lock:again'), ('bounds:lock:kept')) AS held (key);
SELECT hloom_unconfigure('bounds');
SET client_min_messages = warning;
DROP SCHEMA bounds CASCADE;
