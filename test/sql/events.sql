-- What is written of an event: its name and level, and a DETAIL that is JSON whatever key, role or
-- reason is in it, and that has no owner token.  Each script is run by a second session, since
-- neither a warning nor a line of the log can be caught.  Those of the worker are in 083_events.pl.
SELECT current_database() AS db \gset
\setenv PGDATABASE :db
\setenv PGOPTIONS '-c client_min_messages=debug1 -c statement_timeout=30s'
CREATE SCHEMA events;
SET search_path = events, public;
CREATE EXTENSION hloom_test SCHEMA events;

-- Events among the messages of a script; the cast fails when one is not JSON.  What is not the same
-- twice is shown by its name only.
CREATE FUNCTION written(output text, OUT level text, OUT message text, OUT detail jsonb,
	OUT also text) RETURNS SETOF record LANGUAGE sql AS $$
	SELECT m[1], m[2], d - varying,
		(SELECT string_agg(k, ' ' ORDER BY k) FROM jsonb_object_keys(d) AS k WHERE k = ANY (varying))
	FROM regexp_matches(output, '([A-Z]+):  (Lock[^\n]*)\nDETAIL:  ([^\n]*)', 'g') AS m,
		CAST(m[3] AS jsonb) AS d,
		CAST('{pid,fence,holder_pid,session_role,holder_role,waited_ms}' AS text[]) AS varying
	WHERE m[2] LIKE (d ->> 'event') || ': %' AND jsonb_typeof(d -> 'id') = 'number'
$$;
-- Whether a text contains an owner token, with or without dashes.
CREATE FUNCTION has_owner(output text) RETURNS bool LANGUAGE sql AS $$
	SELECT replace(output, '-', '') LIKE '%' || replace(left(hl.owner(1)::text, 23), '-', '') || '%'
$$;
-- No key may have spaces or control characters; all else it may.
CREATE FUNCTION awkward(n int) RETURNS text LANGUAGE sql AS $$
	SELECT (ARRAY[U&'it''s"quoted"', U&'back\\slash\\n\\u0041\\', U&'100%s%n%1$s%%',
		U&'Gr\00FC\00DFe,\6771\4EAC,\+01F511', '{"key":"value"}', '"}', 'k'])[n]
$$;
SELECT provider FROM hloom_configure('events-test', provider => 'test');
SELECT enabled FROM hloom_configure('events-off', enabled => false);

-- 3100: once in a session.
SELECT $$
SELECT count(*) FROM hloom_try_acquire('events-off', 'k');
SELECT count(*) FROM hloom_try_acquire('events-off', 'k2');
$$ AS script \gset
\setenv SCRIPT :script
\set output `printf %s "$SCRIPT" | psql -X -q -At 2>&1`
SELECT * FROM written(:'output');
-- 3101: when a row gives a policy to a namespace that is enabled.
SELECT $$
SELECT hloom_configure('events', retry => hloom_retry_interval(3, '1 s'));
SELECT hloom_configure('events', max_lease => '5 min');
SELECT hloom_configure('events', reset => '{retry}');
SELECT hloom_configure('events', enabled => false, retry => hloom_retry_linear(10, '50 ms'));
SELECT hloom_configure('events', enabled => true);
SELECT hloom_configure('events', retry => hloom_retry_interval(1000000, '100000000 h'));
SELECT hloom_unconfigure('events');
$$ AS script \gset
\setenv SCRIPT :script
\set output `printf %s "$SCRIPT" | psql -X -q -At 2>&1`
SELECT * FROM written(:'output');
-- 3102: the caller of the action.
SELECT $$
SET search_path = events, public;
SELECT hloom_execute_with_lock('events', awkward(n), 'SELECT hloom_release($1, $2, $3)',
	ARRAY['events', awkward(n), hl.owner(1)::text], owner => hl.owner(1))
FROM generate_series(1, 7) AS n;
$$ AS script \gset
\setenv SCRIPT :script
\set output `printf %s "$SCRIPT" | psql -X -q -At 2>&1`
SELECT * FROM written(:'output');
SELECT has_owner(:'output'), bool_and(detail ->> 'key' = awkward(n::int)) AS keys
FROM written(:'output') WITH ORDINALITY AS w (level, message, detail, also, n);
-- 3104, 3105: the provider fails.
SELECT $$
SET search_path = events, public;
LOAD 'hloom_test';
SELECT count(*) FROM generate_series(1, 2) AS n,
	hloom_try_acquire('events-test', awkward(n), owner => hl.owner(1));
SELECT hloom_test_fail('other'), hloom_extend('events-test', awkward(1), hl.owner(1), '1 min');
SELECT hloom_test_fail('foreign'), hloom_release('events-test', awkward(1), hl.owner(1));
SELECT hloom_test_fail('reply-timeout'), hloom_release('events-test', awkward(2),
	hl.owner(1)::text);
$$ AS script \gset
\setenv SCRIPT :script
\set output `printf %s "$SCRIPT" | psql -X -q -At 2>&1`
SELECT * FROM written(:'output');
SELECT has_owner(:'output');
-- 3104, 3190: after the action the lease table is not there.
SELECT $$
BEGIN;
SELECT hloom_execute_with_lock('events', 'k', 'DROP EXTENSION hloom_lock CASCADE',
	owner => hl.owner(1), scope => 'lease');
ROLLBACK;
BEGIN;
SELECT hloom_execute_with_lock('events', 'k2', 'DROP EXTENSION hloom_lock CASCADE',
	owner => hl.owner(1));
ROLLBACK;
$$ AS script \gset
\setenv SCRIPT :script
\set output `printf %s "$SCRIPT" | psql -X -q -At 2>&1`
SELECT * FROM written(:'output');
SELECT has_owner(:'output');
-- 3107: what the statement does about its cancel fails.
SELECT $$
SELECT fence FROM hloom_try_acquire('events', 'k"', '300 ms', owner => hl.owner(1),
	scope => 'session', on_lost => 'cancel');
DO $do$ BEGIN
	PERFORM pg_sleep(25);
EXCEPTION WHEN query_canceled THEN
	RAISE 'could not\n%', E'"clean up"\n\\' USING ERRCODE = 'XX123';
END $do$;
SELECT 'the next statement is told';
$$ AS script \gset
\setenv SCRIPT :script
\set output `printf %s "$SCRIPT" | psql -X -q -At 2>&1`
SELECT * FROM written(:'output');
SELECT has_owner(:'output'), :'output' LIKE '%told%' AS succeeded,
	substring(:'output' FROM 'canceling[^\n]*') AS told;
-- 3108: a grant nobody heard of.
SELECT $$
SET search_path = events, public;
SELECT hloom_test_fail('timeout', 1, true, true);
SELECT count(*) FROM hloom_acquire('events-test', awkward(1), owner => hl.owner(1));
SELECT hloom_test_fail('other', 2);
SELECT count(*) FROM hloom_acquire('events-test', awkward(2), owner => hl.owner(1));
$$ AS script \gset
\setenv SCRIPT :script
\set output `printf %s "$SCRIPT" | psql -X -q -At 2>&1`
SELECT * FROM written(:'output');
SELECT has_owner(:'output');

-- 3191: who, from whom, why.  The next grant has a higher fence.
CREATE ROLE U&"regress_hloom_\000A\0022\005C";
GRANT EXECUTE ON FUNCTION hloom_force_release(text, text, text) TO U&"regress_hloom_\000A\0022\005C";
GRANT USAGE ON SCHEMA hl, events TO U&"regress_hloom_\000A\0022\005C";
SELECT provider FROM hloom_configure('events-memory', provider => 'memory');
SELECT $$
SET search_path = events, public;
LOAD 'hloom_test';
SELECT fence AS lost FROM hloom_try_acquire('events', awkward(1), owner => hl.owner(1)) \gset
SELECT count(*) FROM hloom_try_acquire('events-memory', awkward(4), owner => hl.owner(1));
SET ROLE U&"regress_hloom_\000A\0022\005C";
SELECT hloom_force_release('events', awkward(1), E'a "reason",\nof\ttwo lines: \\ ''%s''\r\x01');
SELECT hloom_force_release('events-memory', awkward(4), U&'\00DC');
SELECT count(*) FROM hloom_try_acquire('events-test', 'k', owner => hl.owner(1));
SELECT hloom_force_release('events-test', 'k', ''), hloom_force_release('events-test', 'k', 'no');
RESET ROLE;
SELECT 'higher ' || (fence > :lost) FROM hloom_try_acquire('events', awkward(1), owner => hl.owner(1));
SELECT hloom_release('events', awkward(1), hl.owner(1));
$$ AS script \gset
\setenv SCRIPT :script
\set output `printf %s "$SCRIPT" | psql -X -q -At 2>&1`
SELECT * FROM written(:'output');
SELECT has_owner(:'output'), substring(:'output' FROM 'higher [a-z]+');

SET client_min_messages = warning;
DROP OWNED BY U&"regress_hloom_\000A\0022\005C";
DROP ROLE U&"regress_hloom_\000A\0022\005C";
SELECT hloom_unconfigure('events-' || ns) FROM unnest(ARRAY['test', 'off', 'memory']) AS ns;
TRUNCATE hloom_leases;
DROP SCHEMA events CASCADE;
