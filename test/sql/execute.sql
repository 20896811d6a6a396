-- Actions under a lease: hloom_execute_with_lock and its two siblings that return rows.  Items are
-- those of the checklist of the lock's semantics.  Each group ends with a look for leases left.
\pset null '(null)'
CREATE SCHEMA execute;
SET search_path = execute, public;
CREATE TABLE t (id int PRIMARY KEY, v text CONSTRAINT v_short CHECK (length(v) < 10));
CREATE PROCEDURE nothing() LANGUAGE plpgsql AS $$ BEGIN NULL; END $$;
CREATE PROCEDURE doubled(INOUT n int) LANGUAGE plpgsql AS $$ BEGIN n := 2 * n; END $$;
CREATE PROCEDURE committing() LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO execute.t VALUES (99, 'commit');
	COMMIT;
END $$;

-- The text of an action's error, or what it returned.
CREATE FUNCTION act(action text, args text[] DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
	SELECT hl.error(format('SELECT hloom_execute_with_lock(''execute'', ''k'', %L, %L)', action,
		args))
$$;

-- The number of rows processed, and the lease is gone. (item 20)
SELECT action, hloom_execute_with_lock('execute', 'k', action) AS rows FROM unnest(ARRAY[
	$$SELECT 1$$,
	$$SELECT FROM generate_series(1, 3)$$,
	$$SELECT WHERE false$$,
	$$VALUES (1), (2);$$,
	$$INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')$$,
	$$INSERT INTO t VALUES (4, 'four') RETURNING id$$,
	$$INSERT INTO t VALUES (1, 'again') ON CONFLICT DO NOTHING$$,
	$$UPDATE t SET v = upper(v) WHERE id > 1 -- three of them$$,
	$$MERGE INTO t USING (VALUES (1), (5)) AS s(id) ON t.id = s.id
	WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'five')$$,
	$$WITH gone AS (DELETE FROM t WHERE id > 3 RETURNING id) SELECT max(id) FROM gone$$,
	$$TABLE t$$,
	$$CREATE TABLE made (a int)$$,
	$$CREATE TABLE made2 AS SELECT generate_series(1, 4)$$,
	$$SELECT a INTO made3 FROM generate_series(1, 5) AS a$$,
	$$EXPLAIN (COSTS OFF) SELECT 1 AS a ORDER BY 1$$,
	$$SHOW server_version_num$$,
	$$CALL nothing()$$,
	$$CALL doubled(4)$$,
	$$DO 'BEGIN INSERT INTO execute.t VALUES (6, ''six''); END'$$,
	$$COPY t TO PROGRAM 'cat > /dev/null'$$,
	$$PREPARE two AS SELECT generate_series(1, 2)$$,
	$$EXECUTE two$$,
	$$DEALLOCATE two$$,
	$$SET LOCAL enable_seqscan = on$$,
	$$DROP TABLE made, made2, made3$$]) AS action;
TABLE t ORDER BY id;
SELECT count(*) FROM hloom_leases;

-- While the action runs the lease is there, with what the call asked for. (item 17)
SELECT * FROM hloom_query_with_lock('execute', 'k',
	$$SELECT namespace, key, owner = hl.owner(1), lease, scope, note,
		holder_pid = pg_backend_pid() FROM hloom_leases$$,
	lease => '7 s', owner => hl.owner(1), note => 'nightly')
	AS (namespace text, key text, owner bool, lease interval, scope text, note text, mine bool);
-- A lease above the maximum is capped. (item 29)
SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT lease FROM hloom_leases',
	lease => '1 day') AS (lease interval);
-- Held by another owner: contention, past the policy or max_wait, and the action never runs.
SELECT key FROM hloom_try_acquire('execute', 'busy', owner => hl.owner(1));
\set VERBOSITY terse
SELECT hloom_execute_with_lock('execute', 'busy', 'INSERT INTO t VALUES (50)', max_wait => '0');
SELECT * FROM hloom_query_with_lock('execute', 'busy', 'INSERT INTO t VALUES (50) RETURNING id',
	max_wait => '1 ms') AS (id int);
SELECT hloom_query_with_lock_json('execute', 'busy', 'INSERT INTO t VALUES (50) RETURNING id',
	max_wait => '-1 day');
\set VERBOSITY default
-- The owner's own token is no contention: the lease becomes the call's, and ends with it. (item 93)
SELECT hloom_execute_with_lock('execute', 'busy', 'SELECT 1', owner => hl.owner(1));
SELECT count(*) FROM t WHERE id = 50;
SELECT count(*) FROM hloom_leases;
-- An action that only reads uses up no transaction id, nor does the lease.
BEGIN;
SELECT hloom_execute_with_lock('execute', 'k', 'SELECT 1');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
-- Each command sees what the one before it did.
SELECT hloom_execute_with_lock('execute', 'k', 'INSERT INTO t VALUES (7)') AS inserted,
	hloom_execute_with_lock('execute', 'k', 'DELETE FROM t WHERE id = 7') AS deleted;

-- The action's own error is passed on unchanged: each field is that of the same statement without
-- the lock. (item 21)
CREATE FUNCTION fails() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	RAISE 'own message' USING ERRCODE = 'ZZ042', DETAIL = 'own detail', HINT = 'own hint',
		COLUMN = 'own column', CONSTRAINT = 'own constraint', DATATYPE = 'own type',
		TABLE = 'own table', SCHEMA = 'own schema';
END $$;
CREATE FUNCTION fields(statement text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
	column_name text;
	constraint_name text;
	type_name text;
	table_name text;
	schema_name text;
	context text;
BEGIN
	EXECUTE statement;
	RETURN NULL;
EXCEPTION WHEN OTHERS OR query_canceled THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT,
		column_name = COLUMN_NAME, constraint_name = CONSTRAINT_NAME,
		type_name = PG_DATATYPE_NAME, table_name = TABLE_NAME, schema_name = SCHEMA_NAME,
		context = PG_EXCEPTION_CONTEXT;
	RETURN ARRAY[SQLSTATE, SQLERRM, detail, hint, column_name, constraint_name, type_name,
		table_name, schema_name, context];
END $$;
SELECT unnest((fields('SELECT fails()'))[1:9]) AS alone,
	unnest((fields($$SELECT hloom_execute_with_lock('execute', 'k', 'SELECT fails()')$$))[1:9])
	AS locked;
SELECT (fields($$SELECT hloom_execute_with_lock('execute', 'k', 'SELECT fails()')$$))[10];
SELECT action, alone[1:9] = locked[1:9] AS same, locked[1] AS state, locked[6] AS "constraint"
FROM unnest(ARRAY['INSERT INTO t VALUES (2)', $$INSERT INTO t VALUES (8, repeat('x', 10))$$,
	'INSERT INTO t VALUES (NULL)', 'TABLE nowhere', 'SELECT 1 / 0', 'SELECT nothing()',
	$$DO 'BEGIN RAISE query_canceled; END'$$, $$SELECT 'x'::int$$]) AS action,
	LATERAL fields(action) AS alone,
	LATERAL fields(format('SELECT hloom_execute_with_lock(''execute'', ''k'', %L)', action))
	AS locked;
SELECT count(*) FROM hloom_leases;
-- What the client is shown: the position is one in the action.
SELECT hloom_execute_with_lock('execute', 'k', 'SELECT 1 FROM nowhere');
SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT id, w FROM t') AS (id int, w text);
SELECT hloom_execute_with_lock('execute', 'k', 'SELECT fails()');
-- What it did before its error is undone with it, and the transaction can go on.
BEGIN;
INSERT INTO t VALUES (10, 'before');
SELECT act('WITH i AS (INSERT INTO t VALUES (11) RETURNING id) SELECT 1 / (id - 11) FROM i');
COMMIT;
SELECT id FROM t WHERE id >= 10;
SELECT count(*) FROM hloom_leases;

-- What cannot be an action is told before a lease is asked for: not even a busy key is noticed.
SELECT key FROM hloom_try_acquire('execute', 'k', owner => hl.owner(1));
SELECT act(NULL);
SELECT action, act(action) FROM unnest(ARRAY['', ' ', ';', ';;', '-- only a comment',
	E'/* only /* a */ comment */\n;']) AS action;
SELECT act('SELECT 1; SELECT 2');
SELECT act($$INSERT INTO t VALUES (60, $1); DROP TABLE t$$, '{x}');
SELECT act('COMMIT');
SELECT action, left(act(action), 5) AS state FROM unnest(ARRAY['commit;', 'COMMIT AND CHAIN', 'END',
	'END TRANSACTION', 'ROLLBACK', 'ROLLBACK WORK', 'abort', 'BEGIN', 'START TRANSACTION',
	'SAVEPOINT s', 'RELEASE s', 'ROLLBACK TO s', 'PREPARE TRANSACTION ''x''',
	'COMMIT PREPARED ''x''', '/* a */ COMMIT -- b']) AS action;
SELECT act('COPY t TO STDOUT');
SELECT act('COPY t FROM STDIN');
SELECT hloom_execute_with_lock('execute', 'k', 'SELEC 1');
SELECT hloom_execute_with_lock('execute', 'k', E'SELECT 1\n  FROM t WHERE (');
SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT ''open') AS (a text);
SELECT hl.state($$SELECT hloom_execute_with_lock(NULL, 'k', 'SELECT 1')$$),
	hl.state($$SELECT hloom_execute_with_lock('execute', NULL, 'SELECT 1')$$),
	hl.state($$SELECT hloom_execute_with_lock('Execute', 'k', 'SELECT 1')$$),
	hl.state($$SELECT hloom_execute_with_lock('execute', 'a b', 'SELECT 1')$$),
	hl.state($$SELECT hloom_execute_with_lock('execute', 'k', 'SELECT 1', lease => '0')$$); -- (item 30)
SELECT hloom_release('execute', 'k', hl.owner(1));
-- What only shows when it runs.
SELECT act('CALL committing()');
SELECT act($$DO 'BEGIN INSERT INTO execute.t VALUES (98); COMMIT; END'$$);
SELECT act($$DO 'BEGIN INSERT INTO execute.t VALUES (98); ROLLBACK; END'$$);
SELECT act('VACUUM t');
SELECT act('CREATE INDEX CONCURRENTLY ON t (v)');
SELECT act('DISCARD ALL');
SELECT count(*) FROM t WHERE id > 50;
SELECT count(*) FROM hloom_leases;

-- Values come as parameters of the types the action gives them.
SELECT * FROM hloom_query_with_lock('execute', 'k',
	$$SELECT $1::int + 1, $2 || '!', $3::int[], coalesce($4::date, 'epoch'), $5::t,
		$6::numeric(5, 2)$$,
	args => ARRAY['41', '''); DROP TABLE t; --', '{1,NULL}', NULL, '(1,x)', '1.234'])
	AS (a int, b text, c int[], d date, e t, f numeric(5, 2));
SELECT act('INSERT INTO t VALUES ($1, $2)', ARRAY['20', '''); d --']);
SELECT act('UPDATE t SET v = $2 WHERE id = $1', '{20,NULL}');
SELECT id, v FROM t WHERE id = 20;
-- The same one twice, and lower bounds do not matter.
SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT $1::int + $1, $2::text', '[7:8]={4,b}')
	AS (a int, b text);
SELECT act('SELECT 1', '{}'), act('SELECT 1', NULL);
SELECT act('CREATE TABLE made AS SELECT $1::int AS a', '{5}');
SELECT act('EXPLAIN (COSTS OFF) SELECT $1::int', '{5}');
SELECT * FROM hloom_query_with_lock('execute', 'k', 'CALL doubled($1)', '{21}') AS (n int);
-- Too few, too many, not of the type, not of a type, in two dimensions.
SELECT act('SELECT $1::int + $2::int', '{1}');
SELECT act('SELECT $1::int', '{1,2}');
SELECT act('SELECT $1::int');
SELECT act('SELECT 1', '{1}');
SELECT act('SELECT 1', ARRAY[NULL]);
SELECT hloom_execute_with_lock('execute', 'k', 'SELECT $1::text, $2::int', '{1,x}');
SELECT act('SELECT $2::int', '{1,2}');
SELECT act('SELECT pg_typeof($1)', '{1}');
SELECT act('SELECT $1 FROM t WHERE $1 = id AND $1 = v', '{1}');
SELECT act('SELECT $1::int', '{{1}}');
SELECT act('SELECT $0', '{1}');
CREATE DOMAIN small AS int NOT NULL CHECK (VALUE < 10);
SELECT act('SELECT $1::small', '{9}'), left(act('SELECT $1::small', '{10}'), 5) AS range,
	left(act('SELECT $1::small', '{NULL}'), 5) AS "null";
SELECT act('SELECT $1::record', '{"(1)"}');
SELECT count(*) FROM made;
DROP TABLE made;
SELECT count(*) FROM hloom_leases;

-- Rows: the column definition list must fit.
SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT id, v FROM t ORDER BY id')
	AS rows(n int, name text);
SELECT * FROM hloom_query_with_lock('execute', 'k', 'DELETE FROM t WHERE id = 20 RETURNING *')
	WITH ORDINALITY AS rows;
SELECT * FROM hloom_query_with_lock('execute', 'k', 'DELETE FROM t WHERE id = 20 RETURNING *')
	AS rows(id int, v text);
SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT WHERE false') AS (a int);
\set VERBOSITY terse
SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT 1') AS (a text);
\set VERBOSITY default
SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT 1, 2') AS (a int);
SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT 1') AS (a int, b int);
SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT 1');
SELECT hloom_query_with_lock('execute', 'k', 'SELECT 1');
-- Commands that return rows, though they are no queries, and some that return none.
SELECT count(*) > 0 AS rows FROM hloom_query_with_lock('execute', 'k', 'EXPLAIN SELECT 1')
	AS (line text);
SELECT * FROM hloom_query_with_lock('execute', 'k', 'SHOW search_path') AS (path text);
SELECT * FROM hloom_query_with_lock('execute', 'k', 'CALL nothing()') AS (a int);
SELECT * FROM hloom_query_with_lock('execute', 'k', 'INSERT INTO t VALUES (70)') AS (a int);
SELECT action, hl.error(format('SELECT hloom_query_with_lock_json(''execute'', ''k'', %L)', action))
FROM unnest(ARRAY['UPDATE t SET v = v', 'CREATE TABLE made (a int)', 'SELECT 1 AS a INTO made',
	$$DO 'BEGIN NULL; END'$$, 'CREATE TABLE made AS SELECT 1 AS a']) AS action;
SELECT to_regclass('made') AS made, count(*) FROM t WHERE id = 70;
-- In the places rows are taken from.
SELECT n, c FROM generate_series(1, 3) AS n,
	LATERAL hloom_query_with_lock('execute', 'k', 'SELECT generate_series(1, $1::int)',
		ARRAY[n::text]) AS (c int);
SELECT * FROM ROWS FROM (
	hloom_query_with_lock('execute', 'k', 'SELECT generate_series(1, 2)') AS (a int),
	hloom_query_with_lock_json('execute', 'k', 'SELECT 1 AS b'));
SELECT hloom_query_with_lock_json('execute', 'k', 'SELECT generate_series(1, 2) AS a') AS row;
SELECT count(*) FROM hloom_leases;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT * FROM hloom_query_with_lock('execute', 'k',
	'SELECT generate_series(1, 5)') AS (n int);
FETCH 2 FROM c;
-- The transaction ends the lease, not the FETCH.
SELECT count(*) AS leases_after_fetch FROM hloom_leases;
FETCH LAST FROM c;
FETCH PRIOR FROM c;
COMMIT;
DECLARE c CURSOR WITH HOLD FOR SELECT * FROM hloom_query_with_lock('execute', 'k',
	'SELECT generate_series(1, 2)') AS (n int);
FETCH ALL FROM c;
CLOSE c;
DO $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT id, v FROM t ORDER BY id')
		AS (id int, v text) LOOP
		RAISE NOTICE '% %, leases %', r.id, r.v, (SELECT count(*) FROM hloom_leases);
		COMMIT;
	END LOOP;
END $$;
-- In an expression of PL/pgSQL, in a transaction of each pass of the loop, and in a trigger.
DO $$
DECLARE
	n bigint;
BEGIN
	FOR i IN 1..2 LOOP
		n := hloom_execute_with_lock('execute', 'k', 'UPDATE t SET v = v WHERE id > $1',
			ARRAY[i::text]) + 100;
		COMMIT;
		BEGIN
			n := n + hloom_execute_with_lock('execute', 'k', 'SELECT 1 / 0');
		EXCEPTION WHEN division_by_zero THEN
			RAISE NOTICE '%, leases %', n, (SELECT count(*) FROM hloom_leases);
		END;
	END LOOP;
END $$;
CREATE TABLE log (id int);
CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM hloom_execute_with_lock('execute', 'log', 'INSERT INTO log VALUES ($1)',
		ARRAY[NEW.id::text]);
	RETURN NULL;
END $$;
CREATE TRIGGER log AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION log();
SELECT hloom_execute_with_lock('execute', 'k', 'INSERT INTO t VALUES (30), (31)');
TABLE log;
DROP TRIGGER log ON t;
DELETE FROM t WHERE id >= 30;
SELECT count(*) FROM hloom_leases;
-- A value too long for its row is still there after the action deleted it.
CREATE TABLE long (v text);
ALTER TABLE long ALTER v SET STORAGE EXTERNAL;
INSERT INTO long SELECT repeat('x', 100000);
SELECT length(v) FROM hloom_query_with_lock('execute', 'k', 'SELECT v FROM long') AS (v text);
SELECT length(r ->> 'v') FROM hloom_query_with_lock_json('execute', 'k',
	'DELETE FROM long RETURNING v') AS r;
DROP TABLE long;
SELECT count(*) FROM hloom_leases;

-- jsonb: as to_jsonb makes it of the row, with the names of the action's columns.
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE pair AS (a int, b text);
SELECT jsonb_pretty(r) FROM hloom_query_with_lock_json('execute', 'k', $$
	SELECT NULL AS "null", true AS bool, 1.50 AS numeric, 'NaN'::float8 AS nan, 9007199254740993 AS
	big, 'a"b\c'::text AS text, 'x' AS "a name", DATE '2026-02-01' AS date, TIMESTAMPTZ
	'2026-02-01 12:00+00' AT TIME ZONE 'UTC' AS stamp, INTERVAL '1 day' AS span, '\xff'::bytea AS
	bytea, ARRAY[[1, 2], [3, NULL]] AS "array", '{}'::int[] AS empty, ARRAY['a']::text[] AS texts,
	ROW(1, 'x')::pair AS pair, ROW(2, NULL) AS record, ARRAY[ROW(3, 'y')::pair] AS pairs,
	NULL::pair AS no_pair, '{"a": [1]}'::json AS json, '{"b": null}'::jsonb AS jsonb,
	'ok'::mood AS enum, 5::small AS domain, '[1,3)'::int4range AS range, '10.0.0.1'::inet AS inet,
	'x'::"char" AS "char", 't'::regclass AS regclass, hl.owner(1) AS uuid, '(1,2)'::point AS point,
	B'101' AS bits, '12:00'::time AS "time", 'a b'::tsvector AS tsvector$$) AS r;
-- Renamed columns of a table that is read as it is, a dropped one, no column, one name twice.
ALTER TABLE t ADD dropped int DEFAULT 1;
ALTER TABLE t DROP dropped;
SELECT * FROM hloom_query_with_lock_json('execute', 'k', 'SELECT id AS a, v AS b FROM t');
SELECT * FROM hloom_query_with_lock_json('execute', 'k', 'TABLE t');
SELECT * FROM hloom_query_with_lock_json('execute', 'k', 'SELECT t FROM t LIMIT 1');
SELECT * FROM hloom_query_with_lock_json('execute', 'k', 'SELECT FROM t LIMIT 1');
SELECT * FROM hloom_query_with_lock_json('execute', 'k', 'SELECT 1 AS a, 2 AS a');
SELECT * FROM hloom_query_with_lock_json('execute', 'k', 'SELECT $1', '{x}');
SELECT * FROM hloom_query_with_lock_json('execute', 'k', 'CALL doubled($1)', '{21}');
SELECT * FROM hloom_query_with_lock_json('execute', 'k', 'EXPLAIN (COSTS OFF) SELECT 1');
SELECT * FROM hloom_query_with_lock_json('execute', 'k', 'SELECT WHERE false');
SELECT count(*) FROM hloom_leases;

-- A million rows do not stay in memory: neither those dropped nor those returned.
CREATE FUNCTION peak_memory() RETURNS int LANGUAGE sql AS $$	-- kB
	SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\s*(\d+)')::int
$$;
SET work_mem = '64kB';
SELECT peak_memory() AS before \gset
SELECT hloom_execute_with_lock('execute', 'k', 'SELECT generate_series(1, 1000000)');
SELECT count(*), sum(n) FROM hloom_query_with_lock('execute', 'k',
	'SELECT generate_series(1, 1000000)') AS (n int);
SELECT count(*), max((r -> 'n')::int) FROM hloom_query_with_lock_json('execute', 'k',
	'SELECT n, ''text'' AS t FROM generate_series(1, 1000000) AS n') AS r;
SELECT peak_memory() - :before < 30000 AS bounded;
RESET work_mem;
SELECT count(*) FROM hloom_leases;

-- Re-entry: an error at once that names the key. (item 94)
CREATE FUNCTION nested(VARIADIC keys text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	statement text := 'SELECT 1';
BEGIN
	FOR i IN REVERSE cardinality(keys)..1 LOOP
		statement := format(
			'SELECT hloom_execute_with_lock(''execute'', %L, %L, max_wait => ''0'')',
			keys[i], statement);
	END LOOP;
	RETURN statement;
END $$;
SELECT hl.error(nested('a', 'a'));
SELECT hl.error(nested('a', 'b', 'a')), hl.error(nested('a', 'b', 'b'));
SELECT count(*) FROM hloom_leases;
-- In every kind of call that takes a lease. (item 97)
SELECT hl.error($$SELECT hloom_execute_with_lock('execute', 'a',
	'SELECT key FROM hloom_try_acquire(''execute'', ''a'')')$$);
SELECT hl.state($$SELECT hloom_execute_with_lock('execute', 'a',
	'SELECT key FROM hloom_acquire(''execute'', ''a'')')$$),
	hl.state($$SELECT hloom_execute_with_lock('execute', 'a',
	'SELECT * FROM hloom_query_with_lock(''execute'', ''a'', ''SELECT 1'') AS (a int)')$$),
	hl.state($$SELECT hloom_query_with_lock_json('execute', 'a',
	'SELECT hloom_execute_with_lock(''execute'', ''a'', ''SELECT 1'') AS n')$$);
SELECT count(*) FROM hloom_leases;
-- Twice without an action is contention.
SELECT (SELECT count(*) FROM hloom_try_acquire('execute', 'a')) AS first,
	(SELECT count(*) FROM hloom_try_acquire('execute', 'a')) AS second;
SELECT hl.state(nested('a'));
TRUNCATE hloom_leases;
-- Another key, or the key in another namespace, nests; so does depth. (item 95)
SELECT hl.error(nested('a', 'b')), hl.error(nested('a', 'b', 'c', 'd', 'e'));
SELECT hloom_execute_with_lock('execute', 'a',
	$$SELECT hloom_execute_with_lock('execute-2', 'a', 'SELECT 1')$$);
SELECT * FROM hloom_query_with_lock('execute', 'a', $$
	SELECT * FROM hloom_query_with_lock('execute', 'b', $b$
		SELECT * FROM hloom_query_with_lock('execute', 'c', $c$
			SELECT array_agg(key ORDER BY key) FROM hloom_leases
		$c$) AS (keys text[])
	$b$) AS (keys text[])
$$) AS (keys text[]);
SELECT count(*) FROM hloom_leases;
-- Detection off: contention. (item 96)
SET hloom_lock.detect_reentrancy = off;
SELECT split_part(hl.error(nested('a', 'a')), E'\n', 1);
RESET hloom_lock.detect_reentrancy;
SELECT count(*) FROM hloom_leases;
-- After return or error the key can be taken again, (item 99) also where a block catches the error.
SELECT hl.error(nested('a')), hl.error(nested('a'));
DO $$
BEGIN
	FOR i IN 1..2 LOOP
		BEGIN
			PERFORM hloom_execute_with_lock('execute', 'a', 'SELECT 1 / 0');
		EXCEPTION WHEN division_by_zero THEN
			RAISE NOTICE 'caught: %, leases %', SQLERRM, (SELECT count(*) FROM hloom_leases);
		END;
	END LOOP;
	PERFORM hloom_execute_with_lock('execute', 'a', $b$DO '
		BEGIN
			PERFORM hloom_execute_with_lock(''execute'', ''a'', ''SELECT 1'');
		EXCEPTION WHEN SQLSTATE ''LL001'' THEN
			RAISE NOTICE ''caught inside: %, leases %'', SQLERRM,
				(SELECT count(*) FROM hloom_leases);
			PERFORM hloom_execute_with_lock(''execute'', ''b'', ''SELECT 1'');
		END'$b$);
END $$;
SELECT count(*) FROM hloom_leases;
-- In the middle of a nest an error ends only what is inside of where it is caught.
CREATE FUNCTION catching() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM hloom_execute_with_lock('execute', 'c', 'SELECT 1 / 0');
EXCEPTION WHEN division_by_zero THEN
	RETURN (SELECT string_agg(key, ' ' ORDER BY key) FROM hloom_leases)
		|| ' ' || hl.state($b$SELECT key FROM hloom_try_acquire('execute', 'b')$b$)
		|| ' ' || hl.state($b$SELECT hloom_execute_with_lock('execute', 'c', 'SELECT 1')$b$);
END $$;
SELECT * FROM hloom_query_with_lock('execute', 'a', $$
	SELECT * FROM hloom_query_with_lock('execute', 'b', 'SELECT catching()') AS (c text)
$$) AS (c text);
SELECT count(*) FROM hloom_leases;

-- The action has the rights of the caller.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_hloom_user;
RESET client_min_messages;
CREATE ROLE regress_hloom_user;
GRANT USAGE ON SCHEMA execute, hl TO regress_hloom_user;
CREATE FUNCTION as_definer(action text) RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$
	SELECT hloom_execute_with_lock('execute', 'k', action)
$$;
SET ROLE regress_hloom_user;
SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT current_user, session_user = current_user')
	AS (u name, same bool);
SELECT act('DELETE FROM t WHERE id = 1');
SELECT as_definer('DELETE FROM t WHERE id = 1');
SELECT hl.state($$SELECT as_definer('DELETE FROM execute.nowhere')$$);
RESET ROLE;
SELECT count(*) FROM hloom_leases;

-- Above READ COMMITTED the action would not see what the last owner wrote; not in READ ONLY.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT act('SELECT 1');
SELECT hl.state($$SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT 1') AS (a int)$$),
	hl.state($$SELECT * FROM hloom_query_with_lock_json('execute', 'k', 'SELECT 1')$$);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT left(act('SELECT 1'), 5);
COMMIT;
BEGIN ISOLATION LEVEL READ UNCOMMITTED;
SELECT act('SELECT 1');
COMMIT;
BEGIN READ ONLY;
SELECT act('SELECT 1');
SELECT hl.error($$SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT 1') AS (a int)$$);
SELECT hl.error($$SELECT * FROM hloom_query_with_lock_json('execute', 'k', 'SELECT 1')$$);
COMMIT;
-- Options this version does not have, and those no version will have.
SELECT options, hl.error(format('SELECT hloom_execute_with_lock(''execute'', ''k'', ''SELECT 1'', %s)',
	options)) FROM unnest(ARRAY['scope => ''lease''', 'scope => ''session''',
	'scope => ''transaction''', 'scope => ''x''', 'on_lost => ''observe''', 'on_lost => ''cancel''',
	'on_lost => ''x''', 'auto_extend => false', 'auto_extend => true',
	'auto_extend => true, scope => ''lease''', 'on_lost => ''cancel'', scope => ''lease''',
	'max_wait => ''1 s''', 'retry => NULL']) AS options;
SELECT count(*) FROM hloom_leases;

-- Disabled: the action runs, checked as ever, and nothing is locked. (items 100, 102)
SET hloom_lock.enabled = off;
SELECT hloom_execute_with_lock('execute', 'k', 'SELECT FROM generate_series(1, 3)');
SELECT * FROM hloom_query_with_lock('execute', 'k', 'SELECT count(*) FROM hloom_leases')
	AS (leases bigint);
SELECT hloom_query_with_lock_json('execute', 'k', 'SELECT 1 AS a');
SELECT hl.error(nested('a', 'a'));
SELECT act('SELECT 1 / 0'), left(act('COMMIT'), 5) AS commit, left(act('SELECT 1', '{1}'), 5) AS args,
	hl.state($$SELECT hloom_execute_with_lock('execute', 'a b', 'SELECT 1')$$) AS key;
RESET hloom_lock.enabled;
-- Switched off or on by the action: the lease that was taken is given back.
SELECT act('SET hloom_lock.enabled = off');
SELECT count(*) FROM hloom_leases;
RESET hloom_lock.enabled;

-- Giving back fails or comes too late: a warning, and the action's result or error stands.
\set VERBOSITY terse
SELECT hloom_execute_with_lock('execute', 'k', 'TRUNCATE hloom_leases');
SELECT count(*) FROM hloom_leases;
SELECT hloom_execute_with_lock('execute', 'k', $$SELECT hloom_release('execute', 'k', hl.owner(1))$$,
	owner => hl.owner(1));
CREATE FUNCTION release_and_fail() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	PERFORM hloom_release('execute', 'k', hl.owner(1));
	RAISE 'failed';
END $$;
SELECT hloom_execute_with_lock('execute', 'k', 'SELECT release_and_fail()', owner => hl.owner(1));
SELECT hloom_execute_with_lock('execute', 'k',
	$$SELECT hl.wait_until_free('execute', 'k'), 1 AS done$$, lease => '300 ms');
\set VERBOSITY default
SELECT count(*) FROM hloom_leases;

SET client_min_messages = warning;
DROP SCHEMA execute CASCADE;
DROP OWNED BY regress_hloom_user;
DROP ROLE regress_hloom_user;
