-- hloom_acquire and the options of waiting, in one session.  How long waits take is shown under a
-- clock of its own (test/unit/retry.c); here only what a slow machine cannot change.
CREATE SCHEMA acquire;
SET search_path = acquire, public;

-- The DETAIL of an error that must come, and how long it took.
CREATE FUNCTION detail(statement text, OUT state text, OUT detail jsonb, OUT took interval)
LANGUAGE plpgsql AS $$
DECLARE
	line text;
	start timestamptz := clock_timestamp();
BEGIN
	EXECUTE statement;
	state := 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS line = PG_EXCEPTION_DETAIL;
	state := SQLSTATE;
	detail := line;
	took := clock_timestamp() - start;
END $$;

-- One row, as hloom_try_acquire.
SELECT namespace, key, owner = hl.owner(1) AS owner, fence > 0 AS fence, lease, is_coordinated,
	lease_end - clock_timestamp() BETWEEN '1 s' AND '20 s' AS lease_end
FROM hloom_acquire('acquire', 'a', '20 s', owner => hl.owner(1), note => 'first');
SELECT lease, note FROM hloom_leases WHERE namespace = 'acquire' AND key = 'a';
-- With the owner of the lease: the same fence.
SELECT count(DISTINCT fence) FROM (
	SELECT fence FROM hloom_leases WHERE namespace = 'acquire' AND key = 'a'
	UNION ALL
	SELECT fence FROM hloom_acquire('acquire', 'a', '5 min', owner => hl.owner(1))) AS f;

-- item 26: contention past the policy is 55P03, after limit + 1 attempts.  The reason is in the
-- message, who holds the key until when in the DETAIL.
SELECT regexp_replace(hl.error($$SELECT * FROM hloom_acquire('acquire', 'a', max_wait => '0')$$),
	'[{].*[}]', '{...}') AS text;
SELECT state, detail->>'namespace' AS namespace, detail->>'key' AS key,
	(detail->>'attempts')::int AS attempts, (detail->>'waited_ms')::int BETWEEN 0 AND 1000 AS waited,
	(detail->>'holder_pid')::int = pg_backend_pid() AS pid,
	detail->>'holder_role' = current_user AS role,
	(detail->>'holder_until')::timestamptz =
		(SELECT expires_at FROM hloom_leases WHERE namespace = 'acquire' AND key = 'a') AS until,
	(SELECT array_agg(k ORDER BY k) FROM jsonb_object_keys(detail) AS k) AS keys
FROM detail($$SELECT * FROM hloom_acquire('acquire', 'a',
	retry => hloom_retry_immediate(3))$$);
-- The default policy: 11 attempts in 2.75 to 3.25 s on an idle machine.
SELECT state, (detail->>'attempts')::int AS attempts,
	(detail->>'waited_ms')::int BETWEEN 2750 AND 20000 AS waited, took > '2.75 s' AS took
FROM detail($$SELECT * FROM hloom_acquire('acquire', 'a')$$);
-- It follows the settings.
SET hloom_lock.retry_limit = 2;
SET hloom_lock.retry_step = 1;
SET hloom_lock.retry_jitter = 0;
SELECT state, (detail->>'attempts')::int AS attempts
FROM detail($$SELECT * FROM hloom_acquire('acquire', 'a')$$);
RESET hloom_lock.retry_limit;
RESET hloom_lock.retry_step;
RESET hloom_lock.retry_jitter;
SELECT hl.state($$SET hloom_lock.retry_limit = -1$$), hl.state($$SET hloom_lock.retry_step = -1$$),
	hl.state($$SET hloom_lock.retry_jitter = -1$$),
	hl.state($$SET hloom_lock.retry_limit = 1000001$$);

-- item 18: hloom_try_acquire without options makes one attempt and gives no row.
SELECT count(*) FROM hloom_try_acquire('acquire', 'a');
-- item 19: with a policy it follows all of it, then gives no row; so with a bound.
CREATE TEMP TABLE clock (at timestamptz);
INSERT INTO clock VALUES (clock_timestamp());
SELECT count(*) FROM hloom_try_acquire('acquire', 'a', retry => hloom_retry_interval(2, '100 ms'));
SELECT clock_timestamp() - at >= '200 ms' AS waited FROM clock;
UPDATE clock SET at = clock_timestamp();
SELECT count(*) FROM hloom_try_acquire('acquire', 'a', max_wait => '200 ms');
SELECT clock_timestamp() - at BETWEEN '50 ms' AND '20 s' AS waited FROM clock;
-- item 22: 100 ms with an interval of 40 ms ends at 80 ms after 3 attempts, if all goes well.
SELECT state, (detail->>'attempts')::int BETWEEN 1 AND 3 AS attempts,
	(detail->>'waited_ms')::int BETWEEN 40 AND 20000 AS waited
FROM detail($$SELECT * FROM hloom_acquire('acquire', 'a', max_wait => '100 ms',
	retry => hloom_retry_interval(100, '40 ms'))$$);
-- item 23: a bound below the first delay is not slept out.
SELECT state, (detail->>'attempts')::int AS attempts, (detail->>'waited_ms')::int < 5000 AS waited
FROM detail($$SELECT * FROM hloom_acquire('acquire', 'a', max_wait => '9 s',
	retry => hloom_retry_interval(100, '10 s'))$$);
-- items 24, 25: no time to wait, or less, is one attempt under any policy.
SELECT max_wait, state, (detail->>'attempts')::int AS attempts
FROM unnest(ARRAY['0', '-1 us', '-1 day', '-1 month', '1 day -25 hours']::interval[]) AS max_wait,
	LATERAL detail(format($$SELECT * FROM hloom_acquire('acquire', 'a', max_wait => %L,
	retry => hloom_retry_immediate(100))$$, max_wait));
-- What is no bound.
SELECT hl.error($$SELECT * FROM hloom_acquire('acquire', 'a', max_wait => '1 month')$$);
SELECT hl.state($$SELECT * FROM hloom_try_acquire('acquire', 'a', max_wait => '1 year -1 day')$$);
SELECT hl.error($$SELECT * FROM hloom_acquire('acquire', 'a',
	max_wait => '2000000000 days 9000000000 seconds' * 2)$$) LIKE '22%' AS refused;

-- What is no policy, from hand, is refused before anything is tried.
SELECT hl.error($$SELECT * FROM hloom_acquire('acquire', 'b',
	retry => ROW('hopeful', -1, '-1 s', NULL, NULL, NULL)::hloom_retry_policy)$$);
SELECT count(*) FROM hloom_leases WHERE namespace = 'acquire' AND key = 'b';
-- A policy of NULLs is none.
SELECT state, (detail->>'attempts')::int AS attempts
FROM detail($$SELECT * FROM hloom_acquire('acquire', 'a', max_wait => '0',
	retry => ROW(NULL, NULL, NULL, NULL, NULL, NULL)::hloom_retry_policy)$$);

-- item 27: all retries have one owner, and each call another one.
SELECT count(DISTINCT owner) AS owners FROM (
	SELECT owner FROM hloom_acquire('acquire', 'owner:1') UNION ALL
	SELECT owner FROM hloom_acquire('acquire', 'owner:2')) AS o;
-- item 28: an owner token is a random uuid of version 4.
SELECT owner::text ~ '^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' AS v4
FROM hloom_acquire('acquire', 'owner:3');
-- item 29: a lease above max_lease is cut, with a notice.
SELECT lease FROM hloom_acquire('acquire', 'cut', '1 day');
-- item 30: a lease that is not positive is an error, and so is one with months.
SELECT hl.error($$SELECT * FROM hloom_acquire('acquire', 'b', '0')$$);
SELECT hl.state($$SELECT * FROM hloom_acquire('acquire', 'b', '-1 s')$$),
	hl.state($$SELECT * FROM hloom_acquire('acquire', 'b', '1 month')$$),
	hl.state($$SELECT * FROM hloom_acquire('acquire', 'b', 'infinity')$$) LIKE '22%' AS infinite;
-- item 10: a bad key is refused before any attempt; items 12: so are no namespace and no key.
SELECT hl.error($$SELECT * FROM hloom_acquire('acquire', 'a b')$$);
SELECT hl.state($$SELECT * FROM hloom_acquire('Acquire', 'b')$$),
	hl.state($$SELECT * FROM hloom_acquire('acquire', '')$$),
	hl.state($$SELECT * FROM hloom_acquire(NULL, 'b')$$),
	hl.state($$SELECT * FROM hloom_acquire('acquire', NULL)$$);
SELECT hl.state($$SELECT * FROM hloom_acquire('acquire', 'b', on_lost => 'panic')$$),
	hl.state($$SELECT * FROM hloom_acquire('acquire', 'b', scope => 'forever')$$),
	hl.state($$SELECT * FROM hloom_acquire('acquire', 'b', auto_extend => true)$$),
	hl.state($$SELECT * FROM hloom_acquire('acquire', 'b', note => repeat('n', 257))$$);
-- None of these took anything.
SELECT count(*) FROM hloom_leases WHERE namespace = 'acquire' AND key = 'b';

-- item 33: statement_timeout ends a wait with its usual error, and only the holder's lease is left.
SET statement_timeout = '300 ms';
SELECT hl.state($$SELECT 1$$), count(*) FROM hloom_acquire('acquire', 'a', max_wait => '1 h',
	retry => hloom_retry_interval(1000, '1 min'));
-- So it does one without waits between the attempts.
SELECT hl.state($$SELECT 1$$), count(*) FROM hloom_acquire('acquire', 'a', max_wait => '1 h',
	retry => hloom_retry_immediate(1000000));
RESET statement_timeout;
-- lock_timeout counts from the start of the wait.  A wait that would pass it is not begun.
SET lock_timeout = '300 ms';
SELECT state, (detail->>'attempts')::int BETWEEN 1 AND 4 AS attempts,
	(detail->>'waited_ms')::int < 20000 AS waited
FROM detail($$SELECT * FROM hloom_try_acquire('acquire', 'a',
	retry => hloom_retry_interval(1000, '100 ms'))$$);
SELECT hl.error($$SELECT * FROM hloom_acquire('acquire', 'a')$$) ~
	'^55P03: canceling statement due to lock timeout' AS text;
-- It says nothing about a call that does not wait, or not so long.
SELECT count(*) FROM hloom_try_acquire('acquire', 'a');
SELECT count(*) FROM hloom_try_acquire('acquire', 'a', max_wait => '100 ms');
RESET lock_timeout;
SELECT key, owner = hl.owner(1) AS first_owner FROM hloom_leases WHERE namespace = 'acquire'
	AND key IN ('a', 'b');

-- A busy key aborts the transaction with hloom_acquire, and does not with hloom_try_acquire.
BEGIN;
SELECT count(*) FROM hloom_try_acquire('acquire', 'a', max_wait => '1 ms');
\set VERBOSITY terse
SELECT count(*) FROM hloom_acquire('acquire', 'a', max_wait => '1 ms');
SELECT 1;
ROLLBACK;
\set VERBOSITY default

-- In PL/pgSQL.
DO $$
DECLARE
	h hloom_handle;
BEGIN
	h := hloom_acquire('acquire', 'plpgsql');
	RAISE NOTICE 'held %', hloom_is_held(h);
	BEGIN
		PERFORM hloom_acquire('acquire', 'plpgsql', max_wait => '0');
	EXCEPTION WHEN lock_not_available THEN
		RAISE NOTICE 'busy: %', SQLSTATE;
	END;
	RAISE NOTICE 'released %', hloom_release(h);
END $$;

-- Not where nothing can be changed.
BEGIN READ ONLY;
SELECT * FROM hloom_acquire('acquire', 'b');
ROLLBACK;

TRUNCATE hloom_leases;
SET client_min_messages = warning;
DROP SCHEMA acquire CASCADE;
