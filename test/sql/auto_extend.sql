-- Leases renewed by the server while what they follow lives.
CREATE SCHEMA auto_extend;
SET search_path = auto_extend, public;
CREATE VIEW held AS SELECT key, scope, auto_extend FROM hloom_leases
	WHERE namespace = 'auto-extend' ORDER BY key;
-- Returns when the lease ends later than that, or is gone: waiting for a state, not for a time.
CREATE FUNCTION wait_until_after(lock_key text, at timestamptz) RETURNS boolean LANGUAGE plpgsql
SET statement_timeout = '60s' AS $$
DECLARE
	ends timestamptz;
BEGIN
	LOOP
		SELECT expires_at INTO ends FROM hloom_leases
			WHERE namespace = 'auto-extend' AND key = lock_key;
		IF NOT FOUND OR ends > at THEN
			RETURN FOUND;
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;

-- A lease that follows the session: renewed beyond its first end, twice.
SELECT count(*) FROM hloom_try_acquire('auto-extend', 'session', '2 s', scope => 'session',
	owner => hl.owner(1), auto_extend => true);
TABLE held;
SELECT wait_until_after('session', granted_at + '3.5 s') AS renewed FROM hloom_leases
	WHERE key = 'session';
SELECT hloom_is_held('auto-extend', 'session', hl.owner(1));
SELECT lease FROM hloom_leases WHERE key = 'session';
-- What extends it changes how long it is renewed for.
SELECT hloom_extend('auto-extend', 'session', hl.owner(1), '3 s');
SELECT expires_at AS ends FROM hloom_leases WHERE key = 'session' \gset
SELECT wait_until_after('session', :'ends') AS renewed;
SELECT lease FROM hloom_leases WHERE key = 'session';
SELECT hloom_release('auto-extend', 'session', hl.owner(1));
TABLE held;

-- Who takes it again says whether it is renewed.
SELECT fence AS fence1 FROM hloom_try_acquire('auto-extend', 'again', '2 s', scope => 'session',
	owner => hl.owner(1), auto_extend => true) \gset
SELECT fence = :fence1 AS same FROM hloom_try_acquire('auto-extend', 'again', '2 s',
	scope => 'session', owner => hl.owner(1));
TABLE held;
SELECT hl.wait_until_free('auto-extend', 'again');
SELECT fence AS fence1 FROM hloom_try_acquire('auto-extend', 'again', '2 s', scope => 'session',
	owner => hl.owner(1)) \gset
SELECT fence = :fence1 AS same FROM hloom_try_acquire('auto-extend', 'again', '2 s',
	scope => 'session', owner => hl.owner(1), auto_extend => true);
SELECT wait_until_after('again', expires_at) AS renewed FROM hloom_leases WHERE key = 'again';
SELECT hloom_release_session();

-- The setting and the namespace's option: for leases that follow something, unless the call differs.
SET hloom_lock.auto_extend = on;
SELECT value FROM hloom_describe('auto-extend') WHERE part = 'auto_extend';
SELECT count(*) FROM hloom_try_acquire('auto-extend', 'set-lease', owner => hl.owner(1)) AS a,
	hloom_try_acquire('auto-extend', 'set-no', scope => 'session', auto_extend => false) AS b,
	hloom_try_acquire('auto-extend', 'set-yes', scope => 'session') AS c;
TABLE held;
RESET hloom_lock.auto_extend;
SELECT auto_extend FROM hloom_configure('auto-extend', auto_extend => true);
SELECT value, decided_by FROM hloom_describe('auto-extend') WHERE part = 'auto_extend';
SELECT count(*) FROM hloom_try_acquire('auto-extend', 'option', scope => 'session');
TABLE held;
SELECT hloom_unconfigure('auto-extend');
SELECT hloom_release('auto-extend', 'set-lease', hl.owner(1)), hloom_release_session();

-- A lease that follows the transaction, and one that is joined by a call that wants it renewed.
BEGIN;
SELECT count(*) FROM hloom_try_acquire('auto-extend', 'transaction', '2 s',
	scope => 'transaction', auto_extend => true);
SELECT wait_until_after('transaction', expires_at) AS renewed FROM hloom_leases
	WHERE key = 'transaction';
COMMIT;
TABLE held;
BEGIN;
SELECT count(*) FROM hloom_try_acquire('auto-extend', 'joined', '2 s', scope => 'transaction');
SELECT count(*) FROM hloom_try_acquire('auto-extend', 'joined', '2 s', scope => 'transaction',
	auto_extend => true);
SELECT wait_until_after('joined', expires_at) AS renewed FROM hloom_leases WHERE key = 'joined';
TABLE held;
ROLLBACK;
TABLE held;

-- An action that takes longer than its lease.
SELECT hloom_execute_with_lock('auto-extend', 'action', 'SELECT pg_sleep(3)', lease => '2 s',
	auto_extend => true, on_lost => 'cancel');
TABLE held;

-- Never past max_hold, also when the owner has extended it there himself.
SELECT max_hold FROM hloom_configure('auto-extend', max_hold => '3 s');
SELECT count(*) FROM hloom_try_acquire('auto-extend', 'limit', '2 s', scope => 'session',
	owner => hl.owner(1), auto_extend => true);
SELECT wait_until_after('limit', granted_at + '2999999 us') AS renewed FROM hloom_leases
	WHERE key = 'limit';
SELECT expires_at - granted_at AS held_for FROM hloom_leases WHERE key = 'limit';
SELECT hl.wait_until_free('auto-extend', 'limit');
SELECT count(*) FROM hloom_try_acquire('auto-extend', 'limit', '2 s', scope => 'session',
	owner => hl.owner(1), auto_extend => true);
SELECT hloom_extend('auto-extend', 'limit', hl.owner(1), '4 s');
SELECT expires_at AS ends FROM hloom_leases WHERE key = 'limit' \gset
SELECT wait_until_after('limit', :'ends') AS renewed;
SELECT hloom_unconfigure('auto-extend');

-- A lease of scope "lease" follows nobody that could be seen alive.
SELECT hl.state($$SELECT * FROM hloom_try_acquire('auto-extend', 'x', auto_extend => true)$$);
SELECT hl.state($$SELECT * FROM hloom_acquire('auto-extend', 'x', scope => 'lease',
	auto_extend => true)$$);
SELECT hl.state($$SELECT hloom_execute_with_lock('auto-extend', 'x', 'SELECT 1',
	scope => 'lease', auto_extend => true)$$);
TABLE held;
