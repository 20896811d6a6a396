-- What hloom_activities tells of acquisitions and of locked actions: which there are, what each
-- knows, and whose child it is.  Other tests are active in this database, too, so the namespaces are
-- this one's.
CREATE SCHEMA activities;
SET search_path = activities, public;
CREATE VIEW spans AS SELECT a.name, a.key, a.acquired, a.wait_ms >= 0 AS waited, a.hold_ms >= 0 AS held,
	CASE a.parent_span_id WHEN '00f067aa0ba902b7' THEN 'client'
		ELSE (SELECT p.name || ' ' || p.key FROM hloom_activities AS p
			WHERE (p.trace_id, p.span_id) = (a.trace_id, a.parent_span_id)) END AS parent,
	a.trace_id = '4bf92f3577b34da6a3ce929d0e0e4736' AS client_trace, a.sampled
	FROM hloom_activities AS a WHERE a.namespace LIKE 'activities%';

-- An acquisition granted and one refused: each begins a trace, which nobody samples.
SELECT count(*) FROM hloom_try_acquire('activities', 'a', '1 min', owner => hl.owner(1));
SELECT count(*) FROM hloom_try_acquire('activities', 'a', '1 min', owner => hl.owner(2));
SELECT * FROM spans ORDER BY acquired;
SELECT started_at BETWEEN now() - interval '1 min' AND clock_timestamp() AS recent, duration_ms >= 0 AS lasted,
	namespace, key_cut, pid = pg_backend_pid() AS mine, role = current_user AS role,
	trace_id ~ '^[0-9a-f]{32}$' AND trace_id !~ '^0+$' AS trace, span_id ~ '^[0-9a-f]{16}$' AS span
FROM hloom_activities WHERE namespace = 'activities';
SELECT count(DISTINCT trace_id) AS traces, count(DISTINCT span_id) AS spans
FROM hloom_activities WHERE namespace = 'activities';
-- How long it waited.
SELECT count(*) FROM hloom_try_acquire('activities', 'a', max_wait => '10 s',
	retry => hloom_retry_interval(1, '20 ms'));
SELECT wait_ms >= 20 AS waited, duration_ms >= 20 AS lasted, acquired
FROM hloom_activities WHERE namespace = 'activities' AND key = 'a' AND wait_ms >= 20;
-- Looking, extending and releasing are none.
SELECT hloom_is_held('activities', 'a', hl.owner(1)), hloom_extend('activities', 'a', hl.owner(1), '1 min'),
	hloom_release('activities', 'a', hl.owner(1));
SELECT count(*) FROM spans;

-- A client that traces.  Both values of its flag; SET LOCAL ends with its transaction, and a failed
-- subtransaction takes its value along.
SET hloom_lock.traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
SELECT count(*) FROM hloom_try_acquire('activities', 'b', '1 min');
SET hloom_lock.traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00';
SELECT count(*) FROM hloom_try_acquire('activities', 'b-unsampled', '1 min');
RESET hloom_lock.traceparent;
SELECT count(*) FROM hloom_try_acquire('activities', 'b-reset', '1 min');
BEGIN;
SET LOCAL hloom_lock.traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
SELECT count(*) FROM hloom_try_acquire('activities', 'b-local', '1 min');
SAVEPOINT s;
SELECT length(set_config('hloom_lock.traceparent', '', true));
SELECT count(*) FROM hloom_try_acquire('activities', 'b-none', '1 min');
ROLLBACK TO s;
SELECT count(*) FROM hloom_try_acquire('activities', 'b-undone', '1 min');
COMMIT;
SELECT count(*) FROM hloom_try_acquire('activities', 'b-over', '1 min');
SELECT * FROM spans WHERE key LIKE 'b%' ORDER BY key COLLATE "C";
-- What is no traceparent is ignored, and not an error.
SELECT bad, length(set_config('hloom_lock.traceparent', bad, false)) AS length,
	(SELECT count(*) FROM hloom_try_acquire('activities', 'c' || n, '1 min')) AS granted
FROM unnest(ARRAY['no trace', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more',
	'00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01', '00-00000000000000000000000000000000-00f067aa0ba902b7-01',
	'ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01']) WITH ORDINALITY AS t (bad, n);
SELECT count(*), bool_or(client_trace) AS client_trace, count(parent) AS parents FROM spans WHERE key LIKE 'c%';
RESET hloom_lock.traceparent;

-- A locked action, with its acquisition, and what it does with locks of its own.
CREATE FUNCTION inner_calls() RETURNS int LANGUAGE sql AS $$
	SELECT count(*)::int FROM hloom_try_acquire('activities', 'd-inner', '1 min');
	SELECT count(*)::int FROM hloom_query_with_lock('activities', 'd-nested', 'SELECT 1') AS t (i int);
$$;
SET hloom_lock.traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
SELECT hloom_execute_with_lock('activities', 'd', 'SELECT inner_calls()');
SELECT hloom_execute_with_lock('activities', 'd-lease', 'SELECT pg_sleep(0.02)', scope => 'lease');
SELECT count(*) FROM hloom_query_with_lock_json('activities', 'd-json', 'SELECT 1');
RESET hloom_lock.traceparent;
SELECT hloom_execute_with_lock('activities', 'd-own', 'SELECT 1');
SELECT * FROM spans WHERE key LIKE 'd%' ORDER BY key COLLATE "C", name COLLATE "C";
SELECT hold_ms >= 20 AS held, duration_ms >= hold_ms AS longer FROM hloom_activities
WHERE namespace = 'activities' AND key = 'd-lease' AND name = 'lock.execute';
-- What begins after it is not in it.
SELECT count(*) FROM hloom_try_acquire('activities', 'd-after', '1 min');
SELECT * FROM spans WHERE key = 'd-after';

-- Errors: of the action, of a busy key, of one locked already (which is no acquisition), of the key
-- (which is nothing at all), and of the call.
SELECT hl.state($$SELECT hloom_execute_with_lock('activities', 'e-action', 'SELECT 1/0')$$);
SELECT count(*) FROM hloom_acquire('activities', 'e-busy', '1 min', owner => hl.owner(1));
SELECT hl.state($$SELECT hloom_execute_with_lock('activities', 'e-busy', 'SELECT 1', max_wait => '0')$$);
SELECT hl.state($$SELECT hloom_acquire('activities', 'e-busy', max_wait => '0')$$);
SELECT hl.state($$SELECT hloom_execute_with_lock('activities', 'e-again',
	'SELECT hloom_execute_with_lock(''activities'', ''e-again'', ''SELECT 1'')')$$);
SELECT hl.state($$SELECT hloom_acquire('activities', 'e bad')$$),
	hl.state($$SELECT hloom_execute_with_lock('activities', 'e bad', 'SELECT 1')$$),
	hl.state($$SELECT hloom_execute_with_lock('activities', 'e-parsed', 'SELEC 1')$$);
SET lock_timeout = '20 ms';
SELECT hl.state($$SELECT hloom_acquire('activities', 'e-busy', owner => hl.owner(2),
	retry => hloom_retry_interval(1000, '1 h'))$$);
RESET lock_timeout;
SELECT * FROM spans WHERE key LIKE 'e%' ORDER BY key COLLATE "C", name COLLATE "C", parent;
-- What comes after it is in none of them.
SELECT count(*) FROM hloom_try_acquire('activities', 'e-z', '1 min');
SELECT * FROM spans WHERE key = 'e-z';

-- A provider that fails: not acquired, and nothing is known of a wait.
CREATE EXTENSION hloom_test SCHEMA activities;
SELECT provider FROM hloom_configure('activities-test', provider => 'test');
SELECT kind, hloom_test_fail(kind) AS fails,
	hl.state(format('SELECT hloom_acquire(%L, %L)', 'activities-test', 'f-' || kind)) AS state
FROM unnest(ARRAY['unavailable', 'timeout', 'other']) AS kind;
SELECT * FROM spans WHERE key LIKE 'f%' ORDER BY key COLLATE "C";

-- Disabled: an action is one, an acquisition is not.
SELECT enabled FROM hloom_configure('activities-off', enabled => false);
SET client_min_messages = error;
SELECT count(*) FROM hloom_acquire('activities-off', 'g');
SELECT hloom_execute_with_lock('activities-off', 'g-action', 'SELECT 1');
RESET client_min_messages;
SELECT * FROM spans WHERE key LIKE 'g%';

-- Further calls of a transaction for its key, and the procedure.
BEGIN;
SELECT count(*) FROM hloom_acquire('activities', 'h', '1 min', scope => 'transaction');
SELECT count(*) FROM hloom_acquire('activities', 'h', '1 min', scope => 'transaction');
COMMIT;
CALL hloom_acquire_wait('activities', 'h-procedure', hl.owner(1), NULL, NULL, '1 min') \gset
SELECT * FROM spans WHERE key LIKE 'h%' ORDER BY key COLLATE "C";

-- A long key is cut, at the end of a character.
SELECT count(*) FROM hloom_try_acquire('activities', 'i-' || repeat('x', 158), '1 min');
SELECT count(*) FROM hloom_try_acquire('activities', 'i-' || repeat('x', 159), '1 min');
SELECT count(*) FROM hloom_try_acquire('activities', 'i-' || repeat('x', 157) || U&'\00e4', '1 min');
SELECT octet_length(key) AS bytes, right(key, 1) AS last, key_cut, count(*) FROM hloom_activities
WHERE namespace = 'activities' AND key LIKE 'i-%' GROUP BY 1, 2, 3 ORDER BY 1, 3;

-- Who sees what: as hloom_locks.
CREATE ROLE regress_hloom_ordinary;
CREATE ROLE regress_hloom_member;
CREATE ROLE regress_hloom_watcher IN ROLE pg_monitor;
CREATE ROLE regress_hloom_monitor IN ROLE pg_monitor;
SELECT role FROM hloom_configure('activities-team', role => 'regress_hloom_member');
SELECT count(*) FROM hloom_try_acquire('activities-team', 'j', '1 min', owner => hl.owner(1));
GRANT USAGE ON SCHEMA activities TO PUBLIC;
CREATE VIEW seen WITH (security_barrier) AS SELECT count(*) FILTER (WHERE key = 'a') AS free,
	count(*) FILTER (WHERE key = 'j') AS team FROM hloom_activities() WHERE namespace LIKE 'activities%';
GRANT SELECT ON seen TO PUBLIC;
SET ROLE regress_hloom_ordinary;
SELECT * FROM seen;
SELECT count(*) > 0 AS some FROM hloom_activities;
SET ROLE regress_hloom_member;
SELECT * FROM seen;
SELECT count(*) FROM hloom_try_acquire('activities', 'j-role', '1 min');
SET ROLE regress_hloom_watcher;
SELECT * FROM seen;
SET ROLE regress_hloom_monitor;
SELECT * FROM seen;
RESET ROLE;
SELECT key, role FROM hloom_activities WHERE namespace = 'activities' AND role <> current_user;
SELECT hl.state('DELETE FROM hloom_activities');

SELECT hloom_force_release(namespace, key, 'test') FROM hloom_locks WHERE namespace = 'activities-team';
SELECT count(hloom_force_release(namespace, key, 'test')) > 0 AS released
FROM hloom_locks WHERE namespace = 'activities';
SET client_min_messages = warning;
SELECT hloom_unconfigure('activities-test'), hloom_unconfigure('activities-off'), hloom_unconfigure('activities-team');
DROP SCHEMA activities CASCADE;
DROP ROLE regress_hloom_ordinary, regress_hloom_member, regress_hloom_watcher, regress_hloom_monitor;
SELECT name, role FROM hloom_activities WHERE namespace LIKE 'activities%' AND key = 'j-role';
