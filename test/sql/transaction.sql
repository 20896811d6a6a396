-- A lease is not part of the transaction that took it.
CREATE SCHEMA transaction;
SET search_path = transaction, public;
CREATE TABLE t (id int);

-- ROLLBACK undoes the row and not the lease, nor an extension, nor a release.
BEGIN;
INSERT INTO t VALUES (1);
SELECT key FROM hloom_try_acquire('transaction', 'a', owner => hl.owner(1));
ROLLBACK;
SELECT (SELECT count(*) FROM t) AS rows, hloom_is_held('transaction', 'a', hl.owner(1)) AS held;
BEGIN;
SELECT hloom_extend('transaction', 'a', hl.owner(1), '4 min') AS extended;
ROLLBACK;
SELECT lease FROM hloom_leases WHERE namespace = 'transaction' AND key = 'a';
BEGIN;
SELECT hloom_release('transaction', 'a', hl.owner(1)) AS released;
ROLLBACK;
SELECT hloom_is_held('transaction', 'a', hl.owner(1)) AS held;

-- ROLLBACK TO does neither, in the same or in a later message, and the transaction can go on.
BEGIN;
SAVEPOINT one;
INSERT INTO t VALUES (1);
SELECT key FROM hloom_try_acquire('transaction', 'a', owner => hl.owner(1));
ROLLBACK TO one;
SELECT (SELECT count(*) FROM t) AS rows, hloom_is_held('transaction', 'a', hl.owner(1)) AS held;
SAVEPOINT two;
SELECT hloom_release('transaction', 'a', hl.owner(1)) AS released;
ROLLBACK TO two;
SELECT hloom_is_held('transaction', 'a', hl.owner(1)) AS held;
INSERT INTO t VALUES (2);
COMMIT;
TABLE t;
-- An error after the grant gives it back, in an exception block and at top level: nobody heard of it.
DO $$
BEGIN
	PERFORM hloom_try_acquire('transaction', 'b', owner => hl.owner(1));
	RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
	RAISE NOTICE 'held after the block: %', hloom_is_held('transaction', 'b', hl.owner(1));
END $$;
SELECT 1 / (SELECT 0 * count(*) FROM hloom_try_acquire('transaction', 'c', owner => hl.owner(1)));
SELECT hloom_is_held('transaction', 'b', hl.owner(1)) AS b,
	hloom_is_held('transaction', 'c', hl.owner(1)) AS c;
-- In a failed transaction nothing runs, and what an earlier statement took stays taken.
BEGIN;
SELECT key FROM hloom_try_acquire('transaction', 'd', owner => hl.owner(1));
SELECT 1 / 0;
SELECT hloom_release('transaction', 'd', hl.owner(1));
COMMIT;
SELECT hloom_is_held('transaction', 'd', hl.owner(1)) AS d;

-- The table shows the state of now to every isolation level.
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM hloom_leases WHERE key = 'e';
SELECT key FROM hloom_try_acquire('transaction', 'e', owner => hl.owner(1));
SELECT count(*) FROM hloom_leases WHERE key = 'e';
SELECT hloom_release('transaction', 'e', hl.owner(1)) AS released;
SELECT count(*) FROM hloom_leases WHERE key = 'e';
COMMIT;

-- READ ONLY: no change, but one may look.
SELECT key FROM hloom_try_acquire('transaction', 'ro', owner => hl.owner(1));
BEGIN READ ONLY;
SELECT hloom_is_held('transaction', 'ro', hl.owner(1)) AS held,
	hloom_remaining('transaction', 'ro', hl.owner(1)) > '1 s' AS remaining,
	(SELECT count(*) FROM hloom_leases WHERE key = 'ro') AS rows;
SELECT hl.error($$SELECT * FROM hloom_try_acquire('transaction', 'ro2')$$);
SELECT hl.error($$SELECT hloom_extend('transaction', 'ro', hl.owner(1))$$);
SELECT hl.error($$SELECT hloom_release('transaction', 'ro', hl.owner(1))$$);
SELECT hl.state($$SELECT hloom_extend('transaction', 'ro', hl.owner(1)::text)$$),
	hl.state($$SELECT hloom_release('transaction', 'ro', hl.owner(1)::text)$$),
	hl.state($$SELECT hloom_extend(NULL::hloom_handle)$$),
	hl.state($$SELECT hloom_release(NULL::hloom_handle)$$);
-- Being read only is told first: nothing about a key is found out where nothing can be locked.
SELECT hl.state($$SELECT * FROM hloom_try_acquire(NULL, '')$$);
COMMIT;
SET default_transaction_read_only = on;
SELECT hl.state($$SELECT * FROM hloom_try_acquire('transaction', 'ro2')$$);
RESET default_transaction_read_only;
SELECT hloom_is_held('transaction', 'ro', hl.owner(1)) AS held,
	(SELECT count(*) FROM hloom_leases WHERE key = 'ro2') AS ro2;

-- In a transaction that gave the table a new file a grant would be undone by ROLLBACK.
BEGIN;
TRUNCATE hloom_leases;
SELECT hl.error($$SELECT * FROM hloom_try_acquire('transaction', 'new')$$);
SELECT hl.error($$SELECT hloom_extend('transaction', 'a', hl.owner(1))$$);
SELECT hl.error($$SELECT hloom_release('transaction', 'a', hl.owner(1))$$);
-- Looking is right there.
SELECT hloom_is_held('transaction', 'a', hl.owner(1)) AS held,
	(SELECT count(*) FROM hloom_leases) AS rows;
ROLLBACK;
SELECT hloom_is_held('transaction', 'a', hl.owner(1)) AS a,
	hloom_is_held('transaction', 'b', hl.owner(1)) AS b,
	(SELECT count(*) FROM hloom_leases WHERE key = 'new') AS new;
-- Also after a savepoint in which that happened; rolled back to it, the old file is back.
BEGIN;
SAVEPOINT one;
TRUNCATE hloom_leases;
RELEASE one;
SELECT hl.state($$SELECT * FROM hloom_try_acquire('transaction', 'new')$$) AS released;
ROLLBACK;
BEGIN;
SAVEPOINT one;
TRUNCATE hloom_leases;
ROLLBACK TO one;
SELECT key FROM hloom_try_acquire('transaction', 'old', owner => hl.owner(1));
COMMIT;
SELECT hloom_is_held('transaction', 'old', hl.owner(1)) AS old,
	hloom_is_held('transaction', 'b', hl.owner(1)) AS b;
-- TRUNCATE twice in a transaction takes another way through core.
BEGIN;
TRUNCATE hloom_leases;
TRUNCATE hloom_leases;
SELECT hl.state($$SELECT * FROM hloom_try_acquire('transaction', 'new')$$);
COMMIT;
SELECT count(*) FROM hloom_leases;
SELECT key FROM hloom_try_acquire('transaction', 'new', owner => hl.owner(1));

-- The transaction that creates the extension; once it is committed the same session can lock.
SELECT current_database() AS db \gset
CREATE DATABASE hloom_created;
\c hloom_created
BEGIN;
CREATE EXTENSION hloom_lock;
\set VERBOSITY sqlstate
SELECT * FROM hloom_try_acquire('transaction', 'created');
ROLLBACK;
BEGIN;
CREATE EXTENSION hloom_lock;
SELECT count(*) FROM hloom_leases;
COMMIT;
SELECT key FROM hloom_try_acquire('transaction', 'created');
\set VERBOSITY default
\c :db
DROP DATABASE hloom_created;
SET search_path = transaction, public;

-- No transaction id is used up by a call, won or lost, nor by giving back.
BEGIN;
SELECT key FROM hloom_try_acquire('transaction', 'xid', owner => hl.owner(1));
SELECT count(*) FROM hloom_try_acquire('transaction', 'xid', owner => hl.owner(2));
SELECT hloom_extend('transaction', 'xid', hl.owner(1)) AS extended,
	hloom_is_held('transaction', 'xid', hl.owner(1)) AS held;
SELECT hloom_release('transaction', 'xid', hl.owner(1)) AS released;
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
-- Nor is a lock of the table left with the transaction.
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'hloom_leases'::regclass;
COMMIT;

-- WAL of a call: none for losing, whatever the loser wants; some for winning, or this would prove
-- nothing.  A catalog page read for the first time may get a hint logged, hence several tries.
CREATE FUNCTION writes_wal(statement text, tries int DEFAULT 1) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	line text;
	found bool;
BEGIN
	FOR i IN 1..tries LOOP
		found := false;
		FOR line IN EXECUTE 'EXPLAIN (ANALYZE, WAL, COSTS OFF, TIMING OFF, SUMMARY OFF) ' ||
			statement LOOP
			found := found OR line ~ 'WAL: ';
		END LOOP;
		EXIT WHEN NOT found;
	END LOOP;
	RETURN found;
END $$;
SELECT writes_wal($$SELECT * FROM hloom_try_acquire('transaction', 'wal',
	owner => hl.owner(1))$$) AS won;
SELECT writes_wal($$SELECT * FROM hloom_try_acquire('transaction', 'wal', owner => hl.owner(2))$$,
	3) AS lost,
	writes_wal($$SELECT * FROM hloom_try_acquire('transaction', 'wal', '1 min', note => 'x')$$,
		3) AS lost_again,
	writes_wal($$SELECT hloom_extend('transaction', 'wal', hl.owner(2))$$, 3) AS extend_lost,
	writes_wal($$SELECT hloom_release('transaction', 'wal', hl.owner(2))$$, 3) AS release_lost,
	writes_wal($$SELECT hloom_is_held('transaction', 'wal', hl.owner(1))$$, 3) AS is_held,
	writes_wal($$SELECT hloom_remaining('transaction', 'wal', hl.owner(1))$$, 3) AS remaining,
	writes_wal($$SELECT * FROM hloom_leases$$, 3) AS read;
SELECT writes_wal($$SELECT hloom_extend('transaction', 'wal', hl.owner(1))$$) AS extend_won,
	writes_wal($$SELECT hloom_release('transaction', 'wal', hl.owner(1))$$) AS release_won,
	writes_wal($$SELECT hloom_release('transaction', 'wal', hl.owner(1))$$, 3) AS released_again;

-- Taken where the rows are kept for later; DISCARD ALL, which a pooler sends, takes nothing away.
CREATE TEMP TABLE work AS SELECT key
	FROM hloom_try_acquire('transaction', 'ctas', owner => hl.owner(1));
TABLE work;
DECLARE held CURSOR WITH HOLD FOR SELECT key
	FROM hloom_try_acquire('transaction', 'cursor', owner => hl.owner(1));
FETCH ALL FROM held;
CLOSE held;
DISCARD ALL;
SELECT hloom_is_held('transaction', 'cursor', hl.owner(1)) AS held_after_discard;

TRUNCATE hloom_leases;
SET client_min_messages = warning;
DROP SCHEMA transaction CASCADE;
