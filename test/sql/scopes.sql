-- Leases that follow the session or the transaction, and those of statements that failed.
CREATE SCHEMA scopes;
SET search_path = scopes, public;
CREATE TABLE t (id int PRIMARY KEY);
CREATE VIEW held AS SELECT key, scope FROM hloom_leases WHERE namespace = 'scopes' ORDER BY key;
CREATE VIEW orphans AS SELECT outcome, value FROM hloom_metrics
	WHERE namespace = 'scopes' AND name = 'hostloom_lock_orphan_releases';
CREATE FUNCTION take(key text, scope text) RETURNS bigint LANGUAGE sql AS $$
	SELECT fence FROM hloom_try_acquire('scopes', key, scope => scope, owner => hl.owner(1))
$$;

-- Session: outlives transactions, ends with hloom_release_session(), DISCARD ALL and the session.
BEGIN;
SELECT take('s1', 'session') > 0 AS taken;
ROLLBACK;
SELECT take('s2', 'session') > 0 AS taken;
SELECT key, state, freed_by, holder_pid = pg_backend_pid() AS mine FROM hloom_locks ORDER BY key;
SELECT hloom_release('scopes', 's2', hl.owner(1)), hloom_is_held('scopes', 's1', hl.owner(1));
SELECT hloom_release_session();
SELECT hloom_release_session() AS again;
TABLE held;
SELECT hloom_is_held('scopes', 's1', hl.owner(1)), hloom_extend('scopes', 's1', hl.owner(1)),
	hloom_release('scopes', 's1', hl.owner(1));
SELECT take('s1', 'session') > 0 AS taken, take('l', 'lease') > 0 AS lease;
DISCARD ALL;
SET search_path = scopes, public;
TABLE held;
-- A lease that was given back and is taken again has another fence, also for the same owner.
SELECT take('s1', 'session') AS fence1 \gset
SELECT hloom_release_session();
SELECT take('s1', 'session') > :fence1 AS grown;
-- What is released is not released again, nor is it counted.
SELECT hloom_release('scopes', 's1', hl.owner(1)), hloom_release_session();
-- The owner's next call says what the lease follows.
SELECT take('l', 'session') = take('l', 'session') AS renewed;
TABLE held;
SELECT take('l', 'lease') > 0 AS renewed, hloom_release_session();
TABLE held;
SELECT take('l', 'session') > 0 AS renewed, hloom_release_session();
TABLE held;

-- Transaction: ends with COMMIT and ROLLBACK, also to a savepoint before it.
BEGIN;
SELECT take('t1', 'transaction') > 0 AS taken;
SAVEPOINT a;
SELECT take('t2', 'transaction') > 0 AS taken;
SAVEPOINT b;
SELECT take('t3', 'transaction') > 0 AS taken;
RELEASE b;
TABLE held;
ROLLBACK TO a;
TABLE held;
COMMIT;
TABLE held;
BEGIN;
SELECT take('t1', 'transaction') > 0 AS taken;
SELECT 1 / 0;
ROLLBACK;
TABLE held;
-- In autocommit, that is with the statement.
SELECT take('t1', 'transaction') > 0 AS taken;
TABLE held;
-- Each COMMIT of a procedure ends it, and so does each block that fails.
DO $$
BEGIN
	PERFORM take('t1', 'transaction');
	BEGIN
		PERFORM take('t2', 'transaction');
		RAISE 'undone';
	EXCEPTION WHEN OTHERS THEN
		RAISE NOTICE 'after the block: %', (SELECT string_agg(key, ' ') FROM held);
	END;
	COMMIT;
	RAISE NOTICE 'after COMMIT: %', (SELECT string_agg(key, ' ') FROM held);
	PERFORM take('t2', 'transaction');
	ROLLBACK;
	RAISE NOTICE 'after ROLLBACK: %', (SELECT string_agg(key, ' ') FROM held);
END $$;
-- Session leases of a savepoint that is rolled back by a later statement stay.
BEGIN;
SAVEPOINT a;
SELECT take('s1', 'session') > 0 AS taken;
ROLLBACK TO a;
COMMIT;
TABLE held;
SELECT hloom_release_session();

-- One transaction has one lease on a key: a further call joins it, whatever owner it names.  Its end
-- becomes the later one of both.
BEGIN;
SELECT fence, owner FROM hloom_acquire('scopes', 't1', '1 min', scope => 'transaction') \gset
SELECT fence = :fence AS same_fence, owner = :'owner' AS same_owner, lease,
	lease_end > now() + '50 s' AS end
FROM hloom_acquire('scopes', 't1', '10 s', scope => 'transaction', owner => hl.owner(2));
SELECT fence = :fence AS same_fence, lease, lease_end > now() + '80 s' AS end
FROM hloom_try_acquire('scopes', 't1', '2 min', scope => 'transaction');
SELECT lease FROM hloom_leases WHERE key = 't1';
-- Other scopes do not.
SELECT count(*) FROM hloom_try_acquire('scopes', 't1');
SAVEPOINT a;
SELECT count(*) FROM hloom_try_acquire('scopes', 't1', scope => 'transaction');
ROLLBACK TO a;
TABLE held;
SELECT hloom_execute_with_lock('scopes', 't1', 'INSERT INTO t VALUES (1)');
SELECT hloom_execute_with_lock('scopes', 't1', 'INSERT INTO t VALUES (2)');
SELECT hl.state($$SELECT hloom_execute_with_lock('scopes', 't1',
	'SELECT count(*) FROM hloom_acquire(''scopes'', ''t1'', scope => ''transaction'')')$$) AS inside;
-- It can be given back earlier.  One that is lost cannot be joined.
SELECT hloom_release('scopes', 't1', :'owner'::uuid);
SELECT fence > :fence AS another FROM hloom_acquire('scopes', 't1', '1 min', scope => 'transaction',
	owner => hl.owner(1));
SELECT hloom_extend('scopes', 't1', hl.owner(1), '1 ms');
SELECT hl.wait_until_free('scopes', 't1');
SELECT hl.error($$SELECT * FROM hloom_acquire('scopes', 't1', scope => 'transaction')$$);
COMMIT;
TABLE held;
SELECT * FROM t;

-- PREPARE TRANSACTION would leave the lease to nobody.
BEGIN;
SELECT take('t1', 'transaction') > 0 AS taken;
PREPARE TRANSACTION 'scopes';
TABLE held;

-- A statement that fails gives back what it took, with every scope: nobody has heard of it.
SELECT scope, hl.state(format($$SELECT 1 / (take('o', %L) * 0)$$, scope)) AS state,
	(SELECT count(*) FROM held) AS held
FROM unnest(ARRAY['lease', 'session', 'transaction']) AS scope;
TABLE held;
SELECT count(*), 1 / (count(*) - 1000) AS failed
FROM generate_series(1, 1000) AS i, hloom_try_acquire('scopes', 'many:' || i);
TABLE held;
-- Inside a transaction, too; what an earlier statement took stays.
BEGIN;
SELECT take('l1', 'lease') > 0 AS taken;
SAVEPOINT a;
SELECT take('l2', 'lease') > 0 AS taken;
SELECT 1 / (take('l3', 'lease') * 0);
ROLLBACK TO a;
TABLE held;
ROLLBACK;
TABLE held;
-- A renewal that fails leaves the lease: its owner had heard of it before.
SELECT 1 / (take('l1', 'lease') * 0);
SELECT hloom_release('scopes', 'l1', hl.owner(1)), hloom_release('scopes', 'l2', hl.owner(1));
-- Several commands in one message are one statement.
SELECT take('l1', 'lease') > 0 AS taken \; SELECT 1 / 0;
TABLE held;
SELECT take('l1', 'lease') > 0 AS taken \; SELECT 1;
TABLE held;
SELECT hloom_release('scopes', 'l1', hl.owner(1));
-- A cursor's grants are those of the FETCH that made them.
BEGIN;
DECLARE c CURSOR FOR SELECT key, 1 / (4 - i) AS n FROM generate_series(1, 5) AS i,
	hloom_try_acquire('scopes', 'c' || i, owner => hl.owner(1));
FETCH 2 FROM c;
FETCH 2 FROM c;
ROLLBACK;
TABLE held;
SELECT hloom_release('scopes', key, hl.owner(1)) FROM held;
-- A cursor held over the COMMIT runs in it; what that fails to commit is given back.
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT key FROM generate_series(1, 3) AS i,
	hloom_try_acquire('scopes', 'h' || i, owner => hl.owner(1));
FETCH 1 FROM h;
COMMIT;
FETCH ALL FROM h;
TABLE held;
CLOSE h;
SELECT hloom_release('scopes', key, hl.owner(1)) FROM held;
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT 1 / (3 - i) AS n FROM generate_series(1, 3) AS i,
	hloom_try_acquire('scopes', 'h' || i, owner => hl.owner(1));
COMMIT;
TABLE held;
-- Expired grants of the same owner and key do not stand in for the one that is held.
SELECT take('x', 'session') > 0 AND fence > 0 AS taken
FROM hloom_try_acquire('scopes', 'k', '30 ms', scope => 'session', owner => hl.owner(1));
SELECT hl.wait_until_free('scopes', 'k');
SELECT take('k', 'session') > 0 AS taken, hloom_release('scopes', 'x', hl.owner(1)) AS released;
BEGIN;
SELECT take('k', 'transaction') > 0 AS renewed;
COMMIT;
TABLE held;
-- A procedure that has committed and then fails gives everything back.
DO $$
BEGIN
	PERFORM take('p1', 'lease');
	COMMIT;
	PERFORM take('p2', 'session');
	COMMIT;
	RAISE 'failed';
END $$;
TABLE held;
DO $$
BEGIN
	PERFORM take('p1', 'lease');
	COMMIT;
END $$;
TABLE held;
SELECT hloom_release('scopes', 'p1', hl.owner(1));
-- In a trigger, a prepared statement, an exception block.
CREATE FUNCTION lock_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM take('row:' || NEW.id, 'lease');
	RETURN NEW;
END $$;
CREATE TRIGGER lock_row BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION lock_row();
INSERT INTO t VALUES (3), (2);
PREPARE failing AS SELECT 1 / (take($1, 'lease') * 0);
EXECUTE failing('prepared');
EXECUTE failing('prepared');
DO $$
BEGIN
	PERFORM take('outer', 'lease');
	BEGIN
		PERFORM take('inner', 'lease');
		RAISE 'undone';
	EXCEPTION WHEN OTHERS THEN
		PERFORM take('handler', 'lease');
	END;
END $$;
TABLE held;
SELECT hloom_release('scopes', key, hl.owner(1)) FROM held;
-- All were counted when they were removed, 64 with each lease taken later, and nothing else was.
SELECT bool_and(take('last', 'session') > 0) AS taken FROM generate_series(1, 20);
SELECT outcome = 'failed' AS failed, sum(value) FROM orphans GROUP BY 1 ORDER BY 1;

-- The session's end frees the one, and not the other.
SELECT take('l', 'lease') > 0 AS taken;
\connect
SET search_path = scopes, public;
SELECT hl.wait_until_free('scopes', 'last');
TABLE held;
SET client_min_messages = warning;
DROP SCHEMA scopes CASCADE;
TRUNCATE hloom_leases;
