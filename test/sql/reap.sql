-- A lease that expires unreleased is lost, and counted once, where its row goes: whoever makes it go,
-- and the server may do so at any moment.  So what is asserted is the count, when the row must be
-- gone, and not who removed it.
CREATE SCHEMA reap;
SET search_path = reap, public;
TRUNCATE hloom_leases;

CREATE FUNCTION lost(ns text) RETURNS float8 LANGUAGE sql AS $$
	SELECT coalesce((SELECT value FROM hloom_metrics
		WHERE namespace = ns AND name = 'hostloom_lock_lost'), 0)
$$;
-- Takes leases and returns when they have expired.
CREATE FUNCTION let_expire(ns text, lock_key text, n int, scope text DEFAULT 'lease',
	many int DEFAULT 1) RETURNS void LANGUAGE plpgsql SET statement_timeout = '60s' AS $$
BEGIN
	PERFORM hloom_try_acquire(ns, lock_key || i, owner => hl.owner(n), scope => let_expire.scope)
		FROM generate_series(1, many) AS i;
	PERFORM hloom_extend(ns, lock_key || i, hl.owner(n), '1 ms') FROM generate_series(1, many) AS i;
	WHILE EXISTS (SELECT FROM hloom_leases WHERE namespace = ns) LOOP
		PERFORM pg_sleep(0.005);
	END LOOP;
END $$;
-- What has expired is gone when this returns.
CREATE FUNCTION reap() RETURNS bool LANGUAGE sql AS 'SELECT hloom_reap() >= 0';

-- By reaping, once.
SELECT let_expire('reap', 'k', 1);
SELECT reap();
SELECT lost('reap'), reap(), lost('reap');
-- By another owner who takes the key, and by the same one.
SELECT let_expire('other', 'k', 1);
SELECT count(*) FROM hloom_try_acquire('other', 'k1', owner => hl.owner(2));
SELECT lost('other'), hloom_release('other', 'k1', hl.owner(2)), reap(), lost('other');
SELECT let_expire('same', 'k', 1);
SELECT renewed, hloom_is_held('same', 'k1', hl.owner(1))
	FROM (SELECT fence > 0 AS renewed FROM hloom_try_acquire('same', 'k1', owner => hl.owner(1))) AS t;
SELECT lost('same'), hloom_release('same', 'k1', hl.owner(1)), reap(), lost('same');
-- The place is too short for the new row.
SELECT let_expire('short', 'k', 1);
SELECT count(*) FROM hloom_try_acquire('short', 'k1', owner => hl.owner(2), note => repeat('n', 200));
SELECT lost('short'), hloom_release('short', 'k1', hl.owner(2)), reap(), lost('short');
-- A session's lease, too.
SELECT let_expire('session', 'k', 1, 'session');
SELECT reap(), lost('session'), hloom_release_session(), reap(), lost('session');
SELECT let_expire('session', 'again', 1, 'session');
SELECT count(*) FROM hloom_try_acquire('session', 'again1', owner => hl.owner(2));
SELECT lost('session'), hloom_release('session', 'again1', hl.owner(2)), hloom_release_session();
SELECT reap(), lost('session');
-- Given back, but too late.
SELECT let_expire('late', 'k', 1, 'session', 3);
SELECT hloom_release_session(), reap(), lost('late');
SELECT let_expire('late', 'k', 1, 'session', 3);
DISCARD ALL;
SET search_path = reap, public;
SELECT count(*) FROM hloom_try_acquire('late', 'k1', owner => hl.owner(2));
SELECT hloom_release('late', 'k1', hl.owner(2)), reap(), lost('late');
BEGIN;
SELECT let_expire('late', 't', 1, 'transaction', 2);
COMMIT;
SELECT reap(), lost('late');
-- By an action that is longer than its lease.
SET client_min_messages = error;
SELECT hloom_execute_with_lock('action', 'k1',
	$$SELECT hloom_extend('action', 'k1', hl.owner(1), '1 ms'),
		hl.wait_until_free('action', 'k1')$$, owner => hl.owner(1));
RESET client_min_messages;
SELECT reap(), lost('action');

-- By VACUUM.  A rewrite takes it along, since it could be rolled back.
SELECT let_expire('vacuum', 'k', 1, many => 20);
VACUUM hloom_leases;
SELECT lost('vacuum'), reap(), lost('vacuum');
SELECT let_expire('full', 'k', 1, many => 20);
VACUUM FULL hloom_leases;
SELECT count(*) FROM hloom_leases WHERE namespace = 'full';
SELECT reap(), lost('full');
VACUUM FULL hloom_leases;
VACUUM hloom_leases;
SELECT lost('full');
-- By a purge of a full page: the new leases need the places of the old ones, whose keys differ.
SELECT let_expire('purge', repeat('old', 160), 1, many => 1000);
SELECT count(*) FROM generate_series(1, 1000) AS i,
	hloom_try_acquire('purge', repeat('new', 160) || i, owner => hl.owner(1));
SELECT lost('purge') <= 1000 AS not_more, reap(), lost('purge');
SELECT count(*) FROM generate_series(1, 1000) AS i
	WHERE hloom_release('purge', repeat('new', 160) || i, hl.owner(1));
-- While the table grows, in which rows move.
VACUUM FULL hloom_leases;
SELECT pg_relation_size('hloom_leases') AS size \gset
SELECT let_expire('growth', 'k', 1, many => 2000);
SELECT count(*) FROM generate_series(1, 9000) AS i,
	hloom_try_acquire('growth', 'live' || i, owner => hl.owner(1));
SELECT pg_relation_size('hloom_leases') > :size + 64 * 8192 AS grown;
SELECT let_expire('grown', 'k', 1, many => 500);
VACUUM FULL hloom_leases;
SELECT reap(), lost('growth'), lost('grown');
SELECT count(*) FROM generate_series(1, 9000) AS i
	WHERE hloom_release('growth', 'live' || i, hl.owner(1));
SELECT reap(), lost('growth'), lost('grown');

-- Taken away is lost, too.
SELECT count(*) FROM hloom_try_acquire('force', 'reaped', owner => hl.owner(1));
SELECT lost('force') AS before \gset
SELECT hloom_force_release('force', 'reaped', 'test'), lost('force') - :before AS lost;
SELECT reap(), hloom_force_release('force', 'reaped', 'test'), lost('force') - :before AS lost;
SELECT let_expire('force', 'reaped', 1);
SELECT hloom_force_release('force', 'reaped1', 'test'), reap(), lost('force') - :before AS lost;

-- What is given back in time is not lost: released, by the session, the transaction, a failed statement.
SELECT count(*) FROM hloom_try_acquire('none', 'k', owner => hl.owner(1));
SELECT hloom_release('none', 'k', hl.owner(1));
SELECT count(*) FROM generate_series(1, 3) AS i, hloom_try_acquire('none', 's' || i, scope => 'session');
SELECT hloom_release_session();
BEGIN;
SELECT count(*) FROM hloom_try_acquire('none', 't', scope => 'transaction');
COMMIT;
SELECT hl.state($$SELECT 1 / (count(*) - 3) FROM generate_series(1, 3) AS i,
	hloom_try_acquire('none', 'o' || i)$$);
SELECT hl.wait_until_free('none', 'o' || i) FROM generate_series(1, 3) AS i;
SELECT hloom_execute_with_lock('none', 'k', 'SELECT 1');
-- Given back in time and removed after the end.
BEGIN;
SELECT count(*) FROM generate_series(1, 3) AS i,
	hloom_try_acquire('none', 'b' || i, '1 s', scope => 'transaction');
COMMIT;
-- Their end has to pass.
SELECT pg_sleep(1.1);
SELECT count(*) FROM hloom_try_acquire('none', 'b1');
SELECT reap(), lost('none');
-- What is held stays.
SELECT count(*) FROM hloom_try_acquire('held', 'k', owner => hl.owner(1));
SELECT reap(), hloom_is_held('held', 'k', hl.owner(1)), lost('held');

-- Errors and privileges.
BEGIN READ ONLY;
SELECT hl.error('SELECT hloom_reap()');
COMMIT;
BEGIN;
TRUNCATE hloom_leases;
SELECT hl.error('SELECT hloom_reap()');
ROLLBACK;
CREATE ROLE hloom_regress_reap;
GRANT USAGE ON SCHEMA hl TO hloom_regress_reap;
SET ROLE hloom_regress_reap;
SELECT hl.error('SELECT hloom_reap()');
RESET ROLE;
REVOKE USAGE ON SCHEMA hl FROM hloom_regress_reap;
DROP ROLE hloom_regress_reap;

TRUNCATE hloom_leases;
SET client_min_messages = warning;
DROP SCHEMA reap CASCADE;
