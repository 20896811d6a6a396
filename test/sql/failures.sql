-- What a provider that fails, is slow or is cancelled makes of a call: the errors, no retry, and the
-- clean-up release of what may have been granted without anybody knowing.  Provider "test" does as it
-- is told and keeps a record of its calls.
CREATE SCHEMA failures;
SET search_path = failures, public;
CREATE EXTENSION hloom_test SCHEMA failures;
SELECT provider FROM hloom_configure('failures', provider => 'test');

-- The SQLSTATE, message and DETAIL of an error that must come, and the calls that were made, while
-- the provider fails in a way.  Waiting times are not the same twice.
CREATE FUNCTION failure(statement text, kind text DEFAULT 'none', times int DEFAULT 1,
	applies bool DEFAULT false, acquire_only bool DEFAULT false,
	OUT error text, OUT detail jsonb, OUT calls text) LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	PERFORM hloom_test_fail(kind, times, applies, acquire_only);
	BEGIN
		EXECUTE statement;
		error := 'none';
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS line = PG_EXCEPTION_DETAIL;
		error := SQLSTATE || ' ' || SQLERRM;
		detail := line::jsonb - 'waited_ms';
	END;
	calls := (SELECT string_agg(operation || ' ' || result, ', ') FROM hloom_test_calls());
END $$;
CREATE VIEW calls AS SELECT operation, key, result FROM hloom_test_calls();
CREATE VIEW orphans AS SELECT outcome, value FROM hloom_metrics
	WHERE namespace = 'failures' AND name = 'hostloom_lock_orphan_releases';

-- It is a provider like any other.  item 16: it sees "{namespace}:lock:{key}".
SELECT key, fence, is_coordinated FROM hloom_try_acquire('failures', 'a', owner => hl.owner(1));
SELECT count(*) FROM hloom_try_acquire('failures', 'a', owner => hl.owner(2));
SELECT hloom_is_held('failures', 'a', hl.owner(1)), hloom_extend('failures', 'a', hl.owner(1), '1 min'),
	hloom_remaining('failures', 'a', hl.owner(1)) > '30 s' AS remaining,
	hloom_release('failures', 'a', hl.owner(2)) AS other, hloom_release('failures', 'a', hl.owner(1));
SELECT * FROM calls;
SELECT count(*) FROM hloom_leases WHERE namespace = 'failures';

-- item 27: all retries of one acquisition use one owner token, two acquisitions two.
SELECT hloom_test_hold('failures:lock:busy');
SELECT count(*) FROM hloom_try_acquire('failures', 'busy', retry => hloom_retry_immediate(3));
SELECT count(*) FROM hloom_try_acquire('failures', 'busy', retry => hloom_retry_immediate(1));
SELECT count(*) AS calls, count(DISTINCT owner) AS owners, bool_and(result = 'false') AS refused
FROM hloom_test_calls();
-- item 26: contention tells as much of the holder as the provider does.
SELECT error, detail - 'holder_until' AS detail, detail ? 'holder_until' AS holder_until
FROM failure($$SELECT * FROM hloom_acquire('failures', 'busy', max_wait => '0')$$);
-- item 17: freed, it can be taken.
SELECT hloom_test_free('failures:lock:busy');
SELECT count(*) FROM hloom_acquire('failures', 'busy', owner => hl.owner(1));
SELECT hloom_release('failures', 'busy', hl.owner(1));
SELECT count(*) FROM calls;

-- item 38: a provider's error keeps its kind, also (item 42) when it ended the call by itself; item
-- 39: any other becomes LL004; item 43: raised or returned is the same.  The provider's words are in
-- the DETAIL.  item 40: a failure is not tried again.
SELECT kind, f.* FROM unnest(ARRAY['unavailable', 'timeout', 'other', 'foreign',
	'reply-unavailable', 'reply-timeout', 'reply-other']) AS kind,
	LATERAL failure($$SELECT * FROM hloom_acquire('failures', 'f',
		retry => hloom_retry_immediate(100))$$, kind) AS f;
-- A release is made after all but "unavailable"; nothing was held.  item 53.
SELECT * FROM orphans;
-- The transaction after it is usable as after any error, and so is the provider: item 41.
SELECT count(*) FROM hloom_acquire('failures', 'f', owner => hl.owner(1));
SELECT hloom_release('failures', 'f', hl.owner(1));
SELECT count(*) FROM calls;

-- item 41: while every call fails no action runs.
CREATE TABLE ran (n int);
SELECT f.error, f.calls FROM generate_series(1, 3) AS n,
	LATERAL failure(format($$SELECT hloom_execute_with_lock('failures', 'f',
		'INSERT INTO ran VALUES (%s)')$$, n), 'other', 1000) AS f;
SELECT hloom_test_fail('none');
SELECT hloom_execute_with_lock('failures', 'f', 'INSERT INTO ran VALUES (4)');
SELECT * FROM ran;
SELECT operation, result, count(*) FROM calls GROUP BY 1, 2 ORDER BY 1, 2;
SELECT * FROM orphans;

-- items 56, 57: a write that took effect before the failure is released once, with its owner; after
-- "unavailable" it is not, and ends by itself.  item 62: others need not wait for its end.
SELECT kind, left(f.error, 5) AS state, calls
FROM unnest(ARRAY['timeout', 'other', 'foreign', 'reply-timeout', 'reply-other', 'unavailable'])
	AS kind,
	LATERAL failure(format($$SELECT * FROM hloom_acquire('failures', 'applied:%s', '4 min')$$,
		kind), kind, applies => true, acquire_only => true) AS f;
SELECT * FROM orphans;
SELECT hloom_test_held();
SELECT count(*) FROM hloom_try_acquire('failures', 'applied:timeout', owner => hl.owner(1));
SELECT count(*) FROM hloom_try_acquire('failures', 'applied:unavailable', owner => hl.owner(1));
SELECT hloom_test_free('failures:lock:applied:unavailable'),
	hloom_release('failures', 'applied:timeout', hl.owner(1));
SELECT count(*) FROM calls;

-- item 59: a clean-up release that fails is counted and told to nobody; the caller's error is its own.
SELECT f.* FROM failure($$SELECT * FROM hloom_acquire('failures', 'twice')$$, 'other', 2, true) AS f;
SELECT * FROM orphans;
-- item 60: the log line of it has the key and not the owner.  item 61: it takes min(lease, 5 s) at
-- most.
SELECT hloom_test_fail('other', 2, false);
SET client_min_messages = debug1;
SELECT count(*) FROM hloom_try_acquire('failures', 'logged', '2 min');
RESET client_min_messages;
SELECT hloom_test_fail('other', 1);
SELECT count(*) FROM hloom_try_acquire('failures', 'bound', '2 s');
SELECT operation, key, bound FROM hloom_test_calls();

-- item 46: a grant that comes at its own end or later is none: LL003, one attempt, given back once.
-- items 47, 58: no action runs; whether somebody else has freed it meanwhile does not matter.  The
-- provider is deaf: it does not hear of its deadline, nor does anybody else.
SELECT hloom_test_delay('300 ms', deaf => true);
SELECT f.* FROM failure($$SELECT * FROM hloom_acquire('failures', 'late', '200 ms',
	retry => hloom_retry_immediate(5))$$) AS f;
SELECT f.error, f.calls FROM failure($$SELECT hloom_execute_with_lock('failures', 'late',
	'INSERT INTO ran VALUES (47)', lease => '200 ms')$$) AS f;
SELECT count(*) FROM ran WHERE n = 47;
SELECT * FROM orphans;
-- items 44, 45: a slow grant counts from its request.
SELECT lease_end < clock_timestamp() - '300 ms'::interval + '4 min'::interval AS from_request,
	lease FROM hloom_acquire('failures', 'slow', '4 min', owner => hl.owner(1));
SELECT hloom_release('failures', 'slow', hl.owner(1));
-- item 36: max_wait does not cut short a provider that does not look at its deadline; it ends the
-- tries.
SELECT hloom_test_hold('failures:lock:slow');
SELECT count(*) FROM hloom_try_acquire('failures', 'slow', max_wait => '100 ms',
	retry => hloom_retry_immediate(100));
SELECT count(*) FROM calls WHERE result = 'false';
-- items 33, 49: cancelled while the provider is at it; what it was given is released.
SELECT hloom_test_delay('1 hour');
SET statement_timeout = '200 ms';
SELECT count(*) FROM hloom_try_acquire('failures', 'cancelled', '5 min');
RESET statement_timeout;
SELECT hloom_test_delay('0');
SELECT * FROM calls;
-- item 32: cancelled before, no provider is asked; item 35: cancelled during the last attempt, that
-- is what the caller hears of.
SELECT pg_cancel_backend(pg_backend_pid())
	AND hloom_execute_with_lock('failures', 'cancelled', 'SELECT 1') > 0;
SELECT count(*) FROM calls;
SELECT hloom_test_hold('failures:lock:busy');
SELECT hloom_test_fail('cancel')::text <> '-'
	AND hloom_execute_with_lock('failures', 'busy', 'SELECT 1', max_wait => '0') > 0;
SELECT * FROM calls;
SELECT hloom_test_free('failures:lock:busy');
-- Nor is one lost that comes during a clean-up release, here the one of a late grant; the release is
-- counted as failed.
SELECT hloom_test_fail('cancel-release'), hloom_test_delay('300 ms', deaf => true);
SELECT count(*) FROM hloom_acquire('failures', 'late', '200 ms');
SELECT hloom_test_fail('none'), hloom_test_delay('0');
SELECT * FROM calls;
SELECT * FROM orphans WHERE outcome = 'failed';
SELECT count(*) FROM hloom_try_acquire('failures', 'cancelled', '5 min', owner => hl.owner(1));
SELECT hloom_release('failures', 'cancelled', hl.owner(1));
SELECT count(*) FROM calls;

-- item 71: an extend that fails is false with a warning, and the old end stands.  item 89: a release
-- that fails is NULL with a warning.  In PL/pgSQL the transaction goes on.
SELECT count(*) FROM hloom_acquire('failures', 'keep', '4 min', owner => hl.owner(1));
\set VERBOSITY terse
SELECT hloom_test_fail('other'), hloom_extend('failures', 'keep', hl.owner(1), '1 min') AS extended;
SELECT hloom_test_fail('foreign'), hloom_extend('failures', 'keep', hl.owner(1), '1 min') AS extended;
SELECT hloom_test_fail('reply-timeout'), hloom_extend('failures', 'keep', hl.owner(1)) AS extended;
SELECT hloom_remaining('failures', 'keep', hl.owner(1)) > '2 min' AS old_end;
BEGIN;
SELECT hloom_test_fail('other'), hloom_release('failures', 'keep', hl.owner(1)) AS released;
SELECT hloom_test_fail('unavailable'), hloom_release('failures', 'keep', hl.owner(1)) AS released;
SELECT hloom_test_fail('reply-other'), hloom_release('failures', 'keep', hl.owner(1)) AS released;
SELECT hloom_is_held('failures', 'keep', hl.owner(1)) AS held;
COMMIT;
-- item 48: an extension whose answer takes as long as its lease is none.
SELECT hloom_test_delay('100 ms', deaf => true);
SELECT hloom_extend('failures', 'keep', hl.owner(1), '1 min') AS in_time,
	hloom_extend('failures', 'keep', hl.owner(1), '90 ms') AS late;
SELECT hloom_test_delay('0');
SELECT count(*) FROM hloom_acquire('failures', 'keep', '4 min', owner => hl.owner(1));
-- A look that fails is an error: neither true nor false would be right.
SELECT hloom_test_fail('other', 2);
SELECT hl.state($$SELECT hloom_is_held('failures', 'keep', hl.owner(1))$$),
	hl.state($$SELECT hloom_remaining('failures', 'keep', hl.owner(1))$$);
SELECT hloom_release('failures', 'keep', hl.owner(1));
-- item 89: the same for the release after an action, whose result is not affected.
SELECT hloom_test_fail('none');
SELECT hloom_execute_with_lock('failures', 'act', 'SELECT 1 FROM hloom_test_fail(''other'')');
SELECT hloom_test_free('failures:lock:act');
-- item 21: nor is its own error.
SELECT hloom_execute_with_lock('failures', 'act',
	'SELECT 1 / length(hloom_test_fail(''other'')::text)');
SELECT hloom_test_fail('none'), hloom_test_free('failures:lock:act');
-- item 90: a lease that was lost meanwhile is told.  items 91, 92: it is given back all the same.
SELECT count(*) FROM calls;
SELECT hloom_execute_with_lock('failures', 'act', $$SELECT hloom_test_free('failures:lock:act')$$);
SELECT * FROM calls;
SELECT value FROM hloom_metrics WHERE namespace = 'failures' AND name = 'hostloom_lock_lost';

-- A call that lets interrupts in ends at its deadline by itself.  An acquire: its lease, and one
-- clean-up release, which takes no longer than that.
SELECT hloom_test_delay('1 hour', 'acquire');
CREATE TEMP TABLE before AS SELECT * FROM orphans;
SELECT f.error, f.detail FROM failure($$SELECT * FROM hloom_acquire('failures', 'hangs', '300 ms',
	retry => hloom_retry_immediate(5))$$) AS f;
SELECT hloom_try_acquire('failures', 'hangs', '300 ms');
SELECT operation, key, result, bound FROM hloom_test_calls();
-- A cancel that came before the deadline, of which a deaf provider does not hear, stays one.
SELECT hloom_test_delay('400 ms', deaf => true);
SET statement_timeout = '100 ms';
SELECT count(*) FROM hloom_try_acquire('failures', 'late', '200 ms');
RESET statement_timeout;
SELECT count(*) FROM calls;
-- The clean-up release hangs, too.
SELECT hloom_test_delay('1 hour', 'acquire release');
SELECT f.* FROM failure($$SELECT * FROM hloom_acquire('failures', 'hangs', '300 ms')$$) AS f;
SELECT outcome, n.value - o.value AS more FROM orphans AS n JOIN before AS o USING (outcome)
ORDER BY outcome;
-- An extend: the lease asked for.
SELECT hloom_test_delay('0');
SELECT count(*) FROM hloom_acquire('failures', 'keep', '4 min', owner => hl.owner(1));
SELECT hloom_test_delay('1 hour');
SELECT hloom_extend('failures', 'keep', hl.owner(1), '300 ms') AS extended;
SELECT hloom_remaining('failures', 'keep', hl.owner(1)) > '2 min' AS old_end;
SELECT hloom_test_delay('0');
SELECT hloom_release('failures', 'keep', hl.owner(1));
-- A release: the default lease of the namespace.  The transaction goes on.
SELECT provider, default_lease FROM hloom_configure('failures-short', provider => 'test',
	default_lease => '300 ms');
SELECT count(*) FROM hloom_acquire('failures-short', 'keep', '4 min', owner => hl.owner(1));
SELECT hloom_test_delay('1 hour', 'release');
BEGIN;
SELECT hloom_release('failures-short', 'keep', hl.owner(1)) AS released;
SELECT hloom_test_delay('0');
SELECT hloom_is_held('failures-short', 'keep', hl.owner(1)) AS held;
COMMIT;
SELECT hloom_unconfigure('failures-short');
SELECT count(*) FROM calls;
DROP TABLE before;
\set VERBOSITY default

-- item 107: how acquisitions ended.
SELECT outcome, value > 0 AS counted FROM hloom_metrics WHERE namespace = 'failures'
	AND name = 'hostloom_lock_acquire_duration_seconds_count' ORDER BY outcome;

-- Names of providers.
SELECT hl.error($$SELECT hloom_configure('failures-x', provider => 'nobody')$$);
-- A provider with leases is not left: they would be forgotten.
SELECT count(*) FROM hloom_acquire('failures', 'live', owner => hl.owner(1));
SELECT hl.error($$SELECT hloom_configure('failures', provider => 'table')$$);
SELECT hl.state($$SELECT hloom_configure('failures', reset => '{provider}')$$),
	hl.state($$SELECT hloom_unconfigure('failures')$$);
SELECT hloom_release('failures', 'live', hl.owner(1));
SELECT count(*) FROM hloom_try_acquire('failures-x', 'live', owner => hl.owner(1));
SELECT hl.state($$SELECT hloom_configure('failures-x', provider => 'test')$$);
SELECT hloom_release('failures-x', 'live', hl.owner(1));
-- One of another version of the interface does not keep a good one from its work, and may be what is
-- missing; two of a name cannot be told apart.  In this session's list from now on.
SELECT hloom_test_register('foreign');
SELECT count(*) FROM hloom_try_acquire('failures', 'a', owner => hl.owner(1));
SELECT hl.error($$SELECT hloom_configure('failures-x', provider => 'foreign')$$);
SELECT hloom_test_register('second');
SELECT hl.error($$SELECT * FROM hloom_try_acquire('failures', 'a')$$);
-- The lease table is not affected, unless the name is its own.
SELECT count(*) FROM hloom_try_acquire('failures-x', 'a', owner => hl.owner(1));
SELECT hloom_test_register('table');
SELECT hl.error($$SELECT * FROM hloom_try_acquire('failures-x', 'a')$$);
SELECT hl.error($$SELECT * FROM hloom_try_acquire('failures-x', 'a')$$) AS again;

\connect
SET search_path = failures, public;
-- That was of its session only.
SELECT count(*) FROM hloom_try_acquire('failures-x', 'b', owner => hl.owner(1));
-- A provider whose library is not loaded.
SELECT hl.error($$SELECT * FROM hloom_try_acquire('failures', 'a')$$);
SET client_min_messages = warning;
LOAD 'hloom_test';
SELECT hloom_unconfigure('failures');
TRUNCATE hloom_leases;
DROP SCHEMA failures CASCADE;
