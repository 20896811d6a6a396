-- A lease in shared memory that expires unreleased is lost, and counted once: reap.sql, for provider
-- "memory".
CREATE SCHEMA reap_memory;
SET search_path = reap_memory, public;
SELECT hloom_configure('memory-' || ns, provider => 'memory') FROM unnest(ARRAY['reap', 'other', 'same',
	'short', 'session', 'late']) AS ns;

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
	WHILE EXISTS (SELECT FROM hloom_locks WHERE namespace = ns) LOOP
		PERFORM pg_sleep(0.005);
	END LOOP;
END $$;
-- What has expired is gone when this returns.
CREATE FUNCTION reap() RETURNS bool LANGUAGE sql AS 'SELECT hloom_reap() >= 0';

-- By reaping, once.
SELECT let_expire('memory-reap', 'k', 1);
SELECT reap();
SELECT lost('memory-reap'), reap(), lost('memory-reap');
-- By another owner who takes the key, and by the same one.
SELECT let_expire('memory-other', 'k', 1);
SELECT count(*) FROM hloom_try_acquire('memory-other', 'k1', owner => hl.owner(2));
SELECT lost('memory-other'), hloom_release('memory-other', 'k1', hl.owner(2)), reap(), lost('memory-other');
SELECT let_expire('memory-same', 'k', 1);
SELECT renewed, hloom_is_held('memory-same', 'k1', hl.owner(1))
	FROM (SELECT fence > 0 AS renewed FROM hloom_try_acquire('memory-same', 'k1', owner => hl.owner(1))) AS t;
SELECT lost('memory-same'), hloom_release('memory-same', 'k1', hl.owner(1)), reap(), lost('memory-same');
-- The place is too short for the new row.
SELECT let_expire('memory-short', 'k', 1);
SELECT count(*) FROM hloom_try_acquire('memory-short', 'k1', owner => hl.owner(2), note => repeat('n', 200));
SELECT lost('memory-short'), hloom_release('memory-short', 'k1', hl.owner(2)), reap(), lost('memory-short');
-- A session's lease, too.
SELECT let_expire('memory-session', 'k', 1, 'session');
SELECT reap(), lost('memory-session'), hloom_release_session(), reap(), lost('memory-session');
SELECT let_expire('memory-session', 'again', 1, 'session');
SELECT count(*) FROM hloom_try_acquire('memory-session', 'again1', owner => hl.owner(2));
SELECT lost('memory-session'), hloom_release('memory-session', 'again1', hl.owner(2)), hloom_release_session();
SELECT reap(), lost('memory-session');
-- Given back, but too late.
SELECT let_expire('memory-late', 'k', 1, 'session', 3);
SELECT hloom_release_session(), reap(), lost('memory-late');
SELECT let_expire('memory-late', 'k', 1, 'session', 3);
DISCARD ALL;
SET search_path = reap_memory, public;
SELECT count(*) FROM hloom_try_acquire('memory-late', 'k1', owner => hl.owner(2));
SELECT hloom_release('memory-late', 'k1', hl.owner(2)), reap(), lost('memory-late');
BEGIN;
SELECT let_expire('memory-late', 't', 1, 'transaction', 2);
COMMIT;
SELECT reap(), lost('memory-late');

SET client_min_messages = warning;
SELECT hloom_unconfigure('memory-' || ns) FROM unnest(ARRAY['reap', 'other', 'same',
	'short', 'session', 'late']) AS ns;
DROP SCHEMA reap_memory CASCADE;
