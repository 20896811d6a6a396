-- CALL hloom_acquire_wait: its results, its options, and every place it is refused in, in one
-- session.  What it holds while it waits is shown by test/t/071_acquire_wait.pl.
CREATE SCHEMA acquire_wait;
SET search_path = acquire_wait, public;

-- One row: owner, fence and end of the lease.
CALL hloom_acquire_wait('wait', 'a') \gset
SELECT :'owner' ~ '^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' AS owner,
	fence = :fence AS fence, lease = '30 s' AS lease,
	expires_at - :'lease_end' BETWEEN '0' AND '1 min' AS lease_end, scope, auto_extend, note
FROM hloom_leases WHERE namespace = 'wait' AND key = 'a' AND owner = :'owner';
SELECT :'lease_end'::timestamptz - clock_timestamp() BETWEEN '1 s' AND '30 s' AS lease_end,
	hloom_is_held('wait', 'a', :'owner'::uuid) AS held,
	hloom_release('wait', 'a', :'owner'::uuid) AS released;

-- All options by place.  With an owner of the caller's own; what is passed for the other results is
-- ignored.
\set before :fence
CALL hloom_acquire_wait('wait', 'a', hl.owner(1), -1, 'infinity', '20 s', '1 s',
	hloom_retry_immediate(3), 'lease', 'by place') \gset
SELECT :'owner' = hl.owner(1) AS owner, :fence > :before AS fence,
	:'lease_end'::timestamptz - clock_timestamp() BETWEEN '1 s' AND '20 s' AS lease_end,
	lease, scope, note
FROM hloom_leases WHERE namespace = 'wait' AND key = 'a';
-- Options by name.  With the owner of the lease: the same fence, a new end.
\set before :fence
CALL hloom_acquire_wait('wait', 'a', owner => hl.owner(1), lease => '10 min', note => 'by name')
\gset
SELECT :fence = :before AS fence,
	:'lease_end'::timestamptz - clock_timestamp() BETWEEN '2 min' AND '5 min' AS lease_end,
	lease, note
FROM hloom_leases WHERE namespace = 'wait' AND key = 'a';
-- A NULL is an option that is not given.
CALL hloom_acquire_wait('wait', 'b', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) \gset
SELECT hloom_release('wait', 'b', :'owner'::uuid) AS released;

-- A key that stays busy: as of hloom_acquire.
\set VERBOSITY terse
CALL hloom_acquire_wait('wait', 'a', max_wait => '0');
\echo :LAST_ERROR_SQLSTATE
CALL hloom_acquire_wait('wait', 'a', retry => hloom_retry_immediate(2));
\echo :LAST_ERROR_SQLSTATE
SET lock_timeout = '300 ms';
CALL hloom_acquire_wait('wait', 'a', retry => hloom_retry_interval(10, '1 h'));
\echo :LAST_ERROR_SQLSTATE
RESET lock_timeout;
SET statement_timeout = '300 ms';
CALL hloom_acquire_wait('wait', 'a', retry => hloom_retry_interval(10, '1 h'));
\echo :LAST_ERROR_SQLSTATE
RESET statement_timeout;
-- It waits by default, as the namespace says.
SELECT (retry).kind
FROM hloom_configure('wait-short', retry => hloom_retry_interval(2, '20 ms'));
SELECT count(*) FROM hloom_try_acquire('wait-short', 'a');
SELECT clock_timestamp() AS start \gset
CALL hloom_acquire_wait('wait-short', 'a');
SELECT clock_timestamp() - :'start' > '40 ms' AS waited;
\set VERBOSITY default

-- Bad arguments.
CALL hloom_acquire_wait('wait', NULL);
CALL hloom_acquire_wait(NULL, 'b');
CALL hloom_acquire_wait('wait', 'a b');
CALL hloom_acquire_wait('Wait', 'b');
CALL hloom_acquire_wait('wait', 'b', lease => '0');
CALL hloom_acquire_wait('wait', 'b', max_wait => '1 month');
CALL hloom_acquire_wait('wait', 'b', retry => ROW('hopeful', 1, NULL, NULL, NULL, NULL));
CALL hloom_acquire_wait('wait', 'b', scope => 'forever');
CALL hloom_acquire_wait('wait', 'b', note => repeat('n', 257));
CALL hloom_acquire_wait('wait', 'b', scope => 'transaction');
SELECT hl.state($$CALL hloom_acquire_wait('wait', 'b', on_lost => 'cancel')$$) AS no_such_option,
	hl.state($$SELECT hloom_acquire_wait('wait', 'b')$$) AS no_function;

-- Not in a transaction block, nor in a subtransaction of one.
BEGIN;
CALL hloom_acquire_wait('wait', 'b');
ROLLBACK;
\set VERBOSITY terse
BEGIN;
SAVEPOINT s;
CALL hloom_acquire_wait('wait', 'b');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
-- Several statements in one message are one, first or last.
SELECT 1 AS one \; CALL hloom_acquire_wait('wait', 'b');
CALL hloom_acquire_wait('wait', 'b') \; SELECT 1 AS one;
\set AUTOCOMMIT off
CALL hloom_acquire_wait('wait', 'b');
ROLLBACK;
\set AUTOCOMMIT on
\set VERBOSITY default

-- Not in what has work of its own to commit.
CREATE TABLE work (id int);
CREATE PROCEDURE without_commit() LANGUAGE plpgsql AS $$
DECLARE
	o uuid;
	f bigint;
	e timestamptz;
BEGIN
	INSERT INTO work VALUES (1);
	CALL hloom_acquire_wait('wait', 'b', o, f, e);
END $$;
CREATE PROCEDURE with_commit() LANGUAGE plpgsql AS $$
DECLARE
	o uuid;
	f bigint;
	e timestamptz;
BEGIN
	COMMIT;
	INSERT INTO work VALUES (2);
	CALL hloom_acquire_wait('wait', 'b', o, f, e);
	COMMIT;
END $$;
CREATE PROCEDURE in_block() LANGUAGE plpgsql AS $$
DECLARE
	o uuid;
	f bigint;
	e timestamptz;
BEGIN
	CALL hloom_acquire_wait('wait', 'b', o, f, e);
EXCEPTION WHEN active_sql_transaction THEN
	RAISE NOTICE 'caught: %', SQLERRM;
END $$;
CREATE FUNCTION in_function() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	o uuid;
	f bigint;
	e timestamptz;
BEGIN
	INSERT INTO work VALUES (4);
	CALL hloom_acquire_wait('wait', 'b', o, f, e);
END $$;
CREATE FUNCTION in_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM in_function();
	RETURN NEW;
END $$;
CALL without_commit();
CALL with_commit();
CALL in_block();
SELECT in_function();
DO $$
DECLARE
	o uuid;
	f bigint;
	e timestamptz;
BEGIN
	INSERT INTO work VALUES (5);
	CALL hloom_acquire_wait('wait', 'b', o, f, e);
END $$;
DO $$ BEGIN EXECUTE $c$CALL hloom_acquire_wait('wait', 'b')$c$; END $$;
-- Nor in a trigger.
CREATE TRIGGER at_insert BEFORE INSERT ON work FOR EACH ROW WHEN (NEW.id > 5)
	EXECUTE FUNCTION in_trigger();
\set VERBOSITY terse
INSERT INTO work VALUES (6);
\set VERBOSITY default
-- An SQL function can call no procedure that has results.
SELECT hl.state($$CREATE PROCEDURE in_sql() LANGUAGE sql
	AS 'CALL hloom_acquire_wait(''wait'', ''b'', NULL, NULL, NULL)'$$);
-- None of these committed or took anything.
SELECT count(*) FROM work;
SELECT count(*) FROM hloom_leases WHERE namespace = 'wait' AND key <> 'a';

-- In a READ ONLY session that is said first.
SET default_transaction_read_only = on;
CALL hloom_acquire_wait('wait', 'b');
RESET default_transaction_read_only;

-- Arguments that are stored out of line cannot be fetched any more once the transaction is over.
CREATE TABLE stored (key text, note text, filler text) WITH (toast_tuple_target = 128);
ALTER TABLE stored ALTER key SET STORAGE EXTERNAL, ALTER note SET STORAGE EXTERNAL,
	ALTER filler SET STORAGE EXTERNAL;
INSERT INTO stored SELECT repeat('k', 500), repeat('n', 250), repeat('f', 3000);
DO $$
DECLARE
	out_of_line int;
BEGIN
	EXECUTE format('SELECT count(DISTINCT chunk_id) FROM %s', (SELECT reltoastrelid::regclass
		FROM pg_class WHERE oid = 'stored'::regclass)) INTO out_of_line;
	RAISE NOTICE '% are out of line', out_of_line;
END $$;
CREATE FUNCTION stored_key() RETURNS text LANGUAGE sql AS $$SELECT key FROM stored$$;
CREATE FUNCTION stored_note() RETURNS text LANGUAGE sql AS $$SELECT note FROM stored$$;
CALL hloom_acquire_wait('wait', stored_key(), hl.owner(3), note => stored_note()) \gset
SELECT key = repeat('k', 500) AS key, note = repeat('n', 250) AS note
FROM hloom_leases WHERE owner = hl.owner(3);
SELECT hloom_release('wait', stored_key(), hl.owner(3)) AS released;

-- The commit before the wait may fail.
CREATE TABLE deferred (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION key_of_two() RETURNS text LANGUAGE sql AS $$
	INSERT INTO deferred VALUES (1), (1);
	SELECT 'b'
$$;
CALL hloom_acquire_wait('wait', key_of_two());
SELECT count(*) FROM deferred;
SELECT count(*) FROM hloom_leases WHERE namespace = 'wait' AND key = 'b';

-- Scope session, with which the namespace's auto_extend counts.
SELECT auto_extend FROM hloom_configure('wait-renewed', auto_extend => true);
CALL hloom_acquire_wait('wait-renewed', 'a', scope => 'session') \gset
CALL hloom_acquire_wait('wait-renewed', 'b', scope => 'lease') \gset
SELECT key, scope, auto_extend FROM hloom_leases WHERE namespace = 'wait-renewed'
ORDER BY key;
-- Who waits for himself would do so for ever.
\set VERBOSITY terse
CALL hloom_acquire_wait('wait-renewed', 'a');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY default
SELECT hloom_release_session() AS released;
SELECT key FROM hloom_leases WHERE namespace = 'wait-renewed' ORDER BY key;

-- What a lease follows that was taken before is not touched.
SELECT count(*) FROM hloom_try_acquire('wait', 'session', scope => 'session');
CALL hloom_acquire_wait('wait', 'b') \gset
SELECT key FROM hloom_leases WHERE namespace = 'wait' AND scope = 'session';
SELECT hloom_release_session() AS released;

-- A namespace that is disabled: a random owner or the caller's, no fence, no end, and a warning
-- once in the session.  Refused where it would be otherwise.
SELECT enabled FROM hloom_configure('wait-disabled', enabled => false);
CALL hloom_acquire_wait('wait-disabled', 'a') \gset
SELECT :'owner'::uuid <> hl.owner(7) AS owner, :fence AS fence,
	:'lease_end'::timestamptz AT TIME ZONE 'UTC' AS lease_end;
CALL hloom_acquire_wait('wait-disabled', 'a', hl.owner(7)) \gset
SELECT :'owner' = hl.owner(7) AS owner, :fence AS fence;
\set VERBOSITY terse
BEGIN;
CALL hloom_acquire_wait('wait-disabled', 'a');
ROLLBACK;
CALL hloom_acquire_wait('wait-disabled', 'a', scope => 'transaction');
\set VERBOSITY default
SELECT count(*) FROM hloom_leases WHERE namespace = 'wait-disabled';

-- Only for whom the namespace is.
CREATE ROLE regress_wait_member;
CREATE ROLE regress_wait_other;
SELECT role FROM hloom_configure('wait-role', role => 'regress_wait_member');
SET ROLE regress_wait_other;
CALL hloom_acquire_wait('wait-role', 'a');
RESET ROLE;
SET ROLE regress_wait_member;
CALL hloom_acquire_wait('wait-role', 'a') \gset
SELECT hloom_is_held('wait-role', 'a', :'owner'::uuid) AS held;
RESET ROLE;

-- The level of isolation is the session's again afterwards.
SET default_transaction_isolation = 'serializable';
CALL hloom_acquire_wait('wait', 'serializable') \gset
SHOW transaction_isolation;
SELECT hloom_release('wait', 'serializable', :'owner'::uuid) AS released;
RESET default_transaction_isolation;
SHOW transaction_isolation;

TRUNCATE hloom_leases;
SELECT hloom_unconfigure(namespace) FROM hloom_namespaces WHERE namespace LIKE 'wait-%';
DROP ROLE regress_wait_member, regress_wait_other;
SET client_min_messages = warning;
DROP SCHEMA acquire_wait CASCADE;
