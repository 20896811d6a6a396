-- Transactions that depend on a lease: hloom_guard() and on_lost => 'cancel'.
CREATE SCHEMA guards;
SET search_path = guards, public;
\set VERBOSITY terse
CREATE TABLE t (id int);
CREATE VIEW held AS SELECT key, scope FROM hloom_leases WHERE namespace = 'guards' ORDER BY key;
-- Takes a lease, or another end for one that is held.
CREATE FUNCTION take(key text, lease interval, scope text DEFAULT 'lease', on_lost text DEFAULT NULL)
RETURNS boolean LANGUAGE sql AS $$
	SELECT count(*) = 1 FROM hloom_try_acquire('guards', key, lease, scope => scope,
		on_lost => on_lost, owner => hl.owner(1))
$$;
CREATE FUNCTION guard(key text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RETURN hloom_guard('guards', key, hl.owner(1));
END $$;

-- True while the lease is held, and error LL010 otherwise.
SELECT take('a', '1 min');
BEGIN;
SELECT hloom_guard('guards', 'a', hl.owner(1)), hloom_guard('guards', 'a', hl.owner(1)::text);
SELECT hloom_guard(h) FROM hloom_try_acquire('guards', 'a', owner => hl.owner(1)) AS h;
INSERT INTO t VALUES (1);
COMMIT;
SELECT hl.error($$SELECT hloom_guard('guards', 'a', hl.owner(2))$$);
SELECT hl.error($$SELECT hloom_guard('guards', 'b', hl.owner(1))$$);
SELECT hl.error($$SELECT hloom_guard(NULL)$$);
SELECT hl.error($$SELECT hloom_guard('guards', NULL, hl.owner(1))$$);
BEGIN READ ONLY;
SELECT hloom_guard('guards', 'a', hl.owner(1));
COMMIT;
-- Outside of a transaction block the client's own statement is warned, as by SET LOCAL.
SELECT hloom_guard('guards', 'a', hl.owner(1));
SELECT count(*) FROM hloom_try_acquire('guards', 'b', scope => 'transaction');
SELECT count(*) FROM hloom_acquire('guards', 'b', scope => 'transaction');
SELECT guard('a') AS in_a_function;
SELECT hloom_execute_with_lock('guards', 'b', 'SELECT 1', scope => 'transaction');
-- A namespace without coordination.
SELECT enabled FROM hloom_configure('guards-off', enabled => false);
BEGIN;
SELECT hloom_guard('guards-off', 'a', hl.owner(1));
COMMIT;

-- Who does not hold the lease any more cannot commit.
BEGIN;
SELECT guard('a');
INSERT INTO t VALUES (2);
SELECT hloom_release('guards', 'a', hl.owner(1));
COMMIT;
SELECT take('a', '1 min');
BEGIN;
SELECT guard('a');
INSERT INTO t VALUES (3);
SELECT hloom_extend('guards', 'a', hl.owner(1), '1 ms');
SELECT hl.wait_until_free('guards', 'a');
COMMIT;
-- Nor does another lease of the same owner help.
SELECT take('a', '1 min');
BEGIN;
SELECT guard('a');
INSERT INTO t VALUES (4);
SELECT hloom_release('guards', 'a', hl.owner(1)), take('a', '1 min');
COMMIT;
BEGIN;
SELECT guard('a');
INSERT INTO t VALUES (5);
TRUNCATE hloom_leases;
COMMIT;
TABLE t;
SELECT guard('a'), hloom_release('guards', 'a', hl.owner(1));
-- In autocommit, and with several guards of which one fails.
SELECT guard('a'), hloom_release('guards', 'a', hl.owner(1));
SELECT take('a', '1 min'), take('b', '1 min');
SELECT guard('a'), guard('b'), hloom_release('guards', 'b', hl.owner(1));
-- The lease of the one that held is as it was.
SELECT hloom_extend('guards', 'a', hl.owner(1), '1 min'), take('a', '1 min'), take('b', '1 min');
-- A longer end and a further claim of the owner leave the guard alone.
BEGIN;
SELECT guard('a');
SELECT take('a', '2 min'), hloom_extend('guards', 'a', hl.owner(1), '3 min');
COMMIT;

-- A guard dies with its subtransaction, and moves to the parent of one that succeeds.
BEGIN;
SAVEPOINT s;
SELECT guard('a');
ROLLBACK TO s;
SELECT hloom_release('guards', 'a', hl.owner(1));
INSERT INTO t VALUES (6);
COMMIT;
SELECT take('a', '1 min');
BEGIN;
SAVEPOINT s;
SELECT guard('a');
RELEASE s;
SELECT hloom_release('guards', 'a', hl.owner(1));
INSERT INTO t VALUES (7);
COMMIT;
SELECT take('a', '1 min');
DO $$
BEGIN
	BEGIN
		PERFORM guard('a');
		RAISE 'undone';
	EXCEPTION WHEN raise_exception THEN
		PERFORM hloom_release('guards', 'a', hl.owner(1));
	END;
	INSERT INTO t VALUES (8);
END $$;
SELECT take('a', '1 min');
-- Each COMMIT of a procedure is one.
DO $$
BEGIN
	PERFORM guard('a');
	INSERT INTO t VALUES (9);
	COMMIT;
	PERFORM hloom_release('guards', 'a', hl.owner(1));
	INSERT INTO t VALUES (10);
	COMMIT;
	PERFORM take('a', '1 min');
	PERFORM guard('a');
	INSERT INTO t VALUES (11);
	PERFORM hloom_release('guards', 'a', hl.owner(1));
	COMMIT;
END $$;
TABLE t;
SELECT take('a', '1 min');
BEGIN;
SELECT guard('a');
PREPARE TRANSACTION 'guards';
-- A deferred trigger comes before the last look.
CREATE TABLE deferred (id int);
CREATE FUNCTION give_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN hloom_release('guards', 'a', hl.owner(1)) THEN NEW END;
END $$;
CREATE CONSTRAINT TRIGGER give_back AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION give_back();
BEGIN;
SELECT guard('a');
INSERT INTO deferred VALUES (1);
COMMIT;
TABLE deferred;

-- on_lost => 'cancel' needs somebody to cancel.
SELECT hl.error($$SELECT take('c', '1 min', 'lease', 'cancel')$$);
-- The statement that runs when the lease is lost ends with LL010.
SELECT take('c', '200 ms', 'session', 'cancel');
SELECT pg_sleep(60);
-- It is reported once, and the session goes on.
SELECT 1 AS goes_on;
BEGIN;
SELECT take('c', '200 ms', 'transaction', 'cancel');
SELECT pg_sleep(60);
ROLLBACK;
-- In the statement that took it, in functions, actions and procedures.
SELECT take('c', '200 ms', 'session', 'cancel'), pg_sleep(60);
SELECT hloom_execute_with_lock('guards', 'c', 'SELECT pg_sleep(60)', lease => '200 ms',
	on_lost => 'cancel');
SELECT * FROM hloom_query_with_lock('guards', 'c', 'SELECT 1 FROM pg_sleep(60)', lease => '200 ms',
	on_lost => 'cancel', scope => 'session') AS (n int);
DO $$
BEGIN
	PERFORM take('c', '200 ms', 'session', 'cancel');
	COMMIT;
	INSERT INTO t VALUES (12);
	COMMIT;
	PERFORM pg_sleep(60);
END $$;
-- Nothing traps it for good: not WHEN OTHERS, and not who traps a cancel.
SELECT take('c', '200 ms', 'session', 'cancel');
DO $$
BEGIN
	PERFORM pg_sleep(60);
EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE 'trapped';
END $$;
SELECT take('c', '200 ms', 'session', 'cancel');
DO $$
BEGIN
	BEGIN
		PERFORM pg_sleep(60);
	EXCEPTION WHEN query_canceled THEN
		RAISE NOTICE 'trapped';
	END;
	PERFORM pg_sleep(60);
END $$;
-- Also after errors, which disarm timeouts, inside exception blocks, too.
SELECT take('c', '300 ms', 'session', 'cancel');
SELECT 1 / 0;
SELECT 1 / 0;
DO $$
BEGIN
	PERFORM 1 / 0;
EXCEPTION WHEN division_by_zero THEN
	PERFORM pg_sleep(60);
END $$;
-- A statement with an error of its own keeps it; the next one is told.
SELECT take('c', '200 ms', 'session', 'cancel');
-- With a warning if the cancel came first.
SET client_min_messages = error;
DO $$
BEGIN
	WHILE hloom_is_held('guards', 'c', hl.owner(1)) LOOP
	END LOOP;
	RAISE 'its own error';
EXCEPTION WHEN query_canceled THEN
	RAISE 'its own error';
END $$;
SELECT 1;
RESET client_min_messages;
-- With observe, and after an extension, a statement runs on.
SELECT take('c', '100 ms', 'session', 'observe');
SELECT pg_sleep(0.3) IS NULL AS cancelled, hloom_is_held('guards', 'c', hl.owner(1)) AS held;
SELECT take('c', '300 ms', 'session', 'cancel');
SELECT hloom_extend('guards', 'c', hl.owner(1), '1 min');
SELECT pg_sleep(0.5) IS NULL AS cancelled;
-- What is given back is of no interest any more, and neither is what a call without it renewed.
SELECT hloom_release('guards', 'c', hl.owner(1));
SELECT take('c', '200 ms', 'session', 'cancel'), hloom_release('guards', 'c', hl.owner(1));
SELECT take('c', '200 ms', 'session', 'cancel'), hloom_release_session();
SELECT take('c', '200 ms', 'session', 'cancel'), take('c', '200 ms', 'session');
BEGIN;
SELECT take('d', '200 ms', 'transaction', 'cancel');
COMMIT;
SELECT pg_sleep(0.4) IS NULL AS cancelled;

-- Idle while it is lost: the next statement fails before it starts, but for what ends the transaction.
CREATE SEQUENCE started;
BEGIN;
SAVEPOINT s;
SELECT take('c', '100 ms', 'transaction', 'cancel');
\! sleep 0.2
SELECT nextval('started');
ROLLBACK TO s;
SELECT nextval('started') AS goes_on;
COMMIT;
BEGIN;
SELECT take('c', '100 ms', 'transaction', 'cancel');
INSERT INTO t VALUES (13);
\! sleep 0.2
COMMIT;
BEGIN;
SELECT take('c', '100 ms', 'transaction', 'cancel');
\! sleep 0.2
ROLLBACK;
SELECT take('c', '100 ms', 'session', 'cancel');
\! sleep 0.2
DISCARD ALL;
SET search_path = guards, public;
SELECT nextval('started') AS goes_on;
-- Held to the end it commits; given back in the transaction it needs no guard.
BEGIN;
SELECT take('c', '1 min', 'transaction', 'cancel');
INSERT INTO t VALUES (14);
COMMIT;
BEGIN;
SELECT take('c', '1 min', 'transaction', 'cancel');
INSERT INTO t VALUES (15);
SELECT hloom_release('guards', 'c', hl.owner(1));
COMMIT;
-- A guard asked for stays.
BEGIN;
SELECT take('c', '1 min', 'transaction', 'cancel'), guard('c');
INSERT INTO t VALUES (16);
SELECT hloom_release('guards', 'c', hl.owner(1));
COMMIT;
-- A further call of the transaction makes on_lost stricter, never looser.
BEGIN;
SELECT take('c', '200 ms', 'transaction'), take('c', '100 ms', 'transaction', 'cancel'),
	take('c', '100 ms', 'transaction', 'observe');
SELECT pg_sleep(60);
ROLLBACK;
-- TRUNCATE loses every lease that follows something when it commits, not when it is rolled back.
SELECT take('c', '1 min', 'session', 'cancel');
BEGIN;
TRUNCATE hloom_leases;
ROLLBACK;
BEGIN;
SAVEPOINT s;
TRUNCATE hloom_leases;
ROLLBACK TO s;
COMMIT;
SELECT count(*) AS held FROM held;
TRUNCATE hloom_leases;
SELECT 1;
SELECT 1 AS goes_on;
TABLE t;
TABLE held;
SELECT hloom_unconfigure('guards-off');
SET client_min_messages = warning;
DROP SCHEMA guards CASCADE;
